//! Supervises the actors that supervise the pumps.

use std::{sync::Arc, time::Duration};

use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, AtomicResponse, Context, Handler, WrapFuture};

use super::{Directory, MetricsActor, PumpParts, StopPumps, metrics::AreYouThere};
use crate::{metrics::RestartCause, service::ActiveTargets};

/// How often it checks them.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Starts a new [`Directory`] or [`MetricsActor`] if one is gone: actix stops an actor that panics. Does nothing else,
/// so that nothing can go wrong here.
pub struct PumpWatch {
    parts: PumpParts,
    active: Arc<ActiveTargets>,
    directory: Addr<Directory>,
}

impl PumpWatch {
    /// The watch and its directory, which it starts on the calling arbiter.
    pub fn begin(parts: PumpParts, active: Arc<ActiveTargets>) -> Self {
        let directory = Directory::new(parts.clone(), active.clone()).start();
        Self { parts, active, directory }
    }

    fn look(&mut self) {
        // An actor that takes no more messages is frozen, and is replaced, too.
        if self.parts.reports.try_send(AreYouThere).is_err() {
            tracing::error!("the metrics actor is gone; starting another");
            self.parts.reports = MetricsActor::new(self.parts.metrics.clone()).start();
            self.restart(RestartCause::Metrics);
        } else if !self.directory.connected() {
            tracing::error!("the directory of the pumps is gone; starting another");
            self.restart(RestartCause::Directory);
        }
    }

    /// Starts a new directory with its own pumps. The pumps of the old one end after their current tick.
    fn restart(&mut self, cause: RestartCause) {
        self.parts.metrics.pump_restarted(cause);
        let before =
            std::mem::replace(&mut self.directory, Directory::new(self.parts.clone(), self.active.clone()).start());
        let _ = before.try_send(StopPumps);
    }

    #[cfg(test)]
    pub(super) fn directory(&self) -> Addr<Directory> {
        self.directory.clone()
    }
}

impl Actor for PumpWatch {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(LOOK_EVERY, |watch, _| watch.look());
    }
}

impl Handler<StopPumps> for PumpWatch {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _: StopPumps, _: &mut Self::Context) -> Self::Result {
        let stopped = self.directory.send(StopPumps).into_actor(self);
        // An error means that it is gone, and its pumps with it.
        AtomicResponse::new(Box::pin(stopped.map(|_, _, ctx| ctx.stop())))
    }
}
