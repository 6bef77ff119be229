//! Runs a script for a target: the arguments that all scripts have, the time, and what is counted from a reply.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    batch::GroupCall,
    reply::{self, Timed},
};
use crate::{
    clock::{Clock, StoreClock},
    domain::{QueueTarget, UserId},
    metrics::{Metrics, TokenEvent},
    redis::{
        Call, Failure, Lane, Masters,
        keys::{self, TargetKeys},
        scripts::Script,
    },
    store::{Place, QueueRules, StoreError},
};

/// If the store's clock differs by more than this from our estimate, it has stepped.
const CLOCK_STEP_MS: i64 = 1000;

/// What every call needs.
pub(super) struct ScriptRunner {
    pub(super) masters: Arc<Masters>,
    pub(super) rules: QueueRules,
    /// ARGV 2 to 7 of every script.
    rule_args: [String; 6],
    /// For tests: the time for the scripts, instead of Redis's clock.
    test_time: Option<Arc<dyn Clock>>,
    clock: StoreClock,
    /// Whether a first reply was seen. From then on a jump is a step of Redis's clock; before, our own clock was wrong.
    clock_known: Mutex<bool>,
    pub(super) metrics: Arc<Metrics>,
    /// Targets that had people since the last [`Self::take_served`].
    served: Mutex<HashSet<QueueTarget>>,
}

impl ScriptRunner {
    pub(super) fn new(
        masters: Arc<Masters>,
        rules: QueueRules,
        clock: StoreClock,
        metrics: Arc<Metrics>,
        test_time: Option<Arc<dyn Clock>>,
    ) -> Self {
        let rule_args = [
            rules.idle_ttl_ms,
            rules.pacing.batch,
            rules.pacing.tick_ms,
            rules.capacity,
            rules.silent_after_ms,
            rules.token_ttl_seconds,
        ]
        .map(|rule| rule.to_string());
        Self {
            masters,
            rules,
            rule_args,
            test_time,
            clock,
            clock_known: Mutex::new(false),
            metrics,
            served: Mutex::default(),
        }
    }

    /// The targets that had people since the last call.
    pub(super) fn take_served(&self) -> Vec<QueueTarget> {
        std::mem::take(&mut *self.served()).into_iter().collect()
    }

    /// Notes that these targets had people.
    pub(super) fn note_served(&self, targets: impl IntoIterator<Item = QueueTarget>) {
        self.served().extend(targets);
    }

    fn served(&self) -> MutexGuard<'_, HashSet<QueueTarget>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a script. `read` parses its reply.
    pub(super) async fn run<T>(
        &self,
        call: ScriptCall,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, Failure> {
        let ScriptCall { lane, script, target, own, people, may_evict } = call;
        let (keys, now) = (TargetKeys::of(target), self.test_time.as_ref().map(|time| time.wall_ms().to_string()));
        let common = std::iter::once(now.unwrap_or_default()).chain(self.rule_args.iter().cloned());
        let args: Vec<String> = common.chain([may_evict.to_string()]).chain(own).collect();
        let (reply, asked) = self.masters.run(lane, script, keys.all(), &args, people).await?;
        let read = read(&reply).and_then(|reply| self.learn_time(asked, reply));
        read.map_err(|error| match error {
            StoreError::Broken(what) => Failure::Broken(what),
            other => Failure::Broken(other.to_string()),
        })
    }

    /// How long no batch goes after a loss: one tick, the configured or the target's own, whichever is longer. Zero on
    /// test time: there only the test itself loses anything.
    pub(super) fn quiet_after_loss(&self, set_tick_ms: Option<u64>) -> Duration {
        match self.test_time {
            Some(_) => Duration::ZERO,
            None => Duration::from_millis(set_tick_ms.unwrap_or_default().max(self.rules.pacing.tick_ms)),
        }
    }

    pub(super) fn lease_ms(&self) -> u64 {
        self.rules.lease_ms
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn learn_time<T>(&self, asked: Duration, reply: Timed<T>) -> Result<T, StoreError> {
        let mut known = self.clock_known.lock().unwrap_or_else(PoisonError::into_inner);
        let thought = self.clock.now_ms();
        self.clock.observe(asked, reply.now_ms);
        let step = self.clock.now_ms() as i64 - thought as i64;
        if *known && step.abs() > CLOCK_STEP_MS {
            tracing::warn!(step_ms = step, "redis's clock stepped");
            self.metrics.clock_stepped(step > 0);
        }
        *known = true;
        Ok(reply.value)
    }

    /// Adds targets to `queue:active`.
    pub(super) async fn add_active(&self, targets: Vec<QueueTarget>) -> Result<(), StoreError> {
        let members: Vec<String> = targets.iter().map(QueueTarget::to_string).collect();
        let mut add = ::redis::cmd("SADD");
        add.arg(keys::ACTIVE).arg(members);
        Ok(self.masters.ask(Lane::POOLED, keys::ACTIVE, Call::command(add)).await?)
    }
}

/// A script to run for a target.
pub(super) struct ScriptCall {
    lane: Lane,
    script: &'static Script,
    target: QueueTarget,
    /// Its own arguments, after those that all scripts have.
    own: Vec<String>,
    /// How many people share the call.
    people: usize,
    /// How many silent people it may evict.
    may_evict: u64,
}

impl ScriptCall {
    /// A call for one person, on the lane of buyers.
    pub(super) fn hot(script: &'static Script, target: QueueTarget, own: impl IntoIterator<Item = String>) -> Self {
        let own = own.into_iter().collect();
        Self { lane: Lane::Hot, script, target, own, people: 1, may_evict: 0 }
    }

    /// A call for a pump or an operator.
    pub(super) fn pooled(script: &'static Script, target: QueueTarget, own: impl IntoIterator<Item = String>) -> Self {
        Self { lane: Lane::POOLED, ..Self::hot(script, target, own) }
    }

    /// Sets how many people share the call.
    pub(super) fn shared_by(self, people: usize) -> Self {
        Self { people, ..self }
    }

    /// Sets how many silent people it may evict.
    pub(super) fn evicting(self, may_evict: u64) -> Self {
        Self { may_evict, ..self }
    }

    /// Holds the call back until `quiet` after the last loss of the master.
    pub(super) fn after_loss(self, quiet: Duration) -> Self {
        Self { lane: Lane::Pooled { quiet }, ..self }
    }
}

/// `enter.lua` or `status.lua`, for many people.
pub(super) struct Visit {
    pub(super) runner: Arc<ScriptRunner>,
    pub(super) script: &'static Script,
    /// The code for a person with neither place nor pass.
    pub(super) absent: i64,
}

impl GroupCall for Visit {
    type Item = UserId;
    type Answer = Option<Place>;

    async fn call(&self, target: QueueTarget, people: &[UserId]) -> Result<Vec<Option<Place>>, Failure> {
        let runner = &self.runner;
        let read = |reply: &[i64]| reply::visits(self.script.name(), self.absent, people.len(), reply);
        let own = people.iter().map(UserId::to_string);
        let call = ScriptCall::hot(self.script, target, own).shared_by(people.len());
        let found = runner.run(call, read).await?;
        runner.metrics.tokens(target, TokenEvent::Issued, found.issued);
        runner.metrics.tokens(target, TokenEvent::Expired, found.expired);
        for wait in found.waits {
            runner.metrics.waited(target, wait);
        }
        if found.places.iter().any(Option::is_some) {
            runner.note_served([target]);
        }
        Ok(found.places)
    }
}
