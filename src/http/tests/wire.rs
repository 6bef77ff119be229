//! What only a real connection shows.

use std::time::Duration;

use actix_web::HttpServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

/// Sends raw bytes and returns all that comes back until the server closes, for at most ten seconds.
async fn exchange(parts: &[&str]) -> String {
    let state = state(plain());
    let server = HttpServer::new(move || {
        let app = App::new().app_data(state.clone()).configure(queue_routes).default_service(web::to(not_found));
        with_middleware(app)
    });
    let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    let mut stream = TcpStream::connect(address).await.unwrap();
    for part in parts {
        // The server may have answered and closed already.
        if stream.write_all(part.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut got = Vec::new();
    // A reset after the answer also ends the connection.
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut got)).await.expect("an end");
    handle.stop(false).await;
    String::from_utf8(got).unwrap()
}

#[actix_web::test]
async fn a_body_without_a_length_is_refused_once_it_is_too_large() {
    let head = format!(
        "POST {ENTRIES} HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let chunk = format!("{:x}\r\n{}\r\n", 5000, "x".repeat(5000));
    let got = exchange(&[&head, &chunk, &chunk, "0\r\n\r\n"]).await;
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
    assert!(got.contains("PAYLOAD_TOO_LARGE"), "{got}");
}

#[actix_web::test]
async fn a_body_that_never_ends_is_not_listened_to_for_ever() {
    let head = format!("POST {ENTRIES} HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{}\r\n", 5000, "x".repeat(5000));
    let got = exchange(&[&head, &chunk, &chunk]).await;
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
}

#[actix_web::test]
async fn an_announced_body_that_is_too_large_is_refused_before_it_comes() {
    let head = format!("POST {ENTRIES} HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nContent-Length: 999999999\r\n\r\n");
    let got = exchange(&[&head]).await;
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
}

#[actix_web::test]
async fn a_body_framed_wrongly_is_a_bad_request() {
    let head = format!("POST {ENTRIES} HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nTransfer-Encoding: chunked\r\n\r\n");
    let got = exchange(&[&head, "zz\r\nxx\r\n"]).await;
    assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
    assert!(!got.contains("<html"), "{got}");
}

#[actix_web::test]
async fn an_ignored_body_does_not_end_the_connection() {
    let enter = |extra: &str| {
        format!("POST {ENTRIES} HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nContent-Length: 5\r\n{extra}\r\nhello")
    };
    let got = exchange(&[&enter(""), &enter(""), &enter("Connection: close\r\n")]).await;
    assert_eq!(got.matches("HTTP/1.1 200 OK").count(), 3, "{got}");
}

#[actix_web::test]
async fn head_has_the_head_of_get_and_no_body() {
    let got = exchange(&[&format!("HEAD {STATS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")]).await;
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("content-type: application/json"), "{got}");
    assert_eq!(body, "");
}

#[actix_web::test]
async fn what_is_not_http_gets_no_words() {
    for path in ["/virtual-queues/limited-drop/４２/stats", "/virtual-queues/limited-drop/4 2/stats"] {
        let got = exchange(&[&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")]).await;
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 "), "{got}");
        assert_eq!(body, "");
    }
}
