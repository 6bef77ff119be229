//! Where the rule is stored: the contract (`docs/design.md`, "Switch and flags").

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;
use utoipa::ToSchema;

use super::{FlagChange, FlagRule, UnreadableRule};

/// How many audit entries are kept: the newest.
pub const AUDIT_KEPT: usize = 10_000;

/// The longest JSON of a rule, in bytes, that the audit keeps in full. Of a longer one (some 600 people by name) it
/// keeps the version and length: 10,000 entries with 100,000 ids each would fill the Redis of the queue.
pub(super) const AUDITED_BYTES: usize = 16 * 1024;

/// `who` in the audit for rules that were written back.
pub(super) const RESTORER: &str = "restore";

/// Keeps the rule and the history of its changes. Every call is atomic and has a time limit.
///
/// # Errors
/// All calls return [`FlagError`] in the same way.
#[async_trait]
pub trait FlagSource: Send + Sync {
    /// The stored rule. `None`: no rule is set, which is not the same as off.
    async fn read(&self) -> Result<Option<Arc<FlagRule>>, FlagError>;

    /// Stores a change, adds it to the audit, and announces it to the replicas. If the audit fails, the change is still
    /// stored, and a log line records it. The version is the store's time in ms, or one more than the stored version or
    /// than `known` if that is larger: newer than any change before, known here or not. After
    /// [`FlagError::Unavailable`] or [`FlagError::TimedOut`] the change may still have been stored.
    async fn put(&self, change: &FlagChange, who: &str, known: u64) -> Result<Arc<FlagRule>, FlagError>;

    /// Writes a rule back if none or an older one is stored, and audits that. Returns what is stored then.
    async fn restore(&self, rule: &FlagRule) -> Result<Arc<FlagRule>, FlagError>;

    /// The newest `limit` changes, newest first.
    async fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>, FlagError>;

    /// Listens for changes made elsewhere. Wakes `changed` when it begins to listen, and at each change. Ends with `Ok`
    /// if it listened and was cut off, with an error if it could not listen.
    async fn listen(&self, changed: &Notify) -> Result<(), FlagError>;

    /// Whether the source takes connections. [`FlagError::Unavailable`]: it does not, so a retry at once is useless. A
    /// slow source counts as available.
    async fn knock(&self) -> Result<(), FlagError> {
        Ok(())
    }

    /// If the source is unavailable now, waits until it is available again. Else waits for ever.
    async fn found_again(&self) {
        std::future::pending().await
    }
}

/// Why the source gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// The source is unavailable. The cause is for the log, not for clients.
    #[error("the flag store does not answer")]
    Unavailable {
        /// What went wrong.
        cause: String,
    },
    /// The source did not answer in time.
    #[error("the flag store does not answer in time")]
    TimedOut,
    /// What is stored is not a rule. A change overwrites it.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRule),
}

/// One change of the rule.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FlagAuditEntry)]
pub struct AuditEntry {
    /// The operator, or `restore` if a replica wrote a lost rule back.
    pub who: String,
    /// When, in the store's time: milliseconds since the epoch.
    pub at_ms: u64,
    /// The rule before; null if there was none. A very long rule is `{"version":…,"omittedBytes":…}`.
    #[schema(required, value_type = Option<Object>)]
    pub old: Option<Value>,
    /// The rule after, in the same form.
    #[schema(required, value_type = Option<Object>)]
    pub new: Option<Value>,
    /// The reason given.
    pub why: String,
}

/// Why a rule was written back, for the audit.
pub(super) fn restored_because(rule: &FlagRule) -> String {
    format!("the store had lost version {}", rule.version())
}
