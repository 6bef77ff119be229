//! One look at a target: lock, sweep, admit.

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

/// What one look at a target needs.
pub(super) struct Pump {
    pub(super) target: QueueTarget,
    pub(super) parts: PumpParts,
    pub(super) health: Arc<Health>,
    pub(super) pace: Pace,
    /// When to ask for the next batch, as the store last said; on the monotonic clock.
    pub(super) go_at: Option<Duration>,
}

/// What became of it.
pub(super) struct Looked {
    pub(super) next: Next,
    pub(super) pace: Pace,
    /// How late the batch went, if one did.
    pub(super) late: Option<Duration>,
    pub(super) failed: Option<StoreError>,
}

/// When to look again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Next {
    In(Duration),
    /// In time to have locked and swept when the next batch is to be asked for: then, on the monotonic clock.
    Batch {
        go_at: Duration,
    },
    Ended,
}

impl Pump {
    /// Locks, sweeps, waits for the moment, admits. Whatever fails ends this tick and no other.
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
        // As soon as it is known: what comes after takes time, too.
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

    /// Evicts who fell silent, as many as may be and as there is time for before the batch is to be asked for: one call's
    /// worth at least. How many; none: the target has no queue.
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

    /// The target has no queue: out of the active ones, unless somebody just came.
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

    /// Whatever the answer is: one that gets answers is not frozen.
    fn answered<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.health.moves(self.now());
        answer
    }
}

/// When to try again: spread out, so that many targets that failed together do not come back together.
pub(super) fn after_failure(tick: Duration) -> Duration {
    tick.mul_f64(rand::random_range(0.25..0.75))
}

/// From the end of the lock until others ask for it. Its holder comes back a tick after taking it, which is a twentieth
/// later (`QueueRules::lock_ms`); who asks just after that finds it taken, and asks once a tick and not twice; and if the
/// holder is dead, still takes it before the batch is due.
fn behind_the_holder(tick: Duration) -> Duration {
    tick.min(Duration::from_secs(2)) / 20 + LEAST_LEAD.mul_f64(rand::random_range(0.2..0.8))
}
