//! What others may know of a pump without asking it: one that is frozen does not answer.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// One actor's.
#[derive(Debug)]
pub(super) struct Health {
    /// When a call of it was last answered or a tick of it ended: milliseconds on the monotonic clock.
    moved_at: AtomicU64,
    /// The target is over and the actor has ended itself.
    ended: AtomicBool,
    /// Nobody looks after this one any more, or another has taken over: end after the tick under way.
    replaced: AtomicBool,
}

impl Health {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            moved_at: AtomicU64::new(now.as_millis() as u64),
            ended: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
        }
    }

    /// It has got on. Where the store is far, a tick may take longer than a tick, and is not frozen.
    pub(super) fn moves(&self, now: Duration) {
        self.moved_at.store(now.as_millis() as u64, Ordering::Release);
    }

    /// For how long it has not.
    pub(super) fn stood_still(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.moved_at.load(Ordering::Acquire)))
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// Nothing that it still says counts: what it says of its target may be long past.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() || self.is_replaced()
    }
}
