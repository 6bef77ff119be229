//! What a person is told (TDD: `QueueStatus`, 상태 전이 표).

use super::{id::UserId, position::QueuePosition, target::QueueTarget};

/// A signed right to buy, and when it ends (TDD: `EntryToken`).
///
/// Its text is a secret of its holder: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct EntryToken {
    raw: String,
    expires_at: u64,
}

impl EntryToken {
    /// Joins a pass's text with its expiry (seconds since the epoch).
    pub fn new(raw: String, expires_at: u64) -> Self {
        Self { raw, expires_at }
    }

    /// The pass as the holder sends it in `X-Entry-Token`.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Seconds since the epoch from which on it is no longer valid.
    pub fn expires_at(&self) -> u64 {
        self.expires_at
    }
}

impl std::fmt::Debug for EntryToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryToken").field("raw", &"***").field("expires_at", &self.expires_at).finish()
    }
}

/// What a verified pass says: who may buy what until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassClaims {
    /// For what.
    pub target: QueueTarget,
    /// For whom.
    pub user: UserId,
    /// Seconds since the epoch.
    pub expires_at: u64,
}

/// Where a person stands with a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueStatus {
    /// In the queue, at this place.
    Waiting(QueuePosition),
    /// In the queue as far as anybody knows: the store did not answer in time, so there are no numbers.
    WaitingUnknown,
    /// The turn has come: here is the pass.
    Admitted(EntryToken),
    /// Let through without queueing: the flag is off, or the store is away.
    DirectAdmitted(EntryToken),
}

impl QueueStatus {
    /// The name in the API: `WAITING`, `ADMITTED`, `DIRECT_ADMITTED`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting(_) | Self::WaitingUnknown => "WAITING",
            Self::Admitted(_) => "ADMITTED",
            Self::DirectAdmitted(_) => "DIRECT_ADMITTED",
        }
    }
}
