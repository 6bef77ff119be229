//! How long the calls of a tick take. They begin this much earlier than their effect is due.

use std::time::Duration;

/// A tick begins at least this long before its batch goes.
pub(super) const LEAST_LEAD: Duration = Duration::from_millis(50);
/// How many batches are remembered.
const REMEMBERED: usize = 8;
/// Timers are late, round trips vary, and on a busy machine they look longer than they are. A batch that is requested a
/// little late is requested once; one that is requested early, twice.
const SLACK: Duration = Duration::from_millis(10);

/// What the last ticks of one target showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The longest lead: the tick lock is taken when the lead begins, and must hold until the batch has gone.
    longest_lead: Duration,
    /// How long locking and sweeping took; the newest first.
    preparing: [Option<Duration>; REMEMBERED],
    /// How long the last batches took, there and back; the newest first.
    trips: [Option<Duration>; REMEMBERED],
}

impl Pace {
    /// Before anything is measured.
    pub(super) fn new(tick: Duration) -> Self {
        // The lock holds for 0.95 of a tick, at most 0.95 of 2 s (`QueueRules::lock_ms`).
        let longest_lead = tick.min(Duration::from_secs(2)) / 2;
        Self { longest_lead, preparing: [None; REMEMBERED], trips: [None; REMEMBERED] }
    }

    /// How long before its batch a tick begins, so that locking and sweeping are done by then. The shortest time
    /// counts: if they take long because the machine is busy, earlier ticks would make them take even longer.
    pub(super) fn lead(&self) -> Duration {
        let quickest = self.preparing.iter().flatten().min().copied().unwrap_or_default();
        quickest.clamp(LEAST_LEAD.min(self.longest_lead), self.longest_lead)
    }

    /// How much earlier to request the next batch than the last reply says, so that the request reaches the store when
    /// the batch is due: the reply took time to arrive, and so will the request. The shortest time counts: an early
    /// request must be repeated.
    pub(super) fn head_start(&self) -> Duration {
        self.trips.iter().flatten().min().map_or(Duration::ZERO, |trip| trip.saturating_sub(SLACK))
    }

    /// Records how long locking and sweeping took.
    pub(super) fn prepared(&mut self, took: Duration) {
        self.preparing.rotate_right(1);
        self.preparing[0] = Some(took);
    }

    /// A batch went. Records how long it took until the reply.
    pub(super) fn batch_went(&mut self, took: Duration) {
        self.trips.rotate_right(1);
        self.trips[0] = Some(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(2);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_tick_begins_as_much_sooner_as_preparing_took() {
        let mut pace = Pace::new(TICK);
        assert_eq!(pace.lead(), ms(50), "before anything is known");
        pace.prepared(ms(3));
        assert_eq!(pace.lead(), ms(50), "and where the store is near");
        pace.prepared(ms(640));
        assert_eq!(pace.lead(), ms(50), "one that took long is an accident");
        for took in [640, 640, 640, 640, 640, 300, 310] {
            pace.prepared(ms(took));
        }
        assert_eq!(pace.lead(), ms(300));
    }

    #[test]
    fn the_lock_holds_until_the_batch_has_gone_however_long_preparing_takes() {
        for tick in [100, 500, 2000, 60_000] {
            let mut pace = Pace::new(ms(tick));
            assert!(pace.lead() <= ms(tick) / 2);
            pace.prepared(ms(100_000));
            let holds = ms(tick.min(2000) * 95 / 100);
            assert_eq!(pace.lead(), ms(tick.min(2000)) / 2);
            assert!(pace.lead() < holds);
        }
    }

    #[test]
    fn the_next_batch_is_asked_for_sooner_by_the_quickest_of_the_last_trips() {
        let mut pace = Pace::new(TICK);
        assert_eq!(pace.head_start(), Duration::ZERO);
        pace.batch_went(ms(1));
        assert_eq!(pace.head_start(), Duration::ZERO, "where the store is near");
        let mut pace = Pace::new(TICK);
        for took in [300, 160, 310, 305] {
            pace.batch_went(ms(took));
        }
        assert_eq!(pace.head_start(), ms(150));
        for took in [308, 307, 306, 305, 304, 303, 302] {
            pace.batch_went(ms(took));
        }
        assert_eq!(pace.head_start(), ms(292), "what was long ago does not count");
    }
}
