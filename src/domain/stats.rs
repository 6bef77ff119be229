//! The books of a target, and its waiting times (TDD: `QueueStats`; `docs/design.md`).

use super::position::Pacing;

/// Everything the store knows of one target, read in one moment.
///
/// `entered = waiting + issued + left + evicted` and `issued = live + consumed + expired + revoked`
/// ([`Self::imbalance`]); direct passes stand outside.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueStats {
    /// People given a number in this life of the target.
    pub entered: u64,
    /// People in the queue, those admitted who have not polled yet included.
    pub waiting: u64,
    /// Passes issued.
    pub issued: u64,
    /// People who left while waiting.
    pub left: u64,
    /// People who lost their place by not polling.
    pub evicted: u64,
    /// Passes that are valid now.
    pub live: u64,
    /// Passes that bought.
    pub consumed: u64,
    /// Passes that ended unused.
    pub expired: u64,
    /// Passes given up by leaving.
    pub revoked: u64,
    /// Direct passes given while this target had a queue (flag off, or failing open). Too few rather than too many: a
    /// report that was not answered in time is not made again.
    pub direct: u64,
    /// Direct passes that bought.
    pub direct_consumed: u64,
    /// People the ticks have admitted.
    pub admitted: u64,
    /// The mark: everybody with a number up to here is admitted.
    pub admitted_through: u64,
    /// The last number given.
    pub last_number: u64,
    /// People admitted a second, over the last 60 s (over the target's life while it is younger).
    pub admission_rate_per_sec: f64,
    /// Waits from entry to pass, over the target's life.
    pub waits: WaitHistogram,
    /// How many may wait.
    pub capacity: u64,
    /// The pace in force.
    pub pacing: Pacing,
    /// The operator has stopped admission.
    pub paused: bool,
}

impl QueueStats {
    /// A target nobody has used: zeros, and the pace it would have.
    pub fn unused(capacity: u64, pacing: Pacing, paused: bool) -> Self {
        Self {
            entered: 0,
            waiting: 0,
            issued: 0,
            left: 0,
            evicted: 0,
            live: 0,
            consumed: 0,
            expired: 0,
            revoked: 0,
            direct: 0,
            direct_consumed: 0,
            admitted: 0,
            admitted_through: 0,
            last_number: 0,
            admission_rate_per_sec: 0.0,
            waits: WaitHistogram::default(),
            capacity,
            pacing,
            paused,
        }
    }

    /// Where the books do not balance (`docs/design.md`): `None`, or the equation that fails with its numbers.
    pub fn imbalance(&self) -> Option<String> {
        let people = self.waiting + self.issued + self.left + self.evicted;
        if self.entered != people {
            return Some(format!(
                "entered {} ≠ waiting {} + issued {} + left {} + evicted {}",
                self.entered, self.waiting, self.issued, self.left, self.evicted
            ));
        }
        let passes = self.live + self.consumed + self.expired + self.revoked;
        if self.issued != passes {
            return Some(format!(
                "issued {} ≠ live {} + consumed {} + expired {} + revoked {}",
                self.issued, self.live, self.consumed, self.expired, self.revoked
            ));
        }
        None
    }

    /// The pace as people a second.
    pub fn target_rate_per_sec(&self) -> f64 {
        self.pacing.batch as f64 * 1000.0 / self.pacing.tick_ms.max(1) as f64
    }
}

/// How fine a wait is known: the entry marks are this far apart (`docs/design.md`).
pub const WAIT_UNIT_MS: u64 = 500;

/// Waits by size: 32 buckets of half a second, then 16 an octave (at most 6 % wide).
///
/// `includes/visit.lua` sorts waits into the same buckets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitHistogram {
    /// (bucket, how many), by bucket, each bucket once.
    buckets: Vec<(u64, u64)>,
    count: u64,
    sum_ms: u64,
}

impl WaitHistogram {
    /// A histogram from its buckets and the exact sum of the waits in it.
    pub fn from_buckets(mut buckets: Vec<(u64, u64)>, sum_ms: u64) -> Self {
        buckets.sort_unstable();
        let count = buckets.iter().map(|(_, n)| n).sum();
        Self { buckets, count, sum_ms }
    }

    /// Adds one wait.
    pub fn record(&mut self, wait_ms: u64) {
        let bucket = Self::bucket_of(wait_ms);
        match self.buckets.binary_search_by_key(&bucket, |(b, _)| *b) {
            Ok(at) => self.buckets[at].1 += 1,
            Err(at) => self.buckets.insert(at, (bucket, 1)),
        }
        self.count += 1;
        self.sum_ms += wait_ms;
    }

    /// The bucket of a wait.
    pub fn bucket_of(wait_ms: u64) -> u64 {
        let mut units = wait_ms / WAIT_UNIT_MS;
        let mut octave = 0;
        while units >= 32 {
            units /= 2;
            octave += 1;
        }
        octave * 16 + units
    }

    /// The middle of a bucket, in seconds.
    fn middle_seconds(bucket: u64) -> f64 {
        let octave = if bucket < 32 { 0 } else { bucket / 16 - 1 };
        let units = bucket - octave * 16;
        let width = (1u64 << octave.min(63)) as f64 * WAIT_UNIT_MS as f64 / 1000.0;
        (units as f64 + 0.5) * width
    }

    /// The mean, in seconds; 0.0 if nobody has waited yet.
    pub fn mean_seconds(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ms as f64 / self.count as f64 / 1000.0 }
    }

    /// The wait that a share `q` (0.0..=1.0) of the people did not exceed, in seconds, to the width of a bucket;
    /// 0.0 if nobody has waited yet.
    pub fn quantile_seconds(&self, q: f64) -> f64 {
        let rank = (q * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, n) in &self.buckets {
            seen += n;
            if seen >= rank {
                return Self::middle_seconds(*bucket);
            }
        }
        0.0
    }

    /// How many waits are in it.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_lands_in_the_bucket_that_covers_it() {
        for ms in (0..4_000_000).step_by(137) {
            let middle = WaitHistogram::middle_seconds(WaitHistogram::bucket_of(ms));
            let seconds = ms as f64 / 1000.0;
            assert!((middle - seconds).abs() <= (seconds * 0.033).max(0.25) + 1e-9, "{seconds} s sits at {middle} s");
        }
    }

    #[test]
    fn buckets_grow_with_the_wait() {
        let mut last = 0;
        for ms in (0..10_000_000).step_by(500) {
            let bucket = WaitHistogram::bucket_of(ms);
            assert!(bucket == last || bucket == last + 1, "{ms}: {last} → {bucket}");
            last = bucket;
        }
    }

    #[test]
    fn quantiles_count_people() {
        let mut waits = WaitHistogram::default();
        assert_eq!(waits.quantile_seconds(0.95), 0.0);
        assert_eq!(waits.mean_seconds(), 0.0);
        for seconds in 0..100u64 {
            waits.record(seconds * 1000);
        }
        assert_eq!(waits.count(), 100);
        assert!((waits.quantile_seconds(0.5) - 49.0).abs() < 2.0);
        assert!((waits.quantile_seconds(0.95) - 94.0).abs() < 4.0);
        assert!((waits.mean_seconds() - 49.5).abs() < 1e-9);
    }

    #[test]
    fn an_unbalanced_book_names_the_equation() {
        let mut stats = QueueStats::unused(1, Pacing { batch: 1, tick_ms: 2000 }, false);
        assert_eq!(stats.imbalance(), None);
        stats.entered = 2;
        stats.waiting = 1;
        assert!(stats.imbalance().expect("one is missing").contains("entered 2"));
    }
}
