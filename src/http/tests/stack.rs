//! The middleware around everything.

use std::{
    io,
    sync::{Arc, Mutex},
};

use actix_web::{HttpResponse, error, http::header::HeaderValue};

use super::*;

#[actix_web::test]
async fn answers_are_counted_by_template_and_never_by_path() {
    let state = state(plain());
    let brew = || TestRequest::default().method("BREW".parse().unwrap());
    for request in [
        TestRequest::post().uri(ENTRIES).insert_header(("X-User-Id", "7")),
        TestRequest::post().uri(ENTRIES),
        TestRequest::post().uri("/virtual-queues/limited-drop/007/entries"),
        brew().uri(ENTRIES),
        brew().uri("/secret-path"),
    ] {
        send_to(&state, request).await;
    }
    let text = state.metrics.render();
    let route = "/virtual-queues/{type}/{targetId}/entries";
    for (method, route, status) in [
        ("POST", route, 200),
        ("POST", route, 400),
        ("POST", route, 404),
        ("other", route, 405),
        ("other", "unmatched", 404),
    ] {
        let line =
            format!(r#"virtual_queue_http_requests_total{{method="{method}",route="{route}",status="{status}"}} 1"#);
        assert!(text.contains(&line), "{line} in {text}");
    }
    for never in ["/limited-drop/", "secret-path", "BREW"] {
        assert!(!text.contains(never), "{never} in {text}");
    }
}

#[actix_web::test]
async fn a_request_id_is_repeated_if_it_is_harmless_and_made_up_if_not() {
    let ask = |id: Option<&[u8]>| {
        let mut request = TestRequest::get().uri("/nothing-here");
        if let Some(id) = id {
            request = request.insert_header(("X-Request-Id", HeaderValue::from_bytes(id).unwrap()));
        }
        send(plain(), request)
    };
    let longest = "a".repeat(64);
    for id in ["abc-123_X.y", longest.as_str()] {
        assert_eq!(ask(Some(id.as_bytes())).await.header("x-request-id"), Some(id));
    }
    let too_long = "a".repeat(65);
    let odd: [Option<&[u8]>; 6] =
        [None, Some(b""), Some(b"a b"), Some(b"\xff"), Some(b"\"><script>"), Some(too_long.as_bytes())];
    for id in odd {
        let got = ask(id).await;
        assert_eq!(got.header("x-request-id").map(str::len), Some(36), "a UUID for {id:?}: {got:?}");
    }
}

#[actix_web::test]
async fn no_answer_names_the_server() {
    let got = send(plain(), TestRequest::get().uri("/health/live")).await;
    assert_eq!(got.header("server"), None);
}

/// A cause that must not be in the answer.
const CAUSE: &str = "password=hunter2";

async fn answer_beside_a_shop(path: &str) -> Got {
    let state = state(plain());
    let app = App::new()
        .app_data(state)
        .route("/internal", web::get().to(|| async { Err::<HttpResponse, _>(error::ErrorInternalServerError(CAUSE)) }))
        .route("/query", web::get().to(|_: web::Query<std::collections::HashMap<u8, u8>>| HttpResponse::Ok()))
        .route("/forgotten", web::get().to(|_: web::Data<u128>| HttpResponse::Ok()))
        .route("/shop", web::get().to(|| async { HttpResponse::NotFound().content_type("text/html").body("<h1>404") }));
    let app = init_service(with_middleware(app)).await;
    Got::read(app.call(TestRequest::get().uri(path).to_request()).await).await
}

#[actix_web::test]
async fn an_error_of_anybody_is_a_problem_without_its_cause() {
    for (path, status, code) in [
        ("/internal", 500, "INTERNAL_ERROR"),
        ("/forgotten", 500, "INTERNAL_ERROR"),
        ("/query?a=b", 400, "BAD_REQUEST"),
    ] {
        let got = answer_beside_a_shop(path).await;
        got.is_problem(status, code);
        assert!(!got.text.contains("hunter2") && !got.text.contains("Query"), "{got:?}");
    }
}

#[actix_web::test]
async fn a_shops_own_error_passes_as_it_is() {
    let got = answer_beside_a_shop("/shop").await;
    assert_eq!((got.status.as_u16(), got.text.as_str()), (404, "<h1>404"));
    assert_eq!(got.header("content-type"), Some("text/html"));
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[actix_web::test]
async fn the_log_has_the_template_and_the_status_and_nothing_a_client_sent() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    // The thread that first reaches a span or an event decides whether it is enabled. That may be a test on another
    // thread.
    send(plain(), TestRequest::get().uri("/health/live")).await;
    tracing::callsite::rebuild_interest_cache();
    for path in [format!("{ENTRIES}?pass=s3cret-query"), "/s3cret-path".to_owned()] {
        let request = TestRequest::post().uri(&path).insert_header(("X-Request-Id", "a-request"));
        let request = request.insert_header(("X-Entry-Token", "s3cret-pass")).insert_header(("X-User-Id", "7654321"));
        send(plain(), request.insert_header(("User-Agent", "s3cret-agent"))).await;
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains(r#"request_id="a-request" method="POST""#), "{log}");
    assert!(log.contains(r#"route="/virtual-queues/{type}/{targetId}/entries" status=200"#), "{log}");
    assert!(log.contains(r#"route="unmatched" status=404"#), "{log}");
    assert!(!log.contains("s3cret") && !log.contains("7654321"), "{log}");
}
