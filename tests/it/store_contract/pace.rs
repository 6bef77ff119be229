//! The pace: never more than a batch a tick, whoever ticks, and what the operator may change about it.

use std::time::Duration;

use virtual_queue::{
    domain::Pacing,
    store::{Tick, embedded::Overrides},
};

use crate::stand::Stand;

super::behaviours! {
    the_first_batch_goes_one_tick_after_the_first_entry,
    two_batches_are_never_within_one_tick_however_often_and_whoever_ticks,
    a_late_tick_says_how_late_and_does_not_catch_up,
    nothing_moves_while_paused_and_the_pause_costs_no_place,
    no_more_than_max_active_are_inside,
    a_changed_pace_holds_from_the_next_batch_on,
    a_time_further_ahead_than_a_tick_is_from_another_clock,
    the_rate_is_of_the_last_minute,
    waits_are_known_to_half_a_second,
}

async fn the_first_batch_goes_one_tick_after_the_first_entry(stand: Stand) {
    stand.waits(1).await;
    assert_eq!(stand.tick().await, Tick::NotYet(Duration::from_millis(2000)));
    stand.advance(1999);
    assert_eq!(stand.tick().await, Tick::NotYet(Duration::from_millis(1)));
    stand.advance(1);
    let moved =
        Tick::Moved { people: 1, evicted: 0, next_in: Duration::from_millis(2000), late: Duration::from_millis(0) };
    assert_eq!(stand.tick().await, moved);
    assert_eq!(stand.tick().await, Tick::NotYet(Duration::from_millis(2000)));
}

async fn two_batches_are_never_within_one_tick_however_often_and_whoever_ticks(stand: Stand) {
    stand.crowd(1..=1500).await;
    let mut moved_at = Vec::new();
    for step in 0..200u64 {
        let ms = step * 170;
        // Three replicas that know nothing of each other, one after the other in no time.
        for _ in 0..3 {
            match stand.tick().await {
                Tick::Moved { people, .. } => {
                    assert!(people <= 100, "{people} at once");
                    moved_at.push(ms);
                }
                Tick::NotYet(wait) => assert!(!wait.is_zero() && wait <= Duration::from_millis(2000)),
                Tick::Gone => panic!("the target is in use"),
            }
        }
        stand.advance(170);
    }
    assert!(moved_at.windows(2).all(|pair| pair[1] - pair[0] >= 2000), "{moved_at:?}");
    assert_eq!(stand.stats().await.admitted, 1500);
}

async fn a_late_tick_says_how_late_and_does_not_catch_up(stand: Stand) {
    stand.crowd(1..=500).await;
    stand.advance(7003);
    let moved = Tick::Moved {
        people: 100,
        evicted: 0,
        next_in: Duration::from_millis(2000),
        late: Duration::from_millis(5003),
    };
    assert_eq!(stand.tick().await, moved);
    assert_eq!(stand.tick().await, Tick::NotYet(Duration::from_millis(2000)));
}

async fn nothing_moves_while_paused_and_the_pause_costs_no_place(stand: Stand) {
    stand.crowd(1..=10).await;
    stand.set_overrides(Overrides { paused: true, ..Overrides::default() });
    for _ in 0..20 {
        stand.advance(2000);
        assert_eq!(stand.sweep().await.evicted, 0);
        assert_eq!(stand.tick().await, Tick::NotYet(Duration::from_millis(2000)));
    }
    let position = stand.still_waits(1).await;
    assert!(position.paused && !position.moving);
    assert_eq!(position.eta_seconds(), None);
    assert_eq!(stand.waits(11).await.seq, 11, "people may still come");
    let stats = stand.stats().await;
    assert!(stats.paused);
    assert_eq!((stats.waiting, stats.admitted), (11, 0));

    stand.set_overrides(Overrides::default());
    assert!(matches!(stand.tick().await, Tick::Moved { people: 11, .. }), "one batch, as soon as it goes on");
    assert!(matches!(stand.tick().await, Tick::NotYet(_)));
}

async fn no_more_than_max_active_are_inside(stand: Stand) {
    stand.set_overrides(Overrides { batch: Some(4), max_active: Some(6), ..Overrides::default() });
    stand.crowd(1..=20).await;
    assert_eq!(stand.batch().await, (4, 0));
    assert!(stand.still_waits(20).await.moving, "two more have room");
    assert_eq!(stand.batch().await, (2, 0), "who is admitted counts before coming for the pass");
    let expires_at = stand.pass(1).await;
    assert_eq!(stand.batch().await, (0, 0), "and after");
    let held_up = stand.still_waits(20).await;
    assert_eq!((held_up.moving, held_up.paused, held_up.eta_seconds()), (false, false, None));

    stand.buy(1, expires_at).await;
    assert_eq!(stand.batch().await, (1, 0), "whoever has bought makes room");
    stand.leave(2).await;
    stand.pass(3).await;
    stand.leave(3).await;
    assert_eq!(stand.batch().await, (2, 0), "whoever leaves makes room");
    stand.pass(4).await;
    stand.advance(300_000);
    let moved = stand.tick().await;
    assert!(matches!(moved, Tick::Moved { people: 1, .. }), "a pass that is over makes room, swept or not: {moved:?}");
}

async fn a_changed_pace_holds_from_the_next_batch_on(stand: Stand) {
    stand.crowd(1..=50).await;
    stand.set_overrides(Overrides { batch: Some(7), tick_ms: Some(6000), ..Overrides::default() });
    let told = stand.still_waits(50).await;
    assert_eq!(told.pacing, Pacing { batch: 7, tick_ms: 6000 });
    assert_eq!(told.next_tick_in_ms, 2000, "what was promised stays");
    stand.advance(2000);
    assert!(matches!(stand.tick().await, Tick::Moved { people: 7, .. }));
    assert_eq!(stand.tick().await, Tick::NotYet(Duration::from_millis(6000)));
    let stats = stand.stats().await;
    assert_eq!(stats.pacing, Pacing { batch: 7, tick_ms: 6000 });
}

async fn a_time_further_ahead_than_a_tick_is_from_another_clock(stand: Stand) {
    stand.crowd(1..=5).await;
    stand.clock.set(crate::stand::START_MS - 3_600_000);
    assert_eq!(stand.tick().await, Tick::NotYet(Duration::from_millis(2000)));
    stand.advance(2000);
    assert!(matches!(stand.tick().await, Tick::Moved { people: 5, evicted: 0, .. }));
    // Whoever comes before the first tick there is told the right time, and the tick need not start over.
    stand.waits(6).await;
    stand.clock.set(crate::stand::START_MS - 7_200_000);
    assert_eq!(stand.still_waits(6).await.next_tick_in_ms, 2000);
    stand.advance(2000);
    assert!(matches!(stand.tick().await, Tick::Moved { people: 1, evicted: 0, .. }));
}

async fn the_rate_is_of_the_last_minute(stand: Stand) {
    stand.crowd(1..=2500).await;
    assert_eq!(stand.stats().await.admission_rate_per_sec, 0.0);
    stand.batch().await;
    assert_eq!(stand.stats().await.admission_rate_per_sec, 50.0, "a hundred over the two seconds so far");
    for _ in 0..24 {
        assert_eq!(stand.batch().await, (100, 0));
    }
    let stats = stand.stats().await;
    assert_eq!(stats.admission_rate_per_sec, 50.0, "2,500 over the 50 seconds so far");
    assert_eq!(stats.target_rate_per_sec(), 50.0);
    stand.advance(40_000);
    let rate = stand.stats().await.admission_rate_per_sec;
    assert!((rate - 1000.0 / 60.0).abs() < 1e-9, "ten batches are younger than a minute: {rate}");
    stand.advance(20_000);
    assert_eq!(stand.stats().await.admission_rate_per_sec, 0.0);
}

async fn waits_are_known_to_half_a_second(stand: Stand) {
    stand.waits(1).await;
    stand.advance(400);
    stand.waits(2).await;
    stand.advance(400);
    stand.waits(3).await;
    assert_eq!(stand.stats().await.waits.mean_seconds(), 0.0);
    stand.batch().await;
    // 2000 ms after the first came; the second came within half a second of the first and counts as with it.
    for id in 1..=3 {
        stand.pass(id).await;
    }
    let waits = stand.stats().await.waits;
    assert_eq!(waits.count(), 3);
    let exact = [2.0, 2.0, 1.2];
    assert!((waits.mean_seconds() - exact.iter().sum::<f64>() / 3.0).abs() < 1e-9, "{waits:?}");
    assert_eq!(waits.quantile_seconds(0.5), 2.25, "the middle of the half second from 2.0 on");
    let text = stand.metrics.render();
    assert!(text.contains(r#"virtual_queue_wait_seconds_sum{target="LIMITED_DROP:42"} 5.2"#), "{text}");
}
