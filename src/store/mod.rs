//! The queue: numbers, the mark, passes, claims, books (TDD: `VirtualQueueStore`; `docs/design.md`).
//!
//! Here: the calls and answers of a queue, and the two stores: [`embedded`] in memory, and [`redis`], shared by
//! replicas. Both behave the same; one test suite checks both. Not here: flags, failing open (see [`crate::service`]),
//! signatures (see [`crate::token`]).

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

/// A complete queue store. Each part is a trait of its own, so that code names the part it uses.
///
/// Every call may be repeated; every call is atomic. All calls fail with [`StoreError`] in the same way. Calls that a
/// buyer waits for fail within `redis.command_timeout_ms`.
pub trait VirtualQueueStore: QueueStore + PassStore + PumpStore + ReplicaStore + StoreHealth {}

impl<S: QueueStore + PassStore + PumpStore + ReplicaStore + StoreHealth> VirtualQueueStore for S {}

/// The queue as buyers and operators use it. Buyers wait for `enter_if_absent`, `status` and `leave`.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// A place for this person: the one they have (this counts as a poll), their live pass, or a new number at the end.
    /// `None`: the queue is full, and they are not in it.
    async fn enter_if_absent(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError>;

    /// A poll: keeps the place, and collects the pass if the person is admitted. `None`: not in the queue.
    async fn status(&self, target: QueueTarget, user: UserId) -> Result<Option<Place>, StoreError>;

    /// Gives up the place, or the live pass.
    async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Departure, StoreError>;

    /// The books. Zeros for an unused target; creates nothing.
    async fn stats(&self, target: QueueTarget) -> Result<QueueStats, StoreError>;

    /// Adds direct passes to the books of a target. Keeps nothing for a target without a queue.
    async fn count_direct(&self, target: QueueTarget, passes: u64) -> Result<(), StoreError>;

    /// Takes over people admitted during an outage, each with the expiry (s) of the direct pass: removes the place and
    /// records the pass. At most [`MOST_ADOPTED_A_CALL`] people in a call. A target without a queue stays without one.
    async fn adopt(&self, target: QueueTarget, passes: &[(UserId, u64)]) -> Result<Adopted, StoreError>;
}

/// Single use of passes, for the gate. Buyers wait for all of these calls.
#[async_trait]
pub trait PassStore: Send + Sync {
    /// Claims a pass for one purchase. Until it is settled or the lease ends, no other `nonce` gets it.
    async fn claim(&self, target: QueueTarget, user: UserId, expires_at: u64, nonce: &str)
    -> Result<Claim, StoreError>;

    /// Whether a purchase with this pass could begin. Claims nothing, and ignores a purchase under way: never
    /// [`Claim::InUse`].
    async fn check(&self, target: QueueTarget, user: UserId, expires_at: u64) -> Result<Claim, StoreError>;

    /// Ends a claim. Spending also works after the lease has ended. Giving back only removes the claim of this `nonce`.
    async fn settle(
        &self,
        target: QueueTarget,
        user: UserId,
        expires_at: u64,
        nonce: &str,
        how: Settlement,
    ) -> Result<Settled, StoreError>;

    /// A purchase that needed no pass succeeded `ago`. Every pass that this person was given until then is spent, also
    /// one that another purchase has claimed. Their pass from the queue is consumed, once; a direct pass counts
    /// nowhere, since the gate has not seen one. The first call says zero: no pass of theirs stays live. A repeated
    /// call says how long ago it was, and leaves passes given since.
    async fn spend_all(&self, target: QueueTarget, user: UserId, ago: Duration) -> Result<Settled, StoreError>;
}

/// The calls that admit people of a target.
#[async_trait]
pub trait PumpStore: Send + Sync {
    /// Takes the tick lock for `owner`, or says how long another holds it. The lock saves work; it guarantees nothing.
    async fn lock_tick(&self, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError>;

    /// Evicts silent people, and counts passes that have ended: at most 250 of each in a call. This tick has already
    /// evicted `evicted` people; its sweeps may evict half of [`QueueRules::max_evict_per_tick`].
    async fn sweep_stale(&self, target: QueueTarget, evicted: u64) -> Result<Sweep, StoreError>;

    /// Moves the mark by one batch of people, if one is due. Not for one tick after the store was lost, on our own
    /// monotonic clock: a failover may have lost the last batch. This tick has evicted `evicted` people.
    async fn advance_admission(&self, target: QueueTarget, evicted: u64) -> Result<Tick, StoreError>;

    /// The targets that the pumps tick for. Also lists again the targets that this replica served since the last call.
    async fn active_targets(&self) -> Result<Vec<QueueTarget>, StoreError>;

    /// Makes a target active, among at most `limit` (`None`: no limit). It is listed at the next
    /// [`Self::active_targets`] at the latest. False: there is no room.
    async fn register_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError>;

    /// Removes a target without a queue from the active ones. False: it has a queue (again), and stays.
    async fn retire(&self, target: QueueTarget) -> Result<bool, StoreError>;
}

/// The replicas that share this store. A store in memory has only one.
#[async_trait]
pub trait ReplicaStore: Send + Sync {
    /// Tells the other replicas on this store that `me` is alive. Returns those known to be alive. A store in memory
    /// has no others.
    async fn announce(&self, _me: &Replica) -> Result<Vec<Replica>, StoreError> {
        Ok(Vec::new())
    }

    /// Tells the other replicas that `me` ends.
    async fn withdraw(&self, _me: &Replica) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What is known about the store without a call.
pub trait StoreHealth: Send + Sync {
    /// Whether the store, or a part of it, is known to be unavailable, without a call.
    fn is_degraded(&self) -> bool;

    /// Whether the part that has this target is known to be unavailable.
    fn is_away(&self, target: QueueTarget) -> bool;

    /// When the connection to that part was last lost or found again, on [`crate::clock::StoreClock::monotonic`].
    fn lost_at(&self, target: QueueTarget) -> Option<Duration>;
}

/// Most people in one [`QueueStore::adopt`]: a longer script would delay all other calls.
pub const MOST_ADOPTED_A_CALL: usize = 250;

/// A replica, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Different in every process; contains no space.
    pub name: String,
    /// The fingerprints of its secrets.
    pub keys: KeyFingerprints,
}

/// What a person has with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A place in the queue.
    Waiting(QueuePosition),
    /// A live pass, new or issued before.
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
    /// No: it has ended, on the store's time.
    Expired,
}

/// How a purchase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// The shop accepted the purchase: the pass is used up.
    Spent,
    /// The shop declined the purchase: the pass works again.
    GivenBack,
}

/// What settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// A pass from the queue is used up.
    Consumed,
    /// A direct pass is used up.
    DirectConsumed,
    /// The claim is given back and the pass works again, or the claim was settled before.
    Nothing,
}

/// What adoption after an outage did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adopted {
    /// Passes recorded; they count as issued from now on.
    pub issued: u64,
    /// Older passes of the same people that had ended.
    pub expired: u64,
    /// Places given up because the pass has ended in the meantime.
    pub left: u64,
}

/// The tick lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickLock {
    /// The caller holds it.
    Ours,
    /// Another holds it, for at most this long.
    HeldFor(Duration),
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sweep {
    /// The target has no queue now; nothing was written.
    pub gone: bool,
    /// People evicted.
    pub evicted: u64,
    /// Passes counted as expired.
    pub expired: u64,
    /// There may be more to do: call again at once.
    pub more: bool,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// The target has no queue now; nothing was written.
    Gone,
    /// Too early, or paused: try again after this time.
    NotYet(Duration),
    /// A batch went; the next may go after `next_in`.
    Moved {
        /// People admitted, at most the batch.
        people: u64,
        /// Silent people on the way, who were evicted.
        evicted: u64,
        /// Time until the next batch may go.
        next_in: Duration,
        /// Delay after the earliest possible moment.
        late: Duration,
    },
}

/// Why the store gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is unavailable: refused, reset, full, read-only, loading; or the circuit breaker is open.
    #[error("the store is away: {0}")]
    Unavailable(String),
    /// The store did not answer in time. That alone does not mean that it is unavailable.
    #[error("the store did not answer in time")]
    TimedOut,
    /// The store answered something that makes no sense: our own bug.
    #[error("the store answered something unexpected: {0}")]
    Broken(String),
}

/// What a store needs from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRules {
    /// How many people may wait for one target.
    pub capacity: u64,
    /// People per tick, and the tick.
    pub pacing: Pacing,
    /// Milliseconds without a poll after which a person loses the place: the heartbeat timeout plus its slack.
    pub silent_after_ms: u64,
    /// Most silent people that one tick evicts, in its sweeps and on the way to the batch together.
    pub max_evict_per_tick: u64,
    /// Milliseconds from the last call of a person until a target is forgotten.
    pub idle_ttl_ms: u64,
    /// Lifetime of a pass in seconds.
    pub token_ttl_seconds: u64,
    /// Milliseconds that an unsettled claim holds: the upstream's limit plus 5 s.
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

    /// How many silent people a sweep may still evict, if its tick has evicted `evicted`. At least half is left for
    /// those in front of the batch: else no batch would go until all others were swept.
    pub(crate) fn sweep_may_evict(&self, evicted: u64) -> u64 {
        (self.max_evict_per_tick / 2).saturating_sub(evicted)
    }

    /// How many silent people a batch may still evict on its way.
    pub(crate) fn batch_may_evict(&self, evicted: u64) -> u64 {
        self.max_evict_per_tick.saturating_sub(evicted)
    }

    /// Longest life of the tick lock in ms: 0.95 of a tick, at most 0.95 of 2 s (`docs/design.md`, "Redis keys").
    pub fn lock_ms(&self) -> u64 {
        self.pacing.tick_ms.min(2000) * 95 / 100
    }
}
