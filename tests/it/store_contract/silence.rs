//! Falling silent: who does not poll loses the place, unless nobody could poll.

use virtual_queue::{
    config::Config,
    store::{Departure, Place, QueueRules, Tick, embedded::Overrides},
};

use crate::stand::Stand;

super::behaviours! {
    who_does_not_poll_for_the_timeout_is_evicted_and_who_does_stays,
    a_poll_and_entering_again_both_keep_the_place,
    time_without_a_pulse_does_not_count_as_silence,
    a_clock_that_goes_back_makes_nobody_silent,
    a_sweep_takes_at_most_250_and_says_that_there_is_more,
    equally_silent_people_go_in_the_order_of_their_ids_as_text,
    a_batch_evicts_the_silent_it_meets_up_to_its_bound_and_the_mark_passes_nobody_else,
    a_tick_evicts_no_more_than_it_may_its_sweeps_and_its_batch_together,
    the_mark_goes_past_few_silent_people_as_past_many,
    silent_people_who_are_already_admitted_lose_their_place_too,
}

const TIMEOUT_MS: u64 = 60_000;

async fn who_does_not_poll_for_the_timeout_is_evicted_and_who_does_stays(stand: Stand) {
    stand.crowd(1..=10).await;
    assert_eq!(stand.sweep_for(30_000).await, 0);
    for id in 6..=10 {
        stand.still_waits(id).await;
    }
    assert_eq!(stand.sweep_for(29_999).await, 0);
    assert_eq!(stand.sweep().await.evicted, 0, "one millisecond before the timeout");
    stand.advance(1);
    let sweep = stand.sweep().await;
    assert_eq!((sweep.evicted, sweep.more, sweep.gone), (5, false, false));
    assert_eq!(stand.poll(1).await, None);
    assert_eq!(stand.leave(1).await, Departure::WasNotHere);
    assert_eq!(stand.still_waits(6).await.ahead, 0);
    assert_eq!(stand.waits(1).await.seq, 11, "a new number at the back");
    let stats = stand.stats().await;
    assert_eq!((stats.evicted, stats.waiting, stats.entered), (5, 6, 11));
}

async fn a_poll_and_entering_again_both_keep_the_place(stand: Stand) {
    stand.crowd([1, 2, 3]).await;
    for _ in 0..4 {
        stand.sweep_for(TIMEOUT_MS - 2000).await;
        stand.still_waits(1).await;
        assert_eq!(stand.waits(2).await.seq, 2);
    }
    assert_eq!(stand.poll(3).await, None);
    assert_eq!(stand.stats().await.evicted, 1);
}

/// Polls once in 60.3 s, as a tab does that has been hidden for long, with a sweep every 2 s and an outage of five minutes.
/// Whether that keeps the place.
async fn polling_once_a_minute_keeps_the_place(stand: Stand) -> bool {
    stand.set_overrides(Overrides { paused: true, ..Overrides::default() });
    stand.crowd([1, 2]).await;
    for _ in 0..3 {
        stand.sweep_for(60_000).await;
        stand.advance(300);
        if stand.poll(1).await.is_none() {
            return false;
        }
    }
    stand.sweep_for(58_000).await;
    stand.advance(300_000);
    stand.sweep_for(62_000).await;
    stand.poll(1).await.is_some()
}

#[tokio::test]
async fn a_tab_that_polls_once_a_minute_keeps_its_place_by_the_slack_alone() {
    for (slack, kept) in [(None, true), (Some(0), false)] {
        let mut config = Config::parse_default();
        config.queue.heartbeat_slack_seconds = slack.unwrap_or(config.queue.heartbeat_slack_seconds);
        let rules = || QueueRules::from_config(&config);
        for stand in [Stand::embedded(rules()).await, Stand::redis(rules()).await] {
            assert_eq!(polling_once_a_minute_keeps_the_place(stand).await, kept, "slack {slack:?}");
        }
    }
}

async fn time_without_a_pulse_does_not_count_as_silence(stand: Stand) {
    // Held up, so that ticks admit nobody: they judge silence all the same.
    stand.set_overrides(Overrides { paused: true, ..Overrides::default() });
    stand.crowd(1..=4).await;
    assert_eq!(stand.sweep_for(50_000).await, 0);
    // Six seconds between two pulses are three ticks and still no gap; a millisecond more is.
    stand.advance(6_000);
    assert_eq!(stand.sweep().await.evicted, 0);
    stand.advance(300_000);
    assert_eq!(stand.sweep().await.evicted, 0, "five minutes in which nobody could poll");
    stand.tick().await;
    assert_eq!(stand.sweep_for(30_000).await, 0, "everybody has a whole timeout to come back");
    stand.still_waits(1).await;
    assert_eq!(stand.sweep_for(28_000).await, 0);
    stand.still_waits(2).await;
    assert_eq!(stand.sweep_for(2_000).await, 2, "who did not come back goes then");
    assert_eq!(stand.still_waits(1).await.ahead, 0);
    assert_eq!(stand.still_waits(2).await.ahead, 1);

    // A gap just over the limit begins a new grace; a gap at the limit does not.
    stand.sweep_for(26_000).await;
    stand.still_waits(2).await;
    stand.sweep_for(28_000).await;
    stand.advance(6_000);
    assert_eq!(stand.sweep().await.evicted, 1, "the first of them, at exactly the timeout");
    stand.sweep_for(14_000).await;
    stand.advance(6_001);
    assert_eq!(stand.sweep().await.evicted, 0);
    assert_eq!(stand.sweep_for(58_000).await, 0);
    assert_eq!(stand.sweep_for(2_000).await, 1);
}

async fn a_clock_that_goes_back_makes_nobody_silent(stand: Stand) {
    stand.crowd([1, 2]).await;
    stand.sweep().await;
    stand.clock.set(crate::stand::START_MS - 10_000_000);
    assert_eq!(stand.sweep().await.evicted, 0);
    stand.still_waits(1).await;
    assert_eq!(stand.sweep_for(58_000).await, 0);
    assert_eq!(stand.waits(3).await.seq, 3);
    stand.sweep_for(4_000).await;
    assert_eq!(stand.poll(1).await, None, "silent by the new time");
}

async fn a_sweep_takes_at_most_250_and_says_that_there_is_more(stand: Stand) {
    stand.set_overrides(Overrides { batch: Some(600), ..Overrides::default() });
    stand.crowd(1..=600).await;
    stand.batch().await;
    for id in 1..=600 {
        stand.pass(id).await;
    }
    stand.crowd(1001..=1600).await;
    assert_eq!(stand.sweep_for(TIMEOUT_MS - 2000).await, 0);
    stand.advance(2000);
    for (evicted, more) in [(250, true), (250, true), (100, false), (0, false)] {
        let sweep = stand.sweep().await;
        assert_eq!((sweep.evicted, sweep.expired, sweep.more), (evicted, 0, more));
    }
    stand.advance(300_000 - TIMEOUT_MS);
    assert_eq!(stand.stats().await.expired, 600, "over, though nobody has swept them yet");
    for (expired, more) in [(250, true), (250, true), (100, false)] {
        let sweep = stand.sweep().await;
        assert_eq!((sweep.evicted, sweep.expired, sweep.more), (0, expired, more));
    }
    let stats = stand.stats().await;
    assert_eq!((stats.expired, stats.live), (600, 0));
}

async fn equally_silent_people_go_in_the_order_of_their_ids_as_text(stand: Stand) {
    stand.crowd((1..=300).rev()).await;
    stand.sweep_for(TIMEOUT_MS - 2000).await;
    stand.advance(2000);
    assert_eq!(stand.sweep().await.evicted, 250);
    let mut by_text: Vec<u64> = (1..=300).collect();
    by_text.sort_by_key(u64::to_string);
    for (at, id) in by_text.into_iter().enumerate() {
        assert_eq!(stand.poll(id).await.is_some(), at >= 250, "{id}");
    }
}

async fn a_batch_evicts_the_silent_it_meets_up_to_its_bound_and_the_mark_passes_nobody_else(stand: Stand) {
    let paused = Overrides { paused: true, ..Overrides::default() };
    stand.set_overrides(paused);
    stand.crowd(1..=5000).await;
    // The first 3,000 fall silent; the ticks of the pause keep the pulse going.
    for _ in 0..29 {
        stand.advance(2000);
        stand.tick().await;
    }
    for id in 3001..=5000 {
        stand.store.status(stand.target, crate::stand::user(id)).await.unwrap();
    }
    stand.advance(2000);
    stand.set_overrides(Overrides::default());

    let mut ticks = Vec::new();
    for _ in 0..5 {
        let Tick::Moved { people, evicted, .. } = stand.tick().await else { panic!("a batch was due") };
        assert!(people <= 100 && evicted <= 1000, "{people} people, {evicted} evicted");
        let stats = stand.stats().await;
        assert_eq!(stats.admitted + stats.evicted, stats.admitted_through, "the mark passed somebody");
        ticks.push((people, evicted));
        stand.advance(2000);
    }
    assert_eq!(ticks, [(0, 1000), (0, 1000), (100, 1000), (100, 0), (100, 0)]);
    assert_eq!(stand.poll(3000).await, None);
    stand.pass(3001).await;
    stand.pass(3300).await;
    stand.still_waits(3301).await;
}

/// People wait, and all but those who are `there` are silent when the next batch is due.
async fn silent_but(stand: &Stand, people: u64, there: impl Fn(&u64) -> bool) {
    stand.set_overrides(Overrides { paused: true, ..Overrides::default() });
    stand.crowd(1..=people).await;
    for _ in 0..29 {
        stand.advance(2000);
        stand.tick().await;
    }
    for id in (1..=people).filter(there) {
        stand.store.status(stand.target, crate::stand::user(id)).await.unwrap();
    }
    stand.advance(2000);
    stand.set_overrides(Overrides::default());
}

async fn a_tick_evicts_no_more_than_it_may_its_sweeps_and_its_batch_together(stand: Stand) {
    silent_but(&stand, 3000, |id| *id == 3000).await;
    let (mut evicted, mut sweeps) = (0, Vec::new());
    loop {
        let sweep = stand.store.sweep_stale(stand.target, evicted).await.unwrap();
        sweeps.push(sweep.evicted);
        evicted += sweep.evicted;
        if !sweep.more {
            break;
        }
    }
    assert_eq!(sweeps, [250, 250, 0], "half of it");
    let moved = stand.store.advance_admission(stand.target, evicted).await.unwrap();
    assert!(matches!(moved, Tick::Moved { people: 0, evicted: 500, .. }), "and the other half: {moved:?}");
    assert_eq!(stand.store.sweep_stale(stand.target, 400).await.unwrap().evicted, 100, "what is left of it");
    assert_eq!(stand.store.sweep_stale(stand.target, 1000).await.unwrap().evicted, 0);
    assert_eq!(stand.stats().await.evicted, 1100);
}

async fn the_mark_goes_past_few_silent_people_as_past_many(stand: Stand) {
    // Every 20th is silent; then, of those after them, every second.
    silent_but(&stand, 2000, |id| id % 20 != 0).await;
    let moved = stand.tick().await;
    assert!(matches!(moved, Tick::Moved { people: 100, evicted: 5, .. }), "{moved:?}");
    assert_eq!(stand.stats().await.admitted_through, 105);
    stand.pass(105).await;

    stand.set_overrides(Overrides { paused: true, ..Overrides::default() });
    for _ in 0..29 {
        stand.advance(2000);
        stand.tick().await;
    }
    for id in (107..2000).step_by(2) {
        stand.store.status(stand.target, crate::stand::user(id)).await.unwrap();
    }
    stand.advance(2000);
    stand.set_overrides(Overrides::default());
    let moved = stand.tick().await;
    assert!(matches!(moved, Tick::Moved { people: 100, evicted: 100, .. }), "{moved:?}");
    assert_eq!(stand.stats().await.admitted_through, 305, "the hundredth odd number from 107 on");
    stand.still_waits(307).await;
}

async fn silent_people_who_are_already_admitted_lose_their_place_too(stand: Stand) {
    stand.crowd([1, 2, 3]).await;
    stand.batch().await;
    stand.pass(1).await;
    assert_eq!(stand.sweep_for(TIMEOUT_MS).await, 2);
    assert_eq!(stand.poll(2).await, None);
    assert!(matches!(stand.poll(1).await, Some(Place::Admitted { .. })), "a pass needs no polls");
    let stats = stand.stats().await;
    assert_eq!((stats.admitted, stats.issued, stats.evicted), (3, 1, 2));
}
