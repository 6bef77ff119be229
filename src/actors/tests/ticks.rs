//! Ticks that fail, panic, hang or compete with others; a target that ends.

use tokio::sync::Semaphore;

use super::*;

/// The gauge of the target. It exists while the target has a pump.
const LENGTH: &str = r#"virtual_queue_length{target="LIMITED_DROP:42"}"#;

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
    assert!(within(TAKEOVER, || async { pumps.metrics.render().contains(LENGTH) }).await);
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
async fn a_tick_evicts_no_more_than_it_may_its_sweeps_and_its_batch_together() {
    let clock = StoreClock::system();
    let rules = QueueRules { max_evict_per_tick: 3, silent_after_ms: 600, ..rules() };
    let inner = EmbeddedStore::new(rules, clock.clone(), Arc::new(Metrics::new()));
    crowd(&inner, 300).await;
    let began = clock.monotonic();
    let _pumps = Pumps::on(inner.clone(), clock.clone(), "alone");
    let evicted = async || inner.stats(drop_42()).await.unwrap().evicted;
    assert!(within(Duration::from_secs(4), async || evicted().await >= 30).await, "nobody is evicted");
    let ticks = (clock.monotonic() - began - Duration::from_millis(600)).div_duration_f64(TICK);
    assert!(evicted().await as f64 <= 3.0 * (ticks + 2.0), "{} in {ticks} ticks", evicted().await);
}

#[actix_rt::test]
async fn an_idle_target_goes_with_its_actor_and_its_series() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 5).await;
    assert!(within(TAKEOVER, || async { pumps.metrics.render().contains(LENGTH) }).await);
    // No buyer calls for `idle_ttl`; ticks do not keep the target alive.
    assert!(within(rules_idle() + TAKEOVER, || async { store.active_targets().await.unwrap().is_empty() }).await);
    assert!(within(TAKEOVER, || async { !pumps.metrics.render().contains(LENGTH) }).await);
    let calls = pumps.store.calls();
    tokio::time::sleep(TICK * 4).await;
    assert_eq!(pumps.store.calls(), calls, "nothing ticks any more");
    crowd(&store, 5).await;
    assert!(within(TAKEOVER, || async { mark(&store).await == 5 }).await, "and it starts again");
    assert_eq!(pumps.counted("virtual_queue_pump_restarts_total"), 0, "neither end nor beginning is a fault");
}

#[actix_rt::test]
async fn gauges_that_are_under_way_when_a_target_ends_are_no_news() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    let reported = || pumps.counted("virtual_queue_tick_late_seconds_count");
    // At this pace each tick reads the gauges.
    assert!(within(TAKEOVER * 2, || async { reported() >= 3 && pumps.metrics.render().contains(LENGTH) }).await);
    let permits = Arc::new(Semaphore::new(0));
    pumps.store.be(Mood::Wait(permits.clone()));
    let before = reported();
    // Allows one call after the other, until the batch has gone.
    let batch_went = async || {
        let went = reported() > before;
        permits.add_permits(usize::from(!went));
        went
    };
    assert!(within(TAKEOVER, batch_went).await);
    // Now the read of the gauges is under way.
    tokio::time::sleep(TICK / 5).await;
    pumps.watch.send(StopPumps).await.unwrap();
    assert!(!pumps.metrics.render().contains(LENGTH));
    permits.add_permits(100);
    tokio::time::sleep(TICK * 2).await;
    assert!(!pumps.metrics.render().contains(LENGTH), "{}", pumps.metrics.render());
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
        // The tick that was due has met the fault.
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
