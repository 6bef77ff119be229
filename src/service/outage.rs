//! Answers to people while the store does not answer (`docs/design.md`, "Outages").

use std::time::Duration;

use super::{
    Answer, QueueError, VirtualQueueService,
    outage_admissions::{Admission, MOST_PEOPLE, OutageAdmissions},
    throttle::Throttle,
};
use crate::{
    config::{Config, OnFailure},
    domain::{Pacing, QueuePosition, QueueStatus, QueueTarget, UserId},
    metrics::Operation,
    store::StoreError,
    token::stateless_expiry,
};

/// How a replica answers without the store.
#[derive(Debug)]
pub(super) struct Outage {
    policy: FailurePolicy,
    pub(super) admissions: OutageAdmissions,
    tick: Duration,
    /// When this replica started, on the monotonic clock.
    began: Duration,
}

/// `redis.on_failure`.
#[derive(Debug)]
enum FailurePolicy {
    Open,
    Throttled(Throttle),
    Closed,
}

impl Outage {
    pub(super) fn new(config: &Config, now: Duration) -> Self {
        let pacing = Pacing { batch: config.queue.batch_size, tick_ms: config.queue.tick_ms };
        let policy = match config.redis.on_failure {
            OnFailure::Open => FailurePolicy::Open,
            OnFailure::Throttle => FailurePolicy::Throttled(Throttle::new(config.redis.replicas.unwrap_or(1), pacing)),
            OnFailure::Closed => FailurePolicy::Closed,
        };
        Self {
            policy,
            admissions: OutageAdmissions::new(MOST_PEOPLE, config.queue.max_active_targets),
            tick: Duration::from_millis(config.queue.tick_ms),
            began: now,
        }
    }

    /// Notes the pacing that the store answered with, for the throttle.
    pub(super) fn record_pacing(&self, target: QueueTarget, position: &QueuePosition) {
        if let FailurePolicy::Throttled(throttle) = &self.policy {
            throttle.record_pacing(target, position);
        }
    }
}

impl VirtualQueueService {
    /// The answer if the store gave none. After a timeout the person waits and asks again in a second: a single slow
    /// call admits nobody. If the store is unavailable, `redis.on_failure` decides.
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
        let admissions = &self.outage.admissions;
        let admission = match &self.outage.policy {
            FailurePolicy::Closed => {
                // Random, so that people do not come back at the same time.
                return Err(QueueError::StoreUnavailable { retry_after_seconds: rand::random_range(1..=3) });
            }
            FailurePolicy::Open => admissions.admit(target, known, user, expires_at, now_s),
            FailurePolicy::Throttled(throttle) => {
                let now = self.parts.clock.monotonic();
                let lost_at = self.parts.store.lost_at(target).unwrap_or_default().max(self.outage.began);
                let slot = || throttle.take_slot(target, lost_at, now);
                admissions.admit_throttled(target, known, user, (expires_at, now_s), slot)
            }
        };
        let expires_at = match admission {
            Admission::Again(expires_at) => expires_at,
            Admission::New { remembered } => {
                self.count_direct(target);
                if !remembered {
                    self.parts.metrics.direct_not_remembered();
                }
                expires_at
            }
            Admission::NotNow => return Ok(wait(self.outage.tick.as_secs_f64().ceil() as u64)),
        };
        Ok(Self::direct(self.parts.issuer.mint(target, user, expires_at), true))
    }

    /// When the store is available again, drops the throttles of targets without a queue.
    pub(super) fn forget_ended_targets(&self) {
        if !self.is_degraded()
            && let FailurePolicy::Throttled(throttle) = &self.outage.policy
        {
            throttle.retain(|target| self.active.contains(target));
        }
    }
}

/// The person waits with an unknown position, and asks again after `seconds`.
fn wait(seconds: u64) -> Answer {
    Answer { status: QueueStatus::WaitingUnknown, poll_after_seconds: Some(seconds), paused: false, degraded: true }
}
