//! How a call finds its master, also while its keys move to another.

use std::{sync::Arc, time::Duration};

use super::{Kind, Masters};
use crate::redis::{
    failure::{Failure, Moving},
    master::Master,
};

/// How long to wait before asking again for keys that are moving.
const MOVING_PAUSE: Duration = Duration::from_millis(5);

/// The route of one call, from master to master while its keys move.
pub(super) struct Route<'a> {
    masters: &'a Masters,
    key: &'a str,
    pub(super) master: Arc<Master>,
    pub(super) asking: bool,
    /// On the monotonic clock.
    began: Duration,
    limit: Duration,
}

impl<'a> Route<'a> {
    /// Starts at the master that has this key. The whole call may take `limit` from now.
    pub(super) fn new(masters: &'a Masters, key: &'a str, limit: Duration) -> Result<Self, Failure> {
        let began = masters.setup.clock.monotonic();
        Ok(Self { masters, key, master: masters.of(key)?, asking: false, began, limit })
    }

    fn elapsed(&self) -> Duration {
        self.masters.setup.clock.monotonic().saturating_sub(self.began)
    }

    /// What is left of the limit.
    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.elapsed())
    }

    /// Whether to make the call again at the new [`Self::master`]: its keys are elsewhere, or moving. Stops after half
    /// the limit, so that people who gathered behind the call wait no longer than the whole limit: that would look like
    /// a server that does not answer.
    pub(super) async fn goes_on<T>(&mut self, result: &Result<T, Failure>) -> bool {
        let (Err(Failure::Moving(moving)), Kind::Cluster(cluster)) = (result, &self.masters.kind) else { return false };
        if self.elapsed() >= self.limit / 2 {
            return false;
        }
        let known = match moving {
            Moving::Moved(address) | Moving::Ask(address) => cluster.at(address, &self.master),
            Moving::TryAgain => None,
        };
        match known {
            Some(there) => {
                self.master = there;
                self.asking = matches!(moving, Moving::Ask(_));
            }
            // If the master is not known yet, it is looked up from now on.
            None => {
                tokio::time::sleep(MOVING_PAUSE).await;
                if let Ok(now) = self.masters.of(self.key) {
                    self.master = now;
                }
                self.asking = false;
            }
        }
        true
    }

    pub(super) fn settled<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        match (result, &self.masters.kind) {
            (Err(Failure::Moving(_)), Kind::One(_)) => {
                Err(Failure::Broken("this redis is a node of a cluster: set redis.mode".to_owned()))
            }
            (result, _) => result,
        }
    }
}
