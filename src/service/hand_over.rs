//! What this replica has done alone and reports to the store: direct passes, and people admitted without the store.

use std::{
    panic::AssertUnwindSafe,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream};

use super::{VirtualQueueService, outage_admissions::Taken};
use crate::{
    domain::QueueTarget,
    store::{MOST_ADOPTED_A_CALL, StoreError},
};

/// Most calls under way at a time: enough for hundreds of targets within a second with a distant store, few enough that
/// ticks do not wait for them.
const CALLS: usize = 8;
/// If the store repeatedly does not take something, the replica logs it at most this often.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Time between hand-overs. People admitted during an outage are in the store within about a second of its return.
const HAND_OVER_EVERY: Duration = Duration::from_secs(1);

/// Allows one hand-over at a time, and limits how often a failure is logged.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    one: tokio::sync::Mutex<()>,
    /// On the monotonic clock.
    said_at: Mutex<Option<Duration>>,
}

impl HandOver {
    fn may_say(&self, now: Duration) -> bool {
        let mut said_at = self.said_at.lock().unwrap_or_else(PoisonError::into_inner);
        let may = said_at.is_none_or(|at| now.saturating_sub(at) >= SAY_EVERY);
        if may {
            *said_at = Some(now);
        }
        may
    }
}

impl VirtualQueueService {
    /// Hands over to the store what this replica did alone: direct passes given since the last call, and people
    /// admitted during an outage. What the store does not take now is retried next time. A target with damaged keys
    /// does not delay the others.
    pub async fn hand_over(&self) {
        let _one = self.hand_over.one.lock().await;
        self.hand_over_direct_counts().await;
        self.hand_over_admissions().await;
    }

    /// Calls [`Self::hand_over`] repeatedly, until dropped. A panic ends only that call.
    pub async fn keep_handing_over(&self) {
        loop {
            if AssertUnwindSafe(self.hand_over()).catch_unwind().await.is_err() {
                tracing::error!("handing over to the store panicked; it is retried");
            }
            tokio::time::sleep(HAND_OVER_EVERY).await;
        }
    }

    async fn hand_over_direct_counts(&self) {
        let targets = self.direct.targets(|target| !self.parts.store.is_away(target));
        stream::iter(targets)
            .for_each_concurrent(CALLS, async |target| {
                // Take the count only now: an aborted hand-over then loses only the counts of calls under way.
                let passes = self.direct.take(target);
                match self.parts.store.count_direct(target, passes).await {
                    // The store did not count them. After other errors it may have, or never will: better too few.
                    Err(StoreError::Unavailable(_)) => self.direct.add(target, passes),
                    Err(StoreError::TimedOut | StoreError::Broken(_)) | Ok(()) => {}
                }
            })
            .await;
    }

    /// Lets the store take over the people whom this replica admitted without it.
    pub(super) async fn hand_over_admissions(&self) {
        self.forget_ended_targets();
        // `is_away` needs no call. So the people of an unavailable target are not taken out and put back.
        let targets = self.outage.admissions.targets(|target| !self.parts.store.is_away(target));
        let outcomes: Vec<(QueueTarget, usize, Option<StoreError>)> = stream::iter(targets)
            .map(async |target| {
                let mut taken = self.outage.admissions.take(target);
                let everybody = taken.count();
                let failed = self.adopt(&mut taken).await.err();
                (target, everybody - taken.count(), failed)
            })
            .buffer_unordered(CALLS)
            .collect()
            .await;
        let people: usize = outcomes.iter().map(|(_, people, _)| people).sum();
        if people > 0 {
            tracing::info!(people, "people admitted during the outage are recorded in the store");
        }
        let mut failed = outcomes.iter().filter_map(|(target, _, error)| Some((target, error.as_ref()?)));
        if let Some((example, error)) = failed.next()
            && self.hand_over.may_say(self.parts.clock.monotonic())
        {
            let targets = 1 + failed.count();
            tracing::warn!(%error, targets, %example, "people admitted during the outage are not all recorded in the store yet");
        }
    }

    /// Removes from `taken` the people whom the store takes over.
    async fn adopt(&self, taken: &mut Taken<'_>) -> Result<(), StoreError> {
        while let Some(some) = taken.some(MOST_ADOPTED_A_CALL) {
            let adopted = self.parts.store.adopt(taken.target(), some).await;
            if let Err(StoreError::Broken(_)) = adopted {
                // The store may never take these people. A person whose pass has ended needs nothing more.
                taken.forget_expired(self.parts.clock.now_seconds());
            }
            adopted?;
            taken.done(MOST_ADOPTED_A_CALL);
        }
        Ok(())
    }
}
