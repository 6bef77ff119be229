//! Invalid requests are refused in one form, with the right code, and never with a 5xx.

use actix_web::http::{
    Method,
    header::{HeaderName, HeaderValue},
};

use super::*;

/// The calls that name a target; `TARGET` stands for it.
const CALLS: [(&str, &str); 4] = [
    ("POST", "/virtual-queues/TARGET/entries"),
    ("GET", "/virtual-queues/TARGET/entries/me"),
    ("DELETE", "/virtual-queues/TARGET/entries/me"),
    ("GET", "/virtual-queues/TARGET/stats"),
];

fn call(method: &str, path: &str) -> TestRequest {
    TestRequest::default().method(method.parse().unwrap()).uri(path)
}

#[actix_web::test]
async fn an_id_in_any_other_spelling_is_an_unknown_target() {
    let odd_ids = [
        "0",
        "-1",
        "+42",
        "042",
        "00",
        "42.0",
        "4e1",
        "0x2a",
        "42%20",
        "%2042",
        "9223372036854775808",
        "18446744073709551616",
        "99999999999999999999999999999999",
        "%34%32",
        "4%32",
        "42%00",
        "42%0A",
        "42;a=b",
        "%EF%BC%94%EF%BC%92",
        "%D9%A4%D9%A2",
        "%FF",
        "%C0%B4",
        "42%2F",
        "%2542",
        "42%",
        "null",
        "_",
        "42,43",
        "*",
    ];
    for (method, path) in CALLS {
        for id in odd_ids {
            let path = path.replace("TARGET", &format!("limited-drop/{id}"));
            let got = send(plain(), call(method, &path).insert_header(("X-User-Id", "7"))).await;
            got.is_problem(404, "UNKNOWN_TARGET");
        }
    }
}

#[actix_web::test]
async fn an_unknown_type_is_an_unknown_target() {
    for (method, path) in CALLS {
        for kind in [
            "limited-drops",
            "LIMITED_DROP",
            "Limited-Drop",
            "limited_drop",
            "limited%2Ddrop",
            "event",
            "%00",
            "-",
            "ticketing-event%20",
            "ticketing-event;v=1",
            "%ED%95%9C",
        ] {
            let path = path.replace("TARGET", &format!("{kind}/42"));
            let got = send(plain(), call(method, &path).insert_header(("X-User-Id", "7"))).await;
            got.is_problem(404, "UNKNOWN_TARGET");
        }
    }
}

#[actix_web::test]
async fn an_encoded_spelling_of_the_fixed_part_is_no_second_way_in() {
    let path = "/virtual%2Dqueues/limited-drop/42/stats";
    send(plain(), TestRequest::get().uri(path)).await.is_problem(404, "UNKNOWN_TARGET");
}

#[actix_web::test]
async fn the_longest_id_is_an_id() {
    for (method, path) in CALLS {
        let path = path.replace("TARGET", "ticketing-event/9223372036854775807");
        let got = send(plain(), call(method, &path).insert_header(("X-User-Id", "9223372036854775807"))).await;
        assert!(!got.text.contains("UNKNOWN_TARGET") && !got.text.contains("INVALID_USER_ID"), "{got:?}");
    }
}

#[actix_web::test]
async fn a_buyer_without_exactly_one_good_id_is_refused() {
    let good = HeaderValue::from_static("7");
    let raw = |bytes: &[u8]| HeaderValue::from_bytes(bytes).unwrap();
    let mut odd: Vec<Vec<HeaderValue>> = vec![vec![], vec![good.clone(), good.clone()], vec![good, raw(b"8")]];
    let values: [&[u8]; 18] = [
        b"",
        b" ",
        b"0",
        b"-7",
        b"+7",
        b"07",
        b"7 ",
        b" 7",
        b"7,7",
        b"7, 8",
        b"7.0",
        b"abc",
        b"9223372036854775808",
        b"18446744073709551623",
        "７".as_bytes(),
        "٧".as_bytes(),
        b"\xff\xfe",
        b"7\t",
    ];
    odd.extend(values.map(|value| vec![raw(value)]));
    for (method, path) in &CALLS[..3] {
        for values in &odd {
            let mut request = call(method, &path.replace("TARGET", "limited-drop/42"));
            for value in values {
                request = request.append_header((HeaderName::from_static("x-user-id"), value.clone()));
            }
            let got = send(plain(), request).await;
            got.is_problem(400, "INVALID_USER_ID");
        }
    }
}

#[actix_web::test]
async fn a_target_that_does_not_exist_is_said_before_anything_about_the_buyer() {
    send(plain(), call("POST", "/virtual-queues/limited-drop/0/entries")).await.is_problem(404, "UNKNOWN_TARGET");
}

#[actix_web::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];
    for template in paths::ALL {
        let path = template.path.replace("{type}", "limited-drop").replace("{targetId}", "42");
        let allowed: Vec<_> = template.allow.split(", ").collect();
        for method in methods {
            let got = send(with_admin(), call(method, &path)).await;
            if allowed.contains(&method) {
                assert_ne!(got.status, 405, "{method} {path}");
            } else {
                got.is_problem(405, "METHOD_NOT_ALLOWED");
                assert_eq!(got.header("allow"), Some(template.allow), "{method} {path}");
            }
        }
    }
}

#[actix_web::test]
async fn an_unknown_path_is_not_found() {
    for path in [
        "/",
        "/virtual-queues",
        "/virtual-queues/limited-drop/42",
        "/virtual-queues/limited-drop/42/entries/",
        "/virtual-queues/limited-drop/42/entries/7",
        "/virtual-queues/limited-drop//entries",
        "//metrics",
        "/metrics/",
        "/health",
        "/admin",
        "/index.html",
        "/%",
        "/%FF",
        "/virtual-queues/limited-drop/4/2/entries",
        "/VIRTUAL-QUEUES/limited-drop/42/entries",
    ] {
        for method in [Method::GET, Method::POST] {
            let request = TestRequest::default().method(method).uri(path).insert_header(("X-User-Id", "7"));
            send(plain(), request).await.is_problem(404, "NOT_FOUND");
        }
    }
}

#[actix_web::test]
async fn a_body_on_enter_is_ignored_up_to_8_kb_and_refused_beyond() {
    let enter = |body: Vec<u8>| {
        let request = call("POST", ENTRIES).insert_header(("X-User-Id", "7"));
        send(plain(), request.set_payload(body))
    };
    for body in [vec![], b"{\"userId\":8}".to_vec(), b"{broken".to_vec(), vec![0xff; 8 * 1024]] {
        assert_eq!(enter(body).await.status, 200);
    }
    for length in [8 * 1024 + 1, 1_000_000] {
        enter(vec![b'x'; length]).await.is_problem(413, "PAYLOAD_TOO_LARGE");
    }
}

#[actix_web::test]
async fn a_query_is_ignored_and_names_nobody() {
    let got = send(plain(), call("POST", &format!("{ENTRIES}?X-User-Id=7&%FF=%&"))).await;
    got.is_problem(400, "INVALID_USER_ID");
    let got = send(plain(), call("GET", &format!("{STATS}?a=%FF&limit=x"))).await;
    assert_eq!(got.status, 200);
}
