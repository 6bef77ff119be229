//! Effects of single scripts that are not visible from outside.

use super::*;

#[tokio::test]
async fn the_mark_stops_at_a_silent_person_whom_this_tick_may_not_evict_any_more() {
    let mut redis = ScriptFixture::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "paused", "1"]).await;
    redis.enter(1_000_000, 1..=1005).await;
    for now in (1_000_000..1_070_000).step_by(2000) {
        redis.run(&scripts::STATUS, now, &["1005"]).await;
        redis.run(&scripts::ADMIT, now, &[]).await;
    }
    redis.ask::<i64>(&["DEL", &redis_key(9)]).await;
    // 1004 people are silent and a tick may evict 1000. So only the next tick reaches the person who polls.
    let first = redis.run(&scripts::ADMIT, 1_070_000, &[]).await;
    assert_eq!(first[..4], [1_070_000, 2, 0, 1000]);
    assert_eq!(redis.ask::<i64>(&["GET", &redis_key(2)]).await, 1000);
    let second = redis.run(&scripts::ADMIT, 1_072_000, &[]).await;
    assert_eq!(second[..4], [1_072_000, 2, 1, 4]);
    assert_eq!(redis.ask::<i64>(&["GET", &redis_key(2)]).await, 1005);
}

#[tokio::test]
async fn purchases_in_one_call_are_judged_one_after_the_other() {
    // The first purchase that asks for a pass gets it, and each purchase ends independently.
    let claims = ["15000", "7", "1300", "a", "claim", "7", "1300", "b", "claim", "8", "900", "c", "claim"];
    let mut redis = ScriptFixture::open().await;
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [1, 3, 4]);
    let ended = ["15000", "7", "1300", "b", "back", "7", "1300", "a", "spent", "7", "1300", "a", "spent"];
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &ended).await[1..], [5, 5, 5], "no queue, no books");
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [2, 2, 4]);

    // Each purchase in a call sees what the earlier ones did: given back, claimed by another, spent, refused.
    let mut redis = ScriptFixture::open().await;
    let turns = [
        ["7", "1300", "a", "claim"],
        ["7", "1300", "a", "back"],
        ["7", "1300", "b", "claim"],
        ["7", "1300", "a", "claim"],
        ["7", "1300", "b", "spent"],
        ["7", "1300", "a", "claim"],
    ];
    let turns: Vec<&str> = std::iter::once("15000").chain(turns.into_iter().flatten()).collect();
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &turns).await[1..], [1, 5, 1, 3, 5, 2]);
    assert_eq!(redis.ask::<i64>(&["EXISTS", &redis_key(6)]).await, 0, "no claim is left");
}

#[tokio::test]
async fn rubbish_in_one_persons_claim_is_nobody_elses_trouble_and_not_that_persons() {
    let mut redis = ScriptFixture::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(6), "9", "rubbish"]).await;
    let claims = ["15000", "1", "1300", "a", "claim", "9", "1300", "b", "claim"];
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [1, 1]);
}

#[tokio::test]
async fn with_as_many_targets_as_allowed_a_new_one_is_refused_and_who_is_in_stays_in() {
    let mut redis = ScriptFixture::open().await;
    assert_eq!(redis.register("LIMITED_DROP:1", 1).await, [1]);
    assert_eq!(redis.register("LIMITED_DROP:2", 1).await, [0]);
    assert_eq!(redis.register("LIMITED_DROP:1", 1).await, [1]);
    assert_eq!(redis.ask::<Vec<String>>(&["SMEMBERS", "queue:active"]).await, ["LIMITED_DROP:1"]);
}

#[tokio::test]
async fn settings_are_written_back_over_none_and_over_older_ones_alone() {
    let mut redis = ScriptFixture::open().await;
    let (two, three) = (["version", "2", "batch_size", "9"], ["version", "3", "paused", "1"]);
    assert_eq!(redis.restore_settings("0", &["batch_size", "5"]).await[1..], [1], "none are stored");
    assert_eq!(
        redis.restore_settings("0", &["batch_size", "6"]).await[1..],
        [0],
        "without a version what is stored stays"
    );
    assert_eq!(redis.restore_settings("3", &three).await[1..], [1], "older ones are stored");
    assert_eq!(redis.restore_settings("3", &three).await[1..], [0], "the same are stored");
    assert_eq!(redis.restore_settings("2", &two).await[1..], [0], "newer ones are stored");
    let stored: BTreeMap<String, String> = redis.ask(&["HGETALL", &redis_key(9)]).await;
    for (version, counts) in [("1790000000000000", true), ("9007199254740991", true), ("9007199254740993", false)] {
        redis.ask::<()>(&["HSET", &redis_key(9), "version", version]).await;
        let written = i64::from(!counts);
        assert_eq!(redis.restore_settings("3", &three).await[1..], [written], "{version} as settings.rs reads it");
    }
    assert_eq!(stored, [("paused", "1"), ("version", "3")].map(|(field, is)| (field.to_owned(), is.to_owned())).into());
}

#[tokio::test]
async fn the_largest_batch_takes_redis_under_5_ms() {
    let mut redis = ScriptFixture::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "batch_size", "10000", "tick_ms", "500"]).await;
    redis.enter(1_000_000, 1..=60_000).await;
    redis.ask::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).await;
    // A hundred of them are silent; the batches pass over them.
    redis.ask::<()>(&["HSET", &redis_key(8), "pulse", "1060000", "grace_until", "0"]).await;
    for id in 1..=60_000 {
        if id % 600 != 0 {
            let id = id.to_string();
            redis.ask::<i64>(&["ZADD", &redis_key(1), "1060000", &id]).await;
        }
    }
    let mut took = Vec::new();
    for tick in 0..5 {
        redis.ask::<()>(&["SLOWLOG", "RESET"]).await;
        let moved = redis.run(&scripts::ADMIT, 1_061_000 + tick * 500, &[]).await;
        assert_eq!((moved[1], moved[2]), (2, 10_000), "{moved:?}");
        let entries: Vec<Vec<::redis::Value>> = redis.ask(&["SLOWLOG", "GET", "10"]).await;
        let longest = entries.iter().map(|entry| ::redis::from_redis_value::<u64>(entry[2].clone()).unwrap());
        took.push(longest.max().unwrap());
    }
    // The machine may be busy, but not in all five runs.
    assert!(took.iter().min().unwrap() < &5000, "{took:?} µs");
}
