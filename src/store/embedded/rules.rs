//! What is in force for one target: the configuration, and the operator's overrides over it.

use crate::{domain::Pacing, store::QueueRules};

/// An operator's settings for one target. They outlive its queue, and free it from the limit of active targets.
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

/// The rules of one target in one moment.
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
        Self {
            rules,
            pacing: Pacing {
                batch: over.batch.unwrap_or(rules.pacing.batch),
                tick_ms: over.tick_ms.unwrap_or(rules.pacing.tick_ms),
            },
            capacity: over.capacity.unwrap_or(rules.capacity),
            max_active: over.max_active,
            paused: over.paused,
            now,
        }
    }

    /// The store's time in whole seconds, as passes count it.
    pub(super) fn now_s(&self) -> u64 {
        self.now / 1000
    }
}
