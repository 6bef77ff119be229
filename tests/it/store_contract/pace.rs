//! The pace: never more than a batch a tick, whoever ticks, and what the operator may change about it.

use std::time::Duration;

use virtual_queue::{
    domain::Pacing,
    store::{Tick, embedded::Overrides},
};

use crate::store_fixture::StoreFixture;

super::behaviours! {
    the_first_batch_goes_one_tick_after_the_first_entry,
    two_batches_are_never_within_one_tick_however_often_and_whoever_ticks,
    a_late_tick_says_how_late_and_does_not_catch_up,
    nothing_moves_while_paused_and_the_pause_costs_no_place,
    no_more_than_max_active_are_inside,
    a_changed_pace_holds_from_the_next_batch_on,
    a_batch_has_paid_for_its_own_tick_whatever_is_set_after_it,
    batches_of_a_shorter_tick_count_into_the_next_of_a_longer_one,
    an_override_out_of_its_range_counts_as_none,
    a_time_further_ahead_than_a_tick_is_from_another_clock,
    the_rate_is_of_the_last_minute,
    waits_are_known_to_half_a_second,
}

async fn the_first_batch_goes_one_tick_after_the_first_entry(fixture: StoreFixture) {
    fixture.waits(1).await;
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(2000)));
    fixture.advance(1999);
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(1)));
    fixture.advance(1);
    let moved =
        Tick::Moved { people: 1, evicted: 0, next_in: Duration::from_millis(2000), late: Duration::from_millis(0) };
    assert_eq!(fixture.tick().await, moved);
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(2000)));
}

async fn two_batches_are_never_within_one_tick_however_often_and_whoever_ticks(fixture: StoreFixture) {
    fixture.crowd(1..=1500).await;
    let mut moved_at = Vec::new();
    for step in 0..200u64 {
        let ms = step * 170;
        // Three replicas that know nothing of each other, one after the other in no time.
        for _ in 0..3 {
            match fixture.tick().await {
                Tick::Moved { people, .. } => {
                    assert!(people <= 100, "{people} at once");
                    moved_at.push(ms);
                }
                Tick::NotYet(wait) => assert!(!wait.is_zero() && wait <= Duration::from_millis(2000)),
                Tick::Gone => panic!("the target is in use"),
            }
        }
        fixture.advance(170);
    }
    assert!(moved_at.windows(2).all(|pair| pair[1] - pair[0] >= 2000), "{moved_at:?}");
    assert_eq!(fixture.stats().await.admitted, 1500);
}

async fn a_late_tick_says_how_late_and_does_not_catch_up(fixture: StoreFixture) {
    fixture.crowd(1..=500).await;
    fixture.advance(7003);
    let moved = Tick::Moved {
        people: 100,
        evicted: 0,
        next_in: Duration::from_millis(2000),
        late: Duration::from_millis(5003),
    };
    assert_eq!(fixture.tick().await, moved);
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(2000)));
}

async fn nothing_moves_while_paused_and_the_pause_costs_no_place(fixture: StoreFixture) {
    fixture.crowd(1..=10).await;
    fixture.set_overrides(Overrides { paused: true, ..Overrides::default() });
    for _ in 0..20 {
        fixture.advance(2000);
        assert_eq!(fixture.sweep().await.evicted, 0);
        assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(2000)));
    }
    let position = fixture.still_waits(1).await;
    assert!(position.paused && !position.moving);
    assert_eq!(position.eta_seconds(), None);
    assert_eq!(fixture.waits(11).await.seq, 11, "people may still come");
    let stats = fixture.stats().await;
    assert!(stats.paused);
    assert_eq!((stats.waiting, stats.admitted), (11, 0));

    fixture.set_overrides(Overrides::default());
    let moved = fixture.tick().await;
    let Tick::Moved { people: 11, late, .. } = moved else { panic!("one batch, as soon as it goes on: {moved:?}") };
    assert_eq!(late, Duration::ZERO, "a pause is not being late");
    assert!(matches!(fixture.tick().await, Tick::NotYet(_)));
}

async fn no_more_than_max_active_are_inside(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { batch: Some(4), max_active: Some(6), ..Overrides::default() });
    fixture.crowd(1..=20).await;
    assert_eq!(fixture.batch().await, (4, 0));
    assert!(fixture.still_waits(20).await.moving, "two more have room");
    assert_eq!(fixture.batch().await, (2, 0), "who is admitted counts before coming for the pass");
    let expires_at = fixture.pass(1).await;
    assert_eq!(fixture.batch().await, (0, 0), "and after");
    let held_up = fixture.still_waits(20).await;
    assert_eq!((held_up.moving, held_up.paused, held_up.eta_seconds()), (false, false, None));

    fixture.buy(1, expires_at).await;
    assert_eq!(fixture.batch().await, (1, 0), "whoever has bought makes room");
    fixture.leave(2).await;
    fixture.pass(3).await;
    fixture.leave(3).await;
    assert_eq!(fixture.batch().await, (2, 0), "whoever leaves makes room");
    fixture.pass(4).await;
    fixture.advance(300_000);
    let moved = fixture.tick().await;
    assert!(matches!(moved, Tick::Moved { people: 1, .. }), "a pass that is over makes room, swept or not: {moved:?}");
}

async fn a_changed_pace_holds_from_the_next_batch_on(fixture: StoreFixture) {
    fixture.crowd(1..=50).await;
    fixture.set_overrides(Overrides { batch: Some(7), tick_ms: Some(6000), ..Overrides::default() });
    let told = fixture.still_waits(50).await;
    assert_eq!(told.pacing, Pacing { batch: 7, tick_ms: 6000 });
    assert_eq!(told.next_tick_in_ms, 2000, "what was promised stays");
    fixture.advance(2000);
    assert!(matches!(fixture.tick().await, Tick::Moved { people: 7, .. }));
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(6000)));
    let stats = fixture.stats().await;
    assert_eq!(stats.pacing, Pacing { batch: 7, tick_ms: 6000 });
}

async fn a_batch_has_paid_for_its_own_tick_whatever_is_set_after_it(fixture: StoreFixture) {
    let tick = |ms| fixture.set_overrides(Overrides { tick_ms: Some(ms), ..Overrides::default() });
    tick(8000);
    fixture.crowd(1..=400).await;
    assert_eq!(fixture.batch().await, (100, 0));
    tick(500);
    assert_eq!(fixture.still_waits(400).await.next_tick_in_ms, 8000, "a poll cuts nothing");
    fixture.advance(7999);
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(1)), "nor does a tick");

    // A clock that goes back makes nobody wait for longer than that, and for no less.
    fixture.clock.set(crate::store_fixture::START_MS - 3_600_000);
    assert_eq!(fixture.still_waits(400).await.next_tick_in_ms, 8000);
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(8000)));
    fixture.advance(8000);
    assert!(matches!(fixture.tick().await, Tick::Moved { people: 100, .. }));
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(500)));
}

async fn batches_of_a_shorter_tick_count_into_the_next_of_a_longer_one(fixture: StoreFixture) {
    let pace = |batch, tick_ms| {
        fixture.set_overrides(Overrides { batch: Some(batch), tick_ms: Some(tick_ms), ..Overrides::default() });
    };
    pace(10, 1000);
    fixture.crowd(1..=100).await;
    for _ in 0..3 {
        assert_eq!(fixture.batch().await, (10, 0));
    }
    pace(15, 3000);
    fixture.advance(1000);
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(1000)), "20 within the last three seconds");
    fixture.advance(1000);
    assert!(matches!(fixture.tick().await, Tick::Moved { people: 5, .. }), "and now 10");
    assert_eq!(fixture.batch().await, (15, 0), "what a longer tick has paid for is all there is to it");
}

async fn an_override_out_of_its_range_counts_as_none(fixture: StoreFixture) {
    fixture.crowd(1..=5).await;
    let configured = fixture.stats().await;
    let wrong = [
        Overrides { batch: Some(10_001), ..Overrides::default() },
        Overrides { tick_ms: Some(0), ..Overrides::default() },
        Overrides { tick_ms: Some(499), ..Overrides::default() },
        Overrides { tick_ms: Some(60_001), ..Overrides::default() },
        Overrides { capacity: Some(1_000_000_001), ..Overrides::default() },
        Overrides { max_active: Some(1_000_000_001), ..Overrides::default() },
    ];
    for overrides in wrong {
        fixture.set_overrides(overrides);
        let stats = fixture.stats().await;
        assert_eq!((stats.pacing, stats.capacity), (configured.pacing, configured.capacity), "{overrides:?}");
        assert!(fixture.still_waits(5).await.moving, "{overrides:?}");
    }
    for (batch, tick_ms, capacity) in [(0, 500, 0), (10_000, 60_000, 1_000_000_000)] {
        fixture.set_overrides(Overrides {
            batch: Some(batch),
            tick_ms: Some(tick_ms),
            capacity: Some(capacity),
            max_active: None,
            paused: false,
        });
        let stats = fixture.stats().await;
        assert_eq!((stats.pacing, stats.capacity), (Pacing { batch, tick_ms }, capacity));
        assert_eq!(fixture.still_waits(5).await.moving, batch > 0);
    }
    for (max_active, moving) in [(0, false), (1_000_000_000, true)] {
        fixture.set_overrides(Overrides { max_active: Some(max_active), ..Overrides::default() });
        assert_eq!(fixture.still_waits(5).await.moving, moving, "{max_active}");
    }
}

async fn a_time_further_ahead_than_a_tick_is_from_another_clock(fixture: StoreFixture) {
    fixture.crowd(1..=5).await;
    fixture.clock.set(crate::store_fixture::START_MS - 3_600_000);
    assert_eq!(fixture.tick().await, Tick::NotYet(Duration::from_millis(2000)));
    fixture.advance(2000);
    assert!(matches!(fixture.tick().await, Tick::Moved { people: 5, evicted: 0, .. }));
    // Whoever comes before the first tick there is told the right time, and the tick need not start over.
    fixture.waits(6).await;
    fixture.clock.set(crate::store_fixture::START_MS - 7_200_000);
    assert_eq!(fixture.still_waits(6).await.next_tick_in_ms, 2000);
    fixture.advance(2000);
    assert!(matches!(fixture.tick().await, Tick::Moved { people: 1, evicted: 0, .. }));
}

async fn the_rate_is_of_the_last_minute(fixture: StoreFixture) {
    fixture.crowd(1..=2500).await;
    assert_eq!(fixture.stats().await.admission_rate_per_sec, 0.0);
    fixture.batch().await;
    assert_eq!(fixture.stats().await.admission_rate_per_sec, 50.0, "a hundred over the two seconds so far");
    for _ in 0..24 {
        assert_eq!(fixture.batch().await, (100, 0));
    }
    let stats = fixture.stats().await;
    assert_eq!(stats.admission_rate_per_sec, 50.0, "2,500 over the 50 seconds so far");
    assert_eq!(stats.target_rate_per_sec(), 50.0);
    fixture.advance(40_000);
    let rate = fixture.stats().await.admission_rate_per_sec;
    assert!((rate - 1000.0 / 60.0).abs() < 1e-9, "ten batches are younger than a minute: {rate}");
    fixture.advance(20_000);
    assert_eq!(fixture.stats().await.admission_rate_per_sec, 0.0);
}

async fn waits_are_known_to_half_a_second(fixture: StoreFixture) {
    fixture.waits(1).await;
    fixture.advance(400);
    fixture.waits(2).await;
    fixture.advance(400);
    fixture.waits(3).await;
    assert_eq!(fixture.stats().await.waits.mean_seconds(), 0.0);
    fixture.batch().await;
    // 2000 ms after the first came; the second came within half a second of the first and counts as with it.
    for id in 1..=3 {
        fixture.pass(id).await;
    }
    let waits = fixture.stats().await.waits;
    assert_eq!(waits.count(), 3);
    let exact = [2.0, 2.0, 1.2];
    assert!((waits.mean_seconds() - exact.iter().sum::<f64>() / 3.0).abs() < 1e-9, "{waits:?}");
    assert_eq!(waits.quantile_seconds(0.5), 2.25, "the middle of the half second from 2.0 on");
    let text = fixture.metrics.render();
    assert!(text.contains(r#"virtual_queue_wait_seconds_sum{target="LIMITED_DROP:42"} 5.2"#), "{text}");
}
