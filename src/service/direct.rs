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

    /// Those of these targets, which then count from zero.
    pub(super) fn take(&self, which: impl Fn(QueueTarget) -> bool) -> Vec<(QueueTarget, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extract_if(|target, _| which(*target)).collect()
    }
}
