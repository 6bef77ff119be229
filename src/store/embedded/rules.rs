//! The rules in force for one target: the configuration, and the operator's overrides over it.

use std::ops::RangeInclusive;

use crate::{
    domain::Pacing,
    store::{Overrides, QueueRules},
};

/// The rules of one target at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct InForce<'a> {
    pub(super) rules: &'a QueueRules,
    pub(super) pacing: Pacing,
    pub(super) capacity: u64,
    pub(super) max_active: Option<u64>,
    pub(super) paused: bool,
    /// The store's time, ms.
    pub(super) now: u64,
}

impl<'a> InForce<'a> {
    pub(super) fn new(rules: &'a QueueRules, overrides: Option<&Overrides>, now: u64) -> Self {
        let over = overrides.copied().unwrap_or_default();
        let within = |set: Option<u64>, range: RangeInclusive<u64>| set.filter(|value| range.contains(value));
        Self {
            rules,
            pacing: Pacing {
                batch: within(over.batch, Overrides::BATCH).unwrap_or(rules.pacing.batch),
                tick_ms: within(over.tick_ms, Overrides::TICK_MS).unwrap_or(rules.pacing.tick_ms),
            },
            capacity: within(over.capacity, Overrides::CAPACITY).unwrap_or(rules.capacity),
            max_active: within(over.max_active, Overrides::MAX_ACTIVE),
            paused: over.paused,
            now,
        }
    }

    /// The store's time in whole seconds, as passes count it.
    pub(super) fn now_s(&self) -> u64 {
        self.now / 1000
    }
}
