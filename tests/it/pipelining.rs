//! Several requests on one connection: each gets the answer that it gets alone, also where the next one is there before.

use std::{io::Write, time::Duration};

use crate::{
    gateway::{gateway, pass},
    server::{DROP, Server},
    upstream::{Raw, RawAnswer, Upstream},
};

/// A request, and the method that its answer has to be read by.
#[derive(Clone)]
struct Ask {
    method: &'static str,
    bytes: Vec<u8>,
}

fn request(method: &'static str, path: &str, version: &str, rest: &str) -> Ask {
    Ask { method, bytes: format!("{method} {path} HTTP/{version}\r\nHost: s\r\nX-User-Id: 7\r\n{rest}").into_bytes() }
}

fn shop() -> Upstream {
    Upstream::answering(|got, stream| {
        let answer = match got.target() {
            "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned(),
            "/none" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            path if got.line().starts_with("HEAD") => {
                format!("HTTP/1.1 200 OK\r\nX-Path: {path}\r\nContent-Length: 2\r\n\r\n")
            }
            path => format!("HTTP/1.1 200 OK\r\nX-Path: {path}\r\nContent-Length: 2\r\n\r\nok"),
        };
        stream.write_all(answer.as_bytes()).is_ok()
    })
}

/// All that is the same in every run.
fn shown(answer: &RawAnswer) -> String {
    let varies = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        !["date", "x-request-id"].contains(&name.as_str())
    };
    let mut head: Vec<&str> = answer.head.split("\r\n").filter(varies).collect();
    head[1..].sort_unstable();
    format!("{head:?} {:?} whole: {}", answer.text(), answer.whole)
}

/// The answers to these, sent in pieces of so many bytes on one connection, up to its end.
fn together(server: &Server, asks: &[Ask], piece: usize) -> Vec<String> {
    let raw = &mut Raw::connect(server.url());
    let bytes: Vec<u8> = asks.iter().flat_map(|ask| ask.bytes.clone()).collect();
    let mut half = raw.sender();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            for piece in bytes.chunks(piece) {
                // After the last answer nobody reads on.
                if half.write_all(piece).is_err() {
                    break;
                }
            }
        });
        asks.iter().map_while(|ask| raw.answer_to(ask.method)).map(|answer| shown(&answer)).collect()
    })
}

#[test]
fn each_of_many_requests_at_once_gets_its_own_answer() {
    let upstream = shop();
    let server = gateway(upstream.url(), &[]);
    let get = |path: &str| request("GET", path, "1.1", "\r\n");
    let head = request("HEAD", "/a", "1.1", "\r\n");
    let sized = request("POST", "/b", "1.1", "Content-Length: 4\r\n\r\n\r\n\r\n");
    let chunked = request("PUT", "/c", "1.1", "Transfer-Encoding: chunked\r\n\r\n2;x\r\n\r\n\r\n0\r\nT: x\r\n\r\n");
    let old = request("GET", "/old", "1.0", "Connection: keep-alive\r\n\r\n");
    let last = request("GET", "/last", "1.1", "Connection: close\r\n\r\n");
    let oldest = request("GET", "/chunked", "1.0", "\r\n");
    let refused = request("POST", "/limited-drops/42/orders", "1.1", "Content-Length: 2\r\n\r\n{}");
    let offered = request("GET", "/offered", "1.1", "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    let queue = |line: &'static str, path: &str| request(line, &format!("/virtual-queues/{DROP}{path}"), "1.1", "\r\n");
    let cases: Vec<(&str, Vec<Ask>)> = vec![
        ("a body before HEAD", vec![get("/a"), head.clone(), last.clone()]),
        ("HEAD before a body", vec![head.clone(), get("/a"), head.clone(), last.clone()]),
        ("chunks before HTTP/1.0", vec![get("/chunked"), oldest.clone()]),
        ("keep-alive before close", vec![get("/a"), get("/chunked"), last.clone()]),
        ("HTTP/1.0 between", vec![get("/chunked"), old.clone(), get("/chunked"), last.clone()]),
        ("bodies between", vec![sized.clone(), get("/a"), chunked.clone(), head.clone(), sized.clone(), last.clone()]),
        ("nothing to say", vec![get("/none"), head.clone(), get("/none"), last.clone()]),
        ("refused between", vec![get("/a"), refused.clone(), head.clone(), refused.clone(), last.clone()]),
        ("an offer between", vec![get("/a"), offered.clone(), sized.clone(), offered.clone(), last.clone()]),
        (
            "ours and the shop's",
            vec![
                queue("GET", "/stats"),
                get("/a"),
                queue("HEAD", "/stats"),
                sized.clone(),
                queue("PUT", "/stats"),
                refused.clone(),
                queue("GET", "/nothing"),
                last.clone(),
            ],
        ),
        ("many", (0..50).map(|at| get(&format!("/{at}"))).chain([last.clone()]).collect()),
    ];
    for (what, asks) in &cases {
        let alone: Vec<String> =
            asks.iter().flat_map(|ask| together(&server, std::slice::from_ref(ask), 9999)).collect();
        assert_eq!(alone.len(), asks.len(), "{what}");
        upstream.take();
        for piece in [1_000_000, 61, 7] {
            let answers = together(&server, asks, piece);
            // Where a refusal came before the body that it is about, the connection ends: the rest is the client's to send
            // again.
            let ended = answers.last().is_some_and(|last| last.contains("connection: close"));
            let (last, before) = answers.split_last().expect("an answer");
            assert_eq!(before, &alone[..before.len()], "{what}, in pieces of {piece}");
            let same = |answer: &str| answer.replace("\"connection: close\", ", "");
            assert_eq!(same(last), same(&alone[before.len()]), "{what}, in pieces of {piece}");
            assert!(ended || answers.len() == asks.len(), "{what}, in pieces of {piece}: {answers:?}");
            assert!(piece < 1000 || answers.len() == asks.len(), "{what}: each is answered: {answers:?}");
            let mut expected: Vec<&[u8]> = asks[..answers.len()].iter().map(|ask| ask.bytes.as_slice()).collect();
            expected
                .retain(|bytes| !bytes.starts_with(b"POST /limited") && !bytes.windows(9).any(|at| at == b"/virtual-"));
            let got: Vec<String> = upstream.take().iter().map(|got| got.line().to_owned()).collect();
            assert_eq!(got.len(), expected.len(), "{what}: {got:?}");
            for (got, expected) in got.iter().zip(expected) {
                let target = |line: &str| line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(target(got), target(&String::from_utf8_lossy(expected)), "{what}: in their order");
            }
        }
    }
}

#[test]
fn a_client_that_sends_everything_and_closes_its_side_gets_every_answer() {
    let upstream = shop();
    let server = gateway(upstream.url(), &[]);
    let mut raw = Raw::connect(server.url());
    raw.send(&b"GET /a HTTP/1.1\r\nHost: s\r\n\r\n".repeat(5));
    raw.sender().shutdown(std::net::Shutdown::Write).unwrap();
    let answers: Vec<u16> = std::iter::from_fn(|| raw.answer()).map(|answer| answer.status).collect();
    assert_eq!(answers, [200; 5]);
}

#[test]
fn one_purchase_after_another_is_settled_before_the_next_is_judged() {
    let upstream = shop();
    let server = gateway(upstream.url(), &[]);
    let order = crate::gateway::order(7, &pass(7), "{}");
    let mut raw = Raw::connect(server.url());
    raw.send(&order.repeat(3));
    let statuses: Vec<u16> = (0..3).map(|_| raw.answer().expect("an answer").status).collect();
    assert_eq!(statuses, [200, 403, 403]);
    assert_eq!(upstream.take().len(), 1);
}

#[test]
fn an_offer_of_http_2_is_ignored_and_the_connection_stays() {
    let upstream = shop();
    let server = gateway(upstream.url(), &[]);
    let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n";
    std::thread::scope(|threads| {
        for _ in 0..6 {
            threads.spawn(|| {
                let mut raw = Raw::connect(server.url());
                for at in 0..50 {
                    let (method, path, rest) = match at % 5 {
                        0 => ("GET", "/health/live", "\r\n"),
                        1 => ("GET", "/a", "\r\n"),
                        2 => ("POST", "/a", "Content-Length: 0\r\n\r\n"),
                        3 => ("POST", "/chunked", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
                        _ => ("POST", "/a", "Content-Length: 2\r\n\r\n{}"),
                    };
                    raw.send(format!("{method} {path} HTTP/1.1\r\nHost: s\r\n{offer}{rest}").as_bytes());
                    let answer = raw.answer().unwrap_or_else(|| panic!("request {at}: the connection has ended"));
                    assert_eq!((answer.status, answer.whole), (200, true), "{answer:?}");
                    assert_eq!(answer.all("connection"), [""; 0], "{answer:?}");
                    assert_eq!(answer.all("upgrade"), [""; 0], "{answer:?}");
                }
            });
        }
    });
    let got = upstream.take();
    assert_eq!(got.len(), 6 * 40);
    for got in got {
        assert!(got.all("upgrade").is_empty() && got.all("http2-settings").is_empty(), "{got:?}");
    }
}

#[test]
fn a_server_that_ends_takes_no_connections_and_complains_of_nothing() {
    const SERVERS: usize = 24;
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..SERVERS / 4 {
                    let mut server = Server::demo(&[("VQ_SERVER__DRAIN_SECONDS", "0"), ("VQ_LOG__LEVEL", "info")]);
                    let address: std::net::SocketAddr = server.host_and_port().parse().unwrap();
                    std::thread::scope(|clients| {
                        // They come until they are refused.
                        for _ in 0..2 {
                            clients.spawn(|| {
                                while let Ok(mut stream) =
                                    std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5))
                                {
                                    let _ = stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: s\r\n\r\n");
                                    std::thread::sleep(Duration::from_micros(500));
                                }
                            });
                        }
                        server.terminate();
                    });
                    assert!(server.wait().success());
                    let log = server.whole_log();
                    assert!(log.contains("shutting down: waiting for running requests"), "{log}");
                    assert!(!log.contains("ERROR"), "{log}");
                }
            });
        }
    });
}
