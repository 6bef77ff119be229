//! Questions of proxies: who is granted a purchase, and how a shop settles it.

use std::{sync::Arc, time::Duration};

use actix_web::http::header::{HeaderName, HeaderValue};

use super::*;
use crate::{
    clock::{FakeClock, StoreClock},
    domain::QueueTargetType,
    gate::{AlwaysOn, fake_store::FakeStore},
    metrics::Metrics,
    problem::Reason,
    store::{Claim as StoreClaim, StoreError},
    token::{EntryTokenIssuer, Keyring},
};

const NOW: u64 = 1_790_000_000;
const ORDERS: &str = "/limited-drops/42/orders";

struct ForwardAuthFixture {
    gate: EntryTokenGate,
    store: Arc<FakeStore>,
    metrics: Arc<Metrics>,
    headers: HeaderMap,
}

/// A gate, and the headers of user 7 with a valid pass for drop 42.
fn fixture() -> ForwardAuthFixture {
    let (keys, store, metrics) =
        (Arc::new(Keyring::random()), Arc::new(FakeStore::default()), Arc::new(Metrics::new()));
    let target = QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap();
    let pass = keys.mint(target, UserId::try_from(7).unwrap(), NOW + 300);
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("x-user-id"), HeaderValue::from_static("7"));
    headers.insert(HeaderName::from_static("x-entry-token"), pass.raw().parse().unwrap());
    let gate = EntryTokenGate::new(keys, Arc::new(AlwaysOn), StoreClock::new(FakeClock::at(NOW * 1000)))
        .single_use(store.clone())
        .metrics(metrics.clone())
        .shed_beyond(1);
    ForwardAuthFixture { gate, store, metrics, headers }
}

impl ForwardAuthFixture {
    async fn ask(&self, shop_settles: bool) -> Verdict {
        let uri = Uri::from_static(ORDERS);
        self.gate.judge(&Method::POST, &uri, &self.headers, shop_settles).await
    }

    async fn ask_about(&self, method: Method, path: &'static str) -> Verdict {
        self.gate.judge(&method, &Uri::from_static(path), &self.headers, false).await
    }
}

#[track_caller]
fn granted(verdict: Verdict) -> GrantedPurchase {
    match verdict {
        Verdict::Granted(granted) => granted,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn code(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Denied(problem) => {
            assert_eq!(problem.status, 403);
            problem.code
        }
        other => panic!("{other:?}"),
    }
}

#[actix_web::test]
async fn where_the_shop_does_not_settle_asking_spends_the_pass() {
    let fixture = fixture();
    let purchase = granted(fixture.ask(false).await);
    assert_eq!((purchase.user.get(), purchase.target.id(), purchase.degraded), (7, 42, false));
    assert_eq!(purchase.claim, None);
    assert_eq!(fixture.store.settled(), [Settlement::Spent]);
    assert_eq!(code(fixture.ask(false).await), "QUEUE_BYPASS_DENIED");
    assert!(!fixture.metrics.render().contains("virtual_queue_bypass_attempts_total{"), "that is no bypass");
}

#[actix_web::test]
async fn where_the_shop_settles_the_pass_is_held_until_it_does() {
    let fixture = fixture();
    let purchase = granted(fixture.ask(true).await);
    assert_eq!(code(fixture.ask(true).await), "PASS_IN_USE");
    let claim = purchase.claim.expect("to settle with").to_string().parse::<ClaimHandle>().expect("reads back");
    fixture.gate.settle(purchase.target, purchase.user, Some(&claim), Settlement::GivenBack).await.unwrap();
    let again = granted(fixture.ask(true).await).claim.expect("to settle with");
    assert_ne!(again, claim);
    fixture.gate.settle(purchase.target, purchase.user, Some(&again), Settlement::Spent).await.unwrap();
    assert_eq!(code(fixture.ask(true).await), "QUEUE_BYPASS_DENIED");
}

#[actix_web::test]
async fn a_store_that_is_away_stops_nobody_and_is_told_afterwards() {
    let mut fixture = fixture();
    fixture.gate.retry_pause = Duration::from_millis(1);
    fixture.store.state.lock().unwrap().claim_answers.push_back(Err(StoreError::TimedOut));
    assert!(granted(fixture.ask(false).await).degraded);
    while fixture.store.settled().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fixture.store.settled(), [Settlement::Spent]);
}

#[actix_web::test]
async fn refusals_are_counted_as_the_gates() {
    let mut fixture = fixture();
    assert_eq!(fixture.ask_about(Method::GET, ORDERS).await, Verdict::Free);
    assert_eq!(code(fixture.ask_about(Method::POST, "//limited-drops/42/orders").await), "QUEUE_BYPASS_DENIED");
    assert_eq!(code(fixture.ask_about(Method::POST, "/limited-drops/042/orders").await), "UNKNOWN_TARGET");
    fixture.headers.remove("x-entry-token");
    assert_eq!(code(fixture.ask(false).await), "QUEUE_BYPASS_DENIED");
    let text = fixture.metrics.render();
    assert!(text.contains(r#"virtual_queue_bypass_attempts_total{reason="odd_path"} 2"#), "{text}");
    assert!(text.contains(r#"virtual_queue_bypass_attempts_total{reason="no_pass"} 1"#), "{text}");
}

#[actix_web::test]
async fn a_header_that_the_shop_may_take_for_ours_is_refused_with_any_request() {
    for name in ["x_user_id", "x.entry.token", "x-virtual-queue-user", "x_virtual_queue_claim"] {
        let mut fixture = fixture();
        fixture.headers.insert(HeaderName::from_static(name), HeaderValue::from_static("8"));
        assert_eq!(code(fixture.ask(false).await), "UNCLEAR_REQUEST", "{name}");
        assert_eq!(code(fixture.ask_about(Method::GET, "/").await), "UNCLEAR_REQUEST", "{name}");
        assert_eq!(fixture.store.settled(), [], "{name}: the pass is not touched");
        let counted = r#"virtual_queue_bypass_attempts_total{reason="look_alike_header"} 2"#;
        assert!(fixture.metrics.render().contains(counted), "{name}");
    }
}

#[actix_web::test]
async fn of_a_kind_that_does_not_exist_nothing_is_sold_under_any_spelling() {
    let mut fixture = fixture();
    fixture.gate = fixture.gate.without(QueueTargetType::LimitedDrop);
    for path in [ORDERS, "//limited-drops/42/orders", "/limited-drops/042/orders"] {
        assert_eq!(code(fixture.ask_about(Method::POST, path).await), "UNKNOWN_TARGET", "{path}");
    }
    assert_eq!(fixture.ask_about(Method::GET, ORDERS).await, Verdict::Free);
    assert!(!fixture.metrics.render().contains("virtual_queue_bypass_attempts_total{"));
}

/// The same for user 7 with a pass for event 5.
fn at_the_event() -> ForwardAuthFixture {
    let mut fixture = fixture();
    let event = QueueTarget::new(QueueTargetType::TicketingEvent, 5).unwrap();
    let keys = Arc::new(Keyring::random());
    let pass = keys.mint(event, UserId::try_from(7).unwrap(), NOW + 300);
    fixture.headers.insert(HeaderName::from_static("x-entry-token"), pass.raw().parse().unwrap());
    fixture.gate.guard = keys;
    fixture
}

impl ForwardAuthFixture {
    async fn ask_for(&self, path: &'static str, shop_settles: bool) -> Verdict {
        self.gate.judge(&Method::POST, &Uri::from_static(path), &self.headers, shop_settles).await
    }
}

const SELECT: &str = "/events/5/seats/select";
const TICKETS: &str = "/events/5/tickets";

#[actix_web::test]
async fn a_route_that_does_not_spend_is_checked_and_never_claimed() {
    for shop_settles in [false, true] {
        let fixture = at_the_event();
        for _ in 0..3 {
            let purchase = granted(fixture.ask_for(SELECT, shop_settles).await);
            assert_eq!((purchase.user.get(), purchase.claim, purchase.degraded), (7, None, false));
        }
        assert!(!fixture.store.is_claimed() && fixture.store.settled().is_empty());
        fixture.store.state.lock().unwrap().check_answer = Some(Ok(StoreClaim::Spent));
        match fixture.ask_for(SELECT, shop_settles).await {
            Verdict::Denied(problem) => {
                assert_eq!((problem.code, problem.reason), ("QUEUE_BYPASS_DENIED", Some(Reason::Spent)));
            }
            other => panic!("{other:?}"),
        }
        fixture.store.state.lock().unwrap().check_answer = Some(Err(StoreError::TimedOut));
        assert!(granted(fixture.ask_for(SELECT, shop_settles).await).degraded, "signature and expiry are good");
        assert!(fixture.metrics.render().contains(r#"virtual_queue_redis_degraded_total{operation="gate"} 1"#));
    }
}

#[actix_web::test]
async fn a_route_that_needs_no_pass_is_granted_and_the_shop_settles_it_by_its_user() {
    let mut fixture = at_the_event();
    fixture.headers.remove("x-entry-token");
    let purchase = granted(fixture.ask_for(TICKETS, true).await);
    assert_eq!((purchase.user.get(), purchase.target.id(), purchase.claim, purchase.degraded), (7, 5, None, false));
    assert!(fixture.store.settled().is_empty() && fixture.store.state.lock().unwrap().spent_all.is_empty());
    let settle = |how| fixture.gate.settle(purchase.target, purchase.user, None, how);
    settle(Settlement::GivenBack).await.unwrap();
    assert!(fixture.store.state.lock().unwrap().spent_all.is_empty(), "there is nothing to give back");
    settle(Settlement::Spent).await.unwrap();
    assert_eq!(fixture.store.state.lock().unwrap().spent_all.len(), 1);
    granted(fixture.ask_for(TICKETS, false).await);
    assert_eq!(fixture.store.state.lock().unwrap().spent_all.len(), 1, "asking tells nothing of success");
    fixture.headers.remove("x-user-id");
    assert_eq!(code(fixture.ask_for(TICKETS, true).await), "QUEUE_BYPASS_DENIED");
}

#[test]
fn a_claim_has_one_spelling() {
    let good = format!("1790000300-{}", "0a".repeat(16));
    assert_eq!(good.parse::<ClaimHandle>().unwrap().to_string(), good);
    assert!(!format!("{:?}", good.parse::<ClaimHandle>().unwrap()).contains("0a0a"));
    let nonce = "0a".repeat(16);
    for bad in [
        String::new(),
        "1790000300".to_owned(),
        format!("-{nonce}"),
        format!("+1-{nonce}"),
        format!("01-{nonce}"),
        format!("999999999999-{nonce}"),
        format!("1790000300-{nonce}0"),
        format!("1790000300-{}", "0A".repeat(16)),
        format!("1790000300-{} ", "0".repeat(31)),
    ] {
        assert_eq!(bad.parse::<ClaimHandle>(), Err(NotAClaimHandle), "{bad}");
    }
}
