//! The whole HTTP part, from request to response, on an empty queue.

mod admin;
mod bad_input;
mod contract;
mod cross_origin;
mod description;
mod stack;
mod wire;

use std::sync::Arc;

use actix_web::{
    App, Error,
    body::{MessageBody, to_bytes},
    dev::{Service, ServiceResponse},
    http::{StatusCode, header::HeaderMap},
    test::{TestRequest, init_service},
    web,
};
use serde_json::Value;

use super::*;
use crate::{
    clock::{FakeClock, StoreClock},
    config::{Config, OnFailure},
    flags::{AUDIT_KEPT, EmbeddedFlagSource, FeatureFlags},
    gate::EntryTokenGate,
    identity::Identify,
    metrics::Metrics,
    service::{ServiceParts, VirtualQueueService},
    store::{QueueRules, embedded::EmbeddedStore},
    token::Keyring,
};

const ENTRIES: &str = "/virtual-queues/limited-drop/42/entries";
const ME: &str = "/virtual-queues/limited-drop/42/entries/me";
const STATS: &str = "/virtual-queues/limited-drop/42/stats";
const ADMIN_TOKEN: &str = "a token that only operators know";

/// A service with empty queues.
fn unused_service(clock: &StoreClock, flags: &Arc<FeatureFlags>) -> Arc<VirtualQueueService> {
    let (config, metrics) = (Config::parse_default(), Arc::new(Metrics::new()));
    let parts = ServiceParts {
        store: EmbeddedStore::new(QueueRules::from_config(&config), clock.clone(), metrics.clone()),
        flags: flags.clone(),
        issuer: Arc::new(Keyring::random()),
        clock: clock.clone(),
        metrics,
    };
    Arc::new(VirtualQueueService::new(parts, &config))
}

fn plain() -> HttpOptions {
    HttpOptions { limited_drops: true, cookie: false, admin: None, settle: None, cors: None, served: served(|_| ()) }
}

/// The served routes with the default configuration after `change`.
fn served(change: impl FnOnce(&mut Config)) -> Served {
    let mut config = Config::parse_default();
    change(&mut config);
    Served::from_config(&config)
}

/// With all routes that need a token.
fn with_admin() -> HttpOptions {
    let key = || Some(BearerKey::new(&ADMIN_TOKEN.into()));
    let served = served(|config| {
        config.admin.token = Some(ADMIN_TOKEN.into());
        config.gate.settle_token = Some(ADMIN_TOKEN.into());
    });
    HttpOptions { admin: key(), settle: key(), served, ..plain() }
}

fn state(options: HttpOptions) -> web::Data<HttpState> {
    let clock = StoreClock::new(FakeClock::at(1_790_000_000_000));
    let source = Arc::new(EmbeddedFlagSource::new(clock.clone(), AUDIT_KEPT));
    let flags = Arc::new(FeatureFlags::new(source, true, OnFailure::Open));
    let metrics = Arc::new(Metrics::new());
    let gate = EntryTokenGate::new(Arc::new(Keyring::random()), flags.clone(), clock.clone()).metrics(metrics.clone());
    web::Data::new(HttpState {
        service: unused_service(&clock, &flags),
        gate,
        flags,
        identity: Identify::by_header(),
        enter_limit: None,
        metrics,
        clock,
        lifecycle: Arc::new(Lifecycle::new()),
        options,
    })
}

/// An answer, read to its end.
#[derive(Debug)]
struct Got {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Got {
    async fn read(response: Result<ServiceResponse<impl MessageBody>, Error>) -> Self {
        let (_, response) = response.expect("middleware gives responses").into_parts();
        let (head, body) = response.into_parts();
        let text = to_bytes(body).await.unwrap_or_else(|_| panic!("a body breaks off"));
        Self {
            status: head.status(),
            headers: head.headers().clone(),
            text: String::from_utf8(text.to_vec()).expect("answers are UTF-8"),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts a complete problem with this status and code.
    #[track_caller]
    fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        let body = self.json();
        assert_eq!((&body["code"], &body["status"]), (&code.into(), &status.into()), "{self:?}");
        for field in ["type", "title", "detail"] {
            assert!(body[field].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        }
    }
}

/// Sends one request to a fresh application.
async fn send(options: HttpOptions, request: TestRequest) -> Got {
    send_to(&state(options), request).await
}

async fn send_to(state: &web::Data<HttpState>, request: TestRequest) -> Got {
    let app = App::new()
        .app_data(state.clone())
        .configure(queue_routes)
        .configure(forward_auth_routes)
        .configure(management_routes)
        .configure(no_shop_routes)
        .default_service(web::to(not_found));
    let app = init_service(with_middleware(app)).await;
    Got::read(app.call(request.to_request()).await).await
}
