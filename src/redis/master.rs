//! One master: its circuit breaker, its probe, and calls with a time limit over a link that can be replaced.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use ::redis::{FromRedisValue, RedisError};
use bb8_redis::bb8;
use tokio::{sync::watch, time::timeout};

use super::{
    breaker::{Breaker, State},
    call::{Call, Lane},
    connection::{Link, Setup},
    failure::Failure,
    probe::Probe,
    slots::SlotRanges,
};
use crate::config::NodeAddress;

/// One Redis master.
pub struct Master {
    /// None: its address is not known yet.
    link: watch::Sender<Option<Arc<Link>>>,
    owned: RwLock<SlotRanges>,
    breaker: Arc<Breaker>,
    setup: Arc<Setup>,
}

impl Master {
    /// Starts a master that owns `owned`, and its probe. Without a link it has none until [`Self::move_to`].
    pub(super) fn start(setup: &Arc<Setup>, link: Option<Link>, owned: SlotRanges) -> Arc<Self> {
        let master = Arc::new(Self {
            link: watch::Sender::new(link.map(Arc::new)),
            owned: RwLock::new(owned),
            breaker: Arc::new(Breaker::new(setup.clock.clone(), setup.metrics.clone())),
            setup: setup.clone(),
        });
        setup.runtime.spawn(Probe::new(&master).run());
        master
    }

    /// The breaker.
    pub fn breaker(&self) -> &Arc<Breaker> {
        &self.breaker
    }

    pub(super) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The current link. Ask each time: it may be replaced.
    pub(super) fn link(&self) -> Result<Arc<Link>, Failure> {
        let link = self.link.borrow().clone();
        link.ok_or_else(|| Failure::Away("no master is known".to_owned()))
    }

    /// Whether this is still the current link.
    pub(super) fn is_current(&self, link: &Arc<Link>) -> bool {
        self.link().is_ok_and(|current| Arc::ptr_eq(&current, link))
    }

    /// Replaces `old` with `new`. The old connections end with the last call on them: no new call uses them. False:
    /// `old` was replaced already.
    pub(super) fn replace_link(&self, old: &Arc<Link>, new: Arc<Link>) -> bool {
        self.link.send_if_modified(|link| {
            let is_current = link.as_ref().is_some_and(|current| Arc::ptr_eq(current, old));
            if is_current {
                *link = Some(new);
            }
            is_current
        })
    }

    /// Waits until the current link is replaced. For connections that are not shared: they must end then, too.
    pub(super) fn link_replaced(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut link = self.link.subscribe();
        async move {
            // An error means that the master was dropped: the connection must end, too.
            let _ = link.changed().await;
        }
    }

    /// Another server is the master from now on. Connections to the old one are not used any more: it may continue as a
    /// replica, which answers and takes no writes. The new link is made first, so that calls can use the old one
    /// meanwhile if it still works. `noticed_within`: how much later other processes may learn of it. False: the
    /// address is the same as before.
    pub(super) async fn move_to(&self, address: NodeAddress, noticed_within: Duration) -> Result<bool, RedisError> {
        if self.link().is_ok_and(|link| link.address() == Some(&address)) {
            return Ok(false);
        }
        let new = Arc::new(Link::new(&self.setup, Some(address))?);
        let ready = new.replace_hot(&self.setup).await.is_ok();
        let replace = || drop(self.link.send_replace(Some(new)));
        if self.link().is_ok() {
            self.breaker.replaced(ready, noticed_within, replace);
        } else {
            replace();
            self.breaker.probe_soon();
        }
        Ok(true)
    }

    /// The slots that it owns.
    pub(super) fn owned(&self) -> SlotRanges {
        self.owned.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It owns other slots from now on. A master that had none takes over from another, and may lack the other's last
    /// writes.
    pub(super) fn own(&self, owned: SlotRanges) {
        let before = std::mem::replace(&mut *self.owned.write().unwrap_or_else(PoisonError::into_inner), owned.clone());
        if before.is_nothing() && !owned.is_nothing() {
            self.breaker.note_lost();
        }
    }

    /// Makes a call within `limit`. Returns the reply, and when the request was sent on
    /// [`crate::clock::StoreClock::monotonic`]. `asking`: the slot is still moving to this master.
    ///
    /// # Errors
    /// [`Failure`]. The breaker has learnt of it unless the call went [`Lane::Aside`].
    pub(super) async fn call<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        lane: Lane,
        call: &Arc<Call>,
        asking: bool,
        limit: Duration,
    ) -> Result<(T, Duration), Failure> {
        match lane {
            Lane::Hot => self.hot(call, asking, limit).await,
            Lane::Pooled { quiet } => self.pooled(call, asking, limit, quiet).await,
            Lane::Aside { .. } => self.aside(call, asking, limit).await,
        }
    }

    async fn hot<T: FromRedisValue>(
        &self,
        call: &Call,
        asking: bool,
        limit: Duration,
    ) -> Result<(T, Duration), Failure> {
        self.breaker.check()?;
        let link = self.link()?;
        let Some(mut hot) = link.hot() else { return Err(Failure::Away("not connected".to_owned())) };
        let asked = self.setup.clock.monotonic();
        let result = match timeout(limit, call.make(&mut hot.connection, asking)).await {
            Ok(Ok(reply)) => Ok((reply, asked)),
            Ok(Err(error)) => Err(Failure::of(&error)),
            Err(_) => Err(Failure::TimedOut),
        };
        if !matches!(result, Err(Failure::TimedOut | Failure::Away(_))) {
            self.breaker.answered();
        }
        result.inspect_err(|failure| {
            // A replaced connection may end; that says nothing about Redis.
            let still_in_use = link.hot().is_some_and(|now| now.generation == hot.generation);
            if still_in_use && self.is_current(&link) {
                self.breaker.learn(failure);
                if *failure == Failure::TimedOut {
                    self.breaker.unanswered();
                }
            }
        })
    }

    /// The connection is given back at once and shared: calls on it are pipelined, so many targets do not wait for a
    /// few connections. `quiet` is checked when the call has its connection, so that the call cannot be allowed for one
    /// server and go to the next.
    async fn pooled<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        call: &Arc<Call>,
        asking: bool,
        limit: Duration,
        quiet: Duration,
    ) -> Result<(T, Duration), Failure> {
        self.breaker.check()?;
        let (this, call, link) = (self.clone(), call.clone(), self.link()?);
        self.on_runtime(async move {
            let learn = |failure: &Failure| {
                if this.is_current(&link) {
                    this.breaker.learn(failure);
                }
            };
            let mut connection = link.answering(&this.setup).await.inspect_err(|failure| {
                // Waiting for a connection says nothing about Redis.
                if *failure != Failure::TimedOut {
                    learn(failure);
                }
            })?;
            if let Some(rest) = this.breaker.lost_within(quiet) {
                return Err(Failure::JustLost(rest));
            }
            let asked = this.setup.clock.monotonic();
            let made = timeout(limit, call.make(&mut connection, asking)).await;
            let result = made.map_or(Err(Failure::TimedOut), |reply| reply.map_err(|error| Failure::of(&error)));
            result.map(|reply| (reply, asked)).inspect_err(|failure| {
                link.doubt_lately();
                learn(failure);
            })
        })
        .await
    }

    /// If Redis refuses the call, a probe checks at once whether Redis takes writes.
    async fn aside<T: FromRedisValue + Send + 'static>(
        &self,
        call: &Arc<Call>,
        asking: bool,
        limit: Duration,
    ) -> Result<(T, Duration), Failure> {
        let asked = self.setup.clock.monotonic();
        let (call, link) = (call.clone(), self.link()?);
        self.on_runtime(async move {
            let made = timeout(limit, async {
                let shared = link.pool().get().await.map_err(|error| match error {
                    bb8::RunError::TimedOut => Failure::TimedOut,
                    bb8::RunError::User(error) => Failure::of(&error),
                })?;
                let mut connection = shared.clone();
                drop(shared);
                call.make(&mut connection, asking).await.map_err(|error| Failure::of(&error))
            });
            made.await.unwrap_or(Err(Failure::TimedOut)).map(|reply| (reply, asked))
        })
        .await
        .inspect_err(|failure| {
            if matches!(failure, Failure::Away(_)) && self.breaker.state() != State::Open {
                self.breaker.probe_soon();
            }
        })
    }

    async fn on_runtime<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let task = self.setup.runtime.spawn(work);
        task.await.unwrap_or_else(|_| Err(Failure::Away("we are stopping".to_owned())))
    }
}

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.breaker.state();
        let address = self.link().ok().and_then(|link| link.address().map(NodeAddress::to_string));
        f.debug_struct("Master").field("address", &address).field("state", &state).finish_non_exhaustive()
    }
}
