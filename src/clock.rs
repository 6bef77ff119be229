//! The time of the queue.
//!
//! The time that counts is the store's (`docs/design.md`: "Time is Redis's time"). [`StoreClock`] keeps how far this
//! machine's monotonic clock is from it, learns that from every reply, and holds it through an outage; so a machine
//! whose own clock is an hour wrong still gives and takes the right passes.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A source of time: since the epoch, and since an arbitrary start that never goes back.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since the epoch, as this machine believes.
    fn wall_ms(&self) -> u64;
    /// Time since some start; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic side starts now.
    #[expect(clippy::new_without_default, reason = "a start time is not a default value")]
    #[expect(clippy::disallowed_methods, reason = "this is the place that asks")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the place that asks")]
    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves only when told, for tests.
#[derive(Debug)]
pub struct FakeClock {
    now_ms: AtomicU64,
}

impl FakeClock {
    /// A clock that stands at `now_ms`.
    pub fn at(now_ms: u64) -> Arc<Self> {
        Arc::new(Self { now_ms: AtomicU64::new(now_ms) })
    }

    /// Moves on.
    pub fn advance(&self, by: Duration) {
        self.now_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }

    /// Jumps, also backwards.
    pub fn set(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn wall_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::SeqCst))
    }
}

/// The store's time, as well as it is known here. Cheap to clone; clones share what is learnt.
#[derive(Debug, Clone)]
pub struct StoreClock {
    source: Arc<dyn Clock>,
    /// Store microseconds at the start of the monotonic clock, as believed.
    base_us: Arc<AtomicI64>,
    /// None before the first reply: then it is this machine's own idea.
    belief: Arc<Mutex<Option<Belief>>>,
}

/// Where the store's clock can be: every reply says that it read its clock between the question and the answer.
#[derive(Debug, Clone, Copy)]
struct Belief {
    /// Store microseconds at the start of the monotonic clock are in here, both ends included.
    earliest_us: i64,
    latest_us: i64,
    /// When the newest of the replies that it rests on was asked for, and when it came; on the monotonic clock.
    asked: Duration,
    came: Duration,
}

/// Two clocks run apart by no more than this (Linux slews a clock by at most 0.5 ms a second; here are two of them).
const DRIFT_PER_MILLION: u128 = 1000;

impl Belief {
    /// What one reply says by itself.
    fn of_reply(asked: Duration, came: Duration, store_ms: u64) -> Self {
        let store_us = store_ms as i64 * 1000;
        // The store tells whole milliseconds.
        Self { earliest_us: store_us - micros(came), latest_us: store_us + 999 - micros(asked), asked, came }
    }

    /// What is still known of it later, the clocks having run apart since.
    fn aged(self, now: Duration) -> Self {
        let drift = (now.saturating_sub(self.came).as_micros() * DRIFT_PER_MILLION / 1_000_000) as i64;
        Self { earliest_us: self.earliest_us - drift, latest_us: self.latest_us + drift, ..self }
    }

    /// What both know together; none if they contradict each other.
    fn and(self, reply: Self) -> Option<Self> {
        let (earliest_us, latest_us) = (self.earliest_us.max(reply.earliest_us), self.latest_us.min(reply.latest_us));
        let asked = self.asked.max(reply.asked);
        (earliest_us <= latest_us).then_some(Self { earliest_us, latest_us, asked, came: reply.came })
    }
}

fn micros(time: Duration) -> i64 {
    time.as_micros() as i64
}

impl StoreClock {
    /// Starts from the machine's own idea of the time.
    pub fn new(source: Arc<dyn Clock>) -> Self {
        let base = source.wall_ms() as i64 * 1000 - micros(source.monotonic());
        Self { source, base_us: Arc::new(AtomicI64::new(base)), belief: Arc::default() }
    }

    /// Of the machine's clock.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }

    /// The store's time now: milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        let now = self.base_us.load(Ordering::Relaxed) + micros(self.source.monotonic());
        now.max(0) as u64 / 1000
    }

    /// The store's time now: whole seconds since the epoch.
    pub fn now_seconds(&self) -> u64 {
        self.now_ms() / 1000
    }

    /// Time since some start, for measuring and for limits; never goes back.
    pub fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    /// Learns from a reply: the store read `store_ms` on its clock some time between `asked` (on
    /// [`Self::monotonic`]) and now. However long it took, the truth is in between, so each reply narrows down what is
    /// known; the first is off by half its round trip at most. One that contradicts what is known means that the store's
    /// clock has stepped, or is another's, and is followed at once.
    pub fn observe(&self, asked: Duration, store_ms: u64) {
        let mut belief = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.source.monotonic();
        let reply = Belief::of_reply(asked, now, store_ms);
        let next = match *belief {
            None => reply,
            Some(before) => match before.aged(now).and(reply) {
                Some(both) => both,
                // Asked for before a step that is known from a later question.
                None if asked < before.asked => return,
                None => reply,
            },
        };
        *belief = Some(next);
        self.base_us.store(next.earliest_us + (next.latest_us - next.earliest_us) / 2, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_time_is_believed_over_our_own() {
        let machine = FakeClock::at(3_600_000);
        let clock = StoreClock::new(machine.clone());
        assert_eq!(clock.now_ms(), 3_600_000);
        clock.observe(clock.monotonic(), 7_200_500);
        assert_eq!(clock.now_ms(), 7_200_500);
        machine.advance(Duration::from_secs(90));
        assert_eq!(clock.now_ms(), 7_290_500, "and held while the store says nothing");
    }

    /// A reply that took `round_trip`, half of it on the way there, from a store that is `ahead_ms` ahead of the machine.
    fn hear(clock: &StoreClock, machine: &FakeClock, round_trip: u64, ahead_ms: i64) {
        hear_unevenly(clock, machine, (round_trip / 2, round_trip / 2), ahead_ms);
    }

    fn hear_unevenly(clock: &StoreClock, machine: &FakeClock, (there, back): (u64, u64), ahead_ms: i64) {
        let asked = clock.monotonic();
        machine.advance(Duration::from_millis(there));
        let store_ms = (machine.wall_ms() as i64 + ahead_ms) as u64;
        machine.advance(Duration::from_millis(back));
        clock.observe(asked, store_ms);
    }

    fn ahead(clock: &StoreClock, machine: &FakeClock) -> i64 {
        clock.now_ms() as i64 - machine.wall_ms() as i64
    }

    #[test]
    fn a_first_reply_that_took_long_is_believed_to_half_its_round_trip() {
        for (there, back) in [(75, 75), (0, 150), (150, 0), (400, 1)] {
            let machine = FakeClock::at(10_000_000);
            let clock = StoreClock::new(machine.clone());
            hear_unevenly(&clock, &machine, (there, back), 3_600_000);
            let off = ahead(&clock, &machine) - 3_600_000;
            assert!(off.unsigned_abs() <= (there + back) / 2 + 1, "{there} and {back} ms: {off} ms off");
        }
    }

    #[test]
    fn a_better_reply_corrects_and_a_worse_one_spoils_nothing() {
        let machine = FakeClock::at(10_000_000);
        let clock = StoreClock::new(machine.clone());
        hear_unevenly(&clock, &machine, (380, 0), -400_000);
        assert_eq!(ahead(&clock, &machine), -399_810, "half of it");
        hear(&clock, &machine, 2, -400_000);
        assert!((ahead(&clock, &machine) + 400_000).abs() <= 1);
        for uneven in [(380, 0), (0, 380)] {
            machine.advance(Duration::from_secs(1));
            hear_unevenly(&clock, &machine, uneven, -400_000);
            assert!((ahead(&clock, &machine) + 400_000).abs() <= 4, "{uneven:?}: {}", ahead(&clock, &machine));
        }
    }

    #[test]
    fn two_replies_know_more_than_the_better_of_them() {
        let machine = FakeClock::at(10_000_000);
        let clock = StoreClock::new(machine.clone());
        hear_unevenly(&clock, &machine, (200, 0), 5_000);
        hear_unevenly(&clock, &machine, (0, 200), 5_000);
        assert!((ahead(&clock, &machine) - 5_000).abs() <= 1, "{}", ahead(&clock, &machine));
    }

    #[test]
    fn a_clock_that_drifts_is_followed_over_a_slow_line_too() {
        let machine = FakeClock::at(10_000_000);
        let clock = StoreClock::new(machine.clone());
        // One that loses 0.1 ms a second, for an hour.
        for second in 0..3_600 {
            hear(&clock, &machine, 150, 60_000 - second / 10);
            machine.advance(Duration::from_millis(850));
            let off = ahead(&clock, &machine) - (60_000 - second / 10);
            assert!(off.abs() <= 76, "{off} ms off after {second} s");
        }
    }

    #[test]
    fn a_clock_that_steps_is_followed_at_the_first_reply_and_an_older_one_does_not_undo_it() {
        let machine = FakeClock::at(10_000_000);
        let clock = StoreClock::new(machine.clone());
        hear(&clock, &machine, 2, 0);
        for step in [10_000, -10_000, 300] {
            let (asked_before, told_before) = (clock.monotonic(), clock.now_ms());
            machine.advance(Duration::from_secs(1));
            hear(&clock, &machine, 150, step);
            assert!((ahead(&clock, &machine) - step).abs() <= 75, "{step}: {}", ahead(&clock, &machine));
            clock.observe(asked_before, told_before);
            assert!((ahead(&clock, &machine) - step).abs() <= 75, "{step}: {}", ahead(&clock, &machine));
        }
    }
}
