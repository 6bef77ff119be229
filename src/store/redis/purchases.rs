//! Purchases that begin or end together go in one call, as people who enter together do.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{
    reply::{self, Purchased},
    shared::Shared,
};
use crate::{
    domain::{QueueTarget, UserId},
    metrics::TokenEvent,
    redis::{Failure, batch::GroupCall, scripts},
    store::{Settled, Settlement, StoreError},
};

/// A purchase that begins, or ends: whose, with the pass that ends when (s), under which nonce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Purchase {
    pub(super) user: UserId,
    pub(super) expires_at: u64,
    pub(super) nonce: Arc<str>,
    /// How it ended; `None`: it begins.
    pub(super) ended: Option<Settlement>,
}

impl Purchase {
    fn args(&self) -> [String; 4] {
        let what = match self.ended {
            None => "claim",
            Some(Settlement::Spent) => "spent",
            Some(Settlement::GivenBack) => "back",
        };
        [self.user.to_string(), self.expires_at.to_string(), self.nonce.to_string(), what.to_owned()]
    }
}

/// Hardly anybody has two under way.
impl Hash for Purchase {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.user.hash(state);
    }
}

/// `purchase.lua`, for many purchases.
pub(super) struct Purchases(pub(super) Arc<Shared>);

impl GroupCall for Purchases {
    type Item = Purchase;
    type Answer = Purchased;

    async fn call(&self, target: QueueTarget, purchases: &[Purchase]) -> Result<Vec<Purchased>, Failure> {
        let lease = self.0.lease_ms().to_string();
        let own = std::iter::once(lease).chain(purchases.iter().flat_map(Purchase::args));
        let read = |reply: &[i64]| reply::purchases(purchases.len(), reply);
        let answers = self.0.group(&scripts::PURCHASE, target, own, purchases.len(), read).await?;
        let consumed = answers.iter().filter(|one| **one == Purchased::Settled(Settled::Consumed)).count();
        self.0.metrics().tokens(target, TokenEvent::Consumed, consumed as u64);
        Ok(answers)
    }
}

/// A claim was answered as a settlement, or the other way round.
pub(super) fn crossed() -> StoreError {
    StoreError::Broken("purchase.lua answered something else than was asked".to_owned())
}
