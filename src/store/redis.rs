//! The queue on Redis, shared by all replicas.
//!
//! Here: which script serves which call, and what is counted from its reply. The scripts decide; see `redis-scripts/`.

mod active;
mod batch;
mod lock;
mod purchases;
mod replicas;
mod reply;
mod script_runner;
mod server;
mod settings;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;

use self::{
    batch::Batcher,
    purchases::{Purchase, Purchases, crossed},
    reply::Purchased,
    script_runner::{ScriptCall, ScriptRunner, Visit},
    settings::KnownSettings,
};
use super::{
    Adopted, Claim, Departure, PassStore, Place, PumpStore, QueueRules, QueueStore, Replica, ReplicaStore, Settled,
    Settlement, StoreError, StoreHealth, Sweep, Tick, TickLock,
};
use crate::{
    clock::{Clock, StoreClock},
    config::RedisConfig,
    domain::{QueueStats, QueueTarget, UserId},
    metrics::{Metrics, TokenEvent},
    redis::{Failure, Masters, connection::BadUrl, keys, scripts},
};

/// The queue on Redis. People's calls share one connection, most of them in groups; all other calls use a pool.
pub struct RedisStore {
    runner: Arc<ScriptRunner>,
    enter: Batcher<Visit>,
    status: Batcher<Visit>,
    purchases: Batcher<Purchases>,
    settings: KnownSettings,
    malformed_logged: AtomicBool,
}

impl RedisStore {
    /// A store on the configured Redis. Its calls run on the calling runtime. If Redis is unavailable, the store
    /// connects when it is available.
    pub async fn connect(
        config: &RedisConfig,
        rules: QueueRules,
        clock: StoreClock,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, BadUrl> {
        Self::build(config, rules, clock, metrics, None).await
    }

    /// As [`Self::connect`], for tests: the wall clock of `time` replaces Redis's clock.
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
        let masters = Masters::connect(config, clock.clone(), metrics.clone()).await?;
        let (limit, runtime) = (masters.call_limit(), masters.runtime().clone());
        let runner = Arc::new(ScriptRunner::new(masters, rules, clock, metrics, test_time));
        let batcher =
            |script, absent| Batcher::new(Visit { runner: runner.clone(), script, absent }, limit, runtime.clone());
        Ok(Arc::new(Self {
            enter: batcher(&scripts::ENTER, 4),
            status: batcher(&scripts::STATUS, 0),
            purchases: Batcher::new(Purchases(runner.clone()), limit, runtime.clone()),
            runner,
            settings: KnownSettings::default(),
            malformed_logged: AtomicBool::new(false),
        }))
    }

    /// The masters, for flags and the demo shop.
    pub fn masters(&self) -> &Arc<Masters> {
        &self.runner.masters
    }

    /// Server settings that may harm a sale, as warnings for the operator.
    pub async fn server_warnings(&self) -> Vec<String> {
        server::warnings(&self.runner.masters).await
    }

    async fn judged(&self, target: QueueTarget, purchase: Purchase) -> Result<Claim, StoreError> {
        match self.purchases.ask(target, purchase).await? {
            Purchased::Claim(claim) => Ok(claim),
            Purchased::Settled(_) => Err(crossed()),
        }
    }

    async fn settled(&self, target: QueueTarget, purchase: Purchase) -> Result<Settled, StoreError> {
        match self.purchases.ask(target, purchase).await? {
            Purchased::Settled(settled) => Ok(settled),
            Purchased::Claim(_) => Err(crossed()),
        }
    }

    async fn group(
        &self,
        batcher: &Batcher<Visit>,
        target: QueueTarget,
        user: UserId,
    ) -> Result<Option<Place>, StoreError> {
        let master = self.runner.masters.of(&keys::tag(target))?;
        master.breaker().check()?;
        let answer = batcher.ask(target, user).await;
        if answer == Err(Failure::TimedOut) {
            master.breaker().doubt();
        }
        Ok(answer?)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Away(cause) => Self::Unavailable(cause),
            // Keys that are moving are available in a moment: retry, this is no outage.
            Failure::TimedOut | Failure::Moving(_) | Failure::JustLost(_) => Self::TimedOut,
            Failure::Broken(what) => Self::Broken(what),
        }
    }
}

#[async_trait]
impl QueueStore for RedisStore {
    async fn enter_if_absent(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        self.group(&self.enter, target, user).await
    }

    async fn status(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        self.group(&self.status, target, user).await
    }

    async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Departure, StoreError> {
        let departure =
            self.runner.run(ScriptCall::hot(&scripts::LEAVE, target, [user.to_string()]), reply::departure).await?;
        self.runner.metrics.tokens(target, TokenEvent::Revoked, u64::from(departure == Departure::GaveUpPass));
        Ok(departure)
    }

    async fn stats(&self, target: QueueTarget) -> Result<QueueStats, StoreError> {
        Ok(self.runner.run(ScriptCall::pooled(&scripts::STATS, target, []), reply::stats).await?)
    }

    async fn count_direct(&self, target: QueueTarget, passes: u64) -> Result<(), StoreError> {
        let call = ScriptCall::pooled(&scripts::DIRECT, target, [passes.to_string()]);
        Ok(self.runner.run(call, reply::direct).await.map(drop)?)
    }

    async fn adopt(&self, target: QueueTarget, passes: &[(UserId, u64)]) -> Result<Adopted, StoreError> {
        if passes.is_empty() {
            return Ok(Adopted::default());
        }
        let own: Vec<String> =
            passes.iter().flat_map(|(user, expires_at)| [user.to_string(), expires_at.to_string()]).collect();
        let adopted = self.runner.run(ScriptCall::pooled(&scripts::ADOPT, target, own), reply::adopted).await?;
        self.runner.metrics.tokens(target, TokenEvent::Issued, adopted.issued);
        self.runner.metrics.tokens(target, TokenEvent::Expired, adopted.expired);
        Ok(adopted)
    }
}

#[async_trait]
impl PassStore for RedisStore {
    async fn claim(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
    ) -> Result<Claim, StoreError> {
        self.judged(target, Purchase::Claim { user, expires_at, nonce: nonce.into() }).await
    }

    async fn check(&self, target: QueueTarget, user: UserId, expires_at: u64) -> Result<Claim, StoreError> {
        self.judged(target, Purchase::Check { user, expires_at }).await
    }

    async fn settle(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
        how: Settlement,
    ) -> Result<Settled, StoreError> {
        self.settled(target, Purchase::Ended { user, expires_at, nonce: nonce.into(), how }).await
    }

    async fn spend_all(&self, target: QueueTarget, user: UserId, ago: Duration) -> Result<Settled, StoreError> {
        self.settled(target, Purchase::WithoutPass { user, ago_ms: ago.as_millis() }).await
    }
}

#[async_trait]
impl PumpStore for RedisStore {
    async fn lock_tick(&self, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError> {
        lock::lock_tick(self, target, owner).await
    }

    async fn sweep_stale(&self, target: QueueTarget, evicted: u64) -> Result<Sweep, StoreError> {
        let may_evict = self.runner.rules.sweep_may_evict(evicted);
        let call = ScriptCall::pooled(&scripts::EVICT, target, []).evicting(may_evict);
        let sweep = self.runner.run(call, reply::sweep).await?;
        self.runner.metrics.tokens(target, TokenEvent::Expired, sweep.expired);
        Ok(sweep)
    }

    async fn advance_admission(&self, target: QueueTarget, evicted: u64) -> Result<Tick, StoreError> {
        let may_evict = self.runner.rules.batch_may_evict(evicted);
        // A failover may have lost the last batch. After a loss of the master the first batch waits one tick of ours.
        let quiet = self.runner.quiet_after_loss(self.settings.tick_ms(target));
        let call = ScriptCall::pooled(&scripts::ADMIT, target, []).evicting(may_evict).after_loss(quiet);
        match self.runner.run(call, reply::tick).await {
            Err(Failure::JustLost(rest)) => Ok(Tick::NotYet(rest)),
            answer => Ok(answer?),
        }
    }

    async fn active_targets(&self) -> Result<Vec<QueueTarget>, StoreError> {
        active::active_targets(self).await
    }

    async fn register_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError> {
        active::register_active(self, target, limit).await
    }

    async fn retire(&self, target: QueueTarget) -> Result<bool, StoreError> {
        active::retire(self, target).await
    }
}

#[async_trait]
impl ReplicaStore for RedisStore {
    async fn announce(&self, me: &Replica) -> Result<Vec<Replica>, StoreError> {
        Ok(replicas::announce(&self.runner.masters, me).await?)
    }

    async fn withdraw(&self, me: &Replica) -> Result<(), StoreError> {
        Ok(replicas::withdraw(&self.runner.masters, me).await?)
    }
}

impl StoreHealth for RedisStore {
    fn is_degraded(&self) -> bool {
        self.runner.masters.is_degraded()
    }

    fn is_away(&self, target: QueueTarget) -> bool {
        self.runner.masters.is_away(&keys::tag(target))
    }

    fn lost_at(&self, target: QueueTarget) -> Option<Duration> {
        self.runner.masters.of(&keys::tag(target)).ok()?.breaker().lost_at()
    }
}
