//! The circuit breaker: whether Redis is unavailable. Each master has one (`docs/design.md`, "Circuit breaker").
//!
//! Any caller may open it or set it to in doubt. Only the probe closes it.

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

/// If the breaker opens again this soon after it closed, Redis is unstable: at its memory limit, each freed buffer
/// makes room for a moment.
const SOON: Duration = Duration::from_secs(10);
/// How long Redis must then be without fault before the breaker closes. Doubles each time.
const FIRST_HOLD: Duration = Duration::from_millis(500);
/// The longest such time: queueing resumes within 3 s of the end of any fault.
const LONGEST_HOLD: Duration = Duration::from_secs(2);

/// If no buyer's call is answered in time for this long, the breaker opens, however well the probe does (ADR 0015).
const PATIENCE: Duration = Duration::from_secs(2);
/// The same limit if the breaker closed less than [`SOON`] ago.
const LITTLE_PATIENCE: Duration = Duration::from_millis(500);
/// Two unanswered calls count together only if they are less than this apart: without calls, nothing is known of Redis.
const LULL: Duration = Duration::from_secs(2);

/// The most causes that are logged in one outage.
const MOST_CAUSES: usize = 5;

/// What is known about Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Redis answers.
    Closed,
    /// A call timed out. Calls still go, and a probe runs.
    InDoubt,
    /// Redis is unavailable. Calls fail at once.
    Open,
}

/// The circuit breaker. It starts open: nothing is known before the first probe.
#[derive(Debug)]
pub struct Breaker {
    state: watch::Sender<State>,
    /// Reports of an outage so far, including those made while the breaker was open.
    alarms: AtomicU64,
    lost_at: Mutex<Option<Duration>>,
    stability: Mutex<Stability>,
    /// Whether `stability.unanswered` is set. Read at every call.
    is_unanswered: AtomicBool,
    probe_now: Notify,
    clock: StoreClock,
    metrics: Arc<Metrics>,
}

/// How stable Redis is. Times are on [`StoreClock::monotonic`].
#[derive(Debug, Default)]
struct Stability {
    alarmed_at: Duration,
    closed_at: Option<Duration>,
    /// How long Redis must be without fault before the breaker closes.
    hold: Duration,
    /// The first and the last call of the current run of unanswered calls.
    unanswered: Option<(Duration, Duration)>,
    /// The causes that were logged in this outage.
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

    /// When Redis last became unavailable or available again, on [`StoreClock::monotonic`]. Another replica's last
    /// batch may have gone at any time up to then, and a failover may have lost it.
    pub fn lost_at(&self) -> Option<Duration> {
        *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the breaker or sets it to in doubt, depending on the failure.
    pub fn learn(&self, failure: &Failure) {
        match failure {
            Failure::Away(cause) => self.open(cause),
            Failure::TimedOut => self.doubt(),
            Failure::Broken(_) | Failure::Moving(_) | Failure::JustLost(_) => {}
        }
    }

    /// Opens the breaker. Each cause is logged once in an outage: a server that comes back may refuse calls for a new
    /// cause.
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

    /// A buyer's call was answered. A refusal counts, too.
    pub(super) fn answered(&self) {
        if self.is_unanswered.load(Ordering::Relaxed) {
            let mut stability = self.stability();
            stability.unanswered = None;
            // Under the lock, so that the two always agree.
            self.is_unanswered.store(false, Ordering::Relaxed);
        }
    }

    /// A buyer's call was not answered in time. If this lasts, the breaker opens, even if Redis answers the probe: else
    /// people would wait for ever, and scripts would continue to issue passes that nobody receives.
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

    /// A call timed out.
    pub fn doubt(&self) {
        let was = self.change(|state| if state == State::Closed { State::InDoubt } else { state });
        if was == State::Closed {
            tracing::warn!("redis did not answer in time; probing it");
            self.probe_now.notify_one();
        }
    }

    /// A connection was lost, but Redis itself seems to be available.
    pub(super) fn note_lost(&self) {
        self.note_lost_after(Duration::ZERO);
    }

    fn note_lost_after(&self, later: Duration) {
        let mut lost_at = self.lost_at.lock().unwrap_or_else(PoisonError::into_inner);
        *lost_at = (*lost_at).max(Some(self.clock.monotonic() + later));
    }

    /// Runs `replace`, after which another server is the master. `ready`: it takes calls already. Other processes may
    /// write to the old master until they learn of this, up to `noticed_within` later: if it was available to the end,
    /// ticks wait that much longer.
    pub(super) fn replaced(&self, ready: bool, noticed_within: Duration, replace: impl FnOnce()) {
        // Before `replace`: a caller that sees the new master must see this loss, too.
        self.note_lost_after(if self.state() == State::Open { Duration::ZERO } else { noticed_within });
        replace();
        self.alarms.fetch_add(1, Ordering::SeqCst);
        self.change(|state| if ready { state } else { State::Open });
        self.probe_now.notify_one();
    }

    /// How long until the last loss is `quiet` ago. None: it is already, or `quiet` is zero.
    pub(super) fn lost_within(&self, quiet: Duration) -> Option<Duration> {
        // The loss may be in the future (see `replaced`). A `quiet` of zero does not wait for it.
        if quiet.is_zero() {
            return None;
        }
        (self.lost_at()? + quiet).checked_sub(self.clock.monotonic()).filter(|rest| !rest.is_zero())
    }

    /// Asks for a probe now.
    pub(super) fn probe_soon(&self) {
        self.probe_now.notify_one();
    }

    /// The number of reports so far, for [`Self::close`].
    pub(super) fn alarms(&self) -> u64 {
        self.alarms.load(Ordering::SeqCst)
    }

    /// Whether a good probe is enough to close it. If Redis was unstable, only after some time without fault.
    pub(super) fn may_close(&self) -> bool {
        let stability = self.stability();
        self.state() != State::Open || self.clock.monotonic() >= stability.alarmed_at + stability.hold
    }

    /// Redis took the write of a probe that began at `alarms_before` alarms. A later alarm keeps the breaker as it is.
    pub(super) fn close(&self, alarms_before: u64) {
        if !self.may_close() {
            return;
        }
        // Before the state changes, so that no tick runs in between.
        if self.state() == State::Open {
            self.note_lost();
        }
        let was = self.change(|state| if self.alarms() == alarms_before { State::Closed } else { state });
        if was != State::Closed && self.alarms() == alarms_before {
            // The first connection, or a doubt that passed, says nothing about how stable Redis is.
            if was == State::Open && alarms_before > 0 {
                self.stability().closed_at = Some(self.clock.monotonic());
            }
            self.stability().causes.clear();
            tracing::info!("redis available: circuit breaker closed");
        }
    }

    /// Waits until a probe is needed, at most `longest`.
    pub(super) async fn probe_wanted(&self, longest: Duration) {
        // In both cases the next probe is due.
        let _ = tokio::time::timeout(longest, self.probe_now.notified()).await;
    }

    /// Waits until the state is `wanted`.
    pub async fn reached(&self, wanted: State) {
        // `self` owns the sender, so it is never gone here.
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
            // Inside the closure, so that concurrent changes are counted in the order in which they happened.
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
        // A master that was dropped no longer counts as unavailable.
        if self.state() == State::Open {
            self.metrics.breaker_closed();
        }
    }
}

#[cfg(test)]
mod tests;
