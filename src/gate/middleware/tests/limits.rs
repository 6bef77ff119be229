//! How many purchases at a time, and how long a body may take.

use actix_web::dev::Payload;
use futures_util::stream;

use super::*;

#[actix_web::test]
async fn too_many_purchases_at_a_time_are_shed_and_cost_no_pass() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.shed_beyond(2);
    let (app, other_worker) = (doors.open().await, doors.open().await);
    let shop_answers = doors.shop.takes_its_time();
    let buy = |user: u64| purchase(user, &doors.pass(user));
    let (first, second) = (actix_rt::spawn(app.call(buy(1))), actix_rt::spawn(other_worker.call(buy(2))));
    until("both are there", || doors.shop.visits() == 2).await;
    assert!(doors.counted("virtual_queue_gate_under_way 2"));
    let shed = answered(app.call(buy(3)).await).await;
    assert_eq!((shed.status, shed.code.as_deref(), shed.retry_after.as_deref()), (503, Some("OVERLOADED"), Some("1")));
    assert!(doors.counted("virtual_queue_gate_shed_total 1"));
    first.abort();
    assert!(first.await.is_err());
    let shed = soon("the shop is still busy for who went away", app.call(buy(3))).await;
    assert_eq!(answered(shed).await.status, 503);
    shop_answers.notify_waiters();
    assert_eq!(answered(second.await.unwrap()).await.status, 201);
    *doors.shop.wait.borrow_mut() = None;
    assert_eq!(doors.buy(3, &doors.pass(3)).await.status, 201);
    assert!(doors.counted("virtual_queue_gate_under_way 0"));
}

#[actix_web::test]
async fn a_body_that_does_not_come_ends_the_purchase_while_the_claim_holds() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.shed_beyond(1);
    doors.gate.body_limit = Duration::ZERO;
    let app = doors.open().await;
    let mut dripped = purchase(7, &doors.pass(7));
    dripped.set_payload(Payload::Stream { payload: Box::pin(stream::pending()) });
    let error = soon("nobody waits for the rest of it: an end", app.call(dripped)).await.err().unwrap();
    assert_eq!(error.as_response_error().status_code(), 400);
    assert_eq!(doors.shop.visits(), 0);
    assert!(doors.store.is_claimed() && doors.store.settled().is_empty());
    let mut complete = purchase(8, &doors.pass(8));
    complete.set_payload(Payload::None);
    assert_eq!(answered(app.call(complete).await).await.status, 201, "its room is free again");
}
