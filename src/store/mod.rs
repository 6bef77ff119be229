//! The queue itself: numbers, the mark, passes, claims, books (TDD: `VirtualQueueStore`; DESIGN 5).
//!
//! Here: what can be asked of a queue and what it answers, and the two that answer: [`embedded`] in memory and
//! [`redis`] shared by replicas. Both behave the same, and one suite of tests holds both to it. Not here: flags,
//! failing open (see [`crate::service`]), signatures (see [`crate::token`]).

pub mod embedded;
#[cfg(test)]
pub(crate) mod faulty;
mod overrides;
pub mod redis;

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    config::Config,
    domain::{Pacing, QueuePosition, QueueStats, QueueTarget, UserId},
    token::KeyFingerprints,
};

pub use overrides::Overrides;

/// A queue store, whole. Each part is a trait of its own, so that who uses one says which.
///
/// Every call may be repeated; every call is atomic. All calls fail with [`StoreError`] in the same way, and within
/// `redis.command_timeout_ms` where a buyer waits.
pub trait VirtualQueueStore: QueueStore + PassStore + PumpStore + ReplicaStore + StoreHealth {}

impl<S: QueueStore + PassStore + PumpStore + ReplicaStore + StoreHealth> VirtualQueueStore for S {}

/// The queue as buyers and operators use it. Buyers wait for `enter_if_absent`, `status` and `leave`.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// A place for this person: the one they have (which counts as a poll), their live pass, or a new number at the
    /// back. `None`: the queue is full, and they are not in it.
    async fn enter_if_absent(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError>;

    /// A poll: keeps the place alive, and collects the pass if the turn has come. `None`: not in the queue.
    async fn status(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError>;

    /// Gives up the place, or the live pass.
    async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Departure, StoreError>;

    /// The books. Zeros for a target nobody uses; creates nothing.
    async fn stats(&self, target: QueueTarget) -> Result<QueueStats, StoreError>;

    /// Adds direct passes to the books of a target that has a queue; of one that has none nothing is kept.
    async fn count_direct(&self, target: QueueTarget, passes: u64) -> Result<(), StoreError>;

    /// Takes over people let through during an outage, each with the expiry (s) of the direct pass: the place goes and
    /// the pass is recorded. At most [`MOST_ADOPTED_A_CALL`] a call. A target without a queue stays without one.
    async fn adopt(&self, target: QueueTarget, passes: &[(UserId, u64)]) -> Result<Adopted, StoreError>;
}

/// Single use of passes, as the gate uses it. Buyers wait for all of it.
#[async_trait]
pub trait PassStore: Send + Sync {
    /// Takes a pass for one purchase: until it is settled or the lease ends, no other `nonce` gets it.
    async fn claim(&self, target: QueueTarget, user: UserId, expires_at: u64, nonce: &str)
    -> Result<Claim, StoreError>;

    /// Whether a purchase with this pass might begin. None does, and one that is under way is no matter: never
    /// [`Claim::InUse`].
    async fn check(&self, target: QueueTarget, user: UserId, expires_at: u64) -> Result<Claim, StoreError>;

    /// Ends a claim. Spending also works late, after the lease; giving back only removes the claim of this `nonce`.
    async fn settle(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
        how: Settlement,
    ) -> Result<Settled, StoreError>;

    /// A purchase that needed no pass succeeded `ago`: every pass that this person was given until then is spent, also one
    /// that another purchase has claimed. Their pass from the queue is consumed, once; a direct pass is in no book here,
    /// since nobody has seen one. The first call says that it was now (zero), and no pass of theirs is left; one that
    /// is repeated says how long ago it was, and touches no pass given since.
    async fn spend_all(&self, target: QueueTarget, user: UserId, ago: Duration) -> Result<Settled, StoreError>;
}

/// What the admission of a target needs.
#[async_trait]
pub trait PumpStore: Send + Sync {
    /// Takes the tick lock for `owner`, or says how long another holds it. An economy, not the guarantee.
    async fn lock_tick(&self, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError>;

    /// Removes who fell silent, and counts passes that ended: at most 250 of each a call. This tick has `evicted` so many
    /// already, and sweeps may take half of what one may evict ([`QueueRules::max_evict_per_tick`]).
    async fn sweep_stale(&self, target: QueueTarget, evicted: u64) -> Result<Sweep, StoreError>;

    /// Moves the mark by one batch of people, if one is due. Not sooner than a tick after the store was lost, on our own
    /// monotonic clock: a failover may have lost the last batch. This tick has `evicted` so many already.
    async fn advance_admission(&self, target: QueueTarget, evicted: u64) -> Result<Tick, StoreError>;

    /// What the pumps look after. Also puts back what this replica served since the last call.
    async fn active_targets(&self) -> Result<Vec<QueueTarget>, StoreError>;

    /// Makes room for a target among at most `limit` active ones (`None`: whatever their number). It is among them at the
    /// next [`Self::active_targets`] at the latest. False: there is none.
    async fn register_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError>;

    /// Takes a target without a queue out of the active ones. False: it has one (again), and stays.
    async fn retire(&self, target: QueueTarget) -> Result<bool, StoreError>;
}

/// Which replicas share this store. One in memory has no other.
#[async_trait]
pub trait ReplicaStore: Send + Sync {
    /// Tells the other replicas on this store that `me` lives; those that do, for all that is known. A store of one's own
    /// has none.
    async fn announce(&self, _me: &Replica) -> Result<Vec<Replica>, StoreError> {
        Ok(Vec::new())
    }

    /// Tells them that `me` ends.
    async fn withdraw(&self, _me: &Replica) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What is known of the store without asking it.
pub trait StoreHealth: Send + Sync {
    /// Whether the store, or a part of it, is away at present, as far as is known without asking it.
    fn is_degraded(&self) -> bool;

    /// Whether the part of it that has this target is.
    fn is_away(&self, target: QueueTarget) -> bool;

    /// When the connection to that part was last lost or found again, on [`crate::clock::StoreClock::monotonic`].
    fn lost_at(&self, target: QueueTarget) -> Option<Duration>;
}

/// How many people [`QueueStore::adopt`] takes over at a time: a script that runs longer holds everybody up.
pub const MOST_ADOPTED_A_CALL: usize = 250;

/// A replica, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Another in every process; has no space in it.
    pub name: String,
    /// What its secrets are known by.
    pub keys: KeyFingerprints,
}

/// What somebody has with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A place in the queue.
    Waiting(QueuePosition),
    /// A live pass, new or the one from before, that ends at `expires_at` (seconds since the epoch).
    Admitted {
        /// Seconds since the epoch.
        expires_at: u64,
    },
}

/// What leaving did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// Nothing: there was neither place nor pass.
    WasNotHere,
    /// The place is given up.
    GaveUpPlace,
    /// The pass is revoked.
    GaveUpPass,
}

/// Whether a pass may be used for this purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Yes, until settled or until the lease ends.
    Granted,
    /// No: it has bought already, or was given up.
    Spent,
    /// No: another purchase with it is under way.
    InUse,
    /// No: on the store's time it is over.
    Expired,
}

/// How a purchase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// The shop took it: the pass is used up.
    Spent,
    /// The shop declined: the pass works again.
    GivenBack,
}

/// What settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// A pass from the queue is used up.
    Consumed,
    /// A direct pass is used up.
    DirectConsumed,
    /// The claim is gone and the pass works again; or all that was done before.
    Nothing,
}

/// What taking people over after an outage did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adopted {
    /// Passes recorded, which count as issued from now on.
    pub issued: u64,
    /// Older passes of the same people that were found to be over.
    pub expired: u64,
    /// Places given up for a pass that has ended meanwhile.
    pub left: u64,
}

/// The tick lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickLock {
    /// Ours.
    Ours,
    /// Another's, for at most this long.
    HeldFor(Duration),
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sweep {
    /// The target has no queue any more; nothing was written.
    pub gone: bool,
    /// People evicted.
    pub evicted: u64,
    /// Passes counted as expired.
    pub expired: u64,
    /// There may be more to do right away.
    pub more: bool,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// The target has no queue any more; nothing was written.
    Gone,
    /// Too early, or paused: come back in this long.
    NotYet(Duration),
    /// A batch went; the next may go in `next_in`.
    Moved {
        /// People admitted, at most the batch.
        people: u64,
        /// Silent people met on the way and evicted.
        evicted: u64,
        /// Until the next batch may go.
        next_in: Duration,
        /// How far after the earliest moment it went.
        late: Duration,
    },
}

/// Why the store gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It is away: refused, reset, full, read-only, loading; or known to be from before.
    #[error("the store is away: {0}")]
    Unavailable(String),
    /// It did not answer in time, which alone does not mean that it is away.
    #[error("the store did not answer in time")]
    TimedOut,
    /// It answered something that makes no sense: a fault of ours.
    #[error("the store answered something unexpected: {0}")]
    Broken(String),
}

/// What a store must know of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRules {
    /// How many may wait for one target.
    pub capacity: u64,
    /// People a tick.
    pub pacing: Pacing,
    /// Milliseconds without a poll after which a place is lost: the heartbeat timeout and its slack.
    pub silent_after_ms: u64,
    /// Silent people a tick evicts at most, its sweeps and its way to the batch together.
    pub max_evict_per_tick: u64,
    /// Milliseconds after the last call of a person after which a target is forgotten.
    pub idle_ttl_ms: u64,
    /// Seconds a pass lives.
    pub token_ttl_seconds: u64,
    /// Milliseconds a claim holds without being settled: the upstream's limit and 5 s.
    pub lease_ms: u64,
}

impl QueueRules {
    /// The rules as configured.
    pub fn from_config(config: &Config) -> Self {
        let queue = &config.queue;
        Self {
            capacity: queue.capacity,
            pacing: Pacing { batch: queue.batch_size, tick_ms: queue.tick_ms },
            silent_after_ms: queue.silent_after_seconds() * 1000,
            max_evict_per_tick: queue.max_evict_per_tick,
            idle_ttl_ms: queue.idle_ttl_seconds * 1000,
            token_ttl_seconds: config.token.ttl_seconds,
            lease_ms: config.upstream.lease_ms(),
        }
    }

    /// How many silent people a sweep may still evict, where its tick has `evicted` so many. Half at least is left for those in front
    /// of the batch: else no batch would go until all others were swept.
    pub(crate) fn sweep_may_evict(&self, evicted: u64) -> u64 {
        (self.max_evict_per_tick / 2).saturating_sub(evicted)
    }

    /// How many silent people a batch may still evict on its way.
    pub(crate) fn batch_may_evict(&self, evicted: u64) -> u64 {
        self.max_evict_per_tick.saturating_sub(evicted)
    }

    /// How long the tick lock holds at most: 0.95 of a tick, and of 2 s (DESIGN 5).
    pub fn lock_ms(&self) -> u64 {
        self.pacing.tick_ms.min(2000) * 95 / 100
    }
}
