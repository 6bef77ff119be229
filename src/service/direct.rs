//! Direct passes that were given and are not yet in the books.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::domain::QueueTarget;

/// Passes for each target. Only targets with a queue are counted, so there are at most `queue.max_active_targets` of
/// them, plus those that the rule names.
#[derive(Debug, Default)]
pub(super) struct DirectCounts(Mutex<HashMap<QueueTarget, u64>>);

impl DirectCounts {
    pub(super) fn add(&self, target: QueueTarget, passes: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(target).or_default() += passes;
    }

    /// The targets with a count that `which` selects.
    pub(super) fn targets(&self, which: impl Fn(QueueTarget) -> bool) -> Vec<QueueTarget> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.keys().copied().filter(|target| which(*target)).collect()
    }

    /// Takes the count of this target, which then starts from zero.
    pub(super) fn take(&self, target: QueueTarget) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&target).unwrap_or_default()
    }
}
