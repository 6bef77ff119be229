//! The scripts themselves: their headers' examples, their values, and how long their keys live.

use std::collections::BTreeMap;

use ::redis::aio::MultiplexedConnection;

use super::*;
use crate::redis::scripts::{self, Script};

/// A Redis without a store on it, so that nothing but the scripts writes.
struct Bare {
    _server: TestServer,
    connection: MultiplexedConnection,
}

const IDLE_MS: i64 = 1_800_000;

impl Bare {
    async fn open() -> Self {
        let server = TestServer::start();
        let connection = server.connection().await;
        Self { _server: server, connection }
    }

    /// Runs a script of the target at `now` with the default rules.
    async fn run(&mut self, script: &Script, now: u64, own: &[&str]) -> Vec<i64> {
        self.try_run(script, now, own).await.unwrap()
    }

    async fn try_run(&mut self, script: &Script, now: u64, own: &[&str]) -> Result<Vec<i64>, ::redis::RedisError> {
        let mut call = ::redis::cmd("EVAL");
        call.arg(script.source()).arg(10);
        for key in TargetKeys::of(target()).all() {
            call.arg(key);
        }
        call.arg(now).arg(&["1800000", "100", "2000", "100000", "60000", "300", "1000"]).arg(own);
        call.query_async(&mut self.connection).await
    }

    async fn enter(&mut self, now: u64, users: std::ops::RangeInclusive<u64>) {
        let users: Vec<String> = users.map(|user| user.to_string()).collect();
        for some in users.chunks(250) {
            self.run(&scripts::ENTER, now, &some.iter().map(String::as_str).collect::<Vec<_>>()).await;
        }
    }

    /// Ticks and their sweeps every 2 s, from `from` to `to`.
    async fn pump(&mut self, from: u64, to: u64) {
        for now in (from..=to).step_by(2000) {
            self.run(&scripts::EVICT, now, &[]).await;
            self.run(&scripts::ADMIT, now, &[]).await;
        }
    }

    /// Of each key of the target that is there, by its last part: how long it lives (ms), -1 for ever.
    async fn ttls(&mut self) -> BTreeMap<String, i64> {
        let mut ttls = BTreeMap::new();
        for key in TargetKeys::of(target()).all() {
            let ttl: i64 = ::redis::cmd("PTTL").arg(key).query_async(&mut self.connection).await.unwrap();
            if ttl != -2 {
                ttls.insert(key.rsplit(':').next().unwrap().to_owned(), ttl);
            }
        }
        ttls
    }

    async fn shorten_all(&mut self, ms: i64) {
        for key in &TargetKeys::of(target()).all()[..9] {
            ::redis::cmd("PEXPIRE").arg(key).arg(ms).exec_async(&mut self.connection).await.unwrap();
        }
    }

    /// Writes so far: a server that keeps nothing on disk counts them since its start.
    async fn writes(&mut self) -> u64 {
        let info: String = ::redis::cmd("INFO").arg("persistence").query_async(&mut self.connection).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:")).unwrap();
        line.trim().parse().unwrap()
    }

    async fn ask<T: ::redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        ::redis::cmd(command[0]).arg(&command[1..]).query_async(&mut self.connection).await.unwrap()
    }
}

/// Whether the header's example ends in this very reply.
fn is_the_example(script: &Script, reply: &[i64]) {
    let title = format!("-- {}.lua: ", script.name());
    let own = &script.source()[script.source().find(&title).unwrap()..];
    let header: Vec<&str> = own.lines().take_while(|line| line.starts_with("--")).collect();
    let text = header.join(" ").replace("--", " ");
    let example = text.split("Example").nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = reply.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    let stands = example.ends_with(&format!(": {shown}")) || example.contains(&format!(": {shown};"));
    assert!(stands, "{} answers {shown}, and its header says {example}", script.name());
}

#[tokio::test]
async fn the_examples_of_enter_and_status_are_true() {
    let mut redis = Bare::open().await;
    let reply = redis.run(&scripts::ENTER, 1_000_000, &["7", "8"]).await;
    is_the_example(&scripts::ENTER, &reply);

    let mut redis = Bare::open().await;
    redis.enter(1_000_000, 7..=7).await;
    redis.enter(1_000_000, 1001..=1099).await;
    redis.enter(1_000_000, 8..=8).await;
    redis.pump(1_002_000, 1_002_000).await;
    let reply = redis.run(&scripts::STATUS, 1_002_500, &["7", "8"]).await;
    is_the_example(&scripts::STATUS, &reply);
}

#[tokio::test]
async fn the_examples_of_the_ticks_scripts_are_true() {
    let mut redis = Bare::open().await;
    redis.enter(1_000_000, 1..=250).await;
    let first = redis.run(&scripts::ADMIT, 1_002_003, &[]).await;
    is_the_example(&scripts::ADMIT, &first);
    let again = redis.run(&scripts::ADMIT, 1_002_003, &[]).await;
    is_the_example(&scripts::ADMIT, &again);

    let mut redis = Bare::open().await;
    let unused = redis.run(&scripts::EVICT, 1_000_000, &[]).await;
    is_the_example(&scripts::EVICT, &unused);
    // One gets a pass that ends before 1,000,000; three wait behind a paused pump and never poll.
    redis.enter(600_000, 1..=1).await;
    redis.pump(602_000, 602_000).await;
    redis.run(&scripts::STATUS, 602_000, &["1"]).await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "paused", "1"]).await;
    redis.enter(604_000, 2..=4).await;
    let mut now = 604_000;
    while now < 998_000 {
        redis.run(&scripts::STATUS, now, &["2", "3", "4"]).await;
        redis.run(&scripts::ADMIT, now, &[]).await;
        now += 2000;
        if now > 938_000 {
            break;
        }
    }
    while now < 1_000_000 {
        redis.run(&scripts::ADMIT, now, &[]).await;
        now += 2000;
    }
    let swept = redis.run(&scripts::EVICT, 1_000_000, &[]).await;
    is_the_example(&scripts::EVICT, &swept);
}

/// A key of the target, by its place in `KEYS`, from 0.
fn redis_key(at: usize) -> String {
    TargetKeys::of(target()).all()[at].clone()
}

#[tokio::test]
async fn the_examples_of_leaving_buying_and_the_books_are_true() {
    let mut redis = Bare::open().await;
    let unused = redis.run(&scripts::STATS, 1_000_000, &[]).await;
    is_the_example(&scripts::STATS, &unused);
    redis.enter(1_000_000, 7..=7).await;
    let left = redis.run(&scripts::LEAVE, 1_000_000, &["7"]).await;
    is_the_example(&scripts::LEAVE, &left);
    let direct = redis.run(&scripts::DIRECT, 1_000_000, &["3"]).await;
    is_the_example(&scripts::DIRECT, &direct);

    let mut redis = Bare::open().await;
    redis.enter(990_000, 8..=8).await;
    redis.run(&scripts::ADMIT, 1_000_000, &[]).await;
    let expiry = redis.run(&scripts::STATUS, 1_000_000, &["8"]).await[8].to_string();
    let bought = ["15000", "7", "1300", "n1", "claim", "8", &expiry, "n2", "spent"];
    is_the_example(&scripts::PURCHASE, &redis.run(&scripts::PURCHASE, 1_000_000, &bought).await);

    // Together, the first that asks for a pass gets it, and each purchase ends by itself.
    let claims = ["15000", "7", "1300", "a", "claim", "7", "1300", "b", "claim", "8", "900", "c", "claim"];
    let mut redis = Bare::open().await;
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [1, 3, 4]);
    let ended = ["15000", "7", "1300", "b", "back", "7", "1300", "a", "spent", "7", "1300", "a", "spent"];
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &ended).await[1..], [5, 5, 5], "no queue, no books");
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [2, 2, 4]);

    // What one call of a batch did, the next sees: given back, taken by another, spent, refused.
    let mut redis = Bare::open().await;
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

    // Rubbish in one person's claim is nobody else's trouble, and not that person's.
    redis.ask::<i64>(&["HSET", &redis_key(6), "9", "rubbish"]).await;
    let claims = ["15000", "1", "1300", "a", "claim", "9", "1300", "b", "claim"];
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [1, 1]);

    let mut redis = Bare::open().await;
    redis.enter(1_000_000, 7..=7).await;
    redis.enter(1_000_000, 9..=9).await;
    redis.run(&scripts::PURCHASE, 980_000, &["15000", "9", "1280", "n", "claim"]).await;
    redis.run(&scripts::PURCHASE, 980_000, &["15000", "9", "1280", "n", "spent"]).await;
    let adopted = redis.run(&scripts::ADOPT, 1_000_000, &["7", "1300", "8", "1300", "9", "1280"]).await;
    is_the_example(&scripts::ADOPT, &adopted);

    let mut register = ::redis::cmd("EVAL");
    register.arg(scripts::REGISTER.source()).arg(1).arg("queue:active");
    let mut ask = async |target: &str, limit: u64| {
        let mut register = register.clone();
        register.arg(target).arg(limit).query_async::<Vec<i64>>(&mut redis.connection).await.unwrap()
    };
    assert_eq!(ask("LIMITED_DROP:1", 1).await, [1]);
    is_the_example(&scripts::REGISTER, &ask("LIMITED_DROP:2", 1).await);
    assert_eq!(ask("LIMITED_DROP:1", 1).await, [1], "who is in stays in");

    let mut restore = ::redis::cmd("EVAL");
    restore.arg(scripts::SETTINGS_RESTORE.source()).arg(1).arg(redis_key(9));
    let mut ask = async |version: &str, fields: &[&str]| {
        let mut restore = restore.clone();
        restore.arg(version).arg(fields).query_async::<Vec<i64>>(&mut redis.connection).await.unwrap()
    };
    let (two, three) = (["version", "2", "batch_size", "9"], ["version", "3", "paused", "1"]);
    assert_eq!(ask("0", &["batch_size", "5"]).await, [1], "none are stored");
    assert_eq!(ask("0", &["batch_size", "6"]).await, [0], "without a version what is stored stays");
    assert_eq!(ask("3", &three).await, [1], "older ones are stored");
    is_the_example(&scripts::SETTINGS_RESTORE, &ask("3", &three).await);
    assert_eq!(ask("2", &two).await, [0], "newer ones are stored");
    let stored: BTreeMap<String, String> = redis.ask(&["HGETALL", &redis_key(9)]).await;
    assert_eq!(stored, [("paused", "1"), ("version", "3")].map(|(field, is)| (field.to_owned(), is.to_owned())).into());
}

#[tokio::test]
async fn every_key_of_a_target_but_its_settings_ends_and_only_people_keep_it() {
    let mut redis = Bare::open().await;
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
    let mut redis = Bare::open().await;
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
    let mut redis = Bare::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "capacity", "0"]).await;
    let reply = redis.run(&scripts::ENTER, 1_000_000, &["1"]).await;
    assert_eq!(reply[7..], [4, 0, 0], "full");
    let ttls = redis.ttls().await;
    assert!(ttls.iter().all(|(key, ttl)| key == "settings" || *ttl > 0), "{ttls:?}");
}

#[tokio::test]
async fn calls_that_find_nobody_write_nothing() {
    let mut redis = Bare::open().await;
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
async fn a_full_redis_refuses_a_newcomer_before_anything_is_written() {
    let mut redis = Bare::open().await;
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = redis.try_run(&scripts::ENTER, 1_000_000, &["1"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("OOM"), "{refused}");
    assert_eq!(redis.ask::<i64>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn a_full_redis_refuses_to_settle_and_the_claim_holds_until_it_can() {
    let mut redis = Bare::open().await;
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
    let mut redis = Bare::open().await;
    redis.enter(1_000_000, 1..=3).await;
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for (script, own) in [(&*scripts::STATUS, &["1"][..]), (&*scripts::EVICT, &[]), (&*scripts::ADMIT, &[])] {
        let refused = redis.try_run(script, 1_100_000, own).await.unwrap_err();
        assert_eq!(refused.code(), Some("OOM"), "{}: {refused}", script.name());
    }
    // Room again after a minute and more: nobody could poll, so nobody is silent.
    redis.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(redis.run(&scripts::EVICT, 1_100_000, &[]).await, [1_100_000, 1, 0, 0, 0]);
    assert_eq!(redis.run(&scripts::ADMIT, 1_100_000, &[]).await[1..4], [2, 3, 0]);
}

#[tokio::test]
async fn the_mark_stops_at_a_silent_person_whom_this_tick_may_not_evict_any_more() {
    let mut redis = Bare::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "paused", "1"]).await;
    redis.enter(1_000_000, 1..=1005).await;
    for now in (1_000_000..1_070_000).step_by(2000) {
        redis.run(&scripts::STATUS, now, &["1005"]).await;
        redis.run(&scripts::ADMIT, now, &[]).await;
    }
    redis.ask::<i64>(&["DEL", &redis_key(9)]).await;
    // 1004 are silent and may be evicted 1000 a tick, so only the tick after that reaches the one who polls.
    let first = redis.run(&scripts::ADMIT, 1_070_000, &[]).await;
    assert_eq!(first[..4], [1_070_000, 2, 0, 1000]);
    assert_eq!(redis.ask::<i64>(&["GET", &redis_key(2)]).await, 1000);
    let second = redis.run(&scripts::ADMIT, 1_072_000, &[]).await;
    assert_eq!(second[..4], [1_072_000, 2, 1, 4]);
    assert_eq!(redis.ask::<i64>(&["GET", &redis_key(2)]).await, 1005);
}

#[tokio::test]
async fn a_number_begins_a_new_life_and_old_floors_outlive_it() {
    let mut redis = Bare::open().await;
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
