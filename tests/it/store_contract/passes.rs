//! Passes: the same one again, and one purchase with each.

use virtual_queue::store::{Claim, Departure, Place, Settled, Settlement, embedded::Overrides};

use crate::store_fixture::{StoreFixture, user};

super::behaviours! {
    a_live_pass_is_the_same_for_whoever_asks_again,
    a_pass_buys_once,
    the_same_purchase_may_claim_again_and_another_may_not,
    a_claim_ends_with_its_lease,
    a_purchase_that_ends_after_its_lease_still_uses_the_pass_up,
    a_declined_purchase_gives_the_pass_back,
    giving_back_touches_no_claim_of_another_purchase,
    a_pass_that_is_over_buys_nothing,
    a_revoked_pass_buys_nothing,
    dead_passes_stay_dead_where_the_clock_was_ahead_for_a_while,
    leaving_in_the_middle_of_a_purchase_keeps_no_other_pass,
    a_direct_pass_buys_once_without_a_place_in_the_queue,
    spending_kills_every_pass_given_out_so_far,
    a_new_pass_is_newer_than_every_dead_one,
    settling_twice_does_not_touch_a_newer_pass,
    claims_and_floors_outlive_the_queue,
    passes_are_counted_once_each,
    a_purchase_without_a_pass_spends_the_one_its_user_has,
    a_purchase_without_a_pass_spends_what_another_purchase_has_claimed,
    a_purchase_without_a_pass_spends_a_direct_one_that_nobody_has_seen,
    a_purchase_without_a_pass_told_again_or_late_spares_passes_given_since,
    a_pass_that_was_over_is_not_spent_by_a_purchase_without_one,
    each_purchase_without_a_pass_spends_a_pass_however_quickly_they_follow,
    checking_a_pass_takes_nothing,
}

/// Enters, is admitted, and has a pass.
async fn admitted(fixture: &StoreFixture, id: u64) -> u64 {
    fixture.waits(id).await;
    fixture.batch().await;
    fixture.pass(id).await
}

async fn a_live_pass_is_the_same_for_whoever_asks_again(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    for _ in 0..4 {
        fixture.advance(70_000);
        assert_eq!(fixture.poll(7).await, Some(Place::Admitted { expires_at }));
        assert_eq!(fixture.enter(7).await, Some(Place::Admitted { expires_at }));
    }
    let stats = fixture.stats().await;
    assert_eq!((stats.issued, stats.live, stats.entered, stats.waiting), (1, 1, 1, 0));
}

async fn a_pass_buys_once(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    assert_eq!(fixture.buy(7, expires_at).await, Settled::Consumed);
    assert_eq!(fixture.claim(7, expires_at, "again").await, Claim::Spent);
    assert_eq!(fixture.poll(7).await, None);
    let stats = fixture.stats().await;
    assert_eq!((stats.consumed, stats.live), (1, 0));
}

async fn the_same_purchase_may_claim_again_and_another_may_not(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    for _ in 0..3 {
        assert_eq!(
            fixture.claim(7, expires_at, "one").await,
            Claim::Granted,
            "an answer was lost, the call is repeated"
        );
        assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse);
        fixture.advance(14_999);
    }
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse, "each repetition renewed the lease");
    assert_eq!(fixture.poll(7).await, Some(Place::Admitted { expires_at }), "the pass is live meanwhile");
}

async fn a_claim_ends_with_its_lease(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted);
    fixture.advance(14_999);
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse);
    fixture.advance(1);
    fixture.sweep().await;
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::Granted);
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::InUse);
}

async fn a_purchase_that_ends_after_its_lease_still_uses_the_pass_up(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted);
    fixture.advance(15_000);
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::Granted);
    assert_eq!(fixture.settle(7, expires_at, "one", Settlement::Spent).await, Settled::Consumed);
    assert_eq!(fixture.claim(7, expires_at, "three").await, Claim::Spent);
    assert_eq!(fixture.settle(7, expires_at, "two", Settlement::Spent).await, Settled::Nothing, "it bought already");
    assert_eq!(fixture.stats().await.consumed, 1);
}

async fn a_declined_purchase_gives_the_pass_back(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted);
    assert_eq!(fixture.settle(7, expires_at, "one", Settlement::GivenBack).await, Settled::Nothing);
    assert_eq!(fixture.poll(7).await, Some(Place::Admitted { expires_at }));
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::Granted);
    assert_eq!(fixture.settle(7, expires_at, "two", Settlement::Spent).await, Settled::Consumed);
}

async fn giving_back_touches_no_claim_of_another_purchase(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted);
    assert_eq!(fixture.settle(7, expires_at, "other", Settlement::GivenBack).await, Settled::Nothing);
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse);
    assert_eq!(fixture.settle(8, expires_at, "one", Settlement::GivenBack).await, Settled::Nothing);
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse, "nor of another person");
}

async fn a_pass_that_is_over_buys_nothing(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    fixture.advance((expires_at - fixture.now_s()) * 1000 - 1000);
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted, "in its last second");
    fixture.settle(7, expires_at, "one", Settlement::GivenBack).await;
    fixture.advance(1000);
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Expired);
    assert_eq!(fixture.poll(7).await, None);
    assert_eq!(fixture.stats().await.expired, 1);
}

async fn a_revoked_pass_buys_nothing(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    assert_eq!(fixture.leave(7).await, Departure::GaveUpPass);
    assert_eq!(fixture.leave(7).await, Departure::WasNotHere);
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Spent);
    assert_eq!(fixture.stats().await.revoked, 1);
}

/// Found by an attack: a direct pass that ends later than the queue's survived a purchase whose buyer left meanwhile.
async fn dead_passes_stay_dead_where_the_clock_was_ahead_for_a_while(fixture: StoreFixture) {
    let (spent, revoked) = (admitted(&fixture, 7).await, admitted(&fixture, 8).await);
    assert_eq!(fixture.buy(7, spent).await, Settled::Consumed);
    fixture.leave(8).await;
    let now = virtual_queue::clock::Clock::wall_ms(&*fixture.clock);
    // By more than is left of them, and less than a pass lives longer.
    fixture.advance(400_000);
    fixture.sweep().await;
    fixture.clock.set(now);
    for (id, expires_at) in [(7, spent), (8, revoked)] {
        assert_eq!(fixture.claim(id, expires_at, "again").await, Claim::Spent, "{id}");
    }
}

async fn leaving_in_the_middle_of_a_purchase_keeps_no_other_pass(fixture: StoreFixture) {
    let of_the_queue = admitted(&fixture, 7).await;
    fixture.advance(61_000);
    let direct = of_the_queue + 60;
    assert_eq!(fixture.claim(7, of_the_queue, "purchase").await, Claim::Granted);
    assert_eq!(fixture.leave(7).await, Departure::GaveUpPass);
    fixture.settle(7, of_the_queue, "purchase", Settlement::Spent).await;
    assert_eq!(fixture.claim(7, direct, "another").await, Claim::Spent);
}

async fn a_direct_pass_buys_once_without_a_place_in_the_queue(fixture: StoreFixture) {
    let expires_at = fixture.now_s() + 300;
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted);
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse);
    assert_eq!(
        fixture.settle(7, expires_at, "one", Settlement::Spent).await,
        Settled::Nothing,
        "no queue, no books to count it in"
    );
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::Spent);
    assert_eq!(fixture.stats().await.last_number, 0);

    fixture.waits(1).await;
    fixture.store.count_direct(fixture.target, 2).await.unwrap();
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::Spent, "also after a queue has begun");
    assert_eq!(fixture.buy(8, expires_at).await, Settled::DirectConsumed);
    let stats = fixture.stats().await;
    assert_eq!((stats.direct, stats.direct_consumed, stats.issued, stats.consumed), (2, 1, 0, 0));
}

async fn spending_kills_every_pass_given_out_so_far(fixture: StoreFixture) {
    let direct = fixture.now_s() + 300;
    fixture.advance(5000);
    let queued = admitted(&fixture, 7).await;
    assert!(queued > direct);
    // Whoever holds both buys with one of them.
    assert_eq!(fixture.buy(7, direct).await, Settled::Consumed);
    assert_eq!(fixture.claim(7, queued, "again").await, Claim::Spent);
    assert_eq!(fixture.poll(7).await, None);
    let stats = fixture.stats().await;
    assert_eq!((stats.consumed, stats.direct_consumed, stats.live), (1, 0, 0));
}

async fn a_new_pass_is_newer_than_every_dead_one(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { tick_ms: Some(1), ..Overrides::default() });
    let mut last = 0;
    // All within one second: by the clock alone they would all end in the same one.
    for _ in 0..4 {
        let expires_at = admitted(&fixture, 7).await;
        assert!(expires_at > last, "{expires_at} after {last}");
        assert_eq!(fixture.buy(7, expires_at).await, Settled::Consumed);
        assert_eq!(fixture.claim(7, expires_at, "again").await, Claim::Spent);
        last = expires_at;
    }
    let expires_at = admitted(&fixture, 7).await;
    fixture.leave(7).await;
    assert!(admitted(&fixture, 7).await > expires_at, "also than a revoked one");
}

async fn settling_twice_does_not_touch_a_newer_pass(fixture: StoreFixture) {
    let old = admitted(&fixture, 7).await;
    assert_eq!(fixture.buy(7, old).await, Settled::Consumed);
    let new = admitted(&fixture, 7).await;
    assert_eq!(fixture.settle(7, old, "purchase", Settlement::Spent).await, Settled::Nothing);
    assert_eq!(fixture.settle(7, old, "purchase", Settlement::GivenBack).await, Settled::Nothing);
    assert_eq!(fixture.poll(7).await, Some(Place::Admitted { expires_at: new }));
    assert_eq!(fixture.buy(7, new).await, Settled::Consumed);
    assert_eq!(fixture.stats().await.consumed, 2);
}

async fn claims_and_floors_outlive_the_queue(fixture: StoreFixture) {
    let expires_at = fixture.now_s() + 300;
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted);
    fixture.settle(8, expires_at, "elsewhere", Settlement::Spent).await;
    fixture.waits(1).await;
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse);
    assert_eq!(fixture.claim(8, expires_at, "two").await, Claim::Spent);
    fixture.waits(8).await;
    fixture.batch().await;
    assert!(fixture.pass(8).await > expires_at, "the pass from the queue is good, although a direct one was spent");
}

async fn a_purchase_without_a_pass_spends_the_one_its_user_has(fixture: StoreFixture) {
    let (expires_at, of_another) = (admitted(&fixture, 7).await, admitted(&fixture, 8).await);
    assert_eq!(fixture.spend_all(7, 0).await, Settled::Consumed);
    assert_eq!(fixture.claim(7, expires_at, "again").await, Claim::Spent);
    assert_eq!(fixture.check(7, expires_at).await, Claim::Spent);
    assert_eq!(fixture.poll(7).await, None);
    assert_eq!(fixture.spend_all(7, 0).await, Settled::Nothing, "there is none any more");
    assert_eq!(fixture.settle(7, expires_at, "late", Settlement::Spent).await, Settled::Nothing, "it bought already");
    assert_eq!(fixture.check(8, of_another).await, Claim::Granted, "nobody else's");
    let stats = fixture.stats().await;
    assert_eq!((stats.consumed, stats.direct_consumed, stats.live), (1, 0, 1));
    let new = admitted(&fixture, 7).await;
    assert!(new > expires_at);
    assert_eq!(fixture.buy(7, new).await, Settled::Consumed, "the next one is good");
}

async fn a_purchase_without_a_pass_spends_what_another_purchase_has_claimed(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    assert_eq!(fixture.claim(7, expires_at, "select").await, Claim::Granted);
    assert_eq!(fixture.spend_all(7, 0).await, Settled::Consumed);
    assert_eq!(fixture.settle(7, expires_at, "select", Settlement::GivenBack).await, Settled::Nothing);
    assert_eq!(fixture.claim(7, expires_at, "again").await, Claim::Spent);
    assert_eq!(fixture.stats().await.consumed, 1);
}

async fn a_purchase_without_a_pass_spends_a_direct_one_that_nobody_has_seen(fixture: StoreFixture) {
    let expires_at = fixture.now_s() + 300;
    assert_eq!(fixture.spend_all(7, 0).await, Settled::Nothing, "no queue, no books to count it in");
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Spent);
    fixture.waits(1).await;
    assert_eq!(fixture.spend_all(8, 0).await, Settled::Nothing);
    assert_eq!(fixture.check(8, expires_at).await, Claim::Spent);
    let stats = fixture.stats().await;
    assert_eq!((stats.consumed, stats.direct_consumed, stats.waiting), (0, 0, 1));
    assert_eq!(fixture.spend_all(1, 0).await, Settled::Nothing, "who waits has no pass, and keeps the place");
    fixture.batch().await;
    assert!(fixture.pass(1).await > expires_at, "and gets one that is newer than all that are spent");
}

async fn a_purchase_without_a_pass_told_again_or_late_spares_passes_given_since(fixture: StoreFixture) {
    let old = admitted(&fixture, 7).await;
    assert_eq!(fixture.spend_all(7, 0).await, Settled::Consumed);
    fixture.advance(5000);
    // The pump ticks on.
    fixture.tick().await;
    let new = admitted(&fixture, 7).await;
    let ago = 5000 + 2000;
    assert_eq!(fixture.spend_all(7, ago).await, Settled::Nothing, "the answer was lost, and it is told again");
    assert_eq!(fixture.poll(7).await, Some(Place::Admitted { expires_at: new }));
    assert!(new > old);
    assert_eq!(fixture.claim(7, new, "select").await, Claim::Granted);

    let kept = admitted(&fixture, 8).await;
    fixture.advance(60_000);
    assert_eq!(fixture.spend_all(8, 59_000).await, Settled::Consumed, "the store was away meanwhile");
    assert_eq!(fixture.check(8, kept).await, Claim::Spent);
    assert_eq!(fixture.stats().await.consumed, 2);
}

async fn a_pass_that_was_over_is_not_spent_by_a_purchase_without_one(fixture: StoreFixture) {
    let expires_at = admitted(&fixture, 7).await;
    admitted(&fixture, 8).await;
    fixture.advance((expires_at - fixture.now_s()) * 1000);
    assert_eq!(fixture.spend_all(7, 0).await, Settled::Nothing, "the seats were locked for longer than the pass lived");
    fixture.advance(3000);
    assert_eq!(fixture.spend_all(8, 4000).await, Settled::Consumed, "that one was sold before its pass was over");
    assert_eq!(fixture.sweep().await.expired, 1);
    let stats = fixture.stats().await;
    assert_eq!((stats.consumed, stats.expired, stats.live), (1, 1, 0));
}

async fn each_purchase_without_a_pass_spends_a_pass_however_quickly_they_follow(fixture: StoreFixture) {
    fixture.set_overrides(Overrides { tick_ms: Some(500), ..Overrides::default() });
    for bought in 1..=4 {
        let expires_at = admitted(&fixture, 7).await;
        assert_eq!(fixture.spend_all(7, 0).await, Settled::Consumed, "{bought}");
        assert_eq!(fixture.check(7, expires_at).await, Claim::Spent);
        assert_eq!(fixture.stats().await.consumed, bought);
    }
}

async fn checking_a_pass_takes_nothing(fixture: StoreFixture) {
    let direct = fixture.now_s() + 300;
    assert_eq!(fixture.check(9, direct).await, Claim::Granted, "also of a target that nobody uses");
    assert_eq!(fixture.check(9, fixture.now_s()).await, Claim::Expired);
    let expires_at = admitted(&fixture, 7).await;
    for _ in 0..2 {
        assert_eq!(fixture.check(7, expires_at).await, Claim::Granted);
    }
    assert_eq!(fixture.claim(7, expires_at, "one").await, Claim::Granted, "nobody holds it");
    assert_eq!(fixture.check(7, expires_at).await, Claim::Granted, "a purchase under way is no matter");
    assert_eq!(fixture.claim(7, expires_at, "two").await, Claim::InUse);
    fixture.advance((expires_at - fixture.now_s()) * 1000);
    assert_eq!(fixture.check(7, expires_at).await, Claim::Expired);
}

async fn passes_are_counted_once_each(fixture: StoreFixture) {
    fixture.crowd(1..=6).await;
    fixture.batch().await;
    let mut expires_at = 0;
    for id in 1..=5 {
        expires_at = fixture.pass(id).await;
        assert_eq!(fixture.pass(id).await, expires_at);
    }
    fixture.buy(1, expires_at).await;
    fixture.settle(1, expires_at, "purchase", Settlement::Spent).await;
    fixture.leave(2).await;
    fixture.leave(2).await;
    fixture.advance(300_000);
    // One is found to be over by a poll, one on entering again, one by the sweep; and leaving is too late for it.
    assert_eq!(fixture.poll(3).await, None);
    fixture.waits(4).await;
    assert_eq!(fixture.store.leave(fixture.target, user(5)).await.unwrap(), Departure::WasNotHere);
    assert_eq!(fixture.sweep().await.expired, 1);
    assert_eq!(fixture.poll(3).await, None);
    let text = fixture.metrics.render();
    for (event, count) in [("issued", 5), ("consumed", 1), ("revoked", 1), ("expired", 3)] {
        let line = format!("virtual_queue_tokens_total{{event=\"{event}\",target=\"LIMITED_DROP:42\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}
