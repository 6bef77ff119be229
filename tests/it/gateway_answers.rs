//! The gateway before a shop whose answers are unusual: early, long-winded, old-fashioned, or none at all. What the client
//! is told, and what the operator reads.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    gateway::{buy, gateway, never, order, pass},
    server::Server,
    upstream::{Raw, RawAnswer, Upstream},
};

/// How far an upload is when the shop answers.
const FIRST: usize = 100_000;

fn ask(server: &Server, path: &str) -> RawAnswer {
    Raw::ask(server.url(), format!("GET {path} HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes()).expect("an answer")
}

/// Waits until the log says this: it is read beside the answers.
fn logs(server: &Server, what: &str) {
    let began = Instant::now();
    while !server.log().contains(what) {
        assert!(began.elapsed() < Duration::from_secs(10), "not {what:?}: {}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A shop that answers each path with what `answers` says.
fn saying(answers: &[(&'static str, String)]) -> Upstream {
    let answers = answers.to_vec();
    Upstream::answering(move |got, stream| {
        let said = answers.iter().find(|(path, _)| *path == got.target());
        stream.write_all(said.map_or("", |(_, answer)| answer).as_bytes()).is_ok()
    })
}

fn with_lines(count: usize) -> String {
    let lines: String = (0..count - 1).map(|at| format!("Set-Cookie: c{at}=1\r\n")).collect();
    format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\nok")
}

#[test]
fn an_answer_of_256_header_lines_passes_and_a_longer_one_is_said_to_be_too_long() {
    let upstream = saying(&[("/many", with_lines(256)), ("/more", with_lines(257))]);
    let server = gateway(upstream.url(), &[]);
    let many = ask(&server, "/many");
    assert_eq!((many.status, many.all("set-cookie").len(), many.text().as_str()), (200, 255, "ok"));
    let more = ask(&server, "/more");
    assert!(more.is_problem(502, "UPSTREAM_FAILED"), "{more:?}");
    assert!(more.text().contains("more header lines than are taken"), "{}", more.text());
}

#[test]
fn old_fashioned_header_lines_of_an_answer_are_mended() {
    let upstream = saying(&[
        ("/folded", "HTTP/1.1 200 OK\r\nX-Folded: a\r\n  b\r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("/spaced", "HTTP/1.1 200 OK\r\nX-Spaced : a\r\nContent-Length : 2\r\n\r\nok".to_owned()),
    ]);
    let server = gateway(upstream.url(), &[]);
    let folded = ask(&server, "/folded");
    assert_eq!((folded.status, folded.text().as_str()), (200, "ok"));
    let words: Vec<&str> = folded.all("x-folded")[0].split_whitespace().collect();
    assert_eq!(words, ["a", "b"], "{folded:?}");
    assert_eq!(folded.head.split("\r\n").filter(|line| line.starts_with([' ', '\t'])).count(), 0, "{folded:?}");
    let spaced = ask(&server, "/spaced");
    assert_eq!((spaced.status, spaced.all("x-spaced"), spaced.text().as_str()), (200, vec!["a"], "ok"));
}

#[test]
fn a_status_that_nobody_knows_has_no_words() {
    let upstream = saying(&[("/", "HTTP/1.1 799 Own Words\r\nContent-Length: 2\r\n\r\nok".to_owned())]);
    let server = gateway(upstream.url(), &[]);
    let answer = ask(&server, "/");
    assert_eq!(answer.head.lines().next(), Some("HTTP/1.1 799 "));
    assert_eq!(answer.text(), "ok");
}

#[test]
fn the_log_says_why_there_was_no_answer() {
    let upstream = saying(&[
        ("/none", "SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned()),
        ("/long", with_lines(300)),
        ("/odd", "HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\n".to_owned()),
        ("/packed", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nxx\r\n0\r\n\r\n".to_owned()),
        ("/switched", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_owned()),
    ]);
    let server = gateway(upstream.url(), &[]);
    for (path, why) in [
        ("/none", "the shop's answer cannot be read error=\"invalid HTTP version parsed"),
        ("/long", "the shop's answer cannot be read error=\"message head is too large"),
        ("/odd", "the shop's answer cannot be read error=\"invalid content-length parsed"),
        ("/packed", "the shop's answer has a transfer coding that nobody asked for"),
        ("/switched", "the shop switched to another protocol unasked"),
    ] {
        let answer = ask(&server, path);
        assert!(answer.is_problem(502, "UPSTREAM_FAILED"), "{answer:?}");
        assert!(answer.text().contains("what the shop answered is no HTTP"), "{path}: {}", answer.text());
        logs(&server, why);
    }

    let cutting = Upstream::answering(|_, _| false);
    let server = gateway(cutting.url(), &[]);
    let answer = ask(&server, "/");
    assert!(answer.is_problem(502, "UPSTREAM_FAILED"), "{answer:?}");
    assert!(answer.text().contains("ended the connection"), "{}", answer.text());
    logs(&server, "the shop gave no answer error=\"connection");

    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let server = gateway(&refusing, &[]);
    assert!(ask(&server, "/").is_problem(502, "UPSTREAM_UNREACHABLE"));
    logs(&server, "the shop cannot be reached error=\"Connection refused");
}

#[test]
fn an_upload_goes_on_after_an_early_answer() {
    const WHOLE: usize = 5_000_000;
    for (answer, body, complete_at_once) in [
        ("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", "ok", true),
        ("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", false),
        ("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", "", false),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", false),
    ] {
        let (tell, told) = mpsc::channel();
        let upstream = Upstream::by_hand(move |mut stream| {
            let mut read = Vec::new();
            let mut chunk = vec![0; 65_536];
            let head = loop {
                let length = stream.read(&mut chunk).unwrap();
                read.extend_from_slice(&chunk[..length]);
                if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                    break at + 4;
                }
            };
            stream.write_all(answer.as_bytes()).unwrap();
            let mut got = read.len() - head;
            while got < WHOLE {
                match stream.read(&mut chunk) {
                    Ok(length @ 1..) => got += length,
                    Ok(_) | Err(_) => break,
                }
            }
            tell.send(got).unwrap();
        });
        let server = gateway(upstream.url(), &[]);
        let mut raw = Raw::connect(server.url());
        raw.send(format!("POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: {WHOLE}\r\n\r\n").as_bytes());
        raw.send(&vec![b'x'; FIRST]);
        if complete_at_once {
            assert_eq!(raw.answer().expect("an answer").text(), body, "{answer:?}");
        }
        raw.send(&vec![b'x'; WHOLE - FIRST]);
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(WHOLE), "{answer:?}");
        if !complete_at_once {
            assert_eq!(raw.answer().expect("an answer").text(), body, "{answer:?}");
        }
    }
}

#[test]
fn an_early_answer_ends_when_the_rest_of_the_upload_stands_still() {
    let upstream = Upstream::by_hand(|mut stream| {
        let mut chunk = [0; 1024];
        let _ = stream.read(&mut chunk).unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").unwrap();
        while stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
    });
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__TIMEOUT_MS", "300")]);
    let mut raw = Raw::connect(server.url());
    raw.send(b"POST /up HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\nnever the rest");
    let answer = raw.answer().expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (201, "ok"));
    assert!(raw.answer().is_none(), "the connection ends");
}

#[test]
fn a_purchase_is_settled_when_the_shop_has_answered_however_long_its_upload_takes() {
    let (arrived, came) = mpsc::channel();
    let upstream = Upstream::by_hand(move |mut stream| {
        let mut chunk = [0; 1024];
        let _ = stream.read(&mut chunk).unwrap();
        stream.write_all(b"HTTP/1.1 303 See Other\r\nLocation: /thanks\r\nContent-Length: 0\r\n\r\n").unwrap();
        arrived.send(()).unwrap();
        while stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
    });
    let server = gateway(upstream.url(), &[]);
    let pass = pass(7);
    let mut raw = Raw::connect(server.url());
    let whole = String::from_utf8(order(7, &pass, &"x".repeat(1000))).unwrap();
    raw.send(&whole.as_bytes()[..whole.len() - 1]);
    // The rest never comes. The pass has been claimed when the shop has got the purchase.
    came.recv_timeout(Duration::from_secs(10)).expect("it reaches the shop");
    assert_eq!(raw.answer().expect("an answer").status, 303, "settled before it is told");
    assert!(buy(&server, 7, &pass).is_problem(403, "QUEUE_BYPASS_DENIED"), "spent");
}

/// What the second purchase with a pass gets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Spent,
    GivenBack,
    Claimed,
}

#[test]
fn a_status_that_the_shop_has_sent_settles_the_purchase_whatever_else_is_wrong_with_its_answer() {
    let created = |rest: &str| format!("HTTP/1.1 201 Created\r\n{rest}");
    let sized = |line: &str| created(&format!("{line}\r\nContent-Length: 2\r\n\r\nok"));
    let odd: Vec<(String, u16, Then)> = vec![
        (sized("Set-Cookie: a\u{1}b"), 201, Then::Spent),
        (sized("Set-Cookie: a\0b"), 201, Then::Spent),
        (sized("X: a\r\n \u{7f}b"), 201, Then::Spent),
        (sized("X: a\rb"), 201, Then::Spent),
        (sized("no colon"), 201, Then::Spent),
        (sized(": no name"), 201, Then::Spent),
        (sized("\u{1}: no name"), 201, Then::Spent),
        ("HTTP/1.1 201 Created \u{1}\r\nContent-Length: 2\r\n\r\nok".to_owned(), 201, Then::Spent),
        ("HTTP/1.1 201\nContent-Length: 2\n\nok".to_owned(), 201, Then::Spent),
        (with_lines(300).replace("200 OK", "201 Created"), 502, Then::Spent),
        (created("Content-Length: two\r\n\r\nok"), 502, Then::Spent),
        (created("Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"), 502, Then::Spent),
        (created("Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), 502, Then::Spent),
        (created(&format!("X: {}\r\n\r\n", "x".repeat(600_000))), 502, Then::Spent),
        (created("Set-Cook"), 502, Then::Spent),
        (created(""), 502, Then::Spent),
        ("HTTP/1.1 201 ".to_owned(), 502, Then::Spent),
        ("HTTP/2 201 \r\n\r\n".to_owned(), 502, Then::Spent),
        ("HTTP/1.1 103 Early\r\nLink: a\u{1}b\r\n\r\nHTTP/1.1 303 See\r\nX".to_owned(), 502, Then::Spent),
        ("HTTP/1.1 409 Conflict\r\nX: \u{1}\r\nContent-Length: 2\r\n\r\nno".to_owned(), 409, Then::GivenBack),
        (with_lines(300).replace("200 OK", "409 Conflict"), 502, Then::GivenBack),
        ("HTTP/1.1 503 Busy\r\nRetry-Af".to_owned(), 502, Then::GivenBack),
        ("HTTP/1.1 103 Early\r\nLink: x\r\n\r\n".to_owned(), 502, Then::Claimed),
        ("HTTP/1.1 20".to_owned(), 502, Then::Claimed),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(), 502, Then::Claimed),
        (String::new(), 502, Then::Claimed),
    ];
    let answers: Vec<String> = odd.iter().map(|(answer, ..)| answer.clone()).collect();
    // Which answer is whose is said by the user; what is not read to its end is ended.
    let upstream = Upstream::answering(move |got, stream| {
        let user: usize = got.all("x-user-id")[0].parse().unwrap();
        let _ = stream.write_all(answers[user - 1].as_bytes());
        false
    });
    let server = gateway(upstream.url(), &[]);
    for (user, (answer, status, then)) in (1..).zip(&odd) {
        let shown: String = answer.chars().take(100).collect();
        let pass = pass(user);
        let got = buy(&server, user, &pass);
        assert_eq!(got.status, *status, "{shown:?}: {got:?}");
        if *status == 502 {
            assert!(got.is_problem(502, "UPSTREAM_FAILED"), "{shown:?}: {got:?}");
            assert_eq!(got.text().contains("the status of its answer was"), *then != Then::Claimed, "{got:?}");
        } else {
            assert!(matches!(got.text().as_str(), "ok" | "no"), "{shown:?}: {got:?}");
            assert!(!got.head.bytes().any(|byte| byte.is_ascii_control() && !b"\r\n".contains(&byte)), "{got:?}");
        }
        assert_eq!(upstream.take().len(), 1, "{shown:?}");
        let again = buy(&server, user, &pass);
        let as_expected = match then {
            Then::Spent => again.is_problem(403, "QUEUE_BYPASS_DENIED"),
            Then::Claimed => again.is_problem(409, "PASS_IN_USE"),
            Then::GivenBack => again.status == *status,
        };
        assert!(as_expected, "{shown:?} was to be {then:?}: {again:?}");
        assert_eq!(upstream.take().len(), usize::from(*then == Then::GivenBack), "{shown:?}");
    }
}

#[test]
fn a_status_settles_the_purchase_where_the_shop_falls_silent_after_it() {
    let upstream = Upstream::answering(|_, stream| {
        stream.write_all(b"HTTP/1.1 201 Created\r\nSet-Cookie: a").unwrap();
        never()
    });
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__TIMEOUT_MS", "500")]);
    let pass = pass(7);
    let late = buy(&server, 7, &pass);
    assert!(late.is_problem(504, "UPSTREAM_TIMEOUT"), "{late:?}");
    assert!(buy(&server, 7, &pass).is_problem(403, "QUEUE_BYPASS_DENIED"), "it has bought");
}

#[test]
fn an_answer_whose_chunks_are_broken_has_spent_the_pass() {
    let upstream = Upstream::answering(|_, stream| {
        stream.write_all(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n").is_ok()
    });
    let server = gateway(upstream.url(), &[]);
    let pass = pass(7);
    assert!(Raw::ask(server.url(), &order(7, &pass, "{}")).is_none_or(|answer| !answer.whole));
    assert!(buy(&server, 7, &pass).is_problem(403, "QUEUE_BYPASS_DENIED"), "spent");
}
