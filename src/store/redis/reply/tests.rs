use super::*;

#[test]
fn each_person_gets_their_own_three_integers() {
    let reply = [1_002_500, 1_004_000, 100, 2000, 0, 1, 3, 2, 1302, 2500, 1, 101, 0, 3, 1400, 0, 0, 0, 0, 2, 1302, -1];
    let found = visits("status", 0, 5, &reply).unwrap();
    let waiting = QueuePosition {
        seq: 101,
        ahead: 0,
        pacing: Pacing { batch: 100, tick_ms: 2000 },
        next_tick_in_ms: 1500,
        paused: false,
        moving: true,
    };
    let admitted = |expires_at| Some(Place::Admitted { expires_at });
    assert_eq!(found.now_ms, 1_002_500);
    assert_eq!(
        found.value.places,
        [admitted(1302), Some(Place::Waiting(waiting)), admitted(1400), None, admitted(1302)]
    );
    assert_eq!((found.value.issued, found.value.expired), (2, 3));
    assert_eq!(found.value.waits, [Duration::from_millis(2500)], "an unknown entry time is no wait");
}

#[test]
fn a_batch_overdue_is_due_now() {
    let found = visits("status", 0, 1, &[2_000, 1_000, 1, 2000, 0, 1, 0, 1, 5, 4]).unwrap();
    let Some(Place::Waiting(position)) = found.value.places[0] else { panic!("waiting") };
    assert_eq!(position.next_tick_in_ms, 0);
}

#[test]
fn anything_odd_is_an_error_and_never_a_panic() {
    let broken = |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Broken(_))), "{result:?}");
    let head = [1, 2, 3, 4, 0, 1, 0];
    for people in [&[][..], &[1], &[1, 5], &[1, 5, -1], &[1, -5, 0], &[9, 0, 0], &[0, 0, 0], &[4, 0, 0, 7]] {
        let reply = [&head[..], people].concat();
        broken(visits("enter", 4, 1, &reply).map(drop));
    }
    broken(visits("enter", 4, 1, &[]).map(drop));
    broken(visits("enter", 4, 0, &[1, 2, 3, 4, 2, 1, 0]).map(drop));
    for reply in [&[][..], &[1], &[-1, 0], &[1, 9], &[1, 0, 0], &[1, -1]] {
        broken(departure(reply).map(drop));
        broken(purchases(1, reply).map(drop));
        broken(sweep(reply).map(drop));
        broken(tick(reply).map(drop));
        broken(stats(reply).map(drop));
    }
    for reply in [&[1, 2][..], &[1, 1], &[1, 2, 1, 1, 1], &[1, 2, 1, 1, 1, -1], &[1, 0, 5]] {
        broken(tick(reply).map(drop));
    }
    broken(stats(&[1, 1, 5, 5, 5, 0, 1]).map(drop));
    broken(registered(&[]).map(drop));
    broken(registered(&[2]).map(drop));
}

#[test]
fn the_books_of_an_unused_target_are_zeros() {
    let books = stats(&[1_000_000, 0, 100_000, 100, 2000, 1]).unwrap().value;
    assert_eq!(books, QueueStats::unused(100_000, Pacing { batch: 100, tick_ms: 2000 }, true));
}

#[test]
fn the_books_are_read_in_the_scripts_order() {
    let mut reply = vec![1_000_000, 1, 10, 100, 2000, 0];
    reply.extend(1..=14);
    reply.extend([300, 60_000, 9_000, 4, 2, 6, 1]);
    let books = stats(&reply).unwrap().value;
    assert_eq!((books.waiting, books.admitted_through, books.last_number, books.entered), (1, 2, 3, 4));
    assert_eq!((books.issued, books.left, books.evicted, books.live, books.consumed), (5, 6, 7, 8, 9));
    assert_eq!((books.expired, books.revoked, books.direct), (10, 11, 12));
    assert_eq!((books.direct_consumed, books.admitted), (13, 14));
    assert_eq!(books.admission_rate_per_sec, 5.0);
    assert_eq!((books.waits.count(), books.waits.mean_seconds()), (3, 3.0));
}
