//! Which targets have a queue, as this replica knows it without asking.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use crate::domain::QueueTarget;

/// A set that the directory of pumps renews every second, and that a new target joins at once.
#[derive(Debug, Default)]
pub struct ActiveTargets(RwLock<HashSet<QueueTarget>>);

impl ActiveTargets {
    /// Whether the target is known to have a queue.
    pub fn contains(&self, target: QueueTarget) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&target)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// One more.
    pub fn add(&self, target: QueueTarget) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(target);
    }

    /// These, and no others.
    pub fn replace(&self, targets: impl IntoIterator<Item = QueueTarget>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = targets.into_iter().collect();
    }
}
