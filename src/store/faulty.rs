//! For tests of code that uses a store: a store that answers, fails, panics, hangs or waits as the test says.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::{
    Adopted, Claim, Departure, PassStore, Place, PumpStore, QueueStore, ReplicaStore, Settled, Settlement, StoreError,
    StoreHealth, Sweep, Tick, TickLock, VirtualQueueStore,
};
use crate::domain::{QueueStats, QueueTarget, UserId};

/// What calls do from now on.
#[derive(Debug, Clone, Default)]
pub(crate) enum Mood {
    #[default]
    Answer,
    Fail(StoreError),
    Panic,
    Hang,
    /// Answer after this round-trip time.
    Far(Duration),
    /// Answer once there is a permit.
    Wait(Arc<Semaphore>),
}

/// A store in front of the real one.
pub(crate) struct FaultyStore {
    inner: Arc<dyn VirtualQueueStore>,
    mood: Mutex<Mood>,
    /// What hand-over calls for these targets do instead.
    spoilt: Mutex<HashMap<QueueTarget, Mood>>,
    calls: AtomicUsize,
    handed_over: AtomicUsize,
}

impl FaultyStore {
    pub(crate) fn before(inner: Arc<dyn VirtualQueueStore>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            mood: Mutex::default(),
            spoilt: Mutex::default(),
            calls: AtomicUsize::new(0),
            handed_over: AtomicUsize::new(0),
        })
    }

    pub(crate) fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Sets what hand-over calls for this target do from now on, whatever the mood.
    pub(crate) fn spoil(&self, target: QueueTarget, mood: Mood) {
        self.spoilt.lock().unwrap().insert(target, mood);
    }

    /// Calls made so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// How many of those were hand-over calls.
    pub(crate) fn handed_over(&self) -> usize {
        self.handed_over.load(Ordering::SeqCst)
    }

    async fn reached(&self) -> Result<&dyn VirtualQueueStore, StoreError> {
        let mood = self.mood.lock().unwrap().clone();
        self.reached_in(mood).await
    }

    async fn reached_by_hand_over(&self, target: QueueTarget) -> Result<&dyn VirtualQueueStore, StoreError> {
        self.handed_over.fetch_add(1, Ordering::SeqCst);
        let spoilt = self.spoilt.lock().unwrap().get(&target).cloned();
        let mood = spoilt.unwrap_or_else(|| self.mood.lock().unwrap().clone());
        self.reached_in(mood).await
    }

    async fn reached_in(&self, mood: Mood) -> Result<&dyn VirtualQueueStore, StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match mood {
            Mood::Answer => Ok(&*self.inner),
            Mood::Fail(error) => Err(error),
            Mood::Panic => panic!("as told"),
            Mood::Hang => std::future::pending().await,
            Mood::Far(round_trip) => {
                tokio::time::sleep(round_trip).await;
                Ok(&*self.inner)
            }
            Mood::Wait(permits) => {
                permits.acquire().await.unwrap().forget();
                Ok(&*self.inner)
            }
        }
    }
}

#[async_trait]
impl QueueStore for FaultyStore {
    async fn enter_if_absent(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        self.reached().await?.enter_if_absent(target, user).await
    }

    async fn status(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError> {
        self.reached().await?.status(target, user).await
    }

    async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Departure, StoreError> {
        self.reached().await?.leave(target, user).await
    }

    async fn stats(&self, target: QueueTarget) -> Result<QueueStats, StoreError> {
        self.reached().await?.stats(target).await
    }

    async fn count_direct(&self, target: QueueTarget, passes: u64) -> Result<(), StoreError> {
        self.reached_by_hand_over(target).await?.count_direct(target, passes).await
    }

    async fn adopt(&self, target: QueueTarget, passes: &[(UserId, u64)]) -> Result<Adopted, StoreError> {
        self.reached_by_hand_over(target).await?.adopt(target, passes).await
    }
}

#[async_trait]
impl PassStore for FaultyStore {
    async fn claim(&self, target: QueueTarget, user: UserId, until: u64, nonce: &str) -> Result<Claim, StoreError> {
        self.reached().await?.claim(target, user, until, nonce).await
    }

    async fn check(&self, target: QueueTarget, user: UserId, until: u64) -> Result<Claim, StoreError> {
        self.reached().await?.check(target, user, until).await
    }

    async fn settle(
        &self,
        target: QueueTarget,
        user: UserId,
        until: u64,
        nonce: &str,
        how: Settlement,
    ) -> Result<Settled, StoreError> {
        self.reached().await?.settle(target, user, until, nonce, how).await
    }

    async fn spend_all(&self, target: QueueTarget, user: UserId, ago: Duration) -> Result<Settled, StoreError> {
        self.reached().await?.spend_all(target, user, ago).await
    }
}

#[async_trait]
impl PumpStore for FaultyStore {
    async fn lock_tick(&self, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError> {
        self.reached().await?.lock_tick(target, owner).await
    }

    async fn sweep_stale(&self, target: QueueTarget, evicted: u64) -> Result<Sweep, StoreError> {
        self.reached().await?.sweep_stale(target, evicted).await
    }

    async fn advance_admission(&self, target: QueueTarget, evicted: u64) -> Result<Tick, StoreError> {
        self.reached().await?.advance_admission(target, evicted).await
    }

    async fn active_targets(&self) -> Result<Vec<QueueTarget>, StoreError> {
        // The list always answers: the tests are about the pumps that use it.
        self.inner.active_targets().await
    }

    async fn register_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError> {
        self.reached().await?.register_active(target, limit).await
    }

    async fn retire(&self, target: QueueTarget) -> Result<bool, StoreError> {
        self.reached().await?.retire(target).await
    }
}

#[async_trait]
impl ReplicaStore for FaultyStore {}

impl StoreHealth for FaultyStore {
    fn is_degraded(&self) -> bool {
        matches!(*self.mood.lock().unwrap(), Mood::Fail(StoreError::Unavailable(_)))
    }

    fn is_away(&self, _: QueueTarget) -> bool {
        self.is_degraded()
    }

    fn lost_at(&self, target: QueueTarget) -> Option<Duration> {
        self.inner.lost_at(target)
    }
}
