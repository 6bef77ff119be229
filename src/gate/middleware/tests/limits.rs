//! How many purchases may run at a time, and how long a body may take.

use actix_web::dev::Payload;
use futures_util::stream;

use super::*;

#[actix_web::test]
async fn too_many_purchases_at_a_time_are_shed_and_cost_no_pass() {
    let mut fixture = GateFixture::new();
    fixture.gate = fixture.gate.shed_beyond(2);
    let (app, other_worker) = (fixture.open().await, fixture.open().await);
    let shop_answers = fixture.shop.takes_its_time();
    let buy = |user: u64| purchase(user, &fixture.pass(user));
    let (first, second) = (actix_rt::spawn(app.call(buy(1))), actix_rt::spawn(other_worker.call(buy(2))));
    until("both are there", || fixture.shop.visits() == 2).await;
    assert!(fixture.counted("virtual_queue_gate_under_way 2"));
    let shed = answered(app.call(buy(3)).await).await;
    assert_eq!((shed.status, shed.code.as_deref(), shed.retry_after.as_deref()), (503, Some("OVERLOADED"), Some("1")));
    assert!(fixture.counted("virtual_queue_gate_shed_total 1"));
    first.abort();
    assert!(first.await.is_err());
    let shed = soon("the shop is still busy for who went away", app.call(buy(3))).await;
    assert_eq!(answered(shed).await.status, 503);
    shop_answers.notify_waiters();
    assert_eq!(answered(second.await.unwrap()).await.status, 201);
    *fixture.shop.wait.borrow_mut() = None;
    assert_eq!(fixture.buy(3, &fixture.pass(3)).await.status, 201);
    assert!(fixture.counted("virtual_queue_gate_under_way 0"));
}

#[actix_web::test]
async fn a_body_that_does_not_come_ends_the_purchase_while_the_claim_holds() {
    let mut fixture = GateFixture::new();
    fixture.gate = fixture.gate.shed_beyond(1);
    fixture.gate.body_limit = Duration::ZERO;
    let app = fixture.open().await;
    let mut dripped = purchase(7, &fixture.pass(7));
    dripped.set_payload(Payload::Stream { payload: Box::pin(stream::pending()) });
    let error = soon("nobody waits for the rest of it: an end", app.call(dripped)).await.err().unwrap();
    assert_eq!(error.as_response_error().status_code(), 400);
    assert_eq!(fixture.shop.visits(), 0);
    assert!(fixture.store.is_claimed() && fixture.store.settled().is_empty());
    let mut complete = purchase(8, &fixture.pass(8));
    complete.set_payload(Payload::None);
    assert_eq!(answered(app.call(complete).await).await.status, 201, "its room is free again");
}
