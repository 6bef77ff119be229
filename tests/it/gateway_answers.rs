//! The gateway before a shop whose answers are unusual: early, long-winded, old-fashioned, or none at all. What the client
//! is told, and what the operator reads.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use crate::{
    gateway::{buy, gateway, order, pass},
    server::Server,
    upstream::{Raw, RawAnswer, Upstream},
};

/// How far an upload is when the shop answers.
const FIRST: usize = 100_000;

fn ask(server: &Server, path: &str) -> RawAnswer {
    Raw::ask(server.url(), format!("GET {path} HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes()).expect("an answer")
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
        ("/odd", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n".to_owned()),
        ("/switched", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_owned()),
    ]);
    let server = gateway(upstream.url(), &[]);
    for (path, why) in [
        ("/none", "the shop's answer cannot be read error=\"client error (SendRequest): invalid HTTP version parsed"),
        ("/long", "the shop's answer cannot be read error=\"client error (SendRequest): message head is too large"),
        ("/odd", "the shop's answer cannot be read error=\"client error (SendRequest): invalid HTTP header parsed"),
        ("/switched", "the shop switched to another protocol unasked"),
    ] {
        let answer = ask(&server, path);
        assert!(answer.is_problem(502, "UPSTREAM_FAILED"), "{answer:?}");
        assert!(answer.text().contains("what the shop answered is no HTTP"), "{path}: {}", answer.text());
        assert!(server.log().contains(why), "{path}: {}", server.log());
    }

    let cutting = Upstream::answering(|_, _| false);
    let server = gateway(cutting.url(), &[]);
    let answer = ask(&server, "/");
    assert!(answer.is_problem(502, "UPSTREAM_FAILED"), "{answer:?}");
    assert!(answer.text().contains("ended the connection"), "{}", answer.text());
    assert!(server.log().contains("the shop gave no answer error=\"client error (SendRequest): connection"));

    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let server = gateway(&refusing, &[]);
    assert!(ask(&server, "/").is_problem(502, "UPSTREAM_UNREACHABLE"));
    let log = server.log();
    assert!(
        log.contains("the shop cannot be reached error=\"client error (Connect): tcp connect error: Conn"),
        "{log}"
    );
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
    let upstream = Upstream::by_hand(|mut stream| {
        let mut chunk = [0; 1024];
        let _ = stream.read(&mut chunk).unwrap();
        stream.write_all(b"HTTP/1.1 303 See Other\r\nLocation: /thanks\r\nContent-Length: 0\r\n\r\n").unwrap();
        while stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
    });
    let server = gateway(upstream.url(), &[]);
    let pass = pass(7);
    let mut raw = Raw::connect(server.url());
    let whole = String::from_utf8(order(7, &pass, &"x".repeat(1000))).unwrap();
    raw.send(&whole.as_bytes()[..whole.len() - 1]);
    // The rest never comes.
    let refused = (0..80).find_map(|_| {
        let again = buy(&server, 7, &pass);
        std::thread::sleep(Duration::from_millis(50));
        (again.status != 409).then_some(again)
    });
    let refused = refused.expect("the pass is not in use for over 4 s");
    assert!(refused.is_problem(403, "QUEUE_BYPASS_DENIED"), "{refused:?}");
    assert_eq!(raw.answer().expect("an answer").status, 303);
}
