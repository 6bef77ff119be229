//! When the ticks of a target keep failing, the log says so once.

use std::time::Duration;

use crate::domain::QueueTarget;

/// How many ticks without a good one until it is logged.
const TICKS: u32 = 5;

/// The recent failures of one target's ticks.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Since when no tick was good, on the monotonic clock.
    since: Option<Duration>,
    is_told: bool,
}

impl Trouble {
    /// A tick failed. `away`: the store is unavailable, which the circuit breaker logs once for all targets. True: it
    /// is time to log it.
    pub(super) fn failed(&mut self, now: Duration, tick: Duration, away: bool) -> bool {
        if away {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_news = !self.is_told && now.saturating_sub(since) > tick * TICKS;
        self.is_told |= is_news;
        is_news
    }

    /// A tick was good. True: a failure that was logged is over.
    pub(super) fn is_over(&mut self) -> bool {
        self.since = None;
        std::mem::take(&mut self.is_told)
    }
}

/// Logs that ticks keep failing.
pub(super) fn tell(target: QueueTarget, cause: &str) {
    tracing::warn!(%target, cause, "the ticks of this target keep failing: nobody is admitted");
}

/// Logs that ticks succeed again.
pub(super) fn tell_end(target: QueueTarget) {
    // At the same level as the beginning, so it is limited in the same way if a thousand targets are affected.
    tracing::warn!(%target, "the ticks of this target succeed again");
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(2);

    #[test]
    fn ticks_that_keep_failing_are_told_of_once_and_so_is_their_end() {
        let mut trouble = Trouble::default();
        let told: Vec<u64> =
            (0..60).filter(|second| trouble.failed(Duration::from_secs(*second), TICK, false)).collect();
        assert_eq!(told, [11], "after five ticks of two seconds");
        assert!(trouble.is_over());
        assert!(!trouble.is_over(), "once");
        assert!(!trouble.failed(Duration::from_secs(60), TICK, false), "a single one is no news");
        assert!(!trouble.is_over());
        assert!(!trouble.failed(Duration::from_secs(99), TICK, false), "nor is the next single one");
    }

    #[test]
    fn an_outage_is_told_elsewhere() {
        let mut trouble = Trouble::default();
        for second in 0..60 {
            assert!(!trouble.failed(Duration::from_secs(second), TICK, true));
        }
        assert!(!trouble.failed(Duration::from_secs(60), TICK, false), "it counts from the outage's end");
        assert!(trouble.failed(Duration::from_secs(71), TICK, false));
        assert!(!trouble.failed(Duration::from_secs(72), TICK, true));
        assert!(!trouble.failed(Duration::from_secs(84), TICK, false) && trouble.is_over(), "it was told, and is over");
    }
}
