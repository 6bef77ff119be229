//! Limits how many purchase calls are under way at a time (TDD: 부하 셰딩).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;

/// A limit shared by all workers. A call beyond the limit is refused; it does not wait.
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

    /// A permit for one more call; `None`: the limit is reached.
    pub(super) fn admit(&self, metrics: &Arc<Metrics>) -> Option<UnderWay> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        self.report(metrics);
        Some(UnderWay { counted: Some((permit, self.clone(), metrics.clone())) })
    }

    fn report(&self, metrics: &Metrics) {
        metrics.gate_under_way(self.limit - self.free.available_permits());
    }
}

/// One purchase call under way. Dropping it frees its permit.
pub(super) struct UnderWay {
    counted: Option<(OwnedSemaphorePermit, LoadShedding, Arc<Metrics>)>,
}

impl UnderWay {
    /// A call without a limit.
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
