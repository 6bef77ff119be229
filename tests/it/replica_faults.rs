//! Replicas die, freeze, lose their way to Redis, run on another clock or under other settings: no place is lost and no
//! tick sees two batches.

use std::{path::PathBuf, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::{
    invariants::{self, Moves, assert_never_more_than},
    proxy::Proxy,
    redis_server::RedisServer,
    seen::{batches, sweeps, until},
    server::{DROP, EVENT, Reply, Server},
};

pub(crate) const LABEL: &str = "LIMITED_DROP:42";

/// The budget buyers have in earnest.
const IN_EARNEST: (&str, &str) = ("VQ_REDIS__COMMAND_TIMEOUT_MS", "200");
/// Who does not poll for 8 s loses the place.
const SHORT_HEARTBEAT: [(&str, &str); 2] =
    [("VQ_QUEUE__HEARTBEAT_TIMEOUT_SECONDS", "8"), ("VQ_QUEUE__HEARTBEAT_SLACK_SECONDS", "0")];

/// Five people a second.
const FIVE_A_SECOND: [(&str, &str); 2] = [("VQ_QUEUE__BATCH_SIZE", "5"), ("VQ_QUEUE__TICK_MS", "1000")];

async fn enter_all(server: &Server, people: u64) {
    for user in 1..=people {
        assert_eq!(server.enter(DROP, user).await.position(), Some(user));
    }
}

pub(crate) async fn poll_all(server: &Server, people: u64) -> Vec<(u64, Reply)> {
    stream::iter(1..=people)
        .map(async |user| (user, server.poll(DROP, user).await))
        .buffer_unordered(32)
        .collect()
        .await
}

/// Redis's clock, ms.
pub(crate) fn redis_ms(connection: &mut redis::Connection) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(connection).unwrap();
    seconds * 1000 + micros / 1000
}

/// Two replicas, and the moment when the first has just taken the lock and its batch has not gone yet.
async fn caught_with_the_lock(redis: &RedisServer) -> (Server, Server) {
    let first = Server::serve(redis, &FIVE_A_SECOND);
    enter_all(&first, 150).await;
    let mut connection = redis.connection();
    let mut lock = || -> (Option<String>, i64) {
        let key = format!("queue:admission:{{{LABEL}}}");
        redis::pipe().cmd("GET").arg(&key).cmd("PTTL").arg(&key).query(&mut connection).unwrap()
    };
    let name = loop {
        if let (Some(name), _) = lock() {
            break name;
        }
        sleep(Duration::from_millis(5)).await;
    };
    let second = Server::serve(redis, &FIVE_A_SECOND);
    assert_eq!(second.poll(DROP, 150).await.state(), "WAITING");
    let since = Instant::now();
    // Of its 950 ms hardly any are gone; the batch goes 50 ms after the lock was taken.
    loop {
        match lock() {
            (Some(holder), left) if holder == name && left > 935 => return (first, second),
            _ => assert!(since.elapsed() < Duration::from_secs(20), "the first never has the lock"),
        }
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_replica_killed_with_the_lock_costs_less_than_two_ticks() {
    let redis = RedisServer::start();
    let moves = Moves::watch(&redis);
    let (mut first, second) = caught_with_the_lock(&redis).await;
    first.kill9();
    let mut connection = redis.connection();
    let killed = redis_ms(&mut connection);
    batches(&mut connection, LABEL, 3).await;
    let moves = moves.of(LABEL);
    let next = moves.iter().map(|(at, _)| *at).find(|at| *at > killed).expect("admission goes on");
    println!("the next batch went {} ms after the kill", next - killed);
    assert!(next - killed <= 2000, "{} ms after the kill: {moves:?}", next - killed);
    assert_never_more_than(&moves, 5, 1000);
    assert_eq!(second.poll(DROP, 150).await.position(), Some(150));
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_replica_paused_in_the_middle_of_a_tick_makes_no_double_batch() {
    let redis = RedisServer::start();
    let moves = Moves::watch(&redis);
    let (first, second) = caught_with_the_lock(&redis).await;
    first.stop();
    let mut connection = redis.connection();
    let paused = redis_ms(&mut connection);
    for _ in 0..10 {
        batches(&mut connection, LABEL, 1).await;
        assert_eq!(second.poll(DROP, 150).await.state(), "WAITING");
    }
    // The moment is in the middle of a tick of the other one.
    let last = redis_ms(&mut connection);
    until("half a tick is over", Duration::from_secs(5), async || redis_ms(&mut connection) >= last + 500).await;
    first.cont();
    let resumed = redis_ms(&mut connection);
    batches(&mut connection, LABEL, 3).await;
    let moves = moves.of(LABEL);
    let count = |from: u64, to: u64| moves.iter().filter(|(at, _)| (from..to).contains(at)).count();
    assert!(count(paused, resumed) >= 9, "the other one carried on: {moves:?}");
    assert!(count(resumed, u64::MAX) >= 2, "and so it goes on: {moves:?}");
    assert_never_more_than(&moves, 5, 1000);
    assert_eq!(first.poll(DROP, 150).await.state(), "WAITING", "who was paused serves again");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_full_redis_counts_as_away_without_flapping_and_nobody_is_evicted() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let settings = [&[IN_EARNEST, ("VQ_LOG__LEVEL", "info")], &SHORT_HEARTBEAT[..], &FIVE_A_SECOND[..]].concat();
    let server = Server::serve(&redis, &settings);
    enter_all(&server, 100).await;
    let mut connection = redis.connection();
    let used: String = redis::cmd("INFO").arg("memory").query(&mut connection).unwrap();
    let used: u64 =
        used.lines().find_map(|line| line.strip_prefix("used_memory:")).and_then(|n| n.trim().parse().ok()).unwrap();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(used + 4_000_000).exec(&mut connection).unwrap();
    let filler = "x".repeat(100_000);
    let full =
        (0..1000).find(|at| redis::cmd("SET").arg(format!("filler:{at}")).arg(&filler).exec(&mut connection).is_err());
    assert!(full.is_some(), "it takes no more");
    // Well beyond the edge, where every buffer that is freed makes room for a moment.
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(used + 3_000_000).exec(&mut connection).unwrap();

    let since = Instant::now();
    let mut let_through = 0;
    while since.elapsed() < Duration::from_secs(12) {
        let reply = server.poll(DROP, 90 + let_through % 10).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.took < Duration::from_secs(1));
        if since.elapsed() > Duration::from_secs(2) {
            assert_eq!(reply.state(), "DIRECT_ADMITTED", "as if it were away");
            let_through += 1;
        }
        // Reads that still work.
        server.get(&format!("/virtual-queues/{DROP}/stats")).await;
        sleep(Duration::from_millis(100)).await;
    }
    let changes = |what: &str| server.log().lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        (changes("redis unavailable: circuit breaker open"), changes("redis available: circuit breaker closed")),
        (1, 1),
        "{}",
        server.log()
    );
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).exec(&mut redis.connection()).unwrap();
    let freed = Instant::now();
    while server.poll(DROP, 60).await.header("x-virtual-queue-degraded").is_some() {
        assert!(freed.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(50)).await;
    }
    println!("queueing again {:?} after there was room", freed.elapsed());
    let answers = poll_all(&server, 100).await;
    assert!(answers.iter().all(|(_, reply)| reply.status == 200), "nobody lost the place");
    sweeps(&mut redis.connection(), LABEL, 2).await;
    assert_eq!(server.stats(DROP).await["evicted"], 0);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_redis_that_restarts_empty_loses_places_and_no_pass() {
    let mut redis = RedisServer::start();
    let server = Server::serve(&redis, &[&[IN_EARNEST], &FIVE_A_SECOND[..]].concat());
    let rule = serde_json::json!({ "enabled": true, "targets": [DROP], "reason": "the sale" });
    assert_eq!(server.set_flag(rule).await.status, 200);
    enter_all(&server, 30).await;
    let pass = server.await_pass(DROP, 1, Duration::from_secs(5)).await;
    let other = server.await_pass(DROP, 2, Duration::from_secs(5)).await;
    redis.restart();
    let since = Instant::now();
    while server.get(&format!("/virtual-queues/{DROP}/stats")).await.status != 200 {
        assert!(since.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.poll(DROP, 30).await.refusal(), (404, "NOT_IN_QUEUE"));
    assert_eq!(server.order(42, 1, Some(&pass)).await.status, 201, "before anybody has entered anew");
    assert_eq!(server.enter(DROP, 30).await.position(), Some(1), "and may enter again");
    assert_eq!(server.enter(DROP, 29).await.position(), Some(2));
    assert_eq!(server.order(42, 2, Some(&other)).await.status, 201, "and after");
    for (user, pass) in [(1, &pass), (2, &other)] {
        assert_eq!(server.order(42, user, Some(pass)).await.refusal().0, 403, "once");
    }
    server.await_pass(DROP, 29, Duration::from_secs(5)).await;
    let stats = server.stats(DROP).await;
    for (name, value) in stats.as_object().unwrap() {
        assert!(value.as_f64().is_none_or(|number| number >= 0.0), "{name}: {value}");
    }
    assert_eq!((&stats["entered"], &stats["evicted"]), (&2.into(), &0.into()));
    let restored = Instant::now();
    let mut connection = redis.connection();
    while !redis::cmd("EXISTS").arg("flags:virtual-queue.enabled").query::<bool>(&mut connection).unwrap() {
        assert!(restored.elapsed() < Duration::from_secs(5), "the flag's rule is written back");
        sleep(Duration::from_millis(50)).await;
    }
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_slow_redis_serves_within_the_budget_and_is_gone_round_beyond_it() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let settings = [&[("VQ_REDIS__COMMAND_TIMEOUT_MS", "400")], &FIVE_A_SECOND[..]].concat();
    let server = Server::serve_at(&proxy.url(), &settings);
    enter_all(&server, 100).await;
    let moves = Moves::watch(&redis);
    proxy.delay(Duration::from_millis(150));
    let mark = server.stats(DROP).await["admittedThrough"].as_u64().unwrap();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(4) {
        for (user, reply) in poll_all(&server, 100).await {
            assert_eq!(reply.header("x-virtual-queue-degraded"), None, "{user}: {reply:?}");
            assert!(reply.state() == "ADMITTED" || reply.position() == Some(user), "{reply:?}");
        }
        sleep(Duration::from_millis(200)).await;
    }
    let stats = server.stats(DROP).await;
    let moved = stats["admittedThrough"].as_u64().unwrap() - mark;
    assert!(moved >= 10, "admission goes on: {moved} in 4 s");

    proxy.delay(Duration::from_secs(1));
    let since = Instant::now();
    let mut states = Vec::new();
    while since.elapsed() < Duration::from_secs(4) {
        let reply = server.poll(DROP, 100).await;
        assert_eq!(reply.status, 200);
        assert!(reply.took < Duration::from_secs(1), "{reply:?}");
        assert_eq!(reply.header("x-virtual-queue-degraded"), Some("redis"));
        states.push(reply.state().to_owned());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(states.first().map(String::as_str), Some("WAITING"), "first it is waited for");
    assert_eq!(states.last().map(String::as_str), Some("DIRECT_ADMITTED"), "then it is unavailable");
    proxy.heal();
    let healed = Instant::now();
    // 99 did not ask meanwhile, so is waiting or has just been admitted.
    while server.poll(DROP, 99).await.header("x-virtual-queue-degraded").is_some() {
        assert!(healed.elapsed() < Duration::from_secs(4));
        sleep(Duration::from_millis(20)).await;
    }
    assert_never_more_than(&moves.of(LABEL), 5, 1000);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_redis_slower_than_buyers_wait_and_faster_than_the_probe_is_gone_round_and_takes_no_turns() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let server =
        Server::serve_at(&proxy.url(), &[&[IN_EARNEST, ("VQ_LOG__LEVEL", "info")], &FIVE_A_SECOND[..]].concat());
    enter_all(&server, 100).await;
    proxy.delay(Duration::from_millis(300));
    let slow = Instant::now();
    while server.poll(DROP, 100).await.state() != "DIRECT_ADMITTED" {
        assert!(slow.elapsed() < Duration::from_secs(5), "{}", server.log());
        sleep(Duration::from_millis(200)).await;
    }
    println!("gone round {:?} after it became slow", slow.elapsed());
    // It stays so, and the log is quiet.
    let told = server.log().lines().filter(|line| line.contains(" WARN ")).count();
    while slow.elapsed() < Duration::from_secs(8) {
        let reply = server.poll(DROP, 100).await;
        assert_eq!((reply.status, reply.state()), (200, "DIRECT_ADMITTED"));
        assert!(reply.took < Duration::from_millis(500), "{reply:?}");
        sleep(Duration::from_millis(200)).await;
    }
    let since = server.log().lines().filter(|line| line.contains(" WARN ")).count() - told;
    assert!(since <= 2, "{}", server.log());
    assert!(server.get("/health/ready").await.text.contains("degraded"));
    proxy.heal();
    let healed = Instant::now();
    while server.poll(DROP, 99).await.header("x-virtual-queue-degraded").is_some() {
        assert!(healed.elapsed() < Duration::from_secs(3), "{}", server.log());
        sleep(Duration::from_millis(20)).await;
    }
    // Nobody's turn came and went unseen.
    let answers = poll_all(&server, 98).await;
    let lost: Vec<_> = answers.iter().filter(|(_, reply)| reply.status != 200).collect();
    assert!(lost.is_empty(), "{lost:?}");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn connections_of_ours_that_became_slow_are_made_anew() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let server = Server::serve_at(&proxy.url(), &[&[IN_EARNEST], &FIVE_A_SECOND[..]].concat());
    enter_all(&server, 100).await;
    proxy.slow_down_old(Duration::from_millis(300));
    let slow = Instant::now();
    while server.poll(DROP, 100).await.header("x-virtual-queue-degraded").is_none() {
        assert!(slow.elapsed() < Duration::from_secs(2), "it is noticed");
    }
    while server.poll(DROP, 99).await.header("x-virtual-queue-degraded").is_some() {
        assert!(slow.elapsed() < Duration::from_secs(8), "{}", server.log());
        sleep(Duration::from_millis(100)).await;
    }
    println!("queueing again {:?} after the connections became slow", slow.elapsed());
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn connections_that_lead_nowhere_are_thrown_away_and_admission_goes_on() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let settings = [&[("VQ_REDIS__CONNECT_TIMEOUT_MS", "300"), IN_EARNEST], &FIVE_A_SECOND[..]].concat();
    let server = Server::serve_at(&proxy.url(), &settings);
    enter_all(&server, 100).await;
    // All kinds of connections have been made.
    batches(&mut redis.connection(), LABEL, 1).await;
    proxy.strand();
    let stranded = Instant::now();
    while server.poll(DROP, 100).await.position() != Some(100) {
        assert!(stranded.elapsed() < Duration::from_secs(5), "queueing again");
        sleep(Duration::from_millis(50)).await;
    }
    let mut connection = redis.connection();
    let mut mark =
        || redis::cmd("GET").arg(format!("queue:{{{LABEL}}}:admitted_count")).query(&mut connection).unwrap();
    let before: u64 = mark();
    while mark() == before {
        assert!(stranded.elapsed() < Duration::from_secs(10), "{}", server.log());
        sleep(Duration::from_millis(50)).await;
    }
    println!("a batch went {:?} after all connections were lost without a word", stranded.elapsed());
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn one_replica_cut_off_alone_lets_its_people_through_and_the_other_goes_on() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(&redis);
    let settings = [IN_EARNEST, ("VQ_QUEUE__BATCH_SIZE", "1")];
    let (cut_off, healthy) = (Server::serve_at(&proxy.url(), &settings), Server::serve(&redis, &settings));
    enter_all(&healthy, 60).await;
    assert_eq!(cut_off.poll(DROP, 60).await.position(), Some(60));
    let moves = Moves::watch(&redis);
    proxy.cut();
    let since = Instant::now();
    let through = loop {
        let reply = cut_off.poll(DROP, 60).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        if reply.state() == "DIRECT_ADMITTED" {
            break reply;
        }
        assert!(since.elapsed() < Duration::from_secs(2), "still {reply:?}");
    };
    let mut connection = redis.connection();
    for _ in 0..2 {
        assert_eq!(healthy.poll(DROP, 59).await.position(), Some(59));
        assert_eq!(healthy.poll(DROP, 59).await.header("x-virtual-queue-degraded"), None);
        assert_eq!(cut_off.poll(DROP, 60).await.pass(), through.pass());
        batches(&mut connection, LABEL, 1).await;
    }
    let metrics = |text: &str, line: &str| text.lines().any(|found| found.starts_with(line));
    let (of_cut, of_healthy) = (cut_off.get("/metrics").await.text, healthy.get("/metrics").await.text);
    assert!(metrics(&of_cut, "virtual_queue_redis_breaker_open 1"), "what to alert on");
    assert!(metrics(&of_cut, r#"virtual_queue_redis_degraded_total{operation="status"}"#));
    assert!(metrics(&of_healthy, "virtual_queue_redis_breaker_open 0"));
    proxy.heal();
    let since = Instant::now();
    while healthy.poll(DROP, 60).await.pass() != through.pass() {
        assert!(since.elapsed() < Duration::from_secs(4), "taken over, and known to both");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(cut_off.poll(DROP, 59).await.position(), Some(59));
    assert_never_more_than(&moves.of(LABEL), 1, 2000);
    invariants::assert_hold(&redis);
}

/// Both replicas are gone for a time, and Redis is not.
async fn all_replicas_away(away: Duration, settings: &[(&str, &str)]) {
    let redis = RedisServer::start();
    let mut servers = [Server::serve(&redis, settings), Server::serve(&redis, settings)];
    enter_all(&servers[0], 100).await;
    servers.iter_mut().for_each(Server::kill9);
    sleep(away).await;
    let moves = Moves::watch(&redis);
    let servers = [Server::serve(&redis, settings), Server::serve(&redis, settings)];
    // So that ticks come before the polls.
    let mut connection = redis.connection();
    sweeps(&mut connection, LABEL, 3).await;
    for _ in 0..4 {
        for (user, reply) in poll_all(&servers[1], 100).await {
            assert_eq!(reply.status, 200, "{user} polled again and lost the place");
            assert!(reply.state() == "ADMITTED" || reply.position() == Some(user), "{reply:?}");
        }
        batches(&mut connection, LABEL, 1).await;
    }
    let stats = servers[0].stats(DROP).await;
    assert_eq!(stats["evicted"], 0);
    assert!(stats["admittedThrough"].as_u64().unwrap() > 0);
    assert_never_more_than(&moves.of(LABEL), 5, 1000);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn all_replicas_away_for_one_and_a_half_heartbeats_cost_nobody_the_place() {
    let settings = [SHORT_HEARTBEAT, FIVE_A_SECOND].concat();
    all_replicas_away(Duration::from_secs(12), &settings).await;
}

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn all_replicas_away_for_ninety_seconds_cost_nobody_the_place() {
    all_replicas_away(Duration::from_secs(90), &FIVE_A_SECOND).await;
}

#[tokio::test]
async fn replicas_that_differ_in_tick_and_batch_keep_to_the_larger_target() {
    let redis = RedisServer::start();
    let fast = [("VQ_QUEUE__BATCH_SIZE", "10"), ("VQ_QUEUE__TICK_MS", "1000")];
    let slow = [("VQ_QUEUE__BATCH_SIZE", "4"), ("VQ_QUEUE__TICK_MS", "1600")];
    let servers = [Server::serve(&redis, &fast), Server::serve(&redis, &slow)];
    let moves = Moves::watch(&redis);
    enter_all(&servers[0], 200).await;
    assert_eq!(servers[1].poll(DROP, 200).await.position(), Some(200));
    let mut connection = redis.connection();
    batches(&mut connection, LABEL, 3).await;
    // The slower one has its turn, too, and then both try again.
    servers[0].stop();
    batches(&mut connection, LABEL, 3).await;
    servers[0].cont();
    batches(&mut connection, LABEL, 4).await;
    let moves = moves.of(LABEL);
    println!("{moves:?}");
    assert!(moves.iter().any(|(_, people)| *people == 10) && moves.iter().any(|(_, people)| *people == 4), "{moves:?}");
    assert_never_more_than(&moves, 10, 1000);
    invariants::assert_hold(&redis);
}

fn faketime() -> PathBuf {
    let found = std::fs::read_dir("/usr/lib").expect("a system").flatten().map(|dir| dir.path().join("faketime"));
    let mut places = found.chain([PathBuf::from("/usr/lib/faketime")]);
    let place = places.find(|place| place.join("libfaketimeMT.so.1").exists());
    place.expect("install faketime (Debian: apt-get install faketime)").join("libfaketimeMT.so.1")
}

#[tokio::test]
async fn a_replica_whose_clock_is_wrong_by_an_hour_gives_and_takes_the_right_passes() {
    let shim = faketime();
    for wrong_by in ["+3600s", "-3600s"] {
        let redis = RedisServer::start();
        let shift =
            [("LD_PRELOAD", shim.to_str().unwrap()), ("FAKETIME", wrong_by), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let shared = tempfile::tempdir().unwrap();
        let database = crate::server::shop_file(shared.path());
        let shop = [("VQ_DEMO_SHOP__DATABASE", database.as_str())];
        let right = Server::serve(&redis, &[&shop, &FIVE_A_SECOND[..]].concat());
        let wrong = Server::serve(&redis, &[&shop, &FIVE_A_SECOND[..], &shift].concat());
        let date = wrong.get("/health/live").await;
        let date = date.header("date").map(str::to_owned);
        enter_all(&wrong, 20).await;
        let moves = Moves::watch(&redis);
        let now = || redis_ms(&mut redis.connection()) / 1000;
        for (user, issuer, taker) in [(1, &wrong, &right), (2, &right, &wrong)] {
            let pass = issuer.await_pass(DROP, user, Duration::from_secs(5)).await;
            let reply = issuer.poll(DROP, user).await;
            let expires = reply.body["tokenExpiresAt"].as_str().unwrap().to_owned();
            let until = time::OffsetDateTime::parse(&expires, &time::format_description::well_known::Rfc3339).unwrap();
            let left = until.unix_timestamp() - i64::try_from(now()).unwrap();
            assert!((290..=300).contains(&left), "{left} s left, on a clock that is {wrong_by} off: {date:?}");
            assert_eq!(taker.order(42, user, Some(&pass)).await.status, 201);
            assert_eq!(issuer.order(42, user, Some(&pass)).await.refusal().0, 403, "once");
        }
        batches(&mut redis.connection(), LABEL, 2).await;
        let stats = right.stats(DROP).await;
        assert_eq!(stats["evicted"], 0);
        let of_wrong = wrong.stats(DROP).await;
        assert!(["issued", "consumed", "admittedCount"].iter().all(|name| stats[name] == of_wrong[name]));
        assert_never_more_than(&moves.of(LABEL), 5, 1000);
        invariants::assert_hold(&redis);
    }
}

#[tokio::test]
async fn a_replica_far_from_redis_whose_clock_is_wrong_gives_and_takes_the_right_passes() {
    let shim = faketime();
    for wrong_by in ["+3600s", "-400s"] {
        let redis = RedisServer::start();
        let proxy = Proxy::before(&redis);
        proxy.delay(Duration::from_millis(150));
        let settings = [
            ("VQ_REDIS__COMMAND_TIMEOUT_MS", "400"),
            ("LD_PRELOAD", shim.to_str().unwrap()),
            ("FAKETIME", wrong_by),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let server = Server::serve_at(&proxy.url(), &[&settings, &FIVE_A_SECOND[..]].concat());
        enter_all(&server, 1).await;
        let pass = server.await_pass(DROP, 1, Duration::from_secs(5)).await;
        assert_eq!(server.order(42, 1, Some(&pass)).await.status, 201, "{wrong_by}");
        invariants::assert_hold(&redis);
    }
}

#[tokio::test]
async fn ten_thousand_targets_asked_for_are_bounded_and_harm_nobody() {
    let redis = RedisServer::start();
    let settings = [&[("VQ_QUEUE__MAX_ACTIVE_TARGETS", "20")], &FIVE_A_SECOND[..]].concat();
    let server = Server::serve(&redis, &settings);
    enter_all(&server, 60).await;
    assert_eq!(server.enter(EVENT, 1).await.position(), Some(1));
    // Configured by the operator, and so expected.
    redis::cmd("HSET")
        .arg("queue:{LIMITED_DROP:77}:settings")
        .arg(&["batch_size", "3"])
        .exec(&mut redis.connection())
        .unwrap();
    let answers: Vec<(u16, String)> = stream::iter(0..10_000u64)
        .map(async |id| {
            let reply = server.enter(&format!("limited-drop/{}", 1_000_000 + id), id + 1).await;
            (reply.status, reply.code().to_owned())
        })
        .buffer_unordered(64)
        .collect()
        .await;
    let taken = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(taken, 18, "room for twenty with the two there are");
    assert!(
        answers.iter().all(|(status, code)| *status == 200 || (*status, code.as_str()) == (429, "TOO_MANY_TARGETS"))
    );
    assert_eq!(server.enter("limited-drop/77", 1).await.position(), Some(1));
    let rule =
        serde_json::json!({ "enabled": true, "targets": ["limited-drop/78", DROP, EVENT], "reason": "the sale" });
    assert_eq!(server.set_flag(rule).await.status, 200);
    assert_eq!(server.enter("limited-drop/78", 1).await.position(), Some(1), "named by the flag's rule");
    assert_eq!(server.enter(DROP, 61).await.position(), Some(61));
    let goes_on = async || server.stats(DROP).await["admittedThrough"] == 61;
    until("it ticks as before", Duration::from_secs(20), goes_on).await;
    let active: usize = redis::cmd("SCARD").arg("queue:active").query(&mut redis.connection()).unwrap();
    assert_eq!(active, 22);
    let series = server.get("/metrics").await.text.matches("virtual_queue_length{").count();
    assert!(series <= 22, "{series}");
    invariants::assert_hold(&redis);
}
