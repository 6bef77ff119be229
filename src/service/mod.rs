//! What a person who comes, polls or leaves is told (TDD: `VirtualQueueDomainService`).
//!
//! Here, and only here: the flag branch (off: straight through) and what happens without the store (`outage`). Not
//! here: how the queue works ([`crate::store`]), how an answer looks in HTTP ([`crate::http`]).

mod active;
mod direct;
mod enter;
mod hand_over;
mod outage;
mod outage_admissions;
mod throttle;

use std::{sync::Arc, time::Duration};

pub use active::ActiveTargets;
use direct::DirectCounts;
use enter::Entered;
use hand_over::HandOver;
use outage::Outage;

use crate::{
    clock::StoreClock,
    config::Config,
    domain::{EntryToken, QueueStats, QueueStatus, QueueTarget, UserId},
    flags::FeatureFlagEvaluator,
    metrics::{Metrics, Operation, TokenEvent},
    store::{Place, StoreError, VirtualQueueStore},
    token::EntryTokenIssuer,
};

/// What entering and polling answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Where the person stands.
    pub status: QueueStatus,
    /// Seconds until the next poll is worth making; only while waiting.
    pub poll_after_seconds: Option<u64>,
    /// The operator has stopped admission.
    pub paused: bool,
    /// Given without the store.
    pub degraded: bool,
}

/// What leaving answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The store was away: a place lapses by itself, a pass stays valid until it ends.
    pub degraded: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// As many people as may wait are waiting (PRD FR-7).
    #[error("the queue is full")]
    Full {
        /// Whole seconds.
        retry_after_seconds: u64,
    },
    /// Neither place nor pass: never entered, left, evicted, or over.
    #[error("not in the queue")]
    NotInQueue,
    /// As many targets as may have a queue have one (`queue.max_active_targets`).
    #[error("too many targets have a queue")]
    TooManyTargets {
        /// Whole seconds.
        retry_after_seconds: u64,
    },
    /// The store is away, and there is nothing to say without it: to operators' questions, and to buyers where
    /// `redis.on_failure` is `closed`.
    #[error("the store is away")]
    StoreUnavailable {
        /// Whole seconds.
        retry_after_seconds: u64,
    },
}

/// The parts a service is made of.
#[derive(Clone)]
pub struct ServiceParts {
    /// The queue.
    pub store: Arc<dyn VirtualQueueStore>,
    /// The switch.
    pub flags: Arc<dyn FeatureFlagEvaluator>,
    /// Signs passes.
    pub issuer: Arc<dyn EntryTokenIssuer>,
    /// The store's time.
    pub clock: StoreClock,
    /// Counts.
    pub metrics: Arc<Metrics>,
}

/// Enter, status, leave, stats.
pub struct VirtualQueueService {
    parts: ServiceParts,
    active: Arc<ActiveTargets>,
    direct: DirectCounts,
    outage: Outage,
    hand_over: HandOver,
    /// What a buyer waits for the store, in all.
    limit: Duration,
    token_ttl_seconds: u64,
    heartbeat_timeout: Duration,
    max_active_targets: u64,
}

impl VirtualQueueService {
    /// A service under the configured rules.
    pub fn new(parts: ServiceParts, config: &Config) -> Self {
        Self {
            active: Arc::default(),
            direct: DirectCounts::default(),
            outage: Outage::new(config, parts.clock.monotonic()),
            parts,
            hand_over: HandOver::default(),
            limit: Duration::from_millis(config.redis.command_timeout_ms),
            token_ttl_seconds: config.token.ttl_seconds,
            heartbeat_timeout: Duration::from_secs(config.queue.heartbeat_timeout_seconds),
            max_active_targets: config.queue.max_active_targets,
        }
    }

    /// Somebody comes (TDD: 대기열 진입). With the flag off they go straight through; with the store away
    /// `redis.on_failure` decides.
    ///
    /// # Errors
    /// [`QueueError::Full`] and [`QueueError::TooManyTargets`], never for somebody who is in;
    /// [`QueueError::StoreUnavailable`] where `redis.on_failure` is `closed`.
    pub async fn enter(&self, target: QueueTarget, user: UserId) -> Result<Answer, QueueError> {
        if !self.parts.flags.is_enabled(target, user) {
            return self.without_queue(Operation::Enter, target, user);
        }
        match self.enter_in_time(target, user).await {
            Ok(Entered::Place(place)) => Ok(self.answer_for(target, user, place)),
            // Spread out, so that those turned away do not come back together.
            Ok(Entered::Full) => Err(QueueError::Full { retry_after_seconds: rand::random_range(3..=8) }),
            Ok(Entered::NoRoom) => Err(QueueError::TooManyTargets { retry_after_seconds: 30 }),
            Err(error) => self.without_store(Operation::Enter, target, user, &error),
        }
    }

    /// Somebody polls (TDD: 순번·상태 조회): the sign of life, and the way to the pass.
    ///
    /// # Errors
    /// [`QueueError::NotInQueue`]; [`QueueError::StoreUnavailable`] where `redis.on_failure` is `closed`.
    pub async fn status(&self, target: QueueTarget, user: UserId) -> Result<Answer, QueueError> {
        if !self.parts.flags.is_enabled(target, user) {
            return self.without_queue(Operation::Status, target, user);
        }
        match self.parts.store.status(target, user).await {
            Ok(Some(place)) => Ok(self.answer_for(target, user, place)),
            Ok(None) => Err(QueueError::NotInQueue),
            Err(error) => self.without_store(Operation::Status, target, user, &error),
        }
    }

    /// Somebody leaves (TDD: 대기열 이탈): gives up the place or the live pass, if there is one.
    pub async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Left, QueueError> {
        match self.parts.store.leave(target, user).await {
            Ok(_) => {
                self.outage.outage_admissions.forget(target, user);
                Ok(Left { degraded: false })
            }
            Err(error) => {
                self.note(Operation::Leave, target, &error);
                Ok(Left { degraded: true })
            }
        }
    }

    /// The books, for operators (PRD FR-11).
    ///
    /// # Errors
    /// [`QueueError::StoreUnavailable`].
    pub async fn stats(&self, target: QueueTarget) -> Result<QueueStats, QueueError> {
        self.parts.store.stats(target).await.map_err(|error| {
            self.note(Operation::Stats, target, &error);
            QueueError::StoreUnavailable { retry_after_seconds: 1 }
        })
    }

    /// Whether the store, or a part of it, is unavailable.
    pub fn is_degraded(&self) -> bool {
        self.parts.store.is_degraded()
    }

    /// The targets with a queue, as this replica knows them.
    pub fn active_targets(&self) -> &Arc<ActiveTargets> {
        &self.active
    }

    fn answer_for(&self, target: QueueTarget, user: UserId, place: Place) -> Answer {
        match place {
            Place::Waiting(position) => {
                self.outage.record_pacing(target, &position);
                Answer {
                    poll_after_seconds: Some(position.poll_after_seconds(self.heartbeat_timeout, rand::random())),
                    paused: position.paused,
                    status: QueueStatus::Waiting(position),
                    degraded: false,
                }
            }
            Place::Admitted { expires_at } => Answer {
                status: QueueStatus::Admitted(self.parts.issuer.mint(target, user, expires_at)),
                poll_after_seconds: None,
                paused: false,
                degraded: false,
            },
        }
    }

    /// The flag is off, or nobody knows whether it is and people are let through for that: as they are in any outage.
    fn without_queue(&self, operation: Operation, target: QueueTarget, user: UserId) -> Result<Answer, QueueError> {
        if self.parts.flags.is_known() {
            return Ok(self.flag_is_off(target, user));
        }
        self.without_store(operation, target, user, &StoreError::Unavailable("the flag was never read".to_owned()))
    }

    /// The flag is off: a pass without a place.
    fn flag_is_off(&self, target: QueueTarget, user: UserId) -> Answer {
        self.count_direct(target);
        let now = self.parts.clock.now_seconds();
        Self::direct(self.parts.issuer.mint_stateless(target, user, now, self.token_ttl_seconds), false)
    }

    fn direct(pass: EntryToken, degraded: bool) -> Answer {
        Answer { status: QueueStatus::DirectAdmitted(pass), poll_after_seconds: None, paused: false, degraded }
    }

    fn count_direct(&self, target: QueueTarget) {
        let has_queue = self.active.contains(target);
        if has_queue {
            self.direct.add(target, 1);
        }
        // Anybody can ask for any id here: only targets with a queue, or named by the rule, get a series.
        if has_queue || self.parts.flags.names(target) {
            self.parts.metrics.tokens(target, TokenEvent::Direct, 1);
        } else {
            self.parts.metrics.direct_without_queue();
        }
    }

    fn note(&self, operation: Operation, target: QueueTarget, error: &StoreError) {
        self.parts.metrics.degraded(operation);
        // An outage is logged where it is noticed, once; a reply we do not understand is a fault of ours.
        if let StoreError::Broken(what) = error {
            tracing::error!(%target, what, "the store answered something unexpected");
        }
    }
}

#[cfg(test)]
mod tests;
