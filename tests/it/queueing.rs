//! Entering, waiting, being admitted: the whole program, on Redis and in memory.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::{
    invariants::{self, Moves, assert_never_more_than},
    redis_server::RedisServer,
    server::{DROP, EVENT, Reply, Server},
};

/// What one person after the other gets; at most `at_once` at a time.
async fn each<F: Future<Output = Reply>>(
    people: impl IntoIterator<Item = u64>,
    at_once: usize,
    call: impl Fn(u64) -> F,
) -> Vec<Reply> {
    stream::iter(people).map(call).buffered(at_once).collect().await
}

/// Where the mark stands.
async fn mark(server: &Server, target: &str) -> u64 {
    server.stats(target).await["admittedThrough"].as_u64().unwrap()
}

/// Waits until the mark is there.
async fn mark_reaches(server: &Server, target: &str, at_least: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let now = mark(server, target).await;
        if now >= at_least {
            return;
        }
        assert!(Instant::now() < until, "the mark stays at {now}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Everybody with these numbers polls and is told what the mark says, whatever moves meanwhile: admitted up to it, and
/// waiting with their own number beyond.
async fn all_are_told_the_truth(server: &Server, numbers: std::ops::RangeInclusive<u64>) {
    let before = mark(server, DROP).await;
    let replies = each(numbers.clone(), 32, |id| server.poll(DROP, id + 1000)).await;
    let after = mark(server, DROP).await;
    for (id, reply) in numbers.zip(replies) {
        let is_in = reply.state() == "ADMITTED" && reply.pass().is_some();
        let waits = reply.state() == "WAITING" && reply.position() == Some(id);
        let said = format!("{id} with the mark at {before} to {after}: {reply:?}");
        assert!(is_in || waits, "{said}");
        assert!(if is_in { id <= after } else { id > before }, "{said}");
        // Nobody has left yet but people who were admitted, and they are no longer in front.
        let ahead = |mark: u64| id.saturating_sub(1 + mark);
        let told = reply.body["aheadCount"].as_u64();
        assert_eq!(told.is_some(), waits, "{said}");
        assert!(told.is_none_or(|told| (ahead(after)..=ahead(before)).contains(&told)), "{said}");
    }
}

/// 250 people, three ticks.
async fn two_hundred_and_fifty_people(server: &Server) {
    for id in 1..=250 {
        let reply = server.enter(DROP, id + 1000).await;
        assert_eq!((reply.status, reply.state(), reply.position()), (200, "WAITING", Some(id)));
    }
    all_are_told_the_truth(server, 1..=250).await;
    mark_reaches(server, DROP, 100).await;
    all_are_told_the_truth(server, 1..=250).await;
    // A hundred who were admitted leave: that lets in nobody, the next tick does.
    let left = each(1..=100, 32, |id| server.leave(DROP, id + 1000)).await;
    assert!(left.iter().all(|reply| reply.status == 204));
    all_are_told_the_truth(server, 101..=250).await;
    mark_reaches(server, DROP, 250).await;
    let rest = each(101..=250, 32, |id| server.poll(DROP, id + 1000)).await;
    assert!(rest.iter().all(|reply| reply.state() == "ADMITTED"));
    // One more enters, and is the next, however many ticks found nobody: the mark went not beyond the last number.
    assert_eq!(server.enter(DROP, 2000).await.position(), Some(251));
    mark_reaches(server, DROP, 251).await;
    let stats = server.stats(DROP).await;
    assert_eq!(stats["admittedThrough"], 251, "not beyond the last number");
    assert_eq!(stats["admittedCount"], 251);
    assert_eq!(stats["revoked"], 100);
    assert_eq!(stats["live"], 150);
    server.assert_tells_no_secret().await;
}

#[tokio::test]
async fn on_redis_250_people_are_admitted_by_their_numbers_and_never_more_than_100_a_tick() {
    let redis = RedisServer::start();
    let moves = Moves::watch(&redis);
    two_hundred_and_fifty_people(&Server::serve(&redis, &[])).await;
    assert_never_more_than(&moves.of("LIMITED_DROP:42"), 100, 2_000);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn in_memory_250_people_are_admitted_by_their_numbers() {
    two_hundred_and_fifty_people(&Server::demo(&[])).await;
}

/// Repeats cost nothing, and a pass that is over means the back of the line.
async fn one_person_one_place(server: &Server) {
    let number = server.enter(EVENT, 7).await.position();
    assert_eq!(server.enter(EVENT, 7).await.position(), number);
    assert_eq!(server.enter(EVENT, 8).await.position(), Some(2));
    let pass = server.await_pass(EVENT, 7, Duration::from_secs(5)).await;
    assert_eq!(server.poll(EVENT, 7).await.pass().as_ref(), Some(&pass), "byte for byte");
    assert_eq!(server.enter(EVENT, 7).await.pass().as_ref(), Some(&pass), "entering again too");
    // Selecting seats spends nothing; buying them does: a new number, at the back.
    assert_eq!(server.select(7, 7, Some(&pass), &["A1"]).await.status, 200);
    assert_eq!(server.poll(EVENT, 7).await.pass().as_ref(), Some(&pass), "seats may be changed");
    assert_eq!(server.buy_tickets(7, 7, &["A1"]).await.status, 201);
    assert_eq!(server.poll(EVENT, 7).await.refusal(), (404, "NOT_IN_QUEUE"));
    let again = server.enter(EVENT, 7).await;
    assert_eq!((again.state(), again.position()), ("WAITING", Some(3)));
    // Expired (passes live 5 s here): the same.
    let pass = server.await_pass(EVENT, 8, Duration::from_secs(5)).await;
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let reply = server.poll(EVENT, 8).await;
        if reply.status == 404 {
            assert_eq!(reply.refusal(), (404, "NOT_IN_QUEUE"));
            break;
        }
        assert_eq!(reply.pass().as_ref(), Some(&pass), "byte for byte, as long as it lives");
        assert!(Instant::now() < until, "the pass never ends");
        sleep(Duration::from_millis(50)).await;
    }
    let back = server.enter(EVENT, 8).await;
    assert_eq!((back.state(), back.position()), ("WAITING", Some(4)));
    // Left: the same.
    assert_eq!(server.leave(EVENT, 8).await.status, 204);
    assert_eq!(server.leave(EVENT, 8).await.status, 204, "also when not queued");
    assert_eq!(server.enter(EVENT, 8).await.position(), Some(5));
    server.assert_tells_no_secret().await;
}

const SHORT_PASSES: &[(&str, &str)] = &[("VQ_TOKEN__TTL_SECONDS", "5"), ("VQ_QUEUE__TICK_MS", "500")];

#[tokio::test]
async fn on_redis_a_person_has_one_place_and_one_pass() {
    let redis = RedisServer::start();
    one_person_one_place(&Server::serve(&redis, SHORT_PASSES)).await;
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn in_memory_a_person_has_one_place_and_one_pass() {
    one_person_one_place(&Server::demo(SHORT_PASSES)).await;
}

#[tokio::test]
async fn an_entry_has_every_field_and_null_where_none_applies() {
    // Longer than the first three calls can take.
    let server = Server::demo(&[("VQ_QUEUE__BATCH_SIZE", "1"), ("VQ_QUEUE__TICK_MS", "4000")]);
    let waiting = server.enter(DROP, 7).await;
    assert_eq!(waiting.header("cache-control"), Some("no-store"));
    let body = waiting.body.as_object().unwrap();
    let mut fields: Vec<&str> = body.keys().map(String::as_str).collect();
    fields.sort_unstable();
    let all = [
        "aheadCount",
        "entryToken",
        "etaSeconds",
        "paused",
        "pollAfterSeconds",
        "position",
        "status",
        "tokenExpiresAt",
    ];
    assert_eq!(fields, all);
    assert_eq!((&body["entryToken"], &body["tokenExpiresAt"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    assert_eq!(body["aheadCount"], 0);
    assert!((1..=4).contains(&body["etaSeconds"].as_u64().unwrap()), "{body:?}");
    assert!((1..=3).contains(&body["pollAfterSeconds"].as_u64().unwrap()), "{body:?}");
    server.enter(DROP, 8).await;
    let third = server.enter(DROP, 9).await;
    assert_eq!(third.body["aheadCount"], 2);
    assert!((9..=12).contains(&third.body["etaSeconds"].as_u64().unwrap()), "two batches first: {third:?}");
    server.await_pass(DROP, 7, Duration::from_secs(10)).await;
    let admitted = server.poll(DROP, 7).await;
    assert_eq!(admitted.body.as_object().unwrap().len(), 8);
    for null in ["aheadCount", "etaSeconds", "pollAfterSeconds", "position"] {
        assert!(admitted.body[null].is_null(), "{null}: {admitted:?}");
    }
    let expires = admitted.body["tokenExpiresAt"].as_str().unwrap();
    assert!(expires.len() == 20 && expires.ends_with('Z') && expires.as_bytes()[10] == b'T', "{expires}");
}

async fn exactly_a_thousand(server: &Server) {
    let replies = each(1..=5_000, 1_000, |user| server.enter(DROP, user)).await;
    let mut numbers: Vec<u64> = replies.iter().filter_map(Reply::position).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=1_000), "numbers without gap");
    let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 429).collect();
    assert_eq!(refused.len(), 4_000);
    for reply in refused {
        assert_eq!(reply.refusal(), (429, "QUEUE_FULL"));
        assert_eq!(reply.body["detail"], "잠시 후 다시 시도");
        assert!(reply.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{reply:?}");
    }
    let inside = replies.iter().position(|reply| reply.status == 200).unwrap() as u64 + 1;
    assert_eq!(server.enter(DROP, inside).await.status, 200, "never for somebody who is in");
    // The same person fifty times at once: one number.
    let event: Vec<Option<u64>> =
        each((0..50).map(|_| 77), 50, |user| server.enter(EVENT, user)).await.iter().map(Reply::position).collect();
    assert!(event.iter().all(|position| *position == Some(1)), "{event:?}");
    assert_eq!(server.stats(EVENT).await["lastNumber"], 1);
}

/// A thousand may wait, and nobody is admitted meanwhile.
const FULL_HOUSE: &[(&str, &str)] = &[
    ("VQ_QUEUE__CAPACITY", "1000"),
    ("VQ_QUEUE__TICK_MS", "60000"),
    ("VQ_QUEUE__HEARTBEAT_TIMEOUT_SECONDS", "360"),
    // A thousand connect at once: a busy machine comes to the last of them late.
    ("VQ_SERVER__CLIENT_REQUEST_TIMEOUT_MS", "60000"),
    ("VQ_LOG__LEVEL", "info"),
];

#[tokio::test]
async fn on_redis_a_capacity_of_1000_takes_exactly_1000_of_5000() {
    let redis = RedisServer::start();
    exactly_a_thousand(&Server::serve(&redis, FULL_HOUSE)).await;
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn in_memory_a_capacity_of_1000_takes_exactly_1000_of_5000() {
    exactly_a_thousand(&Server::demo(FULL_HOUSE)).await;
}

#[tokio::test]
async fn two_servers_on_one_redis_let_in_one_batch_a_tick_and_leave_no_tick_out() {
    let redis = RedisServer::start();
    let settings = [("VQ_QUEUE__TICK_MS", "1000")];
    let servers = [Server::serve(&redis, &settings), Server::serve(&redis, &settings)];
    let moves = Moves::watch(&redis);
    let entered = each(1..=1_200, 64, |user| servers[user as usize % 2].enter(DROP, user)).await;
    assert!(entered.iter().all(|reply| reply.state() == "WAITING"));
    let until = Instant::now() + Duration::from_secs(60);
    while mark(&servers[0], DROP).await < 1_000 {
        // Everybody polls now and then, so that nobody falls silent, at either server.
        each((1..=1_200).step_by(7), 64, |user| servers[user as usize % 2].poll(DROP, user)).await;
        assert!(Instant::now() < until, "{:?}", servers[0].stats(DROP).await);
    }
    let moves = moves.of("LIMITED_DROP:42");
    assert_never_more_than(&moves, 100, 1_000);
    let (first, last) = (moves.first().unwrap().0, moves.last().unwrap().0);
    let people: u64 = moves[1..].iter().map(|(_, people)| people).sum();
    let rate = people as f64 * 1000.0 / (last - first) as f64;
    println!("{} moves over {} ms: {rate:.3} people a second", moves.len(), last - first);
    // How late a tick may be on a busy machine is no rule of ours; that none is left out is.
    assert!(moves.windows(2).all(|two| two[1].0 - two[0].0 < 2_000), "{moves:?}");
    for server in &servers {
        server.assert_tells_no_secret().await;
    }
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn who_left_and_who_fell_silent_take_no_slot() {
    const SETTINGS_KEY: &str = "queue:{LIMITED_DROP:42}:settings";
    let redis = RedisServer::start();
    let settings = [
        ("VQ_QUEUE__TICK_MS", "500"),
        ("VQ_QUEUE__BATCH_SIZE", "20"),
        ("VQ_QUEUE__HEARTBEAT_TIMEOUT_SECONDS", "6"),
        ("VQ_QUEUE__HEARTBEAT_SLACK_SECONDS", "0"),
        ("VQ_LOG__LEVEL", "info"),
    ];
    let server = Server::serve(&redis, &settings);
    let mut connection = redis.connection();
    // Nobody is admitted before all have entered and some have left.
    redis::cmd("HSET").arg(&[SETTINGS_KEY, "version", "1", "paused", "1"]).exec(&mut connection).unwrap();
    // Of every five, one leaves, one falls silent, three go on polling.
    each(1..=600, 64, |user| server.enter(DROP, user)).await;
    each((1..=600).filter(|user| user % 5 == 0), 64, |user| server.leave(DROP, user)).await;
    redis::cmd("HSET").arg(&[SETTINGS_KEY, "version", "2", "paused", "0"]).exec(&mut connection).unwrap();
    let moves = Moves::watch(&redis);
    let until = Instant::now() + Duration::from_secs(40);
    let all_poll = async || {
        let waiting = each((1..=600u64).filter(|user| user % 5 > 1), 64, |user| server.poll(DROP, user)).await;
        assert!(waiting.iter().all(|reply| reply.status == 200), "nobody who polls is evicted");
        assert!(Instant::now() < until, "{}", server.log());
    };
    loop {
        all_poll().await;
        let waiting: Vec<u64> =
            redis::cmd("ZRANGE").arg(&["queue:{LIMITED_DROP:42}:waiting", "0", "-1"]).query(&mut connection).unwrap();
        if !waiting.iter().any(|user| user % 5 == 1) {
            break;
        }
    }
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let gone = seconds * 1000 + micros / 1000;
    // Three batches go without the silent.
    let then = mark(&server, DROP).await;
    while mark(&server, DROP).await < then + 100 {
        all_poll().await;
    }
    let moves = moves.of("LIMITED_DROP:42");
    assert_never_more_than(&moves, 20, 500);
    let late: Vec<&(u64, u64)> = moves.iter().filter(|(at, _)| *at > gone).collect();
    assert!(late.len() >= 3, "{moves:?}");
    assert!(late.iter().all(|(_, people)| *people == 20), "once the silent are gone, 20 who are there: {moves:?}");
    let stats = server.stats(DROP).await;
    assert_eq!(stats["left"], 120);
    assert!(stats["evicted"].as_u64().unwrap() > 0, "{stats}");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_server_killed_and_started_again_finds_every_number_and_pass_as_before() {
    let redis = RedisServer::start();
    let settings = [("VQ_QUEUE__BATCH_SIZE", "5"), ("VQ_QUEUE__TICK_MS", "500")];
    let mut server = Server::serve(&redis, &settings);
    each(1..=200, 1, |user| server.enter(DROP, user)).await;
    let pass = server.await_pass(DROP, 1, Duration::from_secs(5)).await;
    let before = server.poll(DROP, 200).await.position();
    assert_eq!(before, Some(200));
    server.kill9();
    let server = Server::serve(&redis, &settings);
    assert_eq!(server.poll(DROP, 1).await.pass(), Some(pass));
    assert_eq!(server.poll(DROP, 200).await.position(), before);
    let next = mark(&server, DROP).await + 1;
    mark_reaches(&server, DROP, next).await;
    invariants::assert_hold(&redis);
}
