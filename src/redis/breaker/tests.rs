use super::*;
use crate::{
    clock::{Clock, FakeClock},
    redis::failure::Moving,
};

fn breaker_and_clock() -> (Breaker, Arc<FakeClock>) {
    let clock = FakeClock::at(5_000);
    let breaker = Breaker::new(StoreClock::new(clock.clone()), Arc::new(Metrics::new()));
    breaker.close(0);
    clock.advance(Duration::from_secs(2));
    (breaker, clock)
}

fn breaker() -> Breaker {
    breaker_and_clock().0
}

#[test]
fn a_time_out_alone_lets_calls_go_on() {
    let breaker = breaker();
    breaker.learn(&Failure::TimedOut);
    assert_eq!(breaker.state(), State::InDoubt);
    assert_eq!(breaker.check(), Ok(()));
    breaker.close(breaker.alarms());
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(breaker.lost_at(), Some(Duration::from_secs(5)), "found at the start, and not lost since");
}

#[test]
fn what_counts_is_when_it_was_found_again() {
    let (breaker, clock) = breaker_and_clock();
    breaker.open("reset");
    assert_eq!(breaker.lost_at(), Some(Duration::from_secs(7)));
    clock.advance(Duration::from_secs(3));
    breaker.close(breaker.alarms());
    assert_eq!(breaker.lost_at(), Some(Duration::from_secs(10)));
}

#[test]
fn an_outage_fails_calls_at_once_and_a_time_out_does_not_soften_it() {
    let breaker = breaker();
    breaker.learn(&Failure::Away("refused".to_owned()));
    breaker.learn(&Failure::TimedOut);
    assert_eq!(breaker.state(), State::Open);
    assert!(matches!(breaker.check(), Err(Failure::Away(_))));
    assert_eq!(breaker.lost_at(), Some(Duration::from_secs(7)));
}

#[test]
fn a_probe_begun_before_the_alarm_does_not_close_it() {
    let breaker = breaker();
    let before = breaker.alarms();
    breaker.open("reset");
    breaker.close(before);
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn a_fault_of_ours_changes_nothing_nor_do_keys_on_their_way() {
    let breaker = breaker();
    breaker.learn(&Failure::Broken("WRONGTYPE".to_owned()));
    breaker.learn(&Failure::Moving(Moving::TryAgain));
    assert_eq!((breaker.state(), breaker.lost_at()), (State::Closed, Some(Duration::from_secs(5))));
}

#[test]
fn another_master_is_lost_and_found_and_later_where_the_old_one_lives() {
    let breaker = breaker();
    breaker.replaced(true, Duration::from_secs(1), || ());
    assert_eq!(breaker.state(), State::Closed, "nobody is without");
    assert_eq!(breaker.lost_at(), Some(Duration::from_secs(8)), "others may tick at the old one for a second");
    assert_eq!(breaker.lost_within(Duration::from_secs(2)), Some(Duration::from_secs(3)));
    assert_eq!(breaker.lost_within(Duration::ZERO), None, "who waits for no loss waits for none ahead either");
    let before = breaker.alarms();
    breaker.replaced(false, Duration::from_secs(1), || ());
    breaker.close(before);
    assert_eq!(breaker.state(), State::Open, "what the old one answers closes nothing");
    breaker.replaced(true, Duration::from_secs(1), || ());
    assert_eq!(breaker.state(), State::Open, "only the probe closes it");

    let away = self::breaker();
    away.open("reset");
    away.replaced(true, Duration::from_secs(1), || ());
    assert_eq!(away.lost_at(), Some(Duration::from_secs(7)), "it was away: nobody ticks there");
    assert_eq!(away.lost_within(Duration::from_secs(2)), Some(Duration::from_secs(2)));
    assert_eq!(away.lost_within(Duration::ZERO), None);
}

#[test]
fn the_gauge_is_1_while_any_master_is_away() {
    let metrics = Arc::new(Metrics::new());
    let clock = StoreClock::new(FakeClock::at(5_000));
    let [one, two] = [(); 2].map(|()| Breaker::new(clock.clone(), metrics.clone()));
    let shown = || metrics.render().contains("virtual_queue_redis_breaker_open 1");
    one.close(0);
    assert!(shown());
    drop(two);
    assert!(!shown(), "one that is no master any more does not count");
    one.open("reset");
    one.open("refused");
    assert!(shown());
    one.close(2);
    assert!(!shown());
}

/// Advances the time, with a good probe every 250 ms, until one closes the breaker. Returns how long that took.
fn closes_after(breaker: &Breaker, clock: &FakeClock) -> Duration {
    let began = clock.monotonic();
    while breaker.state() == State::Open {
        breaker.close(breaker.alarms());
        clock.advance(Duration::from_millis(250));
    }
    clock.monotonic() - began - Duration::from_millis(250)
}

#[test]
fn a_redis_that_keeps_changing_its_mind_must_be_steady_for_longer_and_longer() {
    let clock = FakeClock::at(5_000);
    let breaker = Breaker::new(StoreClock::new(clock.clone()), Arc::new(Metrics::new()));
    let mut waited = Vec::new();
    for _ in 0..6 {
        waited.push(closes_after(&breaker, &clock).as_millis());
        breaker.open("OOM");
    }
    assert_eq!(waited, [0, 0, 500, 1000, 2000, 2000], "the first time it comes, the first outage, and on");
    clock.advance(Duration::from_millis(1_900));
    breaker.open("OOM");
    clock.advance(Duration::from_millis(1_900));
    breaker.close(breaker.alarms());
    assert_eq!(breaker.state(), State::Open, "without fault since the last alarm, that is");
}

#[test]
fn whoever_was_steady_for_long_enough_is_believed_at_once_again() {
    let clock = FakeClock::at(5_000);
    let breaker = Breaker::new(StoreClock::new(clock.clone()), Arc::new(Metrics::new()));
    for _ in 0..4 {
        closes_after(&breaker, &clock);
        breaker.open("OOM");
    }
    closes_after(&breaker, &clock);
    clock.advance(SOON);
    breaker.open("the connection was cut");
    assert_eq!(closes_after(&breaker, &clock), Duration::ZERO);
}

/// A buyer's call times out every `pause`; a good probe ends each doubt. Returns after how many the breaker is open.
fn gives_up_after(breaker: &Breaker, clock: &FakeClock, pause: Duration) -> Option<usize> {
    (1..=20).find(|_| {
        clock.advance(pause);
        breaker.learn(&Failure::TimedOut);
        breaker.unanswered();
        if breaker.state() == State::InDoubt {
            breaker.close(breaker.alarms());
        }
        breaker.state() == State::Open
    })
}

#[test]
fn a_redis_that_answers_the_probe_and_nobody_else_counts_as_away_after_two_seconds() {
    let (breaker, clock) = breaker_and_clock();
    assert_eq!(gives_up_after(&breaker, &clock, Duration::from_millis(400)), Some(6), "2 s after the first");
    closes_after(&breaker, &clock);
    assert_eq!(gives_up_after(&breaker, &clock, Duration::from_millis(250)), Some(3), "and sooner where it just did");
    closes_after(&breaker, &clock);
    clock.advance(SOON);
    assert_eq!(gives_up_after(&breaker, &clock, Duration::from_secs(1)), Some(3));
}

#[test]
fn one_answer_in_time_or_a_lull_begins_the_two_seconds_anew() {
    let (breaker, clock) = breaker_and_clock();
    for _ in 0..3 {
        assert_eq!((0..4).find_map(|_| gives_up_after_one(&breaker, &clock)), None);
        breaker.answered();
    }
    assert_eq!(gives_up_after(&breaker, &clock, LULL), None, "two who ask far apart say nothing of what lies between");
}

fn gives_up_after_one(breaker: &Breaker, clock: &FakeClock) -> Option<State> {
    clock.advance(Duration::from_millis(500));
    breaker.unanswered();
    Some(breaker.state()).filter(|state| *state == State::Open)
}
