//! The answers to valid requests.

use actix_web::{HttpResponse, body::to_bytes};
use serde_json::json;

use super::{super::entry, *};
use crate::{
    domain::{EntryToken, Pacing, QueuePosition, QueueStats, QueueStatus, QueueTarget, WaitHistogram},
    service::Answer,
};

const NOW: u64 = 1_790_000_000;

fn drop_42() -> QueueTarget {
    QueueTarget::from_path("limited-drop", "42").unwrap()
}

fn answer(status: QueueStatus) -> Answer {
    Answer { status, poll_after_seconds: None, paused: false, degraded: false }
}

fn place() -> QueuePosition {
    let pacing = Pacing { batch: 100, tick_ms: 2000 };
    QueuePosition { seq: 777, ahead: 250, pacing, next_tick_in_ms: 300, paused: false, moving: true }
}

fn pass() -> EntryToken {
    EntryToken::new("cGF5bG9hZA.dGFn".to_owned(), NOW + 300)
}

async fn body(response: HttpResponse) -> Value {
    assert_eq!(response.headers().get("content-type").unwrap(), "application/json");
    serde_json::from_slice(&to_bytes(response.into_body()).await.unwrap()).unwrap()
}

#[actix_web::test]
async fn an_entry_has_all_its_fields_in_every_state() {
    let waiting = Answer { poll_after_seconds: Some(2), ..answer(QueueStatus::Waiting(place())) };
    let paused_place = QueuePosition { paused: true, moving: false, ..place() };
    let paused = Answer { poll_after_seconds: Some(15), paused: true, ..answer(QueueStatus::Waiting(paused_place)) };
    let unknown = Answer { poll_after_seconds: Some(1), degraded: true, ..answer(QueueStatus::WaitingUnknown) };
    for (answer, expected) in [
        (
            waiting,
            json!({"status": "WAITING", "position": 777, "aheadCount": 250, "etaSeconds": 5, "entryToken": null,
                "tokenExpiresAt": null, "pollAfterSeconds": 2, "paused": false}),
        ),
        (
            paused,
            json!({"status": "WAITING", "position": 777, "aheadCount": 250, "etaSeconds": null, "entryToken": null,
                "tokenExpiresAt": null, "pollAfterSeconds": 15, "paused": true}),
        ),
        (
            unknown,
            json!({"status": "WAITING", "position": null, "aheadCount": null, "etaSeconds": null, "entryToken": null,
                "tokenExpiresAt": null, "pollAfterSeconds": 1, "paused": false}),
        ),
        (
            answer(QueueStatus::Admitted(pass())),
            json!({"status": "ADMITTED", "position": null, "aheadCount": null, "etaSeconds": null,
                "entryToken": "cGF5bG9hZA.dGFn", "tokenExpiresAt": "2026-09-21T14:18:20Z", "pollAfterSeconds": null,
                "paused": false}),
        ),
        (
            answer(QueueStatus::DirectAdmitted(pass())),
            json!({"status": "DIRECT_ADMITTED", "position": null, "aheadCount": null, "etaSeconds": null,
                "entryToken": "cGF5bG9hZA.dGFn", "tokenExpiresAt": "2026-09-21T14:18:20Z", "pollAfterSeconds": null,
                "paused": false}),
        ),
    ] {
        let response = entry::entry(drop_42(), &answer, None);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers().get("cache-control").unwrap(), "no-store");
        assert!(!response.headers().contains_key("set-cookie"), "no cookie unless configured");
        assert_eq!(body(response).await, expected);
    }
}

#[actix_web::test]
async fn what_is_answered_without_the_store_says_so() {
    for degraded in [true, false] {
        let answer = Answer { degraded, ..answer(QueueStatus::DirectAdmitted(pass())) };
        let expected = degraded.then_some("redis");
        for response in [entry::entry(drop_42(), &answer, None), entry::left(drop_42(), degraded, false)] {
            let header = response.headers().get("x-virtual-queue-degraded").map(|value| value.to_str().unwrap());
            assert_eq!(header, expected);
        }
    }
}

#[actix_web::test]
async fn the_cookie_carries_a_pass_for_as_long_as_it_lives_and_nothing_else() {
    for status in [QueueStatus::Admitted(pass()), QueueStatus::DirectAdmitted(pass())] {
        for (now, left) in [(NOW, 300), (NOW + 299, 1), (NOW + 400, 0)] {
            let response = entry::entry(drop_42(), &answer(status.clone()), Some(now));
            assert_eq!(
                response.headers().get("set-cookie").unwrap().to_str().unwrap(),
                format!("vq_limited-drop_42=cGF5bG9hZA.dGFn; HttpOnly; Secure; SameSite=Lax; Path=/; Max-Age={left}")
            );
        }
    }
    for status in [QueueStatus::Waiting(place()), QueueStatus::WaitingUnknown] {
        let response = entry::entry(drop_42(), &answer(status), Some(NOW));
        assert!(!response.headers().contains_key("set-cookie"));
    }
}

#[actix_web::test]
async fn leaving_takes_the_cookie_back() {
    let cookie = |taken| {
        let response = entry::left(drop_42(), false, taken);
        response.headers().get("set-cookie").map(|value| value.to_str().unwrap().to_owned())
    };
    let gone = "vq_limited-drop_42=; HttpOnly; Secure; SameSite=Lax; Path=/; Max-Age=0";
    assert_eq!((cookie(true).as_deref(), cookie(false)), (Some(gone), None));
}

#[actix_web::test]
async fn stats_name_every_term_of_the_books() {
    let mut stats = QueueStats::unused(100_000, Pacing { batch: 100, tick_ms: 2000 }, true);
    (stats.entered, stats.waiting, stats.issued, stats.left, stats.evicted) = (20, 5, 10, 2, 3);
    (stats.live, stats.consumed, stats.expired, stats.revoked) = (1, 6, 2, 1);
    (stats.direct, stats.direct_consumed, stats.admitted, stats.admitted_through, stats.last_number) =
        (8, 7, 12, 14, 21);
    stats.admission_rate_per_sec = 0.2;
    stats.waits = WaitHistogram::from_buckets(vec![(0, 50), (2, 46), (4, 4)], 60_000);
    let response = entry::stats(&stats);
    assert_eq!(response.headers().get("cache-control").unwrap(), "no-store");
    assert_eq!(
        body(response).await,
        json!({
            "waitingCount": 5, "admittedCount": 12, "admissionRatePerSec": 0.2, "avgWaitSeconds": 0.6,
            "p95WaitSeconds": 1.25, "admittedThrough": 14, "lastNumber": 21, "entered": 20, "issued": 10, "left": 2,
            "evicted": 3, "live": 1, "consumed": 6, "expired": 2, "revoked": 1, "direct": 8, "directConsumed": 7,
            "p50WaitSeconds": 0.25, "p99WaitSeconds": 2.25, "capacity": 100_000, "targetRatePerSec": 50.0,
            "paused": true,
        })
    );
}

#[actix_web::test]
async fn enter_poll_leave_and_stats_are_where_the_contract_says() {
    let buyer = |request: TestRequest| request.insert_header(("X-User-Id", "7"));
    let entered = send(plain(), buyer(TestRequest::post().uri(ENTRIES))).await;
    assert_eq!((entered.status.as_u16(), &entered.json()["position"]), (200, &json!(1)), "{entered:?}");
    send(plain(), buyer(TestRequest::get().uri(ME))).await.is_problem(404, "NOT_IN_QUEUE");
    let left = send(plain(), buyer(TestRequest::delete().uri(ME))).await;
    assert_eq!((left.status.as_u16(), left.text.as_str()), (204, ""));
    assert_eq!(left.header("cache-control"), Some("no-store"));
    let stats = send(plain(), TestRequest::get().uri(STATS)).await;
    assert_eq!((stats.status.as_u16(), &stats.json()["entered"]), (200, &json!(0)), "nobody's id is asked");
}

#[actix_web::test]
async fn head_works_where_get_does() {
    for path in [STATS, "/openapi.json", "/metrics", "/health/live", "/admin/flags/virtual-queue.enabled"] {
        let operator = ("Authorization", format!("Bearer {ADMIN_TOKEN}"));
        let request = TestRequest::default().method(actix_web::http::Method::HEAD).uri(path).insert_header(operator);
        assert_eq!(send(with_admin(), request).await.status, 200, "{path}");
    }
}

#[actix_web::test]
async fn ready_follows_the_life_of_the_process_and_live_does_not() {
    let state = state(plain());
    let ready = || send_to(&state, TestRequest::get().uri("/health/ready"));
    let starting = ready().await;
    starting.is_problem(503, "NOT_READY");
    assert_eq!(starting.header("retry-after"), Some("1"));
    state.lifecycle.serving();
    let serving = ready().await;
    let unknown = json!({"status": "ready", "redis": "ok", "flag": "unknown"});
    assert_eq!((serving.status.as_u16(), serving.json()), (200, unknown));
    state.flags.first_read().await;
    assert_eq!(ready().await.json()["flag"], "known");
    state.lifecycle.draining();
    ready().await.is_problem(503, "NOT_READY");
    assert_eq!(send_to(&state, TestRequest::get().uri("/health/live")).await.status, 200);
}

#[actix_web::test]
async fn without_a_shop_purchases_are_told_to_come_back() {
    for path in ["/limited-drops/42/orders", "/events/42/seats/select", "/events/42/tickets"] {
        let got = send(plain(), TestRequest::post().uri(path)).await;
        got.is_problem(503, "NO_SHOP");
        assert_eq!(got.header("retry-after"), Some("60"));
    }
}

#[actix_web::test]
async fn metrics_are_in_the_text_format() {
    let state = state(plain());
    state.metrics.breaker_opened();
    let got = send_to(&state, TestRequest::get().uri("/metrics")).await;
    assert_eq!(got.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(got.text.contains("virtual_queue_redis_breaker_open 1"), "{}", got.text);
}

#[actix_web::test]
async fn without_limited_drops_their_queue_is_unknown_and_events_go_on() {
    let off = || HttpOptions { limited_drops: false, ..plain() };
    for (method, path) in [("POST", ENTRIES), ("GET", ME), ("DELETE", ME), ("GET", STATS)] {
        let request = |path: &str| {
            let method = method.parse().unwrap();
            TestRequest::default().method(method).uri(path).insert_header(("X-User-Id", "7"))
        };
        send(off(), request(path)).await.is_problem(404, "UNKNOWN_TARGET");
        let event = path.replace("limited-drop", "ticketing-event");
        let got = send(off(), request(&event)).await;
        assert_ne!(got.status, 503, "{got:?}");
        assert!(!got.text.contains("UNKNOWN_TARGET"), "{method} {event}: {got:?}");
    }
}
