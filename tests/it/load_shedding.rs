//! Load shedding end to end: so many purchases at a time, and nothing else is held back.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::server::{DROP, Server};

const SETTINGS: &[(&str, &str)] = &[("VQ_QUEUE__TICK_MS", "500"), ("VQ_LOAD_SHEDDING__MAX_CONCURRENT_REQUESTS", "1")];

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
    let server = Server::demo(SETTINGS);
    let mut passes = Vec::new();
    for user in [7, 8] {
        server.enter(DROP, user).await;
    }
    for user in [7, 8] {
        passes.push(server.await_pass(DROP, user, Duration::from_secs(10)).await);
    }
    // The shop waits for the rest of this purchase's body; the gate, too, for 5 s.
    let mut slow = TcpStream::connect(server.url().strip_prefix("http://").unwrap()).await.unwrap();
    let head = format!(
        "POST /limited-drops/42/orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nX-User-Id: 7\r\n\
         X-Entry-Token: {}\r\nContent-Length: 2\r\n\r\n{{",
        passes[0]
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    becomes(&server, "virtual_queue_gate_under_way 1").await;

    for refused in 1..=2 {
        let reply = server.order(42, 8, Some(&passes[1])).await;
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

    slow.write_all(b"}").await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    becomes(&server, "virtual_queue_gate_under_way 0").await;
    assert_eq!(server.order(42, 8, Some(&passes[1])).await.status, 201, "the pass was not used up");
}
