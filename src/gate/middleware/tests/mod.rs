//! The middleware between buyers and a configurable fake shop.

mod by_token;
mod claims;
mod disconnects;
mod limits;
mod outage;
mod passes;
mod rules;
mod untouched;

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    rc::Rc,
};

use actix_web::{
    Error, HttpRequest, HttpResponse,
    body::{self, BoxBody, EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform, fn_service},
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
    test,
    web::Bytes,
};
use tokio::sync::Notify;

use super::*;
use crate::{
    clock::FakeClock,
    domain::{QueueTarget, UserId},
    flags::Reach,
    gate::{AlwaysOn, NoAnswerFromShop, fake_store::FakeStore},
    store::{Claim, Settlement, StoreError},
    token::{EntryTokenIssuer, Keyring},
};

const NOW: u64 = 1_790_000_000;
const ORDERS: &str = "/limited-drops/42/orders";
const BODY: &[u8] = b"{\"quantity\":1}";

fn target(kind: QueueTargetType, id: u64) -> QueueTarget {
    QueueTarget::new(kind, id).unwrap()
}

/// The flag, on for these people and off for all others.
struct OnFor(HashSet<u64>);

impl FeatureFlagEvaluator for OnFor {
    fn is_enabled(&self, _: QueueTarget, user: UserId) -> bool {
        self.0.contains(&user.get())
    }
    fn reach(&self, _: QueueTarget) -> Reach {
        if self.0.is_empty() { Reach::Nobody } else { Reach::SomePeople }
    }
    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget> {
        (!self.0.is_empty()).then(|| target(kind, 1))
    }
    fn names(&self, _: QueueTarget) -> bool {
        false
    }
}

/// A gate in front of a fake shop that does what a test sets and remembers what it got.
struct GateFixture {
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
    /// The status of its answer; 0: its middleware gives an error without an answer.
    answers: Cell<u16>,
    no_answer: Cell<bool>,
    panics: Cell<bool>,
    /// The shop waits for this before it answers.
    wait: RefCell<Option<Rc<Notify>>>,
    /// Each request it got.
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

    /// From now on the shop answers only when notified.
    fn takes_its_time(&self) -> Rc<Notify> {
        self.wait.borrow_mut().insert(Rc::default()).clone()
    }
}

impl GateFixture {
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
        answered(self.open().await.call(purchase(user, pass)).await).await
    }

    fn counted(&self, series: &str) -> bool {
        self.metrics.render().lines().any(|line| line == series)
    }

    /// Counted bypass attempts with this reason; `None`: with any reason.
    fn attempts(&self, reason: Option<&str>) -> u64 {
        let series = "virtual_queue_bypass_attempts_total{reason=\"";
        let text = self.metrics.render();
        let of_each = text.lines().filter_map(|line| line.strip_prefix(series)?.split_once("\"} "));
        of_each
            .filter(|(counted, _)| reason.is_none_or(|reason| reason == *counted))
            .map(|(_, count)| count.parse::<u64>().unwrap())
            .sum()
    }

    fn claim_answers(&self, answer: Result<Claim, StoreError>) {
        self.store.state.lock().unwrap().claim_answers.push_back(answer);
    }

    /// Waits for the only settlement.
    async fn settles(&self, how: Settlement) {
        until("it is settled", || !self.store.settled().is_empty()).await;
        assert_eq!(self.store.settled(), [how]);
    }
}

#[derive(Debug)]
struct Answered {
    status: u16,
    code: Option<String>,
    reason: Option<String>,
    detail: Option<String>,
    language: Option<String>,
    retry_after: Option<String>,
    degraded: Option<String>,
}

fn post(path: &str, lines: &[(&str, &str)]) -> ServiceRequest {
    let mut req = test::TestRequest::post().uri(path).set_payload(BODY);
    for (name, value) in lines {
        req = req.append_header((*name, *value));
    }
    req.to_srv_request()
}

/// A purchase of drop 42 with this pass.
fn purchase(user: u64, pass: &str) -> ServiceRequest {
    post(ORDERS, &[("X-User-Id", &user.to_string()), ("X-Entry-Token", pass)])
}

async fn answered<B: MessageBody>(answer: Result<ServiceResponse<B>, Error>) -> Answered {
    let response = answer.expect("the gate answers with a response");
    read(response.into_parts().1).await
}

async fn read<B: MessageBody>(response: HttpResponse<B>) -> Answered {
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, retry_after, degraded) =
        (response.status().as_u16(), header("retry-after"), header("x-virtual-queue-degraded"));
    let language = header("content-language");
    let body = body::to_bytes(response.into_body()).await.ok().unwrap();
    let body = serde_json::from_slice::<serde_json::Value>(&body).ok();
    let member = |name: &str| body.as_ref()?.get(name)?.as_str().map(str::to_owned);
    let (code, reason, detail) = (member("code"), member("reason"), member("detail"));
    Answered { status, code, reason, detail, language, retry_after, degraded }
}

#[track_caller]
fn assert_denied(answer: &Answered) {
    assert_eq!((answer.status, answer.code.as_deref()), (403, Some("QUEUE_BYPASS_DENIED")));
}

/// Waits for a future; panics after 10 s instead of hanging.
async fn soon<T>(what: &str, comes: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), comes).await.unwrap_or_else(|_| panic!("{what} within 10 s"))
}

/// Waits until the condition holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(what, held).await;
}
