//! Group commit: one call serves all people who gathered for one target.
//!
//! A call starts at once if none is under way. Otherwise people gather, each once, in the order of arrival. Another
//! call starts when a whole batch has gathered, and when a call returns.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use crate::{domain::QueueTarget, redis::Failure};

/// Most people in a call.
pub(super) const MOST_PEOPLE: usize = 256;
/// Most calls of one target under way at a time.
pub(super) const MOST_CALLS: usize = 4;

/// A call for many people of one target.
pub(super) trait GroupCall: Send + Sync + 'static {
    /// What is asked; equal items are asked once.
    type Item: Clone + Eq + Hash + Send + Sync + 'static;
    /// The answer to one item.
    type Answer: Clone + Send + 'static;

    /// Makes the call. Returns one answer for each of `people`, in their order. Must end by itself.
    fn call(
        &self,
        target: QueueTarget,
        people: &[Self::Item],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, Failure>> + Send;
}

type Waiter<A> = oneshot::Sender<Result<A, Failure>>;

/// The gathered people, by target.
type Groups<C> = HashMap<QueueTarget, Group<<C as GroupCall>::Item, <C as GroupCall>::Answer>>;

/// The gathered people of one target.
struct Group<I, A> {
    order: VecDeque<I>,
    waiters: HashMap<I, Vec<Waiter<A>>>,
    calls_under_way: usize,
    /// Calls under way that have not taken their people yet.
    calls_starting: usize,
}

impl<I: Clone + Eq + Hash, A> Group<I, A> {
    fn new() -> Self {
        Self { order: VecDeque::new(), waiters: HashMap::new(), calls_under_way: 0, calls_starting: 0 }
    }

    /// Whether one more call is due; if so, it counts as under way.
    fn one_more(&mut self) -> bool {
        let full = self.order.len() >= MOST_PEOPLE * (self.calls_starting + 1) && self.calls_under_way < MOST_CALLS;
        let due = self.calls_under_way == 0 || full;
        self.calls_under_way += usize::from(due);
        self.calls_starting += usize::from(due);
        due
    }

    /// Takes the next people, without those whom no caller waits for any more.
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
    /// Calls run here and not on the worker of a request: a worker that stops must not stop other people's calls.
    runtime: Handle,
    groups: Mutex<Groups<C>>,
}

impl<C: GroupCall> Batcher<C> {
    /// A batcher for `call`. Nobody waits longer than `limit`. Calls run on `runtime`.
    pub(super) fn new(call: C, limit: Duration, runtime: Handle) -> Self {
        Self { inner: Arc::new(Inner { call, limit, runtime, groups: Mutex::default() }) }
    }

    /// This person's answer, from a call shared with others.
    ///
    /// # Errors
    /// The [`Failure`] of the call, also of a call that this person gathered behind; [`Failure::TimedOut`] after the
    /// limit, counted from now.
    pub(super) async fn ask(&self, target: QueueTarget, item: C::Item) -> Result<C::Answer, Failure> {
        let (waiter, answer) = oneshot::channel();
        let start = {
            let mut groups = self.inner.groups();
            let group = groups.entry(target).or_insert_with(Group::new);
            let of_item = group.waiters.entry(item.clone()).or_default();
            if of_item.is_empty() {
                group.order.push_back(item);
            }
            of_item.push(waiter);
            group.one_more()
        };
        if start {
            self.inner.clone().start(target);
        }
        match timeout(self.inner.limit, answer).await {
            Ok(Ok(answer)) => answer,
            // The waiter was dropped: the runtime is shutting down, or the call panicked.
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
    fn groups(&self) -> MutexGuard<'_, Groups<C>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call that already counts as under way.
    fn start(self: Arc<Self>, target: QueueTarget) {
        let runtime = self.runtime.clone();
        let mut under_way = UnderWay { inner: self, target, starting: true, ended: false };
        runtime.spawn(async move { while under_way.one_call().await {} });
    }
}

/// One of [`MOST_CALLS`] slots. It is given back also if its call panics or the runtime shuts down.
struct UnderWay<C: GroupCall> {
    inner: Arc<Inner<C>>,
    target: QueueTarget,
    starting: bool,
    ended: bool,
}

impl<C: GroupCall> UnderWay<C> {
    /// Makes a call for the gathered people. False: there were none, and the slot is given back.
    async fn one_call(&mut self) -> bool {
        // Take people only now, when the call starts, so that it includes those who came in the meantime.
        let (people, waiters) = {
            let inner = self.inner.clone();
            let mut groups = inner.groups();
            self.begin(&mut groups);
            let taken = groups.get_mut(&self.target).map(Group::take).unwrap_or_default();
            if taken.0.is_empty() {
                self.end(&mut groups);
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
                        // A caller who stopped waiting asks again.
                        let _ = waiter.send(Ok(answer.clone()));
                    }
                }
            }
            Err(failure) => self.fail(waiters, &failure),
        }
        true
    }

    /// Fails these people and all people gathered behind them.
    fn fail(&self, waiters: Vec<Vec<Waiter<C::Answer>>>, failure: &Failure) {
        let behind = self.inner.groups().get_mut(&self.target).map(|group| {
            group.order.clear();
            std::mem::take(&mut group.waiters)
        });
        let behind = behind.unwrap_or_default().into_values();
        for waiter in waiters.into_iter().chain(behind).flatten() {
            let _ = waiter.send(Err(failure.clone()));
        }
    }

    fn begin(&mut self, groups: &mut Groups<C>) {
        if std::mem::take(&mut self.starting)
            && let Some(group) = groups.get_mut(&self.target)
        {
            group.calls_starting -= 1;
        }
    }

    fn end(&mut self, groups: &mut Groups<C>) {
        self.ended = true;
        if let Some(group) = groups.get_mut(&self.target) {
            group.calls_under_way -= 1;
            if group.calls_under_way == 0 && group.order.is_empty() {
                groups.remove(&self.target);
            }
        }
    }
}

impl<C: GroupCall> Drop for UnderWay<C> {
    fn drop(&mut self) {
        if !self.ended {
            let inner = self.inner.clone();
            // The call panicked: dropping their waiters tells the people who gathered behind it.
            let mut groups = inner.groups();
            if let Some(group) = groups.get_mut(&self.target) {
                group.order.clear();
                group.waiters.clear();
            }
            self.begin(&mut groups);
            self.end(&mut groups);
        }
    }
}

#[cfg(test)]
mod tests;
