//! Redis fails over to a replica that never got the last writes, and whose clock is right or wrong; and the clock of a
//! Redis steps while it runs. Nobody who polls is evicted, no tick sees two batches, at most one tick is lost.

use std::{collections::BTreeMap, os::unix::fs::FileExt, path::PathBuf, process::Command, time::Duration};

use futures_util::{StreamExt, stream};
use tempfile::TempDir;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::{Instant, sleep};

use crate::{
    invariants::{self, Moves, assert_never_more_than},
    proxy::Proxy,
    redis_server::RedisServer,
    replica_faults::{LABEL, poll_all, redis_ms},
    server::{DROP, Reply, Server, shop_file},
};

const TICK_MS: u64 = 1500;
const BATCH: u64 = 5;
/// The timeout is short, so that a clock 10 s ahead makes everybody look silent. Who comes while Redis is away is told
/// so, since nobody is to be let through past the queue here.
const SETTINGS: [(&str, &str); 5] = [
    ("VQ_QUEUE__BATCH_SIZE", "5"),
    ("VQ_QUEUE__TICK_MS", "1500"),
    ("VQ_QUEUE__HEARTBEAT_TIMEOUT_SECONDS", "9"),
    ("VQ_QUEUE__HEARTBEAT_SLACK_SECONDS", "0"),
    ("VQ_REDIS__ON_FAILURE", "closed"),
];
const PEOPLE: u64 = 100;

/// Persons 1 to [`PEOPLE`] enter, all at once, so that nobody is silent for long already: who has which number.
async fn enter_together(server: &Server) -> BTreeMap<u64, u64> {
    let enter = async |user| (server.enter(DROP, user).await.position().expect("a place"), user);
    stream::iter(1..=PEOPLE).map(enter).buffer_unordered(32).collect().await
}

/// All poll that are still there, and nobody who waits has lost the place.
async fn all_poll(server: &Server, who: &BTreeMap<u64, u64>) {
    let answers: BTreeMap<u64, Reply> = poll_all(server, PEOPLE).await.into_iter().collect();
    for (number, user) in who {
        let reply = &answers[user];
        assert_eq!(reply.status, 200, "number {number} polled and lost the place");
        assert!(reply.state() == "ADMITTED" || reply.position() == Some(*number), "{reply:?}");
    }
}

/// The clock of a Redis, which is as far off as the test likes.
struct Clock {
    dir: TempDir,
    library: PathBuf,
}

impl Clock {
    fn off_by(seconds: i64) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let library = dir.path().join("clock_shim.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clock_shim.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(source).status();
        assert!(built.expect("install cc (Debian: apt-get install gcc)").success());
        std::fs::write(dir.path().join("shift"), 0_i64.to_ne_bytes()).expect("the shift is written");
        let clock = Self { dir, library };
        clock.step_to(seconds);
        clock
    }

    /// So many seconds off from now on. Written in place: the Redis has the file mapped.
    fn step_to(&self, seconds: i64) {
        let file = std::fs::OpenOptions::new().write(true).open(self.dir.path().join("shift")).expect("the shift");
        file.write_all_at(&(seconds * 1_000_000).to_ne_bytes(), 0).expect("the shift is written");
    }

    /// A Redis that goes by it.
    fn start_redis(&self) -> RedisServer {
        let shift = self.dir.path().join("shift");
        let environment = [("LD_PRELOAD", self.library.to_str().unwrap()), ("CLOCK_SHIFT", shift.to_str().unwrap())];
        RedisServer::start_here(&[], &environment)
    }
}

fn mark(connection: &mut redis::Connection) -> u64 {
    redis::cmd("GET").arg(format!("queue:{{{LABEL}}}:admitted_count")).query(connection).unwrap()
}

/// Waits until the mark is there: where it is then.
async fn reached(connection: &mut redis::Connection, at_least: u64) -> u64 {
    let since = Instant::now();
    loop {
        let now = mark(connection);
        if now >= at_least {
            return now;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "no batch goes");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for the next batch: the mark after it.
async fn next_batch(connection: &mut redis::Connection) -> u64 {
    let next = mark(connection) + 1;
    reached(connection, next).await
}

fn is_counted(metrics: &str, direction: &str) -> bool {
    metrics.contains(&format!(r#"virtual_queue_store_clock_steps_total{{direction="{direction}"}} 1"#))
}

/// Seconds until this pass ends, on this Redis's clock.
fn seconds_left(reply: &Reply, connection: &mut redis::Connection) -> i64 {
    let until = OffsetDateTime::parse(reply.body["tokenExpiresAt"].as_str().unwrap(), &Rfc3339).unwrap();
    until.unix_timestamp() - i64::try_from(redis_ms(connection) / 1000).unwrap()
}

/// The master dies and its replica takes over: without the last batch, the passes given on it and the last to enter,
/// and on a clock that is so many seconds off.
async fn fail_over_to_a_clock_off_by(seconds: i64) {
    let mut master = RedisServer::start_here(&[], &[]);
    let clock = Clock::off_by(seconds);
    let replica = clock.start_redis();
    let (link, ways) = (Proxy::before(&master), [Proxy::before(&master), Proxy::before(&master)]);
    let (mut on_master, mut on_replica) = (master.connection(), replica.connection());
    let off = redis_ms(&mut on_replica) as i64 - redis_ms(&mut on_master) as i64;
    assert!((off - seconds * 1000).abs() < 500, "TIME is {off} ms off, not {seconds} s");
    let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(link.port()).query(&mut on_replica).unwrap();

    let shared = tempfile::tempdir().unwrap();
    let database = shop_file(shared.path());
    let settings = [&SETTINGS[..], &[("VQ_DEMO_SHOP__DATABASE", database.as_str())]].concat();
    let servers = ways.each_ref().map(|way| Server::serve_at(&way.url(), &settings));
    let moves = Moves::watch(&master);
    let mut who = enter_together(&servers[0]).await;
    let buyer = who.remove(&1).expect("the first");
    let pass = servers[0].await_pass(DROP, buyer, Duration::from_secs(10)).await;

    // The replica gets what was written up to the middle of a tick, and nothing after.
    all_poll(&servers[1], &who).await;
    let kept = next_batch(&mut on_master).await;
    let (_, replicas): (String, u64) =
        redis::pipe().cmd("SET").arg(&["told", "1"]).cmd("WAIT").arg(&[1, 5000]).query(&mut on_master).unwrap();
    assert_eq!(replicas, 1);
    link.block();
    // One server lost the master before: it sees nothing of the last batch.
    ways[0].cut();
    let lost = next_batch(&mut on_master).await;
    assert_eq!(lost, kept + BATCH);
    let admitted = who[&(kept + 1)];
    let pass_lost = servers[1].poll(DROP, admitted).await.pass().expect("admitted by the batch that is lost");
    let [first_lost, second_lost, stranger] = [PEOPLE + 1, PEOPLE + 2, PEOPLE + 3];
    for user in [first_lost, second_lost] {
        assert_eq!(servers[1].enter(DROP, user).await.position(), Some(user));
    }

    let of_master = moves.of(LABEL);
    let killed = redis_ms(&mut on_master);
    master.kill9();
    let () = redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).query(&mut on_replica).unwrap();
    assert_eq!(mark(&mut on_replica), kept);
    let moves = Moves::watch(&replica);
    for way in &ways {
        way.lead_to(&replica);
        way.heal();
    }
    let since = Instant::now();

    // Whose entry is lost is told so, and may enter again. The number that was lost is given to whoever comes first.
    let told = loop {
        let reply = servers[0].poll(DROP, first_lost).await;
        if reply.status != 503 {
            break reply;
        }
        assert!(since.elapsed() < Duration::from_secs(3), "still {reply:?}");
        sleep(Duration::from_millis(10)).await;
    };
    let served_again = since.elapsed();
    assert_eq!(told.refusal(), (404, "NOT_IN_QUEUE"));
    while servers[1].poll(DROP, second_lost).await.status == 503 {
        assert!(since.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(10)).await;
    }
    for (user, number) in [(stranger, PEOPLE + 1), (second_lost, PEOPLE + 2), (first_lost, PEOPLE + 3)] {
        assert_eq!(servers[0].enter(DROP, user).await.position(), Some(number));
    }
    // A pass buys once, whether or not the new master knows of it.
    assert_eq!(servers[1].poll(DROP, buyer).await.pass(), Some(pass.clone()));
    for (user, pass) in [(buyer, &pass), (admitted, &pass_lost)] {
        assert_eq!(servers[0].order(42, user, Some(pass)).await.status, 201);
        assert_eq!(servers[1].order(42, user, Some(pass)).await.refusal().0, 403, "once");
    }

    // All others are quiet for some ticks, as people are between two polls, and then all are there.
    reached(&mut on_replica, lost + 2 * BATCH).await;
    all_poll(&servers[1], &who).await;
    let second = servers[0].poll(DROP, admitted).await.pass().expect("the place stayed, and with it a second turn");
    assert_eq!(servers[0].order(42, admitted, Some(&second)).await.status, 201);

    // What the new master gives out lasts as long as it should on its clock, and the gate goes by the same clock.
    let issued = servers[0].poll(DROP, who[&lost]).await;
    let left = seconds_left(&issued, &mut on_replica);
    assert!((290..=300).contains(&left), "{left} s left");
    assert_eq!(servers[1].order(42, who[&lost], issued.pass().as_deref()).await.status, 201);
    assert_eq!(servers[0].order(42, who[&lost], issued.pass().as_deref()).await.refusal().0, 403, "once");
    let metrics = servers[0].get("/metrics").await.text;
    assert_eq!((is_counted(&metrics, "forward"), is_counted(&metrics, "back")), (seconds > 0, seconds < 0));

    let on_the_right_clock = |(at, people): &(u64, u64)| (at.checked_add_signed(-1000 * seconds).unwrap(), *people);
    let of_replica: Vec<(u64, u64)> = moves.of(LABEL).iter().map(on_the_right_clock).collect();
    let (waited, gap) = (of_replica[0].0 - killed, of_replica[0].0 - of_master.last().unwrap().0);
    println!(
        "clock {seconds} s off: served again after {served_again:?}; the first batch {waited} ms after the loss, {gap} ms \
         after the last"
    );
    assert_eq!(of_replica[0].1, BATCH, "the batch that was lost is given again, and nothing besides");
    assert!(waited >= TICK_MS, "{waited} ms after the loss");
    assert!(waited < 2 * TICK_MS, "{waited} ms after the loss: more than one tick was lost");
    assert_never_more_than(&[of_master, of_replica].concat(), BATCH, TICK_MS);
    assert_eq!(servers[0].stats(DROP).await["evicted"], 0);
    invariants::assert_hold(&replica);
}

#[tokio::test]
async fn a_failover_that_loses_the_last_writes_costs_at_most_a_tick() {
    fail_over_to_a_clock_off_by(0).await;
}

#[tokio::test]
async fn a_failover_to_a_clock_that_is_10_s_behind_evicts_nobody_and_stalls_nothing() {
    fail_over_to_a_clock_off_by(-10).await;
}

#[tokio::test]
async fn a_failover_to_a_clock_that_is_10_s_ahead_evicts_nobody_and_lets_nobody_in_early() {
    fail_over_to_a_clock_off_by(10).await;
}

#[tokio::test]
async fn a_step_of_a_running_redis_clock_is_counted_and_costs_nobody_the_place() {
    let clock = Clock::off_by(0);
    let redis = clock.start_redis();
    let server = Server::serve(&redis, &SETTINGS);
    let moves = Moves::watch(&redis);
    let who = enter_together(&server).await;
    let mut connection = redis.connection();
    for (seconds, forward, back) in [(10, true, false), (0, true, true)] {
        let mark = next_batch(&mut connection).await;
        all_poll(&server, &who).await;
        clock.step_to(seconds);
        // Quiet for some ticks, as people are between two polls.
        reached(&mut connection, mark + 3 * BATCH).await;
        all_poll(&server, &who).await;
        let metrics = server.get("/metrics").await.text;
        assert_eq!((is_counted(&metrics, "forward"), is_counted(&metrics, "back")), (forward, back));
    }

    // Redis's times of the second part are 10 s late.
    let moves = moves.of(LABEL);
    let parts: Vec<_> = moves.chunk_by(|(at, _), (next, _)| (*at..at + 9_000).contains(next)).collect();
    let [before, stepped, after] = parts[..] else { panic!("two steps: {moves:?}") };
    let stepped: Vec<_> = stepped.iter().map(|(at, people)| (at - 10_000, *people)).collect();
    let gap = |one: &[(u64, u64)], next: &[(u64, u64)]| next[0].0 - one.last().unwrap().0;
    println!(
        "after the step forward a batch {} ms after the last, after the one back {} ms",
        gap(before, &stepped),
        gap(&stepped, after)
    );
    // The known exception: the step forward may bring one batch early, and nothing beyond it.
    assert_never_more_than(&[before, &stepped].concat(), 2 * BATCH, TICK_MS);
    assert_never_more_than(&[&stepped, after].concat(), BATCH, TICK_MS);
    assert_eq!(server.stats(DROP).await["evicted"], 0);
    invariants::assert_hold(&redis);
}
