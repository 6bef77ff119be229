//! The queue on Redis, shared by all replicas.
//!
//! Here: which script does what, and what is counted on its reply. The scripts decide; see `redis-scripts/`.

mod reply;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

use self::reply::Timed;
use super::{
    Claim, Departure, Place, QueueRules, Settled, Settlement, StoreError, Sweep, Tick, TickLock, VirtualQueueStore,
};
use crate::{
    clock::{Clock, StoreClock},
    config::RedisConfig,
    domain::{QueueStats, QueueTarget, UserId},
    metrics::{Metrics, TokenEvent},
    redis::{
        Failure,
        batch::{Batcher, GroupCall},
        connection::{BadUrl, Master, Pool},
        keys::{self, TargetKeys},
        scripts::{self, Script},
    },
};

/// The store's clock has stepped if it is further than this from where we thought it was.
const CLOCK_STEP_MS: i64 = 1000;
/// Less memory than this is little for a sale (DESIGN 5).
const LITTLE_MEMORY: u64 = 512 * 1024 * 1024;

/// The queue on Redis. People's calls go in groups on one connection, the rest over a pool.
pub struct RedisStore {
    shared: Arc<Shared>,
    enter: Batcher<Visit>,
    status: Batcher<Visit>,
}

/// What every call needs.
struct Shared {
    master: Arc<Master>,
    rules: QueueRules,
    /// ARGV 2 to 8 of every script.
    rule_args: [String; 7],
    /// For tests: the time the scripts are told, in place of Redis's own.
    test_time: Option<Arc<dyn Clock>>,
    clock: StoreClock,
    /// A first reply has been seen: from then on a jump of the clock is a step, before it is our own clock being wrong.
    clock_known: Mutex<bool>,
    metrics: Arc<Metrics>,
    /// Targets that had people since the last [`VirtualQueueStore::active_targets`].
    served: Mutex<HashSet<QueueTarget>>,
    malformed_logged: AtomicBool,
}

impl RedisStore {
    /// A store on the Redis at `config.url`, whose calls run on the calling runtime. Redis may be away: then it is
    /// connected to when it comes.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub async fn connect(
        config: &RedisConfig,
        rules: QueueRules,
        clock: StoreClock,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, BadUrl> {
        Self::build(config, rules, clock, metrics, None).await
    }

    /// As [`Self::connect`], for tests: `time` (its wall clock) takes the place of Redis's own.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub async fn connect_with_test_time(
        config: &RedisConfig,
        rules: QueueRules,
        clock: StoreClock,
        metrics: Arc<Metrics>,
        time: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, BadUrl> {
        Self::build(config, rules, clock, metrics, Some(time)).await
    }

    async fn build(
        config: &RedisConfig,
        rules: QueueRules,
        clock: StoreClock,
        metrics: Arc<Metrics>,
        test_time: Option<Arc<dyn Clock>>,
    ) -> Result<Arc<Self>, BadUrl> {
        let master = Master::connect(config, clock.clone(), metrics.clone()).await?;
        let rule_args = [
            rules.idle_ttl_ms,
            rules.pacing.batch,
            rules.pacing.tick_ms,
            rules.capacity,
            rules.heartbeat_timeout_ms,
            rules.token_ttl_seconds,
            rules.max_evict_per_tick,
        ]
        .map(|rule| rule.to_string());
        let (limit, runtime) = (master.call_limit(), master.runtime().clone());
        let shared = Arc::new(Shared {
            master,
            rules,
            rule_args,
            test_time,
            clock,
            clock_known: Mutex::new(false),
            metrics,
            served: Mutex::default(),
            malformed_logged: AtomicBool::new(false),
        });
        let batcher =
            |script, absent| Batcher::new(Visit { shared: shared.clone(), script, absent }, limit, runtime.clone());
        Ok(Arc::new(Self { enter: batcher(&scripts::ENTER, 4), status: batcher(&scripts::STATUS, 0), shared }))
    }

    /// The pool, for flags and the demo shop. Use it on the runtime that called [`Self::connect`].
    pub fn pool(&self) -> &Pool {
        self.shared.master.pool()
    }

    /// The client, for connections of one's own.
    pub fn client(&self) -> &::redis::Client {
        self.shared.master.client()
    }

    /// What about the server's settings may hurt during a sale, in words for the operator.
    pub async fn server_warnings(&self) -> Vec<String> {
        let asked = self.shared.master.pooled(|mut connection| async move {
            let mut config = ::redis::pipe();
            config.cmd("CONFIG").arg("GET").arg("maxmemory-policy").cmd("CONFIG").arg("GET").arg("maxmemory");
            config.query_async::<Vec<Vec<String>>>(&mut connection).await
        });
        let settings = asked.await.ok().map(|pairs| pairs.concat());
        let setting = |name: &str| {
            let settings = settings.as_ref()?;
            settings.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
        };
        let mut warnings = Vec::new();
        match setting("maxmemory-policy") {
            Some("noeviction") => {}
            Some(policy) => warnings.push(format!(
                "redis has maxmemory-policy {policy}: when it is full, people lose their places; set noeviction"
            )),
            None => warnings.push("redis does not tell its maxmemory-policy; it should be noeviction".to_owned()),
        }
        match setting("maxmemory").map(str::parse::<u64>) {
            Some(Ok(0)) => {}
            Some(Ok(bytes)) if bytes < LITTLE_MEMORY => {
                warnings.push(format!("redis has maxmemory {} MB: give it 512 MB or more", bytes / (1024 * 1024)))
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                warnings.push("redis does not tell its maxmemory; it should be 512 MB or more, or 0".to_owned());
            }
        }
        warnings
    }

    async fn group(
        &self,
        batcher: &Batcher<Visit>,
        target: QueueTarget,
        user: UserId,
    ) -> Result<Option<Place>, StoreError> {
        let breaker = self.shared.master.breaker();
        breaker.check()?;
        let answer = batcher.ask(target, user).await;
        if answer == Err(Failure::TimedOut) {
            breaker.doubt();
        }
        Ok(answer?)
    }
}

impl Shared {
    fn served(&self) -> MutexGuard<'_, HashSet<QueueTarget>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn args(&self, own: impl IntoIterator<Item = String>) -> Vec<String> {
        let now = self.test_time.as_ref().map(|time| time.wall_ms().to_string()).unwrap_or_default();
        std::iter::once(now).chain(self.rule_args.iter().cloned()).chain(own).collect()
    }

    /// A script for one person, on the hot connection.
    async fn hot<T>(
        &self,
        script: &'static Script,
        target: QueueTarget,
        own: impl IntoIterator<Item = String>,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let (keys, args) = (TargetKeys::of(target), self.args(own));
        let (reply, asked) = self.master.run_hot(script, keys.all(), &args, 1).await?;
        self.learn_time(asked, read(&reply)?)
    }

    /// A script for the pump or the operator, over the pool.
    async fn pooled<T>(
        &self,
        script: &'static Script,
        target: QueueTarget,
        own: impl IntoIterator<Item = String>,
        read: impl FnOnce(&[i64]) -> Result<Timed<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let (keys, args) = (TargetKeys::of(target), self.args(own));
        let (reply, asked) = self.master.run_pooled(script, keys.all(), &args).await?;
        self.learn_time(asked, read(&reply)?)
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

    async fn add_active(&self, targets: Vec<QueueTarget>) -> Result<(), StoreError> {
        let members: Vec<String> = targets.iter().map(QueueTarget::to_string).collect();
        let added = self.master.pooled(|mut connection| async move {
            ::redis::cmd("SADD").arg(keys::ACTIVE).arg(members).exec_async(&mut connection).await
        });
        Ok(added.await?)
    }
}

/// `enter.lua` or `status.lua`, for many people.
struct Visit {
    shared: Arc<Shared>,
    script: &'static Script,
    /// The code of who has neither place nor pass.
    absent: i64,
}

impl GroupCall for Visit {
    type Answer = Option<Place>;

    async fn call(&self, target: QueueTarget, people: &[UserId]) -> Result<Vec<Option<Place>>, Failure> {
        let shared = &self.shared;
        let keys = TargetKeys::of(target);
        let args = shared.args(people.iter().map(UserId::to_string));
        let (reply, asked) = shared.master.run_hot(self.script, keys.all(), &args, people.len()).await?;
        let found = reply::visits(self.script.name(), self.absent, people.len(), &reply)
            .and_then(|found| shared.learn_time(asked, found))
            .map_err(|error| Failure::Broken(error.to_string()))?;
        shared.metrics.tokens(target, TokenEvent::Issued, found.issued);
        shared.metrics.tokens(target, TokenEvent::Expired, found.expired);
        for wait in found.waits {
            shared.metrics.waited(target, wait);
        }
        if found.places.iter().any(Option::is_some) {
            shared.served().insert(target);
        }
        Ok(found.places)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Away(cause) => Self::Unavailable(cause),
            Failure::TimedOut => Self::TimedOut,
            Failure::Broken(what) => Self::Broken(what),
        }
    }
}

#[async_trait]
impl VirtualQueueStore for RedisStore {
    async fn enter_if_absent(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        self.group(&self.enter, target, user).await
    }

    async fn status(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        self.group(&self.status, target, user).await
    }

    async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Departure, StoreError> {
        let departure = self.shared.hot(&scripts::LEAVE, target, [user.to_string()], reply::departure).await?;
        self.shared.metrics.tokens(target, TokenEvent::Revoked, u64::from(departure == Departure::GaveUpPass));
        Ok(departure)
    }

    async fn claim(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
    ) -> Result<Claim, StoreError> {
        let lease = self.shared.rules.lease_ms.to_string();
        let own = [user.to_string(), expires_at.to_string(), nonce.to_owned(), lease];
        self.shared.hot(&scripts::CLAIM, target, own, reply::claim).await
    }

    async fn settle(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
        how: Settlement,
    ) -> Result<Settled, StoreError> {
        let how = match how {
            Settlement::Spent => "spent",
            Settlement::GivenBack => "back",
        };
        let own = [user.to_string(), expires_at.to_string(), nonce.to_owned(), how.to_owned()];
        let settled = self.shared.hot(&scripts::SETTLE, target, own, reply::settled).await?;
        self.shared.metrics.tokens(target, TokenEvent::Consumed, u64::from(settled == Settled::Consumed));
        Ok(settled)
    }

    async fn stats(&self, target: QueueTarget) -> Result<QueueStats, StoreError> {
        self.shared.pooled(&scripts::STATS, target, [], reply::stats).await
    }

    async fn count_direct(&self, target: QueueTarget, passes: u64) -> Result<(), StoreError> {
        self.shared.pooled(&scripts::DIRECT, target, [passes.to_string()], reply::direct).await.map(drop)
    }

    async fn lock_tick(&self, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError> {
        let (key, me, lock_ms) = (keys::tick_lock(target), owner.to_owned(), self.shared.rules.lock_ms());
        let asked = self.shared.master.pooled(move |mut connection| async move {
            let mut lock = ::redis::pipe();
            lock.cmd("SET").arg(&key).arg(&me).arg("NX").arg("PX").arg(lock_ms).ignore();
            lock.cmd("GET").arg(&key).cmd("PTTL").arg(&key);
            let (holder, ttl_ms): (Option<String>, i64) = lock.query_async(&mut connection).await?;
            Ok((holder.as_deref() == Some(&me), ttl_ms))
        });
        let (ours, ttl_ms) = asked.await?;
        // It may have ended between the commands: then it is worth trying again right away.
        Ok(if ours { TickLock::Ours } else { TickLock::HeldFor(Duration::from_millis(ttl_ms.max(1).unsigned_abs())) })
    }

    async fn sweep_stale(&self, target: QueueTarget) -> Result<Sweep, StoreError> {
        let sweep = self.shared.pooled(&scripts::EVICT, target, [], reply::sweep).await?;
        self.shared.metrics.tokens(target, TokenEvent::Expired, sweep.expired);
        Ok(sweep)
    }

    async fn advance_admission(&self, target: QueueTarget) -> Result<Tick, StoreError> {
        self.shared.pooled(&scripts::ADMIT, target, [], reply::tick).await
    }

    async fn active_targets(&self) -> Result<Vec<QueueTarget>, StoreError> {
        let served: Vec<QueueTarget> = std::mem::take(&mut *self.shared.served()).into_iter().collect();
        if !served.is_empty()
            && let Err(error) = self.shared.add_active(served.clone()).await
        {
            self.shared.served().extend(served);
            return Err(error);
        }
        let read = self.shared.master.pooled(|mut connection| async move {
            ::redis::cmd("SMEMBERS").arg(keys::ACTIVE).query_async::<Vec<String>>(&mut connection).await
        });
        let targets = read.await?.into_iter().filter_map(|member| {
            let target = QueueTarget::from_label(&member);
            if target.is_err() && !self.shared.malformed_logged.swap(true, Ordering::Relaxed) {
                tracing::warn!(member, "not a target in queue:active, ignored; further ones are not logged");
            }
            target.ok()
        });
        Ok(targets.collect())
    }

    async fn register_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError> {
        if let Some(limit) = limit {
            let args = [target.to_string(), limit.to_string()];
            let (reply, _) = self.shared.master.run_pooled(&scripts::REGISTER, &[keys::ACTIVE], &args).await?;
            if reply::registered(&reply)? {
                return Ok(true);
            }
            // A target with settings is expected: the limit is against the others.
            let settings = TargetKeys::of(target).settings().to_owned();
            let asked = self.shared.master.pooled(|mut connection| async move {
                ::redis::cmd("EXISTS").arg(settings).query_async::<bool>(&mut connection).await
            });
            if !asked.await? {
                return Ok(false);
            }
        }
        self.shared.add_active(vec![target]).await.map(|()| true)
    }

    async fn retire(&self, target: QueueTarget) -> Result<bool, StoreError> {
        let (member, seq) = (target.to_string(), TargetKeys::of(target).seq().to_owned());
        // Somebody may have entered between the pump's look and the removal: so it looks again after it.
        let asked = self.shared.master.pooled(|mut connection| async move {
            let mut retire = ::redis::pipe();
            retire.cmd("SREM").arg(keys::ACTIVE).arg(member).ignore().cmd("EXISTS").arg(seq);
            let (has_queue,): (bool,) = retire.query_async(&mut connection).await?;
            Ok(has_queue)
        });
        let has_queue = asked.await?;
        if has_queue {
            self.shared.add_active(vec![target]).await?;
        }
        Ok(!has_queue)
    }

    fn is_degraded(&self) -> bool {
        self.shared.master.breaker().check().is_err()
    }

    fn lost_at(&self) -> Option<Duration> {
        self.shared.master.breaker().lost_at()
    }
}
