//! Forward auth: a proxy asks before it calls the shop. The decision is the middleware's; the pass is handled
//! differently, because the gate does not see the shop's answer (`docs/adr/0010-forward-auth-and-single-use.md`).

use std::{fmt, str::FromStr, time::Duration};

use actix_web::http::{Method, StatusCode, Uri, header::HeaderMap};

use super::{
    decision::Decision, look_alike, method::Body, middleware::EntryTokenGate, refusal::Refusal, single_use::Purchase,
};
use crate::{
    domain::{QueueTarget, UserId},
    problem::Problem,
    store::{Settlement, StoreError},
};

/// Digits of the latest expiry that is accepted: about three thousand years from now.
const MAX_EXPIRY_DIGITS: usize = 11;

/// Hexadecimal digits of a claim's nonce.
const NONCE_DIGITS: usize = 32;

/// The answer to a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No purchase, or the flag is off: the request may go to the shop unchanged.
    Free,
    /// As `Free`, but it may need a pass: the flag was never read, and then requests pass.
    Unchecked,
    /// A purchase with a valid pass, or on a route that needs none.
    Granted(GrantedPurchase),
    /// The request must not go to the shop. 401 if a token is needed and none is valid, else 403: proxies treat other
    /// statuses as a fault. The code says which refusal it is.
    Denied(Problem),
}

/// One purchase that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedPurchase {
    /// Who buys.
    pub user: UserId,
    /// What is bought.
    pub target: QueueTarget,
    /// The shop settles with this. Present if the shop settles and the pass is claimed.
    pub claim: Option<ClaimHandle>,
    /// The store did not answer: the pass may be spent already.
    pub degraded: bool,
}

/// A pass claimed for one purchase, in the form in which the shop names it to settle: `1790000000-` and 32 hexadecimal
/// digits.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimHandle {
    /// When the pass expires, seconds since the epoch.
    expires_at: u64,
    nonce: String,
}

impl ClaimHandle {
    /// When the claimed pass expires, seconds since the epoch.
    pub fn expires_at(&self) -> u64 {
        self.expires_at
    }
}

impl fmt::Display for ClaimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.expires_at, self.nonce)
    }
}

impl fmt::Debug for ClaimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimHandle({}-***)", self.expires_at)
    }
}

/// The text is not a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a claim")]
pub struct NotAClaimHandle;

impl FromStr for ClaimHandle {
    type Err = NotAClaimHandle;

    fn from_str(text: &str) -> Result<Self, NotAClaimHandle> {
        let (expires_at, nonce) = text.split_once('-').ok_or(NotAClaimHandle)?;
        let canonical = !expires_at.starts_with('0') && expires_at.bytes().all(|digit| digit.is_ascii_digit());
        if !canonical || expires_at.len() > MAX_EXPIRY_DIGITS {
            return Err(NotAClaimHandle);
        }
        if nonce.len() != NONCE_DIGITS || !nonce.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NotAClaimHandle);
        }
        Ok(Self { expires_at: expires_at.parse().map_err(|_| NotAClaimHandle)?, nonce: nonce.to_owned() })
    }
}

impl EntryTokenGate {
    /// The verdict on a request that a proxy asks about. Method, path and headers are those that the buyer sent.
    ///
    /// With single use:
    /// - The shop does not settle: a granted pass is spent before this returns.
    /// - The shop settles: the pass is claimed until [`Self::settle`] ends the purchase, or the lease ends.
    /// - The route does not spend: the pass is checked, not claimed and not spent.
    /// - The route needs no pass: the store is not asked. Only the shop knows when the purchase has succeeded. If the
    ///   shop does not settle, nothing is spent.
    ///
    /// Load shedding does not apply: the gate makes no call to the shop.
    ///
    /// A header that the shop may take for one of ours is refused with any request, whatever the flag says: the gate
    /// cannot remove it here.
    pub async fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap, shop_settles: bool) -> Verdict {
        if look_alike::any(headers) {
            self.count(Refusal::LookAlikeHeader);
            return denied(Refusal::LookAlikeHeader);
        }
        let purchase = match self.decide(method, uri, headers, Body::Unknown) {
            Decision::Untouched => return Verdict::Free,
            Decision::Unchecked => return Verdict::Unchecked,
            Decision::Refused(refusal) => {
                self.count(refusal);
                return denied(refusal);
            }
            Decision::Purchase(purchase) => purchase,
        };
        match self.take(purchase, shop_settles).await {
            Ok(granted) => Verdict::Granted(granted),
            Err(refusal) => denied(refusal),
        }
    }

    /// Claims the pass if the route spends it, else only checks it.
    async fn take(&self, purchase: Purchase, shop_settles: bool) -> Result<GrantedPurchase, Refusal> {
        let Purchase { user, target, rule, pass } = purchase;
        let mut granted = GrantedPurchase { user, target, claim: None, degraded: false };
        let (Some(single_use), Some(pass)) = (self.single_use_of_passes(), pass) else { return Ok(granted) };
        if !rule.spends() {
            granted.degraded = single_use.check(pass).await?;
            return Ok(granted);
        }
        let begun = single_use.begin(purchase).await?;
        granted.degraded = begun.degraded;
        if shop_settles {
            granted.claim = begun.into_nonce().map(|nonce| ClaimHandle { expires_at: pass.expires_at, nonce });
        } else {
            begun.settle(Settlement::Spent).await;
        }
        Ok(granted)
    }

    /// Ends a purchase that [`Self::judge`] granted. May be repeated. Spending also works after the lease has ended;
    /// giving back then changes nothing. Without single use there is nothing to settle.
    ///
    /// Without a claim (the route needs no pass), spending spends every pass that this person got for the target before
    /// this call. A late repetition would also spend a pass given in between. There is nothing to give back.
    ///
    /// # Errors
    /// [`StoreError`]: the store did not answer; ask again.
    pub async fn settle(
        &self,
        target: QueueTarget,
        user: UserId,
        claim: Option<&ClaimHandle>,
        how: Settlement,
    ) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        match (claim, how) {
            (Some(claim), how) => store.settle(target, user, claim.expires_at, &claim.nonce, how).await.map(drop),
            (None, Settlement::Spent) => store.spend_all(target, user, Duration::ZERO).await.map(drop),
            (None, Settlement::GivenBack) => Ok(()),
        }
    }
}

fn denied(refusal: Refusal) -> Verdict {
    let problem = refusal.problem();
    let status = if refusal == Refusal::NoToken { problem.status } else { StatusCode::FORBIDDEN };
    Verdict::Denied(Problem { status, ..problem })
}

#[cfg(test)]
mod tests;
