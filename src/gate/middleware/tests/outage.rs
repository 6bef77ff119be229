//! The store is away before, during or after a purchase.

use super::*;

#[actix_web::test]
async fn a_store_that_is_away_stops_no_purchase_and_still_no_forgery() {
    for error in
        [StoreError::Unavailable("refused".to_owned()), StoreError::TimedOut, StoreError::Broken("?".to_owned())]
    {
        let mut doors = Doors::new();
        doors.gate.retry_pause = Duration::from_millis(50);
        doors.claim_answers(Err(error));
        let answer = doors.buy(7, &doors.pass(7)).await;
        assert_eq!((answer.status, answer.degraded.as_deref()), (201, Some("redis")));
        assert_eq!(doors.store.settled(), [], "nobody waits for the store twice");
        assert!(doors.counted(r#"virtual_queue_redis_degraded_total{operation="gate"} 1"#));
        assert_denied(&doors.buy(7, &Doors::new().pass(7)).await);
        // The claim may have been taken: it is settled late.
        doors.settles(Settlement::Spent).await;
        assert_denied(&doors.buy(7, &doors.pass(7)).await);
    }
}

#[actix_web::test]
async fn settling_that_fails_is_tried_again_for_as_long_as_it_matters() {
    let doors = Doors::new();
    doors.store.state.lock().unwrap().settle_failures = 3;
    let answer = doors.buy(7, &doors.pass(7)).await;
    assert_eq!((answer.status, answer.degraded), (201, None));
    doors.settles(Settlement::Spent).await;

    for (status, failures_left) in [(409, 95), (201, 0)] {
        let mut doors = Doors::new();
        doors.gate = doors.gate.lease(Duration::from_millis(4));
        doors.shop.answers.set(status);
        doors.store.state.lock().unwrap().settle_failures = 100;
        assert_eq!(doors.buy(7, &doors.pass(7)).await.status, status);
        until("nobody tries any more", || doors.gate.retrying.available_permits() == MAX_RETRYING).await;
        let left = doors.store.state.lock().unwrap().settle_failures;
        assert_eq!(left, failures_left, "given back: as long as the lease; spent: as long as the pass");
    }
}
