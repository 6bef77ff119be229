//! Keeps the gauges of the targets, and ends them.

use std::{sync::Arc, time::Duration};

use actix::{Actor, Context, Handler, Message};

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

/// What a tick of this replica saw.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub struct TickReport {
    /// Of which target.
    pub target: QueueTarget,
    /// Waiting people and admissions a second, from the store; none if it did not say.
    pub seen: Option<(u64, f64)>,
    /// How late the batch went, if this replica's tick moved the mark.
    pub late: Option<Duration>,
    /// How the tick failed, if it did.
    pub failed: Option<TickFailure>,
}

/// A target has no queue any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct TargetEnded(pub QueueTarget);

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
        if let Some((waiting, rate)) = report.seen {
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

impl Handler<TargetEnded> for MetricsActor {
    type Result = ();

    fn handle(&mut self, TargetEnded(target): TargetEnded, _: &mut Self::Context) {
        self.metrics.target_ended(target);
    }
}
