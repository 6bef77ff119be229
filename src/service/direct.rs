//! Direct passes given and not yet in the books.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::domain::QueueTarget;

/// How many a target. Only targets with a queue are counted, so there are at most `queue.max_active_targets` of them
/// and those named by the rule.
#[derive(Debug, Default)]
pub(super) struct DirectCounts(Mutex<HashMap<QueueTarget, u64>>);

impl DirectCounts {
    pub(super) fn add(&self, target: QueueTarget, passes: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(target).or_default() += passes;
    }

    /// The targets of which there are any, as far as these are meant.
    pub(super) fn targets(&self, which: impl Fn(QueueTarget) -> bool) -> Vec<QueueTarget> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.keys().copied().filter(|target| which(*target)).collect()
    }

    /// Those of this target, which then counts from zero.
    pub(super) fn take(&self, target: QueueTarget) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&target).unwrap_or_default()
    }
}
