//! The pass: what is signed, with what, and how it is checked (TDD: Security Information; `docs/design.md`).
//!
//! Here: the text of a pass, the keys, signing and verifying; and the same for who an anonymous visitor is. Not here: whether a pass was already used, that is the
//! store's to know ([`crate::store`]); nor where a pass travels in a request ([`crate::gate`]).

mod fingerprint;
mod keyring;
mod payload;
mod visitor;

pub use fingerprint::{Fingerprint, KeyFingerprints};
pub use keyring::{Keyring, WeakSecret};
pub use visitor::Visitor;

use crate::domain::{EntryToken, PassClaims, QueueTarget, UserId};

/// Issues passes (TDD: `EntryTokenIssuer`).
pub trait EntryTokenIssuer: Send + Sync {
    /// The pass of this person for this target until `expires_at` (seconds since the epoch). The same three give
    /// the same bytes under one current secret, so repeating is harmless and nothing need be stored.
    fn mint(&self, target: QueueTarget, user: UserId, expires_at: u64) -> EntryToken;

    /// A direct pass (flag off, failing open): valid for at most `ttl_seconds` from `now_seconds`, its end rounded
    /// down to a whole minute, so that asking again gives the same pass (TDD: `mintStateless`). Lifetimes under
    /// five minutes are rounded to a fifth of themselves instead.
    fn mint_stateless(&self, target: QueueTarget, user: UserId, now_seconds: u64, ttl_seconds: u64) -> EntryToken {
        self.mint(target, user, stateless_expiry(now_seconds, ttl_seconds))
    }
}

/// When a direct pass given now ends: see [`EntryTokenIssuer::mint_stateless`].
pub(crate) fn stateless_expiry(now_seconds: u64, ttl_seconds: u64) -> u64 {
    let step = (ttl_seconds / 5).clamp(1, 60);
    (now_seconds + ttl_seconds) / step * step
}

/// Checks passes (TDD: `EntryTokenGuard`). No store is asked.
pub trait EntryTokenGuard: Send + Sync {
    /// Whether `raw` is this person's pass for this target and still valid at `now_seconds`.
    ///
    /// # Errors
    /// [`PassRefusal`]: why not.
    fn verify(&self, target: QueueTarget, user: UserId, raw: &str, now_seconds: u64)
    -> Result<PassClaims, PassRefusal>;
}

/// Why a pass is refused. Also the `reason` label of `virtual_queue_bypass_attempts_total`, and the `reason` in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PassRefusal {
    /// Not the form of a pass: other parts, another encoding, a text that says something else.
    #[error("the pass is malformed")]
    Malformed,
    /// The form of a pass, and a signature by none of the secrets.
    #[error("the pass is not genuine")]
    Forged,
    /// Genuine, and over.
    #[error("the pass has expired")]
    Expired,
    /// Genuine, for another target.
    #[error("the pass is for another target")]
    OtherTarget,
    /// Genuine, for another person.
    #[error("the pass is for another person")]
    OtherUser,
}

impl PassRefusal {
    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Forged => "forged",
            Self::Expired => "expired",
            Self::OtherTarget => "other_target",
            Self::OtherUser => "other_user",
        }
    }
}
