//! The pump of one target: when it ticks, and what follows from the result.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, AtomicResponse, Context, Handler, Message, SpawnHandle,
    WrapFuture,
};
use futures_util::FutureExt;

use super::{
    PumpParts, TickReport,
    health::Health,
    pace::Pace,
    pump::{Looked, Next, Pump, after_failure},
    trouble::{self, Trouble},
};
use crate::{domain::QueueTarget, metrics::TickFailure};

/// Ticks for one target, every `queue.tick_ms` (TDD: `AdmissionPumpScheduler`).
pub struct AdmissionActor {
    target: QueueTarget,
    parts: PumpParts,
    health: Arc<Health>,
    /// The delay before the first tick, so that targets do not all tick at once. Different for each target.
    stagger: Duration,
    pace: Pace,
    /// When to ask for the next batch, as the store last replied; on the monotonic clock.
    go_at: Option<Duration>,
    trouble: Trouble,
    gauges: Gauges,
}

/// The state of reading the gauges.
#[derive(Default)]
struct Gauges {
    /// When they were last read, on the monotonic clock.
    read_at: Option<Duration>,
    under_way: Option<SpawnHandle>,
}

impl AdmissionActor {
    /// An actor whose first tick comes after `stagger`, at most half a tick.
    pub(super) fn new(target: QueueTarget, parts: PumpParts, stagger: Duration) -> (Self, Arc<Health>) {
        let health = Arc::new(Health::new(parts.clock.monotonic()));
        let (stagger, pace) = (stagger.min(parts.tick / 2), Pace::new(parts.tick));
        let actor = Self {
            target,
            parts,
            health: health.clone(),
            stagger,
            pace,
            go_at: None,
            trouble: Trouble::default(),
            gauges: Gauges::default(),
        };
        (actor, health)
    }

    /// Ticks again after `wait`, at the latest after the configured tick: an actor that is silent for longer is frozen.
    fn look_in(&self, wait: Duration, ctx: &mut Context<Self>) {
        ctx.notify_later(TickNow, wait.clamp(Duration::from_millis(1), self.parts.tick));
    }

    /// A tick ended: stops the actor, or schedules the next tick.
    fn after(&mut self, next: Next, ctx: &mut Context<Self>) {
        let now = self.parts.clock.monotonic();
        self.health.moves(now);
        if self.health.is_replaced() {
            return ctx.stop();
        }
        match next {
            Next::In(wait) => self.look_in(wait, ctx),
            Next::Batch { go_at } => {
                self.go_at = Some(go_at);
                self.look_in(go_at.saturating_sub(now + self.pace.lead()), ctx);
            }
            Next::Ended => {
                self.health.end();
                self.parts.metrics.target_ended(self.target);
                ctx.stop();
            }
        }
    }

    fn looked(&mut self, looked: Looked, ctx: &mut Context<Self>) {
        self.pace = looked.pace;
        let failed = looked.failed.as_ref().map(|error| {
            // The circuit breaker logs an outage. A warning here would repeat it for every target and tick.
            tracing::debug!(target = %self.target, %error, "a tick failed");
            self.failed(&error.to_string());
            TickFailure::Error
        });
        if failed.is_none() && self.trouble.is_over() {
            trouble::tell_end(self.target);
        }
        self.report(None, looked.late, failed);
        self.after(looked.next, ctx);
        if failed.is_none() && !self.health.is_over() {
            self.read_gauges(ctx);
        }
    }

    fn panicked(&mut self, ctx: &mut Context<Self>) {
        tracing::error!(target = %self.target, "a tick panicked; the next one goes on");
        self.failed("a panic");
        self.report(None, None, Some(TickFailure::Panic));
        self.after(Next::In(after_failure(self.parts.tick)), ctx);
    }

    fn failed(&mut self, cause: &str) {
        let (now, away) = (self.parts.clock.monotonic(), self.parts.store.is_away(self.target));
        if self.trouble.failed(now, self.parts.tick, away) {
            trouble::tell(self.target, cause);
        }
    }

    /// The report is lost if the mailbox is full: the next one says the same.
    fn report(&self, seen: Option<(u64, f64)>, late: Option<Duration>, failed: Option<TickFailure>) {
        if seen.is_some() || late.is_some() || failed.is_some() {
            let report = TickReport { pump: self.health.clone(), target: self.target, seen, late, failed };
            let _ = self.parts.reports.try_send(report);
        }
    }

    /// Reads the gauges beside the ticks, which have no time to wait for it. Once a tick, however often the actor
    /// looks, and less often with very many targets: every replica reads the same numbers.
    fn read_gauges(&mut self, ctx: &mut Context<Self>) {
        let now = self.parts.clock.monotonic();
        let every = (self.parts.tick * 3 / 4).max(self.stagger * 10);
        if self.gauges.read_at.is_some_and(|at| now.saturating_sub(at) < every) {
            return;
        }
        self.gauges.read_at = Some(now);
        if let Some(before) = self.gauges.under_way.take() {
            ctx.cancel_future(before);
        }
        let (store, target) = (self.parts.store.clone(), self.target);
        let read = AssertUnwindSafe(async move { store.stats(target).await }).catch_unwind();
        self.gauges.under_way = Some(ctx.spawn(read.into_actor(self).map(|read, actor, _| {
            // A failed read is ignored: others follow.
            if let Ok(Ok(stats)) = read {
                actor.report(Some((stats.waiting, stats.admission_rate_per_sec)), None, None);
            }
        })));
    }
}

impl Actor for AdmissionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(4);
        ctx.notify_later(TickNow, self.stagger);
    }
}

/// Starts a tick.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct TickNow;

impl Handler<TickNow> for AdmissionActor {
    // A tick never overlaps itself: the next message waits until this one is done.
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _: TickNow, ctx: &mut Self::Context) -> Self::Result {
        if self.health.is_replaced() {
            ctx.stop();
            return AtomicResponse::new(Box::pin(actix::fut::ready(())));
        }
        let pump = Pump {
            target: self.target,
            parts: self.parts.clone(),
            health: self.health.clone(),
            pace: self.pace,
            go_at: self.go_at,
        };
        let work = AssertUnwindSafe(pump.look()).catch_unwind();
        AtomicResponse::new(Box::pin(work.into_actor(self).map(|outcome, actor, ctx| match outcome {
            Ok(looked) => actor.looked(looked, ctx),
            Err(_) => actor.panicked(ctx),
        })))
    }
}
