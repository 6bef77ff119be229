//! A fault that every request meets is told a few times a second, and not once a request: twenty thousand lines a second
//! help nobody at 10:00:03, and cost what the people waiting need.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tracing::{Event, Level, Subscriber, callsite::Identifier};
use tracing_subscriber::{Layer, layer::Context};

use crate::clock::Clock;

/// Warnings and errors from one place in the code that are written in one second.
const MOST_A_SECOND: u32 = 10;

static KEPT_BACK: AtomicU64 = AtomicU64::new(0);

/// How many warnings and errors of this process were kept back so far.
pub fn lines_kept_back() -> u64 {
    KEPT_BACK.load(Ordering::Relaxed)
}

/// Keeps back what is beyond [`MOST_A_SECOND`], for everything that is written behind it. What is no warning passes:
/// where there is a line a request, it was asked for.
pub(super) struct Flood {
    clock: Arc<dyn Clock>,
    /// By place in the code: the second that it wrote in last, and how often.
    written: Mutex<HashMap<Identifier, (u64, u32)>>,
}

impl Flood {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, written: Mutex::default() }
    }

    fn has_room(&self, place: Identifier, now: Duration) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, lines) = written.entry(place).or_default();
        if *second != now.as_secs() {
            (*second, *lines) = (now.as_secs(), 0);
        }
        *lines = lines.saturating_add(1);
        *lines <= MOST_A_SECOND
    }
}

impl<S: Subscriber> Layer<S> for Flood {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let about = event.metadata();
        let passes = *about.level() > Level::WARN || self.has_room(about.callsite(), self.clock.monotonic());
        if !passes {
            KEPT_BACK.fetch_add(1, Ordering::Relaxed);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

    use super::*;
    use crate::{clock::FakeClock, telemetry::lines::Lines};

    #[test]
    fn a_fault_of_every_request_is_told_a_few_times_a_second_and_other_lines_pass() {
        let (clock, lines) = (FakeClock::at(1_000), Lines::default());
        let writer = lines.clone();
        let _guard = tracing_subscriber::registry()
            .with(Flood::new(clock.clone()))
            .with(tracing_subscriber::fmt::layer().with_writer(move || writer.clone()))
            .set_default();
        let before = lines_kept_back();
        let fault = || tracing::warn!("the shop is away");
        for _ in 0..500 {
            fault();
            tracing::info!("somebody came");
        }
        tracing::warn!("something else");
        assert_eq!((lines.with(&["the shop is away"]), lines.with(&["somebody came"])), (10, 500));
        assert_eq!(lines.with(&["something else"]), 1, "another place has room of its own");
        assert!(lines_kept_back() - before >= 490);
        clock.advance(Duration::from_secs(1));
        fault();
        assert_eq!(lines.with(&["the shop is away"]), 11, "it is told again while it lasts");
    }
}
