//! The gate as an application sets it up; what it does to a request is `middleware/in_place.rs`.

mod in_place;

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

pub use self::in_place::EntryTokenGateMiddleware;
use super::{
    body::BODY_LIMIT,
    purchase::{MAX_RETRYING, SingleUse},
    refusal::Refusal,
    routes::GatedRoutes,
    shedding::{LoadShedding, UnderWay},
};
use crate::{
    clock::StoreClock,
    domain::{PathHeader, QueueTargetType},
    flags::FeatureFlagEvaluator,
    identity::Identify,
    metrics::Metrics,
    store::PassStore,
    token::EntryTokenGuard,
};

/// How long a claim holds unless [`EntryTokenGate::lease`] says otherwise: an upstream limit of 10 s, and 5 s.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// How long passes live unless [`EntryTokenGate::passes_live`] says otherwise.
const DEFAULT_PASS_LIFE: Duration = Duration::from_secs(300);

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
    kept_headers: Vec<PathHeader>,
    pub(super) store: Option<Arc<dyn PassStore>>,
    pub(super) lease: Duration,
    pass_life: Duration,
    pub(super) retry_pause: Duration,
    body_limit: Duration,
    pub(super) retrying: Arc<Semaphore>,
    /// From the claim until it is settled, whoever is still there to see it.
    purchases: TaskTracker,
    shedding: Option<LoadShedding>,
}

impl EntryTokenGate {
    /// A gate before the PRD's routes that checks signature and expiry, and nothing else yet.
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
            kept_headers: Vec::new(),
            store: None,
            lease: DEFAULT_LEASE,
            pass_life: DEFAULT_PASS_LIFE,
            retry_pause: RETRY_PAUSE,
            body_limit: BODY_LIMIT,
            retrying: Arc::new(Semaphore::new(MAX_RETRYING)),
            purchases: TaskTracker::new(),
            shedding: None,
        }
    }

    /// A pass buys once: this store remembers which have.
    #[must_use]
    pub fn single_use(mut self, store: Arc<dyn PassStore>) -> Self {
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

    /// How long passes live at most. 300 s unless set. A store that does not take in that somebody bought without a pass
    /// ([`PassRule::Spends`](super::PassRule::Spends)) is told again for as long.
    #[must_use]
    pub fn passes_live(mut self, life: Duration) -> Self {
        self.pass_life = life;
        self
    }

    /// Whether the pass may come in the target's cookie, too. The header wins.
    #[must_use]
    pub fn cookie(mut self, taken: bool) -> Self {
        self.cookie = taken;
        self
    }

    /// Headers that move a request to another path and reach the shop nevertheless: something in front must set or remove
    /// them. None unless set. Where passage is only judged, for a proxy, it is the proxy that removes such headers.
    #[must_use]
    pub fn keep_headers(mut self, kept: Vec<PathHeader>) -> Self {
        self.kept_headers = kept;
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

    /// Other purchase routes than the PRD's. Their patterns are of the whole path, whatever scope the gate is in.
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
            pass_life: self.pass_life,
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

#[cfg(test)]
mod tests;
