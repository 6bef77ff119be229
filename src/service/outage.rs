//! What people are told while the store gives no answer (DESIGN 5 "Failing well").

use std::time::Duration;

use super::{
    Answer, QueueError, VirtualQueueService,
    let_through::{LetThrough, MOST_PEOPLE, Passage},
    throttle::Throttle,
};
use crate::{
    config::{Config, OnFailure},
    domain::{Pacing, QueuePosition, QueueStatus, QueueTarget, UserId},
    metrics::Operation,
    store::StoreError,
    token::stateless_expiry,
};

/// How a replica gets by without the store.
#[derive(Debug)]
pub(super) struct Outage {
    door: Door,
    pub(super) let_through: LetThrough,
    tick: Duration,
    /// When this replica began, on the monotonic clock.
    began: Duration,
}

/// `redis.on_failure`.
#[derive(Debug)]
enum Door {
    Open,
    Throttled(Throttle),
    Closed,
}

impl Outage {
    pub(super) fn new(config: &Config, now: Duration) -> Self {
        let pacing = Pacing { batch: config.queue.batch_size, tick_ms: config.queue.tick_ms };
        let door = match config.redis.on_failure {
            OnFailure::Open => Door::Open,
            OnFailure::Throttle => Door::Throttled(Throttle::new(config.redis.replicas.unwrap_or(1), pacing)),
            OnFailure::Closed => Door::Closed,
        };
        Self {
            door,
            let_through: LetThrough::new(MOST_PEOPLE, config.queue.max_active_targets),
            tick: Duration::from_millis(config.queue.tick_ms),
            began: now,
        }
    }

    /// The store has told somebody where they stand.
    pub(super) fn saw(&self, target: QueueTarget, position: &QueuePosition) {
        if let Door::Throttled(throttle) = &self.door {
            throttle.saw(target, position);
        }
    }
}

impl VirtualQueueService {
    /// The answer where the store gave none. One that did not answer in time is asked again in a second: a hiccup opens
    /// no door, however it is set. One that is away leaves it to `redis.on_failure`.
    pub(super) fn without_store(
        &self,
        operation: Operation,
        target: QueueTarget,
        user: UserId,
        error: &StoreError,
    ) -> Result<Answer, QueueError> {
        self.note(operation, target, error);
        if *error == StoreError::TimedOut {
            return Ok(wait(1));
        }
        let known = self.active.contains(target);
        let now_s = self.parts.clock.now_seconds();
        let expires_at = stateless_expiry(now_s, self.token_ttl_seconds);
        let let_through = &self.outage.let_through;
        let passage = match &self.outage.door {
            Door::Closed => {
                // Spread out, so that the crowd does not come back together.
                return Err(QueueError::StoreUnavailable { retry_after_seconds: rand::random_range(1..=3) });
            }
            Door::Open => let_through.pass(target, known, user, expires_at, now_s),
            Door::Throttled(throttle) => {
                let now = self.parts.clock.monotonic();
                let lost_at = self.parts.store.lost_at(target).unwrap_or_default().max(self.outage.began);
                let slot = || throttle.take_slot(target, lost_at, now);
                let_through.pass_narrow(target, known, user, (expires_at, now_s), slot)
            }
        };
        let expires_at = match passage {
            Passage::Again(expires_at) => expires_at,
            Passage::New { remembered } => {
                self.count_direct(target);
                if !remembered {
                    self.parts.metrics.direct_not_remembered();
                }
                expires_at
            }
            Passage::Shut => return Ok(wait(self.outage.tick.as_secs_f64().ceil() as u64)),
        };
        Ok(Self::direct(self.parts.issuer.mint(target, user, expires_at), true))
    }

    /// Where the store is there again, doors of targets without a queue go.
    pub(super) fn forget_ended_doors(&self) {
        if !self.is_degraded()
            && let Door::Throttled(throttle) = &self.outage.door
        {
            throttle.retain(|target| self.active.contains(target));
        }
    }
}

/// Wait, nobody knows behind how many; ask again in so many seconds.
fn wait(seconds: u64) -> Answer {
    Answer { status: QueueStatus::WaitingUnknown, poll_after_seconds: Some(seconds), paused: false, degraded: true }
}
