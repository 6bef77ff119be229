//! The store is unavailable before, during or after a purchase.

use actix_web::http::{Method, Uri, header::HeaderMap};

use super::*;
use crate::gate::Verdict;

#[actix_web::test]
async fn a_store_that_is_away_stops_no_purchase_and_still_no_forgery() {
    for error in
        [StoreError::Unavailable("refused".to_owned()), StoreError::TimedOut, StoreError::Broken("?".to_owned())]
    {
        let mut fixture = GateFixture::new();
        fixture.gate.retry_pause = Duration::from_millis(50);
        fixture.claim_answers(Err(error));
        let answer = fixture.buy(7, &fixture.pass(7)).await;
        assert_eq!((answer.status, answer.degraded.as_deref()), (201, Some("redis")));
        assert_eq!(fixture.store.settled(), [], "nobody waits for the store twice");
        assert!(fixture.counted(r#"virtual_queue_redis_degraded_total{operation="gate"} 1"#));
        assert_denied(&fixture.buy(7, &GateFixture::new().pass(7)).await);
        // The claim may have succeeded: it is settled late.
        fixture.settles(Settlement::Spent).await;
        assert_denied(&fixture.buy(7, &fixture.pass(7)).await);
    }
}

/// The flag was never read, and then requests pass.
struct Unread;

impl FeatureFlagEvaluator for Unread {
    fn is_enabled(&self, _: QueueTarget, _: UserId) -> bool {
        false
    }
    fn reach(&self, _: QueueTarget) -> Reach {
        Reach::Nobody
    }
    fn any_of(&self, _: QueueTargetType) -> Option<QueueTarget> {
        None
    }
    fn names(&self, _: QueueTarget) -> bool {
        false
    }
    fn is_known(&self) -> bool {
        false
    }
}

#[actix_web::test]
async fn where_nobody_knows_whether_a_pass_is_needed_purchases_go_on_and_say_so() {
    let fixture = GateFixture::with_flags(Arc::new(Unread));
    let pass = fixture.pass(7);
    let with_pass = [("X-User-Id", "7"), ("X-Entry-Token", pass.as_str())];
    for (path, lines) in [(ORDERS, &[][..]), (ORDERS, &with_pass), ("/limited-drops/42//orders", &[])] {
        let answer = fixture.send(path, lines).await;
        assert_eq!((answer.status, answer.degraded.as_deref()), (201, Some("redis")), "{path}");
    }
    assert!(!fixture.store.is_claimed());
    assert_eq!(fixture.send("/limited-drops/42", &[]).await.degraded, None, "that is no purchase");
    assert!(fixture.counted(r#"virtual_queue_redis_degraded_total{operation="gate"} 3"#));
    let asked = fixture.gate.judge(&Method::POST, &Uri::from_static(ORDERS), &HeaderMap::new(), false).await;
    assert_eq!(asked, Verdict::Unchecked);
    assert!(fixture.counted(r#"virtual_queue_redis_degraded_total{operation="gate"} 4"#));
}

#[actix_web::test]
async fn settling_that_fails_is_tried_again_for_as_long_as_it_matters() {
    let fixture = GateFixture::new();
    fixture.store.state.lock().unwrap().settle_failures = 3;
    let answer = fixture.buy(7, &fixture.pass(7)).await;
    assert_eq!((answer.status, answer.degraded), (201, None));
    fixture.settles(Settlement::Spent).await;

    for (status, failures_left) in [(409, 95), (201, 0)] {
        let mut fixture = GateFixture::new();
        fixture.gate = fixture.gate.lease(Duration::from_millis(4));
        fixture.shop.answers.set(status);
        fixture.store.state.lock().unwrap().settle_failures = 100;
        assert_eq!(fixture.buy(7, &fixture.pass(7)).await.status, status);
        until("nobody tries any more", || fixture.gate.retrying.available_permits() == MAX_RETRYING).await;
        let left = fixture.store.state.lock().unwrap().settle_failures;
        assert_eq!(left, failures_left, "given back: as long as the lease; spent: as long as the pass");
    }
}
