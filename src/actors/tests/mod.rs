//! The pumps under panic, error, freeze, stop and respawn; two on one target; a target that ends. Real time and short
//! ticks, because these tests check when things run.

mod far;
mod replaced;
mod ticks;

use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Handler, WrapFuture};

use super::*;
use crate::{
    config::Config,
    domain::{Pacing, QueueTarget, QueueTargetType, UserId},
    flags::{FeatureFlagEvaluator, Reach},
    redis::test_server::TestServer,
    service::{ServiceParts, VirtualQueueService},
    store::{
        PumpStore, QueueRules, QueueStore, StoreError, TickLock, VirtualQueueStore,
        embedded::EmbeddedStore,
        faulty::{FaultyStore, Mood},
        redis::RedisStore,
    },
    token::Keyring,
};

const TICK: Duration = Duration::from_millis(100);
/// [`TICK`], the time until a directory counts an actor as frozen, the interval of the directory, and slack.
const TAKEOVER: Duration = Duration::from_millis(1_800);

struct On;

impl FeatureFlagEvaluator for On {
    fn is_enabled(&self, _: QueueTarget, _: UserId) -> bool {
        true
    }
    fn reach(&self, _: QueueTarget) -> Reach {
        Reach::Everybody
    }
    fn any_of(&self, _: QueueTargetType) -> Option<QueueTarget> {
        None
    }
    fn names(&self, _: QueueTarget) -> bool {
        false
    }
}

/// The pumps of one process on a store in memory: ten people per tick of 100 ms.
struct Pumps {
    store: Arc<FaultyStore>,
    service: Arc<VirtualQueueService>,
    metrics: Arc<Metrics>,
    watch: Addr<PumpWatch>,
    reports: Addr<MetricsActor>,
}

fn rules() -> QueueRules {
    let mut rules = QueueRules::from_config(&Config::parse_default());
    rules.pacing = Pacing { batch: 10, tick_ms: TICK.as_millis() as u64 };
    rules.idle_ttl_ms = 2_000;
    rules
}

fn store(clock: &StoreClock) -> Arc<EmbeddedStore> {
    store_of(rules(), clock)
}

fn store_of(rules: QueueRules, clock: &StoreClock) -> Arc<EmbeddedStore> {
    EmbeddedStore::new(rules, clock.clone(), Arc::new(Metrics::new()))
}

impl Pumps {
    fn on(inner: Arc<EmbeddedStore>, clock: StoreClock, owner: &str) -> Self {
        Self::at_pace(TICK, inner, clock, owner)
    }

    fn at_pace(tick: Duration, inner: Arc<dyn VirtualQueueStore>, clock: StoreClock, owner: &str) -> Self {
        let store = FaultyStore::before(inner);
        let metrics = Arc::new(Metrics::new());
        let parts = ServiceParts {
            store: store.clone(),
            flags: Arc::new(On),
            issuer: Arc::new(Keyring::random()),
            clock: clock.clone(),
            metrics: metrics.clone(),
        };
        let service = Arc::new(VirtualQueueService::new(parts, &Config::parse_default()));
        let parts = PumpParts {
            store: store.clone(),
            clock,
            metrics: metrics.clone(),
            owner: owner.into(),
            tick,
            reports: MetricsActor::new(metrics.clone()).start(),
        };
        let reports = parts.reports.clone();
        let watch = PumpWatch::begin(parts, service.active_targets().clone()).start();
        Self { store, service, metrics, watch, reports }
    }

    fn alone() -> (Self, Arc<EmbeddedStore>) {
        let clock = StoreClock::system();
        let inner = store(&clock);
        (Self::on(inner.clone(), clock, "alone"), inner)
    }

    fn counted(&self, series: &str) -> u64 {
        let text = self.metrics.render();
        let line = text.lines().find(|line| line.starts_with(series));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    }
}

fn drop_42() -> QueueTarget {
    QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap()
}

async fn crowd(store: &EmbeddedStore, people: u64) {
    store.register_active(drop_42(), None).await.unwrap();
    for id in 1..=people {
        store.enter_if_absent(drop_42(), UserId::try_from(id).unwrap()).await.unwrap();
    }
}

async fn mark(store: &EmbeddedStore) -> u64 {
    store.stats(drop_42()).await.unwrap().admitted_through
}

/// Waits until `what` holds, for at most `limit`. Returns whether it does.
async fn within<F: Future<Output = bool>>(limit: Duration, what: impl Fn() -> F) -> bool {
    let waited = tokio::time::timeout(limit, async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.is_ok()
}
