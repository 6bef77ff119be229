//! Numbers and places: who gets which, and who is admitted by them.

use futures_util::future::join_all;
use virtual_queue::{
    domain::Pacing,
    store::{Departure, Place, Settlement, embedded::Overrides},
};

use crate::stand::{Stand, user};

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

async fn people_get_numbers_in_the_order_of_their_arrival(stand: Stand) {
    for id in 1..=250 {
        let position = stand.waits(1000 + id).await;
        assert_eq!((position.seq, position.ahead), (id, id - 1));
    }
    let stats = stand.stats().await;
    assert_eq!((stats.entered, stats.waiting, stats.last_number, stats.admitted_through), (250, 250, 250, 0));
}

async fn people_who_come_at_once_get_one_number_each(stand: Stand) {
    // Everybody knocks twice.
    let calls = (0..600).map(|n| stand.store.enter_if_absent(stand.target, user(n % 300 + 1)));
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
    assert_eq!(stand.stats().await.entered, 300);
}

async fn entering_again_keeps_the_number(stand: Stand) {
    stand.crowd([7, 8, 9]).await;
    for _ in 0..3 {
        stand.advance(300);
        assert_eq!(stand.waits(8).await.seq, 2);
        assert_eq!(stand.still_waits(8).await.seq, 2);
    }
    assert_eq!(stand.stats().await.entered, 3);
}

async fn the_first_batch_is_the_first_hundred_and_nobody_else(stand: Stand) {
    stand.crowd(1..=250).await;
    assert!(matches!(stand.poll(1).await, Some(Place::Waiting(_))), "before the first tick nobody is admitted");
    assert_eq!(stand.batch().await, (100, 0));
    for id in 1..=250 {
        match stand.poll(id).await {
            Some(Place::Admitted { expires_at }) => {
                assert!(id <= 100, "{id} was admitted");
                assert_eq!(expires_at, stand.now_s() + 300);
            }
            other => assert!(id > 100 && matches!(other, Some(Place::Waiting(p)) if p.seq == id), "{id}: {other:?}"),
        }
    }
    let stats = stand.stats().await;
    assert_eq!((stats.admitted, stats.admitted_through, stats.issued, stats.waiting), (100, 100, 100, 150));
}

async fn someone_leaving_does_not_admit_the_next(stand: Stand) {
    stand.crowd(1..=250).await;
    stand.batch().await;
    for id in 1..=100 {
        // Half of them with a pass, half from their place.
        if id % 2 == 0 {
            stand.pass(id).await;
        }
        assert_ne!(stand.leave(id).await, Departure::WasNotHere);
    }
    for id in 101..=150 {
        assert_eq!(stand.leave(id).await, Departure::GaveUpPlace);
    }
    stand.advance(1999);
    let first = stand.still_waits(151).await;
    assert_eq!((first.seq, first.ahead), (151, 0), "in front now, and still not admitted");
    stand.tick().await;
    assert!(matches!(stand.poll(151).await, Some(Place::Waiting(_))), "nor by a tick that is too early");
    assert_eq!(stand.batch().await, (100, 0));
    stand.pass(151).await;
    stand.pass(250).await;
}

async fn the_mark_never_goes_beyond_the_last_number(stand: Stand) {
    stand.crowd(1..=250).await;
    for (people, mark) in [(100, 100), (100, 200), (50, 250), (0, 250)] {
        assert_eq!(stand.batch().await, (people, 0));
        assert_eq!(stand.stats().await.admitted_through, mark);
    }
    let position = stand.waits(251).await;
    assert_eq!((position.seq, position.ahead), (251, 0), "those admitted and not yet served are not in front");
    assert_eq!(stand.batch().await, (1, 0));
}

async fn numbers_of_those_who_left_take_no_slot(stand: Stand) {
    stand.crowd(1..=300).await;
    for id in (1..=300).filter(|id| id % 3 != 0) {
        assert_eq!(stand.leave(id).await, Departure::GaveUpPlace);
    }
    assert_eq!(stand.batch().await, (100, 0));
    let stats = stand.stats().await;
    assert_eq!((stats.admitted, stats.admitted_through, stats.left), (100, 300, 200));
}

async fn the_queue_takes_exactly_its_capacity_and_numbers_have_no_gaps(stand: Stand) {
    stand.set_overrides(Overrides { capacity: Some(5), ..Overrides::default() });
    for id in 1..=8 {
        let place = stand.enter(id).await;
        assert_eq!(place.is_some(), id <= 5, "{id}: {place:?}");
    }
    assert_eq!(stand.poll(6).await, None, "who was refused is not in the queue");
    assert_eq!(stand.leave(2).await, Departure::GaveUpPlace);
    assert_eq!(stand.waits(7).await.seq, 6, "refusals use up no number");
    assert_eq!(stand.enter(8).await, None);
    let stats = stand.stats().await;
    assert_eq!((stats.entered, stats.waiting, stats.capacity), (6, 5, 5));

    // Admitted people who have not come for their pass still take room; with the pass they do not.
    assert_eq!(stand.batch().await, (5, 0));
    assert_eq!(stand.enter(8).await, None);
    stand.pass(1).await;
    assert_eq!(stand.waits(8).await.seq, 7);
}

async fn who_is_in_is_never_told_that_the_queue_is_full(stand: Stand) {
    stand.set_overrides(Overrides { capacity: Some(2), ..Overrides::default() });
    stand.crowd([1, 2]).await;
    assert_eq!(stand.enter(3).await, None);
    assert_eq!(stand.waits(1).await.seq, 1);
    stand.batch().await;
    let pass = stand.pass(1).await;
    stand.waits(3).await;
    assert_eq!(stand.enter(4).await, None);
    assert_eq!(stand.enter(1).await, Some(Place::Admitted { expires_at: pass }));
    stand.set_overrides(Overrides { capacity: Some(0), ..Overrides::default() });
    assert!(stand.enter(2).await.is_some() && stand.enter(3).await.is_some());
}

async fn whoever_lost_a_place_or_pass_gets_a_new_number_at_the_back(stand: Stand) {
    stand.crowd(1..=4).await;
    stand.batch().await;
    let [spent, _revoked, _expired] = [stand.pass(1).await, stand.pass(2).await, stand.pass(3).await];
    stand.buy(1, spent).await;
    assert_eq!(stand.leave(2).await, Departure::GaveUpPass);
    assert_eq!(stand.poll(1).await, None, "spent");
    assert_eq!(stand.poll(2).await, None, "revoked");
    assert_eq!(stand.waits(1).await.seq, 5);
    assert_eq!(stand.waits(2).await.seq, 6);

    stand.advance(300_000 - 1000);
    assert_eq!(stand.pass(3).await, spent, "all were given in one second");
    stand.advance(1000);
    assert_eq!(stand.poll(3).await, None, "expired");
    assert_eq!(stand.waits(3).await.seq, 7);
    assert_eq!(stand.leave(4).await, Departure::GaveUpPlace, "admitted, and never came");
    assert_eq!(stand.waits(4).await.seq, 8);
    let stats = stand.stats().await;
    assert_eq!((stats.consumed, stats.revoked, stats.expired, stats.left, stats.live), (1, 1, 1, 1, 0));
    assert_eq!(stand.settle(1, spent, "late", Settlement::GivenBack).await, virtual_queue::store::Settled::Nothing);
}

async fn ahead_counts_who_is_in_front_and_not_admitted(stand: Stand) {
    stand.set_overrides(Overrides { batch: Some(3), ..Overrides::default() });
    stand.crowd(1..=10).await;
    assert_eq!(stand.still_waits(10).await.ahead, 9);
    stand.leave(4).await;
    assert_eq!(stand.still_waits(10).await.ahead, 8, "moves up when somebody in front leaves");
    stand.leave(10).await;
    assert_eq!(stand.still_waits(9).await.ahead, 7, "and not when somebody behind does");
    assert_eq!(stand.batch().await, (3, 0));
    assert_eq!(stand.still_waits(9).await.ahead, 4, "the three admitted are not in front, before they come");
    stand.pass(2).await;
    assert_eq!(stand.still_waits(9).await.ahead, 4, "nor after");
    assert_eq!(stand.still_waits(5).await.ahead, 0);
    assert_eq!(stand.waits(11).await.ahead, 5, "also for who comes now");
}

async fn the_eta_is_whole_batches_ahead_and_the_rest_of_this_tick(stand: Stand) {
    stand.crowd(1..=250).await;
    stand.advance(800);
    for (id, eta) in [(1, 2), (100, 2), (101, 4), (201, 6)] {
        let position = stand.still_waits(id).await;
        assert_eq!((position.next_tick_in_ms, position.eta_seconds()), (1200, Some(eta)), "{id}");
        assert_eq!(position.pacing, Pacing { batch: 100, tick_ms: 2000 });
    }
    stand.advance(3000);
    let late = stand.still_waits(101).await;
    assert_eq!((late.next_tick_in_ms, late.eta_seconds()), (0, Some(2)), "a tick that is late is due now");
}
