//! Keeps the gauges of the targets. The code that ends a pump for good also removes its gauges, at once: gauge values
//! that this pump still reports are ignored.

use std::{sync::Arc, time::Duration};

use actix::{Actor, Context, Handler, Message};

use super::health::Health;
use crate::{
    domain::QueueTarget,
    metrics::{Metrics, TickFailure},
};

/// Turns reports of ticks into metrics.
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
        // A thousand targets may report at once. Beyond the capacity a report may be lost: the next one says the same.
        ctx.set_mailbox_capacity(2048);
    }
}

/// What a pump of this replica saw in one tick.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct TickReport {
    /// The pump.
    pub(super) pump: Arc<Health>,
    /// Its target.
    pub target: QueueTarget,
    /// Waiting people and admissions per second, from the store. None if they were not read.
    pub seen: Option<(u64, f64)>,
    /// How late the batch went, if this replica's tick moved the mark.
    pub late: Option<Duration>,
    /// How the tick failed, if it did.
    pub failed: Option<TickFailure>,
}

/// Does nothing. Whether it can be sent shows whether the actor takes messages.
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
