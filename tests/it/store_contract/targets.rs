//! Targets: which there are, and when one is over.

use std::time::Duration;

use virtual_queue::{
    domain::{Pacing, QueueStats},
    store::{Claim, Departure, Settled, Settlement, Sweep, Tick, TickLock, embedded::Overrides},
};

use crate::stand::{Stand, target, user};

super::behaviours! {
    calls_that_find_nobody_create_nothing,
    targets_know_nothing_of_each_other,
    an_idle_target_is_gone_and_the_next_life_begins_at_one,
    overrides_outlive_the_queue,
    a_target_in_use_is_active_until_it_is_over,
    a_new_target_needs_room_among_the_active_ones,
    a_tick_is_locked_for_one_owner,
}

async fn calls_that_find_nobody_create_nothing(stand: Stand) {
    let unused = QueueStats::unused(100_000, Pacing { batch: 100, tick_ms: 2000 }, false);
    assert_eq!(stand.stats().await, unused);
    assert_eq!(stand.poll(7).await, None);
    assert_eq!(stand.leave(7).await, Departure::WasNotHere);
    stand.store.count_direct(stand.target, 3).await.unwrap();
    assert_eq!(stand.sweep().await, Sweep { gone: true, ..Sweep::default() });
    assert_eq!(stand.tick().await, Tick::Gone);
    assert!(!stand.hands.keeps_anything_of(stand.target));
    assert_eq!(stand.claim(7, stand.now_s(), "one").await, Claim::Expired);
    assert_eq!(stand.settle(7, stand.now_s() + 9, "one", Settlement::GivenBack).await, Settled::Nothing);
    assert_eq!(stand.store.active_targets().await.unwrap(), []);
    assert_eq!(stand.stats().await, unused);
    assert!(!stand.hands.keeps_anything_of(stand.target));
}

async fn targets_know_nothing_of_each_other(stand: Stand) {
    let other = target(43);
    stand.crowd(1..=3).await;
    stand.store.enter_if_absent(other, user(3)).await.unwrap();
    stand.batch().await;
    stand.pass(3).await;
    let stats = stand.store.stats(other).await.unwrap();
    assert_eq!((stats.entered, stats.last_number, stats.admitted, stats.issued), (1, 1, 0, 0));
    assert_eq!(stand.store.leave(other, user(1)).await.unwrap(), Departure::WasNotHere);
}

async fn an_idle_target_is_gone_and_the_next_life_begins_at_one(stand: Stand) {
    stand.crowd(1..=30).await;
    stand.batch().await;
    let expires_at = stand.pass(1).await;
    stand.buy(1, expires_at).await;
    stand.hands.end_idle(stand.target);
    assert_eq!(stand.stats().await.entered, 0);
    assert_eq!(stand.poll(2).await, None);
    assert_eq!(stand.tick().await, Tick::Gone);
    assert!(stand.sweep().await.gone);
    let position = stand.waits(9).await;
    assert_eq!((position.seq, position.ahead, position.next_tick_in_ms), (1, 0, 2000));
    assert_eq!(stand.stats().await.entered, 1);
}

async fn overrides_outlive_the_queue(stand: Stand) {
    stand.set_overrides(Overrides { batch: Some(3), capacity: Some(9), ..Overrides::default() });
    let stats = stand.stats().await;
    assert_eq!((stats.pacing.batch, stats.capacity, stats.entered), (3, 9, 0));
    stand.crowd(1..=5).await;
    stand.hands.end_idle(stand.target);
    assert_eq!(stand.stats().await.pacing.batch, 3);
    stand.crowd(1..=5).await;
    assert_eq!(stand.batch().await, (3, 0));
}

async fn a_target_in_use_is_active_until_it_is_over(stand: Stand) {
    let other = target(43);
    for target in [stand.target, other] {
        assert!(stand.store.register_active(target, None).await.unwrap());
        stand.store.enter_if_absent(target, user(1)).await.unwrap();
    }
    let mut active = stand.store.active_targets().await.unwrap();
    active.sort();
    assert_eq!(active, [stand.target, other]);
    assert!(!stand.store.retire(other).await.unwrap(), "it has a queue, and stays");
    assert_eq!(stand.store.active_targets().await.unwrap().len(), 2);

    stand.hands.end_idle(stand.target);
    assert!(stand.store.retire(stand.target).await.unwrap());
    assert!(!stand.store.active_targets().await.unwrap().contains(&stand.target));
    assert!(!stand.hands.keeps_anything_of(stand.target));
}

async fn a_new_target_needs_room_among_the_active_ones(stand: Stand) {
    let store = &stand.store;
    assert!(store.register_active(target(1), Some(2)).await.unwrap());
    assert!(store.register_active(target(2), Some(2)).await.unwrap());
    assert!(!store.register_active(target(3), Some(2)).await.unwrap());
    assert!(store.register_active(target(1), Some(2)).await.unwrap(), "who is in stays in");
    stand.hands.set_overrides(target(4), Overrides { batch: Some(1), ..Overrides::default() });
    assert!(store.register_active(target(4), Some(2)).await.unwrap(), "an operator knows of it");
    assert!(store.register_active(target(5), None).await.unwrap());
    let mut active = store.active_targets().await.unwrap();
    active.sort();
    assert_eq!(active, [1, 2, 4, 5].map(target));
    for id in [1, 2, 4] {
        assert!(store.retire(target(id)).await.unwrap());
    }
    assert!(store.register_active(target(3), Some(2)).await.unwrap());
}

async fn a_tick_is_locked_for_one_owner(stand: Stand) {
    let store = &stand.store;
    assert_eq!(store.lock_tick(stand.target, "a").await.unwrap(), TickLock::Ours);
    assert_eq!(store.lock_tick(stand.target, "a").await.unwrap(), TickLock::Ours, "one's own counts as taken");
    match store.lock_tick(stand.target, "b").await.unwrap() {
        TickLock::HeldFor(wait) => assert!(!wait.is_zero() && wait <= Duration::from_millis(1900), "{wait:?}"),
        TickLock::Ours => panic!("two hold it"),
    }
    assert_eq!(store.lock_tick(target(43), "b").await.unwrap(), TickLock::Ours, "another target's is another lock");
}
