//! Numbers and places: who gets which, and who is admitted by them.

use futures_util::future::join_all;
use virtual_queue::{
    domain::Pacing,
    store::{Departure, Place, Settlement, embedded::Overrides},
};

use crate::store_fixture::{StoreFixture, user};

super::behaviours! {
    people_get_numbers_in_the_order_of_their_arrival,
    entering_again_keeps_the_number,
    people_who_come_at_once_get_one_number_each,
    the_first_batch_is_the_first_hundred_and_nobody_else,
    someone_leaving_does_not_admit_the_next,
    the_mark_never_goes_beyond_the_last_number,
    numbers_of_those_who_left_take_no_slot,
    the_queue_takes_exactly_its_capacity_and_numbers_have_no_gaps,
    who_is_in_is_never_told_that_the_queue_is_full,
    whoever_lost_a_place_or_pass_gets_a_new_number_at_the_back,
    ahead_counts_who_is_in_front_and_not_admitted,
    the_eta_is_whole_batches_ahead_and_the_rest_of_this_tick,
}

async fn people_get_numbers_in_the_order_of_their_arrival(fixture: StoreFixture) {
    for id in 1..=250 {
        let position = fixture.waits(1000 + id).await;
        assert_eq!((position.seq, position.ahead), (id, id - 1));
    }
    let stats = fixture.stats().await;
    assert_eq!((stats.entered, stats.waiting, stats.last_number, stats.admitted_through), (250, 250, 250, 0));
}

async fn people_who_come_at_once_get_one_number_each(fixture: StoreFixture) {
    // Everybody knocks twice.
    let calls = (0..600).map(|n| fixture.store.enter_if_absent(fixture.target, user(n % 300 + 1)));
    let places = join_all(calls).await;
    let mut numbers = Vec::new();
    for place in places {
        let Some(Place::Waiting(position)) = place.unwrap() else { panic!("everybody was to wait") };
        numbers.push(position.seq);
    }
    assert_eq!(numbers[..300], numbers[300..], "the second knock is answered as the first");
    numbers.truncate(300);
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=300).collect::<Vec<u64>>());
    assert_eq!(fixture.stats().await.entered, 300);
}

async fn entering_again_keeps_the_number(fixture: StoreFixture) {
    fixture.crowd([7, 8, 9]).await;
    for _ in 0..3 {
        fixture.advance(300);
        assert_eq!(fixture.waits(8).await.seq, 2);
        assert_eq!(fixture.still_waits(8).await.seq, 2);
    }
    assert_eq!(fixture.stats().await.entered, 3);
}

async fn the_first_batch_is_the_first_hundred_and_nobody_else(fixture: StoreFixture) {
    fixture.crowd(1..=250).await;
    assert!(matches!(fixture.poll(1).await, Some(Place::Waiting(_))), "before the first tick nobody is admitted");
    assert_eq!(fixture.batch().await, (100, 0));
    for id in 1..=250 {
        match fixture.poll(id).await {
            Some(Place::Admitted { expires_at }) => {
                assert!(id <= 100, "{id} was admitted");
                assert_eq!(expires_at, fixture.now_s() + 300);
            }
            other => assert!(id > 100 && matches!(other, Some(Place::Waiting(p)) if p.seq == id), "{id}: {other:?}"),
        }
    }
    let stats = fixture.stats().await;
    assert_eq!((stats.admitted, stats.admitted_through, stats.issued, stats.waiting), (100, 100, 100, 150));
}

async fn someone_leaving_does_not_admit_the_next(fixture: StoreFixture) {
    fixture.crowd(1..=250).await;
    fixture.batch().await;
    for id in 1..=100 {
        // Half of them with a pass, half from their place.
        if id % 2 == 0 {
            fixture.pass(id).await;
        }
        assert_ne!(fixture.leave(id).await, Departure::WasNotHere);
    }
    for id in 101..=150 {
        assert_eq!(fixture.leave(id).await, Departure::GaveUpPlace);
    }
    fixture.advance(1999);
    let first = fixture.still_waits(151).await;
    assert_eq!((first.seq, first.ahead), (151, 0), "in front now, and still not admitted");
    fixture.tick().await;
    assert!(matches!(fixture.poll(151).await, Some(Place::Waiting(_))), "nor by a tick that is too early");
    assert_eq!(fixture.batch().await, (100, 0));
    fixture.pass(151).await;
    fixture.pass(250).await;
}

async fn the_mark_never_goes_beyond_the_last_number(fixture: StoreFixture) {
    fixture.crowd(1..=250).await;
    for (people, mark) in [(100, 100), (100, 200), (50, 250), (0, 250)] {
        assert_eq!(fixture.batch().await, (people, 0));
        assert_eq!(fixture.stats().await.admitted_through, mark);
    }
    let position = fixture.waits(251).await;
    assert_eq!((position.seq, position.ahead), (251, 0), "those admitted and not yet served are not in front");
    assert_eq!(fixture.batch().await, (1, 0));
}

async fn numbers_of_those_who_left_take_no_slot(fixture: StoreFixture) {
    fixture.crowd(1..=300).await;
    for id in (1..=300).filter(|id| id % 3 != 0) {
        assert_eq!(fixture.leave(id).await, Departure::GaveUpPlace);
    }
    assert_eq!(fixture.batch().await, (100, 0));
    let stats = fixture.stats().await;
    assert_eq!((stats.admitted, stats.admitted_through, stats.left), (100, 300, 200));
}

async fn the_queue_takes_exactly_its_capacity_and_numbers_have_no_gaps(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { capacity: Some(5), ..Overrides::default() });
    for id in 1..=8 {
        let place = fixture.enter(id).await;
        assert_eq!(place.is_some(), id <= 5, "{id}: {place:?}");
    }
    assert_eq!(fixture.poll(6).await, None, "who was refused is not in the queue");
    assert_eq!(fixture.leave(2).await, Departure::GaveUpPlace);
    assert_eq!(fixture.waits(7).await.seq, 6, "refusals use up no number");
    assert_eq!(fixture.enter(8).await, None);
    let stats = fixture.stats().await;
    assert_eq!((stats.entered, stats.waiting, stats.capacity), (6, 5, 5));

    // Admitted people who have not come for their pass still take room; with the pass they do not.
    assert_eq!(fixture.batch().await, (5, 0));
    assert_eq!(fixture.enter(8).await, None);
    fixture.pass(1).await;
    assert_eq!(fixture.waits(8).await.seq, 7);
}

async fn who_is_in_is_never_told_that_the_queue_is_full(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { capacity: Some(2), ..Overrides::default() });
    fixture.crowd([1, 2]).await;
    assert_eq!(fixture.enter(3).await, None);
    assert_eq!(fixture.waits(1).await.seq, 1);
    fixture.batch().await;
    let pass = fixture.pass(1).await;
    fixture.waits(3).await;
    assert_eq!(fixture.enter(4).await, None);
    assert_eq!(fixture.enter(1).await, Some(Place::Admitted { expires_at: pass }));
    fixture.set_overrides(Overrides { capacity: Some(0), ..Overrides::default() });
    assert!(fixture.enter(2).await.is_some() && fixture.enter(3).await.is_some());
}

async fn whoever_lost_a_place_or_pass_gets_a_new_number_at_the_back(fixture: StoreFixture) {
    fixture.crowd(1..=4).await;
    fixture.batch().await;
    let [spent, _revoked, _expired] = [fixture.pass(1).await, fixture.pass(2).await, fixture.pass(3).await];
    fixture.buy(1, spent).await;
    assert_eq!(fixture.leave(2).await, Departure::GaveUpPass);
    assert_eq!(fixture.poll(1).await, None, "spent");
    assert_eq!(fixture.poll(2).await, None, "revoked");
    assert_eq!(fixture.waits(1).await.seq, 5);
    assert_eq!(fixture.waits(2).await.seq, 6);

    fixture.advance(300_000 - 1000);
    assert_eq!(fixture.pass(3).await, spent, "all were given in one second");
    fixture.advance(1000);
    assert_eq!(fixture.poll(3).await, None, "expired");
    assert_eq!(fixture.waits(3).await.seq, 7);
    assert_eq!(fixture.leave(4).await, Departure::GaveUpPlace, "admitted, and never came");
    assert_eq!(fixture.waits(4).await.seq, 8);
    let stats = fixture.stats().await;
    assert_eq!((stats.consumed, stats.revoked, stats.expired, stats.left, stats.live), (1, 1, 1, 1, 0));
    assert_eq!(fixture.settle(1, spent, "late", Settlement::GivenBack).await, virtual_queue::store::Settled::Nothing);
}

async fn ahead_counts_who_is_in_front_and_not_admitted(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { batch: Some(3), ..Overrides::default() });
    fixture.crowd(1..=10).await;
    assert_eq!(fixture.still_waits(10).await.ahead, 9);
    fixture.leave(4).await;
    assert_eq!(fixture.still_waits(10).await.ahead, 8, "moves up when somebody in front leaves");
    fixture.leave(10).await;
    assert_eq!(fixture.still_waits(9).await.ahead, 7, "and not when somebody behind does");
    assert_eq!(fixture.batch().await, (3, 0));
    assert_eq!(fixture.still_waits(9).await.ahead, 4, "the three admitted are not in front, before they come");
    fixture.pass(2).await;
    assert_eq!(fixture.still_waits(9).await.ahead, 4, "nor after");
    assert_eq!(fixture.still_waits(5).await.ahead, 0);
    assert_eq!(fixture.waits(11).await.ahead, 5, "also for who comes now");
}

async fn the_eta_is_whole_batches_ahead_and_the_rest_of_this_tick(fixture: StoreFixture) {
    fixture.crowd(1..=250).await;
    fixture.advance(800);
    for (id, eta) in [(1, 2), (100, 2), (101, 4), (201, 6)] {
        let position = fixture.still_waits(id).await;
        assert_eq!((position.next_tick_in_ms, position.eta_seconds()), (1200, Some(eta)), "{id}");
        assert_eq!(position.pacing, Pacing { batch: 100, tick_ms: 2000 });
    }
    fixture.advance(3000);
    let late = fixture.still_waits(101).await;
    assert_eq!((late.next_tick_in_ms, late.eta_seconds()), (0, Some(2)), "a tick that is late is due now");
}
