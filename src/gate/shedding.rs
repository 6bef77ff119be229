//! How many purchase calls may be under way at a time (TDD: 부하 셰딩; DESIGN 8).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;

/// A limit shared by all workers. Nobody waits for room: there is some, or there is none.
#[derive(Clone)]
pub(super) struct LoadShedding {
    limit: usize,
    free: Arc<Semaphore>,
}

impl LoadShedding {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { limit, free: Arc::new(Semaphore::new(limit)) }
    }

    /// Room for one more call; `None`: there is none.
    pub(super) fn admit(&self, metrics: &Arc<Metrics>) -> Option<UnderWay> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        self.report(metrics);
        Some(UnderWay { counted: Some((permit, self.clone(), metrics.clone())) })
    }

    fn report(&self, metrics: &Metrics) {
        metrics.gate_under_way(self.limit - self.free.available_permits());
    }
}

/// One purchase call under way; its room is free again when this is dropped.
pub(super) struct UnderWay {
    counted: Option<(OwnedSemaphorePermit, LoadShedding, Arc<Metrics>)>,
}

impl UnderWay {
    /// A call where there is no limit.
    pub(super) const fn uncounted() -> Self {
        Self { counted: None }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some((permit, shedding, metrics)) = self.counted.take() {
            drop(permit);
            shedding.report(&metrics);
        }
    }
}
