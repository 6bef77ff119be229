//! The pump of one target: lock, sweep, admit, report.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, AtomicResponse, Context, Handler, Message, WrapFuture};
use futures_util::FutureExt;

use super::{PumpParts, TargetEnded, TickReport};
use crate::{
    domain::QueueTarget,
    metrics::TickFailure,
    store::{StoreError, Tick, TickLock},
};

/// So long before a batch is due a tick begins: locking and sweeping are done then, and the batch goes on time.
const LEAD: Duration = Duration::from_millis(50);

/// Ticks for one target, every `queue.tick_ms` (the owner's `AdmissionActor`; TDD: `AdmissionPumpScheduler`).
pub struct AdmissionActor {
    target: QueueTarget,
    parts: PumpParts,
    health: Arc<Health>,
    /// When the gauges were last read, on the monotonic clock.
    gauges_read_at: Option<Duration>,
}

/// What the directory may know of an actor without asking it: one that is frozen does not answer.
#[derive(Debug)]
pub(super) struct Health {
    /// Milliseconds on the monotonic clock.
    finished_at: AtomicU64,
    /// The target is over and the actor has ended itself.
    ended: AtomicBool,
    /// Another actor has taken over: end after the tick under way.
    replaced: AtomicBool,
}

impl Health {
    fn new(now: Duration) -> Self {
        Self {
            finished_at: AtomicU64::new(now.as_millis() as u64),
            ended: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn since_last_tick(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.finished_at.load(Ordering::Acquire)))
    }

    pub(super) fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
    }
}

impl AdmissionActor {
    /// An actor that has not ticked yet.
    pub(super) fn new(target: QueueTarget, parts: PumpParts) -> (Self, Arc<Health>) {
        let health = Arc::new(Health::new(parts.clock.monotonic()));
        (Self { target, parts, health: health.clone(), gauges_read_at: None }, health)
    }

    /// A tick ended: stop, or come back.
    fn after(&mut self, next: Next, ctx: &mut Context<Self>) {
        self.health.finished_at.store(self.parts.clock.monotonic().as_millis() as u64, Ordering::Release);
        if self.health.replaced.load(Ordering::Acquire) {
            return ctx.stop();
        }
        match next {
            Next::In(wait) => {
                // At least once a configured tick, so that an actor that says nothing is one that hangs.
                ctx.notify_later(TickNow, wait.clamp(Duration::from_millis(1), self.parts.tick));
            }
            Next::Ended => {
                self.health.ended.store(true, Ordering::Release);
                let _ = self.parts.reports.try_send(TargetEnded(self.target));
                ctx.stop();
            }
        }
    }
}

impl Actor for AdmissionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(4);
        ctx.notify(TickNow);
    }
}

/// Time to look.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct TickNow;

/// The target is not ours to look after any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct StopTicking;

/// When to look again.
enum Next {
    In(Duration),
    Ended,
}

impl Handler<TickNow> for AdmissionActor {
    // A tick never overlaps itself: the next message waits until this one is done.
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _: TickNow, _: &mut Self::Context) -> Self::Result {
        let now = self.parts.clock.monotonic();
        // Once a tick, however often the actor looks: the same numbers are read by every replica.
        let read_gauges = self.gauges_read_at.is_none_or(|at| now.saturating_sub(at) >= self.parts.tick * 3 / 4);
        if read_gauges {
            self.gauges_read_at = Some(now);
        }
        let work = AssertUnwindSafe(tick(self.target, self.parts.clone(), read_gauges)).catch_unwind();
        AtomicResponse::new(Box::pin(work.into_actor(self).map(|outcome, actor, ctx| {
            let next = outcome.unwrap_or_else(|_| {
                tracing::error!(target = %actor.target, "a tick panicked; the next one goes on");
                let _ = actor.parts.reports.try_send(TickReport {
                    target: actor.target,
                    seen: None,
                    late: None,
                    failed: Some(TickFailure::Panic),
                });
                Next::In(after_failure(actor.parts.tick))
            });
            actor.after(next, ctx);
        })))
    }
}

impl Handler<StopTicking> for AdmissionActor {
    type Result = ();

    fn handle(&mut self, _: StopTicking, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// One look at a target.
async fn tick(target: QueueTarget, parts: PumpParts, read_gauges: bool) -> Next {
    let (next, late, failed) = match pump(target, &parts).await {
        Ok(Looked::Ended) => return Next::Ended,
        Ok(Looked::Admitted { come_back_in, late }) => (come_back_in, Some(late), None),
        Ok(Looked::NotNow { come_back_in }) => (come_back_in, None, None),
        Err(error) => {
            // An outage is logged where it is noticed; this would say it for every target and tick.
            tracing::debug!(%target, %error, "a tick failed");
            (after_failure(parts.tick), None, Some(TickFailure::Error))
        }
    };
    let seen = if read_gauges && failed.is_none() {
        parts.store.stats(target).await.ok().map(|stats| (stats.waiting, stats.admission_rate_per_sec))
    } else {
        None
    };
    // Lost if the mailbox is full: the next report says the same.
    let _ = parts.reports.try_send(TickReport { target, seen, late, failed });
    Next::In(next)
}

/// What one look came to.
enum Looked {
    Admitted { come_back_in: Duration, late: Duration },
    NotNow { come_back_in: Duration },
    Ended,
}

/// Lock, sweep, wait for the moment, admit. Whatever fails ends this tick and no other.
async fn pump(target: QueueTarget, parts: &PumpParts) -> Result<Looked, StoreError> {
    if let TickLock::HeldFor(rest) = parts.store.lock_tick(target, &parts.owner).await? {
        return Ok(Looked::NotNow { come_back_in: rest });
    }
    let mut evicted = 0;
    loop {
        let sweep = parts.store.sweep_stale(target).await?;
        evicted += sweep.evicted;
        if sweep.gone {
            return ended(target, parts).await;
        }
        if !sweep.more || evicted >= parts.max_evict_per_tick {
            break;
        }
    }
    let mut moved = parts.store.advance_admission(target).await?;
    if let Tick::NotYet(wait) = moved
        && wait <= LEAD
    {
        tokio::time::sleep(wait).await;
        moved = parts.store.advance_admission(target).await?;
    }
    match moved {
        Tick::Moved { next_in, late, people, evicted: on_the_way } => {
            if people > 0 || evicted + on_the_way > 0 {
                tracing::debug!(%target, people, evicted = evicted + on_the_way, "a batch went");
            }
            Ok(Looked::Admitted { come_back_in: early(next_in), late })
        }
        Tick::NotYet(wait) => Ok(Looked::NotNow { come_back_in: early(wait) }),
        Tick::Gone => ended(target, parts).await,
    }
}

/// When to try again: spread out, so that many targets that failed together do not come back together.
fn after_failure(tick: Duration) -> Duration {
    tick.mul_f64(rand::random_range(0.25..0.75))
}

/// Back in time to have locked and swept when the batch is due.
fn early(wait: Duration) -> Duration {
    wait.saturating_sub(LEAD)
}

/// The target has no queue: out of the active ones, unless somebody just came.
async fn ended(target: QueueTarget, parts: &PumpParts) -> Result<Looked, StoreError> {
    if parts.store.retire(target).await? {
        Ok(Looked::Ended)
    } else {
        Ok(Looked::NotNow { come_back_in: parts.tick / 4 })
    }
}
