//! The gateway: what goes to a real shop and comes back, and what becomes of the pass.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use tokio::{io::AsyncWriteExt, time::Instant};
use virtual_queue::{
    clock::StoreClock,
    domain::{QueueTarget, QueueTargetType, UserId},
    token::{EntryTokenIssuer, Keyring},
};

use crate::{
    redis_server::RedisServer,
    server::{SECRET, Server},
    slow_clients::open_files,
    upstream::{Raw, RawAnswer, Upstream},
};

/// The gateway before this shop, all in memory; passes are signed with [`SECRET`].
pub(crate) fn gateway(url: &str, settings: &[(&str, &str)]) -> Server {
    let mut all = vec![("VQ_DEMO_SHOP__ENABLED", "false"), ("VQ_UPSTREAM__URL", url), ("VQ_TOKEN__SECRET", SECRET)];
    all.extend(settings);
    Server::demo(&all)
}

/// A pass for drop 42, as the queue would give one.
pub(crate) fn pass(user: u64) -> String {
    pass_for(42, user)
}

/// A pass for any drop.
pub(crate) fn pass_for(drop: u64, user: u64) -> String {
    let target = QueueTarget::new(QueueTargetType::LimitedDrop, drop).unwrap();
    let keyring = Keyring::new(&SECRET.into(), &[]).unwrap();
    let expires_at = StoreClock::system().now_seconds() + 300;
    keyring.mint(target, UserId::try_from(user).unwrap(), expires_at).raw().to_owned()
}

/// What a shop does that gives no answer, and keeps its connections.
pub(crate) fn never() -> bool {
    loop {
        std::thread::park();
    }
}

/// Waits until this is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: never");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An order of drop 42, as it is sent.
pub(crate) fn order(user: u64, pass: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /limited-drops/42/orders HTTP/1.1\r\nHost: shop.example\r\nX-User-Id: {user}\r\nX-Entry-Token: {pass}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends an order of drop 42, and gives the answer.
pub(crate) fn buy(server: &Server, user: u64, pass: &str) -> RawAnswer {
    Raw::ask(server.url(), &order(user, pass, "{}")).expect("an answer")
}

#[test]
fn requests_and_answers_stream_through_as_they_are() {
    let upstream = Upstream::answering(|_, stream| {
        stream
            .write_all(
                b"HTTP/1.1 299 Fine\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nContent-Encoding: gzip\r\n\
                  X-Odd: \xe9t\xe9\r\nConnection: close, X-Private\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\n\
                  Content-Length: 5\r\n\r\n\x1f\x8bnot",
            )
            .is_ok()
    });
    let server = gateway(upstream.url(), &[]);
    let answer = Raw::ask(
        server.url(),
        b"PUT /a%2Fb//c;v=1/../d?q=%20&_x=[1]&%ff HTTP/1.1\r\nHost: Shop.Example:81\r\nAccept: a\r\nAccept: b\r\n\
          Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nKeep-Alive: 9\r\nProxy-Connection: close\r\n\
          Proxy: http://evil.example\r\nProxy-Mine: 1\r\n\
          Cookie: s=1\r\nX-Entry-Token: secret.pass\r\nX_Entry_Token: secret.pass\r\nX-Forwarded-For: 203.0.113.9\r\n\
          Content-Length: 3\r\n\r\nabc",
    )
    .unwrap();
    let got = upstream.only();
    assert_eq!(got.line(), "PUT /a%2Fb//c;v=1/../d?q=%20&_x=[1]&%ff HTTP/1.1");
    assert_eq!(got.body, b"abc");
    let mut lines: Vec<&str> = got.head.split("\r\n").skip(1).collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "Accept: a",
            "Accept: b",
            "Connection: close",
            "Content-Length: 3",
            "Cookie: s=1",
            "Host: Shop.Example:81",
            "Via: 1.1 virtual-queue",
            "X-Forwarded-For: 203.0.113.9, 127.0.0.1",
            "X-Forwarded-Host: Shop.Example:81",
            "X-Forwarded-Proto: http",
        ],
        "nothing is added but what this hop says, nothing but hop-by-hop headers and passes is taken away"
    );

    assert!(answer.head.starts_with("HTTP/1.1 299 "), "{answer:?}");
    assert_eq!(answer.body, b"\x1f\x8bnot", "never decompressed");
    assert_eq!(answer.all("set-cookie"), ["a=1; Path=/", "b=2"]);
    let mut names: Vec<String> =
        answer.head.split("\r\n").skip(1).filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect();
    names.sort_unstable();
    assert_eq!(names, ["Content-Encoding", "Content-Length", "Date", "Set-Cookie", "Set-Cookie", "X-Odd"]);
}

#[test]
fn with_the_flag_off_an_answer_is_the_shops_byte_for_byte() {
    let upstream = Upstream::answering(|got, stream| {
        let with_date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        let text = match got.target() {
            "/limited-drops/42/orders" => {
                format!("HTTP/1.1 201 Created\r\n{with_date}X-A: 1\r\nX-A: 2\r\nContent-Length: 2\r\n\r\n{{}}")
            }
            "/chunked" => {
                format!("HTTP/1.1 200 OK\r\n{with_date}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            }
            "/none" => format!("HTTP/1.1 204 No Content\r\n{with_date}ETag: \"x\"\r\n\r\n"),
            "/unchanged" => {
                format!("HTTP/1.1 304 Not Modified\r\n{with_date}ETag: \"x\"\r\nContent-Length: 77\r\n\r\n")
            }
            "/empty" => format!("HTTP/1.1 500 Internal Server Error\r\n{with_date}Content-Length: 0\r\n\r\n"),
            "/moved" => {
                format!("HTTP/1.1 302 Found\r\n{with_date}Location: /elsewhere?a=%2F\r\nContent-Length: 0\r\n\r\n")
            }
            "/404" => {
                format!("HTTP/1.1 404 Not Found\r\n{with_date}Content-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>")
            }
            _ => format!(
                "HTTP/1.1 206 Partial Content\r\n{with_date}Content-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab"
            ),
        };
        stream.write_all(text.as_bytes()).is_ok()
    });
    let server = gateway(upstream.url(), &[("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "false")]);
    for (method, target) in [
        ("POST", "/limited-drops/42/orders"),
        ("POST", "/limited-drops//042/orders/"),
        ("GET", "/chunked"),
        ("GET", "/none"),
        ("GET", "/unchanged"),
        ("GET", "/empty"),
        ("GET", "/moved"),
        ("GET", "/404"),
        ("GET", "/range"),
        ("HEAD", "/range"),
        ("HEAD", "/chunked"),
    ] {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: s\r\nRange: bytes=0-1\r\n\r\n");
        let (direct, ours) = if method == "HEAD" {
            // The shop of this test does not know HEAD: the connection ends with what it sends.
            (None, Raw::ask(server.url(), request.as_bytes()).unwrap())
        } else {
            (Raw::ask(upstream.url(), request.as_bytes()), Raw::ask(server.url(), request.as_bytes()).unwrap())
        };
        let sorted = |answer: &RawAnswer| {
            // Names of headers are the same in any case, and do not keep theirs.
            let lower = |line: &str| match line.split_once(':') {
                Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
                None => line.to_owned(),
            };
            let mut lines: Vec<String> = answer.head.split("\r\n").map(lower).collect();
            lines[1..].sort();
            (lines, answer.body.clone(), answer.whole)
        };
        if let Some(direct) = direct {
            assert_eq!(sorted(&ours), sorted(&direct), "{method} {target}");
        } else {
            assert_eq!(ours.body, b"", "{target}");
            match target {
                "/range" => assert_eq!(ours.all("content-length"), ["2"]),
                _ => assert_eq!(ours.all("transfer-encoding"), ["chunked"]),
            }
        }
    }
}

/// Bytes that repeat only after long.
fn noise(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn large_bodies_go_both_ways_while_they_are_still_coming() {
    let upstream = Upstream::answering(|got, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", got.body.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&got.body).is_ok()
    });
    let server = gateway(upstream.url(), &[]);
    let body = noise(20_000_000);
    for chunked in [false, true] {
        let mut raw = Raw::connect(server.url());
        let sender = body.clone();
        let (mut half, done) = (raw.sender(), mpsc::channel());
        let writing = std::thread::spawn(move || {
            if chunked {
                half.write_all(b"POST /up HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                for piece in sender.chunks(70_001) {
                    half.write_all(format!("{:x};a=b\r\n", piece.len()).as_bytes()).unwrap();
                    half.write_all(piece).unwrap();
                    half.write_all(b"\r\n").unwrap();
                }
                half.write_all(b"0\r\nTrailer: x\r\n\r\n").unwrap();
            } else {
                let head = format!("POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n", sender.len());
                half.write_all(head.as_bytes()).unwrap();
                half.write_all(&sender).unwrap();
            }
            done.0.send(()).unwrap();
        });
        let answer = raw.answer().unwrap();
        writing.join().unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.body == body, "{} bytes came back", answer.body.len());
        let got = upstream.only();
        let framing = (got.all("content-length").len(), got.all("transfer-encoding").len());
        assert_eq!(framing, if chunked { (0, 1) } else { (1, 0) }, "as the client framed it");
    }
}

#[test]
fn pieces_pass_on_while_the_rest_is_not_there_yet() {
    let (seen, first_piece) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::by_hand(move |mut stream| {
        let mut read = Vec::new();
        while !read.ends_with(b"first") {
            let mut chunk = [0; 1024];
            let length = stream.read(&mut chunk).unwrap();
            read.extend_from_slice(&chunk[..length]);
        }
        seen.send(()).unwrap();
        // The answer begins before the request has ended.
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"3\r\nend\r\n0\r\n\r\n").unwrap();
    });
    let server = gateway(upstream.url(), &[]);
    let mut raw = Raw::connect(server.url());
    raw.send(b"POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: 10\r\n\r\nfirst");
    first_piece.recv_timeout(Duration::from_secs(5)).expect("the first piece reaches the shop");
    let mut read = Vec::new();
    while !read.windows(5).any(|window| window == b"hello") {
        let mut chunk = [0; 1024];
        let length = raw.sender().read(&mut chunk).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&chunk[..length]);
    }
    raw.send(b"other");
    go_on.send(()).unwrap();
}

#[test]
fn a_client_that_expects_100_gets_it_and_sends_then() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    let mut raw = Raw::connect(server.url());
    raw.send(b"POST /up HTTP/1.1\r\nHost: s\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(raw.answer().unwrap().status, 100);
    raw.send(b"abc");
    assert_eq!(raw.answer().unwrap().status, 201);
    assert_eq!(upstream.only().body, b"abc");
}

#[test]
fn interim_answers_of_the_shop_are_not_its_answer() {
    let upstream = Upstream::answering(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
            .is_ok()
    });
    let server = gateway(upstream.url(), &[]);
    let answer = Raw::ask(server.url(), b"GET / HTTP/1.1\r\nHost: s\r\n\r\n").unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (201, "ok"));
}

#[test]
fn http_1_0_clients_get_no_chunks() {
    let upstream = Upstream::answering(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").is_ok()
    });
    let server = gateway(upstream.url(), &[]);
    let answer = Raw::ask(server.url(), b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(answer.all("transfer-encoding"), [""; 0]);
    assert_eq!(answer.body, b"abc");
    let got = upstream.only();
    assert_eq!(got.line(), "GET / HTTP/1.1");
    assert_eq!(got.all("via"), ["1.0 virtual-queue"]);
    assert_eq!(got.all("host"), [upstream.url().strip_prefix("http://").unwrap()]);
}

#[test]
fn an_answer_cut_short_is_seen_to_be_cut_short() {
    let upstream = Upstream::answering(|got, stream| {
        let text: &[u8] = match got.target() {
            "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            _ => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        };
        stream.write_all(text).unwrap();
        false
    });
    let server = gateway(upstream.url(), &[]);
    for target in ["/chunked", "/sized"] {
        let answer = Raw::ask(server.url(), format!("GET {target} HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes());
        // Whether a head was seen before the cut is a matter of timing; an end is never.
        assert!(answer.is_none_or(|answer| !answer.whole), "{target}");
    }
}

#[test]
fn the_host_is_the_clients_or_the_shops_own() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__HOST_HEADER", "upstream")]);
    Raw::ask(server.url(), b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    let got = upstream.only();
    assert_eq!(got.all("host"), [upstream.url().strip_prefix("http://").unwrap()]);
    assert_eq!(got.all("x-forwarded-host"), ["shop.example"]);
}

#[test]
fn passes_in_cookies_stay_here() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_TOKEN__COOKIE", "true")]);
    Raw::ask(server.url(), b"GET / HTTP/1.1\r\nHost: s\r\nCookie: a=1; vq_limited-drop_42=x.y; b=2\r\n\r\n").unwrap();
    assert_eq!(upstream.only().all("cookie"), ["a=1; b=2"]);
}

#[test]
fn websockets_are_refused_clearly() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    for request in [
        "GET /chat HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        "POST /chat HTTP/1.1\r\nHost: s\r\nUpgrade: WebSocket\r\nContent-Length: 3\r\n\r\nabc",
        "CONNECT shop:80 HTTP/1.1\r\nHost: shop:80\r\n\r\n",
    ] {
        let answer = Raw::ask(server.url(), request.as_bytes()).unwrap();
        assert!(answer.is_problem(501, "UPGRADE_UNSUPPORTED"), "{request} {answer:?}");
    }
    assert!(upstream.take().is_empty());
    // Other protocols are offered, and the offer is not taken.
    let answer = Raw::ask(server.url(), b"GET / HTTP/1.1\r\nHost: s\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    assert_eq!(answer.unwrap().status, 201);
    assert!(upstream.only().all("upgrade").is_empty());
}

#[test]
fn what_may_have_been_sent_is_not_sent_again() {
    // Takes every request and ends the connection without a word.
    let upstream = Upstream::answering(|_, _| false);
    let server = gateway(upstream.url(), &[]);
    let answer = Raw::ask(server.url(), b"POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    assert!(answer.is_problem(502, "UPSTREAM_FAILED"), "{answer:?}");
    assert_eq!(upstream.take().len(), 1);
    let answer = Raw::ask(server.url(), b"GET / HTTP/1.1\r\nHost: s\r\n\r\n").unwrap();
    assert!(answer.is_problem(502, "UPSTREAM_FAILED"), "{answer:?}");
    assert_eq!(upstream.take().len(), 2, "a request that changes nothing is sent once more");
}

#[test]
fn a_purchase_spends_the_pass_and_a_refusal_gives_it_back() {
    let statuses = Arc::new(Mutex::new(vec![303, 500, 409]));
    let upstream = Upstream::answering(move |_, stream| {
        let status = statuses.lock().unwrap().pop().unwrap();
        stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes()).is_ok()
    });
    let server = gateway(upstream.url(), &[]);
    let pass = pass(7);
    for status in [409, 500, 303] {
        assert_eq!(buy(&server, 7, &pass).status, status, "the shop's answer");
        let got = upstream.only();
        assert_eq!(got.all("x-user-id"), ["7"]);
        assert!(got.all("x-entry-token").is_empty());
        assert_eq!(got.body, b"{}");
    }
    assert!(buy(&server, 7, &pass).is_problem(403, "QUEUE_BYPASS_DENIED"), "spent");
    assert!(upstream.take().is_empty());
}

#[test]
fn a_shop_that_cannot_be_reached_costs_no_pass() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let server = gateway(&format!("http://{address}"), &[]);
    let pass = pass(7);
    for _ in 0..2 {
        assert!(buy(&server, 7, &pass).is_problem(502, "UPSTREAM_UNREACHABLE"));
    }
}

#[test]
fn no_answer_leaves_the_pass_claimed() {
    for cut in [true, false] {
        let upstream = Upstream::answering(move |_, _| {
            if !cut {
                never();
            }
            false
        });
        let server = gateway(upstream.url(), &[("VQ_UPSTREAM__TIMEOUT_MS", "500")]);
        let pass = pass(7);
        let answer = buy(&server, 7, &pass);
        if cut {
            assert!(answer.is_problem(502, "UPSTREAM_FAILED"), "{answer:?}");
        } else {
            assert!(answer.is_problem(504, "UPSTREAM_TIMEOUT"), "{answer:?}");
        }
        assert!(buy(&server, 7, &pass).is_problem(409, "PASS_IN_USE"), "nobody knows whether it was sold");
        assert_eq!(upstream.take().len(), 1);
    }
}

#[test]
fn an_answer_that_breaks_after_its_head_has_spent_the_pass() {
    let upstream = Upstream::answering(|_, stream| {
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{").unwrap();
        false
    });
    let server = gateway(upstream.url(), &[]);
    let pass = pass(7);
    let answer = Raw::ask(server.url(), &order(7, &pass, "{}"));
    assert!(answer.is_none_or(|answer| !answer.whole));
    assert!(buy(&server, 7, &pass).is_problem(403, "QUEUE_BYPASS_DENIED"), "spent");
}

#[test]
fn a_buyer_who_goes_away_has_bought_all_the_same() {
    let (arrived, came) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |_, stream| {
        arrived.send(()).unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let server = gateway(upstream.url(), &[]);
    let pass = pass(7);
    let mut raw = Raw::connect(server.url());
    raw.send(&order(7, &pass, "{}"));
    came.recv_timeout(Duration::from_secs(5)).unwrap();
    drop(raw);
    assert!(buy(&server, 7, &pass).is_problem(409, "PASS_IN_USE"), "the purchase is under way");
    go_on.send(()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let answer = buy(&server, 7, &pass);
        if answer.is_problem(403, "QUEUE_BYPASS_DENIED") {
            break;
        }
        assert!(answer.is_problem(409, "PASS_IN_USE"), "{answer:?}");
        assert!(Instant::now() < deadline, "it is settled");
    }
    assert_eq!(upstream.take().len(), 1);
}

#[tokio::test]
async fn a_purchase_whose_buyer_is_gone_is_settled_before_the_server_ends() {
    let (arrived, came) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |_, stream| {
        arrived.send(()).unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let redis = RedisServer::start();
    let settings = [("VQ_UPSTREAM__URL", upstream.url()), ("VQ_DEMO_SHOP__ENABLED", "false")];
    let (mut server, other) = (Server::serve(&redis, &settings), Server::serve(&redis, &settings));
    let pass = pass(7);
    let mut buyer = tokio::net::TcpStream::connect(server.host_and_port()).await.unwrap();
    buyer.write_all(&order(7, &pass, "{}")).await.unwrap();
    came.recv_timeout(Duration::from_secs(5)).unwrap();
    let with_buyer = open_files(&server);
    // Not merely closed: nothing of the connection is left.
    buyer.set_zero_linger().unwrap();
    drop(buyer);
    until("the buyer's connection is gone", || open_files(&server) < with_buyer).await;
    server.terminate();
    until("the server is ending", || server.log().contains("shutting down: waiting for running requests")).await;
    go_on.send(()).unwrap();
    assert!(server.wait().success());
    assert!(buy(&other, 7, &pass).is_problem(403, "QUEUE_BYPASS_DENIED"), "it has bought");
    assert_eq!(upstream.take().len(), 1);
}

#[test]
fn a_buyer_who_goes_away_in_the_middle_of_the_body_keeps_the_pass_claimed() {
    let (tell, told) = mpsc::channel();
    let upstream = Upstream::by_hand(move |mut stream| {
        let mut read = Vec::new();
        let mut chunk = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            read.extend_from_slice(&chunk[..length]);
            if read.ends_with(b"half") {
                tell.send("half").unwrap();
            }
        }
        assert!(read.ends_with(b"half"), "nothing stands in for the rest");
        tell.send("the end").unwrap();
    });
    let server = gateway(upstream.url(), &[]);
    let pass = pass(7);
    let mut raw = Raw::connect(server.url());
    let request = order(7, &pass, "half of it");
    raw.send(&request[..request.len() - " of it".len()]);
    assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok("half"));
    drop(raw);
    assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok("the end"), "the shop sees that the rest never comes");
    assert!(buy(&server, 7, &pass).is_problem(409, "PASS_IN_USE"), "what the shop made of it is not known");
}

#[test]
fn a_body_that_stops_is_the_clients_fault_and_ends() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__TIMEOUT_MS", "300")]);
    for request in [
        b"POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: 10\r\n\r\nabc".to_vec(),
        b"POST /up HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab".to_vec(),
    ] {
        let answer = Raw::ask(server.url(), &request).unwrap();
        assert!(answer.is_problem(408, "REQUEST_TIMEOUT"), "{answer:?}");
    }
    let answer = Raw::ask(
        server.url(),
        b"POST /up HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n",
    );
    assert!(answer.is_none_or(|answer| answer.status == 400));
    assert!(upstream.take().is_empty());
}

#[test]
fn a_slow_upload_may_take_longer_than_the_limit_as_long_as_it_moves() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__TIMEOUT_MS", "2000")]);
    let mut raw = Raw::connect(server.url());
    raw.send(b"POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: 8\r\n\r\n");
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(300));
        raw.send(b"x");
    }
    assert_eq!(raw.answer().unwrap().status, 201);
    assert_eq!(upstream.only().body, b"xxxxxxxx");
}

#[test]
fn a_purchase_may_not_outlast_its_claim_however_its_body_moves() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__TIMEOUT_MS", "500")]);
    let request = order(7, &pass(7), &"x".repeat(60));
    let mut raw = Raw::connect(server.url());
    raw.send(&request[..request.len() - 60]);
    let mut half = raw.sender();
    std::thread::spawn(move || {
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(100));
            if half.write_all(b"x").is_err() {
                break;
            }
        }
    });
    let answer = raw.answer().unwrap();
    assert!(answer.is_problem(504, "UPSTREAM_TIMEOUT"), "{answer:?}");
    assert!(upstream.take().is_empty(), "before the body was complete");
}

#[test]
fn the_body_of_a_purchase_has_five_seconds_to_arrive() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    let request = order(7, &pass(7), "never complete");
    let answer = Raw::ask(server.url(), &request[..request.len() - 1]).unwrap();
    assert!(answer.is_problem(408, "REQUEST_TIMEOUT"), "{answer:?}");
    assert!(upstream.take().is_empty());
}

#[test]
fn the_first_byte_has_a_limit_of_its_own() {
    let upstream = Upstream::answering(|_, _| never());
    // The whole of a call may take longer than this test waits for an answer.
    let settings = [("VQ_UPSTREAM__FIRST_BYTE_TIMEOUT_MS", "200"), ("VQ_UPSTREAM__TIMEOUT_MS", "60000")];
    let server = gateway(upstream.url(), &settings);
    let answer = Raw::ask(server.url(), b"GET / HTTP/1.1\r\nHost: s\r\n\r\n").unwrap();
    assert!(answer.is_problem(504, "UPSTREAM_TIMEOUT"), "{answer:?}");
}

#[test]
fn a_shop_that_answers_before_it_has_read_everything_is_heard() {
    let upstream = Upstream::by_hand(|mut stream| {
        let mut chunk = [0; 1024];
        let _ = stream.read(&mut chunk).unwrap();
        stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
            .unwrap();
        // Reads no more, and does not end the connection either.
        never();
    });
    let server = gateway(upstream.url(), &[]);
    let mut raw = Raw::connect(server.url());
    raw.send(b"POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: 100000000\r\n\r\n");
    raw.send(&noise(100_000));
    let answer = raw.answer().unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (413, "big"));
}

#[test]
fn without_limited_drops_no_spelling_of_their_purchase_reaches_the_shop() {
    let upstream = Upstream::friendly();
    for flag in ["true", "false"] {
        let settings = [("VQ_LIMITED_DROP__ENABLED", "false"), ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", flag)];
        let server = gateway(upstream.url(), &settings);
        for path in ["/limited-drops/42/orders", "/limited-drops/42/orders/", "//Limited-Drops/42/./orders"] {
            let request = format!("POST {path} HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(Raw::ask(server.url(), request.as_bytes()).unwrap().status, 404, "{path}");
        }
        assert!(upstream.take().is_empty());
        let request = b"GET /limited-drops/42 HTTP/1.1\r\nHost: s\r\n\r\n";
        assert_eq!(Raw::ask(server.url(), request).unwrap().status, 201);
        upstream.only();
    }
}

#[test]
fn a_gateway_before_itself_says_so() {
    let upstream = Upstream::friendly();
    let first = gateway(upstream.url(), &[]);
    let second = gateway(first.url(), &[]);
    let answer = Raw::ask(second.url(), b"GET / HTTP/1.1\r\nHost: s\r\n\r\n").unwrap();
    assert!(answer.is_problem(508, "GATEWAY_LOOP"), "{answer:?}");
    assert!(upstream.take().is_empty());
}

#[test]
fn our_own_routes_are_never_the_shops() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    for (request, status) in [
        ("GET /health/live", 200),
        ("GET /metrics", 200),
        ("GET /openapi.json", 200),
        ("GET /virtual-queues/limited-drop/42/stats", 200),
        ("PUT /virtual-queues/limited-drop/42/stats", 405),
        ("POST /virtual-queues/limited-drop/x/entries", 404),
        ("GET /virtual-queues", 404),
        ("GET /virtual-queues/", 404),
        ("POST /virtual-queues/limited-drop/42/orders", 404),
        ("GET /virtual-queues/limited-drop/42/stats/", 404),
    ] {
        let answer = Raw::ask(server.url(), format!("{request} HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{request}");
    }
    assert!(upstream.take().is_empty());
    let others = b"GET /virtual-queues-of-the-shop HTTP/1.1\r\nHost: s\r\n\r\n";
    assert_eq!(Raw::ask(server.url(), others).unwrap().status, 201);
}

#[test]
fn a_host_header_that_names_no_host_is_refused() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    for host in ["", " ", "a b", "a/b", "a, b"] {
        let answer = Raw::ask(server.url(), format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        assert!(answer.is_problem(400, "BAD_REQUEST"), "{host:?}: {answer:?}");
    }
    assert!(upstream.take().is_empty());
}

#[test]
fn large_headers_within_the_limits_pass() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    let cookie = "c".repeat(60_000);
    let request = format!("GET / HTTP/1.1\r\nHost: s\r\nCookie: {cookie}\r\n\r\n");
    assert_eq!(Raw::ask(server.url(), request.as_bytes()).unwrap().status, 201);
    assert_eq!(upstream.only().all("cookie"), [cookie]);
}
