//! What all calls share: the rules as arguments, the time, and what is counted on a reply.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::reply::{self, Timed};
use crate::{
    clock::{Clock, StoreClock},
    domain::{QueueTarget, UserId},
    metrics::{Metrics, TokenEvent},
    redis::{
        Call, Failure, Masters,
        batch::GroupCall,
        keys::{self, TargetKeys},
        scripts::Script,
    },
    store::{Place, QueueRules, StoreError},
};

/// The store's clock has stepped if it is further than this from where we thought it was.
const CLOCK_STEP_MS: i64 = 1000;

/// What every call needs.
pub(super) struct Shared {
    pub(super) masters: Arc<Masters>,
    pub(super) rules: QueueRules,
    /// ARGV 2 to 7 of every script.
    rule_args: [String; 6],
    /// For tests: the time the scripts are told, in place of Redis's own.
    test_time: Option<Arc<dyn Clock>>,
    clock: StoreClock,
    /// A first reply has been seen: from then on a jump of the clock is a step, before it is our own clock being wrong.
    clock_known: Mutex<bool>,
    pub(super) metrics: Arc<Metrics>,
    /// Targets that had people since the last [`Self::take_served`].
    served: Mutex<HashSet<QueueTarget>>,
}

impl Shared {
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

    /// The targets that had people since the last time.
    pub(super) fn take_served(&self) -> Vec<QueueTarget> {
        std::mem::take(&mut *self.served()).into_iter().collect()
    }

    /// Notes that these had people.
    pub(super) fn note_served(&self, targets: impl IntoIterator<Item = QueueTarget>) {
        self.served().extend(targets);
    }

    fn served(&self) -> MutexGuard<'_, HashSet<QueueTarget>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn args(&self, may_evict: u64, own: impl IntoIterator<Item = String>) -> Vec<String> {
        let now = self.test_time.as_ref().map(|time| time.wall_ms().to_string()).unwrap_or_default();
        let common = std::iter::once(now).chain(self.rule_args.iter().cloned()).chain([may_evict.to_string()]);
        common.chain(own).collect()
    }

    /// A script for one person, on the hot connection.
    pub(super) async fn hot<T>(
        &self,
        script: &'static Script,
        target: QueueTarget,
        own: impl IntoIterator<Item = String>,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, StoreError> {
        Ok(self.group(script, target, own, 1, read).await?)
    }

    /// A script for many at once, on the hot connection.
    pub(super) async fn group<T>(
        &self,
        script: &'static Script,
        target: QueueTarget,
        own: impl IntoIterator<Item = String>,
        people: usize,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, Failure> {
        let (keys, args) = (TargetKeys::of(target), self.args(0, own));
        let (reply, asked) = self.masters.run_hot(script, keys.all(), &args, people).await?;
        self.understood(asked, read(&reply))
    }

    /// How long after a loss no batch goes: a tick, of those configured and set for the target the longer. In a time made
    /// by a test nothing is lost that it does not lose itself.
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

    /// A script for the pump or the operator, over the pool.
    pub(super) async fn pooled<T>(
        &self,
        script: &'static Script,
        target: QueueTarget,
        own: impl IntoIterator<Item = String>,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let args = self.args(0, own);
        Ok(self.run_pooled(Duration::ZERO, script, target, args, read).await?)
    }

    /// A script that may evict so many silent people, not before the master's last loss is `quiet` ago.
    pub(super) async fn evicting<T>(
        &self,
        may_evict: u64,
        quiet: Duration,
        script: &'static Script,
        target: QueueTarget,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, Failure> {
        self.run_pooled(quiet, script, target, self.args(may_evict, []), read).await
    }

    async fn run_pooled<T>(
        &self,
        quiet: Duration,
        script: &'static Script,
        target: QueueTarget,
        args: Vec<String>,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, Failure> {
        let keys = TargetKeys::of(target);
        let (reply, asked) = self.masters.run_pooled(script, keys.all(), &args, quiet).await?;
        self.understood(asked, read(&reply))
    }

    fn understood<T>(&self, asked: Duration, reply: Result<Timed<T>, StoreError>) -> Result<T, Failure> {
        let read = reply.and_then(|reply| self.learn_time(asked, reply));
        read.map_err(|error| match error {
            StoreError::Broken(what) => Failure::Broken(what),
            other => Failure::Broken(other.to_string()),
        })
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

    /// Puts targets into `queue:active`.
    pub(super) async fn add_active(&self, targets: Vec<QueueTarget>) -> Result<(), StoreError> {
        let members: Vec<String> = targets.iter().map(QueueTarget::to_string).collect();
        let mut add = ::redis::cmd("SADD");
        add.arg(keys::ACTIVE).arg(members);
        Ok(self.masters.pooled(keys::ACTIVE, Call::command(add)).await?)
    }
}

/// `enter.lua` or `status.lua`, for many people.
pub(super) struct Visit {
    pub(super) shared: Arc<Shared>,
    pub(super) script: &'static Script,
    /// The code of who has neither place nor pass.
    pub(super) absent: i64,
}

impl GroupCall for Visit {
    type Item = UserId;
    type Answer = Option<Place>;

    async fn call(&self, target: QueueTarget, people: &[UserId]) -> Result<Vec<Option<Place>>, Failure> {
        let shared = &self.shared;
        let read = |reply: &[i64]| reply::visits(self.script.name(), self.absent, people.len(), reply);
        let own = people.iter().map(UserId::to_string);
        let found = shared.group(self.script, target, own, people.len(), read).await?;
        shared.metrics.tokens(target, TokenEvent::Issued, found.issued);
        shared.metrics.tokens(target, TokenEvent::Expired, found.expired);
        for wait in found.waits {
            shared.metrics.waited(target, wait);
        }
        if found.places.iter().any(Option::is_some) {
            shared.note_served([target]);
        }
        Ok(found.places)
    }
}
