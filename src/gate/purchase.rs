//! One purchase with a verified pass: claim, call the shop, settle (DESIGN 5 "Single use").

use std::{sync::Arc, time::Duration};

use actix_web::http::StatusCode;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::refusal::Refusal;
use crate::{
    clock::StoreClock,
    domain::PassClaims,
    metrics::{Metrics, Operation},
    store::{Claim, Settlement, StoreError, VirtualQueueStore},
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
    pub(super) store: Arc<dyn VirtualQueueStore>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: StoreClock,
    /// How long the store lets a claim hold.
    pub(super) lease: Duration,
    /// From one try to settle to the next.
    pub(super) retry_pause: Duration,
    /// Settlements that may be waiting for another try at a time.
    pub(super) retrying: Arc<Semaphore>,
    /// What a server that ends waits for.
    pub(super) purchases: TaskTracker,
}

/// Settlements waiting for another try at a time: beyond, the lease alone frees the pass.
pub(super) const MAX_RETRYING: usize = 10_000;

/// A pass taken for one purchase.
pub(super) struct Claimed {
    with: SingleUse,
    pass: PassClaims,
    pub(super) nonce: String,
    /// The store did not say that it is ours.
    pub(super) degraded: bool,
}

impl SingleUse {
    /// Takes the pass. A store that does not answer stops nobody: signature and expiry have been checked.
    pub(super) async fn claim(self, pass: PassClaims) -> Result<Claimed, Refusal> {
        let nonce = format!("{:032x}", rand::random::<u128>());
        let answer = self.store.claim(pass.target, pass.user, pass.expires_at, &nonce).await;
        let degraded = match answer {
            Ok(Claim::Granted) => false,
            Ok(Claim::Spent | Claim::Expired) => return Err(Refusal::Spent),
            Ok(Claim::InUse) => return Err(Refusal::InUse),
            Err(error) => {
                self.metrics.degraded(Operation::Gate);
                match error {
                    // A reply we do not understand is a fault of ours.
                    StoreError::Broken(_) => {
                        tracing::error!(target_id = %pass.target, %error, "purchase goes on without a claim");
                    }
                    // An outage is logged where it is noticed; this would say it for every purchase.
                    StoreError::Unavailable(_) | StoreError::TimedOut => {
                        tracing::debug!(target_id = %pass.target, %error, "purchase goes on without a claim");
                    }
                }
                true
            }
        };
        Ok(Claimed { with: self, pass, nonce, degraded })
    }
}

/// What the shop's answer means for the pass: success and redirects spend it, errors give it back.
pub(super) fn settlement_of(status: StatusCode) -> Settlement {
    if status.as_u16() < 400 { Settlement::Spent } else { Settlement::GivenBack }
}

impl Claimed {
    /// Settles; what fails is tried again in the background. After a claim that failed nobody waits for the store a
    /// second time, yet it is told: the claim may have been taken, and a pass that bought is spent also late.
    pub(super) async fn settle(self, how: Settlement) {
        if self.degraded || !self.try_settle(how).await {
            self.settle_later(how);
        }
    }

    async fn try_settle(&self, how: Settlement) -> bool {
        let PassClaims { target, user, expires_at } = self.pass;
        match self.with.store.settle(target, user, expires_at, &self.nonce, how).await {
            // Counted where the store's reply is read.
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(target_id = %target, %error, "settling failed");
                false
            }
        }
    }

    fn settle_later(self, how: Settlement) {
        let Ok(permit) = self.with.retrying.clone().try_acquire_owned() else {
            tracing::warn!(target_id = %self.pass.target, "too many settlements are waiting: left to the lease");
            return;
        };
        // Giving back is the lease's to do after a while. A pass that bought must be known to have, for as long as it lives.
        let worth_it = match how {
            Settlement::GivenBack => self.with.lease,
            Settlement::Spent => self
                .with
                .lease
                .max(Duration::from_secs(self.pass.expires_at.saturating_sub(self.with.clock.now_seconds()))),
        };
        let tries = worth_it.as_millis() / self.with.retry_pause.as_millis().max(1);
        let purchases = self.with.purchases.clone();
        actix_rt::spawn(purchases.track_future(async move {
            let _permit = permit;
            for _ in 0..tries {
                tokio::time::sleep(self.with.retry_pause).await;
                if self.try_settle(how).await {
                    return;
                }
            }
            if self.degraded {
                tracing::debug!(target_id = %self.pass.target, ?how, "settling failed for good: there was no claim");
            } else {
                tracing::warn!(target_id = %self.pass.target, ?how, "settling failed for good");
            }
        }));
    }
}
