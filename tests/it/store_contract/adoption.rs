//! After an outage: people let through with a direct pass are taken over (`docs/design.md`).

use virtual_queue::store::{Adopted, Claim, Departure, Place, Settled, Settlement};

use crate::store_fixture::{StoreFixture, user};

super::behaviours! {
    whoever_waited_and_was_let_through_keeps_the_pass_and_no_place,
    whoever_came_during_the_outage_is_recorded_with_the_pass,
    adopting_twice_counts_once,
    a_pass_spent_meanwhile_is_not_recorded_and_the_place_goes,
    a_pass_that_is_over_is_not_recorded_and_the_place_goes,
    whoever_holds_a_live_pass_already_keeps_the_longer_and_buys_once,
    an_adopted_pass_can_be_given_up,
    a_pass_that_ended_before_is_counted_and_replaced,
    a_target_without_a_queue_stays_without_one,
    the_mark_goes_on_past_places_given_up,
    a_whole_chunk_is_taken_over_at_once,
}

async fn adopt(fixture: &StoreFixture, people: &[(u64, u64)]) -> Adopted {
    let people: Vec<_> = people.iter().map(|(id, expires_at)| (user(*id), *expires_at)).collect();
    let adopted = fixture.store.adopt(fixture.target, &people).await.unwrap();
    fixture.stats().await;
    adopted
}

fn issued(issued: u64) -> Adopted {
    Adopted { issued, ..Adopted::default() }
}

async fn whoever_waited_and_was_let_through_keeps_the_pass_and_no_place(fixture: StoreFixture) {
    fixture.crowd([7, 8]).await;
    let expires_at = fixture.now_s() + 250;
    // A poll before the hand-over still finds the place.
    assert_eq!(fixture.still_waits(7).await.seq, 1);
    assert_eq!(adopt(&fixture, &[(7, expires_at)]).await, issued(1));
    assert_eq!(fixture.poll(7).await, Some(Place::Admitted { expires_at }));
    assert_eq!(fixture.enter(7).await, Some(Place::Admitted { expires_at }));
    assert_eq!(fixture.still_waits(8).await.ahead, 0, "whoever was behind moves up");
    assert_eq!(fixture.buy(7, expires_at).await, Settled::Consumed);
    assert_eq!(fixture.claim(7, expires_at, "again").await, Claim::Spent);
    let stats = fixture.stats().await;
    assert_eq!((stats.entered, stats.waiting, stats.issued, stats.consumed), (2, 1, 1, 1));
    assert_eq!((stats.direct, stats.direct_consumed, stats.admitted), (0, 0, 0));
}

async fn whoever_came_during_the_outage_is_recorded_with_the_pass(fixture: StoreFixture) {
    fixture.waits(8).await;
    let expires_at = fixture.now_s() + 250;
    assert_eq!(adopt(&fixture, &[(7, expires_at)]).await, issued(1));
    assert_eq!(fixture.enter(7).await, Some(Place::Admitted { expires_at }), "no second pass by a new place");
    let stats = fixture.stats().await;
    assert_eq!((stats.entered, stats.issued, stats.live, stats.last_number), (2, 1, 1, 1));
    fixture.advance(251_000);
    assert_eq!(fixture.sweep().await.expired, 1);
    assert_eq!(fixture.waits(7).await.seq, 2);
}

async fn adopting_twice_counts_once(fixture: StoreFixture) {
    fixture.crowd([7, 8]).await;
    let expires_at = fixture.now_s() + 250;
    let people = [(7, expires_at), (9, expires_at)];
    assert_eq!(adopt(&fixture, &people).await, issued(2));
    assert_eq!(adopt(&fixture, &people).await, issued(0), "an answer was lost, or a second replica says the same");
    fixture.buy(7, expires_at).await;
    assert_eq!(adopt(&fixture, &people).await, issued(0));
    assert_eq!(fixture.poll(7).await, None);
    assert_eq!(fixture.stats().await.issued, 2);
}

async fn a_pass_spent_meanwhile_is_not_recorded_and_the_place_goes(fixture: StoreFixture) {
    fixture.crowd([7, 8]).await;
    let expires_at = fixture.now_s() + 250;
    assert_eq!(fixture.buy(7, expires_at).await, Settled::DirectConsumed);
    assert_eq!(fixture.buy(9, expires_at).await, Settled::DirectConsumed);
    let left = Adopted { left: 1, ..Adopted::default() };
    assert_eq!(adopt(&fixture, &[(7, expires_at), (9, expires_at)]).await, left);
    assert_eq!(fixture.poll(7).await, None);
    assert_eq!(fixture.poll(9).await, None);
    let stats = fixture.stats().await;
    assert_eq!((stats.waiting, stats.left, stats.issued), (1, 1, 0));
    assert_eq!(stats.consumed + stats.direct_consumed, 2, "as many purchases as there were");
}

async fn a_pass_that_is_over_is_not_recorded_and_the_place_goes(fixture: StoreFixture) {
    fixture.crowd([7, 8]).await;
    let left = Adopted { left: 1, ..Adopted::default() };
    assert_eq!(adopt(&fixture, &[(7, fixture.now_s()), (9, fixture.now_s())]).await, left);
    assert_eq!(fixture.poll(7).await, None);
    assert_eq!(fixture.waits(7).await.seq, 3, "they have had their turn, and come anew");
}

async fn whoever_holds_a_live_pass_already_keeps_the_longer_and_buys_once(fixture: StoreFixture) {
    fixture.crowd([7, 8]).await;
    fixture.batch().await;
    let queued = fixture.pass(7).await;
    assert_eq!(fixture.pass(8).await, queued);
    // A direct pass never outlives one that the queue would give now.
    fixture.advance(50_000);
    for (id, longer) in [(7, false), (8, true)] {
        let direct = if longer { queued + 40 } else { queued - 40 };
        assert_eq!(adopt(&fixture, &[(id, direct)]).await, issued(0));
        assert_eq!(fixture.pass(id).await, queued.max(direct));
        // Either is in somebody's hands and buys, and then the other does not.
        assert_eq!(fixture.claim(id, queued.min(direct), "one").await, Claim::Granted);
        assert_eq!(fixture.claim(id, queued.max(direct), "two").await, Claim::InUse);
        assert_eq!(fixture.settle(id, queued.min(direct), "one", Settlement::Spent).await, Settled::Consumed);
        assert_eq!(fixture.claim(id, queued.max(direct), "two").await, Claim::Spent);
        assert_eq!(fixture.poll(id).await, None);
    }
}

async fn an_adopted_pass_can_be_given_up(fixture: StoreFixture) {
    fixture.waits(7).await;
    let expires_at = fixture.now_s() + 250;
    adopt(&fixture, &[(7, expires_at)]).await;
    assert_eq!(fixture.leave(7).await, Departure::GaveUpPass);
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Spent);
    assert_eq!(adopt(&fixture, &[(7, expires_at)]).await, issued(0));
    assert_eq!(fixture.poll(7).await, None);
}

async fn a_pass_that_ended_before_is_counted_and_replaced(fixture: StoreFixture) {
    fixture.waits(7).await;
    fixture.batch().await;
    fixture.pass(7).await;
    fixture.advance(400_000);
    let expires_at = fixture.now_s() + 250;
    assert_eq!(adopt(&fixture, &[(7, expires_at)]).await, Adopted { issued: 1, expired: 1, left: 0 });
    assert_eq!(fixture.pass(7).await, expires_at);
}

async fn a_target_without_a_queue_stays_without_one(fixture: StoreFixture) {
    assert_eq!(adopt(&fixture, &[(7, fixture.now_s() + 250)]).await, issued(0));
    assert!(!fixture.hands.keeps_anything_of(fixture.target));
}

async fn the_mark_goes_on_past_places_given_up(fixture: StoreFixture) {
    fixture.crowd(1..=250).await;
    let expires_at = fixture.now_s() + 250;
    let people: Vec<(u64, u64)> = (1..=60).map(|id| (id, expires_at)).collect();
    adopt(&fixture, &people).await;
    assert_eq!(fixture.batch().await, (100, 0));
    assert_eq!(fixture.stats().await.admitted_through, 160, "numbers given up take no slot");
}

async fn a_whole_chunk_is_taken_over_at_once(fixture: StoreFixture) {
    fixture.crowd(1..=250).await;
    let expires_at = fixture.now_s() + 250;
    let people: Vec<(u64, u64)> = (1..=250).map(|id| (id, expires_at)).collect();
    assert_eq!(people.len(), virtual_queue::store::MOST_ADOPTED_A_CALL);
    assert_eq!(adopt(&fixture, &people).await, issued(250));
    assert_eq!(fixture.stats().await.waiting, 0);
    let line = "virtual_queue_tokens_total{event=\"issued\",target=\"LIMITED_DROP:42\"} 250\n";
    assert!(fixture.metrics.render().contains(line));
}
