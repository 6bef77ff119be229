use std::ops::RangeInclusive;

use crate::config::{error::Problems, layers::SectionReader};

/// The queue's rules.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// How many may wait for one target.
    pub capacity: u64,
    /// People a tick.
    pub batch_size: u64,
    /// Milliseconds a tick.
    pub tick_ms: u64,
    /// Seconds from one poll to the next (PRD: 60).
    pub heartbeat_timeout_seconds: u64,
    /// Seconds that a poll may come later than that.
    pub heartbeat_slack_seconds: u64,
    /// Silent people a tick evicts at most.
    pub max_evict_per_tick: u64,
    /// Seconds after which an unused target is forgotten.
    pub idle_ttl_seconds: u64,
    /// How many targets may have a queue at a time.
    pub max_active_targets: u64,
}

impl QueueConfig {
    /// What [`Self::capacity`] may be.
    pub const CAPACITY: RangeInclusive<u64> = 1..=1_000_000_000;
    /// What [`Self::batch_size`] may be.
    pub const BATCH_SIZE: RangeInclusive<u64> = 1..=10_000;
    /// What [`Self::tick_ms`] may be.
    pub const TICK_MS: RangeInclusive<u64> = 500..=60_000;

    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            capacity: section.get("capacity"),
            batch_size: section.get("batch_size"),
            tick_ms: section.get("tick_ms"),
            heartbeat_timeout_seconds: section.get("heartbeat_timeout_seconds"),
            heartbeat_slack_seconds: section.get("heartbeat_slack_seconds"),
            max_evict_per_tick: section.get("max_evict_per_tick"),
            idle_ttl_seconds: section.get("idle_ttl_seconds"),
            max_active_targets: section.get("max_active_targets"),
        }
    }

    /// Seconds without a poll after which a place is lost.
    pub const fn silent_after_seconds(&self) -> u64 {
        self.heartbeat_timeout_seconds.saturating_add(self.heartbeat_slack_seconds)
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        problems.check_range("queue.capacity", self.capacity, Self::CAPACITY);
        problems.check_range("queue.batch_size", self.batch_size, Self::BATCH_SIZE);
        problems.check_range("queue.tick_ms", self.tick_ms, Self::TICK_MS);
        problems.check_range("queue.heartbeat_timeout_seconds", self.heartbeat_timeout_seconds, 1..=86_400);
        problems.check_range("queue.heartbeat_slack_seconds", self.heartbeat_slack_seconds, 0..=3600);
        problems.check_range("queue.max_evict_per_tick", self.max_evict_per_tick, 1..=1_000_000);
        problems.check_range("queue.idle_ttl_seconds", self.idle_ttl_seconds, 1..=2_592_000);
        problems.check_range("queue.max_active_targets", self.max_active_targets, 1..=1_000_000);
        // A silence is told from an outage by missing ticks (`docs/design.md`): several must fit into the timeout.
        let longest_tick_ms = self.heartbeat_timeout_seconds.saturating_mul(1000) / 6;
        if self.tick_ms > longest_tick_ms {
            problems.add(
                "queue.tick_ms",
                format!(
                    "must be at most {longest_tick_ms}, a sixth of queue.heartbeat_timeout_seconds ({}), not {}",
                    self.heartbeat_timeout_seconds, self.tick_ms
                ),
            );
        }
        if self.idle_ttl_seconds < self.silent_after_seconds() {
            problems.add(
                "queue.idle_ttl_seconds",
                format!(
                    "must be at least {}, queue.heartbeat_timeout_seconds and queue.heartbeat_slack_seconds, not {}: a \
                     target would be forgotten before the people in it",
                    self.silent_after_seconds(),
                    self.idle_ttl_seconds
                ),
            );
        }
    }
}
