//! The switch: whether a request goes through the queue (PRD FR-9; `docs/design.md`, "Switch and flags").
//!
//! Here: the rule, for whom it is on, where it is stored and how a change reaches all replicas. Not here: what on and
//! off mean for a person (see [`crate::service`] and [`crate::gate`]).
//!
//! | file | what it is |
//! |---|---|
//! | `change.rs` | what an operator sets, read from a PUT body |
//! | `rule.rs` | a change with its version, and for whom it is on |
//! | `bucket.rs` | which of 100 buckets a person is in |
//! | `snapshot.rs` | [`FeatureFlags`]: the rule in force in this process, kept up to date |
//! | `source.rs` | where the rule is stored: the contract, `embedded.rs` in memory, `redis.rs` shared by replicas |

mod bucket;
mod change;
mod embedded;
mod redis;
mod rule;
mod snapshot;
mod source;
#[cfg(test)]
mod tests;

pub use self::redis::RedisFlagSource;
pub use change::{FlagChange, InvalidChange, MAX_REASON_CHARS, MAX_TARGETS, MAX_USERS};
pub use embedded::EmbeddedFlagSource;
pub use rule::{FlagRule, UnreadableRule};
pub use snapshot::FeatureFlags;
pub use source::{AUDIT_KEPT, AuditEntry, FlagError, FlagSource};

use crate::domain::{QueueTarget, QueueTargetType, UserId};

/// The only flag.
pub const VIRTUAL_QUEUE_ENABLED: &str = "virtual-queue.enabled";

/// Evaluates the flag from memory: never waits, never fails (TDD: `FeatureFlagEvaluator`).
pub trait FeatureFlagEvaluator: Send + Sync {
    /// Whether this person queues for this target.
    fn is_enabled(&self, target: QueueTarget, user: UserId) -> bool;

    /// For whom the flag is on for this target.
    fn reach(&self, target: QueueTarget) -> Reach;

    /// One target of this kind for which the flag is on for anybody; `None`: there is none. It stands for all others:
    /// whether a person is in a rollout does not depend on the target.
    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget>;

    /// Whether the rule names this target; such a target is exempt from `queue.max_active_targets`.
    fn names(&self, target: QueueTarget) -> bool;

    /// Whether the answers come from a rule, or from the knowledge that none is set. False: neither has been read yet,
    /// and `redis.on_failure` decides the answers (`docs/adr/0014-a-flag-never-read-is-not-off.md`). Once true, it
    /// stays true.
    fn is_known(&self) -> bool {
        true
    }
}

/// For whom the flag is on for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// For nobody.
    Nobody,
    /// It depends on the person.
    SomePeople,
    /// For everybody.
    Everybody,
}
