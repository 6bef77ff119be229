//! One pass buys once: what is claimed, and how each end of a purchase settles it.

use super::*;

#[actix_web::test]
async fn what_the_shop_answers_decides_what_becomes_of_the_pass() {
    use Settlement::{GivenBack, Spent};
    for (status, becomes) in [
        (200, Spent),
        (201, Spent),
        (303, Spent),
        (302, Spent),
        (400, GivenBack),
        (409, GivenBack),
        (500, GivenBack),
        (503, GivenBack),
    ] {
        let fixture = GateFixture::new();
        fixture.shop.answers.set(status);
        let pass = fixture.pass(7);
        assert_eq!(fixture.buy(7, &pass).await.status, status);
        assert_eq!(fixture.store.settled(), [becomes], "{status}");
        fixture.shop.answers.set(201);
        assert_eq!(fixture.buy(7, &pass).await.status, if becomes == Spent { 403 } else { 201 }, "{status}");
    }
}

#[actix_web::test]
async fn without_an_answer_of_the_shop_the_pass_stays_claimed() {
    let fixture = GateFixture::new();
    fixture.shop.answers.set(504);
    fixture.shop.no_answer.set(true);
    let pass = fixture.pass(7);
    assert_eq!(fixture.buy(7, &pass).await.status, 504);
    assert_eq!(fixture.store.settled(), []);
    let second = fixture.buy(7, &pass).await;
    assert_eq!((second.status, second.code.as_deref()), (409, Some("PASS_IN_USE")));
    assert_eq!(second.retry_after.as_deref(), Some("1"));
}

#[actix_web::test]
async fn a_shop_that_panics_gets_a_problem_answered_and_leaves_the_pass_claimed() {
    let fixture = GateFixture::new();
    fixture.shop.panics.set(true);
    let app = fixture.open().await;
    let error = app.call(purchase(7, &fixture.pass(7))).await.err().unwrap();
    let answer = read(error.error_response()).await;
    assert_eq!((answer.status, answer.code.as_deref()), (500, Some("INTERNAL_ERROR")));
    assert!(fixture.store.is_claimed() && fixture.store.settled().is_empty());
}

#[actix_web::test]
async fn of_fifty_purchases_at_once_with_one_pass_one_reaches_the_shop() {
    let fixture = GateFixture::new();
    let app = fixture.open().await;
    let shop_answers = fixture.shop.takes_its_time();
    let pass = fixture.pass(7);
    let calls = (0..50).map(|_| app.call(purchase(7, &pass)));
    let calls = actix_rt::spawn(futures_util::future::join_all(calls));
    until("one is there", || fixture.shop.visits() > 0).await;
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    shop_answers.notify_one();
    let mut statuses = Vec::new();
    for answer in calls.await.unwrap() {
        statuses.push(answered(answer).await.status);
    }
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (201, &[409; 49][..]));
    assert_eq!(fixture.shop.visits(), 1);
}

#[actix_web::test]
async fn what_the_store_says_against_a_pass_counts() {
    for (says, status) in [(Claim::Spent, 403), (Claim::Expired, 403), (Claim::InUse, 409)] {
        let fixture = GateFixture::new();
        fixture.claim_answers(Ok(says));
        assert_eq!(fixture.buy(7, &fixture.pass(7)).await.status, status, "{says:?}");
        assert_eq!((fixture.shop.visits(), fixture.store.settled().len()), (0, 0));
        assert_eq!(fixture.attempts(None), 0);
    }
}
