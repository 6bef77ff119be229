//! Whether Redis counts as away. One a master (DESIGN 5 "Failing well").
//!
//! Anybody may open it or put it in doubt; only the probe closes it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::failure::Failure;
use crate::{clock::StoreClock, metrics::Metrics};

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
    probe_now: Notify,
    clock: StoreClock,
    metrics: Arc<Metrics>,
}

impl Breaker {
    /// A breaker that is open until the first probe succeeds.
    pub fn new(clock: StoreClock, metrics: Arc<Metrics>) -> Self {
        metrics.breaker(true);
        Self {
            state: watch::Sender::new(State::Open),
            alarms: AtomicU64::new(0),
            lost_at: Mutex::new(None),
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
            Failure::Broken(_) => {}
        }
    }

    /// Redis is away.
    pub fn open(&self, cause: &str) {
        let is_first = self.alarms.fetch_add(1, Ordering::SeqCst) == 0;
        let was = self.change(|_| State::Open);
        if was != State::Open {
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
        *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.monotonic());
    }

    /// Reports so far, to be given to [`Self::close`].
    pub(super) fn alarms(&self) -> u64 {
        self.alarms.load(Ordering::SeqCst)
    }

    /// Redis took the probe's write, begun when there were so many alarms; a later alarm is the newer news.
    pub(super) fn close(&self, alarms_before: u64) {
        // Before the change, so that no tick comes in between.
        if self.state() == State::Open {
            self.note_lost();
        }
        let was = self.change(|state| if self.alarms() == alarms_before { State::Closed } else { state });
        if was != State::Closed && self.alarms() == alarms_before {
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

    fn change(&self, next: impl Fn(State) -> State) -> State {
        let mut was = State::Open;
        self.state.send_if_modified(|state| {
            was = *state;
            *state = next(was);
            // In here, so that two changes at a time are counted in the order in which they happened.
            self.metrics.breaker(*state == State::Open);
            *state != was
        });
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;

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
    fn a_fault_of_ours_changes_nothing() {
        let breaker = breaker();
        breaker.learn(&Failure::Broken("WRONGTYPE".to_owned()));
        assert_eq!(breaker.state(), State::Closed);
    }
}
