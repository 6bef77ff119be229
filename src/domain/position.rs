//! Where somebody stands, and what that means in seconds (TDD: `QueuePosition`).
//!
//! Whether somebody is admitted is decided by the fixed number alone (`docs/design.md`); `ahead` is for showing.

use std::time::Duration;

/// The pace of one target, as it is in force now: what the configuration says, or the operator's override.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// People a tick. 0 where an operator has set that.
    pub batch: u64,
    /// Milliseconds from one batch to the next, at least 1.
    pub tick_ms: u64,
}

/// A waiting person's place, as the store saw it in one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePosition {
    /// The fixed number, from 1 (the TDD's `seq`). It never changes while the person stays.
    pub seq: u64,
    /// Waiting people in front who have not been admitted yet.
    pub ahead: u64,
    /// The pace in force.
    pub pacing: Pacing,
    /// Milliseconds until the next batch may go, 0 when it is due.
    pub next_tick_in_ms: u64,
    /// The operator has stopped admission.
    pub paused: bool,
    /// False while no batch can let anybody in: paused, or as many people as allowed are inside.
    pub moving: bool,
}

impl QueuePosition {
    /// `admitted ⇔ seq ≤ admitted_count` (`docs/design.md`).
    pub fn is_admitted(seq: u64, admitted_count: u64) -> bool {
        seq <= admitted_count
    }

    /// Whole seconds until this person's batch, at least 1; `None` while nothing moves.
    pub fn eta_seconds(&self) -> Option<u64> {
        if !self.moving {
            return None;
        }
        let whole_batches = self.ahead / self.pacing.batch.max(1);
        let ms = whole_batches.saturating_mul(self.pacing.tick_ms).saturating_add(self.next_tick_in_ms);
        Some(ms.div_ceil(1000).max(1))
    }

    /// Seconds until the next poll is worth making: 2 near the front, growing with the ETA to a quarter of the
    /// heartbeat timeout, spread by ±20 % so that a crowd that arrived together does not poll together.
    ///
    /// `jitter` is a random number in 0.0..1.0.
    pub fn poll_after_seconds(&self, heartbeat_timeout: Duration, jitter: f64) -> u64 {
        let most = (heartbeat_timeout.as_secs_f64() / 4.0).max(1.0);
        let wish = match self.eta_seconds() {
            Some(eta) => (eta as f64 / 4.0).clamp(2.0, most.max(2.0)),
            None => most,
        };
        let spread = wish * (0.8 + 0.4 * jitter.clamp(0.0, 1.0));
        (spread.round() as u64).clamp(1, most.floor().max(1.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ahead: u64, next_tick_in_ms: u64) -> QueuePosition {
        QueuePosition {
            seq: ahead + 1,
            ahead,
            pacing: Pacing { batch: 100, tick_ms: 2000 },
            next_tick_in_ms,
            paused: false,
            moving: true,
        }
    }

    #[test]
    fn eta_is_whole_batches_ahead_plus_the_rest_of_this_tick() {
        assert_eq!(at(0, 2000).eta_seconds(), Some(2));
        assert_eq!(at(99, 1200).eta_seconds(), Some(2), "the first hundred go with the next tick");
        assert_eq!(at(100, 1200).eta_seconds(), Some(4), "the hundred-and-first waits one tick more");
        assert_eq!(at(250, 1).eta_seconds(), Some(5));
        assert_eq!(at(0, 0).eta_seconds(), Some(1), "never less than one second");
        assert_eq!(at(99_999, 2000).eta_seconds(), Some(2000));
    }

    #[test]
    fn there_is_no_eta_while_nothing_moves() {
        let stopped = QueuePosition { moving: false, ..at(10, 500) };
        assert_eq!(stopped.eta_seconds(), None);
    }

    #[test]
    fn polling_slows_down_with_distance_but_never_past_a_quarter_of_the_timeout() {
        let timeout = Duration::from_secs(60);
        assert_eq!(at(0, 2000).poll_after_seconds(timeout, 0.5), 2);
        assert_eq!(at(99_999, 2000).poll_after_seconds(timeout, 0.5), 15);
        for ahead in [0, 150, 1_000, 5_000, 100_000] {
            for jitter in [0.0, 0.3, 0.99, 1.0] {
                let seconds = at(ahead, 700).poll_after_seconds(timeout, jitter);
                assert!((1..=15).contains(&seconds), "{ahead} ahead: {seconds} s");
            }
        }
        assert!(at(99_999, 2000).poll_after_seconds(Duration::from_secs(3), 1.0) >= 1);
    }

    #[test]
    fn a_full_queue_polls_some_eight_thousand_times_a_second() {
        let timeout = Duration::from_secs(60);
        let total: f64 = (0..100_000u64)
            .map(|ahead| 1.0 / at(ahead, 1000).poll_after_seconds(timeout, (ahead % 100) as f64 / 100.0) as f64)
            .sum();
        assert!((6_000.0..9_000.0).contains(&total), "{total} polls a second");
    }
}
