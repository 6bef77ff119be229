//! Pages of other origins.

use std::sync::Arc;

use actix_web::{HttpResponse, http::Method};

use super::*;
use crate::{problem::PROBLEM_JSON, proxy::FromShop};

const SHOP: &str = "https://shop.example.com";
const OTHER: &str = "https://evil.example.com";

/// Pages of the shop may call; the purchase routes are ours or another shop's.
fn with_cors(shop_is_ours: bool) -> HttpOptions {
    let mut config = Config::parse_default();
    config.cors.allowed_origins = vec!["http://localhost:3000".to_owned(), SHOP.to_owned()];
    config.demo_shop.enabled = Some(shop_is_ours);
    HttpOptions { cors: Cors::from_config(&config), ..with_admin() }
}

fn preflight(path: &str, origin: &str) -> TestRequest {
    TestRequest::default()
        .method(Method::OPTIONS)
        .uri(path)
        .insert_header(("Origin", origin))
        .insert_header(("Access-Control-Request-Method", "POST"))
}

#[track_caller]
fn assert_readable_by(got: &Got, origin: Option<&str>) {
    assert_eq!(got.header("access-control-allow-origin"), origin, "{got:?}");
    assert_eq!(got.header("access-control-allow-credentials"), origin.map(|_| "true"), "{got:?}");
}

#[actix_web::test]
async fn a_preflight_of_an_allowed_page_is_answered() {
    for path in [ENTRIES, ME, "/limited-drops/42/orders", "/events/5/seats/select"] {
        let got = send(with_cors(true), preflight(path, SHOP)).await;
        assert_eq!((got.status.as_u16(), got.text.as_str()), (204, ""), "{path}");
        assert_readable_by(&got, Some(SHOP));
        assert_eq!(got.header("access-control-allow-methods"), Some("GET, POST, DELETE"));
        let headers = got.header("access-control-allow-headers");
        let tracing = "traceparent, tracestate, baggage";
        assert_eq!(headers, Some(&*format!("X-User-Id, X-Entry-Token, Authorization, Content-Type, {tracing}")));
        assert_eq!((got.header("vary"), got.header("access-control-max-age")), (Some("Origin"), Some("600")));
        assert!(got.header("x-request-id").is_some());
    }
}

#[actix_web::test]
async fn a_page_may_send_the_headers_that_are_configured_besides_ours() {
    for (more, sent) in [(&[][..], ""), (&["X-Request-Source", "sentry-trace"], ", X-Request-Source, sentry-trace")] {
        let mut config = Config::parse_default();
        config.cors.allowed_origins = vec![SHOP.to_owned()];
        config.cors.allowed_headers = more.iter().map(|name| (*name).to_owned()).collect();
        let options = HttpOptions { cors: Cors::from_config(&config), ..with_admin() };
        let got = send(options, preflight(ENTRIES, SHOP)).await;
        let all = format!("X-User-Id, X-Entry-Token, Authorization, Content-Type{sent}");
        assert_eq!(got.header("access-control-allow-headers"), Some(&*all));
    }
}

#[actix_web::test]
async fn a_preflight_of_any_other_page_allows_nothing() {
    for origin in [OTHER, "null", "https://shop.example.com.evil.com", "https://shop.example.com:8443", "*", ""] {
        let got = send(with_cors(true), preflight(ENTRIES, origin)).await;
        got.is_problem(405, "METHOD_NOT_ALLOWED");
        assert_readable_by(&got, None);
    }
    let two = preflight(ENTRIES, SHOP).append_header(("Origin", OTHER));
    assert_readable_by(&send(with_cors(true), two).await, None);
    for path in ["/metrics", "/health/live", "/admin/flags/virtual-queue.enabled", "/openapi.json", "/gate/verify"] {
        let got = send(with_cors(true), preflight(path, SHOP)).await;
        assert_eq!(got.status, 405, "{path}");
        assert_readable_by(&got, None);
    }
    let got = send(plain(), preflight(ENTRIES, SHOP)).await;
    got.is_problem(405, "METHOD_NOT_ALLOWED");
    assert_eq!(got.header("vary"), None, "without origins configured nothing changes");
}

#[actix_web::test]
async fn an_allowed_page_may_read_answers_and_errors_alike() {
    let enter = |user: &str, origin: &str| {
        TestRequest::post().uri(ENTRIES).insert_header(("X-User-Id", user)).insert_header(("Origin", origin))
    };
    for (user, status) in [("7", 200), ("007", 400)] {
        let got = send(with_cors(true), enter(user, SHOP)).await;
        assert_eq!(got.status, status);
        assert_readable_by(&got, Some(SHOP));
        let exposed = got.header("access-control-expose-headers");
        assert_eq!(exposed, Some("Retry-After, X-Virtual-Queue-Degraded, X-Request-Id"));
        assert_eq!(got.header("vary"), Some("Origin"));
        let got = send(with_cors(true), enter(user, OTHER)).await;
        assert_eq!(got.status, status, "who is no browser is not stopped");
        assert_readable_by(&got, None);
        assert_eq!(got.header("vary"), Some("Origin"));
    }
    let unknown = TestRequest::get().uri("/virtual-queues/limited-drop/007/stats").insert_header(("Origin", SHOP));
    let got = send(with_cors(true), unknown).await;
    got.is_problem(404, "UNKNOWN_TARGET");
    assert_readable_by(&got, Some(SHOP));
    let got = send(with_cors(true), TestRequest::get().uri("/metrics").insert_header(("Origin", SHOP))).await;
    assert_readable_by(&got, None);
    assert_eq!(got.header("vary"), None);
}

/// The answer of a shop with rules of its own.
async fn before_another_shop(path: &str, method: Method) -> Got {
    let theirs = || {
        HttpResponse::Ok()
            .insert_header(("Access-Control-Allow-Origin", "https://theirs.example.com"))
            .insert_header(("Access-Control-Expose-Headers", "X-Theirs"))
            .body("theirs")
    };
    // A shop may send problems, too.
    let problem = || {
        let mut answer = HttpResponse::Conflict().content_type(PROBLEM_JSON).body("theirs");
        answer.extensions_mut().insert(FromShop);
        answer
    };
    let refusal = || async { Err::<HttpResponse, _>(ApiError::NoShop) };
    let app = App::new()
        .app_data(state(with_cors(false)))
        .route("/theirs", web::route().to(move || async move { theirs() }))
        .route("/problem", web::route().to(move || async move { problem() }))
        .route("/silent", web::route().to(|| async { HttpResponse::Ok().body("silent") }))
        .route("/refused", web::route().to(refusal));
    let app = init_service(with_middleware(app)).await;
    let request = preflight(path, SHOP).method(method);
    Got::read(app.call(request.to_request()).await).await
}

#[actix_web::test]
async fn a_shop_with_rules_of_its_own_keeps_them() {
    for method in [Method::OPTIONS, Method::POST] {
        let got = before_another_shop("/theirs", method.clone()).await;
        assert_eq!(got.text, "theirs");
        assert_eq!(got.header("access-control-allow-origin"), Some("https://theirs.example.com"));
        assert_eq!(got.header("access-control-expose-headers"), Some("X-Theirs"));
        assert_eq!(got.header("vary"), None);
        for (path, text) in [("/silent", "silent"), ("/problem", "theirs")] {
            let got = before_another_shop(path, method.clone()).await;
            assert_eq!((got.text.as_str(), got.header("vary")), (text, None));
            assert_readable_by(&got, None);
        }
        let got = before_another_shop("/refused", method).await;
        got.is_problem(503, "NO_SHOP");
        assert_readable_by(&got, Some(SHOP));
    }
}

#[actix_web::test]
async fn who_enters_too_often_is_told_so_and_polling_is_never_limited() {
    let mut config = Config::parse_default();
    config.rate_limit.enter_per_second = Some(1);
    let data = state(with_cors(true)).into_inner();
    let mut data = Arc::into_inner(data).unwrap();
    data.enter_limit = EnterLimit::from_config(&config.rate_limit, &data.clock);
    let data = web::Data::new(data);
    let from = |request: TestRequest, address: &str| {
        request.peer_addr(format!("{address}:1").parse().unwrap()).insert_header(("X-User-Id", "7"))
    };
    let enter = |address| send_to(&data, from(TestRequest::post().uri(ENTRIES), address));
    assert_eq!(enter("192.0.2.1").await.status, 200);
    let got = enter("192.0.2.1").await;
    got.is_problem(429, "RATE_LIMITED");
    assert_eq!(got.header("retry-after"), Some("1"));
    assert_eq!(enter("192.0.2.2").await.status, 200, "from elsewhere");
    for _ in 0..5 {
        assert_eq!(
            send_to(&data, from(TestRequest::get().uri(ME), "192.0.2.1")).await.status,
            200,
            "the place is kept"
        );
    }
}
