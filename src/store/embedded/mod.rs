//! The queue in memory: for the demo, a single node, and tests.
//!
//! It answers exactly as the scripts on Redis do; `tests/it/store_contract.rs` and `store_model.rs` check both. Here:
//! the targets, and one lock for each. Not here: what a call does to a target (see `target.rs`).

mod life;
mod line;
mod rules;
mod scored;
mod target;
#[cfg(test)]
mod tests;
mod tick;
mod waiting;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;

use self::{life::Visit, rules::InForce, target::Target};
use super::{
    Adopted, Claim, Departure, PassStore, Place, PumpStore, QueueRules, QueueStore, ReplicaStore, Settled, Settlement,
    StoreError, StoreHealth, Sweep, Tick, TickLock,
};
use crate::{
    clock::StoreClock,
    domain::{QueueStats, QueueTarget, UserId},
    metrics::{Metrics, TokenEvent},
};

pub use super::Overrides;

/// All targets of this process. This store never fails, and loses everything when the process ends.
#[derive(Debug)]
pub struct EmbeddedStore {
    rules: QueueRules,
    clock: StoreClock,
    metrics: Arc<Metrics>,
    targets: RwLock<HashMap<QueueTarget, Arc<Mutex<Target>>>>,
    /// The targets that the pumps tick for.
    active: Mutex<HashSet<QueueTarget>>,
    /// Tick locks: owner, and end (ms).
    ticking: Mutex<HashMap<QueueTarget, (String, u64)>>,
}

impl EmbeddedStore {
    /// An empty store that takes the time from `clock`.
    pub fn new(rules: QueueRules, clock: StoreClock, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            rules,
            clock,
            metrics,
            targets: RwLock::default(),
            active: Mutex::default(),
            ticking: Mutex::default(),
        })
    }

    /// Sets all of an operator's overrides for a target; [`Overrides::default`] removes them.
    pub fn set_overrides(&self, target: QueueTarget, overrides: Overrides) {
        let set = (overrides != Overrides::default()).then_some(overrides);
        self.create(target, |kept, _| kept.overrides = set);
    }

    /// Calls `what` with the target, if it exists.
    fn find<T>(&self, target: QueueTarget, what: impl FnOnce(&mut Target, &InForce<'_>) -> T) -> Option<T> {
        let kept = self.targets.read().unwrap_or_else(PoisonError::into_inner).get(&target).cloned()?;
        Some(self.with(&kept, what))
    }

    /// Calls `what` with the target; creates it if it does not exist.
    fn create<T>(&self, target: QueueTarget, what: impl FnOnce(&mut Target, &InForce<'_>) -> T) -> T {
        let known = self.targets.read().unwrap_or_else(PoisonError::into_inner).get(&target).cloned();
        let kept = known.unwrap_or_else(|| {
            let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
            targets.entry(target).or_default().clone()
        });
        self.with(&kept, what)
    }

    fn with<T>(&self, kept: &Mutex<Target>, what: impl FnOnce(&mut Target, &InForce<'_>) -> T) -> T {
        let mut kept = lock(kept);
        let now = self.clock.now_ms();
        kept.forget_if_idle(now);
        let overrides = kept.overrides;
        what(&mut kept, &InForce::new(&self.rules, overrides.as_ref(), now))
    }

    /// Counts a visit and turns it into the person's answer.
    fn answer(&self, target: QueueTarget, visit: Visit) -> Option<Place> {
        match visit {
            Visit::NotInQueue { expired } => {
                self.metrics.tokens(target, TokenEvent::Expired, expired.into());
                None
            }
            Visit::Waiting(position) => Some(Place::Waiting(position)),
            Visit::Issued { expires_at, wait_ms } => {
                self.metrics.tokens(target, TokenEvent::Issued, 1);
                if let Some(wait_ms) = wait_ms {
                    self.metrics.waited(target, Duration::from_millis(wait_ms));
                }
                Some(Place::Admitted { expires_at })
            }
            Visit::LivePass { expires_at } => Some(Place::Admitted { expires_at }),
        }
    }
}

/// Locks, also after a panic elsewhere: one failed call must not stop a whole queue.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl QueueStore for EmbeddedStore {
    async fn enter_if_absent(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        let (visit, new) = self.create(target, |kept, force| kept.enter(force, user));
        Ok(self.answer(target, visit).or(new.map(Place::Waiting)))
    }

    async fn status(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        let visit = self.find(target, |kept, force| kept.status(force, user));
        Ok(visit.and_then(|visit| self.answer(target, visit)))
    }

    async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Departure, StoreError> {
        let departure = self.find(target, |kept, force| kept.leave(force, user)).unwrap_or(Departure::WasNotHere);
        if departure == Departure::GaveUpPass {
            self.metrics.tokens(target, TokenEvent::Revoked, 1);
        }
        Ok(departure)
    }

    async fn stats(&self, target: QueueTarget) -> Result<QueueStats, StoreError> {
        let stats = self.find(target, |kept, force| kept.stats(force));
        Ok(stats.unwrap_or_else(|| QueueStats::unused(self.rules.capacity, self.rules.pacing, false)))
    }

    async fn count_direct(&self, target: QueueTarget, passes: u64) -> Result<(), StoreError> {
        self.find(target, |kept, _| kept.count_direct(passes));
        Ok(())
    }

    async fn adopt(&self, target: QueueTarget, passes: &[(UserId, u64)]) -> Result<Adopted, StoreError> {
        let adopted = self.find(target, |kept, force| kept.adopt(force, passes)).unwrap_or_default();
        self.metrics.tokens(target, TokenEvent::Issued, adopted.issued);
        self.metrics.tokens(target, TokenEvent::Expired, adopted.expired);
        Ok(adopted)
    }
}

#[async_trait]
impl PassStore for EmbeddedStore {
    async fn claim(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
    ) -> Result<Claim, StoreError> {
        Ok(self.create(target, |kept, force| kept.claim(force, user, expires_at, nonce)))
    }

    async fn check(&self, target: QueueTarget, user: UserId, expires_at: u64) -> Result<Claim, StoreError> {
        let checked = self.find(target, |kept, force| kept.check(force, user, expires_at));
        let is_over = expires_at <= self.clock.now_ms() / 1000;
        Ok(checked.unwrap_or(if is_over { Claim::Expired } else { Claim::Granted }))
    }

    async fn settle(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
        how: Settlement,
    ) -> Result<Settled, StoreError> {
        let settled = self.create(target, |kept, force| kept.settle(force, user, expires_at, nonce, how));
        if settled == Settled::Consumed {
            self.metrics.tokens(target, TokenEvent::Consumed, 1);
        }
        Ok(settled)
    }

    async fn spend_all(&self, target: QueueTarget, user: UserId, ago: Duration) -> Result<Settled, StoreError> {
        let settled = self.create(target, |kept, force| kept.spend_all(force, user, ago.as_millis() as u64));
        self.metrics.tokens(target, TokenEvent::Consumed, u64::from(settled == Settled::Consumed));
        Ok(settled)
    }
}

#[async_trait]
impl PumpStore for EmbeddedStore {
    async fn lock_tick(&self, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError> {
        let now = self.clock.now_ms();
        let mut ticking = lock(&self.ticking);
        match ticking.get(&target) {
            Some((holder, until)) if *until > now => {
                if holder == owner {
                    Ok(TickLock::Ours)
                } else {
                    Ok(TickLock::HeldFor(Duration::from_millis(until - now)))
                }
            }
            _ => {
                ticking.insert(target, (owner.to_owned(), now + self.rules.lock_ms()));
                Ok(TickLock::Ours)
            }
        }
    }

    async fn sweep_stale(&self, target: QueueTarget, evicted: u64) -> Result<Sweep, StoreError> {
        let sweep = self.find(target, |kept, force| kept.sweep(force, self.rules.sweep_may_evict(evicted)));
        let sweep = sweep.unwrap_or(Sweep { gone: true, ..Sweep::default() });
        self.metrics.tokens(target, TokenEvent::Expired, sweep.expired);
        Ok(sweep)
    }

    async fn advance_admission(&self, target: QueueTarget, evicted: u64) -> Result<Tick, StoreError> {
        let may_evict = self.rules.batch_may_evict(evicted);
        Ok(self.find(target, |kept, force| kept.advance(force, may_evict)).unwrap_or(Tick::Gone))
    }

    async fn active_targets(&self) -> Result<Vec<QueueTarget>, StoreError> {
        let now = self.clock.now_ms();
        lock(&self.ticking).retain(|_, (_, until)| *until > now);
        let mut active = lock(&self.active);
        // While the map is locked for writing no call can get a target, so one that nobody holds can be removed.
        self.targets.write().unwrap_or_else(PoisonError::into_inner).retain(|target, kept| {
            let unused = self.with(kept, |kept, _| {
                if kept.is_alive() {
                    active.insert(*target);
                }
                kept.is_empty()
            });
            !unused || Arc::strong_count(kept) > 1
        });
        Ok(active.iter().copied().collect())
    }

    async fn register_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError> {
        let exempt = self.find(target, |kept, _| kept.overrides.is_some()).unwrap_or(false);
        let mut active = lock(&self.active);
        if active.contains(&target) {
            return Ok(true);
        }
        if !exempt && limit.is_some_and(|limit| active.len() as u64 >= limit) {
            return Ok(false);
        }
        active.insert(target);
        Ok(true)
    }

    async fn retire(&self, target: QueueTarget) -> Result<bool, StoreError> {
        let mut active = lock(&self.active);
        let alive = self.find(target, |kept, _| kept.is_alive()).unwrap_or(false);
        if alive {
            active.insert(target);
        } else {
            active.remove(&target);
        }
        Ok(!alive)
    }
}

#[async_trait]
impl ReplicaStore for EmbeddedStore {}

impl StoreHealth for EmbeddedStore {
    fn is_degraded(&self) -> bool {
        false
    }

    fn is_away(&self, _: QueueTarget) -> bool {
        false
    }

    fn lost_at(&self, _: QueueTarget) -> Option<Duration> {
        None
    }
}
