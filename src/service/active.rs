//! The targets that this replica knows to have a queue, without asking the store.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use crate::domain::QueueTarget;

/// The directory of pumps renews this set every second. A new target is added at once.
#[derive(Debug, Default)]
pub struct ActiveTargets(RwLock<HashSet<QueueTarget>>);

impl ActiveTargets {
    /// Whether the target is known to have a queue.
    pub fn contains(&self, target: QueueTarget) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&target)
    }

    /// How many targets there are.
    pub fn count(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Adds a target.
    pub fn add(&self, target: QueueTarget) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(target);
    }

    /// Replaces the set with these targets.
    pub fn replace(&self, targets: impl IntoIterator<Item = QueueTarget>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = targets.into_iter().collect();
    }
}
