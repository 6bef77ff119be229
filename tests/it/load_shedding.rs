//! Load shedding end to end: so many purchases at a time, and nothing else is held back.

use std::{
    io::Write,
    sync::{Mutex, mpsc},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use crate::{
    gateway::{buy, gateway, order, pass},
    server::{DROP, Server},
    upstream::{Raw, Upstream},
};

/// The shop may take longer than this test does.
const SETTINGS: &[(&str, &str)] =
    &[("VQ_LOAD_SHEDDING__MAX_CONCURRENT_REQUESTS", "1"), ("VQ_UPSTREAM__TIMEOUT_MS", "60000")];

/// The value of a metric, once it is this.
async fn becomes(server: &Server, line: &str) {
    let seen = timeout(Duration::from_secs(10), async {
        while !server.get("/metrics").await.text.lines().any(|there| there == line) {
            sleep(Duration::from_millis(10)).await;
        }
    });
    seen.await.unwrap_or_else(|_| panic!("{line} never was"));
}

#[tokio::test]
async fn one_purchase_too_many_is_told_to_come_back_and_keeps_its_pass() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let shop = Upstream::answering(move |_, stream| {
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let server = gateway(shop.url(), SETTINGS);
    let mut slow = Raw::connect(server.url());
    slow.send(&order(7, &pass(7), "{}"));
    becomes(&server, "virtual_queue_gate_under_way 1").await;
    let pass = pass(8);

    for refused in 1..=2 {
        let reply = server.order(42, 8, Some(&pass)).await;
        assert_eq!(reply.refusal(), (503, "OVERLOADED"));
        assert_eq!(reply.header("retry-after"), Some("1"));
        becomes(&server, &format!("virtual_queue_gate_shed_total {refused}")).await;
    }
    assert_eq!(server.order(42, 9, None).await.refusal(), (403, "QUEUE_BYPASS_DENIED"), "without a pass as ever");
    // The waiting room is not held back, and neither is what asks for a verdict.
    for user in 100..105 {
        assert_eq!(server.enter(DROP, user).await.status, 200);
        assert_eq!(server.poll(DROP, user).await.status, 200);
    }
    assert_eq!(server.leave(DROP, 100).await.status, 204);
    let verify = server.as_user(reqwest::Method::GET, "/gate/verify", 9);
    let verify = verify.header("X-Original-Method", "POST").header("X-Original-URI", "/limited-drops/42/orders");
    assert_eq!(verify.send().await.unwrap().status(), 403);

    go_on.send(()).unwrap();
    assert_eq!(slow.answer().expect("an answer").status, 201);
    becomes(&server, "virtual_queue_gate_under_way 0").await;
    go_on.send(()).unwrap();
    assert_eq!(buy(&server, 8, &pass).status, 201, "the pass was not used up");
}
