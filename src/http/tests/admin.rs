//! The operator's API.

use actix_web::http::header::HeaderValue;
use serde_json::json;

use super::*;

const FLAG: &str = "/admin/flags/virtual-queue.enabled";
const AUDIT: &str = "/admin/flags/virtual-queue.enabled/audit";

fn operator(request: TestRequest) -> TestRequest {
    request.insert_header(("Authorization", format!("Bearer {ADMIN_TOKEN}")))
}

fn put(body: &Value) -> TestRequest {
    operator(TestRequest::put().uri(FLAG)).set_payload(body.to_string())
}

fn on() -> Value {
    json!({"enabled": true, "rolloutPercent": 5, "targets": ["limited-drop/42"], "users": ["7"], "reason": "canary"})
}

#[actix_web::test]
async fn an_operator_sets_the_flag_sees_it_and_finds_it_in_the_audit() {
    let state = state(with_admin());
    let before = send_to(&state, operator(TestRequest::get().uri(FLAG))).await.json();
    assert_eq!(before["version"], 0);

    let set = send_to(&state, put(&on()).insert_header(("X-Operator", "김 운영 <ops@example.org>"))).await;
    assert_eq!(set.status, 200, "{set:?}");
    assert_eq!(set.header("cache-control"), Some("no-store"));
    for field in ["enabled", "rolloutPercent", "targets", "users", "reason"] {
        assert_eq!(set.json()[field], on()[field]);
    }
    assert_eq!(set.json()["version"], set.json()["updatedAtMs"]);
    assert_eq!(send_to(&state, operator(TestRequest::get().uri(FLAG))).await.json(), set.json());

    send_to(&state, put(&json!({"enabled": false, "reason": "over"}))).await;
    let audit = send_to(&state, operator(TestRequest::get().uri(AUDIT))).await.json();
    let who: Vec<_> = audit.as_array().unwrap().iter().map(|entry| entry["who"].as_str().unwrap()).collect();
    assert_eq!(who, ["admin", "김 운영 <ops@example.org>"], "newest first");
    assert_eq!((&audit[0]["old"], &audit[0]["why"]), (&set.json(), &json!("over")));
    let newest = send_to(&state, operator(TestRequest::get().uri(&format!("{AUDIT}?limit=1")))).await.json();
    assert_eq!(newest.as_array().unwrap().len(), 1);
}

#[actix_web::test]
async fn without_an_admin_token_the_routes_do_not_exist() {
    for path in [FLAG, AUDIT] {
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE"] {
            let request = operator(TestRequest::default().method(method.parse().unwrap()).uri(path));
            send(plain(), request.set_payload(on().to_string())).await.is_problem(404, "NOT_FOUND");
        }
    }
}

#[actix_web::test]
async fn whoever_lacks_the_token_changes_and_sees_nothing() {
    let state = state(with_admin());
    let wrong: Vec<Vec<HeaderValue>> = {
        let value = |text: String| HeaderValue::try_from(text).unwrap();
        vec![
            vec![],
            vec![value("Bearer wrong".to_owned())],
            vec![value("Bearer".to_owned())],
            vec![value("Bearer ".to_owned())],
            vec![value(ADMIN_TOKEN.to_owned())],
            vec![value(format!("Basic {ADMIN_TOKEN}"))],
            vec![value(format!("Bearer {ADMIN_TOKEN} "))],
            vec![value(format!("Bearer {}", ADMIN_TOKEN.to_uppercase()))],
            vec![value(format!("Bearer {ADMIN_TOKEN}")); 2],
            vec![HeaderValue::from_bytes(b"Bearer \xff").unwrap()],
        ]
    };
    for values in wrong {
        for (method, path) in [("GET", FLAG), ("PUT", FLAG), ("GET", AUDIT)] {
            let mut request = TestRequest::default().method(method.parse().unwrap()).uri(path);
            for value in &values {
                request = request.append_header(("Authorization", value.clone()));
            }
            // The token is checked before the name and the body.
            let request = request.insert_header(("X-Operator", "")).set_payload("{");
            let got = send_to(&state, request).await;
            got.is_problem(401, "UNAUTHORIZED");
            assert_eq!(got.header("www-authenticate"), Some("Bearer"));
        }
    }
    assert_eq!(state.flags.current().version(), 0);
    let lower = TestRequest::get().uri(FLAG).insert_header(("Authorization", format!("bearer {ADMIN_TOKEN}")));
    assert_eq!(send_to(&state, lower).await.status, 200, "the scheme's letter case does not matter");
}

#[actix_web::test]
async fn an_operators_name_is_short_visible_and_one() {
    let state = state(with_admin());
    let raw = |bytes: &[u8]| HeaderValue::from_bytes(bytes).unwrap();
    let long = "가".repeat(101);
    let odd: [&[u8]; 7] =
        [b"", b"  ", b"a\tb", b"\xff", long.as_bytes(), "a\u{202e}b".as_bytes(), "\u{200b}".as_bytes()];
    for name in odd {
        let got = send_to(&state, put(&on()).insert_header(("X-Operator", raw(name)))).await;
        got.is_problem(400, "INVALID_OPERATOR");
    }
    let twice = put(&on()).append_header(("X-Operator", "a")).append_header(("X-Operator", "b"));
    send_to(&state, twice).await.is_problem(400, "INVALID_OPERATOR");
    assert_eq!(state.flags.current().version(), 0);
    let longest = raw("가".repeat(100).as_bytes());
    assert_eq!(send_to(&state, put(&on()).insert_header(("X-Operator", longest))).await.status, 200);
}

#[actix_web::test]
async fn a_rule_that_makes_no_sense_is_refused_by_field() {
    for (body, word) in [
        ("", "JSON"),
        ("{", "JSON"),
        ("[]", "object"),
        (r#"{"enabled":true}"#, "reason"),
        (r#"{"enabled":true,"reason":"r","rolloutPercent":101}"#, "rolloutPercent"),
        (r#"{"enabled":true,"reason":"r","targets":["limited-drop/042"]}"#, "targets[0]"),
    ] {
        let got = send(with_admin(), operator(TestRequest::put().uri(FLAG)).set_payload(body)).await;
        got.is_problem(400, "INVALID_FLAG");
        assert!(got.json()["detail"].as_str().unwrap().contains(word), "{got:?}");
    }
    let huge = operator(TestRequest::put().uri(FLAG)).set_payload(vec![b' '; 4 * 1024 * 1024 + 1]);
    send(with_admin(), huge).await.is_problem(413, "PAYLOAD_TOO_LARGE");
}

#[actix_web::test]
async fn a_bad_limit_is_a_bad_request() {
    for query in ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=1&limit=2", "limits=1", "limit=%FF"]
    {
        let got = send(with_admin(), operator(TestRequest::get().uri(&format!("{AUDIT}?{query}")))).await;
        got.is_problem(400, "BAD_REQUEST");
    }
}
