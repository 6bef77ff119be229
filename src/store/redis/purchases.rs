//! Purchases that begin or end together go in one call, as people who enter together do.

use std::sync::Arc;

use super::{reply, shared::Shared};
use crate::{
    domain::{QueueTarget, UserId},
    metrics::TokenEvent,
    redis::{Failure, batch::GroupCall, scripts},
    store::{Claim, Settled, Settlement},
};

/// A purchase: whose, with the pass that ends when (s), under which nonce.
pub(super) type Purchase = (UserId, u64, String);

/// `claim.lua`, for many purchases.
pub(super) struct Claims(pub(super) Arc<Shared>);

impl GroupCall for Claims {
    type Item = Purchase;
    type Answer = Claim;

    async fn call(&self, target: QueueTarget, purchases: &[Purchase]) -> Result<Vec<Claim>, Failure> {
        let taken = purchases
            .iter()
            .flat_map(|(user, expires_at, nonce)| [user.to_string(), expires_at.to_string(), nonce.clone()]);
        let own = std::iter::once(self.0.lease_ms().to_string()).chain(taken);
        self.0.group(&scripts::CLAIM, target, own, purchases.len(), |reply| reply::claims(purchases.len(), reply)).await
    }
}

/// `settle.lua`, for many purchases.
pub(super) struct Settlements(pub(super) Arc<Shared>);

impl GroupCall for Settlements {
    type Item = (Purchase, Settlement);
    type Answer = Settled;

    async fn call(&self, target: QueueTarget, ended: &[(Purchase, Settlement)]) -> Result<Vec<Settled>, Failure> {
        let own = ended.iter().flat_map(|((user, expires_at, nonce), how)| {
            let how = match how {
                Settlement::Spent => "spent",
                Settlement::GivenBack => "back",
            };
            [user.to_string(), expires_at.to_string(), nonce.clone(), how.to_owned()]
        });
        let read = |reply: &[i64]| reply::settled(ended.len(), reply);
        let settled = self.0.group(&scripts::SETTLE, target, own, ended.len(), read).await?;
        let consumed = settled.iter().filter(|one| **one == Settled::Consumed).count();
        self.0.metrics().tokens(target, TokenEvent::Consumed, consumed as u64);
        Ok(settled)
    }
}
