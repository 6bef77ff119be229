//! Group commit: all the people who gathered for one target go in one call (DESIGN 5 "Group commit").
//!
//! A call starts at once when none is under way. While calls are under way people gather, each once, in the order of
//! arrival; further calls start when a whole batch has gathered, and when one returns.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use super::failure::Failure;
use crate::domain::{QueueTarget, UserId};

/// People in a call at most.
pub const MOST_PEOPLE: usize = 256;
/// Calls of one target under way at a time at most.
pub const MOST_CALLS: usize = 4;

/// A call for many people of one target.
pub trait GroupCall: Send + Sync + 'static {
    /// What each person gets.
    type Answer: Clone + Send + 'static;

    /// Makes the call: one answer for each of `people`, in their order. Must end by itself.
    fn call(
        &self,
        target: QueueTarget,
        people: &[UserId],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, Failure>> + Send;
}

type Waiter<A> = oneshot::Sender<Result<A, Failure>>;

/// The people of one target.
struct Lane<A> {
    order: VecDeque<UserId>,
    waiters: HashMap<UserId, Vec<Waiter<A>>>,
    calls_under_way: usize,
    /// Those of them that have yet to take their people.
    calls_starting: usize,
}

impl<A> Lane<A> {
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
    fn take(&mut self) -> (Vec<UserId>, Vec<Vec<Waiter<A>>>) {
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
pub struct Batcher<C: GroupCall> {
    inner: Arc<Inner<C>>,
}

struct Inner<C: GroupCall> {
    call: C,
    limit: Duration,
    /// Calls run here, not where a person's request does: a worker that stops must not take others' calls with it.
    runtime: Handle,
    lanes: Mutex<HashMap<QueueTarget, Lane<C::Answer>>>,
}

impl<C: GroupCall> Batcher<C> {
    /// A batcher for `call`, in which nobody waits longer than `limit`, and whose calls run on `runtime`.
    pub fn new(call: C, limit: Duration, runtime: Handle) -> Self {
        Self { inner: Arc::new(Inner { call, limit, runtime, lanes: Mutex::default() }) }
    }

    /// This person's answer, out of a call shared with whoever else came.
    ///
    /// # Errors
    /// The call's [`Failure`], also that of a call this person gathered behind; [`Failure::TimedOut`] after the
    /// limit, counted from now.
    pub async fn ask(&self, target: QueueTarget, user: UserId) -> Result<C::Answer, Failure> {
        let (waiter, answer) = oneshot::channel();
        let start = {
            let mut lanes = self.inner.lanes();
            let lane = lanes.entry(target).or_insert_with(Lane::new);
            let of_user = lane.waiters.entry(user).or_default();
            if of_user.is_empty() {
                lane.order.push_back(user);
            }
            of_user.push(waiter);
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
    fn lanes(&self) -> MutexGuard<'_, HashMap<QueueTarget, Lane<C::Answer>>> {
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

    fn begin(&mut self, lanes: &mut HashMap<QueueTarget, Lane<C::Answer>>) {
        if std::mem::take(&mut self.starting)
            && let Some(lane) = lanes.get_mut(&self.target)
        {
            lane.calls_starting -= 1;
        }
    }

    fn end(&mut self, lanes: &mut HashMap<QueueTarget, Lane<C::Answer>>) {
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
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;
    use crate::domain::QueueTargetType;

    type Reply = Result<Vec<u64>, Failure>;

    /// A call that the test answers, when it likes.
    struct ByHand(mpsc::UnboundedSender<(Vec<u64>, oneshot::Sender<Reply>)>);

    impl GroupCall for ByHand {
        type Answer = u64;

        async fn call(&self, _: QueueTarget, people: &[UserId]) -> Reply {
            let (reply, answer) = oneshot::channel();
            self.0.send((people.iter().map(|user| user.get()).collect(), reply)).unwrap();
            answer.await.unwrap()
        }
    }

    type Calls = mpsc::UnboundedReceiver<(Vec<u64>, oneshot::Sender<Reply>)>;

    fn by_hand(limit: Duration) -> (Batcher<ByHand>, Calls) {
        let (sender, calls) = mpsc::unbounded_channel();
        (Batcher::new(ByHand(sender), limit, Handle::current()), calls)
    }

    const LONG: Duration = Duration::from_secs(60);

    fn target() -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap()
    }

    type Asked = tokio::task::JoinHandle<Result<u64, Failure>>;

    /// Somebody comes. Whoever comes first is the first to be there: one thread runs tasks in order.
    fn come(batcher: &Batcher<ByHand>, id: u64) -> Asked {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.ask(target(), UserId::try_from(id).unwrap()).await })
    }

    /// Lets everything that can happen happen.
    async fn settle() {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_call_starts_at_once_and_those_who_come_meanwhile_share_the_next() {
        let (batcher, mut calls) = by_hand(LONG);
        let first = come(&batcher, 1);
        let (people, reply) = calls.recv().await.unwrap();
        assert_eq!(people, [1]);
        let behind: Vec<Asked> = [30, 20, 30, 10].map(|id| come(&batcher, id)).into();
        settle().await;
        assert!(calls.try_recv().is_err(), "one call is under way, and no batch is full");
        reply.send(Ok(vec![100])).unwrap();
        assert_eq!(first.await.unwrap(), Ok(100));
        let (people, reply) = calls.recv().await.unwrap();
        assert_eq!(people, [30, 20, 10], "in the order of arrival, each once");
        reply.send(Ok(vec![3, 2, 1])).unwrap();
        let mut answers = Vec::new();
        for asked in behind {
            answers.push(asked.await.unwrap().unwrap());
        }
        assert_eq!(answers, [3, 2, 3, 1], "repeats share the answer");
        assert!(batcher.inner.lanes().is_empty(), "nothing is kept of a target nobody asks for");
    }

    #[tokio::test]
    async fn full_batches_go_without_waiting_but_never_more_than_four_calls_at_a_time() {
        let (batcher, mut calls) = by_hand(LONG);
        let _everybody: Vec<Asked> = (1..=2000).map(|id| come(&batcher, id)).collect();
        settle().await;
        let mut under_way = Vec::new();
        while let Ok(call) = calls.try_recv() {
            under_way.push(call);
        }
        let sizes: Vec<usize> = under_way.iter().map(|(people, _)| people.len()).collect();
        assert_eq!(sizes.len(), MOST_CALLS);
        assert!(sizes.iter().all(|size| *size <= MOST_PEOPLE), "{sizes:?}");
        let mut seen = Vec::new();
        let mut most = 0;
        while let Some((people, reply)) = under_way.pop() {
            seen.push(people.clone());
            reply.send(Ok(people)).unwrap();
            settle().await;
            while let Ok(call) = calls.try_recv() {
                under_way.push(call);
            }
            most = most.max(under_way.len());
        }
        assert!(most <= MOST_CALLS, "{most} calls at a time");
        assert!(seen.iter().all(|people| people.len() <= MOST_PEOPLE && people.is_sorted()));
        assert!(seen.len() <= 9, "{} calls for 2000 people", seen.len());
        let mut everybody = seen.concat();
        everybody.sort_unstable();
        assert_eq!(everybody, (1..=2000).collect::<Vec<u64>>());
    }

    #[tokio::test]
    async fn a_call_that_fails_fails_everybody_behind_it_at_once() {
        let (batcher, mut calls) = by_hand(LONG);
        let first = come(&batcher, 1);
        let (_, reply) = calls.recv().await.unwrap();
        let behind = [2, 3].map(|id| come(&batcher, id));
        settle().await;
        reply.send(Err(Failure::Away("reset".to_owned()))).unwrap();
        for asked in [first].into_iter().chain(behind) {
            assert_eq!(asked.await.unwrap(), Err(Failure::Away("reset".to_owned())));
        }
        assert!(calls.try_recv().is_err(), "nobody is sent after it");
        let later = come(&batcher, 4);
        let (people, reply) = calls.recv().await.unwrap();
        assert_eq!(people, [4], "and who comes later is tried again");
        reply.send(Ok(vec![4])).unwrap();
        assert_eq!(later.await.unwrap(), Ok(4));
    }

    #[tokio::test]
    async fn who_has_given_up_waiting_is_not_sent() {
        let (batcher, mut calls) = by_hand(LONG);
        let _first = come(&batcher, 1);
        let (_, reply) = calls.recv().await.unwrap();
        let gone = come(&batcher, 2);
        let _stays = come(&batcher, 3);
        settle().await;
        gone.abort();
        settle().await;
        reply.send(Ok(vec![1])).unwrap();
        let (people, _reply) = calls.recv().await.unwrap();
        assert_eq!(people, [3]);
    }

    #[tokio::test]
    async fn nobody_waits_longer_than_the_limit() {
        let (batcher, mut calls) = by_hand(Duration::from_millis(30));
        let first = come(&batcher, 1);
        let (_, _reply) = calls.recv().await.unwrap();
        let behind = come(&batcher, 2);
        assert_eq!(first.await.unwrap(), Err(Failure::TimedOut));
        assert_eq!(behind.await.unwrap(), Err(Failure::TimedOut));
    }

    #[tokio::test]
    async fn a_short_answer_is_a_fault_and_not_somebody_elses_place() {
        let (batcher, mut calls) = by_hand(LONG);
        let asked = come(&batcher, 1);
        let (_, reply) = calls.recv().await.unwrap();
        reply.send(Ok(vec![])).unwrap();
        assert!(matches!(asked.await.unwrap(), Err(Failure::Broken(_))));
    }

    #[tokio::test]
    async fn a_worker_that_stops_takes_nobody_elses_call_with_it() {
        let (batcher, mut calls) = by_hand(LONG);
        let starts = batcher.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let worker = std::thread::spawn(move || {
            let worker = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            worker.spawn(async move { starts.ask(target(), UserId::try_from(1).unwrap()).await });
            worker.block_on(stopped)
        });
        let (people, reply) = calls.recv().await.unwrap();
        assert_eq!(people, [1]);
        stop.send(()).unwrap();
        worker.join().unwrap().unwrap();
        let other = come(&batcher, 2);
        settle().await;
        reply.send(Ok(vec![1])).unwrap();
        let (people, reply) = calls.recv().await.unwrap();
        assert_eq!(people, [2]);
        reply.send(Ok(vec![2])).unwrap();
        assert_eq!(other.await.unwrap(), Ok(2));
    }

    /// Panics the first time.
    struct Panics(AtomicUsize);

    impl GroupCall for Panics {
        type Answer = u64;

        async fn call(&self, _: QueueTarget, people: &[UserId]) -> Reply {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
            Ok(people.iter().map(|user| user.get()).collect())
        }
    }

    #[tokio::test]
    async fn a_panic_costs_its_own_call_and_no_later_one() {
        let batcher = Batcher::new(Panics(AtomicUsize::new(0)), LONG, Handle::current());
        let user = UserId::try_from(1).unwrap();
        assert!(batcher.ask(target(), user).await.is_err());
        assert_eq!(batcher.ask(target(), user).await, Ok(1));
    }
}
