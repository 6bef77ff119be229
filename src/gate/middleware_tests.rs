use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    body::{self, BoxBody},
    dev::{Payload, fn_service},
    test,
    web::{self, Bytes},
};
use futures_util::stream;
use tokio::{
    io::AsyncWriteExt,
    sync::{Notify, mpsc},
};

use super::*;
use crate::{
    clock::FakeClock,
    config::{Config, IdentityConfig, IdentityMode, JwtAlgorithm},
    domain::{QueueTarget, QueueTargetType, UserId},
    flags::Reach,
    gate::{AlwaysOn, fake_store::FakeStore},
    store::{Claim, Settlement, StoreError},
    token::{EntryTokenIssuer, Keyring},
};

const NOW: u64 = 1_790_000_000;
const ORDERS: &str = "/limited-drops/42/orders";

fn target(kind: QueueTargetType, id: u64) -> QueueTarget {
    QueueTarget::new(kind, id).unwrap()
}

/// The flag, on for these people; everybody else is not in the roll-out.
struct OnFor(HashSet<u64>);

impl FeatureFlagEvaluator for OnFor {
    fn is_enabled(&self, _: QueueTarget, user: UserId) -> bool {
        self.0.contains(&user.get())
    }
    fn reach(&self, _: QueueTarget) -> Reach {
        if self.0.is_empty() { Reach::Nobody } else { Reach::SomePeople }
    }
    fn names(&self, _: QueueTarget) -> bool {
        false
    }
}

/// The flag, on for one target.
struct OnAt(QueueTarget);

impl FeatureFlagEvaluator for OnAt {
    fn is_enabled(&self, target: QueueTarget, _: UserId) -> bool {
        target == self.0
    }
    fn reach(&self, target: QueueTarget) -> Reach {
        if target == self.0 { Reach::Everybody } else { Reach::Nobody }
    }
    fn names(&self, target: QueueTarget) -> bool {
        target == self.0
    }
}

/// A gate with a shop behind it that does as told and remembers what it saw.
struct Doors {
    keys: Arc<Keyring>,
    store: Arc<FakeStore>,
    metrics: Arc<Metrics>,
    gate: EntryTokenGate,
    shop: Rc<Shop>,
}

/// Header lines, path and body of a request.
type Seen = (Vec<(String, String)>, String, Bytes);

#[derive(Default)]
struct Shop {
    /// The status it answers; 0: its middleware gives an error without an answer.
    answers: Cell<u16>,
    no_answer: Cell<bool>,
    panics: Cell<bool>,
    /// It waits for this before it answers.
    wait: RefCell<Option<Rc<Notify>>>,
    /// Each request.
    saw: RefCell<Vec<Seen>>,
}

impl Shop {
    async fn answer(shop: Rc<Self>, req: &HttpRequest, body: Bytes) -> HttpResponse {
        let line =
            |(name, value): (&HeaderName, &HeaderValue)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned());
        let mut lines: Vec<_> = req.headers().iter().map(line).collect();
        lines.sort_unstable();
        shop.saw.borrow_mut().push((lines, req.uri().to_string(), body));
        let wait = shop.wait.borrow().clone();
        if let Some(wait) = wait {
            wait.notified().await;
        }
        assert!(!shop.panics.get(), "the shop fell over, as told");
        let mut response = HttpResponse::build(StatusCode::from_u16(shop.answers.get()).unwrap());
        if shop.no_answer.get() {
            response.extensions_mut().insert(NoAnswerFromShop);
        }
        response.body("from the shop")
    }

    fn visits(&self) -> usize {
        self.saw.borrow().len()
    }
}

impl Doors {
    fn new() -> Self {
        Self::with_flags(Arc::new(AlwaysOn))
    }

    fn with_flags(flags: Arc<dyn FeatureFlagEvaluator>) -> Self {
        let keys = Arc::new(Keyring::random());
        let store = Arc::new(FakeStore::default());
        let metrics = Arc::new(Metrics::new());
        let mut gate = EntryTokenGate::new(keys.clone(), flags, StoreClock::new(FakeClock::at(NOW * 1000)))
            .single_use(store.clone())
            .metrics(metrics.clone());
        gate.retry_pause = Duration::from_millis(1);
        let shop = Rc::new(Shop::default());
        shop.answers.set(201);
        Self { keys, store, metrics, gate, shop }
    }

    fn pass(&self, user: u64) -> String {
        self.pass_until(target(QueueTargetType::LimitedDrop, 42), user, NOW + 300)
    }

    fn pass_until(&self, target: QueueTarget, user: u64, expires_at: u64) -> String {
        self.keys.mint(target, UserId::try_from(user).unwrap(), expires_at).raw().to_owned()
    }

    async fn open(
        &self,
    ) -> impl Service<ServiceRequest, Response = ServiceResponse<EitherBody<BoxBody>>, Error = Error> + use<> {
        let shop = self.shop.clone();
        let shop = fn_service(move |mut req: ServiceRequest| {
            let shop = shop.clone();
            async move {
                let body = req.extract::<Bytes>().await?;
                let response = Shop::answer(shop, req.request(), body).await;
                Ok::<_, Error>(req.into_response(response))
            }
        });
        self.gate.new_transform(shop).await.unwrap()
    }

    async fn send(&self, path: &str, lines: &[(&str, &str)]) -> Answered {
        let app = self.open().await;
        answered(app.call(post(path, lines)).await).await
    }

    async fn buy(&self, user: u64, pass: &str) -> Answered {
        self.send(ORDERS, &[("X-User-Id", &user.to_string()), ("X-Entry-Token", pass)]).await
    }

    fn counted(&self, series: &str) -> bool {
        self.metrics.render().lines().any(|line| line == series)
    }
}

#[derive(Debug)]
struct Answered {
    status: u16,
    code: Option<String>,
    retry_after: Option<String>,
    degraded: Option<String>,
}

fn post(path: &str, lines: &[(&str, &str)]) -> ServiceRequest {
    let mut req = test::TestRequest::post().uri(path).set_payload("{\"quantity\":1}");
    for (name, value) in lines {
        req = req.append_header((*name, *value));
    }
    req.to_srv_request()
}

async fn answered<B: MessageBody>(answer: Result<ServiceResponse<B>, Error>) -> Answered {
    let response = answer.expect("the gate answers with a response");
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, retry_after, degraded) =
        (response.status().as_u16(), header("retry-after"), header("x-virtual-queue-degraded"));
    let body = body::to_bytes(response.into_body()).await.ok().unwrap();
    let code = serde_json::from_slice::<serde_json::Value>(&body)
        .ok()
        .and_then(|body| body.get("code").and_then(|code| code.as_str().map(str::to_owned)));
    Answered { status, code, retry_after, degraded }
}

#[track_caller]
fn assert_denied(answer: &Answered) {
    assert_eq!((answer.status, answer.code.as_deref()), (403, Some("QUEUE_BYPASS_DENIED")));
}

#[actix_web::test]
async fn a_valid_pass_reaches_the_shop_once() {
    let doors = Doors::new();
    let pass = doors.pass(7);
    assert_eq!(doors.buy(7, &pass).await.status, 201);
    assert_eq!(doors.store.settled(), [Settlement::Spent]);
    assert_denied(&doors.buy(7, &pass).await);
    assert_eq!(doors.shop.visits(), 1);
    assert!(!doors.metrics.render().contains("bypass_attempts_total{"), "a spent pass is no attempt to get round");
}

#[actix_web::test]
async fn whatever_is_wrong_with_a_pass_it_is_denied_and_counted() {
    let drop_42 = target(QueueTargetType::LimitedDrop, 42);
    let event_42 = target(QueueTargetType::TicketingEvent, 42);
    let drop_43 = target(QueueTargetType::LimitedDrop, 43);
    let doors = Doors::new();
    let good = doors.pass(7);
    for (reason, lines) in [
        ("no_pass", vec![("X-User-Id", "7".to_owned())]),
        ("no_user", vec![("X-Entry-Token", good.clone())]),
        ("no_user", vec![("X-User-Id", "007".to_owned()), ("X-Entry-Token", good.clone())]),
        ("no_user", vec![("X-User-Id", "7".into()), ("X-User-Id", "7".into()), ("X-Entry-Token", good.clone())]),
        (
            "forged",
            vec![
                ("X-User-Id", "7".into()),
                (
                    "X-Entry-Token",
                    Keyring::random().mint(drop_42, UserId::try_from(7).unwrap(), NOW + 300).raw().to_owned(),
                ),
            ],
        ),
        ("forged", vec![("X-User-Id", "7".into()), ("X-Entry-Token", String::new())]),
        ("forged", vec![("X-User-Id", "7".into()), ("X-Entry-Token", good.clone()), ("X-Entry-Token", good.clone())]),
        ("expired", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(drop_42, 7, NOW))]),
        ("expired", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(drop_42, 7, NOW - 1))]),
        ("other_user", vec![("X-User-Id", "8".into()), ("X-Entry-Token", good.clone())]),
        ("other_target", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(drop_43, 7, NOW + 300))]),
        ("other_target", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(event_42, 7, NOW + 300))]),
    ] {
        let lines: Vec<(&str, &str)> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_denied(&doors.send(ORDERS, &lines).await);
        assert!(doors.metrics.render().contains(&format!("attempts_total{{reason=\"{reason}\"}}")), "{reason}");
    }
    for path in ["/limited-drops/42//orders", "/limited-drops/42/Orders"] {
        assert_denied(&doors.send(path, &[("X-User-Id", "7"), ("X-Entry-Token", &good)]).await);
    }
    let odd_id = doors.send("/limited-drops/042/orders", &[("X-User-Id", "7"), ("X-Entry-Token", &good)]).await;
    assert_eq!((odd_id.status, odd_id.code.as_deref()), (404, Some("UNKNOWN_TARGET")));
    assert_eq!(doors.shop.visits(), 0);
    for series in [
        r#"virtual_queue_bypass_attempts_total{reason="no_user"} 3"#,
        r#"virtual_queue_bypass_attempts_total{reason="forged"} 3"#,
        r#"virtual_queue_bypass_attempts_total{reason="odd_path"} 3"#,
    ] {
        assert!(doors.counted(series), "{series}\n{}", doors.metrics.render());
    }
    assert_eq!(doors.buy(7, &good).await.status, 201, "and none of that harmed the pass");
}

#[actix_web::test]
async fn with_the_flag_off_a_request_passes_byte_for_byte() {
    let doors = Doors::with_flags(Arc::new(OnFor(HashSet::new())));
    let lines =
        [("X-User-Id", "not a number"), ("X-Entry-Token", "x"), ("X_User_Id", "8"), ("Cookie", "vq_limited-drop_42=x")];
    for path in [ORDERS, "/limited-drops/42//orders", "/limited-drops/%34%32/orders?a=%2F", "/limited-drops/x/orders"] {
        assert_eq!(doors.send(path, &lines).await.status, 201, "{path}");
        let saw = doors.shop.saw.borrow();
        let (headers, uri, body) = saw.last().unwrap();
        assert_eq!((uri.as_str(), body.as_ref()), (path, &b"{\"quantity\":1}"[..]));
        for (name, value) in lines {
            assert!(headers.contains(&(name.to_ascii_lowercase(), value.to_owned())), "{name}: {headers:?}");
        }
    }
    assert_eq!(doors.store.settled(), [], "and nothing is claimed");
}

#[actix_web::test]
async fn in_a_roll_out_only_the_people_in_it_need_a_pass() {
    let doors = Doors::with_flags(Arc::new(OnFor(HashSet::from([7]))));
    assert_eq!(doors.send(ORDERS, &[("X-User-Id", "8")]).await.status, 201);
    assert_eq!(doors.send("/limited-drops/42/orders/", &[("X-User-Id", "8")]).await.status, 201);
    assert_denied(&doors.send(ORDERS, &[("X-User-Id", "7")]).await);
    assert_denied(&doors.send("/limited-drops/42/orders/", &[("X-User-Id", "7")]).await);
    assert_denied(&doors.send(ORDERS, &[]).await);
    assert_denied(&doors.send(ORDERS, &[("X-User-Id", "8"), ("X-User-Id", "8")]).await);
    assert_denied(&doors.send("/limited-drops/42/orders/", &[]).await);
}

#[actix_web::test]
async fn a_rule_for_one_target_leaves_the_others_alone_under_every_spelling() {
    let doors = Doors::with_flags(Arc::new(OnAt(target(QueueTargetType::LimitedDrop, 42))));
    for path in [
        "/limited-drops/43/orders",
        "/limited-drops/043/orders",
        "/limited-drops/43/orders/",
        "/limited-drops/sale/orders",
    ] {
        assert_eq!(doors.send(path, &[]).await.status, 201, "{path}");
    }
    for path in [ORDERS, "/limited-drops/42/orders/"] {
        assert_denied(&doors.send(path, &[]).await);
    }
    assert_eq!(doors.send("/limited-drops/042/orders", &[]).await.status, 404);
}

#[actix_web::test]
async fn what_the_shop_answers_decides_what_becomes_of_the_pass() {
    use Settlement::{GivenBack, Spent};
    for (status, becomes) in [
        (200, Spent),
        (201, Spent),
        (303, Spent),
        (302, Spent),
        (400, GivenBack),
        (409, GivenBack),
        (500, GivenBack),
        (503, GivenBack),
    ] {
        let doors = Doors::new();
        doors.shop.answers.set(status);
        let pass = doors.pass(7);
        assert_eq!(doors.buy(7, &pass).await.status, status);
        assert_eq!(doors.store.settled(), [becomes], "{status}");
        doors.shop.answers.set(201);
        assert_eq!(doors.buy(7, &pass).await.status, if becomes == Spent { 403 } else { 201 }, "{status}");
    }
}

#[actix_web::test]
async fn without_an_answer_of_the_shop_the_pass_stays_claimed() {
    let doors = Doors::new();
    doors.shop.answers.set(504);
    doors.shop.no_answer.set(true);
    let pass = doors.pass(7);
    assert_eq!(doors.buy(7, &pass).await.status, 504);
    assert_eq!(doors.store.settled(), []);
    let second = doors.buy(7, &pass).await;
    assert_eq!((second.status, second.code.as_deref()), (409, Some("PASS_IN_USE")));
    assert_eq!(second.retry_after.as_deref(), Some("1"));
}

#[actix_web::test]
async fn a_shop_that_panics_gets_a_problem_answered_and_leaves_the_pass_claimed() {
    let doors = Doors::new();
    doors.shop.panics.set(true);
    let app = doors.open().await;
    let error = app.call(post(ORDERS, &[("X-User-Id", "7"), ("X-Entry-Token", &doors.pass(7))])).await.err().unwrap();
    assert_eq!(error.error_response().status(), 500);
    assert!(doors.store.is_claimed() && doors.store.settled().is_empty());
}

#[actix_web::test]
async fn of_fifty_purchases_at_once_with_one_pass_one_reaches_the_shop() {
    let doors = Doors::new();
    let app = doors.open().await;
    let wait = Rc::new(Notify::new());
    *doors.shop.wait.borrow_mut() = Some(wait.clone());
    let pass = doors.pass(7);
    let calls = (0..50).map(|_| app.call(post(ORDERS, &[("X-User-Id", "7"), ("X-Entry-Token", &pass)])));
    let calls = actix_rt::spawn(futures_util::future::join_all(calls));
    while doors.shop.visits() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    wait.notify_one();
    let mut statuses = Vec::new();
    for answer in calls.await.unwrap() {
        statuses.push(answered(answer).await.status);
    }
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (201, &[409; 49][..]));
    assert_eq!(doors.shop.visits(), 1);
}

#[actix_web::test]
async fn a_client_that_disconnects_in_the_middle_leaves_a_settled_pass() {
    let doors = Doors::new();
    let app = doors.open().await;
    let wait = Rc::new(Notify::new());
    *doors.shop.wait.borrow_mut() = Some(wait.clone());
    let call = app.call(post(ORDERS, &[("X-User-Id", "7"), ("X-Entry-Token", &doors.pass(7))]));
    let client = actix_rt::spawn(call);
    while doors.shop.visits() == 0 {
        tokio::task::yield_now().await;
    }
    client.abort();
    assert!(client.await.err().unwrap().is_cancelled());
    assert_eq!(doors.store.settled(), []);
    wait.notify_one();
    while doors.store.settled().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(doors.store.settled(), [Settlement::Spent]);
}

#[actix_web::test]
async fn a_store_that_is_away_stops_no_purchase_and_still_no_forgery() {
    for error in
        [StoreError::Unavailable("refused".to_owned()), StoreError::TimedOut, StoreError::Broken("?".to_owned())]
    {
        let mut doors = Doors::new();
        doors.gate.retry_pause = Duration::from_millis(50);
        doors.store.state.lock().unwrap().claim_answers.push_back(Err(error));
        let answer = doors.buy(7, &doors.pass(7)).await;
        assert_eq!((answer.status, answer.degraded.as_deref()), (201, Some("redis")));
        assert_eq!(doors.store.settled(), [], "nobody waits for the store twice");
        assert!(doors.counted(r#"virtual_queue_redis_degraded_total{operation="gate"} 1"#));
        let forged = Doors { keys: Arc::new(Keyring::random()), ..Doors::new() }.pass(7);
        assert_denied(&doors.buy(7, &forged).await);
        while doors.store.settled().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(doors.store.settled(), [Settlement::Spent], "the claim may have been taken: it is settled late");
        assert_denied(&doors.buy(7, &doors.pass(7)).await);
    }
}

#[actix_web::test]
async fn settling_that_fails_is_tried_again_for_as_long_as_it_matters() {
    let doors = Doors::new();
    doors.store.state.lock().unwrap().settle_failures = 3;
    let answer = doors.buy(7, &doors.pass(7)).await;
    assert_eq!((answer.status, answer.degraded), (201, None));
    while doors.store.settled().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(doors.store.settled(), [Settlement::Spent]);

    for (status, failures_left) in [(409, 95), (201, 0)] {
        let mut doors = Doors::new();
        doors.gate = doors.gate.lease(Duration::from_millis(4));
        doors.shop.answers.set(status);
        doors.store.state.lock().unwrap().settle_failures = 100;
        assert_eq!(doors.buy(7, &doors.pass(7)).await.status, status);
        while doors.gate.retrying.available_permits() < MAX_RETRYING {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let left = doors.store.state.lock().unwrap().settle_failures;
        assert_eq!(left, failures_left, "given back: as long as the lease; spent: as long as the pass");
    }
}

#[actix_web::test]
async fn what_the_store_says_against_a_pass_counts() {
    for (says, status) in [(Claim::Spent, 403), (Claim::Expired, 403), (Claim::InUse, 409)] {
        let doors = Doors::new();
        doors.store.state.lock().unwrap().claim_answers.push_back(Ok(says));
        assert_eq!(doors.buy(7, &doors.pass(7)).await.status, status, "{says:?}");
        assert_eq!((doors.shop.visits(), doors.store.settled().len()), (0, 0));
        assert!(!doors.metrics.render().contains("bypass_attempts_total{"));
    }
}

#[actix_web::test]
async fn too_many_purchases_at_a_time_are_shed_and_cost_no_pass() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.shed_beyond(2);
    let (app, other_worker) = (doors.open().await, doors.open().await);
    let wait = Rc::new(Notify::new());
    *doors.shop.wait.borrow_mut() = Some(wait.clone());
    let buy = |user: u64| post(ORDERS, &[("X-User-Id", &user.to_string()), ("X-Entry-Token", &doors.pass(user))]);
    let (first, second) = (actix_rt::spawn(app.call(buy(1))), actix_rt::spawn(other_worker.call(buy(2))));
    while doors.shop.visits() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(doors.counted("virtual_queue_gate_under_way 2"));
    let shed = answered(app.call(buy(3)).await).await;
    assert_eq!((shed.status, shed.code.as_deref(), shed.retry_after.as_deref()), (503, Some("OVERLOADED"), Some("1")));
    assert!(doors.counted("virtual_queue_gate_shed_total 1"));
    first.abort();
    assert!(first.await.is_err());
    assert_eq!(answered(app.call(buy(3)).await).await.status, 503, "the shop is still busy for who went away");
    wait.notify_waiters();
    assert_eq!(answered(second.await.unwrap()).await.status, 201);
    *doors.shop.wait.borrow_mut() = None;
    assert_eq!(doors.buy(3, &doors.pass(3)).await.status, 201);
    assert!(doors.counted("virtual_queue_gate_under_way 0"));
}

#[actix_web::test]
async fn a_body_that_does_not_come_ends_the_purchase_while_the_claim_holds() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.shed_beyond(1);
    doors.gate.body_limit = Duration::ZERO;
    let app = doors.open().await;
    let mut dripped = post(ORDERS, &[("X-User-Id", "7"), ("X-Entry-Token", &doors.pass(7))]);
    dripped.set_payload(Payload::Stream { payload: Box::pin(stream::pending()) });
    let answer = tokio::time::timeout(Duration::from_secs(5), app.call(dripped)).await;
    let error = answer.expect("nobody waits for the rest of it").err().unwrap();
    assert_eq!(error.as_response_error().status_code(), 400);
    assert_eq!(doors.shop.visits(), 0);
    assert!(doors.counted("virtual_queue_gate_under_way 0"), "its room is free again");
}

#[actix_web::test]
async fn the_shop_never_sees_a_pass_or_a_second_user_id() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.cookie(true);
    let pass = doors.pass(7);
    let cookie = format!("session=s; vq_limited-drop_42={pass}");
    let lines = [("X-User-Id", "7"), ("X_User_Id", "8"), ("X_Entry_Token", "x"), ("Cookie", cookie.as_str())];
    assert_eq!(doors.send(ORDERS, &lines).await.status, 201, "the cookie is a pass, too");
    let saw = doors.shop.saw.borrow();
    let (headers, uri, body) = &saw[0];
    assert!(headers.contains(&("x-user-id".to_owned(), "7".to_owned())));
    assert!(headers.contains(&("cookie".to_owned(), "session=s".to_owned())));
    assert!(
        !headers.iter().any(|(name, value)| name.contains('_') || name == "x-entry-token" || value.contains(&pass))
    );
    assert_eq!((uri.as_str(), body.as_ref()), (ORDERS, &b"{\"quantity\":1}"[..]));
}

#[actix_web::test]
async fn a_gate_without_a_store_checks_the_pass_alone() {
    let doors = Doors::new();
    let gate = EntryTokenGate::new(doors.keys.clone(), Arc::new(AlwaysOn), StoreClock::new(FakeClock::at(NOW * 1000)));
    let doors = Doors { gate, ..doors };
    let pass = doors.pass(7);
    assert_eq!(doors.buy(7, &pass).await.status, 201);
    assert_eq!(doors.buy(7, &pass).await.status, 201);
    assert_denied(&doors.buy(8, &pass).await);
}

#[actix_web::test]
async fn what_is_no_purchase_passes_untouched() {
    let doors = Doors::new();
    for path in ["/", "/limited-drops/42", "/events/7/tickets", "/files/a%2Fb//../c"] {
        assert_eq!(doors.send(path, &[("X-Entry-Token", "mine"), ("X_User_Id", "8")]).await.status, 201, "{path}");
        let saw = doors.shop.saw.borrow();
        let (headers, uri, _) = saw.last().unwrap();
        assert_eq!(uri, path);
        assert!(headers.contains(&("x-entry-token".to_owned(), "mine".to_owned())));
    }
}

/// Says so when the request it belongs to is dropped before its answer.
struct Abandoned(Option<mpsc::UnboundedSender<()>>);

impl Abandoned {
    fn answered(&mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            // The test may be over.
            let _ = tell.send(());
        }
    }
}

#[actix_web::test]
async fn a_connection_cut_in_the_middle_of_a_purchase_leaves_a_settled_pass() {
    let doors = Doors::new();
    let (abandoned, mut was_abandoned) = mpsc::unbounded_channel();
    let (arrived, mut has_arrived) = mpsc::unbounded_channel();
    let sells = Arc::new(Notify::new());
    let (gate, selling) = (doors.gate.clone(), sells.clone());
    let server = HttpServer::new(move || {
        let (abandoned, arrived, selling) = (abandoned.clone(), arrived.clone(), selling.clone());
        let shop = move || {
            let (arrived, selling) = (arrived.clone(), selling.clone());
            async move {
                arrived.send(()).unwrap();
                selling.notified().await;
                HttpResponse::Created().finish()
            }
        };
        App::new().default_service(web::to(shop)).wrap(gate.clone()).wrap_fn(move |req, rest| {
            let mut request = Abandoned(Some(abandoned.clone()));
            let answer = rest.call(req);
            async move {
                let answer = answer.await;
                request.answered();
                answer
            }
        })
    });
    let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_rt::spawn(server);

    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {ORDERS} HTTP/1.1\r\nHost: shop\r\nX-User-Id: 7\r\nX-Entry-Token: {}\r\nContent-Length: 0\r\n\r\n",
        doors.pass(7)
    );
    client.write_all(request.as_bytes()).await.unwrap();
    has_arrived.recv().await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    was_abandoned.recv().await.unwrap();
    assert!(doors.store.is_claimed() && doors.store.settled().is_empty());
    sells.notify_one();
    while doors.store.settled().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(doors.store.settled(), [Settlement::Spent]);
    handle.stop(false).await;
}

/// Doors where buyers are known by a token, and the token of user 7.
fn doors_by_token(flags: Arc<dyn FeatureFlagEvaluator>) -> (Doors, String) {
    const SECRET: &[u8] = b"a secret of 32 bytes or more, of the tests alone";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SECRET).unwrap();
    let config = IdentityConfig {
        mode: IdentityMode::Jwt,
        jwt_algorithms: vec![JwtAlgorithm::Hs256],
        jwt_key_file: Some(file.path().to_owned()),
        ..Config::parse_default().identity
    };
    let clock = StoreClock::new(FakeClock::at(NOW * 1000));
    let mut doors = Doors::with_flags(flags);
    doors.gate = doors.gate.identity(Identify::from_config(&config, clock).unwrap());
    let claims = serde_json::json!({ "sub": 7, "exp": NOW + 60 });
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET).unwrap();
    let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
    (doors, format!("Bearer {token}"))
}

/// The user ids that the shop saw in its last visit, under any name that servers fold to one.
fn ids_seen(doors: &Doors) -> Vec<String> {
    let saw = doors.shop.saw.borrow();
    let lines = &saw.last().unwrap().0;
    lines.iter().filter(|(name, _)| name.replace('_', "-") == "x-user-id").map(|(_, id)| id.clone()).collect()
}

#[actix_web::test]
async fn by_token_a_header_buys_nothing_and_the_shop_sees_the_tokens_user() {
    let (doors, bearer) = doors_by_token(Arc::new(AlwaysOn));
    let (mine, others) = (doors.pass(7), doors.pass(8));
    let claim = [("X-User-Id", "8"), ("X_User_Id", "8")];
    for lines in [
        vec![("X-Entry-Token", &*others)],
        vec![("X-Entry-Token", &*others), ("Authorization", "Bearer nonsense")],
        vec![("X-Entry-Token", &*mine), ("Authorization", &*bearer), ("Authorization", &*bearer)],
    ] {
        let answer = doors.send(ORDERS, &[&claim[..], &lines].concat()).await;
        assert_eq!((answer.status, answer.code.as_deref()), (401, Some("INVALID_IDENTITY")), "{lines:?}");
    }
    assert!(doors.counted(r#"virtual_queue_bypass_attempts_total{reason="no_user"} 3"#));
    let with = |pass| [&claim[..], &[("X-Entry-Token", pass), ("Authorization", &*bearer)]].concat();
    assert_denied(&doors.send(ORDERS, &with(&others)).await);
    assert_eq!(doors.shop.visits(), 0);
    assert_eq!(doors.send(ORDERS, &with(&mine)).await.status, 201);
    assert_eq!(ids_seen(&doors), ["7"]);
}

#[actix_web::test]
async fn by_token_nobody_is_refused_where_the_flag_is_off_and_no_claimed_id_reaches_the_shop() {
    let (doors, bearer) = doors_by_token(Arc::new(OnFor(HashSet::new())));
    for path in [ORDERS, "/events/5/tickets", "/anything"] {
        for (lines, seen) in [
            (vec![("X-User-Id", "8")], &[][..]),
            (vec![("X-User-Id", "8"), ("X_User_Id", "9"), ("Authorization", "Bearer nonsense")], &[]),
            (vec![("X-User-Id", "8"), ("Authorization", &*bearer)], &["7"]),
            (vec![("Authorization", &*bearer)], &["7"]),
        ] {
            assert_eq!(doors.send(path, &lines).await.status, 201, "{path} {lines:?}");
            assert_eq!(ids_seen(&doors), seen, "{path} {lines:?}");
        }
    }
}
