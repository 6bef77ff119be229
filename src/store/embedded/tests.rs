//! What only this store has: its own idle time, locks and memory.

use super::*;
use crate::{clock::FakeClock, config::Config, domain::QueueTargetType};

const MINUTE: Duration = Duration::from_secs(60);

fn store() -> (Arc<EmbeddedStore>, Arc<FakeClock>) {
    let rules = QueueRules { silent_after_ms: 60_000, ..QueueRules::from_config(&Config::parse_default()) };
    let clock = FakeClock::at(1_790_000_000_123);
    (EmbeddedStore::new(rules, StoreClock::new(clock.clone()), Arc::new(Metrics::new())), clock)
}

fn target(id: u64) -> QueueTarget {
    QueueTarget::new(QueueTargetType::TicketingEvent, id).unwrap()
}

fn user(id: u64) -> UserId {
    UserId::try_from(id).unwrap()
}

fn block_on<F: Future>(work: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn kept(store: &EmbeddedStore) -> usize {
    store.targets.read().unwrap().len()
}

#[tokio::test]
async fn a_target_lives_on_by_peoples_calls_and_not_by_ticks() {
    let (store, clock) = store();
    store.enter_if_absent(target(1), user(1)).await.unwrap();
    for _ in 0..3 {
        clock.advance(29 * MINUTE);
        store.status(target(1), user(1)).await.unwrap().unwrap();
    }
    for _ in 0..29 {
        clock.advance(MINUTE);
        store.sweep_stale(target(1), 0).await.unwrap();
        store.advance_admission(target(1), 0).await.unwrap();
        store.status(target(1), user(2)).await.unwrap();
        store.stats(target(1)).await.unwrap();
    }
    assert_eq!(store.stats(target(1)).await.unwrap().last_number, 1);
    clock.advance(MINUTE);
    assert_eq!(store.stats(target(1)).await.unwrap().last_number, 0);
    assert_eq!(store.advance_admission(target(1), 0).await.unwrap(), Tick::Gone);
}

#[tokio::test]
async fn what_is_over_is_not_kept() {
    let (store, clock) = store();
    let expires_at = store.clock.now_seconds() + 300;
    for id in 1..=20 {
        store.register_active(target(id), None).await.unwrap();
        store.enter_if_absent(target(id), user(1)).await.unwrap();
        // Passes of targets without a queue: they leave only a claim and a floor.
        store.claim(target(100 + id), user(1), expires_at, "one").await.unwrap();
        store.settle(target(200 + id), user(1), expires_at, "one", Settlement::Spent).await.unwrap();
        store.lock_tick(target(id), "a").await.unwrap();
    }
    store.claim(target(500), user(1), 1, "one").await.unwrap();
    assert_eq!(kept(&store), 61);
    store.active_targets().await.unwrap();
    assert_eq!(kept(&store), 60, "a refused claim leaves nothing");
    clock.advance(30 * MINUTE);
    store.set_overrides(target(20), Overrides { paused: true, ..Overrides::default() });
    for target in store.active_targets().await.unwrap() {
        assert!(store.retire(target).await.unwrap());
    }
    assert_eq!(kept(&store), 1, "but for an operator's overrides");
    assert!(store.active.lock().unwrap().is_empty() && store.ticking.lock().unwrap().is_empty());
    store.set_overrides(target(20), Overrides::default());
    store.active_targets().await.unwrap();
    assert_eq!(kept(&store), 0);
}

#[tokio::test]
async fn the_tick_lock_ends_by_itself_and_no_later_than_promised() {
    let (store, clock) = store();
    assert_eq!(store.lock_tick(target(1), "a").await.unwrap(), TickLock::Ours);
    clock.advance(Duration::from_millis(1000));
    assert_eq!(store.lock_tick(target(1), "a").await.unwrap(), TickLock::Ours);
    let TickLock::HeldFor(wait) = store.lock_tick(target(1), "b").await.unwrap() else { panic!("two hold it") };
    assert_eq!(wait, Duration::from_millis(900), "taking it again makes it no longer");
    clock.advance(wait);
    assert_eq!(store.lock_tick(target(1), "b").await.unwrap(), TickLock::Ours);
    assert!(matches!(store.lock_tick(target(1), "a").await.unwrap(), TickLock::HeldFor(_)));
}

#[test]
fn a_crowd_on_many_threads_loses_nobody() {
    let (store, clock) = store();
    let (store, clock) = (&store, &clock);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                block_on(async move {
                    for id in 1..=1000 {
                        // Each person comes on two threads.
                        let id = id + 1000 * (thread / 2);
                        store.enter_if_absent(target(1 + id % 2), user(id)).await.unwrap().unwrap();
                        store.status(target(1 + id % 2), user(id)).await.unwrap();
                    }
                })
            });
        }
        scope.spawn(move || {
            block_on(async move {
                for _ in 0..200 {
                    clock.advance(Duration::from_millis(10));
                    for target in store.active_targets().await.unwrap() {
                        store.sweep_stale(target, 0).await.unwrap();
                        store.advance_admission(target, 0).await.unwrap();
                        store.retire(target).await.unwrap();
                    }
                }
            })
        });
    });
    block_on(async {
        let mut active = store.active_targets().await.unwrap();
        active.sort();
        assert_eq!(active, [target(1), target(2)]);
        for target in active {
            let stats = store.stats(target).await.unwrap();
            assert_eq!(stats.imbalance(), None);
            assert_eq!((stats.entered, stats.last_number), (1000, 1000));
        }
    });
}

#[tokio::test]
async fn a_hundred_thousand_people_wait_and_the_last_knows_how_many_are_ahead() {
    let (store, clock) = store();
    for id in 1..=100_000 {
        store.enter_if_absent(target(1), user(id)).await.unwrap().unwrap();
    }
    assert_eq!(store.enter_if_absent(target(1), user(100_001)).await.unwrap(), None);
    clock.advance(Duration::from_secs(2));
    store.advance_admission(target(1), 0).await.unwrap();
    let Some(Place::Waiting(last)) = store.status(target(1), user(100_000)).await.unwrap() else { panic!("waits") };
    assert_eq!(last.ahead, 99_899);
}
