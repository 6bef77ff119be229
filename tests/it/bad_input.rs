//! Bad input over the wire: a problem with the right code, never a 5xx, never a lost place.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use reqwest::Method;

use crate::server::{DROP, Reply, Server};

const BAD_IDS: &[&str] = &[
    "0",
    "-1",
    "+1",
    "01",
    "007",
    "1.0",
    "1e3",
    "0x1",
    "9223372036854775808",
    "18446744073709551616",
    "abc",
    "%31",
    "４２",
    "%EF%BC%94",
    "1%20",
    "%2B1",
    "null",
    "1;v=1",
];

#[tokio::test]
async fn ids_that_are_none_are_unknown_targets() {
    let server = Server::demo(&[]);
    for id in BAD_IDS {
        for kind in ["limited-drop", "ticketing-event"] {
            for (method, rest) in [(Method::POST, "entries"), (Method::GET, "entries/me"), (Method::GET, "stats")] {
                let request = server.as_user(method.clone(), &format!("/virtual-queues/{kind}/{id}/{rest}"), 7);
                assert_eq!(Reply::of(request).await.refusal(), (404, "UNKNOWN_TARGET"), "{method} {kind} {id} {rest}");
            }
        }
    }
    for kind in ["unknown", "LIMITED-DROP", "limited_drop", "limited-drops", "%6Cimited-drop"] {
        assert_eq!(server.enter(&format!("{kind}/42"), 7).await.refusal(), (404, "UNKNOWN_TARGET"), "{kind}");
    }
    assert_eq!(server.enter("limited-drop/9223372036854775807", 9_223_372_036_854_775_807).await.position(), Some(1));
}

#[tokio::test]
async fn user_ids_that_are_none_are_invalid() {
    let server = Server::demo(&[]);
    let path = format!("/virtual-queues/{DROP}/entries");
    let invalid = (400, "INVALID_USER_ID");
    assert_eq!(Reply::of(server.request(Method::POST, &path)).await.refusal(), invalid, "none");
    for id in ["", " ", "0", "-1", "+1", "01", "1.0", "9223372036854775808", "abc", "1,2", "1 2"] {
        let request = server.request(Method::POST, &path).header("X-User-Id", id);
        assert_eq!(Reply::of(request).await.refusal(), invalid, "{id:?}");
    }
    let two = server.request(Method::POST, &path).header("X-User-Id", "7").header("X-User-Id", "7");
    assert_eq!(Reply::of(two).await.refusal(), invalid, "twice the same is still twice");
    for bytes in [&b"\xff\xfe"[..], "４２".as_bytes()] {
        let request = server.request(Method::POST, &path).header("X-User-Id", bytes);
        assert_eq!(Reply::of(request).await.refusal(), invalid);
    }
    assert_eq!(server.stats(DROP).await["lastNumber"], 0, "nobody got a number");
}

#[tokio::test]
async fn wrong_methods_and_paths_say_so() {
    let server = Server::demo(&[]);
    for (method, path, allow) in [
        (Method::GET, format!("/virtual-queues/{DROP}/entries"), "POST"),
        (Method::PUT, format!("/virtual-queues/{DROP}/entries/me"), "GET"),
        (Method::POST, format!("/virtual-queues/{DROP}/stats"), "GET"),
        (Method::DELETE, "/metrics".to_owned(), "GET"),
        (Method::POST, "/health/live".to_owned(), "GET"),
        (Method::PATCH, "/openapi.json".to_owned(), "GET"),
    ] {
        let reply = Reply::of(server.as_user(method.clone(), &path, 7)).await;
        assert_eq!(reply.refusal(), (405, "METHOD_NOT_ALLOWED"), "{method} {path}");
        assert!(reply.header("allow").is_some_and(|allowed| allowed.contains(allow)), "{reply:?}");
    }
    for path in ["/", "/virtual-queues", "/nothing", "/virtual-queues/limited-drop/42", "/%00", "/admin"] {
        assert_eq!(server.get(path).await.refusal(), (404, "NOT_FOUND"), "{path}");
    }
}

#[tokio::test]
async fn a_body_on_enter_is_ignored_and_a_large_one_refused() {
    let server = Server::demo(&[]);
    let enter = || server.as_user(Method::POST, &format!("/virtual-queues/{DROP}/entries"), 7);
    for body in ["{}", "not json", "\0\0", &"x".repeat(8 * 1024)] {
        assert_eq!(Reply::of(enter().body(body.to_owned())).await.position(), Some(1));
    }
    let reply = Reply::of(enter().body("x".repeat(8 * 1024 + 1))).await;
    assert_eq!(reply.refusal(), (413, "PAYLOAD_TOO_LARGE"));
    assert_eq!(server.poll(DROP, 7).await.position(), Some(1), "the place is as before");
}

#[tokio::test]
async fn what_is_no_http_gets_no_5xx_and_harms_nobody() {
    let server = Server::demo(&[]);
    server.enter(DROP, 7).await;
    let address = server.url().strip_prefix("http://").unwrap();
    for raw in [
        &b"\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /virtual-queues/limited-drop/42/entries HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nContent-Length: -5\r\n\r\n",
        b"POST /virtual-queues/limited-drop/42/entries HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /virtual-queues/limited-drop/42/entries HTTP/1.1\r\nHost: x\r\nX-User-Id: 7\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /virtual-queues/limited-drop/42/entries HTTP/1.1\r\nHost: x\r\nX-User-Id:\r\n 7\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.write_all(raw).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.starts_with("HTTP/1.1 5"), "{raw:?}: {answer}");
        assert!(!answer.contains("<html"), "{raw:?}: {answer}");
    }
    assert_eq!(server.poll(DROP, 7).await.position(), Some(1));
    assert!(!server.log().contains("ERROR"), "a stranger's rubbish is no error of ours: {}", server.log());
}

#[test]
fn a_request_without_a_path_gets_a_problem() {
    let server = Server::demo(&[]);
    let mut stream = TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains(r#""code":"NOT_FOUND""#), "{answer}");
}
