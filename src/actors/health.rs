//! What others can read about a pump without a message to it: a frozen pump does not answer.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// The health of one actor.
#[derive(Debug)]
pub(super) struct Health {
    /// When a call of the actor was last answered, or a tick ended: milliseconds on the monotonic clock.
    moved_at: AtomicU64,
    /// The target has ended, and the actor has stopped itself.
    ended: AtomicBool,
    /// The actor has no supervisor any more, or another has taken over: it stops after the current tick.
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

    /// Records progress. If round trips to the store are long, one tick may take longer than a tick; that is not
    /// frozen.
    pub(super) fn moves(&self, now: Duration) {
        self.moved_at.store(now.as_millis() as u64, Ordering::Release);
    }

    /// How long the actor has made no progress.
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

    /// Whether its reports no longer count: what they say about the target may be old.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() || self.is_replaced()
    }
}
