//! One purchase: claim its pass, call the shop, settle (DESIGN 5 "Single use"). Where the route needs no pass, nothing is
//! claimed, and success spends whatever passes the buyer has.

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

/// Put into a response's extensions by who calls the shop when the shop gave none: a time-out, a cut after the request
/// was sent. Whether it bought is unknown then, so the pass stays claimed until the lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswerFromShop;

/// Put into a response's extensions by who calls the shop when the shop decided and its answer cannot be handed on: the
/// purchase is settled by this status, and not by the response's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShopsStatus(pub StatusCode);

/// What single use needs. Cheap to clone.
#[derive(Clone)]
pub(super) struct SingleUse {
    pub(super) store: Arc<dyn PassStore>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: StoreClock,
    /// How long the store lets a claim hold.
    pub(super) lease: Duration,
    /// How long passes live at most.
    pub(super) pass_life: Duration,
    /// From one try to settle to the next.
    pub(super) retry_pause: Duration,
    /// Settlements that may be waiting for another try at a time.
    pub(super) retrying: Arc<Semaphore>,
    /// What a server that ends waits for.
    pub(super) purchases: TaskTracker,
}

/// Settlements waiting for another try at a time: beyond, the lease alone frees the pass.
pub(super) const MAX_RETRYING: usize = 10_000;

/// One purchase that may go on to the shop: who buys what, by a route with which rule. The gate puts it into the
/// request's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purchase {
    /// What.
    pub target: QueueTarget,
    /// Who.
    pub user: UserId,
    /// What the route asks for, and what its success does.
    pub rule: PassRule,
    /// The pass, which has been verified; `None`: the route needs none.
    pub pass: Option<PassClaims>,
}

/// A purchase whose end the store is told.
pub(super) struct Begun {
    with: SingleUse,
    purchase: Purchase,
    /// With which the pass is claimed; `None`: there was no pass to claim.
    nonce: Option<String>,
    /// The store did not say that the pass is ours.
    pub(super) degraded: bool,
}

impl SingleUse {
    /// Takes the pass, where the purchase needs one. A store that does not answer stops nobody: signature and expiry have
    /// been checked.
    pub(super) async fn begin(self, purchase: Purchase) -> Result<Begun, Refusal> {
        let Some(pass) = purchase.pass else {
            return Ok(Begun { with: self, purchase, nonce: None, degraded: false });
        };
        let nonce = format!("{:032x}", rand::random::<u128>());
        let answer = self.store.claim(pass.target, pass.user, pass.expires_at, &nonce).await;
        let degraded = self.judge(pass.target, answer)?;
        Ok(Begun { with: self, purchase, nonce: Some(nonce), degraded })
    }

    /// Whether the pass might be taken, without taking it; and whether that was answered without the store.
    pub(super) async fn check(self, pass: PassClaims) -> Result<bool, Refusal> {
        self.judge(pass.target, self.store.check(pass.target, pass.user, pass.expires_at).await)
    }

    /// Whether the store's answer is one without the store.
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
            // A reply we do not understand is a fault of ours.
            StoreError::Broken(_) => {
                tracing::error!(target_id = %target, %error, "purchase continues without a claim");
            }
            // An outage is logged where it is noticed; this would say it for every purchase.
            StoreError::Unavailable(_) | StoreError::TimedOut => {
                tracing::debug!(target_id = %target, %error, "purchase continues without a claim");
            }
        }
        Ok(true)
    }
}

/// What the shop's answer means for the pass: success and redirects spend it, where the route spends; errors give it
/// back.
pub(super) fn settlement_of(rule: PassRule, status: StatusCode) -> Settlement {
    if rule.spends() && status.as_u16() < 400 { Settlement::Spent } else { Settlement::GivenBack }
}

impl Begun {
    /// The nonce of the claim.
    pub(super) fn into_nonce(self) -> Option<String> {
        self.nonce
    }

    /// Settles; what fails is tried again in the background. After a claim that failed nobody waits for the store a
    /// second time, yet it is told: the claim may have been taken, and a pass that bought is spent also late. Gives
    /// whether the store has been told.
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

    /// Tells the store, which it was to be told so long `ago`.
    async fn try_settle(&self, how: Settlement, ago: Duration) -> bool {
        let Purchase { target, user, pass, .. } = self.purchase;
        let (store, nonce) = (&self.with.store, self.nonce.as_deref());
        let settled = match (pass, how) {
            (Some(pass), how) => store.settle(target, user, pass.expires_at, nonce.unwrap_or_default(), how).await,
            (None, Settlement::Spent) => store.spend_all(target, user, ago).await,
            (None, Settlement::GivenBack) => return true,
        };
        match settled {
            // Counted where the store's reply is read.
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(target_id = %target, %error, "settling failed");
                false
            }
        }
    }

    fn settle_later(self, how: Settlement, ended: Duration) {
        let target = self.purchase.target;
        let Ok(permit) = self.with.retrying.clone().try_acquire_owned() else {
            tracing::warn!(target_id = %target, "too many settlements are waiting: left to the lease");
            return;
        };
        let clock = self.with.clock.clone();
        // Giving back is the lease's to do after a while. A pass that bought must be known to have, for as long as it lives.
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
                // Late by something at least: it must not touch a pass given since.
                let ago = clock.monotonic().saturating_sub(ended).max(Duration::from_millis(1));
                if self.try_settle(how, ago).await {
                    return;
                }
            }
            if self.degraded {
                tracing::debug!(target_id = %target, ?how, "settling failed for good: there was no claim");
            } else {
                tracing::warn!(target_id = %target, ?how, "settling failed for good");
            }
        }));
    }
}
