//! A thousand targets at once: each gets its tick in time, however many replicas there are, and what that costs.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};

use crate::{
    invariants::{self, assert_never_more_than},
    redis_server::RedisServer,
    server::{Reply, Server},
};

const TARGETS: u64 = 1000;
const TICK_MS: u64 = 2000;
/// How long it is measured what all this costs.
const WATCH: Duration = Duration::from_secs(10);
/// In each queue, one a tick.
const PEOPLE: u64 = 10;

fn target(id: u64) -> String {
    format!("limited-drop/{}", 100_000 + id)
}

/// What Redis has done so far: (calls by command, seconds of processor time).
fn done_by(connection: &mut redis::Connection) -> (BTreeMap<String, u64>, f64) {
    let info: String = redis::cmd("INFO").arg(&["commandstats", "cpu"]).query(connection).unwrap();
    let mut calls = BTreeMap::new();
    let mut cpu = 0.0;
    for line in info.lines() {
        if let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) {
            calls.insert(name.to_owned(), rest.split(',').next().unwrap().parse().unwrap());
        } else if let Some((_, seconds)) = line.split_once("used_cpu_user:").or(line.split_once("used_cpu_sys:")) {
            cpu += seconds.trim().parse::<f64>().unwrap();
        }
    }
    (calls, cpu)
}

/// When each target began and its batches went (Redis's ms, people). It remembers them for a minute.
fn batches(connection: &mut redis::Connection) -> Vec<(u64, Vec<(u64, u64)>)> {
    let mut ask = redis::pipe();
    for id in 1..=TARGETS {
        ask.cmd("HMGET").arg(format!("queue:{{LIMITED_DROP:{}}}:stats", 100_000 + id)).arg(&["born", "recent"]);
    }
    let all: Vec<(u64, String)> = ask.query(connection).unwrap();
    let pair = |pair: &str| pair.split_once(':').map(|(at, people)| (at.parse().unwrap(), people.parse().unwrap()));
    all.into_iter().map(|(born, recent)| (born, recent.split(' ').filter_map(pair).collect())).collect()
}

/// Some hundred polls a second, until told to stop; how long each took.
async fn poll_some(server: &Server, until: Instant) -> Vec<Duration> {
    let mut took = Vec::new();
    let mut id = 0;
    while Instant::now() < until {
        let polls = (0..10).map(|n| async move {
            let reply: Reply = server.poll(&target((id + n * 97) % TARGETS + 1), PEOPLE).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            reply.took
        });
        took.extend(futures_util::future::join_all(polls).await);
        id += 1;
        sleep(Duration::from_millis(100)).await;
    }
    took.sort_unstable();
    took
}

async fn each_target_gets_its_tick(replicas: usize) {
    let redis = RedisServer::start();
    let settings = [("VQ_QUEUE__MAX_ACTIVE_TARGETS", "2000"), ("VQ_QUEUE__BATCH_SIZE", "1"), ("VQ_LOG__LEVEL", "info")];
    let servers: Vec<Server> = (0..replicas).map(|_| Server::serve(&redis, &settings)).collect();
    let began = Instant::now();
    for user in 1..=PEOPLE {
        let enters = stream::iter(1..=TARGETS)
            .map(async |id| servers[id as usize % replicas].enter(&target(id), user).await.status)
            .buffer_unordered(32);
        assert!(enters.all(async |status| status == 200).await);
    }
    println!("{} entered in {:?}", TARGETS * PEOPLE, began.elapsed());
    // All are known to all.
    sleep(Duration::from_secs(3)).await;

    let mut connection = redis.connection();
    let own_cpu = || servers.iter().map(Server::cpu_seconds).sum::<f64>();
    let (calls_before, redis_before, own_before) = {
        let (calls, cpu) = done_by(&mut connection);
        (calls, cpu, own_cpu())
    };
    let watch = Instant::now();
    let took = poll_some(&servers[0], watch + WATCH).await;
    let seconds = watch.elapsed().as_secs_f64();
    let (calls, redis_cpu) = done_by(&mut connection);
    let own_cpu = own_cpu() - own_before;
    let batches = batches(&mut connection);

    let a_second = |name: &str| (calls[name] - calls_before.get(name).unwrap_or(&0)) as f64 / seconds;
    let all: f64 = calls.keys().map(|name| a_second(name)).sum();
    println!(
        "{replicas} replica(s), {TARGETS} targets: {:.0} scripts a second, {all:.0} commands with those inside them; \
         processor: Redis {:.0} %, replicas {:.0} % together; polls p50 {:?} p99 {:?} max {:?}",
        a_second("evalsha"),
        (redis_cpu - redis_before) / seconds * 100.0,
        own_cpu / seconds * 100.0,
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took[took.len() - 1],
    );
    let mut gaps: Vec<u64> = Vec::new();
    for (id, (born, moved)) in batches.iter().enumerate() {
        assert!(moved.len() >= 5, "target {id}: {moved:?}");
        if moved[moved.len() - 1].0 - born < 55_000 {
            gaps.push(moved[0].0 - born);
        }
        gaps.extend(moved.windows(2).map(|pair| pair[1].0 - pair[0].0));
        assert_never_more_than(moved, 1, TICK_MS);
    }
    gaps.sort_unstable();
    let (most, longest) = (gaps[gaps.len() * 99 / 100], gaps[gaps.len() - 1]);
    println!("from batch to batch p50 {} ms, p99 {most} ms, longest {longest} ms", gaps[gaps.len() / 2]);
    // A debug build beside other tests may miss a tick where the machine is too slow for it; a release build may not.
    let limit = if std::env::var_os("SERVER_UNDER_TEST").is_some() { 3000 } else { 5000 };
    assert!(most <= 3000 && longest <= limit, "each gets its tick within 3 s");
    let degraded = r#"virtual_queue_redis_degraded_total{operation="status"}"#;
    assert!(!servers[0].get("/metrics").await.text.contains(degraded), "polls are unharmed");
    invariants::assert_hold(&redis);
}

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn a_thousand_targets_get_their_ticks_from_one_replica() {
    each_target_gets_its_tick(1).await;
}

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn a_thousand_targets_get_their_ticks_from_three_replicas() {
    each_target_gets_its_tick(3).await;
}
