//! The only place that asks what time it is.
//!
//! The time that counts is the store's (DESIGN 5: "Time is Redis's time"). [`StoreClock`] keeps how far this
//! machine's monotonic clock is from it, learns that from every reply, and holds it through an outage; so a machine
//! whose own clock is an hour wrong still gives and takes the right passes.

use std::{
    fmt,
    sync::{
        Arc,
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
    /// Store milliseconds at the start of the monotonic clock.
    base_ms: Arc<AtomicI64>,
}

/// A reply that took longer says too little about when the store read its clock.
const TRUSTED_ROUND_TRIP: Duration = Duration::from_millis(100);

impl StoreClock {
    /// Starts from the machine's own idea of the time.
    pub fn new(source: Arc<dyn Clock>) -> Self {
        let base = source.wall_ms() as i64 - source.monotonic().as_millis() as i64;
        Self { source, base_ms: Arc::new(AtomicI64::new(base)) }
    }

    /// Of the machine's clock.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }

    /// The store's time now: milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        let now = self.base_ms.load(Ordering::Relaxed) + self.source.monotonic().as_millis() as i64;
        now.max(0) as u64
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
    /// [`Self::monotonic`]) and now. Replies that took long are not believed.
    pub fn observe(&self, asked: Duration, store_ms: u64) {
        let now = self.source.monotonic();
        let took = now.saturating_sub(asked);
        if took <= TRUSTED_ROUND_TRIP {
            let middle = asked + took / 2;
            self.base_ms.store(store_ms as i64 - middle.as_millis() as i64, Ordering::Relaxed);
        }
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

    #[test]
    fn a_reply_that_took_long_is_not_believed() {
        let machine = FakeClock::at(1_000);
        let clock = StoreClock::new(machine.clone());
        let asked = clock.monotonic();
        machine.advance(Duration::from_millis(400));
        clock.observe(asked, 99_000);
        assert_eq!(clock.now_ms(), 1_400);
    }
}
