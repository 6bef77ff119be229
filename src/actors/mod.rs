//! The pump (TDD: Admission Pump; `docs/design.md`, "Actors and supervision"): [`Directory`] keeps one
//! [`AdmissionActor`] for each target. Each ticks and reports to [`MetricsActor`].
//!
//! All actors live on one arbiter, apart from the HTTP workers. Here: when to tick, and what happens when a tick fails.
//! Not here: what a tick does to the queue (`admit.lua`), and whether the flag is on: targets tick in both cases, so
//! that a queue that is switched on again has its pace.
//!
//! Known problem: actix's `Supervisor` does not survive a panic (the mailbox stays closed). Here every future catches
//! panics, the directory starts a new actor if one is gone or frozen, and [`PumpWatch`] a new directory.

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
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Our name in the tick lock: different in every process.
    pub owner: Arc<str>,
    /// The configured tick.
    pub tick: Duration,
    /// The actor that gets the reports.
    pub reports: Addr<MetricsActor>,
}

#[cfg(test)]
mod tests;
