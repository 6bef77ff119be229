//! Purchases that are checked, begin or end together share one call, like people who enter together.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{
    batch::GroupCall,
    reply::{self, Purchased},
    script_runner::{ScriptCall, ScriptRunner},
};
use crate::{
    domain::{QueueTarget, UserId},
    metrics::TokenEvent,
    redis::{Failure, scripts},
    store::{Settled, Settlement, StoreError},
};

/// A question or a message about one purchase: the person, and the expiry (s) of the pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purchase {
    /// The purchase begins.
    Claim { user: UserId, expires_at: u64, nonce: Arc<str> },
    /// Could the purchase begin?
    Check { user: UserId, expires_at: u64 },
    /// The purchase has ended.
    Ended { user: UserId, expires_at: u64, nonce: Arc<str>, how: Settlement },
    /// A purchase that needed no pass succeeded `ago_ms` ago.
    WithoutPass { user: UserId, ago_ms: u128 },
}

impl Purchase {
    fn user(&self) -> UserId {
        match self {
            Self::Claim { user, .. }
            | Self::Check { user, .. }
            | Self::Ended { user, .. }
            | Self::WithoutPass { user, .. } => *user,
        }
    }

    fn args(&self) -> [String; 4] {
        let (number, nonce, what) = match self {
            Self::Claim { expires_at, nonce, .. } => (expires_at.to_string(), nonce.to_string(), "claim"),
            Self::Check { expires_at, .. } => (expires_at.to_string(), String::new(), "check"),
            Self::Ended { expires_at, nonce, how, .. } => {
                let what = match how {
                    Settlement::Spent => "spent",
                    Settlement::GivenBack => "back",
                };
                (expires_at.to_string(), nonce.to_string(), what)
            }
            Self::WithoutPass { ago_ms, .. } => (ago_ms.to_string(), String::new(), "all"),
        };
        [self.user().to_string(), number, nonce, what.to_owned()]
    }
}

/// Only the user is hashed: few people have two purchases under way.
impl Hash for Purchase {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.user().hash(state);
    }
}

/// `purchase.lua`, for many purchases.
pub(super) struct Purchases(pub(super) Arc<ScriptRunner>);

impl GroupCall for Purchases {
    type Item = Purchase;
    type Answer = Purchased;

    async fn call(&self, target: QueueTarget, purchases: &[Purchase]) -> Result<Vec<Purchased>, Failure> {
        let lease = self.0.lease_ms().to_string();
        let own = std::iter::once(lease).chain(purchases.iter().flat_map(Purchase::args));
        let read = |reply: &[i64]| reply::purchases(purchases.len(), reply);
        let answers =
            self.0.run(ScriptCall::hot(&scripts::PURCHASE, target, own).shared_by(purchases.len()), read).await?;
        let consumed = answers.iter().filter(|one| **one == Purchased::Settled(Settled::Consumed)).count();
        self.0.metrics().tokens(target, TokenEvent::Consumed, consumed as u64);
        Ok(answers)
    }
}

/// A claim got the answer of a settlement, or the reverse.
pub(super) fn crossed() -> StoreError {
    StoreError::Broken("purchase.lua answered something else than was asked".to_owned())
}
