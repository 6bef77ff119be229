//! A full Redis.

use super::*;

#[tokio::test]
async fn a_full_redis_refuses_a_newcomer_before_anything_is_written() {
    let mut redis = ScriptFixture::open().await;
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = redis.try_run(&scripts::ENTER, 1_000_000, &["1"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("OOM"), "{refused}");
    assert_eq!(redis.ask::<i64>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn a_full_redis_refuses_to_settle_and_the_claim_holds_until_it_can() {
    let mut redis = ScriptFixture::open().await;
    redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "7", "1300", "n1", "claim"]).await;
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let spent = ["15000", "7", "1300", "n1", "spent"];
    let refused = redis.try_run(&scripts::PURCHASE, 1_000_000, &spent).await.unwrap_err();
    assert_eq!(refused.code(), Some("OOM"), "{refused}");
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let again = ["15000", "7", "1300", "n2", "claim"];
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &again).await[1], 3, "in use");
    redis.run(&scripts::PURCHASE, 1_000_000, &spent).await;
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &again).await[1], 2, "spent");
}

#[tokio::test]
async fn a_full_redis_fails_ticks_exactly_when_it_fails_polls() {
    let mut redis = ScriptFixture::open().await;
    redis.enter(1_000_000, 1..=3).await;
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for (script, own) in [(&*scripts::STATUS, &["1"][..]), (&*scripts::EVICT, &[]), (&*scripts::ADMIT, &[])] {
        let refused = redis.try_run(script, 1_100_000, own).await.unwrap_err();
        assert_eq!(refused.code(), Some("OOM"), "{}: {refused}", script.name());
    }
    // Redis has room again after more than a minute: nobody could poll, so nobody is silent.
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(redis.run(&scripts::EVICT, 1_100_000, &[]).await, [1_100_000, 1, 0, 0, 0]);
    assert_eq!(redis.run(&scripts::ADMIT, 1_100_000, &[]).await[1..4], [2, 3, 0]);
}
