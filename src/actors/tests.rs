//! The pumps under panic, error, freeze, stop and respawn; two on one target; a target that ends. Real time, short
//! ticks: what is tested here is when things run.

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
        QueueRules, StoreError, TickLock, VirtualQueueStore,
        embedded::EmbeddedStore,
        faulty::{FaultyStore, Mood},
        redis::RedisStore,
    },
    token::Keyring,
};

const TICK: Duration = Duration::from_millis(100);
/// [`TICK`] plus what a directory waits before it calls an actor frozen, its own round, and slack.
const TAKEOVER: Duration = Duration::from_millis(1_800);

struct On;

impl FeatureFlagEvaluator for On {
    fn is_enabled(&self, _: QueueTarget, _: UserId) -> bool {
        true
    }
    fn reach(&self, _: QueueTarget) -> Reach {
        Reach::Everybody
    }
    fn names(&self, _: QueueTarget) -> bool {
        false
    }
}

/// One process's pumps on a store in memory, ten people a tick of 100 ms.
struct Pumps {
    store: Arc<FaultyStore>,
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
    EmbeddedStore::new(rules(), clock.clone(), Arc::new(Metrics::new()))
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
            max_evict_per_tick: 1000,
            reports: MetricsActor::new(metrics.clone()).start(),
        };
        let reports = parts.reports.clone();
        Self { store, metrics, watch: PumpWatch::begin(parts, service).start(), reports }
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

/// Waits until `what` holds, for at most `limit`; says whether it does.
async fn within<F: Future<Output = bool>>(limit: Duration, what: impl Fn() -> F) -> bool {
    let waited = tokio::time::timeout(limit, async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.is_ok()
}

#[actix_rt::test]
async fn an_active_target_is_found_and_pumped_at_its_pace() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await, "the directory finds it");
    let (before, began) = (mark(&store).await, StoreClock::system());
    tokio::time::sleep(TICK * 10).await;
    let (moved, took) = (mark(&store).await - before, began.monotonic());
    let at_most = 10 * (took.as_millis() as u64 / TICK.as_millis() as u64 + 1);
    assert!(moved <= at_most, "{moved} people in {took:?}");
    assert!(moved >= 70, "{moved} people in {took:?}");
    assert!(within(TAKEOVER, || async { pumps.metrics.render().contains("virtual_queue_length") }).await);
}

#[actix_rt::test]
async fn two_pumps_on_one_target_admit_no_more_than_one() {
    let clock = StoreClock::system();
    let store = store(&clock);
    let (a, b) = (Pumps::on(store.clone(), clock.clone(), "a"), Pumps::on(store.clone(), clock.clone(), "b"));
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    let (before, began) = (mark(&store).await, clock.monotonic());
    tokio::time::sleep(TICK * 15).await;
    let (moved, took) = (mark(&store).await - before, clock.monotonic() - began);
    assert!(moved <= 10 * (took.as_millis() as u64 / 100 + 1), "{moved} people in {took:?}");
    assert!(moved >= 100, "{moved} people in {took:?}");
    assert!(a.store.calls() > 10 && b.store.calls() > 10, "both look");
}

#[actix_rt::test]
async fn a_lock_that_somebody_holds_and_never_uses_is_waited_for() {
    let (_pumps, store) = Pumps::alone();
    crowd(&store, 100).await;
    assert_eq!(store.lock_tick(drop_42(), "somebody who died").await.unwrap(), TickLock::Ours);
    assert!(within(TAKEOVER, || async { mark(&store).await >= 20 }).await, "the lock ends, and it goes on");
}

#[actix_rt::test]
async fn a_tick_that_fails_is_followed_by_others() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    pumps.store.be(Mood::Fail(StoreError::Unavailable("as told".to_owned())));
    tokio::time::sleep(TICK * 3).await;
    let before = mark(&store).await;
    pumps.store.be(Mood::Answer);
    assert!(within(TICK * 4, || async { mark(&store).await > before }).await);
    assert!(pumps.counted(r#"virtual_queue_tick_errors_total{how="error"}"#) > 0);
}

#[actix_rt::test]
async fn a_tick_that_panics_is_followed_by_others() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    pumps.store.be(Mood::Panic);
    assert!(within(TAKEOVER, || async { pumps.counted(r#"virtual_queue_tick_errors_total{how="panic"}"#) > 0 }).await);
    let before = mark(&store).await;
    pumps.store.be(Mood::Answer);
    assert!(within(TICK * 4, || async { mark(&store).await > before }).await);
}

#[actix_rt::test]
async fn a_tick_that_hangs_is_taken_over_and_counted() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    pumps.store.be(Mood::Hang);
    tokio::time::sleep(TICK * 2).await;
    pumps.store.be(Mood::Answer);
    let before = mark(&store).await;
    assert!(within(TAKEOVER, || async { mark(&store).await > before }).await);
    assert_eq!(pumps.counted(r#"virtual_queue_pump_restarts_total{cause="frozen"}"#), 1);
}

#[actix_rt::test]
async fn an_idle_target_goes_with_its_actor_and_its_series() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 5).await;
    let series = r#"virtual_queue_length{target="LIMITED_DROP:42"}"#;
    assert!(within(TAKEOVER, || async { pumps.metrics.render().contains(series) }).await);
    // Nobody calls for `idle_ttl`; ticks do not keep it alive.
    assert!(within(rules_idle() + TAKEOVER, || async { store.active_targets().await.unwrap().is_empty() }).await);
    assert!(within(TAKEOVER, || async { !pumps.metrics.render().contains(series) }).await);
    let calls = pumps.store.calls();
    tokio::time::sleep(TICK * 4).await;
    assert_eq!(pumps.store.calls(), calls, "nothing ticks any more");
    crowd(&store, 5).await;
    assert!(within(TAKEOVER, || async { mark(&store).await == 5 }).await, "and it starts again");
    assert_eq!(pumps.counted("virtual_queue_pump_restarts_total"), 0, "neither end nor beginning is a fault");
}

fn rules_idle() -> Duration {
    Duration::from_millis(rules().idle_ttl_ms)
}

#[actix_rt::test]
async fn stopped_pumps_stay_stopped() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    pumps.watch.send(StopPumps).await.unwrap();
    tokio::time::sleep(TICK).await;
    let before = mark(&store).await;
    tokio::time::sleep(TICK * 4).await;
    assert_eq!(mark(&store).await, before);
    assert!(!pumps.watch.connected());
}

/// Harm for an actor.
#[derive(Debug, Clone, Copy, actix::Message)]
#[rtype(result = "()")]
enum Harm {
    Panic,
    Hang,
}

impl Handler<Harm> for MetricsActor {
    type Result = ();

    fn handle(&mut self, harm: Harm, ctx: &mut Self::Context) {
        match harm {
            Harm::Panic => panic!("as told"),
            Harm::Hang => ctx.wait(std::future::pending::<()>().into_actor(self)),
        }
    }
}

impl Handler<Harm> for Directory {
    type Result = ();

    fn handle(&mut self, _: Harm, _: &mut Self::Context) {
        panic!("as told");
    }
}

impl Handler<Harm> for PumpWatch {
    type Result = ();

    fn handle(&mut self, harm: Harm, _: &mut Self::Context) {
        self.directory().do_send(harm);
    }
}

/// A crowd is pumped, something is done, and then: admission goes on, the cause was counted, new targets are found too,
/// and everything is pumped once and not twice.
async fn goes_on_after(cause: &str, harm: impl AsyncFnOnce(&Pumps)) {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    harm(&pumps).await;
    let before = mark(&store).await;
    assert!(within(TICK * 4, || async { mark(&store).await >= before + 10 }).await, "at once");
    let series = format!(r#"virtual_queue_pump_restarts_total{{cause="{cause}"}}"#);
    assert!(within(TAKEOVER, || async { pumps.counted(&series) == 1 }).await, "counted");
    let before = mark(&store).await;
    assert!(within(TICK * 6, || async { mark(&store).await >= before + 20 }).await, "and for good");
    let other = QueueTarget::new(QueueTargetType::TicketingEvent, 7).unwrap();
    store.register_active(other, None).await.unwrap();
    store.enter_if_absent(other, UserId::try_from(1).unwrap()).await.unwrap();
    let of_other = || async { store.stats(other).await.unwrap().admitted_through };
    assert!(within(TAKEOVER, || async { of_other().await == 1 }).await, "new targets are found");
    let calls = pumps.store.calls();
    tokio::time::sleep(TICK * 10).await;
    let calls = pumps.store.calls() - calls;
    assert!(calls <= 2 * 11 * 4, "a lock, a sweep, a batch, the gauges a tick and target, and not twice: {calls}");
    assert_eq!(pumps.counted(&series), 1, "once");
}

#[actix_rt::test]
async fn a_directory_that_panics_is_replaced_and_admission_goes_on() {
    goes_on_after("directory", async |pumps| pumps.watch.send(Harm::Panic).await.unwrap()).await;
}

#[actix_rt::test]
async fn a_metrics_actor_that_panics_is_replaced_and_admission_goes_on() {
    goes_on_after("metrics", async |pumps| assert!(pumps.reports.send(Harm::Panic).await.is_err())).await;
}

#[actix_rt::test]
async fn a_metrics_actor_whose_mailbox_is_full_is_replaced_and_admission_goes_on() {
    goes_on_after("metrics", async |pumps| {
        pumps.reports.send(Harm::Hang).await.unwrap();
        while pumps.reports.try_send(TargetEnded(drop_42())).is_ok() {}
    })
    .await;
}

#[actix_rt::test]
#[ignore = "long: ./test.sh --faults"]
#[expect(clippy::print_stdout, reason = "tells what it measured")]
async fn on_a_real_redis_a_tick_that_panics_or_hangs_delays_admission_by_less_than_two_ticks() {
    let tick = Duration::from_secs(2);
    let (server, clock, metrics) = (TestServer::start(), StoreClock::system(), Arc::new(Metrics::new()));
    let rules = QueueRules::from_config(&Config::parse_default());
    let store = RedisStore::connect(&server.config(), rules, clock.clone(), metrics).await.unwrap();
    let pumps = Pumps::at_pace(tick, store.clone(), clock.clone(), "real");
    store.register_active(drop_42(), None).await.unwrap();
    for id in 1..=1000 {
        store.enter_if_absent(drop_42(), UserId::try_from(id).unwrap()).await.unwrap();
    }
    let batch_after = async |mark: u64| {
        while store.stats(drop_42()).await.unwrap().admitted_through <= mark {
            assert!(clock.monotonic() < Duration::from_secs(60), "no batch after {mark}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (store.stats(drop_42()).await.unwrap().admitted_through, clock.monotonic())
    };
    let (mut mark, mut at) = batch_after(0).await;
    let faults = [
        (Mood::Panic, r#"virtual_queue_tick_errors_total{how="panic"}"#),
        (Mood::Hang, r#"virtual_queue_pump_restarts_total{cause="frozen"}"#),
    ];
    for (mood, counter) in faults {
        let what = format!("{mood:?}");
        pumps.store.be(mood);
        // The tick that was due has met it.
        tokio::time::sleep(tick + Duration::from_millis(50)).await;
        pumps.store.be(Mood::Answer);
        let (next_mark, next_at) = batch_after(mark).await;
        println!("{what}: from batch to batch {:?}, of a tick of {tick:?}", next_at - at);
        assert!(next_at - at < tick * 5 / 2, "{what}");
        assert_eq!(next_mark - mark, 100, "one batch, and not the one that was lost too");
        assert_eq!(pumps.counted(counter), 1, "{what}");
        (mark, at) = (next_mark, next_at);
    }
}
