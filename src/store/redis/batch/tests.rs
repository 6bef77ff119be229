//! The tests answer the calls, so that they can produce every order of events.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::*;
use crate::domain::QueueTargetType;
use crate::domain::UserId;

type Reply = Result<Vec<u64>, Failure>;

/// A call that the test answers, at any time.
struct ByHand(mpsc::UnboundedSender<(Vec<u64>, oneshot::Sender<Reply>)>);

impl GroupCall for ByHand {
    type Item = UserId;
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

/// A person comes. One thread runs tasks in order, so the first to come is the first in the call.
fn come(batcher: &Batcher<ByHand>, id: u64) -> Asked {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.ask(target(), UserId::try_from(id).unwrap()).await })
}

/// Lets all tasks run as far as they can.
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
    assert!(batcher.inner.groups().is_empty(), "nothing is kept of a target nobody asks for");
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
    type Item = UserId;
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
