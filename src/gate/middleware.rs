//! The middleware itself: what is asked in which order.

use std::{
    future::{Ready, ready},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_web::{
    Error, HttpMessage,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    error::InternalError,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::{
    body::{self, BODY_LIMIT},
    decision::Decision,
    purchase::{MAX_RETRYING, NoAnswerFromShop, SingleUse, settlement_of},
    refusal::Refusal,
    request,
    routes::GatedRoutes,
    shedding::{LoadShedding, UnderWay},
};
use crate::{
    clock::StoreClock,
    domain::{PassClaims, QueueTargetType},
    flags::FeatureFlagEvaluator,
    identity::Identify,
    metrics::Metrics,
    problem::Problem,
    store::VirtualQueueStore,
    token::EntryTokenGuard,
};

/// Says that an answer was given without the store.
const DEGRADED_HEADER: HeaderName = HeaderName::from_static("x-virtual-queue-degraded");

/// How long a claim holds unless [`EntryTokenGate::lease`] says otherwise: an upstream limit of 10 s, and 5 s.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// Between two tries to settle.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Lets only holders of a valid pass on to the purchase routes (TDD: `EntryTokenGateInterceptor`).
///
/// Build one for the whole process and clone it into each worker's application: clones share the load-shedding limit.
/// Requests that are no purchases pass through untouched, so it may stand before anything.
#[derive(Clone)]
pub struct EntryTokenGate {
    pub(super) guard: Arc<dyn EntryTokenGuard>,
    pub(super) flags: Arc<dyn FeatureFlagEvaluator>,
    pub(super) clock: StoreClock,
    pub(super) routes: Arc<GatedRoutes>,
    pub(super) closed: Vec<QueueTargetType>,
    pub(super) identity: Identify,
    pub(super) metrics: Arc<Metrics>,
    pub(super) cookie: bool,
    pub(super) store: Option<Arc<dyn VirtualQueueStore>>,
    pub(super) lease: Duration,
    pub(super) retry_pause: Duration,
    body_limit: Duration,
    pub(super) retrying: Arc<Semaphore>,
    /// From the claim until it is settled, whoever is still there to see it.
    purchases: TaskTracker,
    shedding: Option<LoadShedding>,
}

impl EntryTokenGate {
    /// A gate before the PRD's two routes that checks signature and expiry, and nothing else yet.
    pub fn new(guard: Arc<dyn EntryTokenGuard>, flags: Arc<dyn FeatureFlagEvaluator>, clock: StoreClock) -> Self {
        Self {
            guard,
            flags,
            clock,
            routes: Arc::new(GatedRoutes::default()),
            closed: Vec::new(),
            identity: Identify::by_header(),
            metrics: Arc::new(Metrics::new()),
            cookie: false,
            store: None,
            lease: DEFAULT_LEASE,
            retry_pause: RETRY_PAUSE,
            body_limit: BODY_LIMIT,
            retrying: Arc::new(Semaphore::new(MAX_RETRYING)),
            purchases: TaskTracker::new(),
            shedding: None,
        }
    }

    /// A pass buys once: this store remembers which have.
    #[must_use]
    pub fn single_use(mut self, store: Arc<dyn VirtualQueueStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// How long the store lets a claim hold. 15 s unless set. A pass may buy again when it ends, so it must be longer than
    /// the shop takes at most, by the 5 s that a body may take to arrive. A store that does not take a settlement is told
    /// again for as long: that the pass is given back; or for as long as the pass lives: that it bought.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Whether the pass may come in the target's cookie, too. The header wins.
    #[must_use]
    pub fn cookie(mut self, taken: bool) -> Self {
        self.cookie = taken;
        self
    }

    /// How buyers are known. By `X-User-Id`, which something in front must set, unless set.
    #[must_use]
    pub fn identity(mut self, identity: Identify) -> Self {
        self.identity = identity;
        self
    }

    /// Where refusals are counted.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// At most `limit` purchase calls under way at a time, over all clones; beyond: 503.
    ///
    /// # Panics
    /// If `limit` is 0: such a gate lets nobody through.
    #[must_use]
    pub fn shed_beyond(mut self, limit: usize) -> Self {
        assert!(limit > 0, "a gate that allows no purchase at a time is a mistake of who configured it");
        self.shedding = Some(LoadShedding::new(limit));
        self
    }

    /// There are no targets of this kind: their purchases are 404 under any spelling, whatever the flag says.
    #[must_use]
    pub fn without(mut self, kind: QueueTargetType) -> Self {
        self.closed.push(kind);
        self
    }

    /// Other purchase routes than the PRD's two. Their patterns are of the whole path, whatever scope the gate is in.
    #[must_use]
    pub fn routes(mut self, routes: GatedRoutes) -> Self {
        self.routes = Arc::new(routes);
        self
    }

    /// Waits until no purchase is under way, over all clones: for a server that ends. A client that went away took its
    /// connection along, and not its purchase.
    pub async fn purchases_have_ended(&self) {
        self.purchases.close();
        self.purchases.wait().await;
    }

    /// Room for one more purchase call; `None`: there is none.
    fn admit_call(&self) -> Option<UnderWay> {
        match &self.shedding {
            None => Some(UnderWay::uncounted()),
            Some(shedding) => shedding.admit(&self.metrics),
        }
    }

    pub(super) fn single_use_of_passes(&self) -> Option<SingleUse> {
        self.store.clone().map(|store| SingleUse {
            store,
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            lease: self.lease,
            retry_pause: self.retry_pause,
            retrying: self.retrying.clone(),
            purchases: self.purchases.clone(),
        })
    }

    pub(super) fn count(&self, refusal: Refusal) {
        if let Some(reason) = refusal.bypass_reason() {
            self.metrics.bypass_attempt(reason);
        }
    }
}

impl<S, B> Transform<S, ServiceRequest> for EntryTokenGate
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = EntryTokenGateMiddleware<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, shop: S) -> Self::Future {
        ready(Ok(EntryTokenGateMiddleware { gate: self.clone(), shop: Rc::new(shop) }))
    }
}

/// An [`EntryTokenGate`] in place.
pub struct EntryTokenGateMiddleware<S> {
    gate: EntryTokenGate,
    shop: Rc<S>,
}

type Answer<B> = Result<ServiceResponse<EitherBody<B>>, Error>;

impl<S, B> Service<ServiceRequest> for EntryTokenGateMiddleware<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Answer<B>>;

    forward_ready!(shop);

    fn call(&self, mut req: ServiceRequest) -> Self::Future {
        let pass = match self.gate.decide(req.method(), req.uri(), req.headers()) {
            Decision::Untouched => {
                self.gate.identity.tell_shop(req.headers_mut());
                let call = self.shop.call(req);
                return Box::pin(async move { call.await.map(ServiceResponse::map_into_left_body) });
            }
            Decision::Refused(refusal) => {
                self.gate.count(refusal);
                return Box::pin(ready(Ok(refuse(req, refusal))));
            }
            Decision::Verified(pass) => pass,
        };
        let Some(under_way) = self.gate.admit_call() else {
            self.gate.metrics.gate_shed();
            return Box::pin(ready(Ok(refuse(req, Refusal::Overloaded))));
        };
        self.gate.identity.tell_shop(req.headers_mut());
        request::strip(req.headers_mut(), self.gate.cookie);
        let body = body::in_time(req.take_payload(), self.gate.body_limit);
        req.set_payload(body);
        let purchase = purchase(self.shop.clone(), req, self.gate.single_use_of_passes(), pass, under_way);
        // A task of its own: a client that goes away ends the request, and not the purchase.
        let (answer, answered) = oneshot::channel();
        actix_rt::spawn(self.gate.purchases.track_future(async move {
            // Nobody is there to take the answer when the client has gone.
            let _ = answer.send(purchase.await);
        }));
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(shop_panicked())) })
    }
}

async fn purchase<S, B>(
    shop: Rc<S>,
    req: ServiceRequest,
    single_use: Option<SingleUse>,
    pass: PassClaims,
    under_way: UnderWay,
) -> Answer<B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let claimed = match single_use {
        None => None,
        Some(single_use) => match single_use.claim(pass).await {
            Ok(claimed) => Some(claimed),
            Err(refusal) => return Ok(refuse(req, refusal)),
        },
    };
    req.extensions_mut().insert(pass);
    let answer = shop.call(req).await;
    drop(under_way);
    // Without an answer of the shop nobody knows whether it sold: the claim is left to its lease.
    let mut answer = answer?.map_into_left_body();
    if let Some(claimed) = claimed {
        if claimed.degraded {
            answer.headers_mut().insert(DEGRADED_HEADER, HeaderValue::from_static("redis"));
        }
        if answer.response().extensions().get::<NoAnswerFromShop>().is_none() {
            claimed.settle(settlement_of(answer.status())).await;
        }
    }
    Ok(answer)
}

fn refuse<B>(req: ServiceRequest, refusal: Refusal) -> ServiceResponse<EitherBody<B>> {
    req.into_response(refusal.into_response()).map_into_right_body()
}

fn shop_panicked() -> Error {
    let problem = Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "INTERNAL_ERROR",
        "Internal error",
        "the purchase ended without an answer",
    );
    InternalError::from_response("the shop panicked", problem.into_response()).into()
}

#[cfg(test)]
#[path = "middleware_tests.rs"]
mod tests;
