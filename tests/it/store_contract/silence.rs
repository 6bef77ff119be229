//! Falling silent: who does not poll loses the place, unless nobody could poll.

use virtual_queue::{
    config::Config,
    store::{Departure, Place, QueueRules, Tick, embedded::Overrides},
};

use crate::store_fixture::StoreFixture;

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

async fn who_does_not_poll_for_the_timeout_is_evicted_and_who_does_stays(fixture: StoreFixture) {
    fixture.crowd(1..=10).await;
    assert_eq!(fixture.sweep_for(30_000).await, 0);
    for id in 6..=10 {
        fixture.still_waits(id).await;
    }
    assert_eq!(fixture.sweep_for(29_999).await, 0);
    assert_eq!(fixture.sweep().await.evicted, 0, "one millisecond before the timeout");
    fixture.advance(1);
    let sweep = fixture.sweep().await;
    assert_eq!((sweep.evicted, sweep.more, sweep.gone), (5, false, false));
    assert_eq!(fixture.poll(1).await, None);
    assert_eq!(fixture.leave(1).await, Departure::WasNotHere);
    assert_eq!(fixture.still_waits(6).await.ahead, 0);
    assert_eq!(fixture.waits(1).await.seq, 11, "a new number at the back");
    let stats = fixture.stats().await;
    assert_eq!((stats.evicted, stats.waiting, stats.entered), (5, 6, 11));
}

async fn a_poll_and_entering_again_both_keep_the_place(fixture: StoreFixture) {
    fixture.crowd([1, 2, 3]).await;
    for _ in 0..4 {
        fixture.sweep_for(TIMEOUT_MS - 2000).await;
        fixture.still_waits(1).await;
        assert_eq!(fixture.waits(2).await.seq, 2);
    }
    assert_eq!(fixture.poll(3).await, None);
    assert_eq!(fixture.stats().await.evicted, 1);
}

/// Polls once in 60.3 s, as a tab does that has been hidden for long, with a sweep every 2 s and an outage of five minutes.
/// Whether that keeps the place.
async fn polling_once_a_minute_keeps_the_place(fixture: StoreFixture) -> bool {
    fixture.set_overrides(Overrides { paused: true, ..Overrides::default() });
    fixture.crowd([1, 2]).await;
    for _ in 0..3 {
        fixture.sweep_for(60_000).await;
        fixture.advance(300);
        if fixture.poll(1).await.is_none() {
            return false;
        }
    }
    fixture.sweep_for(58_000).await;
    fixture.advance(300_000);
    fixture.sweep_for(62_000).await;
    fixture.poll(1).await.is_some()
}

#[tokio::test]
async fn a_tab_that_polls_once_a_minute_keeps_its_place_by_the_slack_alone() {
    for (slack, kept) in [(None, true), (Some(0), false)] {
        let mut config = Config::parse_default();
        config.queue.heartbeat_slack_seconds = slack.unwrap_or(config.queue.heartbeat_slack_seconds);
        let rules = || QueueRules::from_config(&config);
        for fixture in [StoreFixture::embedded(rules()).await, StoreFixture::redis(rules()).await] {
            assert_eq!(polling_once_a_minute_keeps_the_place(fixture).await, kept, "slack {slack:?}");
        }
    }
}

async fn time_without_a_pulse_does_not_count_as_silence(fixture: StoreFixture) {
    // Held up, so that ticks admit nobody: they judge silence all the same.
    fixture.set_overrides(Overrides { paused: true, ..Overrides::default() });
    fixture.crowd(1..=4).await;
    assert_eq!(fixture.sweep_for(50_000).await, 0);
    // Six seconds between two pulses are three ticks and still no gap; a millisecond more is.
    fixture.advance(6_000);
    assert_eq!(fixture.sweep().await.evicted, 0);
    fixture.advance(300_000);
    assert_eq!(fixture.sweep().await.evicted, 0, "five minutes in which nobody could poll");
    fixture.tick().await;
    assert_eq!(fixture.sweep_for(30_000).await, 0, "everybody has a whole timeout to come back");
    fixture.still_waits(1).await;
    assert_eq!(fixture.sweep_for(28_000).await, 0);
    fixture.still_waits(2).await;
    assert_eq!(fixture.sweep_for(2_000).await, 2, "who did not come back goes then");
    assert_eq!(fixture.still_waits(1).await.ahead, 0);
    assert_eq!(fixture.still_waits(2).await.ahead, 1);

    // A gap just over the limit begins a new grace; a gap at the limit does not.
    fixture.sweep_for(26_000).await;
    fixture.still_waits(2).await;
    fixture.sweep_for(28_000).await;
    fixture.advance(6_000);
    assert_eq!(fixture.sweep().await.evicted, 1, "the first of them, at exactly the timeout");
    fixture.sweep_for(14_000).await;
    fixture.advance(6_001);
    assert_eq!(fixture.sweep().await.evicted, 0);
    assert_eq!(fixture.sweep_for(58_000).await, 0);
    assert_eq!(fixture.sweep_for(2_000).await, 1);
}

async fn a_clock_that_goes_back_makes_nobody_silent(fixture: StoreFixture) {
    fixture.crowd([1, 2]).await;
    fixture.sweep().await;
    fixture.clock.set(crate::store_fixture::START_MS - 10_000_000);
    assert_eq!(fixture.sweep().await.evicted, 0);
    fixture.still_waits(1).await;
    assert_eq!(fixture.sweep_for(58_000).await, 0);
    assert_eq!(fixture.waits(3).await.seq, 3);
    fixture.sweep_for(4_000).await;
    assert_eq!(fixture.poll(1).await, None, "silent by the new time");
}

async fn a_sweep_takes_at_most_250_and_says_that_there_is_more(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { batch: Some(600), ..Overrides::default() });
    fixture.crowd(1..=600).await;
    fixture.batch().await;
    for id in 1..=600 {
        fixture.pass(id).await;
    }
    fixture.crowd(1001..=1600).await;
    assert_eq!(fixture.sweep_for(TIMEOUT_MS - 2000).await, 0);
    fixture.advance(2000);
    for (evicted, more) in [(250, true), (250, true), (100, false), (0, false)] {
        let sweep = fixture.sweep().await;
        assert_eq!((sweep.evicted, sweep.expired, sweep.more), (evicted, 0, more));
    }
    fixture.advance(300_000 - TIMEOUT_MS);
    assert_eq!(fixture.stats().await.expired, 600, "over, though nobody has swept them yet");
    for (expired, more) in [(250, true), (250, true), (100, false)] {
        let sweep = fixture.sweep().await;
        assert_eq!((sweep.evicted, sweep.expired, sweep.more), (0, expired, more));
    }
    let stats = fixture.stats().await;
    assert_eq!((stats.expired, stats.live), (600, 0));
}

async fn equally_silent_people_go_in_the_order_of_their_ids_as_text(fixture: StoreFixture) {
    fixture.crowd((1..=300).rev()).await;
    fixture.sweep_for(TIMEOUT_MS - 2000).await;
    fixture.advance(2000);
    assert_eq!(fixture.sweep().await.evicted, 250);
    let mut by_text: Vec<u64> = (1..=300).collect();
    by_text.sort_by_key(u64::to_string);
    for (at, id) in by_text.into_iter().enumerate() {
        assert_eq!(fixture.poll(id).await.is_some(), at >= 250, "{id}");
    }
}

async fn a_batch_evicts_the_silent_it_meets_up_to_its_bound_and_the_mark_passes_nobody_else(fixture: StoreFixture) {
    let paused = Overrides { paused: true, ..Overrides::default() };
    fixture.set_overrides(paused);
    fixture.crowd(1..=5000).await;
    // The first 3,000 fall silent; the ticks of the pause keep the pulse going.
    for _ in 0..29 {
        fixture.advance(2000);
        fixture.tick().await;
    }
    for id in 3001..=5000 {
        fixture.store.status(fixture.target, crate::store_fixture::user(id)).await.unwrap();
    }
    fixture.advance(2000);
    fixture.set_overrides(Overrides::default());

    let mut ticks = Vec::new();
    for _ in 0..5 {
        let Tick::Moved { people, evicted, .. } = fixture.tick().await else { panic!("a batch was due") };
        assert!(people <= 100 && evicted <= 1000, "{people} people, {evicted} evicted");
        let stats = fixture.stats().await;
        assert_eq!(stats.admitted + stats.evicted, stats.admitted_through, "the mark passed somebody");
        ticks.push((people, evicted));
        fixture.advance(2000);
    }
    assert_eq!(ticks, [(0, 1000), (0, 1000), (100, 1000), (100, 0), (100, 0)]);
    assert_eq!(fixture.poll(3000).await, None);
    fixture.pass(3001).await;
    fixture.pass(3300).await;
    fixture.still_waits(3301).await;
}

/// People wait, and all but those who are `there` are silent when the next batch is due.
async fn silent_but(fixture: &StoreFixture, people: u64, there: impl Fn(&u64) -> bool) {
    fixture.set_overrides(Overrides { paused: true, ..Overrides::default() });
    fixture.crowd(1..=people).await;
    for _ in 0..29 {
        fixture.advance(2000);
        fixture.tick().await;
    }
    for id in (1..=people).filter(there) {
        fixture.store.status(fixture.target, crate::store_fixture::user(id)).await.unwrap();
    }
    fixture.advance(2000);
    fixture.set_overrides(Overrides::default());
}

async fn a_tick_evicts_no_more_than_it_may_its_sweeps_and_its_batch_together(fixture: StoreFixture) {
    silent_but(&fixture, 3000, |id| *id == 3000).await;
    let (mut evicted, mut sweeps) = (0, Vec::new());
    loop {
        let sweep = fixture.store.sweep_stale(fixture.target, evicted).await.unwrap();
        sweeps.push(sweep.evicted);
        evicted += sweep.evicted;
        if !sweep.more {
            break;
        }
    }
    assert_eq!(sweeps, [250, 250, 0], "half of it");
    let moved = fixture.store.advance_admission(fixture.target, evicted).await.unwrap();
    assert!(matches!(moved, Tick::Moved { people: 0, evicted: 500, .. }), "and the other half: {moved:?}");
    assert_eq!(fixture.store.sweep_stale(fixture.target, 400).await.unwrap().evicted, 100, "what is left of it");
    assert_eq!(fixture.store.sweep_stale(fixture.target, 1000).await.unwrap().evicted, 0);
    assert_eq!(fixture.stats().await.evicted, 1100);
}

async fn the_mark_goes_past_few_silent_people_as_past_many(fixture: StoreFixture) {
    // Every 20th is silent; then, of those after them, every second.
    silent_but(&fixture, 2000, |id| id % 20 != 0).await;
    let moved = fixture.tick().await;
    assert!(matches!(moved, Tick::Moved { people: 100, evicted: 5, .. }), "{moved:?}");
    assert_eq!(fixture.stats().await.admitted_through, 105);
    fixture.pass(105).await;

    fixture.set_overrides(Overrides { paused: true, ..Overrides::default() });
    for _ in 0..29 {
        fixture.advance(2000);
        fixture.tick().await;
    }
    for id in (107..2000).step_by(2) {
        fixture.store.status(fixture.target, crate::store_fixture::user(id)).await.unwrap();
    }
    fixture.advance(2000);
    fixture.set_overrides(Overrides::default());
    let moved = fixture.tick().await;
    assert!(matches!(moved, Tick::Moved { people: 100, evicted: 100, .. }), "{moved:?}");
    assert_eq!(fixture.stats().await.admitted_through, 305, "the hundredth odd number from 107 on");
    fixture.still_waits(307).await;
}

async fn silent_people_who_are_already_admitted_lose_their_place_too(fixture: StoreFixture) {
    fixture.crowd([1, 2, 3]).await;
    fixture.batch().await;
    fixture.pass(1).await;
    assert_eq!(fixture.sweep_for(TIMEOUT_MS).await, 2);
    assert_eq!(fixture.poll(2).await, None);
    assert!(matches!(fixture.poll(1).await, Some(Place::Admitted { .. })), "a pass needs no polls");
    let stats = fixture.stats().await;
    assert_eq!((stats.admitted, stats.issued, stats.evicted), (3, 1, 2));
}
