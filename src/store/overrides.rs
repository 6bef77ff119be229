//! What an operator may override for one target.

use std::ops::RangeInclusive;

use crate::config::QueueConfig;

/// An operator's settings for one target. They outlive its queue, and exempt it from the limit of active targets.
///
/// A value outside its range is ignored: a typing error must neither stop a queue nor open it. The scripts use the same
/// ranges (`redis-scripts/includes/pace.lua`). Unlike in the configuration, 0 people are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// People per tick.
    pub batch: Option<u64>,
    /// Length of a tick in milliseconds.
    pub tick_ms: Option<u64>,
    /// How many people may wait.
    pub capacity: Option<u64>,
    /// How many people may be inside: live passes, plus admitted people who have not collected the pass yet.
    pub max_active: Option<u64>,
    /// No batch goes.
    pub paused: bool,
}

impl Overrides {
    /// Range of [`Self::batch`].
    pub const BATCH: RangeInclusive<u64> = 0..=*QueueConfig::BATCH_SIZE.end();
    /// Range of [`Self::tick_ms`].
    pub const TICK_MS: RangeInclusive<u64> = QueueConfig::TICK_MS;
    /// Range of [`Self::capacity`].
    pub const CAPACITY: RangeInclusive<u64> = 0..=*QueueConfig::CAPACITY.end();
    /// Range of [`Self::max_active`].
    pub const MAX_ACTIVE: RangeInclusive<u64> = Self::CAPACITY;
}
