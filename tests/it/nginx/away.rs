//! What nginx does with questions that are answered with neither yes nor no: the waiting room is away, or the request
//! cannot be asked about.

use std::time::Duration;

use tokio::time::Instant;

use super::{FAST, Nginx, ORDERS, closed, denied, open, pass};
use crate::{
    forward_shop::Shop,
    server::{DROP, Server},
    wire::{self, header},
};

fn purchase_and_page(nginx: &Nginx, open: bool, shop: &Shop) {
    let liar = [("X-User-Id", "7"), ("X-Virtual-Queue-User", "8"), ("X-Entry-Token", "x.y")];
    for (method, target) in [("POST", "/limited-drops/42//orders?a=%2F"), ("GET", "/")] {
        let answer = nginx.request(method, target, &liar, "{\"piece\":1}");
        if open {
            assert_eq!((answer.status, answer.body.as_str()), (201, "{\"piece\":1}"));
            let saw = shop.saw();
            assert!(saw[0].starts_with(&format!("{method} {target} HTTP/1.1\r\n")), "{saw:?}");
            assert_eq!((header(&saw[0], "x-virtual-queue-user"), header(&saw[0], "x-entry-token")), (None, None));
        } else {
            assert_eq!(answer.refusal(), (503, "WAITING_ROOM_AWAY".to_owned()));
            assert!(answer.header("retry-after").is_some());
            assert_eq!(shop.lines(), [] as [&str; 0]);
        }
    }
}

#[test]
fn behind_nginx_a_dead_waiting_room_closes_or_opens_the_shop_as_chosen() {
    for (page, open) in [(closed(), false), (open(), true)] {
        let (mut server, shop) = (Server::demo(FAST), Shop::open());
        let nginx = Nginx::start(&page, &server, &shop);
        assert_eq!(nginx.buy(ORDERS, "7", "x.y").refusal(), denied());
        server.kill9();
        purchase_and_page(&nginx, open, &shop);
    }
}

#[test]
fn behind_nginx_a_waiting_room_that_hangs_is_away_after_three_seconds() {
    let cases = [(closed(), false), (open(), true)].map(|(page, open)| {
        std::thread::spawn(move || {
            let (server, shop) = (Server::demo(FAST), Shop::open());
            let nginx = Nginx::start(&page, &server, &shop);
            assert_eq!(nginx.buy(ORDERS, "7", "x.y").refusal(), denied());
            server.stop();
            let began = Instant::now();
            purchase_and_page(&nginx, open, &shop);
            let took = began.elapsed();
            server.cont();
            assert!(took >= Duration::from_secs(6) && took < Duration::from_secs(15), "3 s for each of two: {took:?}");
        })
    });
    cases.into_iter().for_each(|case| case.join().unwrap());
}

/// Requests that cannot be asked about: too many lines, or one that is no HTTP to our library.
fn malformed() -> Vec<(String, Vec<(String, String)>)> {
    let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let many = |count: usize| (0..count).map(|at| line(&format!("X-Line-{at}"), "x")).collect::<Vec<_>>();
    // What follows may be under way when the answer is.
    let mut long = vec![line("X-A", "\u{1}")];
    long.extend((0..4).map(|at| line(&format!("X-Long-{at}"), &"x".repeat(7000))));
    vec![
        ("a control character".to_owned(), vec![line("X-A", "\u{1}")]),
        ("one in the pass".to_owned(), vec![line("X-Entry-Token", "a\u{1}b")]),
        ("one at the head of much".to_owned(), long),
        ("95 lines".to_owned(), many(95)),
        ("300 lines".to_owned(), many(300)),
    ]
}

#[test]
fn behind_nginx_a_request_that_cannot_be_asked_about_is_a_bad_request_open_or_closed() {
    let server = Server::demo(FAST);
    for page in [closed(), open()] {
        let shop = Shop::open();
        let nginx = Nginx::start(&page, &server, &shop);
        for (what, lines) in malformed() {
            for (method, target) in [("POST", ORDERS), ("PUT", ORDERS), ("GET", "/")] {
                let mut headers = vec![("X-User-Id", "7")];
                headers.extend(lines.iter().map(|(name, value)| (name.as_str(), value.as_str())));
                // A race, if there is one, is not lost every time.
                for _ in 0..if what.ends_with("much") { 30 } else { 1 } {
                    let answer = nginx.request(method, target, &headers, "");
                    assert_eq!(answer.refusal(), (400, "BAD_REQUEST".to_owned()), "{what}: {method} {target}");
                    assert_eq!(shop.lines(), [] as [&str; 0], "{what}: {method} {target}");
                }
            }
        }
    }
}

#[tokio::test]
async fn behind_nginx_many_headers_and_odd_cookies_spoil_nothing() {
    let (server, shop) = (Server::demo(FAST), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let mine = pass(&server, DROP, 7).await;
    let odd_cookie = ("Cookie", "a=\u{1}; b=c");
    assert_eq!(nginx.request("GET", "/", &[odd_cookie], "").status, 201);
    let saw = shop.saw();
    assert_eq!(header(&saw[0], "cookie"), Some(odd_cookie.1), "as it came");
    assert_eq!(nginx.request("POST", ORDERS, &[odd_cookie, ("X-User-Id", "7")], "").refusal(), denied());

    let names: Vec<String> = (0..81).map(|at| format!("X-Line-{at}")).collect();
    let mut headers = vec![("X-User-Id", "7"), ("X-Entry-Token", mine.as_str()), odd_cookie];
    headers.extend(names.iter().map(|name| (name.as_str(), "x")));
    // Host, Connection and Content-Length make 87.
    assert_eq!(nginx.request("POST", ORDERS, &headers, "").status, 201);
    assert_eq!(wire::values(&shop.saw()[0], "x-line-80").count(), 1);
}
