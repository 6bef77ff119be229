//! Targets: which there are, and when one is over.

use std::time::Duration;

use virtual_queue::{
    domain::{Pacing, QueueStats},
    store::{Claim, Departure, Settled, Settlement, Sweep, Tick, TickLock, embedded::Overrides},
};

use crate::store_fixture::{StoreFixture, target, user};

super::behaviours! {
    calls_that_find_nobody_create_nothing,
    targets_know_nothing_of_each_other,
    an_idle_target_is_gone_and_the_next_life_begins_at_one,
    overrides_outlive_the_queue,
    a_target_in_use_is_active_until_it_is_over,
    a_new_target_needs_room_among_the_active_ones,
    a_tick_is_locked_for_one_owner,
}

async fn calls_that_find_nobody_create_nothing(fixture: StoreFixture) {
    let unused = QueueStats::unused(100_000, Pacing { batch: 100, tick_ms: 2000 }, false);
    assert_eq!(fixture.stats().await, unused);
    assert_eq!(fixture.poll(7).await, None);
    assert_eq!(fixture.leave(7).await, Departure::WasNotHere);
    fixture.store.count_direct(fixture.target, 3).await.unwrap();
    assert_eq!(fixture.sweep().await, Sweep { gone: true, ..Sweep::default() });
    assert_eq!(fixture.tick().await, Tick::Gone);
    assert!(!fixture.hands.keeps_anything_of(fixture.target));
    assert_eq!(fixture.claim(7, fixture.now_s(), "one").await, Claim::Expired);
    assert_eq!(fixture.settle(7, fixture.now_s() + 9, "one", Settlement::GivenBack).await, Settled::Nothing);
    assert_eq!(fixture.store.active_targets().await.unwrap(), []);
    assert_eq!(fixture.stats().await, unused);
    assert!(!fixture.hands.keeps_anything_of(fixture.target));
}

async fn targets_know_nothing_of_each_other(fixture: StoreFixture) {
    let other = target(43);
    fixture.crowd(1..=3).await;
    fixture.store.enter_if_absent(other, user(3)).await.unwrap();
    fixture.batch().await;
    fixture.pass(3).await;
    let stats = fixture.store.stats(other).await.unwrap();
    assert_eq!((stats.entered, stats.last_number, stats.admitted, stats.issued), (1, 1, 0, 0));
    assert_eq!(fixture.store.leave(other, user(1)).await.unwrap(), Departure::WasNotHere);
}

async fn an_idle_target_is_gone_and_the_next_life_begins_at_one(fixture: StoreFixture) {
    fixture.crowd(1..=30).await;
    fixture.batch().await;
    let expires_at = fixture.pass(1).await;
    fixture.buy(1, expires_at).await;
    fixture.hands.end_idle(fixture.target);
    assert_eq!(fixture.stats().await.entered, 0);
    assert_eq!(fixture.poll(2).await, None);
    assert_eq!(fixture.tick().await, Tick::Gone);
    assert!(fixture.sweep().await.gone);
    let position = fixture.waits(9).await;
    assert_eq!((position.seq, position.ahead, position.next_tick_in_ms), (1, 0, 2000));
    assert_eq!(fixture.stats().await.entered, 1);
}

async fn overrides_outlive_the_queue(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { batch: Some(3), capacity: Some(9), ..Overrides::default() });
    let stats = fixture.stats().await;
    assert_eq!((stats.pacing.batch, stats.capacity, stats.entered), (3, 9, 0));
    fixture.crowd(1..=5).await;
    fixture.hands.end_idle(fixture.target);
    assert_eq!(fixture.stats().await.pacing.batch, 3);
    fixture.crowd(1..=5).await;
    assert_eq!(fixture.batch().await, (3, 0));
}

async fn a_target_in_use_is_active_until_it_is_over(fixture: StoreFixture) {
    let other = target(43);
    for target in [fixture.target, other] {
        assert!(fixture.store.register_active(target, None).await.unwrap());
        fixture.store.enter_if_absent(target, user(1)).await.unwrap();
    }
    let mut active = fixture.store.active_targets().await.unwrap();
    active.sort();
    assert_eq!(active, [fixture.target, other]);
    assert!(!fixture.store.retire(other).await.unwrap(), "it has a queue, and stays");
    assert_eq!(fixture.store.active_targets().await.unwrap().len(), 2);

    fixture.hands.end_idle(fixture.target);
    assert!(fixture.store.retire(fixture.target).await.unwrap());
    assert!(!fixture.store.active_targets().await.unwrap().contains(&fixture.target));
    assert!(!fixture.hands.keeps_anything_of(fixture.target));
}

async fn a_new_target_needs_room_among_the_active_ones(fixture: StoreFixture) {
    let store = &fixture.store;
    assert!(store.register_active(target(1), Some(2)).await.unwrap());
    assert!(store.register_active(target(2), Some(2)).await.unwrap());
    assert!(!store.register_active(target(3), Some(2)).await.unwrap());
    assert!(store.register_active(target(1), Some(2)).await.unwrap(), "who is in stays in");
    fixture.hands.set_overrides(target(4), Overrides { batch: Some(1), ..Overrides::default() });
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

async fn a_tick_is_locked_for_one_owner(fixture: StoreFixture) {
    let store = &fixture.store;
    assert_eq!(store.lock_tick(fixture.target, "a").await.unwrap(), TickLock::Ours);
    assert_eq!(store.lock_tick(fixture.target, "a").await.unwrap(), TickLock::Ours, "one's own counts as taken");
    match store.lock_tick(fixture.target, "b").await.unwrap() {
        TickLock::HeldFor(wait) => assert!(!wait.is_zero() && wait <= Duration::from_millis(1900), "{wait:?}"),
        TickLock::Ours => panic!("two hold it"),
    }
    assert_eq!(store.lock_tick(target(43), "b").await.unwrap(), TickLock::Ours, "another target's is another lock");
}
