//! Keeps the gauges of the targets. Whoever ends a pump for good ends them, at once: what that pump has on its way is no
//! news any more.

use std::{sync::Arc, time::Duration};

use actix::{Actor, Context, Handler, Message};

use super::health::Health;
use crate::{
    domain::QueueTarget,
    metrics::{Metrics, TickFailure},
};

/// Turns reports of ticks into metrics (the owner's `MetricsActor`).
pub struct MetricsActor {
    metrics: Arc<Metrics>,
}

impl MetricsActor {
    /// An actor for these metrics.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }
}

impl Actor for MetricsActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // A thousand targets may report at once; beyond that a report may be lost: the next one says the same.
        ctx.set_mailbox_capacity(2048);
    }
}

/// What a pump of this replica saw.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct TickReport {
    /// Which one.
    pub(super) pump: Arc<Health>,
    /// Of which target.
    pub target: QueueTarget,
    /// Waiting people and admissions a second, from the store; none if it did not say.
    pub seen: Option<(u64, f64)>,
    /// How late the batch went, if this replica's tick moved the mark.
    pub late: Option<Duration>,
    /// How the tick failed, if it did.
    pub failed: Option<TickFailure>,
}

/// Is anybody there? Does nothing.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(super) struct AreYouThere;

impl Handler<AreYouThere> for MetricsActor {
    type Result = ();

    fn handle(&mut self, _: AreYouThere, _: &mut Self::Context) {}
}

impl Handler<TickReport> for MetricsActor {
    type Result = ();

    fn handle(&mut self, report: TickReport, _: &mut Self::Context) {
        if let Some((waiting, rate)) = report.seen
            && !report.pump.is_over()
        {
            self.metrics.target_seen(report.target, waiting, rate);
        }
        if let Some(late) = report.late {
            self.metrics.tick_late(late);
        }
        if let Some(how) = report.failed {
            self.metrics.tick_failed(how);
        }
    }
}
