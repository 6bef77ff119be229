//! The answers to a person who enters, polls or leaves (TDD: `VirtualQueueDomainService`).
//!
//! Only this module has the flag branch (off: a direct pass) and what happens without the store (`outage`). Not here:
//! how the queue works ([`crate::store`]), how an answer looks in HTTP ([`crate::http`]).

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

/// The answer to entering and polling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The person's state in the queue.
    pub status: QueueStatus,
    /// Seconds until the next poll makes sense; only while waiting.
    pub poll_after_seconds: Option<u64>,
    /// The operator has stopped admission.
    pub paused: bool,
    /// The answer was given without the store.
    pub degraded: bool,
}

/// The answer to leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The store was unavailable: a place ends by itself, a pass stays valid until it ends.
    pub degraded: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue has reached its capacity (PRD FR-7).
    #[error("the queue is full")]
    Full {
        /// Whole seconds.
        retry_after_seconds: u64,
    },
    /// The person has neither place nor pass: never entered, left, evicted, or the pass has ended.
    #[error("not in the queue")]
    NotInQueue,
    /// The maximum number of targets have a queue (`queue.max_active_targets`).
    #[error("too many targets have a queue")]
    TooManyTargets {
        /// Whole seconds.
        retry_after_seconds: u64,
    },
    /// The store is unavailable, and there is no answer without it: for operators, and for buyers if `redis.on_failure`
    /// is `closed`.
    #[error("the store is away")]
    StoreUnavailable {
        /// Whole seconds.
        retry_after_seconds: u64,
    },
}

/// The parts of a service.
#[derive(Clone)]
pub struct ServiceParts {
    /// The queue.
    pub store: Arc<dyn VirtualQueueStore>,
    /// The flag.
    pub flags: Arc<dyn FeatureFlagEvaluator>,
    /// Signs passes.
    pub issuer: Arc<dyn EntryTokenIssuer>,
    /// The store's time.
    pub clock: StoreClock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

/// The operations enter, status, leave and stats.
pub struct VirtualQueueService {
    parts: ServiceParts,
    active: Arc<ActiveTargets>,
    direct: DirectCounts,
    outage: Outage,
    hand_over: HandOver,
    /// The total time that a buyer waits for the store.
    limit: Duration,
    token_ttl_seconds: u64,
    heartbeat_timeout: Duration,
    max_active_targets: u64,
}

impl VirtualQueueService {
    /// A service with the configured rules.
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

    /// A person enters (TDD: 대기열 진입). If the flag is off, they get a direct pass. If the store is unavailable,
    /// `redis.on_failure` decides.
    ///
    /// # Errors
    /// [`QueueError::Full`] and [`QueueError::TooManyTargets`], never for a person who is in the queue;
    /// [`QueueError::StoreUnavailable`] if `redis.on_failure` is `closed`.
    pub async fn enter(&self, target: QueueTarget, user: UserId) -> Result<Answer, QueueError> {
        if !self.parts.flags.is_enabled(target, user) {
            return self.without_queue(Operation::Enter, target, user);
        }
        match self.enter_in_time(target, user).await {
            Ok(Entered::Place(place)) => Ok(self.answer_for(target, user, place)),
            // Random, so that refused people do not come back at the same time.
            Ok(Entered::Full) => Err(QueueError::Full { retry_after_seconds: rand::random_range(3..=8) }),
            Ok(Entered::NoRoom) => Err(QueueError::TooManyTargets { retry_after_seconds: 30 }),
            Err(error) => self.without_store(Operation::Enter, target, user, &error),
        }
    }

    /// A person polls (TDD: 순번·상태 조회): this keeps the place and collects the pass.
    ///
    /// # Errors
    /// [`QueueError::NotInQueue`]; [`QueueError::StoreUnavailable`] if `redis.on_failure` is `closed`.
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

    /// A person leaves (TDD: 대기열 이탈) and gives up the place or the live pass, if there is one.
    pub async fn leave(&self, target: QueueTarget, user: UserId) -> Result<Left, QueueError> {
        match self.parts.store.leave(target, user).await {
            Ok(_) => {
                self.outage.admissions.forget(target, user);
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

    /// The targets that this replica knows to have a queue.
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

    /// The flag is off: gives a direct pass. Or the flag was never read: answers as in any outage (ADR 0014).
    fn without_queue(&self, operation: Operation, target: QueueTarget, user: UserId) -> Result<Answer, QueueError> {
        if self.parts.flags.is_known() {
            return Ok(self.flag_is_off(target, user));
        }
        self.without_store(operation, target, user, &StoreError::Unavailable("the flag was never read".to_owned()))
    }

    /// The flag is off: gives a direct pass, without a place.
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
        // Anyone can ask for any id. So only targets that have a queue, or that the rule names, get a series.
        if has_queue || self.parts.flags.names(target) {
            self.parts.metrics.tokens(target, TokenEvent::Direct, 1);
        } else {
            self.parts.metrics.direct_without_queue();
        }
    }

    fn note(&self, operation: Operation, target: QueueTarget, error: &StoreError) {
        self.parts.metrics.degraded(operation);
        // An outage is logged once, where it is noticed. A reply that we do not understand is our own bug.
        if let StoreError::Broken(what) = error {
            tracing::error!(%target, what, "the store answered something unexpected");
        }
    }
}

#[cfg(test)]
mod tests;
