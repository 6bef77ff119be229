//! Entering a target that this replica does not know to have a queue: first it needs room among those that do.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{ActiveTargets, VirtualQueueService};
use crate::{
    domain::{QueueTarget, UserId},
    store::{Place, StoreError, VirtualQueueStore},
};

/// What became of somebody who came.
pub(super) enum Entered {
    Place(Place),
    /// As many people as may wait are waiting.
    Full,
    /// As many targets as may have a queue have one.
    NoRoom,
}

impl VirtualQueueService {
    /// Enters, within the time that a buyer waits for the store, in all.
    pub(super) async fn enter_in_time(&self, target: QueueTarget, user: UserId) -> Result<Entered, StoreError> {
        let enter = self.parts.store.enter_if_absent(target, user);
        let place = if self.active.contains(target) {
            // Bounded by itself, and the store learns from it.
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

    /// Whether a target that is not known may have a queue. What takes longer than is `left` goes on by itself: then the
    /// next who comes finds it known.
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
        // Only the part of the store that has the list is away: that is no reason not to queue here. The list gets
        // the target when it is back, because it was served.
        Err(StoreError::Unavailable(_)) if !store.is_away(target) => limit.is_none_or(|limit| active.count() < limit),
        answer => answer?,
    };
    if has_room {
        active.add(target);
    }
    Ok(has_room)
}
