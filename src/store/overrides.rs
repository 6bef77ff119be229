//! What an operator may set for one target over the configuration.

use std::ops::RangeInclusive;

use crate::config::QueueConfig;

/// An operator's settings for one target. They outlive its queue, and free it from the limit of active targets.
///
/// A value outside its range counts as none: a slip of the hand must neither stop a queue nor open it. The scripts hold
/// to the same ranges (`redis-scripts/includes/pace.lua`). Other than in the configuration, 0 people are a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// People a tick.
    pub batch: Option<u64>,
    /// Milliseconds a tick.
    pub tick_ms: Option<u64>,
    /// How many may wait.
    pub capacity: Option<u64>,
    /// How many may be inside: live passes, and who is admitted and has not collected the pass yet.
    pub max_active: Option<u64>,
    /// No batch goes.
    pub paused: bool,
}

impl Overrides {
    /// What [`Self::batch`] may be.
    pub const BATCH: RangeInclusive<u64> = 0..=*QueueConfig::BATCH_SIZE.end();
    /// What [`Self::tick_ms`] may be.
    pub const TICK_MS: RangeInclusive<u64> = QueueConfig::TICK_MS;
    /// What [`Self::capacity`] may be.
    pub const CAPACITY: RangeInclusive<u64> = 0..=*QueueConfig::CAPACITY.end();
    /// What [`Self::max_active`] may be.
    pub const MAX_ACTIVE: RangeInclusive<u64> = Self::CAPACITY;
}
