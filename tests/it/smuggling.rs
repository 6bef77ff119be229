//! A clever buyer before the gateway: whatever the bytes on the wire, the shop sells to people with a pass alone. And
//! what only looks odd passes.

mod harmless;
pub(crate) mod spellings;

use std::time::Duration;

use serde_json::json;
use virtual_queue::gate::PathHeader;

use self::harmless::HARMLESS;
pub(crate) use self::spellings::SPELLINGS;
use crate::{
    gateway::{gateway, pass},
    upstream::{Got, Raw, Upstream},
};

const LINE: &str = "POST /limited-drops/42/orders HTTP/1.1";
const HOST: &str = "Host: shop.example\r\n";
const USER: &str = "X-User-Id: 7\r\n";
const BODY: &str = "Content-Length: 2\r\n\r\n{}";

/// `{PASS}` is where the pass goes, or nothing.
const PASS: &str = "{PASS}";

/// A request to this target, right in everything else.
fn to(target: &str) -> String {
    format!("POST {target} HTTP/1.1\r\n{HOST}{USER}{PASS}{BODY}")
}

/// The purchase with these further header lines.
fn with(lines: &str) -> String {
    format!("{LINE}\r\n{HOST}{USER}{PASS}{lines}{BODY}")
}

/// Some other request with these further header lines.
fn elsewhere(lines: &str) -> String {
    format!("POST /cart HTTP/1.1\r\n{HOST}{USER}{PASS}{lines}{BODY}")
}

/// The purchase framed in another way: what stands after the user and the pass.
fn framed(rest: &str) -> String {
    format!("{LINE}\r\n{HOST}{USER}{PASS}{rest}")
}

fn hostile() -> Vec<String> {
    let mut all = Vec::new();
    // Spellings of the path.
    for target in SPELLINGS {
        all.push(to(target));
    }
    all.push(to(&format!("/limited-drops/42/orders{}", "/".repeat(100_000))));
    all.push(to(&format!("{}/limited-drops/42/orders", "/x/..".repeat(300))));
    for id in ["42", "0x2a", "%D9%A4%D9%A2"] {
        all.push(to(&format!("/limited-drops/{id}/orders;{}", "a".repeat(600))));
    }
    all.push(to(&format!("{}/limited-drops/42/orders", "//x".repeat(100))));
    all.push(to(&format!("/limited-drops/42/orders?{}", "x".repeat(100_000))));

    // Other methods, and methods in other places.
    for line in [
        "post /limited-drops/42/orders HTTP/1.1",
        "Post /limited-drops/42/orders HTTP/1.1",
        "POST  /limited-drops/42/orders HTTP/1.1",
        "POST\t/limited-drops/42/orders HTTP/1.1",
        "POST /limited-drops/42/orders  HTTP/1.1",
        " POST /limited-drops/42/orders HTTP/1.1",
        "POST\x0b /limited-drops/42/orders HTTP/1.1",
        "P\0OST /limited-drops/42/orders HTTP/1.1",
        "POST /limited-drops/42/ord\0ers HTTP/1.1",
        "POST /limited-drops/42/orders\x7f HTTP/1.1",
        "POST /limited-drops/42/orders\rX HTTP/1.1",
        "POST /limited-drops/42/orders HTTP/1.0",
        "POST /limited-drops/42/orders HTTP/0.9",
        "POST /limited-drops/42/orders HTTP/1.2",
        "POST /limited-drops/42/orders HTTP/2.0",
        "POST /limited-drops/42/orders http/1.1",
        "POST /limited-drops/42/orders",
        "GET /limited-drops/42/orders?_method=POST HTTP/1.1",
        "GET /limited-drops/42/orders?a=1&%5fmethod=post HTTP/1.1",
        "GET /limited-drops/42/orders/?_method=POST HTTP/1.1",
        "PUT /limited-drops/42/orders?_method=POST HTTP/1.1",
        "GET /limited-drops/42/orders?.method=POST HTTP/1.1",
        "GET /limited-drops/42/orders?%20_method=POST HTTP/1.1",
        "GET /limited-drops/42/orders?X-HTTP-Method-Override=POST HTTP/1.1",
    ] {
        all.push(format!("{line}\r\n{HOST}{USER}{PASS}{BODY}"));
    }
    for name in [
        "X-HTTP-Method-Override",
        "X-Method-Override",
        "X-HTTP-Method",
        "X_HTTP_METHOD_OVERRIDE",
        "X.HTTP.Method.Override",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let line = format!("{method} /limited-drops/42/orders HTTP/1.1");
            for word in ["POST", "po\u{17f}t", "GET, post"] {
                all.push(format!("{line}\r\n{HOST}{USER}{PASS}{name}: {word}\r\n{BODY}"));
            }
        }
        all.push(with(&format!("{name}: GET\r\n")));
    }
    for method in ["GET", "PUT", "PATCH", "DELETE", "PROPFIND"] {
        let line = format!("{method} /limited-drops/42/orders HTTP/1.1");
        for kind in ["Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: multipart/form-data\r\n", ""]
        {
            all.push(format!("{line}\r\n{HOST}{USER}{PASS}{kind}Content-Length: 12\r\n\r\n_method=POST"));
        }
    }
    for query in ["id=43", "dropId=43", "drop_id[]=43", "%69d=43"] {
        all.push(to(&format!("/limited-drops/42/orders?{query}")));
    }
    for name in ["X-Original-URL", "X-Rewrite-URL", "x_original_url", "Path-Info", "request.uri", "X-Matched-Path"] {
        all.push(elsewhere(&format!("{name}: /limited-drops/42/orders\r\n")));
        all.push(elsewhere(&format!("{name}: http://shop/limited-drops/42/orders\r\n")));
        all.push(elsewhere(&format!("{name}: /limited-drops/42/orders?x=a://b\r\n")));
        all.push(elsewhere(&format!("{name}: //x/limited-drops/42/orders\r\n")));
        all.push(elsewhere(&format!("{name}: /a%2Fb/../limited%2Ddrops/42/orders#a://b\r\n")));
        all.push(with(&format!("{name}: /cart\r\n")));
    }

    // Who buys, and with what.
    for lines in [
        "X-User-Id: 8\r\n",
        "X-User-Id: 7\r\n",
        "X_User_Id: 8\r\n",
        "X-User_Id: 8\r\n",
        "x.user.id: 8\r\n",
        "X-User-Id : 8\r\n",
        "X-Entry-Token: x.y\r\n",
        "X_Entry_Token: x.y\r\n",
        "Connection: X-User-Id\r\n",
        "Connection: close, x-user-id\r\n",
        "Connection: X-Entry-Token\r\n",
        "Connection: keep-alive\r\nConnection: x-user-id\r\n",
        "Connection: Host\r\n",
        "Connection: Content-Length\r\n",
        "Connection: Content-Type, Cookie, Authorization\r\n",
        "Connection: X-Forwarded-For\r\n",
        "Host: other.example\r\n",
        "Host: shop.example\r\n",
        "Content_Length: 99\r\n",
        "Transfer_Encoding: chunked\r\n",
        "X-Fold: a\r\n X-User-Id: 8\r\n",
        "X-Fold: a\r\n\tb\r\n",
        "X-Bare: a\rX-User-Id: 8\r\n",
        "X-Bare: a\nX-User-Id: 8\r\n",
        "X-Nul: a\0b\r\n",
        ": nameless\r\n",
        "No colon\r\n",
        "X-User-Id\r\n",
        "X\u{e9}: y\r\n",
    ] {
        all.push(with(lines));
    }
    for user in
        ["", "X-User-Id: \r\n", "X-User-Id: 07\r\n", "X-User-Id: 7, 8\r\n", "X-User-Id:\r\n 7\r\n", "X_User_Id: 7\r\n"]
    {
        all.push(format!("{LINE}\r\n{HOST}{user}{PASS}{BODY}"));
    }
    for host in
        ["", "Host: \r\n", "Host: a b\r\n", "Host: shop.example/limited-drops\r\n", "Host: a, b\r\n", "Host: a@b\r\n"]
    {
        all.push(format!("{LINE}\r\n{host}{USER}{PASS}{BODY}"));
    }

    // Where the request ends.
    for rest in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "Content-Length: 2, 2\r\n\r\n{}",
        "Content-Length: +2\r\n\r\n{}",
        "Content-Length: -2\r\n\r\n{}",
        "Content-Length: 0x2\r\n\r\n{}",
        "Content-Length: 2 2\r\n\r\n{}",
        "Content-Length: 18446744073709551618\r\n\r\n{}",
        "Content-Length:\r\n\r\n{}",
        "Content-Length : 2\r\n\r\n{}",
        "Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n{}",
        "Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: \x0bchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding:\r\n chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: \"chunked\"\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2;ext=\r\n{}\r\n0\r\nX-User-Id: 8\r\n\r\n",
        "Upgrade: websocket\r\nContent-Length: 2\r\n\r\n{}",
        "Upgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "Content-Length: 2\n\n{}",
        "\n\n",
        "\r\r\n\r\n",
    ] {
        all.push(framed(rest));
    }
    all.push(format!("{LINE}\n{HOST}{USER}{PASS}{BODY}").replace("\r\n", "\n"));
    all.push(format!("\r\n\r\n{LINE}\r\n{HOST}{USER}{PASS}{BODY}"));

    // A purchase within another request.
    let inner = format!("{LINE}\r\n{HOST}{USER}{PASS}Content-Length: 2\r\n\r\n{{}}");
    let length = inner.len();
    for (first, body) in [
        (format!("Content-Length: {}", length + 200), inner.clone()),
        ("Content-Length: 0\r\nTransfer-Encoding: chunked".to_owned(), format!("0\r\n\r\n{inner}")),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked".to_owned(), format!("0\r\n\r\n{inner}")),
        (format!("Content-Length: 0\r\nContent-Length: {length}"), inner.clone()),
        ("Transfer-Encoding: xchunked".to_owned(), format!("0\r\n\r\n{inner}")),
        ("Transfer_Encoding: chunked\r\nContent-Length: 5".to_owned(), format!("0\r\n\r\n{inner}")),
        ("Transfer-Encoding: chunked".to_owned(), format!("0\r\n\r\n{inner}")),
        ("Transfer-Encoding: chunked".to_owned(), format!("0\r\nX: y\r\n{inner}")),
        ("Content-Length: 0".to_owned(), inner.clone()),
        ("X: y".to_owned(), inner.clone()),
        ("Upgrade: websocket\r\nConnection: upgrade".to_owned(), inner.clone()),
        (
            "Upgrade: h2c\r\nConnection: upgrade, http2-settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__".to_owned(),
            inner.clone(),
        ),
        ("Connection: content-length\r\nContent-Length: 0".to_owned(), inner.clone()),
        ("Expect: 100-continue\r\nContent-Length: 0".to_owned(), inner),
    ] {
        all.push(format!("GET /cart HTTP/1.1\r\n{HOST}{USER}{first}\r\n\r\n{body}"));
    }
    all.push(format!("CONNECT shop.example:80 HTTP/1.1\r\n{HOST}\r\n{LINE}\r\n{HOST}{USER}{PASS}{BODY}"));
    all.push(format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{LINE}\r\n{HOST}{USER}{PASS}{BODY}"));
    all
}

/// Sends it and reads all there is to read: the statuses of the answers.
fn send(url: &str, request: &str) -> Vec<u16> {
    let mut raw = Raw::connect(url);
    raw.patience(Duration::from_millis(1_500));
    // As bytes: what Rust writes as one letter above 0x7f is sent as UTF-8.
    raw.send(request.as_bytes());
    let mut statuses = Vec::new();
    while let Some(answer) = raw.answer() {
        statuses.push(answer.status);
        // What else was in those bytes is answered by now or soon.
        raw.patience(Duration::from_millis(60));
    }
    statuses
}

/// Whether any server could take what came for a purchase.
fn smells_of_a_purchase(got: &Got) -> bool {
    let mut head = got.head.to_lowercase().replace('\u{17f}', "s");
    for _ in 0..3 {
        head = head.replace("%25", "%").replace("%6f", "o").replace("%6c", "l");
    }
    head.contains("orders")
}

#[test]
fn nothing_slips_past_without_a_pass_and_only_the_purchase_itself_with_one() {
    let variants = hostile();
    assert!(variants.len() >= 100, "{}", variants.len());
    let upstream = Upstream::friendly();
    // A pass may be used again, so that one does for all.
    let server = gateway(upstream.url(), &[("VQ_TOKEN__SINGLE_USE", "false"), ("VQ_LOG__LEVEL", "info")]);
    let header = format!("X-Entry-Token: {}\r\n", pass(7));
    let (mut bought, mut refused) = (0, 0);
    for variant in &variants {
        let shown: String = variant.chars().take(300).collect();
        let statuses = send(server.url(), &variant.replace(PASS, ""));
        assert!(!statuses.contains(&500), "{statuses:?} for {shown:?}");
        for got in upstream.take() {
            assert!(!smells_of_a_purchase(&got), "without a pass, {shown:?} reached the shop as {got:?}");
        }

        let statuses = send(server.url(), &variant.replace(PASS, &header));
        let all = upstream.take();
        for got in all.iter().filter(|got| smells_of_a_purchase(got)) {
            let path = got.target().split('?').next().unwrap_or_default();
            assert_eq!(path, "/limited-drops/42/orders", "{shown:?} reached the shop as {got:?}");
            assert_eq!(got.all("x-user-id"), ["7"], "{shown:?} reached the shop as {got:?}");
            let names = got.head.to_lowercase();
            for alike in ["x_user", "user_id", "x.user", "entry-token", "entry_token"] {
                assert!(!names.contains(alike), "{shown:?} reached the shop as {got:?}");
            }
            assert!(got.all("content-length").len() + got.all("transfer-encoding").len() <= 1, "{got:?}");
            bought += 1;
        }
        if all.is_empty() {
            assert!(
                statuses.iter().all(|status| (400..=501).contains(status) && *status != 500),
                "{statuses:?} for {shown:?}"
            );
            refused += 1;
        }
    }
    println!("{} variants: with a pass {bought} bought, {refused} were refused", variants.len());
    assert!(bought >= 10 && refused >= 60, "{bought} {refused}");
}

#[test]
fn nothing_harmless_is_stopped_or_changed() {
    assert!(HARMLESS.len() >= 40);
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_LOG__LEVEL", "info")]);
    for target in HARMLESS {
        for method in ["GET", "POST", "DELETE", "PROPFIND"] {
            let request = format!("{method} {target} HTTP/1.1\r\n{HOST}X-A: \u{e9}\r\nContent-Length: 0\r\n\r\n");
            let answer = Raw::ask(server.url(), request.as_bytes()).expect("an answer");
            assert_eq!((answer.status, answer.text().as_str()), (201, "ok"), "{method} {target}: {answer:?}");
            assert_eq!(upstream.only().line(), format!("{method} {target} HTTP/1.1"));
        }
    }
    // The same paths are purchases with POST only.
    for target in ["/limited-drops/42/orders", "/limited-drops/42/orders/", "/events/7/seats/select?x"] {
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let request = format!("{method} {target} HTTP/1.1\r\n{HOST}\r\n");
            assert_eq!(Raw::ask(server.url(), request.as_bytes()).expect("an answer").status, 201, "{method} {target}");
            assert_eq!(upstream.only().line(), format!("{method} {target} HTTP/1.1"));
        }
    }
}

#[test]
fn every_character_in_a_target_is_refused_or_passes_as_it_is() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_LOG__LEVEL", "info")]);
    let mut refused = [String::new(), String::new()];
    for byte in 0x21..0x7f_u8 {
        let letter = char::from(byte);
        for (at, target) in [format!("/a{letter}b"), format!("/a?b{letter}c")].into_iter().enumerate() {
            let request = format!("GET {target} HTTP/1.1\r\n{HOST}\r\n");
            match Raw::ask(server.url(), request.as_bytes()).expect("an answer").status {
                400 => refused[at].push(letter),
                _ if letter == '#' => assert_eq!(format!("{}#", upstream.only().target()), target[..target.len() - 1]),
                status => {
                    assert_eq!(status, 201, "{target}");
                    assert_eq!(upstream.only().target(), target);
                }
            }
        }
    }
    // None of these may stand in a target as it is (RFC 3986), and browsers escape them there.
    assert_eq!(refused, ["<>`", "\"<>"], "in a path, in a query");
}

#[test]
fn honest_headers_pass_that_resemble_hostile_ones() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    for line in [
        "Connection: keep-alive",
        "Connection: close",
        "Connection: Upgrade, HTTP2-Settings",
        "X_Custom_Header: 1",
        "X-HTTP-Method-Override: PATCH",
        "X-Forwarded-For: 203.0.113.9, 10.0.0.1",
        "Content-Length: 0",
        "Expect: ",
        "X-Empty:",
        "X-User-Id: not-a-number",
    ] {
        let request = format!("POST /cart HTTP/1.1\r\n{HOST}{line}\r\n\r\n");
        assert_eq!(Raw::ask(server.url(), request.as_bytes()).expect("an answer").status, 201, "{line}");
        let got = upstream.only();
        let (name, value) = line.split_once(':').unwrap();
        if name != "Connection" && name != "X-Forwarded-For" {
            assert_eq!(got.all(name), [value.trim()], "{got:?}");
        }
    }
}

#[test]
fn pipelined_requests_are_each_judged_by_themselves() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    let get = |path: &str, lines: &str| format!("GET {path} HTTP/1.1\r\n{HOST}{lines}\r\n");
    let purchase = to("/limited-drops/42/orders").replace(PASS, "");
    let mut raw = Raw::connect(server.url());
    raw.send([get("/a", ""), purchase, get("/b", "Connection: close\r\n")].concat().as_bytes());
    let statuses: Vec<u16> = std::iter::from_fn(|| raw.answer()).map(|answer| answer.status).collect();
    assert_eq!(statuses, [201, 403, 201]);
    let lines: Vec<String> = upstream.take().iter().map(|got| got.line().to_owned()).collect();
    assert_eq!(lines, ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
}

#[test]
fn headers_that_move_the_path_reach_no_shop_but_those_to_keep() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[("VQ_UPSTREAM__KEEP_HEADERS", "x-forwarded-prefix, SCRIPT_NAME")]);
    let kept = ["X-Forwarded-Prefix", "SCRIPT_NAME"];
    for mark in ["", "-", "_", "."] {
        let names: Vec<String> = PathHeader::names()
            .map(|name| if mark.is_empty() { name.to_owned() } else { name.replace(['-', '_'], mark) })
            .collect();
        let lines: String = names.iter().map(|name| format!("{name}: /x\r\n")).collect();
        for target in ["/x/limited-drops/42/orders", "/"] {
            let request = format!("POST {target} HTTP/1.1\r\n{HOST}{lines}X-Kept: 1\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(Raw::ask(server.url(), request.as_bytes()).expect("an answer").status, 201, "{target}");
            let got = upstream.only();
            assert_eq!((got.target(), got.all("x-kept").len()), (target, 1));
            for name in &names {
                let is_kept = kept.iter().any(|kept| kept.eq_ignore_ascii_case(name));
                assert_eq!(got.all(name).len(), usize::from(is_kept), "{name}: {got:?}");
            }
        }
    }
}

/// A purchase with a body and these header lines, by somebody without a pass.
fn answer(url: &str, line: &str, lines: &str) -> u16 {
    let request = format!("{line} HTTP/1.1\r\n{HOST}{USER}{lines}Content-Length: 11\r\n\r\n_method=PUT");
    Raw::ask(url, request.as_bytes()).expect("an answer").status
}

#[tokio::test]
async fn while_one_drop_has_a_queue_no_other_writing_of_its_id_is_left_to_the_shop() {
    let upstream = Upstream::friendly();
    let server = gateway(upstream.url(), &[]);
    let rule = json!({"enabled": true, "targets": ["limited-drop/42"], "reason": "one sale"});
    assert_eq!(server.set_flag(rule).await.status, 200);
    let padding = "a".repeat(600);
    for id in [
        "%D9%A4%D9%A2",
        "%EA%98%A4%EA%98%A2",
        "%E0%B7%AA%E0%B7%A8",
        "%E1%A5%8A%E1%A5%88",
        "%F0%9D%9F%B0%F0%9D%9F%AE",
        "%F0%9D%9F%BA%F0%9D%9F%B8",
        "042",
        "04294967338",
        "0x2a",
        "0x2_a",
        "42%2Fx",
        "summer-sale",
    ] {
        let status =
            if id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) { 404 } else { 403 };
        assert_eq!(answer(server.url(), &format!("POST /limited-drops/{id}/orders"), ""), status, "{id}");
        assert_eq!(answer(server.url(), &format!("POST /limited-drops/{id}/orders;{padding}"), ""), 403, "{id}");
    }
    assert!(upstream.take().is_empty());
    // Each is what it is, and no queue is for it.
    for path in ["/limited-drops/43/orders", "/limited-drops/43/orders/", "/limited-drops/4294967338/orders"] {
        assert_eq!(answer(server.url(), &format!("POST {path}"), ""), 201, "{path}");
    }
    assert_eq!(answer(server.url(), "POST /events/042/seats/select", ""), 201);
    assert_eq!(answer(server.url(), "POST /limited-drops/summer-sale/reviews", ""), 201);
}

#[test]
fn a_purchase_that_is_no_post_cannot_be_had_by_one() {
    let upstream = Upstream::friendly();
    let routes = "[{ method = 'PUT', path = '/drops/{id}', target = 'limited-drop' }]";
    let server = gateway(upstream.url(), &[("VQ_GATE__ROUTES", routes)]);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for (line, lines) in [
        ("PUT /drops/42", ""),
        ("POST /drops/42", ""),
        ("POST /drops/42", "Content-Type: \r\n"),
        ("POST /drops/42", form),
        ("POST /drops/42", "Content-Type: text/plain\r\nX-HTTP-Method-Override: PUT\r\n"),
    ] {
        assert_eq!(answer(server.url(), line, lines), 403, "{line} {lines}");
    }
    for query in [
        "_method=PUT",
        "_method[0]=PUT",
        "[_method]=PUT",
        "%5B_method%5D=PUT",
        ".method=PUT",
        "%20_method=PUT",
        "+_method=PUT",
        "[method=PUT",
        "X-HTTP-Method-Override=PUT",
    ] {
        let line = format!("POST /drops/42?{query}");
        assert_eq!(answer(server.url(), &line, "Content-Type: application/json\r\n"), 403, "{query}");
    }
    assert!(upstream.take().is_empty());
    for line in ["POST /drops/42", "POST /drops/42?method=PUT", "DELETE /drops/42"] {
        assert_eq!(answer(server.url(), line, "Content-Type: application/json\r\n"), 201, "{line}");
    }
}
