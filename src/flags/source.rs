//! Where the rule is kept: the contract (DESIGN 7; DESIGN 5 "Empty restart").

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;

use super::{FlagChange, FlagRule, UnreadableRule};

/// Audit entries kept, the newest.
pub const AUDIT_KEPT: usize = 10_000;

/// Bytes of a rule's JSON that the audit keeps in full. A longer one (some 600 people by name) is kept as its version
/// and length: 10,000 entries with 100,000 ids each would fill the Redis that carries the queue.
pub(super) const AUDITED_BYTES: usize = 16 * 1024;

/// Who restores rules, in the audit.
pub(super) const RESTORER: &str = "restore";

/// Keeps the rule and the history of its changes. Every call is atomic and ends in bounded time.
///
/// # Errors
/// All calls answer [`FlagError`] in the same way.
#[async_trait]
pub trait FlagSource: Send + Sync {
    /// The stored rule. `None`: there is none, which is not the same as off.
    async fn read(&self) -> Result<Option<Arc<FlagRule>>, FlagError>;

    /// Stores a change, audits it, tells the replicas. An audit that does not take it stops nothing: then a line of the log
    /// has it. Its version is the store's time in ms, or the one after the
    /// stored one or after `known` where that is larger: newer than any change before it, known here or not. After
    /// [`FlagError::Unavailable`] or [`FlagError::TimedOut`] it may have been stored all the same.
    async fn put(&self, change: &FlagChange, who: &str, known: u64) -> Result<Arc<FlagRule>, FlagError>;

    /// Writes a rule back where none or an older one is stored, and audits that. Gives what is stored then.
    async fn restore(&self, rule: &FlagRule) -> Result<Arc<FlagRule>, FlagError>;

    /// The newest `limit` changes, newest first.
    async fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>, FlagError>;

    /// Listens for changes made elsewhere: wakes `changed` once it listens, and at each. Ends with `Ok` when it had
    /// listened and was cut off, with an error when it never could.
    async fn listen(&self, changed: &Notify) -> Result<(), FlagError>;

    /// Whether there is anybody to ask. [`FlagError::Unavailable`]: nobody, so asking again at once is no use; somebody slow
    /// is somebody.
    async fn knock(&self) -> Result<(), FlagError> {
        Ok(())
    }

    /// Waits until the source is found again where it is unavailable now; else for ever.
    async fn found_again(&self) {
        std::future::pending().await
    }
}

/// Why the source gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// It is away. The cause is for the log, not for clients.
    #[error("the flag store does not answer")]
    Unavailable {
        /// What went wrong.
        cause: String,
    },
    /// It did not answer in time.
    #[error("the flag store does not answer in time")]
    TimedOut,
    /// Something is stored that is no rule. A change overwrites it.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRule),
}

/// One change of the rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// The operator; `restore` where a replica wrote a lost rule back.
    pub who: String,
    /// When, in the store's time: milliseconds since the epoch.
    pub at_ms: u64,
    /// The rule before; null: there was none. A very long one is `{"version":…,"omittedBytes":…}`.
    pub old: Option<Value>,
    /// The rule after, likewise.
    pub new: Option<Value>,
    /// The reason given.
    pub why: String,
}

/// Why a rule was written back, for the audit.
pub(super) fn restored_because(rule: &FlagRule) -> String {
    format!("the store had lost version {}", rule.version())
}
