//! Group commit: all the people who gathered for one target go in one call.
//!
//! A call starts at once when none is under way. While calls are under way people gather, each once, in the order of
//! arrival; further calls start when a whole batch has gathered, and when one returns.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use crate::{domain::QueueTarget, redis::Failure};

/// People in a call at most.
pub(super) const MOST_PEOPLE: usize = 256;
/// Calls of one target under way at a time at most.
pub(super) const MOST_CALLS: usize = 4;

/// A call for many people of one target.
pub(super) trait GroupCall: Send + Sync + 'static {
    /// Who asks, or what for: what is equal is asked once.
    type Item: Clone + Eq + Hash + Send + Sync + 'static;
    /// What each gets.
    type Answer: Clone + Send + 'static;

    /// Makes the call: one answer for each of `people`, in their order. Must end by itself.
    fn call(
        &self,
        target: QueueTarget,
        people: &[Self::Item],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, Failure>> + Send;
}

type Waiter<A> = oneshot::Sender<Result<A, Failure>>;

/// Everybody, by target.
type Lanes<C> = HashMap<QueueTarget, Lane<<C as GroupCall>::Item, <C as GroupCall>::Answer>>;

/// The people of one target.
struct Lane<I, A> {
    order: VecDeque<I>,
    waiters: HashMap<I, Vec<Waiter<A>>>,
    calls_under_way: usize,
    /// Those of them that have yet to take their people.
    calls_starting: usize,
}

impl<I: Clone + Eq + Hash, A> Lane<I, A> {
    fn new() -> Self {
        Self { order: VecDeque::new(), waiters: HashMap::new(), calls_under_way: 0, calls_starting: 0 }
    }

    /// Whether one more call is due, which then counts as under way.
    fn one_more(&mut self) -> bool {
        let full = self.order.len() >= MOST_PEOPLE * (self.calls_starting + 1) && self.calls_under_way < MOST_CALLS;
        let due = self.calls_under_way == 0 || full;
        self.calls_under_way += usize::from(due);
        self.calls_starting += usize::from(due);
        due
    }

    /// The next people to go, those whom nobody waits for any more left out.
    fn take(&mut self) -> (Vec<I>, Vec<Vec<Waiter<A>>>) {
        let (mut people, mut waiters) = (Vec::new(), Vec::new());
        while people.len() < MOST_PEOPLE
            && let Some(user) = self.order.pop_front()
        {
            let mut of_user = self.waiters.remove(&user).unwrap_or_default();
            of_user.retain(|waiter| !waiter.is_closed());
            if !of_user.is_empty() {
                people.push(user);
                waiters.push(of_user);
            }
        }
        (people, waiters)
    }
}

/// Gathers people into calls. Cheap to clone.
pub(super) struct Batcher<C: GroupCall> {
    inner: Arc<Inner<C>>,
}

struct Inner<C: GroupCall> {
    call: C,
    limit: Duration,
    /// Calls run here, not where a person's request does: a worker that stops must not take others' calls with it.
    runtime: Handle,
    lanes: Mutex<Lanes<C>>,
}

impl<C: GroupCall> Batcher<C> {
    /// A batcher for `call`, in which nobody waits longer than `limit`, and whose calls run on `runtime`.
    pub(super) fn new(call: C, limit: Duration, runtime: Handle) -> Self {
        Self { inner: Arc::new(Inner { call, limit, runtime, lanes: Mutex::default() }) }
    }

    /// This person's answer, out of a call shared with whoever else came.
    ///
    /// # Errors
    /// The call's [`Failure`], also that of a call this person gathered behind; [`Failure::TimedOut`] after the
    /// limit, counted from now.
    pub(super) async fn ask(&self, target: QueueTarget, item: C::Item) -> Result<C::Answer, Failure> {
        let (waiter, answer) = oneshot::channel();
        let start = {
            let mut lanes = self.inner.lanes();
            let lane = lanes.entry(target).or_insert_with(Lane::new);
            let of_item = lane.waiters.entry(item.clone()).or_default();
            if of_item.is_empty() {
                lane.order.push_back(item);
            }
            of_item.push(waiter);
            lane.one_more()
        };
        if start {
            self.inner.clone().start(target);
        }
        match timeout(self.inner.limit, answer).await {
            Ok(Ok(answer)) => answer,
            // Dropped unanswered: the runtime is being shut down.
            Ok(Err(_)) => Err(Failure::Away("we are stopping".to_owned())),
            Err(_) => Err(Failure::TimedOut),
        }
    }
}

impl<C: GroupCall> Clone for Batcher<C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<C: GroupCall> Inner<C> {
    fn lanes(&self) -> MutexGuard<'_, Lanes<C>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call that has been counted as under way.
    fn start(self: Arc<Self>, target: QueueTarget) {
        let runtime = self.runtime.clone();
        let mut under_way = UnderWay { inner: self, target, starting: true, ended: false };
        runtime.spawn(async move { while under_way.one_call().await {} });
    }
}

/// One of [`MOST_CALLS`], given back also when its call panics or the runtime is shut down.
struct UnderWay<C: GroupCall> {
    inner: Arc<Inner<C>>,
    target: QueueTarget,
    starting: bool,
    ended: bool,
}

impl<C: GroupCall> UnderWay<C> {
    /// Makes a call for the people gathered. False: there were none, and the slot is given back.
    async fn one_call(&mut self) -> bool {
        // Only now, when the call really starts: who came meanwhile is in it.
        let (people, waiters) = {
            let inner = self.inner.clone();
            let mut lanes = inner.lanes();
            self.begin(&mut lanes);
            let taken = lanes.get_mut(&self.target).map(Lane::take).unwrap_or_default();
            if taken.0.is_empty() {
                self.end(&mut lanes);
                return false;
            }
            taken
        };
        let result = self.inner.call.call(self.target, &people).await.and_then(|answers| {
            let complete = answers.len() == people.len();
            if complete { Ok(answers) } else { Err(Failure::Broken("not one answer a person".to_owned())) }
        });
        match result {
            Ok(answers) => {
                for (of_user, answer) in waiters.into_iter().zip(answers) {
                    for waiter in of_user {
                        // Who has given up waiting asks again.
                        let _ = waiter.send(Ok(answer.clone()));
                    }
                }
            }
            Err(failure) => self.fail(waiters, &failure),
        }
        true
    }

    /// Fails these people and everybody gathered behind them.
    fn fail(&self, waiters: Vec<Vec<Waiter<C::Answer>>>, failure: &Failure) {
        let behind = self.inner.lanes().get_mut(&self.target).map(|lane| {
            lane.order.clear();
            std::mem::take(&mut lane.waiters)
        });
        let behind = behind.unwrap_or_default().into_values();
        for waiter in waiters.into_iter().chain(behind).flatten() {
            let _ = waiter.send(Err(failure.clone()));
        }
    }

    fn begin(&mut self, lanes: &mut Lanes<C>) {
        if std::mem::take(&mut self.starting)
            && let Some(lane) = lanes.get_mut(&self.target)
        {
            lane.calls_starting -= 1;
        }
    }

    fn end(&mut self, lanes: &mut Lanes<C>) {
        self.ended = true;
        if let Some(lane) = lanes.get_mut(&self.target) {
            lane.calls_under_way -= 1;
            if lane.calls_under_way == 0 && lane.order.is_empty() {
                lanes.remove(&self.target);
            }
        }
    }
}

impl<C: GroupCall> Drop for UnderWay<C> {
    fn drop(&mut self) {
        if !self.ended {
            let inner = self.inner.clone();
            // Whoever gathered behind a call that panicked is told so by their waiters being dropped.
            let mut lanes = inner.lanes();
            if let Some(lane) = lanes.get_mut(&self.target) {
                lane.order.clear();
                lane.waiters.clear();
            }
            self.begin(&mut lanes);
            self.end(&mut lanes);
        }
    }
}

#[cfg(test)]
mod tests;
