//! Whether Redis is unavailable. One a master (DESIGN 5 "Failing well").
//!
//! Anybody may open it or put it in doubt; only the probe closes it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::failure::Failure;
use crate::{clock::StoreClock, metrics::Metrics};

/// Open again so soon after it closed, and Redis keeps changing its stability: at the very edge of its memory, every buffer
/// that is freed makes room for a moment.
const SOON: Duration = Duration::from_secs(10);
/// How long Redis must have been without fault then. Doubles each time.
const FIRST_HOLD: Duration = Duration::from_millis(500);
/// And no longer than this: queueing resumes within 3 s of the end of any fault.
const LONGEST_HOLD: Duration = Duration::from_secs(2);

/// So long none of people's calls may be answered in time: it is no hiccup then, however well the probe fares (ADR 0015).
const PATIENCE: Duration = Duration::from_secs(2);
/// And so long where that has just been found out.
const LITTLE_PATIENCE: Duration = Duration::from_millis(500);
/// From one call without an answer to the next at most: where nobody asks in between, nothing is known of it.
const LULL: Duration = Duration::from_secs(2);

/// Causes told in one outage at most.
const MOST_CAUSES: usize = 5;

/// What is known of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It answers.
    Closed,
    /// Somebody got no answer in time: calls still go, and a probe is under way.
    InDoubt,
    /// It is away: calls fail at once.
    Open,
}

/// The breaker. Starts open: nothing is known before the first probe.
#[derive(Debug)]
pub struct Breaker {
    state: watch::Sender<State>,
    /// Reports of an outage so far, also those that found it open.
    alarms: AtomicU64,
    lost_at: Mutex<Option<Duration>>,
    stability: Mutex<Stability>,
    /// Whether `stability.unanswered` is set: asked at every call.
    is_unanswered: AtomicBool,
    probe_now: Notify,
    clock: StoreClock,
    metrics: Arc<Metrics>,
}

/// How steady Redis is; times on [`StoreClock::monotonic`].
#[derive(Debug, Default)]
struct Stability {
    alarmed_at: Duration,
    closed_at: Option<Duration>,
    /// How long it must be without fault before the breaker closes.
    hold: Duration,
    /// The first and the last of the calls since which none was answered in time.
    unanswered: Option<(Duration, Duration)>,
    /// Why it is away, as told in this outage.
    causes: Vec<String>,
}

impl Breaker {
    /// A breaker that is open until the first probe succeeds.
    pub fn new(clock: StoreClock, metrics: Arc<Metrics>) -> Self {
        metrics.breaker_opened();
        Self {
            state: watch::Sender::new(State::Open),
            alarms: AtomicU64::new(0),
            lost_at: Mutex::new(None),
            stability: Mutex::default(),
            is_unanswered: AtomicBool::new(false),
            probe_now: Notify::new(),
            clock,
            metrics,
        }
    }

    /// The state now.
    pub fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Whether a call may go.
    ///
    /// # Errors
    /// [`Failure::Away`] while open.
    pub fn check(&self) -> Result<(), Failure> {
        match self.state() {
            State::Closed | State::InDoubt => Ok(()),
            State::Open => Err(Failure::Away("known to be away".to_owned())),
        }
    }

    /// When Redis was last lost or found again, on [`StoreClock::monotonic`]: somebody else's last batch may have gone
    /// at any time up to then, and a failover may have lost it.
    pub fn lost_at(&self) -> Option<Duration> {
        *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets what a failure means take effect.
    pub fn learn(&self, failure: &Failure) {
        match failure {
            Failure::Away(cause) => self.open(cause),
            Failure::TimedOut => self.doubt(),
            Failure::Broken(_) | Failure::Moving(_) | Failure::JustLost(_) => {}
        }
    }

    /// Redis is away. Every cause is told once in an outage: what a server that comes back refuses is another than its
    /// having been gone.
    pub fn open(&self, cause: &str) {
        self.alarms.fetch_add(1, Ordering::SeqCst);
        let now = self.clock.monotonic();
        self.stability().alarmed_at = now;
        let was = self.change(|_| State::Open);
        let mut stability = self.stability();
        if was != State::Open {
            let again = stability.closed_at.is_some_and(|at| now < at + SOON);
            stability.hold = if again { (stability.hold * 2).clamp(FIRST_HOLD, LONGEST_HOLD) } else { Duration::ZERO };
            stability.causes.clear();
        }
        let is_first = stability.causes.is_empty();
        let is_new = stability.causes.len() < MOST_CAUSES && !stability.causes.iter().any(|told| told == cause);
        if is_new {
            stability.causes.push(cause.to_owned());
        }
        drop(stability);
        if was != State::Open {
            self.answered();
            self.note_lost();
            self.probe_now.notify_one();
        }
        if is_first {
            tracing::warn!(cause, "redis unavailable: circuit breaker open");
        } else if is_new {
            tracing::warn!(cause, "redis still unavailable");
        }
    }

    /// One of people's calls was answered, be it with a no.
    pub(super) fn answered(&self) {
        if self.is_unanswered.load(Ordering::Relaxed) {
            let mut stability = self.stability();
            stability.unanswered = None;
            // Before anybody else gets at it: the two say the same.
            self.is_unanswered.store(false, Ordering::Relaxed);
        }
    }

    /// One of people's calls was not answered in time. Where none is for long enough, Redis is unavailable, though it may
    /// answer the probe: people would wait for ever, and scripts whose answers nobody gets would go on giving turns.
    pub(super) fn unanswered(&self) {
        let now = self.clock.monotonic();
        let mut stability = self.stability();
        let first = stability.unanswered.filter(|(_, last)| now < *last + LULL).map_or(now, |(first, _)| first);
        stability.unanswered = Some((first, now));
        self.is_unanswered.store(true, Ordering::Relaxed);
        let just_closed = stability.closed_at.is_some_and(|at| now < at + SOON);
        drop(stability);
        if self.state() != State::Open && now >= first + if just_closed { LITTLE_PATIENCE } else { PATIENCE } {
            self.open("it answers nobody in time (redis.command_timeout_ms)");
        }
    }

    /// Somebody got no answer in time.
    pub fn doubt(&self) {
        let was = self.change(|state| if state == State::Closed { State::InDoubt } else { state });
        if was == State::Closed {
            tracing::warn!("redis did not answer in time; probing it");
            self.probe_now.notify_one();
        }
    }

    /// A connection was lost while Redis itself seems to be there.
    pub(super) fn note_lost(&self) {
        self.note_lost_after(Duration::ZERO);
    }

    fn note_lost_after(&self, later: Duration) {
        let mut lost_at = self.lost_at.lock().unwrap_or_else(PoisonError::into_inner);
        *lost_at = (*lost_at).max(Some(self.clock.monotonic() + later));
    }

    /// Another server is the master once `replace` is done, and `ready` for calls or not. The one from before may still
    /// take writes of processes that learn of it up to `noticed_within` later: if it was there to the end, ticks wait for
    /// so long more.
    pub(super) fn replaced(&self, ready: bool, noticed_within: Duration, replace: impl FnOnce()) {
        // First of all: whoever finds the new one must find this, too.
        self.note_lost_after(if self.state() == State::Open { Duration::ZERO } else { noticed_within });
        replace();
        self.alarms.fetch_add(1, Ordering::SeqCst);
        self.change(|state| if ready { state } else { State::Open });
        self.probe_now.notify_one();
    }

    /// How long it still is until the last loss is `quiet` ago; none where it is already, or nothing is to be waited for.
    pub(super) fn lost_within(&self, quiet: Duration) -> Option<Duration> {
        // A loss may lie ahead: see `replaced`.
        if quiet.is_zero() {
            return None;
        }
        (self.lost_at()? + quiet).checked_sub(self.clock.monotonic()).filter(|rest| !rest.is_zero())
    }

    /// There is something to probe.
    pub(super) fn probe_soon(&self) {
        self.probe_now.notify_one();
    }

    /// Reports so far, to be given to [`Self::close`].
    pub(super) fn alarms(&self) -> u64 {
        self.alarms.load(Ordering::SeqCst)
    }

    /// Whether a good probe is enough to close it: not where Redis has changed its stability lately, until it is steady.
    pub(super) fn may_close(&self) -> bool {
        let stability = self.stability();
        self.state() != State::Open || self.clock.monotonic() >= stability.alarmed_at + stability.hold
    }

    /// Redis took the probe's write, begun when there were so many alarms; a later alarm is the newer news.
    pub(super) fn close(&self, alarms_before: u64) {
        if !self.may_close() {
            return;
        }
        // Before the change, so that no tick comes in between.
        if self.state() == State::Open {
            self.note_lost();
        }
        let was = self.change(|state| if self.alarms() == alarms_before { State::Closed } else { state });
        if was != State::Closed && self.alarms() == alarms_before {
            // Having come for the first time says nothing about how steady it is, nor does a doubt that passed.
            if was == State::Open && alarms_before > 0 {
                self.stability().closed_at = Some(self.clock.monotonic());
            }
            self.stability().causes.clear();
            tracing::info!("redis available: circuit breaker closed");
        }
    }

    /// Waits until somebody needs a probe, at most `longest`.
    pub(super) async fn probe_wanted(&self, longest: Duration) {
        // Either way it is time for the next one.
        let _ = tokio::time::timeout(longest, self.probe_now.notified()).await;
    }

    /// Waits until the state is the wanted one.
    pub async fn reached(&self, wanted: State) {
        // The sender is our own: it cannot be gone.
        let _ = self.state.subscribe().wait_for(|state| *state == wanted).await;
    }

    fn stability(&self) -> MutexGuard<'_, Stability> {
        self.stability.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, next: impl Fn(State) -> State) -> State {
        let mut was = State::Open;
        self.state.send_if_modified(|state| {
            was = *state;
            *state = next(was);
            // In here, so that two changes at a time are counted in the order in which they happened.
            match (was == State::Open, *state == State::Open) {
                (false, true) => self.metrics.breaker_opened(),
                (true, false) => self.metrics.breaker_closed(),
                (true, true) | (false, false) => {}
            }
            *state != was
        });
        was
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        // Of a master that is none any more nothing is known, and nothing need be.
        if self.state() == State::Open {
            self.metrics.breaker_closed();
        }
    }
}

#[cfg(test)]
mod tests;
