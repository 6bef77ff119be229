//! How long keys live, and what the scripts write.

use super::*;

const IDLE_MS: i64 = 1_800_000;

#[tokio::test]
async fn every_key_of_a_target_but_its_settings_ends_and_only_people_keep_it() {
    let mut redis = ScriptFixture::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "batch_size", "2"]).await;
    let fresh = |ttls: &BTreeMap<String, i64>, what: &str| {
        for (key, ttl) in ttls {
            let right = if key == "settings" { *ttl == -1 } else { (IDLE_MS - 5_000..=IDLE_MS).contains(ttl) };
            assert!(right, "after {what} {key} lives {ttl} ms");
        }
    };
    redis.enter(1_000_000, 1..=5).await;
    let ttls = redis.ttls().await;
    let keys: Vec<&str> = ttls.keys().map(String::as_str).collect();
    assert_eq!(keys, ["admitted_count", "heartbeat", "marks", "seq", "settings", "stats", "waiting"]);
    fresh(&ttls, "enter");

    redis.shorten_all(50_000).await;
    redis.pump(1_002_000, 1_002_000).await;
    redis.run(&scripts::STATS, 1_002_000, &[]).await;
    redis.run(&scripts::DIRECT, 1_002_000, &["2"]).await;
    for (key, ttl) in redis.ttls().await {
        let right = if key == "settings" { ttl == -1 } else { (1..=50_000).contains(&ttl) };
        assert!(right, "a tick slides nothing and makes nothing eternal: {key} lives {ttl} ms");
    }
    assert_eq!(redis.ask::<i64>(&["GET", &redis_key(2)]).await, 2, "the mark was moved");

    redis.run(&scripts::STATUS, 1_002_100, &["1", "2", "3"]).await;
    fresh(&redis.ttls().await, "a poll");
    redis.shorten_all(50_000).await;
    redis.run(&scripts::PURCHASE, 1_002_200, &["15000", "1", "1302", "n1", "claim"]).await;
    fresh(&redis.ttls().await, "a claim");
    redis.run(&scripts::PURCHASE, 1_002_200, &["15000", "3", "1302", "n3", "claim"]).await;
    fresh(&redis.ttls().await, "a claim among others");
    redis.shorten_all(50_000).await;
    redis.run(&scripts::PURCHASE, 1_002_300, &["15000", "1", "1302", "n1", "spent"]).await;
    fresh(&redis.ttls().await, "a purchase");
    redis.shorten_all(50_000).await;
    redis.run(&scripts::LEAVE, 1_002_400, &["2"]).await;
    fresh(&redis.ttls().await, "giving up a pass");
}

#[tokio::test]
async fn a_pass_from_before_leaves_nothing_eternal_behind() {
    let mut redis = ScriptFixture::open().await;
    redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "1", "1300", "n1", "claim"]).await;
    redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "2", "1300", "n2", "claim"]).await;
    redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "1", "1300", "n1", "spent"]).await;
    redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "3", "1300", "n3", "back"]).await;
    let ttls = redis.ttls().await;
    assert_eq!(ttls.keys().collect::<Vec<_>>(), ["claims", "floors"]);
    assert!(ttls.values().all(|ttl| *ttl > 0), "{ttls:?}");
}

#[tokio::test]
async fn a_queue_closed_from_the_start_leaves_nothing_eternal_behind() {
    let mut redis = ScriptFixture::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "capacity", "0"]).await;
    let reply = redis.run(&scripts::ENTER, 1_000_000, &["1"]).await;
    assert_eq!(reply[7..], [4, 0, 0], "full");
    let ttls = redis.ttls().await;
    assert!(ttls.iter().all(|(key, ttl)| key == "settings" || *ttl > 0), "{ttls:?}");
}

#[tokio::test]
async fn calls_that_find_nobody_write_nothing() {
    let mut redis = ScriptFixture::open().await;
    redis.run(&scripts::STATUS, 1_000_000, &["1", "2"]).await;
    redis.run(&scripts::LEAVE, 1_000_000, &["1"]).await;
    redis.run(&scripts::STATS, 1_000_000, &[]).await;
    redis.run(&scripts::EVICT, 1_000_000, &[]).await;
    redis.run(&scripts::ADMIT, 1_000_000, &[]).await;
    redis.run(&scripts::DIRECT, 1_000_000, &["5"]).await;
    redis.run(&scripts::ADOPT, 1_000_000, &["1", "1300"]).await;
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "1", "900", "n", "back"]).await, [1_000_000, 5]);
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "1", "900", "n", "claim"]).await, [1_000_000, 4]);
    assert_eq!(redis.ask::<i64>(&["DBSIZE"]).await, 0);

    redis.enter(1_000_000, 1..=3).await;
    let before = redis.writes().await;
    assert!(before > 0);
    redis.run(&scripts::STATUS, 1_000_000, &["8", "9"]).await;
    redis.run(&scripts::LEAVE, 1_000_000, &["8"]).await;
    redis.run(&scripts::ADOPT, 1_000_000, &["8", "1000"]).await;
    redis.run(&scripts::STATS, 1_000_000, &[]).await;
    assert_eq!(redis.writes().await, before);
}

#[tokio::test]
async fn a_number_begins_a_new_life_and_old_floors_outlive_it() {
    let mut redis = ScriptFixture::open().await;
    redis.enter(1_000_000, 1..=2).await;
    redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "9", "1300", "n", "claim"]).await;
    redis.run(&scripts::PURCHASE, 1_000_000, &["15000", "9", "1300", "n", "spent"]).await;
    redis.ask::<i64>(&["DEL", &redis_key(3)]).await;
    let reply = redis.run(&scripts::ENTER, 1_050_000, &["5"]).await;
    assert_eq!(reply, [1_050_000, 1_052_000, 100, 2000, 0, 1, 0, 1, 1, 0]);
    assert_eq!(redis.ask::<i64>(&["ZCARD", &redis_key(0)]).await, 1, "leftovers are gone");
    assert_eq!(
        redis.run(&scripts::PURCHASE, 1_050_000, &["15000", "9", "1300", "m", "claim"]).await[1],
        2,
        "and nobody buys twice"
    );
}
