//! Entering a target that this replica does not know to have a queue: it first needs room among the active targets.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{ActiveTargets, VirtualQueueService};
use crate::{
    domain::{QueueTarget, UserId},
    store::{Place, StoreError, VirtualQueueStore},
};

/// The result of entering.
pub(super) enum Entered {
    Place(Place),
    /// The queue has reached its capacity.
    Full,
    /// `queue.max_active_targets` targets have a queue.
    NoRoom,
}

impl VirtualQueueService {
    /// Enters, within the total time that a buyer waits for the store.
    pub(super) async fn enter_in_time(&self, target: QueueTarget, user: UserId) -> Result<Entered, StoreError> {
        let enter = self.parts.store.enter_if_absent(target, user);
        let place = if self.active.contains(target) {
            // The store limits this call itself; its circuit breaker learns from a timeout.
            enter.await?
        } else {
            let began = self.parts.clock.monotonic();
            let left = || (began + self.limit).saturating_sub(self.parts.clock.monotonic());
            if !self.make_room(target, left()).await? {
                return Ok(Entered::NoRoom);
            }
            timeout(left(), enter).await.unwrap_or(Err(StoreError::TimedOut))?
        };
        Ok(place.map_or(Entered::Full, Entered::Place))
    }

    /// Whether a target that is not known may have a queue. A call that takes longer than `left` continues in the
    /// background; the next person then finds the target known.
    async fn make_room(&self, target: QueueTarget, left: Duration) -> Result<bool, StoreError> {
        let limit = (!self.parts.flags.names(target)).then_some(self.max_active_targets);
        let room = tokio::spawn(make_room(self.parts.store.clone(), self.active.clone(), target, limit));
        match timeout(left, room).await {
            Ok(Ok(has_room)) => has_room,
            Ok(Err(fault)) => Err(StoreError::Broken(fault.to_string())),
            Err(_) => Err(StoreError::TimedOut),
        }
    }
}

async fn make_room(
    store: Arc<dyn VirtualQueueStore>,
    active: Arc<ActiveTargets>,
    target: QueueTarget,
    limit: Option<u64>,
) -> Result<bool, StoreError> {
    let has_room = match store.register_active(target, limit).await {
        // Only the part of the store that has the list is unavailable: the target can still have a queue. The target
        // was served, so the list gets it when that part is available again.
        Err(StoreError::Unavailable(_)) if !store.is_away(target) => limit.is_none_or(|limit| active.count() < limit),
        answer => answer?,
    };
    if has_room {
        active.add(target);
    }
    Ok(has_room)
}
