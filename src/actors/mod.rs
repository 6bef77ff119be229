//! The pump (TDD: Admission Pump; DESIGN 6): [`Directory`] keeps one [`AdmissionActor`] a target, each of which ticks
//! and reports to [`MetricsActor`].
//!
//! They all live on one arbiter apart from the HTTP workers. Here: when to tick, and what happens when a tick fails.
//! Not here: what a tick does to the queue, that is `admit.lua`'s; whether the flag is on: targets tick regardless,
//! so that a queue that is switched on again finds its pace.
//!
//! Known trap: actix's `Supervisor` does not survive a panic (the mailbox stays closed). Here every future is guarded,
//! the directory starts a new actor where one is gone or frozen, and [`PumpWatch`] a new directory.

mod admission;
mod directory;
mod health;
mod metrics;
mod pace;
mod pump;
mod trouble;
mod watch;

pub use admission::AdmissionActor;
pub use directory::{Directory, Refresh, StopPumps};
pub use metrics::{MetricsActor, TickReport};
pub use watch::PumpWatch;

use std::{sync::Arc, time::Duration};

use actix::Addr;

use crate::{clock::StoreClock, metrics::Metrics, store::VirtualQueueStore};

/// What every pump of a process shares.
#[derive(Clone)]
pub struct PumpParts {
    /// The queue.
    pub store: Arc<dyn VirtualQueueStore>,
    /// Time since start, for limits.
    pub clock: StoreClock,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Who we are in the tick lock: different in every process.
    pub owner: Arc<str>,
    /// The configured tick.
    pub tick: Duration,
    /// Where reports go.
    pub reports: Addr<MetricsActor>,
}

#[cfg(test)]
mod tests;
