//! Redis is away for ten minutes, at full length: a heartbeat of 60 s and passes of 300 s, the defaults.
//!
//! Asleep nearly all the time. Tests start in the order of their names: this one comes first in the alphabet, so that
//! it sleeps beside all the others and not after them (`./test.sh` has a thread more than cores for it).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    invariants::{self, Moves, assert_never_more_than},
    redis_server::RedisServer,
    server::{DROP, Server},
};

const AWAY: Duration = Duration::from_secs(600);
const TICK_MS: u64 = 10_000;
/// Who does not ask while Redis is away.
const SILENT: std::ops::RangeInclusive<u64> = 13..=20;
/// Who asks once, right after Redis went.
const EARLY: [u64; 2] = [9, 10];
/// Who asks on and on.
const FAITHFUL: u64 = 11;
/// Who asks for the first time just before Redis comes back.
const LATE: u64 = 12;

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn redis_away_for_600_seconds_costs_nobody_the_place_and_gives_nobody_two() {
    let mut redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
    let settings = [
        ("VQ_REDIS__COMMAND_TIMEOUT_MS", "200"),
        ("VQ_QUEUE__BATCH_SIZE", "1"),
        ("VQ_QUEUE__TICK_MS", "10000"),
        ("VQ_LOG__LEVEL", "info"),
    ];
    let server = Server::serve(&redis, &settings);
    for user in 1..=20 {
        assert_eq!(server.enter(DROP, user).await.position(), Some(user));
    }
    let mark_before = server.stats(DROP).await["admittedThrough"].as_u64().unwrap();
    redis.kill9();
    let killed = Instant::now();
    while server.poll(DROP, EARLY[0]).await.state() != "DIRECT_ADMITTED" {
        assert!(killed.elapsed() < Duration::from_secs(1));
    }
    assert_eq!(server.poll(DROP, EARLY[1]).await.state(), "DIRECT_ADMITTED");

    let let_through = async |user: u64| {
        let reply = server.poll(DROP, user).await;
        assert_eq!((reply.status, reply.state()), (200, "DIRECT_ADMITTED"), "{reply:?}");
        assert_eq!(reply.header("x-virtual-queue-degraded"), Some("redis"));
        assert!(reply.took < Duration::from_secs(1), "{reply:?}");
        reply.pass().unwrap()
    };
    let mut passes = Vec::new();
    while killed.elapsed() < AWAY {
        passes.push(let_through(FAITHFUL).await);
        sleep(Duration::from_secs(30).min(AWAY.saturating_sub(killed.elapsed()))).await;
    }
    passes.push(let_through(FAITHFUL).await);
    let late = let_through(LATE).await;

    redis.restart();
    let back = Instant::now();
    let moves = Moves::watch(&redis);
    while server.enter(DROP, 99).await.position() != Some(21) {
        assert!(back.elapsed() < Duration::from_secs(3), "queueing again, the numbers as before");
        sleep(Duration::from_millis(50)).await;
    }
    println!("queueing again {:?} after its return", back.elapsed());
    let mark = server.stats(DROP).await["admittedThrough"].as_u64().unwrap();
    assert!((mark_before..=mark_before + 1).contains(&mark), "the mark as before: {mark_before}, {mark}");
    while !server.log().contains("people admitted during the outage are recorded") {
        assert!(back.elapsed() < Duration::from_secs(4), "{}", server.log());
        sleep(Duration::from_millis(50)).await;
    }
    let reply = server.poll(DROP, LATE).await;
    assert_eq!((reply.state(), reply.pass().as_ref()), ("ADMITTED", Some(&late)), "no place, and the same pass");
    assert_eq!(server.order(42, LATE, Some(&late)).await.status, 201);
    assert_eq!(server.order(42, LATE, Some(&late)).await.refusal().0, 403, "once");
    // Passes of 300 s came one after the other; the last may have been about to end.
    let (of_faithful, last) = (server.poll(DROP, FAITHFUL).await, passes.last().cloned());
    passes.sort_unstable();
    passes.dedup();
    assert!((2..=4).contains(&passes.len()), "one after the other: {passes:?}");
    assert!(of_faithful.code() == "NOT_IN_QUEUE" || of_faithful.pass() == last, "{of_faithful:?}");
    for user in EARLY {
        assert_eq!(server.poll(DROP, user).await.code(), "NOT_IN_QUEUE", "{user} has had the turn");
    }

    // Later than any tick, and within a heartbeat timeout.
    sleep(Duration::from_secs(45)).await;
    for user in SILENT {
        assert_eq!(server.poll(DROP, user).await.position(), Some(user));
    }
    for user in 1..=8 {
        let reply = server.poll(DROP, user).await;
        assert!(reply.state() == "ADMITTED" || reply.position() == Some(user), "{user}: {reply:?}");
    }
    let stats = server.stats(DROP).await;
    assert_eq!(stats["evicted"], 0);
    let left = stats["left"].as_u64().unwrap();
    assert!(left == 2 || left == 3, "whose pass ended meanwhile: {left}");
    assert!(stats["admittedThrough"].as_u64().unwrap() > mark, "and admission goes on");
    assert_never_more_than(&moves.of("LIMITED_DROP:42"), 1, TICK_MS);
    let changes = server.log().lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count();
    assert!(changes < 10, "a line a change of state: {}", server.log());
    invariants::assert_hold(&redis);
}
