//! The configuration of the gate. `middleware/in_place.rs` handles the requests.

mod in_place;

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

pub use self::in_place::EntryTokenGateMiddleware;
use super::{
    body::BODY_LIMIT,
    refusal::Refusal,
    route_table::GatedRoutes,
    shedding::{LoadShedding, UnderWay},
    single_use::{MAX_RETRYING, SingleUse},
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

/// How long a claim holds unless [`EntryTokenGate::lease`] sets it: an upstream limit of 10 s, and 5 s.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// How long passes live unless [`EntryTokenGate::passes_live`] sets it.
const DEFAULT_PASS_LIFE: Duration = Duration::from_secs(300);

/// Pause between two tries to settle.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Allows purchase requests only with a valid pass (TDD: `EntryTokenGateInterceptor`).
///
/// Build one for the whole process and clone it into each worker's application: clones share the load-shedding limit.
/// Other requests pass unchanged, so the gate may wrap any scope.
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
    /// Each purchase from its claim to its settlement, also after the client has disconnected.
    purchases: TaskTracker,
    shedding: Option<LoadShedding>,
}

impl EntryTokenGate {
    /// A gate for the PRD's routes that only checks signature and expiry.
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

    /// Makes each pass buy once. `store` remembers which passes are spent.
    #[must_use]
    pub fn single_use(mut self, store: Arc<dyn PassStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// How long the store holds a claim. Default 15 s. A pass may buy again when the lease ends, so the lease must be
    /// at least the longest time of the shop plus the 5 s that a body may take. If the store does not take a
    /// settlement, giving back is retried for this long, and spending for as long as the pass lives.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long passes live at most. Default 300 s. If the store does not take the message that somebody bought without
    /// a pass ([`PassRule::Spends`](super::PassRule::Spends)), it is retried for this long.
    #[must_use]
    pub fn passes_live(mut self, life: Duration) -> Self {
        self.pass_life = life;
        self
    }

    /// Whether the pass may also come in the target's cookie. The header wins.
    #[must_use]
    pub fn cookie(mut self, taken: bool) -> Self {
        self.cookie = taken;
        self
    }

    /// Headers that move a request to another path but still reach the shop: a proxy in front must set or remove them.
    /// Default: none. With forward auth the proxy must remove such headers.
    #[must_use]
    pub fn keep_headers(mut self, kept: Vec<PathHeader>) -> Self {
        self.kept_headers = kept;
        self
    }

    /// How buyers are identified. Default: by `X-User-Id`, which a proxy in front must set.
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

    /// At most `limit` purchase calls at a time, over all clones; beyond that: 503.
    ///
    /// # Panics
    /// If `limit` is 0: such a gate would refuse every purchase.
    #[must_use]
    pub fn shed_beyond(mut self, limit: usize) -> Self {
        assert!(limit > 0, "a gate that allows no purchase at a time is a mistake of who configured it");
        self.shedding = Some(LoadShedding::new(limit));
        self
    }

    /// There are no targets of this kind: their purchases get 404 in any spelling, whatever the flag says.
    #[must_use]
    pub fn without(mut self, kind: QueueTargetType) -> Self {
        self.closed.push(kind);
        self
    }

    /// Other purchase routes instead of the PRD's. Patterns cover the whole path, whatever scope the gate is in.
    #[must_use]
    pub fn routes(mut self, routes: GatedRoutes) -> Self {
        self.routes = Arc::new(routes);
        self
    }

    /// Waits until no purchase is under way, over all clones. For shutdown: a client that disconnects ends its
    /// connection but not its purchase.
    pub async fn purchases_have_ended(&self) {
        self.purchases.close();
        self.purchases.wait().await;
    }

    /// A permit for one more purchase call; `None`: the limit is reached.
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
