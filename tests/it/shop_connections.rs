//! The connections to the shop: which requests share one, what a stranger can do to them, and what is left of them.

use std::{
    io::{Read, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    gateway::{buy, gateway, never, order, pass, until},
    server::Server,
    slow_clients::{at_rest, open_files},
    upstream::{Got, Raw, Upstream},
};

const OK: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";

fn ask(server: &Server, line: &str, rest: &str) -> u16 {
    let request = format!("{line} HTTP/1.1\r\nHost: s\r\n{rest}");
    Raw::ask(server.url(), request.as_bytes()).expect("an answer").status
}

fn get(server: &Server, path: &str) -> u16 {
    ask(server, &format!("GET {path}"), "\r\n")
}

#[test]
fn only_a_request_with_a_body_ends_its_connection() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_SERVER__WORKERS", "1")]);
    for _ in 0..5 {
        assert_eq!(get(&server, "/"), 201);
        assert_eq!(ask(&server, "OPTIONS /", "\r\n"), 201);
    }
    assert_eq!(upstream.connections(), 1);
    assert!(upstream.take().iter().all(|got| got.all("connection").is_empty()));
    for (line, rest) in [("POST /", "Content-Length: 0\r\n\r\n"), ("DELETE /", "\r\n"), ("PROPFIND /", "\r\n")] {
        assert_eq!(ask(&server, line, rest), 201, "{line} {rest}");
        assert!(upstream.only().all("connection").is_empty());
    }
    for (line, rest) in [
        ("POST /", "Content-Length: 2\r\n\r\n{}"),
        ("PUT /", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        ("GET /", "Content-Length: 2\r\n\r\n{}"),
        ("GET /", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        assert_eq!(ask(&server, line, rest), 201, "{line} {rest}");
        assert_eq!(upstream.only().all("connection"), ["close"], "{line} {rest}");
    }
    assert_eq!(buy(&server, 7, &pass(7)).status, 201);
    assert_eq!(upstream.only().all("connection"), ["close"], "it has a body");
}

#[test]
fn an_answer_that_had_to_be_mended_ends_its_connection() {
    let upstream = Upstream::answering(|got, stream| {
        let odd = if got.target() == "/odd" { "Content-Length\u{1}: 50\r\n" } else { "" };
        stream.write_all(format!("HTTP/1.1 201 Created\r\n{odd}Content-Length: 2\r\n\r\nok").as_bytes()).is_ok()
    });
    let server = gateway(upstream.url(), &[("VQ_SERVER__WORKERS", "1")]);
    for (path, connections) in [("/", 1), ("/odd", 1), ("/", 2), ("/", 2)] {
        assert_eq!((get(&server, path), upstream.connections()), (201, connections), "{path}");
    }
}

/// A shop that ends a connection that has been unused for this long. It says how many requests came.
fn impatient(keeps: Duration) -> (Upstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let upstream = Upstream::by_hand(move |mut stream| {
        let (mut chunk, mut read) = ([0; 4096], Vec::new());
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            read.extend_from_slice(&chunk[..length]);
            // Every request here has no body, or `{}`.
            if read.ends_with(b"\r\n\r\n{}") || (read.ends_with(b"\r\n\r\n") && !read.starts_with(b"POST")) {
                count.fetch_add(1, Ordering::SeqCst);
                read.clear();
                if stream.write_all(OK).is_err() {
                    break;
                }
                stream.set_read_timeout(Some(keeps)).unwrap();
            }
        }
    });
    (upstream, requests)
}

#[test]
fn a_request_in_the_moment_in_which_the_shop_closes_its_idle_connections_is_answered() {
    const KEEPS: Duration = Duration::from_millis(200);
    const BUYERS: u64 = 12;
    const ROUNDS: u64 = 20;
    let (upstream, requests) = impatient(KEEPS);
    let server = gateway(upstream.url(), &[("VQ_SERVER__WORKERS", "1")]);
    std::thread::scope(|threads| {
        for buyer in 0..BUYERS {
            let server = &server;
            threads.spawn(move || {
                for round in 0..ROUNDS {
                    assert_eq!(get(server, "/"), 201);
                    // From 2 ms before the shop closes what was used for that to 2 ms after.
                    let aside = Duration::from_micros((round * 200 + buyer * 16) % 4000);
                    std::thread::sleep(KEEPS - Duration::from_millis(2) + aside);
                    let user = 1 + buyer * ROUNDS + round;
                    let bought = buy(server, user, &pass(user));
                    assert_eq!(bought.status, 201, "{bought:?}");
                    assert_eq!(get(server, "/"), 201);
                }
            });
        }
    });
    let least = usize::try_from(3 * BUYERS * ROUNDS).unwrap();
    assert!(requests.load(Ordering::SeqCst) >= least, "{requests:?}");
}

#[test]
fn a_repetition_goes_out_on_a_new_connection() {
    // Connections that the shop has ended without a word are not known to have ended yet.
    let upstream = Upstream::by_hand({
        let ending = Arc::new(Mutex::new(0));
        move |mut stream| {
            let mut chunk = [0; 4096];
            let _ = stream.read(&mut chunk);
            stream.write_all(OK).unwrap();
            // The next request on it is read, and never answered.
            let _ = stream.read(&mut chunk);
            *ending.lock().unwrap() += 1;
        }
    });
    let server = gateway(upstream.url(), &[("VQ_SERVER__WORKERS", "1")]);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| assert_eq!(get(&server, "/"), 201));
        }
    });
    for _ in 0..20 {
        assert_eq!(get(&server, "/"), 201, "however many stale connections there are");
    }
}

/// Bytes of a body that the shop does not want.
const UNWANTED: usize = 100_000;

#[test]
fn an_upload_that_the_shop_does_not_want_spoils_nobodys_purchase() {
    // Answers before it has read the body, and ends the connection when it has.
    let upstream = Upstream::by_hand(|mut stream| {
        let (mut chunk, mut read) = ([0; 1024], Vec::new());
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            read.extend_from_slice(&chunk[..length]);
            if read.starts_with(b"POST /nothing") {
                let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
                // Whatever comes then has no answer.
                let head = read.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(read.len());
                while read.len() <= head + 4 + UNWANTED {
                    let Ok(length @ 1..) = stream.read(&mut chunk) else { return };
                    read.extend_from_slice(&chunk[..length]);
                }
                return;
            }
            if read.ends_with(b"{}") || (read.starts_with(b"GET") && read.ends_with(b"\r\n\r\n")) {
                let _ = stream.write_all(OK);
                read.clear();
            }
        }
    });
    let server = gateway(upstream.url(), &[("VQ_SERVER__WORKERS", "1")]);
    let unwanted = format!("Content-Length: {UNWANTED}\r\n\r\n{}", "x".repeat(UNWANTED));
    for user in 1..=30 {
        assert_eq!(get(&server, "/"), 201);
        assert_eq!(ask(&server, "POST /nothing", &unwanted), 404, "what the shop says is heard");
        assert_eq!(buy(&server, user, &pass(user)).status, 201);
    }
}

/// A shop that answers each head at once, and takes what comes after it for the next request, unless it was told that
/// nothing comes: as Django's development server does.
fn credulous() -> (Upstream, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let upstream = Upstream::by_hand(move |mut stream| {
        let (mut chunk, mut read) = ([0; 1024], Vec::new());
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            read.extend_from_slice(&chunk[..length]);
            while let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&read.drain(..end + 4).collect::<Vec<_>>()).to_lowercase();
                let is_last = head.contains("connection: close");
                seen.lock().unwrap().push(head);
                if stream.write_all(OK).is_err() || is_last {
                    return;
                }
            }
        }
    });
    (upstream, heads)
}

#[test]
fn no_body_is_taken_for_another_request() {
    let (upstream, heads) = credulous();
    let server = gateway(upstream.url(), &[("VQ_SERVER__WORKERS", "1")]);
    let inner = "POST /limited-drops/42/orders HTTP/1.1\r\nHost: s\r\nX-User-Id: 7\r\nContent-Length: 2\r\n\r\n{}";
    for line in ["POST /nothing", "GET /nothing", "PUT /nothing"] {
        for body in [
            format!("Content-Length: 1000000000\r\n\r\n{inner}"),
            format!("Content-Length: {}\r\n\r\n{inner}", inner.len()),
            format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{inner}\r\n", inner.len()),
        ] {
            assert_eq!(ask(&server, line, &body), 201);
            assert_eq!(get(&server, "/after"), 201);
        }
    }
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 18, "{heads:?}");
    assert!(!heads.iter().any(|head| head.starts_with("post /limited-drops")), "{heads:?}");
}

#[test]
fn a_body_has_a_limit() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__MAX_BODY_BYTES", "10")]);
    let post = |rest: &str| Raw::ask(server.url(), format!("POST /up HTTP/1.1\r\nHost: s\r\n{rest}").as_bytes());
    let (ten, eleven) = ("x".repeat(10), "x".repeat(11));
    let sized = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked = |body: &str| {
        let pieces: String = body.chars().map(|piece| format!("1\r\n{piece}\r\n")).collect();
        format!("Transfer-Encoding: chunked\r\n\r\n{pieces}0\r\n\r\n")
    };
    for rest in [sized(&ten), chunked(&ten)] {
        assert_eq!(post(&rest).expect("an answer").status, 201);
        assert_eq!(upstream.only().body, ten.as_bytes());
    }
    for rest in [sized(&eleven), chunked(&eleven), "Content-Length: 30000000000\r\n\r\n".to_owned()] {
        let answer = post(&rest).expect("an answer");
        assert!(answer.is_problem(413, "PAYLOAD_TOO_LARGE"), "{answer:?}");
        assert!(upstream.take().is_empty(), "the shop got no whole request");
    }
    let pass = pass(7);
    let answer = buy_with(&server, 7, &pass, &eleven);
    assert!(answer.is_problem(413, "PAYLOAD_TOO_LARGE"), "{answer:?}");
    assert_eq!(buy_with(&server, 7, &pass, &ten).status, 201, "the pass was not used");
}

#[test]
fn without_a_setting_a_body_of_30_gb_is_refused() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    assert_eq!(ask(&server, "POST /up", "Content-Length: 30000000000\r\n\r\n"), 413);
    assert_eq!(upstream.connections(), 0);
}

fn buy_with(server: &Server, user: u64, pass: &str, body: &str) -> crate::upstream::RawAnswer {
    Raw::ask(server.url(), &order(user, pass, body)).expect("an answer")
}

#[tokio::test]
async fn a_shop_that_stops_reading_and_keeps_its_connection_leaves_nothing_behind() {
    let upstream = Upstream::by_hand(|mut stream| {
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig").unwrap();
        // Neither reads nor closes.
        never();
    });
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__TIMEOUT_MS", "500"), ("VQ_SERVER__WORKERS", "1")]);
    let (_stays, before) = at_rest(&server);
    let (mut clients, much) = (Vec::new(), vec![b'x'; 5_000_000]);
    for reads in [true, false] {
        for _ in 0..5 {
            let mut raw = Raw::connect(server.url());
            raw.send(b"POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: 100000000\r\n\r\n");
            let (mut sender, much) = (raw.sender(), much.clone());
            // As much as is taken.
            clients.push(std::thread::spawn(move || sender.write_all(&much)));
            if reads {
                assert_eq!(raw.answer().expect("an answer").status, 413);
            } else {
                until("it reaches the shop", || open_files(&server) > before).await;
            }
            let _ = raw.sender().shutdown(std::net::Shutdown::Both);
        }
    }
    for client in clients {
        let _ = client.join().unwrap();
    }
    until("all connections are closed", || open_files(&server) <= before).await;
}

#[tokio::test]
async fn connections_that_are_unused_are_closed_after_a_while() {
    let upstream = Upstream::answering(|_: &Got, stream| stream.write_all(OK).is_ok());
    let server = gateway(upstream.url(), &[("VQ_SERVER__WORKERS", "1")]);
    let (_stays, before) = at_rest(&server);
    assert_eq!(get(&server, "/"), 201);
    let since = Instant::now();
    until("the client's connection is closed", || open_files(&server) <= before + 1).await;
    until("the connection to the shop is closed", || open_files(&server) <= before).await;
    println!("closed after {:?}", since.elapsed());
}
