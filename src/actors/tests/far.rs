//! A store with a long round trip, or with faults for some targets.

use super::*;
use crate::telemetry::lines::Lines;

#[actix_rt::test]
#[expect(clippy::print_stdout, reason = "tells what it measured")]
async fn a_far_store_is_ticked_at_its_pace() {
    const TICK: Duration = Duration::from_millis(600);
    let clock = StoreClock::system();
    let pace = Pacing { batch: 1, tick_ms: TICK.as_millis() as u64 };
    let store = store_of(QueueRules { pacing: pace, idle_ttl_ms: 60_000, ..rules() }, &clock);
    let pumps = Pumps::at_pace(TICK, store.clone(), clock.clone(), "far");
    pumps.store.be(Mood::Far(Duration::from_millis(120)));
    crowd(&store, 100).await;
    // By then the pump has measured the round trip.
    assert!(within(TICK * 8, || async { mark(&store).await >= 3 }).await);
    let (mark_before, began) = (mark(&store).await, clock.monotonic());
    assert!(within(TICK * 12, || async { mark(&store).await >= mark_before + 8 }).await);
    let a_batch = (clock.monotonic() - began) / 8;
    println!("120 ms away, a tick of {TICK:?}: a batch every {a_batch:?}");
    assert!(a_batch < TICK * 11 / 10, "{a_batch:?}");
}

#[actix_rt::test]
async fn a_tick_that_takes_long_because_the_store_is_far_is_not_frozen() {
    let clock = StoreClock::system();
    let store = store_of(QueueRules { idle_ttl_ms: 60_000, ..rules() }, &clock);
    let pumps = Pumps::on(store.clone(), clock, "far");
    crowd(&store, 1000).await;
    // Three calls take longer than a tick and a second.
    pumps.store.be(Mood::Far(Duration::from_millis(450)));
    assert!(within(TAKEOVER * 4, || async { mark(&store).await >= 20 }).await);
    assert_eq!(pumps.counted("virtual_queue_pump_restarts_total"), 0);
}

#[actix_rt::test]
async fn a_new_target_does_not_wait_for_what_is_handed_over() {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    pumps.store.be(Mood::Fail(StoreError::Unavailable("as told".to_owned())));
    pumps.service.enter(drop_42(), UserId::try_from(5000).unwrap()).await.unwrap();
    pumps.store.spoil(drop_42(), Mood::Hang);
    let service = pumps.service.clone();
    let hand_over = actix_rt::spawn(async move { service.keep_handing_over().await });
    let handed_over = pumps.store.handed_over();
    pumps.store.be(Mood::Answer);
    assert!(within(TAKEOVER, || async { pumps.store.handed_over() > handed_over }).await, "it is being handed over");
    let other = QueueTarget::new(QueueTargetType::TicketingEvent, 7).unwrap();
    store.register_active(other, None).await.unwrap();
    store.enter_if_absent(other, UserId::try_from(1).unwrap()).await.unwrap();
    assert!(within(TAKEOVER, || async { store.stats(other).await.unwrap().admitted_through == 1 }).await);
    tokio::time::sleep(TICK * 10).await;
    assert_eq!(pumps.store.handed_over(), handed_over + 1, "and no second one begins meanwhile");
    hand_over.abort();
}

#[actix_rt::test]
async fn a_target_whose_ticks_keep_failing_is_told_of_once_and_so_is_the_end_of_it() {
    const BEGINS: &str = "the ticks of this target keep failing";
    const ENDS: &str = "the ticks of this target succeed again";
    let lines = Lines::default();
    let told = |text| lines.with(&[text, "LIMITED_DROP:42"]);
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(log);
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    pumps.store.be(Mood::Fail(StoreError::Unavailable("as told".to_owned())));
    tokio::time::sleep(TICK * 10).await;
    assert_eq!(told(BEGINS), 0, "an outage is told elsewhere");
    pumps.store.be(Mood::Fail(StoreError::Broken("WRONGTYPE".to_owned())));
    assert!(within(TAKEOVER, || async { told(BEGINS) == 1 }).await);
    tokio::time::sleep(TICK * 10).await;
    assert_eq!((told(BEGINS), told("WRONGTYPE"), told(ENDS)), (1, 1, 0), "once, with the cause");
    pumps.store.be(Mood::Answer);
    assert!(within(TAKEOVER, || async { told(ENDS) == 1 }).await);
    tokio::time::sleep(TICK * 10).await;
    assert_eq!((told(BEGINS), told(ENDS)), (1, 1));
}
