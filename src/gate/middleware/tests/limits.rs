//! How many purchases at a time, and how long a body may take.

use actix_web::dev::Payload;
use futures_util::stream;

use super::*;

#[actix_web::test]
async fn too_many_purchases_at_a_time_are_shed_and_cost_no_pass() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.shed_beyond(2);
    let (app, other_worker) = (doors.open().await, doors.open().await);
    let wait = Rc::new(Notify::new());
    *doors.shop.wait.borrow_mut() = Some(wait.clone());
    let buy = |user: u64| post(ORDERS, &[("X-User-Id", &user.to_string()), ("X-Entry-Token", &doors.pass(user))]);
    let (first, second) = (actix_rt::spawn(app.call(buy(1))), actix_rt::spawn(other_worker.call(buy(2))));
    while doors.shop.visits() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(doors.counted("virtual_queue_gate_under_way 2"));
    let shed = answered(app.call(buy(3)).await).await;
    assert_eq!((shed.status, shed.code.as_deref(), shed.retry_after.as_deref()), (503, Some("OVERLOADED"), Some("1")));
    assert!(doors.counted("virtual_queue_gate_shed_total 1"));
    first.abort();
    assert!(first.await.is_err());
    assert_eq!(answered(app.call(buy(3)).await).await.status, 503, "the shop is still busy for who went away");
    wait.notify_waiters();
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
    let mut dripped = post(ORDERS, &[("X-User-Id", "7"), ("X-Entry-Token", &doors.pass(7))]);
    dripped.set_payload(Payload::Stream { payload: Box::pin(stream::pending()) });
    let answer = tokio::time::timeout(Duration::from_secs(5), app.call(dripped)).await;
    let error = answer.expect("nobody waits for the rest of it").err().unwrap();
    assert_eq!(error.as_response_error().status_code(), 400);
    assert_eq!(doors.shop.visits(), 0);
    assert!(doors.counted("virtual_queue_gate_under_way 0"), "its room is free again");
}
