//! Whether Redis counts as away. One a master (DESIGN 5 "Failing well").
//!
//! Anybody may open it or put it in doubt; only the probe closes it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::failure::Failure;
use crate::{clock::StoreClock, metrics::Metrics};

/// Open again so soon after it closed, and Redis keeps changing its mind: at the very edge of its memory, every buffer
/// that is freed makes room for a moment.
const SOON: Duration = Duration::from_secs(10);
/// How long Redis must have been without fault then. Doubles each time.
const FIRST_HOLD: Duration = Duration::from_millis(500);
/// And no longer than this: queueing resumes within 3 s of the end of any fault.
const LONGEST_HOLD: Duration = Duration::from_secs(2);

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
    mind: Mutex<Mind>,
    probe_now: Notify,
    clock: StoreClock,
    metrics: Arc<Metrics>,
}

/// How steady Redis is; times on [`StoreClock::monotonic`].
#[derive(Debug, Default)]
struct Mind {
    alarmed_at: Duration,
    closed_at: Option<Duration>,
    /// How long it must be without fault before the breaker closes.
    hold: Duration,
}

impl Breaker {
    /// A breaker that is open until the first probe succeeds.
    pub fn new(clock: StoreClock, metrics: Arc<Metrics>) -> Self {
        metrics.breaker_opened();
        Self {
            state: watch::Sender::new(State::Open),
            alarms: AtomicU64::new(0),
            lost_at: Mutex::new(None),
            mind: Mutex::default(),
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

    /// Redis is away.
    pub fn open(&self, cause: &str) {
        let is_first = self.alarms.fetch_add(1, Ordering::SeqCst) == 0;
        let now = self.clock.monotonic();
        self.mind().alarmed_at = now;
        let was = self.change(|_| State::Open);
        if was != State::Open {
            let mut mind = self.mind();
            let again = mind.closed_at.is_some_and(|at| now < at + SOON);
            mind.hold = if again { (mind.hold * 2).clamp(FIRST_HOLD, LONGEST_HOLD) } else { Duration::ZERO };
            drop(mind);
            self.note_lost();
            self.probe_now.notify_one();
        }
        // It starts open: then the first alarm tells why it stays so.
        if was != State::Open || is_first {
            tracing::warn!(cause, "redis counts as away");
        }
    }

    /// Somebody got no answer in time.
    pub fn doubt(&self) {
        let was = self.change(|state| if state == State::Closed { State::InDoubt } else { state });
        if was == State::Closed {
            tracing::warn!("redis did not answer in time, asking it");
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

    /// Whether a good probe is enough to close it: not where Redis has changed its mind lately, until it is steady.
    pub(super) fn may_close(&self) -> bool {
        let mind = self.mind();
        self.state() != State::Open || self.clock.monotonic() >= mind.alarmed_at + mind.hold
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
                self.mind().closed_at = Some(self.clock.monotonic());
            }
            tracing::info!("redis answers");
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

    fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
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
mod tests {
    use super::*;
    use crate::{
        clock::{Clock, FakeClock},
        redis::failure::Moving,
    };

    fn breaker_and_clock() -> (Breaker, Arc<FakeClock>) {
        let clock = FakeClock::at(5_000);
        let breaker = Breaker::new(StoreClock::new(clock.clone()), Arc::new(Metrics::new()));
        breaker.close(0);
        clock.advance(Duration::from_secs(2));
        (breaker, clock)
    }

    fn breaker() -> Breaker {
        breaker_and_clock().0
    }

    #[test]
    fn a_time_out_alone_lets_calls_go_on() {
        let breaker = breaker();
        breaker.learn(&Failure::TimedOut);
        assert_eq!(breaker.state(), State::InDoubt);
        assert_eq!(breaker.check(), Ok(()));
        breaker.close(breaker.alarms());
        assert_eq!(breaker.state(), State::Closed);
        assert_eq!(breaker.lost_at(), Some(Duration::from_secs(5)), "found at the start, and not lost since");
    }

    #[test]
    fn what_counts_is_when_it_was_found_again() {
        let (breaker, clock) = breaker_and_clock();
        breaker.open("reset");
        assert_eq!(breaker.lost_at(), Some(Duration::from_secs(7)));
        clock.advance(Duration::from_secs(3));
        breaker.close(breaker.alarms());
        assert_eq!(breaker.lost_at(), Some(Duration::from_secs(10)));
    }

    #[test]
    fn an_outage_fails_calls_at_once_and_a_time_out_does_not_soften_it() {
        let breaker = breaker();
        breaker.learn(&Failure::Away("refused".to_owned()));
        breaker.learn(&Failure::TimedOut);
        assert_eq!(breaker.state(), State::Open);
        assert!(matches!(breaker.check(), Err(Failure::Away(_))));
        assert_eq!(breaker.lost_at(), Some(Duration::from_secs(7)));
    }

    #[test]
    fn a_probe_begun_before_the_alarm_does_not_close_it() {
        let breaker = breaker();
        let before = breaker.alarms();
        breaker.open("reset");
        breaker.close(before);
        assert_eq!(breaker.state(), State::Open);
    }

    #[test]
    fn a_fault_of_ours_changes_nothing_nor_do_keys_on_their_way() {
        let breaker = breaker();
        breaker.learn(&Failure::Broken("WRONGTYPE".to_owned()));
        breaker.learn(&Failure::Moving(Moving::TryAgain));
        assert_eq!((breaker.state(), breaker.lost_at()), (State::Closed, Some(Duration::from_secs(5))));
    }

    #[test]
    fn another_master_is_lost_and_found_and_later_where_the_old_one_lives() {
        let breaker = breaker();
        breaker.replaced(true, Duration::from_secs(1), || ());
        assert_eq!(breaker.state(), State::Closed, "nobody is without");
        assert_eq!(breaker.lost_at(), Some(Duration::from_secs(8)), "others may tick at the old one for a second");
        assert_eq!(breaker.lost_within(Duration::from_secs(2)), Some(Duration::from_secs(3)));
        assert_eq!(breaker.lost_within(Duration::ZERO), None, "who waits for no loss waits for none ahead either");
        let before = breaker.alarms();
        breaker.replaced(false, Duration::from_secs(1), || ());
        breaker.close(before);
        assert_eq!(breaker.state(), State::Open, "what the old one answers closes nothing");
        breaker.replaced(true, Duration::from_secs(1), || ());
        assert_eq!(breaker.state(), State::Open, "only the probe closes it");

        let away = self::breaker();
        away.open("reset");
        away.replaced(true, Duration::from_secs(1), || ());
        assert_eq!(away.lost_at(), Some(Duration::from_secs(7)), "it was away: nobody ticks there");
        assert_eq!(away.lost_within(Duration::from_secs(2)), Some(Duration::from_secs(2)));
        assert_eq!(away.lost_within(Duration::ZERO), None);
    }

    #[test]
    fn the_gauge_is_1_while_any_master_is_away() {
        let metrics = Arc::new(Metrics::new());
        let clock = StoreClock::new(FakeClock::at(5_000));
        let [one, two] = [(); 2].map(|()| Breaker::new(clock.clone(), metrics.clone()));
        let shown = || metrics.render().contains("virtual_queue_redis_breaker_open 1");
        one.close(0);
        assert!(shown());
        drop(two);
        assert!(!shown(), "one that is no master any more does not count");
        one.open("reset");
        one.open("refused");
        assert!(shown());
        one.close(2);
        assert!(!shown());
    }

    /// Time passes, a probe a step of 250 ms, until one closes it; how long that took.
    fn closes_after(breaker: &Breaker, clock: &FakeClock) -> Duration {
        let began = clock.monotonic();
        while breaker.state() == State::Open {
            breaker.close(breaker.alarms());
            clock.advance(Duration::from_millis(250));
        }
        clock.monotonic() - began - Duration::from_millis(250)
    }

    #[test]
    fn a_redis_that_keeps_changing_its_mind_must_be_steady_for_longer_and_longer() {
        let clock = FakeClock::at(5_000);
        let breaker = Breaker::new(StoreClock::new(clock.clone()), Arc::new(Metrics::new()));
        let mut waited = Vec::new();
        for _ in 0..6 {
            waited.push(closes_after(&breaker, &clock).as_millis());
            breaker.open("OOM");
        }
        assert_eq!(waited, [0, 0, 500, 1000, 2000, 2000], "the first time it comes, the first outage, and on");
        clock.advance(Duration::from_millis(1_900));
        breaker.open("OOM");
        clock.advance(Duration::from_millis(1_900));
        breaker.close(breaker.alarms());
        assert_eq!(breaker.state(), State::Open, "without fault since the last alarm, that is");
    }

    #[test]
    fn whoever_was_steady_for_long_enough_is_believed_at_once_again() {
        let clock = FakeClock::at(5_000);
        let breaker = Breaker::new(StoreClock::new(clock.clone()), Arc::new(Metrics::new()));
        for _ in 0..4 {
            closes_after(&breaker, &clock);
            breaker.open("OOM");
        }
        closes_after(&breaker, &clock);
        clock.advance(SOON);
        breaker.open("the connection was cut");
        assert_eq!(closes_after(&breaker, &clock), Duration::ZERO);
    }
}
