//! Single use of a pass: a purchase claims it, and what the shop answers settles it. On a route that needs no pass, nothing
//! is claimed, and success spends all passes of the buyer.

use std::{sync::Arc, time::Duration};

use actix_web::http::StatusCode;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::refusal::Refusal;
use crate::{
    clock::StoreClock,
    domain::{PassClaims, PassRule, QueueTarget, UserId},
    metrics::{Metrics, Operation},
    store::{Claim, PassStore, Settlement, StoreError},
};

/// Put into a response's extensions by the code that calls the shop, if the shop gave no answer: a timeout, or a
/// connection that ended after the request was sent. It is unknown then whether it bought, so the pass stays claimed
/// until the lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswerFromShop;

/// Put into a response's extensions by the code that calls the shop, if the shop decided but its answer cannot be
/// forwarded. This status settles the purchase, not the response's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShopsStatus(pub StatusCode);

/// What single use needs. Cheap to clone.
#[derive(Clone)]
pub(super) struct SingleUse {
    pub(super) store: Arc<dyn PassStore>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: StoreClock,
    /// How long the store holds a claim.
    pub(super) lease: Duration,
    /// How long passes live at most.
    pub(super) pass_life: Duration,
    /// Pause between two tries to settle.
    pub(super) retry_pause: Duration,
    /// One permit for each settlement that waits for another try.
    pub(super) retrying: Arc<Semaphore>,
    /// Shutdown waits for these.
    pub(super) purchases: TaskTracker,
}

/// Settlements that may wait for another try at a time. Beyond that, only the end of the lease frees the pass.
pub(super) const MAX_RETRYING: usize = 10_000;

/// One purchase that may go to the shop: the user, the target and the route's rule. The gate puts it into the request's
/// extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purchase {
    /// What is bought.
    pub target: QueueTarget,
    /// Who buys.
    pub user: UserId,
    /// What the route needs, and what its success spends.
    pub rule: PassRule,
    /// The verified pass; `None`: the route needs none.
    pub pass: Option<PassClaims>,
}

/// A purchase whose result will be settled in the store.
pub(super) struct Begun {
    with: SingleUse,
    purchase: Purchase,
    /// The nonce of the claim; `None`: there was no pass to claim.
    nonce: Option<String>,
    /// The store did not confirm the claim.
    pub(super) degraded: bool,
}

impl SingleUse {
    /// Claims the pass, if the purchase needs one. A store that does not answer refuses nothing: signature and expiry
    /// are verified already.
    pub(super) async fn begin(self, purchase: Purchase) -> Result<Begun, Refusal> {
        let Some(pass) = purchase.pass else {
            return Ok(Begun { with: self, purchase, nonce: None, degraded: false });
        };
        let nonce = format!("{:032x}", rand::random::<u128>());
        let answer = self.store.claim(pass.target, pass.user, pass.expires_at, &nonce).await;
        let degraded = self.judge(pass.target, answer)?;
        Ok(Begun { with: self, purchase, nonce: Some(nonce), degraded })
    }

    /// Checks whether a claim would be granted, without claiming. `true`: answered without the store.
    pub(super) async fn check(self, pass: PassClaims) -> Result<bool, Refusal> {
        self.judge(pass.target, self.store.check(pass.target, pass.user, pass.expires_at).await)
    }

    /// Turns the store's answer into a refusal, or into `true` if the store gave none.
    fn judge(&self, target: QueueTarget, answer: Result<Claim, StoreError>) -> Result<bool, Refusal> {
        let error = match answer {
            Ok(Claim::Granted) => return Ok(false),
            Ok(Claim::Spent) => return Err(Refusal::Spent),
            Ok(Claim::Expired) => return Err(Refusal::Over),
            Ok(Claim::InUse) => return Err(Refusal::InUse),
            Err(error) => error,
        };
        self.metrics.degraded(Operation::Gate);
        match error {
            // A reply that we cannot read is our own fault.
            StoreError::Broken(_) => {
                tracing::error!(%target, %error, "purchase continues without a claim");
            }
            // An outage is logged where it is detected; here it would be logged for every purchase.
            StoreError::Unavailable(_) | StoreError::TimedOut => {
                tracing::debug!(%target, %error, "purchase continues without a claim");
            }
        }
        Ok(true)
    }
}

/// What the shop's status means for the pass: success and redirects spend it if the route spends; errors give it back.
pub(super) fn settlement_of(rule: PassRule, status: StatusCode) -> Settlement {
    if rule.spends() && status.as_u16() < 400 { Settlement::Spent } else { Settlement::GivenBack }
}

impl Begun {
    /// The nonce of the claim.
    pub(super) fn into_nonce(self) -> Option<String> {
        self.nonce
    }

    /// Settles. If this fails, it is retried in the background. After a failed claim the purchase does not wait for the
    /// store again, but the store is still told: the claim may have succeeded, and a pass that bought must be spent,
    /// even late. Returns whether the store has been told.
    pub(super) async fn settle(self, how: Settlement) -> bool {
        let ended = self.with.clock.monotonic();
        let told = !self.degraded && self.try_settle(how, Duration::ZERO).await;
        if !told {
            if self.purchase.pass.is_none() {
                self.with.metrics.degraded(Operation::Gate);
            }
            self.settle_later(how, ended);
        }
        told
    }

    /// Tells the store. `ago`: how long ago the purchase ended.
    async fn try_settle(&self, how: Settlement, ago: Duration) -> bool {
        let Purchase { target, user, pass, .. } = self.purchase;
        let (store, nonce) = (&self.with.store, self.nonce.as_deref());
        let settled = match (pass, how) {
            (Some(pass), how) => store.settle(target, user, pass.expires_at, nonce.unwrap_or_default(), how).await,
            (None, Settlement::Spent) => store.spend_all(target, user, ago).await,
            (None, Settlement::GivenBack) => return true,
        };
        match settled {
            // The metrics count it where the store's reply is read.
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(%target, %error, "settling failed");
                false
            }
        }
    }

    fn settle_later(self, how: Settlement, ended: Duration) {
        let target = self.purchase.target;
        let Ok(permit) = self.with.retrying.clone().try_acquire_owned() else {
            tracing::warn!(%target, "too many settlements are waiting: left to the lease");
            return;
        };
        let clock = self.with.clock.clone();
        // The lease also gives a pass back, when it ends. A pass that bought must become spent, so try as long as it
        // lives.
        let worth_it = match (how, self.purchase.pass) {
            (Settlement::GivenBack, _) => self.with.lease,
            (Settlement::Spent, None) => self.with.pass_life,
            (Settlement::Spent, Some(pass)) => {
                self.with.lease.max(Duration::from_secs(pass.expires_at.saturating_sub(clock.now_seconds())))
            }
        };
        let tries = worth_it.as_millis() / self.with.retry_pause.as_millis().max(1);
        let purchases = self.with.purchases.clone();
        actix_rt::spawn(purchases.track_future(async move {
            let _permit = permit;
            for _ in 0..tries {
                tokio::time::sleep(self.with.retry_pause).await;
                // At least 1 ms late: it must not spend a pass given since.
                let ago = clock.monotonic().saturating_sub(ended).max(Duration::from_millis(1));
                if self.try_settle(how, ago).await {
                    return;
                }
            }
            if self.degraded {
                tracing::debug!(%target, ?how, "settling failed for good: there was no claim");
            } else {
                tracing::warn!(%target, ?how, "settling failed for good");
            }
        }));
    }
}
