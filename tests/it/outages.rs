//! Redis dies, hangs, stalls, comes back: nobody loses a place, no purchase is blocked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::{
    invariants::{self, Moves, assert_never_more_than},
    redis_server::RedisServer,
    seen::{batches, until},
    server::{DROP, Reply, Server},
};

/// How many poll when Redis dies.
const CROWD: u64 = 500;
/// Somebody who never entered, and only asks whether the store answers.
const STRANGER: u64 = 4_000_000;

/// `serve` with the budget buyers have in earnest.
fn serve(redis: &RedisServer, settings: &[(&str, &str)]) -> Server {
    Server::serve(redis, &[&[("VQ_REDIS__COMMAND_TIMEOUT_MS", "200")], settings].concat())
}

/// People 1..=`people` keep polling, each again `pause` after the last answer, until told to stop; every answer, counted
/// as it comes.
async fn crowd(
    server: &Server,
    people: u64,
    pause: Duration,
    stop: &AtomicBool,
    count: &AtomicU64,
) -> Vec<(Instant, Reply)> {
    let one = async |user: u64| {
        let mut answers = Vec::new();
        // Not all at the same moment, as people do not.
        sleep(pause * user as u32 / people as u32).await;
        while !stop.load(Ordering::SeqCst) {
            // Now and then somebody comes again, which is as good as polling.
            let reply =
                if user.is_multiple_of(5) { server.enter(DROP, user).await } else { server.poll(DROP, user).await };
            answers.push((Instant::now(), reply));
            count.fetch_add(1, Ordering::SeqCst);
            sleep(pause).await;
        }
        answers
    };
    let all: Vec<Vec<_>> = stream::iter(1..=people).map(one).buffer_unordered(people as usize).collect().await;
    all.into_iter().flatten().collect()
}

/// One after the other, so that everybody's number is their id.
async fn enter_all(server: &Server, people: u64) {
    for user in 1..=people {
        assert_eq!(server.enter(DROP, user).await.position(), Some(user));
    }
}

fn percentile(mut took: Vec<Duration>, q: f64) -> Duration {
    took.sort_unstable();
    took[((took.len() - 1) as f64 * q) as usize]
}

#[tokio::test]
async fn an_outage_is_no_line_of_the_log_a_purchase() {
    let mut redis = RedisServer::start();
    let server = serve(&redis, &[("VQ_LOG__LEVEL", "info")]);
    redis.kill9();
    for user in 1..=30 {
        let direct = loop {
            let reply = server.enter(DROP, user).await;
            if let Some(pass) = reply.pass() {
                break pass;
            }
        };
        assert_eq!(server.order(42, user, Some(&direct)).await.status, 201);
    }
    let lines = server.log().lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count();
    assert!(lines < 10, "{}", server.log());
}

#[tokio::test]
async fn redis_killed_under_load_blocks_nobody_and_queueing_resumes_by_itself() {
    // What a killed process has written stays; syncing guards against the machine, and waits for its disk.
    let mut redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
    let server = serve(&redis, &[("VQ_QUEUE__BATCH_SIZE", "1"), ("VQ_LOG__LEVEL", "info")]);
    enter_all(&server, CROWD).await;
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let limit = Duration::from_secs(30);
    // So that everybody has asked so many times more.
    let rounds = async |more: u64| {
        let enough = count.load(Ordering::SeqCst) + more * CROWD;
        until("everybody asks", limit, async || count.load(Ordering::SeqCst) >= enough).await;
    };
    let fault = async {
        rounds(1).await;
        redis.kill9();
        let killed = Instant::now();
        rounds(4).await;
        // The pass of somebody let through buys, with Redis away.
        let direct = server.enter(DROP, 77_777).await;
        assert_eq!((direct.status, direct.state()), (200, "DIRECT_ADMITTED"));
        assert_eq!(direct.header("x-virtual-queue-degraded"), Some("redis"));
        let bought = server.order(42, 77_777, direct.pass().as_deref()).await;
        assert_eq!(bought.status, 201, "{bought:?}");
        assert!(bought.took < Duration::from_secs(1), "{bought:?}");
        let ready = server.get("/health/ready").await;
        assert_eq!((ready.status, &ready.body["redis"]), (200, &"degraded".into()));
        let metrics = server.get("/metrics").await.text;
        assert!(metrics.contains("virtual_queue_redis_breaker_open 1"));
        redis.restart();
        let back = Instant::now();
        // Each time somebody new: who got a direct pass may have it in the store by then.
        let mut user = 88_888;
        let queueing = loop {
            user += 1;
            let reply = server.enter(DROP, user).await;
            if reply.state() == "WAITING" && reply.position().is_some() {
                break back.elapsed();
            }
            assert!(back.elapsed() < Duration::from_secs(3), "still {reply:?}");
            sleep(Duration::from_millis(20)).await;
        };
        rounds(1).await;
        stop.store(true, Ordering::SeqCst);
        (killed, back, queueing)
    };
    let crowd = crowd(&server, CROWD, Duration::from_secs(1), &stop, &count);
    let (answers, (killed, back, queueing)) = tokio::join!(crowd, fault);
    assert!(answers.iter().all(|(_, reply)| reply.status == 200), "no 5xx, nobody lost");
    let slowest = answers.iter().map(|(_, reply)| reply.took).max().unwrap();
    // By when they were asked: from the kill on, and once a second has gone and everybody knows.
    let asked_after = |after: Instant| -> Vec<Duration> {
        let of_outage = answers.iter().filter(|(at, reply)| *at - reply.took >= after && *at < back);
        of_outage.map(|(_, reply)| reply.took).collect()
    };
    let (from_the_kill, known) = (asked_after(killed), asked_after(killed + Duration::from_secs(1)));
    let under_way: Vec<Duration> = answers
        .iter()
        .filter(|(at, reply)| *at - reply.took < killed && *at >= killed)
        .map(|(_, reply)| reply.took)
        .collect();
    println!(
        "{CROWD} people: {} answers asked for before the kill and given after it, slowest {:?}; {} asked for while Redis \
         was away, p50 {:?}, p99 {:?}; {} of them once the breaker was open, p50 {:?}, p99 {:?}; slowest of all \
         {slowest:?}; queueing again {queueing:?} after its return",
        under_way.len(),
        under_way.iter().max(),
        from_the_kill.len(),
        percentile(from_the_kill.clone(), 0.5),
        percentile(from_the_kill, 0.99),
        known.len(),
        percentile(known.clone(), 0.5),
        percentile(known, 0.99),
    );
    // A machine that is too busy keeps people waiting with Redis there, too: then the outage may add as much again.
    let before = answers.iter().filter(|(at, _)| *at < killed).map(|(_, reply)| reply.took).max().unwrap();
    assert!(slowest < Duration::from_secs(1).max(before * 2), "{slowest:?}, and {before:?} before the kill");
    // Everybody was let through meanwhile, and comes back to the pass from then.
    let handed_over = Instant::now();
    while !server.log().contains("people admitted during the outage are recorded") {
        assert!(handed_over.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(50)).await;
    }
    for user in (30..=CROWD).step_by(30) {
        assert_eq!(server.poll(DROP, user).await.state(), "ADMITTED");
    }
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains(r#"virtual_queue_redis_degraded_total{operation="status"}"#), "{metrics}");
    let lines = server.log().lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count();
    println!("{lines} warnings or errors in the log");
    assert!(lines < 20, "a line a change of state, not one a request: {lines}");
    server.assert_tells_no_secret().await;
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn why_redis_is_away_is_told_also_where_it_comes_back_and_refuses() {
    let redis = RedisServer::start();
    let server = serve(&redis, &[]);
    enter_all(&server, 3).await;
    let mut operator = redis.connection();
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "another"]).exec(&mut operator).unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut operator).unwrap();
    let lines = |what: &str| server.log().lines().filter(|line| line.contains("NOAUTH") && line.contains(what)).count();
    until("many probes are refused", Duration::from_secs(20), async || lines("a probe failed") >= 8).await;
    let told = lines(" WARN ");
    assert!((1..=2).contains(&told), "told once, not at every probe: {}", server.log());
}

#[tokio::test]
async fn a_stall_of_400_ms_lets_nobody_in() {
    let redis = RedisServer::start();
    let server = serve(&redis, &[("VQ_QUEUE__BATCH_SIZE", "1"), ("VQ_QUEUE__TICK_MS", "10000")]);
    enter_all(&server, 100).await;
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    // Everybody asks while all is well.
    let all_ask = async || {
        let is_well = async || server.poll(DROP, STRANGER).await.header("x-virtual-queue-degraded").is_none();
        until("the store answers", Duration::from_secs(10), is_well).await;
        let enough = count.load(Ordering::SeqCst) + 200;
        until("everybody asks", Duration::from_secs(10), async || count.load(Ordering::SeqCst) >= enough).await;
    };
    let fault = async {
        for _ in 0..3 {
            all_ask().await;
            redis.stop();
            sleep(Duration::from_millis(400)).await;
            redis.cont();
        }
        all_ask().await;
        stop.store(true, Ordering::SeqCst);
    };
    let (answers, ()) = tokio::join!(crowd(&server, 100, Duration::from_millis(250), &stop, &count), fault);
    assert!(answers.iter().all(|(_, reply)| reply.status == 200 && reply.state() == "WAITING"));
    let blind = answers.iter().filter(|(_, reply)| reply.position().is_none()).count();
    assert!(blind > 0, "the stall was noticed");
    for (_, reply) in answers.iter().filter(|(_, reply)| reply.position().is_none()) {
        assert_eq!(reply.body["pollAfterSeconds"], 1);
        assert_eq!(reply.header("x-virtual-queue-degraded"), Some("redis"));
        assert!(reply.took < Duration::from_millis(600), "{reply:?}");
    }
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_redis_that_hangs_is_first_waited_for_and_then_gone_round() {
    let redis = RedisServer::start();
    let server = serve(&redis, &[("VQ_QUEUE__BATCH_SIZE", "1")]);
    enter_all(&server, 20).await;
    redis.stop();
    let hung = Instant::now();
    let first = server.poll(DROP, 20).await;
    assert_eq!((first.state(), first.position()), ("WAITING", None));
    loop {
        let reply = server.poll(DROP, 20).await;
        assert_eq!(reply.status, 200);
        assert!(reply.took < Duration::from_secs(1));
        if reply.state() == "DIRECT_ADMITTED" {
            break;
        }
        assert!(hung.elapsed() < Duration::from_secs(4), "still {reply:?}");
    }
    println!("gone round {:?} after it began to hang", hung.elapsed());
    redis.cont();
    let back = Instant::now();
    // Who did not ask meanwhile waits as before.
    while server.poll(DROP, 19).await.position() != Some(19) {
        assert!(back.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(20)).await;
    }
    invariants::assert_hold(&redis);
}

/// Redis goes away with its data for `away`; people poll on throughout. Nobody who polls again is evicted, nobody is
/// admitted beyond the rate, and no batch comes early.
async fn away_and_back(away: Duration, settings: &[(&str, &str)], tick_ms: u64, watch_after: Duration) {
    let mut redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
    let server = serve(&redis, settings);
    enter_all(&server, 400).await;
    batches(&mut redis.connection(), "LIMITED_DROP:42", 1).await;
    let moved_before = server.stats(DROP).await["admittedThrough"].as_u64().unwrap();
    redis.kill9();
    sleep(away).await;
    redis.restart();
    let back = Instant::now();
    let moves = Moves::watch(&redis);
    let until = back + watch_after;
    // Who asks before the replica has found Redis again is let through: half of the people, for were it all of them,
    // nobody would be left to admit.
    let mut found = false;
    let mut evicted = Vec::new();
    while Instant::now() < until {
        found = found || server.poll(DROP, STRANGER).await.header("x-virtual-queue-degraded").is_none();
        let asking = (1..=400u64).filter(|user| found || user.is_multiple_of(2));
        let answers: Vec<(u64, Reply)> = stream::iter(asking)
            .map(async |user| (user, server.poll(DROP, user).await))
            .buffer_unordered(32)
            .collect()
            .await;
        let lost = answers.iter().filter(|(_, reply)| reply.status != 200);
        evicted.extend(lost.map(|(user, reply)| (back.elapsed(), *user, reply.status, reply.code().to_owned())));
        for (user, reply) in answers.iter().filter(|(_, reply)| reply.position().is_some()) {
            assert_eq!(reply.position(), Some(*user), "numbers as before");
        }
        sleep(Duration::from_millis(if found { 500 } else { 50 })).await;
    }
    assert!(found, "Redis was found again");
    assert!(evicted.is_empty(), "{evicted:?} polled again and lost the place: {}", server.log());
    let stats = server.stats(DROP).await;
    assert_eq!(stats["evicted"], 0);
    assert!(
        stats["admittedThrough"].as_u64().unwrap() > moved_before,
        "admission goes on: {stats} after {moved_before}\n{}",
        server.log()
    );
    assert_never_more_than(&moves.of("LIMITED_DROP:42"), 5, tick_ms);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn redis_away_for_one_and_a_half_heartbeats_costs_nobody_the_place() {
    let settings = [
        ("VQ_QUEUE__HEARTBEAT_TIMEOUT_SECONDS", "8"),
        ("VQ_QUEUE__HEARTBEAT_SLACK_SECONDS", "0"),
        ("VQ_QUEUE__TICK_MS", "1000"),
        ("VQ_QUEUE__BATCH_SIZE", "5"),
    ];
    away_and_back(Duration::from_secs(12), &settings, 1_000, Duration::from_secs(12)).await;
}

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn redis_away_for_46_or_58_seconds_costs_nobody_the_place() {
    for away in [46, 58] {
        away_and_back(Duration::from_secs(away), &[("VQ_QUEUE__BATCH_SIZE", "5")], 2_000, Duration::from_secs(20))
            .await;
    }
}

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn redis_away_for_ninety_seconds_costs_nobody_the_place() {
    away_and_back(Duration::from_secs(90), &[("VQ_QUEUE__BATCH_SIZE", "5")], 2_000, Duration::from_secs(20)).await;
}

#[tokio::test]
async fn without_redis_at_the_start_people_go_through_and_queue_once_it_is_there() {
    let mut redis = RedisServer::start();
    redis.kill9();
    let server = serve(&redis, &[]);
    let reply = server.enter(DROP, 7).await;
    assert_eq!((reply.status, reply.state()), (200, "DIRECT_ADMITTED"));
    redis.restart();
    let back = Instant::now();
    // Each time somebody new: who got a direct pass may have it in the store by then.
    let mut user = 8;
    while server.enter(DROP, user).await.state() != "WAITING" {
        user += 1;
        assert!(back.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(50)).await;
    }
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_list_of_active_targets_that_is_none_is_told_once_with_what_to_do() {
    let redis = RedisServer::start();
    let server = serve(&redis, &[("VQ_LOG__LEVEL", "info")]);
    assert_eq!(server.enter(DROP, 7).await.position(), Some(1));
    let mut connection = redis.connection();
    redis::cmd("DEL").arg("queue:active").exec(&mut connection).unwrap();
    redis::cmd("SET").arg("queue:active").arg("x").exec(&mut connection).unwrap();
    let looks = async || {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        let of_sadd = stats.lines().find(|line| line.starts_with("cmdstat_sadd:")).unwrap_or_default();
        let failed = of_sadd.rsplit_once("failed_calls=").and_then(|(_, number)| number.trim().parse::<u64>().ok());
        failed.is_some_and(|failed| failed >= 3)
    };
    until("it has looked three times in vain", Duration::from_secs(20), looks).await;
    let told =
        |log: &str| log.lines().filter(|line| line.contains("the list of active targets cannot be read")).count();
    let log = server.log();
    assert_eq!(told(&log), 1, "{log}");
    let line = log.lines().find(|line| line.contains("cannot be read")).unwrap();
    assert!(["ERROR", "queue:active", "WRONGTYPE", "Remove the key"].iter().all(|word| line.contains(word)), "{line}");
    // A single slow call has no number.
    let queues_on = async || server.enter(DROP, 8).await.position() == Some(2);
    until("targets from before queue on", Duration::from_secs(5), queues_on).await;
    redis::cmd("DEL").arg("queue:active").exec(&mut connection).unwrap();
    let mended = Instant::now();
    while server.enter("limited-drop/99", 7).await.position() != Some(1) {
        assert!(mended.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(50)).await;
    }
    server.await_pass(DROP, 7, Duration::from_secs(5)).await;
    assert_eq!(told(&server.log()), 1);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_redis_at_the_edge_of_its_memory_does_not_make_the_breaker_flap() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let server = serve(&redis, &[("VQ_QUEUE__BATCH_SIZE", "1"), ("VQ_LOG__LEVEL", "info")]);
    enter_all(&server, 50).await;
    let mut connection = redis.connection();
    let used: String = redis::cmd("INFO").arg("memory").query(&mut connection).unwrap();
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let limit = used.trim().parse::<u64>().unwrap() + 4_000_000;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(limit).exec(&mut connection).unwrap();
    // Full, then room for a moment, then full again, some three times a second.
    let over = Arc::new(AtomicBool::new(false));
    let others = std::thread::spawn({
        let over = over.clone();
        move || {
            let fill = |connection: &mut redis::Connection, key: &str, bytes: usize| {
                let text = "x".repeat(bytes);
                let mut set = |at| redis::cmd("SET").arg(format!("{key}:{at}")).arg(&text).exec(connection);
                (0..).find(|at| set(*at).is_err()).expect("it takes no more")
            };
            let mut changes = 0;
            while !over.load(Ordering::SeqCst) {
                // Small ones last, or else there would be room for other small writes.
                let large = fill(&mut connection, "large", 50_000);
                let small = fill(&mut connection, "small", 500);
                changes += 1;
                std::thread::sleep(Duration::from_millis(150));
                let small = (0..small).map(|at| format!("small:{at}"));
                let keys: Vec<String> = small.chain([format!("large:{}", large - 1)]).collect();
                redis::cmd("DEL").arg(keys).exec(&mut connection).unwrap();
                std::thread::sleep(Duration::from_millis(150));
            }
            redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).exec(&mut connection).unwrap();
            changes
        }
    });
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        let reply = server.poll(DROP, 20 + since.elapsed().as_millis() as u64 % 30).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.took < Duration::from_secs(1), "{reply:?}");
        sleep(Duration::from_millis(20)).await;
    }
    over.store(true, Ordering::SeqCst);
    let changes = others.join().unwrap();
    let freed = Instant::now();
    while server.poll(DROP, 50).await.header("x-virtual-queue-degraded").is_some() {
        assert!(freed.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(20)).await;
    }
    let openings = server.log().lines().filter(|line| line.contains("redis unavailable: circuit breaker open")).count();
    println!(
        "redis was full {changes} times in 10 s, the breaker opened {openings} times; queueing again {:?} after",
        freed.elapsed()
    );
    assert!(changes >= 10, "the fault is there at all: {changes}");
    assert!((1..=8).contains(&openings), "{openings}: {}", server.log());
    invariants::assert_hold(&redis);
}
