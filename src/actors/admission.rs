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

use super::{PumpParts, TickReport};
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
    /// What it waits where all targets would otherwise come at once. Different in each.
    stagger: Duration,
    /// When the next batch is due, as the store last said; on the monotonic clock.
    due_at: Option<Duration>,
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
    /// Nobody looks after this one any more, or another has taken over: end after the tick under way.
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

    /// Nothing that it still says counts: what it says of its target may be long past.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() || self.replaced.load(Ordering::Acquire)
    }

    pub(super) fn since_last_tick(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.finished_at.load(Ordering::Acquire)))
    }

    pub(super) fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
    }
}

impl AdmissionActor {
    /// An actor that has not ticked yet, and will first do so after `stagger`: at most half a tick.
    pub(super) fn new(target: QueueTarget, parts: PumpParts, stagger: Duration) -> (Self, Arc<Health>) {
        let health = Arc::new(Health::new(parts.clock.monotonic()));
        let stagger = stagger.min(parts.tick / 2);
        (Self { target, parts, health: health.clone(), stagger, due_at: None, gauges_read_at: None }, health)
    }

    /// At least once a configured tick, so that an actor that says nothing is one that hangs.
    fn look_in(&self, wait: Duration, ctx: &mut Context<Self>) {
        ctx.notify_later(TickNow, wait.clamp(Duration::from_millis(1), self.parts.tick));
    }

    /// A tick ended: stop, or come back.
    fn after(&mut self, next: Next, ctx: &mut Context<Self>) {
        self.health.finished_at.store(self.parts.clock.monotonic().as_millis() as u64, Ordering::Release);
        if self.health.replaced.load(Ordering::Acquire) {
            return ctx.stop();
        }
        match next {
            Next::In(wait) => self.look_in(wait, ctx),
            Next::Batch { due_at } => {
                self.due_at = Some(due_at);
                self.look_in(due_at.saturating_sub(self.parts.clock.monotonic() + LEAD), ctx);
            }
            Next::Ended => {
                self.health.ended.store(true, Ordering::Release);
                self.parts.metrics.target_ended(self.target);
                ctx.stop();
            }
        }
    }
}

impl Actor for AdmissionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(4);
        ctx.notify_later(TickNow, self.stagger);
    }
}

/// Time to look.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct TickNow;

/// When to look again.
enum Next {
    In(Duration),
    /// In time to have locked and swept when the next batch is due: then, on the monotonic clock.
    Batch {
        due_at: Duration,
    },
    Ended,
}

impl Handler<TickNow> for AdmissionActor {
    // A tick never overlaps itself: the next message waits until this one is done.
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _: TickNow, ctx: &mut Self::Context) -> Self::Result {
        if self.health.replaced.load(Ordering::Acquire) {
            ctx.stop();
            return AtomicResponse::new(Box::pin(actix::fut::ready(())));
        }
        let now = self.parts.clock.monotonic();
        // Once a tick, however often the actor looks, and less often where there are very many targets: every replica
        // reads the same numbers.
        let every = (self.parts.tick * 3 / 4).max(self.stagger * 10);
        let read_gauges = self.gauges_read_at.is_none_or(|at| now.saturating_sub(at) >= every);
        if read_gauges {
            self.gauges_read_at = Some(now);
        }
        let (target, health) = (self.target, self.health.clone());
        let pump = Pump { target, parts: self.parts.clone(), health, due_at: self.due_at };
        let work = AssertUnwindSafe(pump.tick(read_gauges)).catch_unwind();
        AtomicResponse::new(Box::pin(work.into_actor(self).map(|outcome, actor, ctx| {
            let next = outcome.unwrap_or_else(|_| {
                tracing::error!(target = %actor.target, "a tick panicked; the next one goes on");
                let _ = actor.parts.reports.try_send(TickReport {
                    pump: actor.health.clone(),
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

/// What one look at a target needs.
struct Pump {
    target: QueueTarget,
    parts: PumpParts,
    health: Arc<Health>,
    due_at: Option<Duration>,
}

impl Pump {
    async fn tick(self, read_gauges: bool) -> Next {
        let (next, late, failed) = match self.pump().await {
            Ok((Next::Ended, _)) => return Next::Ended,
            Ok((next, late)) => (next, late, None),
            Err(error) => {
                // An outage is logged where it is noticed; this would say it for every target and tick.
                tracing::debug!(target = %self.target, %error, "a tick failed");
                (Next::In(after_failure(self.parts.tick)), None, Some(TickFailure::Error))
            }
        };
        let seen = if read_gauges && failed.is_none() {
            let stats = self.parts.store.stats(self.target).await;
            stats.ok().map(|stats| (stats.waiting, stats.admission_rate_per_sec))
        } else {
            None
        };
        // Lost if the mailbox is full: the next report says the same.
        let report = TickReport { pump: self.health, target: self.target, seen, late, failed };
        let _ = self.parts.reports.try_send(report);
        next
    }

    /// Lock, sweep, wait for the moment, admit. Whatever fails ends this tick and no other. Also says how late the batch
    /// went, if one did.
    async fn pump(&self) -> Result<(Next, Option<Duration>), StoreError> {
        let Self { target, parts, .. } = self;
        if let TickLock::HeldFor(rest) = parts.store.lock_tick(*target, &parts.owner).await? {
            return Ok((Next::In(rest + behind_the_holder(parts.tick)), None));
        }
        let mut evicted = 0;
        loop {
            let sweep = parts.store.sweep_stale(*target).await?;
            evicted += sweep.evicted;
            if sweep.gone {
                return self.ended().await;
            }
            if !sweep.more || evicted >= parts.max_evict_per_tick {
                break;
            }
        }
        let until_due = |at: Duration| at.saturating_sub(parts.clock.monotonic());
        if let Some(wait) = self.due_at.map(until_due).filter(|wait| *wait <= LEAD) {
            tokio::time::sleep(wait).await;
        }
        let mut moved = parts.store.advance_admission(*target).await?;
        if let Tick::NotYet(wait) = moved
            && wait <= LEAD
        {
            tokio::time::sleep(wait).await;
            moved = parts.store.advance_admission(*target).await?;
        }
        // As soon as it is known: what comes after takes time, too.
        let now = parts.clock.monotonic();
        match moved {
            Tick::Moved { next_in, late, people, evicted: on_the_way } => {
                if people > 0 || evicted + on_the_way > 0 {
                    tracing::debug!(%target, people, evicted = evicted + on_the_way, "a batch went");
                }
                Ok((Next::Batch { due_at: now + next_in }, Some(late)))
            }
            Tick::NotYet(wait) => Ok((Next::Batch { due_at: now + wait }, None)),
            Tick::Gone => self.ended().await,
        }
    }

    /// The target has no queue: out of the active ones, unless somebody just came.
    async fn ended(&self) -> Result<(Next, Option<Duration>), StoreError> {
        let over = self.parts.store.retire(self.target).await?;
        Ok((if over { Next::Ended } else { Next::In(self.parts.tick / 4) }, None))
    }
}

/// When to try again: spread out, so that many targets that failed together do not come back together.
fn after_failure(tick: Duration) -> Duration {
    tick.mul_f64(rand::random_range(0.25..0.75))
}

/// From the end of the lock until others ask for it. Its holder comes back a tick after taking it, which is a twentieth
/// later (`QueueRules::lock_ms`); who asks just after that finds it taken, and asks once a tick and not twice; and if the
/// holder is dead, still takes it before the batch is due.
fn behind_the_holder(tick: Duration) -> Duration {
    tick.min(Duration::from_secs(2)) / 20 + LEAD.mul_f64(rand::random_range(0.2..0.8))
}
