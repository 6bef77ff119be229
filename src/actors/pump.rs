//! One tick of a target: lock, sweep, admit.

use std::{sync::Arc, time::Duration};

use super::{
    PumpParts,
    health::Health,
    pace::{LEAST_LEAD, Pace},
};
use crate::{
    domain::QueueTarget,
    store::{StoreError, Tick, TickLock},
};

/// What one tick of a target needs.
pub(super) struct Pump {
    pub(super) target: QueueTarget,
    pub(super) parts: PumpParts,
    pub(super) health: Arc<Health>,
    pub(super) pace: Pace,
    /// When to ask for the next batch, as the store last replied; on the monotonic clock.
    pub(super) go_at: Option<Duration>,
}

/// The result of a tick.
pub(super) struct Looked {
    pub(super) next: Next,
    pub(super) pace: Pace,
    /// How late the batch went, if one did.
    pub(super) late: Option<Duration>,
    pub(super) failed: Option<StoreError>,
}

/// When the next tick begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Next {
    In(Duration),
    /// Early enough to lock and sweep before the next batch is requested, at `go_at` on the monotonic clock.
    Batch {
        go_at: Duration,
    },
    Ended,
}

impl Pump {
    /// Locks, sweeps, waits until the batch is due, admits. An error ends this tick only.
    pub(super) async fn look(mut self) -> Looked {
        let (next, late, failed) = match self.tick().await {
            Ok((next, late)) => (next, late, None),
            Err(error) => (Next::In(after_failure(self.parts.tick)), None, Some(error)),
        };
        Looked { next, pace: self.pace, late, failed }
    }

    async fn tick(&mut self) -> Result<(Next, Option<Duration>), StoreError> {
        let began = self.now();
        let locked = self.parts.store.lock_tick(self.target, &self.parts.owner).await;
        if let TickLock::HeldFor(rest) = self.answered(locked)? {
            return Ok((Next::In(rest + behind_the_holder(self.parts.tick)), None));
        }
        let Some(evicted) = self.sweep().await? else { return self.ended().await };
        self.pace.prepared(self.now().saturating_sub(began));
        let lead = self.pace.lead();
        if let Some(wait) = self.until_go().filter(|wait| *wait <= lead) {
            tokio::time::sleep(wait).await;
        }
        let mut moved = self.admit(evicted).await?;
        if let Tick::NotYet(wait) = moved
            && wait <= lead
        {
            tokio::time::sleep(wait.saturating_sub(self.pace.head_start())).await;
            moved = self.admit(evicted).await?;
        }
        // Computed as soon as the reply is there: later steps take time, too.
        let again_in =
            |wait: Duration| Next::Batch { go_at: (self.now() + wait).saturating_sub(self.pace.head_start()) };
        match moved {
            Tick::Moved { next_in, late, people, evicted: on_the_way } => {
                if people > 0 || evicted + on_the_way > 0 {
                    tracing::debug!(target = %self.target, people, evicted = evicted + on_the_way, "a batch was admitted");
                }
                Ok((again_in(next_in), Some(late)))
            }
            Tick::NotYet(wait) => Ok((again_in(wait), None)),
            Tick::Gone => self.ended().await,
        }
    }

    /// Evicts silent people: as many as are allowed and as there is time for before the batch is requested, at least
    /// one call. Returns how many. None: the target has no queue.
    async fn sweep(&self) -> Result<Option<u64>, StoreError> {
        let mut evicted = 0;
        loop {
            let asked = self.now();
            let swept = self.parts.store.sweep_stale(self.target, evicted).await;
            let sweep = self.answered(swept)?;
            evicted += sweep.evicted;
            if sweep.gone {
                return Ok(None);
            }
            let took = self.now().saturating_sub(asked);
            let is_time = self.until_go().is_some_and(|left| left < took);
            if !sweep.more || is_time {
                return Ok(Some(evicted));
            }
        }
    }

    async fn admit(&mut self, evicted: u64) -> Result<Tick, StoreError> {
        let asked = self.now();
        let moved = self.parts.store.advance_admission(self.target, evicted).await;
        let moved = self.answered(moved)?;
        if matches!(moved, Tick::Moved { .. }) {
            self.pace.batch_went(self.now().saturating_sub(asked));
        }
        Ok(moved)
    }

    /// The target has no queue: removes it from the active targets, unless a person has just entered.
    async fn ended(&self) -> Result<(Next, Option<Duration>), StoreError> {
        let retired = self.parts.store.retire(self.target).await;
        let over = self.answered(retired)?;
        Ok((if over { Next::Ended } else { Next::In(self.parts.tick / 4) }, None))
    }

    fn now(&self) -> Duration {
        self.parts.clock.monotonic()
    }

    fn until_go(&self) -> Option<Duration> {
        self.go_at.map(|at| at.saturating_sub(self.now()))
    }

    /// Records progress, also for an error: a pump that gets answers is not frozen.
    fn answered<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.health.moves(self.now());
        answer
    }
}

/// When to retry: at a random time, so that many targets that failed together do not retry together.
pub(super) fn after_failure(tick: Duration) -> Duration {
    tick.mul_f64(rand::random_range(0.25..0.75))
}

/// The time from the end of the lock until other replicas ask for it. The holder returns one tick after it took the
/// lock, which is a twentieth of a tick after the lock ends (`QueueRules::lock_ms`). A replica that asks just after
/// that finds the lock taken, and so asks once a tick, not twice. If the holder is dead, the replica still gets the
/// lock before the batch is due.
fn behind_the_holder(tick: Duration) -> Duration {
    tick.min(Duration::from_secs(2)) / 20 + LEAST_LEAD.mul_f64(rand::random_range(0.2..0.8))
}
