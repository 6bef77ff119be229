//! Which targets have a pump, and whether it is alive.

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, AtomicResponse, Context, Handler, Message, WrapFuture,
};
use futures_util::FutureExt;

use super::{AdmissionActor, PumpParts, health::Health};
use crate::{domain::QueueTarget, metrics::RestartCause, redis::keys, service::ActiveTargets, store::StoreError};

/// How often the active targets are read.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// A pump without progress for longer than the configured tick plus this is frozen. With [`REFRESH_EVERY`] added,
/// admission continues within two ticks of two seconds.
const FROZEN_AFTER: Duration = Duration::from_secs(1);
/// The time between the first ticks of targets that start together.
const STAGGER: Duration = Duration::from_millis(1);

/// Keeps one [`AdmissionActor`] for each active target.
pub struct Directory {
    parts: PumpParts,
    active: Arc<ActiveTargets>,
    pumps: HashMap<QueueTarget, Pump>,
    every: Duration,
    /// Whether the last log line said that the list of active targets is unreadable.
    is_broken: bool,
}

struct Pump {
    address: Addr<AdmissionActor>,
    health: Arc<Health>,
}

impl Drop for Pump {
    fn drop(&mut self) {
        // Also if the directory panics: no actor ticks without a supervisor. This needs no message, so it also stops an
        // actor that is frozen and whose mailbox is full.
        self.health.replace();
    }
}

impl Directory {
    /// A directory without pumps. It looks for targets as soon as it is started.
    pub fn new(parts: PumpParts, active: Arc<ActiveTargets>) -> Self {
        let every = REFRESH_EVERY.min(parts.tick);
        Self { parts, active, pumps: HashMap::new(), every, is_broken: false }
    }

    /// Keeps one live pump for each of these targets, and no others.
    fn keep(&mut self, targets: Vec<QueueTarget>) {
        let wanted: HashSet<QueueTarget> = targets.into_iter().collect();
        let (parts, now) = (&self.parts, self.parts.clock.monotonic());
        self.pumps.retain(|target, pump| {
            let is_wanted = wanted.contains(target);
            if !is_wanted && !pump.health.has_ended() {
                pump.health.replace();
                parts.metrics.target_ended(*target);
            }
            is_wanted
        });
        let mut lost = None;
        for target in wanted {
            let cause = match self.pumps.get(&target) {
                None => None,
                Some(pump) if pump.health.has_ended() => None,
                Some(pump) if !pump.address.connected() => Some(RestartCause::Gone),
                Some(pump) if pump.health.stood_still(now) > self.parts.tick + FROZEN_AFTER => {
                    Some(RestartCause::Frozen)
                }
                Some(_) => continue,
            };
            if let Some(cause) = cause {
                self.parts.metrics.pump_restarted(cause);
                let (_, _, count) = lost.get_or_insert((target, cause, 0));
                *count += 1;
            }
            self.start(target);
        }
        // One line for all: an overloaded machine may lose a thousand at a time.
        if let Some((target, cause, count)) = lost {
            tracing::error!(count, example = %target, ?cause, "admission actors hang or are gone; starting others");
        }
    }

    /// Logs a list that cannot be read: that does not end by itself, and readiness does not show it. An outage ends,
    /// and the circuit breaker logs it.
    fn log_broken(&mut self, found: &Result<Vec<QueueTarget>, StoreError>) {
        match found {
            Ok(_) if self.is_broken => {
                self.is_broken = false;
                tracing::info!("the list of active targets can be read again");
            }
            Err(StoreError::Broken(cause)) if !self.is_broken => {
                self.is_broken = true;
                tracing::error!(
                    cause,
                    key = keys::ACTIVE,
                    "the list of active targets cannot be read: whoever enters for a new target is told what \
                     redis.on_failure says, or waits where the flag's rule names it. Remove the key if it is no set: it \
                     is made anew within a second"
                );
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn start(&mut self, target: QueueTarget) {
        let (actor, health) = AdmissionActor::new(target, self.parts.clone(), STAGGER * self.pumps.len() as u32);
        self.pumps.insert(target, Pump { address: actor.start(), health });
    }
}

impl Actor for Directory {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.notify(Refresh);
    }
}

/// Reads the active targets now. Afterwards the directory does so once a second.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Refresh;

/// Ends all pumps and the directory.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopPumps;

impl Handler<Refresh> for Directory {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _: Refresh, _: &mut Self::Context) -> Self::Result {
        let (store, active) = (self.parts.store.clone(), self.active.clone());
        let look = async move {
            let targets = store.active_targets().await?;
            active.replace(targets.iter().copied());
            Ok::<_, StoreError>(targets)
        };
        let look = AssertUnwindSafe(look).catch_unwind().into_actor(self);
        AtomicResponse::new(Box::pin(look.map(|found, directory, ctx| {
            if let Ok(found) = &found {
                directory.log_broken(found);
            }
            match found {
                Ok(Ok(targets)) => directory.keep(targets),
                // Unknown is not empty: the existing pumps stay, and are supervised.
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the active targets could not be read");
                    directory.keep(directory.pumps.keys().copied().collect());
                }
                Err(_) => tracing::error!("reading the active targets panicked; the next try goes on"),
            }
            ctx.notify_later(Refresh, directory.every);
        })))
    }
}

impl Handler<StopPumps> for Directory {
    type Result = ();

    fn handle(&mut self, _: StopPumps, ctx: &mut Self::Context) {
        self.keep(Vec::new());
        ctx.stop();
    }
}
