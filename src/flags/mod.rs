//! The switch: whether a request goes through the queue (PRD FR-9; DESIGN 7).
//!
//! Here: the rule, who it is on for, where it is kept and how a change spreads. Not here: what on and off mean for a
//! person, that is [`crate::service`]'s and [`crate::gate`]'s.
//!
//! | file | what it is |
//! |---|---|
//! | `change.rs` | what an operator sets, read from a PUT body |
//! | `rule.rs` | a change with its version, and who it is on for |
//! | `bucket.rs` | which hundredth of the people somebody belongs to |
//! | `snapshot.rs` | [`FeatureFlags`]: the rule in force in this process, kept fresh |
//! | `source.rs` | where the rule is kept: the contract, `embedded.rs` in memory, `redis.rs` shared by replicas |

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

/// The one flag there is.
pub const VIRTUAL_QUEUE_ENABLED: &str = "virtual-queue.enabled";

/// Evaluates the flag from memory: never waits, never fails (TDD: `FeatureFlagEvaluator`).
pub trait FeatureFlagEvaluator: Send + Sync {
    /// Whether this person queues for this target.
    fn is_enabled(&self, target: QueueTarget, user: UserId) -> bool;

    /// For whom the flag is on with this target.
    fn reach(&self, target: QueueTarget) -> Reach;

    /// One target of this kind that the flag is on with, for anybody at all; `None`: there is none. It stands for every
    /// other: who is in a roll-out does not depend on the target.
    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget>;

    /// Whether the rule names this target; such a target is exempt from `queue.max_active_targets`.
    fn names(&self, target: QueueTarget) -> bool;

    /// Whether these answers come from a rule, or from knowing that none is set. False: neither has been read yet, and
    /// they are what `redis.on_failure` makes of that (`docs/adr/0014-a-flag-never-read-is-not-off.md`). Never false again
    /// once it was true.
    fn is_known(&self) -> bool {
        true
    }
}

/// For whom the flag is on with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// For nobody.
    Nobody,
    /// It depends on the person.
    SomePeople,
    /// For everybody.
    Everybody,
}
