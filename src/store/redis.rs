//! The queue on Redis, shared by all replicas.
//!
//! Here: which script does what, and what is counted on its reply. The scripts decide; see `redis-scripts/`.

mod active;
mod lock;
mod purchases;
mod replicas;
mod reply;
mod server;
mod settings;
mod shared;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;

use self::{
    purchases::{Purchase, Purchases, crossed},
    reply::Purchased,
    settings::KnownSettings,
    shared::{Shared, Visit},
};
use super::{
    Adopted, Claim, Departure, Place, QueueRules, Replica, Settled, Settlement, StoreError, Sweep, Tick, TickLock,
    VirtualQueueStore,
};
use crate::{
    clock::{Clock, StoreClock},
    config::RedisConfig,
    domain::{QueueStats, QueueTarget, UserId},
    metrics::{Metrics, TokenEvent},
    redis::{Failure, Masters, batch::Batcher, connection::BadUrl, keys, scripts},
};

/// The queue on Redis. People's calls go in groups on one connection, the rest over a pool.
pub struct RedisStore {
    shared: Arc<Shared>,
    enter: Batcher<Visit>,
    status: Batcher<Visit>,
    purchases: Batcher<Purchases>,
    settings: KnownSettings,
    malformed_logged: AtomicBool,
}

impl RedisStore {
    /// A store on the Redis of this configuration, whose calls run on the calling runtime. Redis may be away: then it
    /// is connected to when it comes.
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
        let masters = Masters::connect(config, clock.clone(), metrics.clone()).await?;
        let (limit, runtime) = (masters.call_limit(), masters.runtime().clone());
        let shared = Arc::new(Shared::new(masters, rules, clock, metrics, test_time));
        let batcher =
            |script, absent| Batcher::new(Visit { shared: shared.clone(), script, absent }, limit, runtime.clone());
        Ok(Arc::new(Self {
            enter: batcher(&scripts::ENTER, 4),
            status: batcher(&scripts::STATUS, 0),
            purchases: Batcher::new(Purchases(shared.clone()), limit, runtime.clone()),
            shared,
            settings: KnownSettings::default(),
            malformed_logged: AtomicBool::new(false),
        }))
    }

    /// The masters, for flags and the demo shop.
    pub fn masters(&self) -> &Arc<Masters> {
        &self.shared.masters
    }

    /// What about the server's settings may hurt during a sale, in words for the operator.
    pub async fn server_warnings(&self) -> Vec<String> {
        server::warnings(&self.shared.masters).await
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
        let master = self.shared.masters.of(&keys::tag(target))?;
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
            // Keys on their way are there in a moment: worth asking again, and no outage.
            Failure::TimedOut | Failure::Moving(_) | Failure::JustLost(_) => Self::TimedOut,
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
        self.judged(target, Purchase::Claim { user, expires_at, nonce: nonce.into() }).await
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

    async fn check(&self, target: QueueTarget, user: UserId, expires_at: u64) -> Result<Claim, StoreError> {
        self.judged(target, Purchase::Check { user, expires_at }).await
    }

    async fn spend_all(&self, target: QueueTarget, user: UserId, ago: Duration) -> Result<Settled, StoreError> {
        self.settled(target, Purchase::WithoutPass { user, ago_ms: ago.as_millis() }).await
    }

    async fn stats(&self, target: QueueTarget) -> Result<QueueStats, StoreError> {
        self.shared.pooled(&scripts::STATS, target, [], reply::stats).await
    }

    async fn count_direct(&self, target: QueueTarget, passes: u64) -> Result<(), StoreError> {
        self.shared.pooled(&scripts::DIRECT, target, [passes.to_string()], reply::direct).await.map(drop)
    }

    async fn adopt(&self, target: QueueTarget, passes: &[(UserId, u64)]) -> Result<Adopted, StoreError> {
        if passes.is_empty() {
            return Ok(Adopted::default());
        }
        let own: Vec<String> =
            passes.iter().flat_map(|(user, expires_at)| [user.to_string(), expires_at.to_string()]).collect();
        let adopted = self.shared.pooled(&scripts::ADOPT, target, own, reply::adopted).await?;
        self.shared.metrics.tokens(target, TokenEvent::Issued, adopted.issued);
        self.shared.metrics.tokens(target, TokenEvent::Expired, adopted.expired);
        Ok(adopted)
    }

    async fn lock_tick(&self, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError> {
        self.take_lock(target, owner).await
    }

    async fn sweep_stale(&self, target: QueueTarget, evicted: u64) -> Result<Sweep, StoreError> {
        let may_evict = self.shared.rules.sweep_may_evict(evicted);
        let sweep = self.shared.evicting(may_evict, Duration::ZERO, &scripts::EVICT, target, reply::sweep).await?;
        self.shared.metrics.tokens(target, TokenEvent::Expired, sweep.expired);
        Ok(sweep)
    }

    async fn advance_admission(&self, target: QueueTarget, evicted: u64) -> Result<Tick, StoreError> {
        let may_evict = self.shared.rules.batch_may_evict(evicted);
        // A failover may have lost the last batch: after losing the master the first one waits a whole tick of ours.
        let quiet = self.shared.quiet_after_loss(self.settings.tick_ms(target));
        match self.shared.evicting(may_evict, quiet, &scripts::ADMIT, target, reply::tick).await {
            Err(Failure::JustLost(rest)) => Ok(Tick::NotYet(rest)),
            answer => Ok(answer?),
        }
    }

    async fn active_targets(&self) -> Result<Vec<QueueTarget>, StoreError> {
        self.read_active().await
    }

    async fn register_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError> {
        self.list_as_active(target, limit).await
    }

    async fn retire(&self, target: QueueTarget) -> Result<bool, StoreError> {
        self.strike_off(target).await
    }

    async fn announce(&self, me: &Replica) -> Result<Vec<Replica>, StoreError> {
        Ok(replicas::announce(&self.shared.masters, me).await?)
    }

    async fn withdraw(&self, me: &Replica) -> Result<(), StoreError> {
        Ok(replicas::withdraw(&self.shared.masters, me).await?)
    }

    fn is_degraded(&self) -> bool {
        self.shared.masters.is_degraded()
    }

    fn is_away(&self, target: QueueTarget) -> bool {
        self.shared.masters.is_away(&keys::tag(target))
    }

    fn lost_at(&self, target: QueueTarget) -> Option<Duration> {
        self.shared.masters.of(&keys::tag(target)).ok()?.breaker().lost_at()
    }
}
