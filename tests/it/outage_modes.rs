//! What `redis.on_failure` does, and what becomes of the people let through meanwhile, with real processes.

use std::{collections::HashMap, time::Duration};

use futures_util::{StreamExt, future::join_all, stream};
use tokio::time::{Instant, sleep};

use crate::{
    invariants,
    redis_server::RedisServer,
    server::{DROP, Reply, Server},
};

/// The budget buyers have in earnest.
const IN_EARNEST: (&str, &str) = ("VQ_REDIS__COMMAND_TIMEOUT_MS", "200");

fn durable() -> RedisServer {
    RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"])
}

async fn enter_all(server: &Server, people: u64) {
    for user in 1..=people {
        assert_eq!(server.enter(DROP, user).await.position(), Some(user));
    }
}

async fn poll_all(server: &Server, people: impl Iterator<Item = u64>) -> HashMap<u64, Reply> {
    stream::iter(people).map(async |user| (user, server.poll(DROP, user).await)).buffer_unordered(32).collect().await
}

/// Waits until the server has its store back, and has handed over what it owed it.
async fn back(server: &Server, people_owed: bool) {
    let since = Instant::now();
    while server.get(&format!("/virtual-queues/{DROP}/stats")).await.status != 200
        || (people_owed && !server.log().contains("people admitted during the outage are recorded"))
    {
        assert!(since.elapsed() < Duration::from_secs(4), "not back: {}", server.log());
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn whoever_was_let_through_during_an_outage_keeps_the_pass_no_place_and_buys_once() {
    let mut redis = durable();
    let server = Server::serve(&redis, &[IN_EARNEST, ("VQ_QUEUE__BATCH_SIZE", "1")]);
    enter_all(&server, 300).await;
    redis.kill9();
    // 101 to 300 ask during the outage, and 301 to 310 come only then.
    let mut let_through = poll_all(&server, 101..=300).await;
    for user in 301..=310 {
        let_through.insert(user, server.enter(DROP, user).await);
    }
    assert!(let_through.values().all(|reply| (reply.status, reply.state()) == (200, "DIRECT_ADMITTED")));
    let pass = |user: u64| let_through[&user].pass().unwrap();
    let bought = server.order(42, 150, Some(&pass(150))).await;
    assert_eq!(bought.status, 201, "no purchase is blocked: {bought:?}");
    redis.restart();
    back(&server, true).await;

    let found = poll_all(&server, (101..=310).filter(|user| *user != 150)).await;
    for (user, reply) in &found {
        assert_eq!((reply.status, reply.state()), (200, "ADMITTED"), "{user}: {reply:?}");
        assert_eq!(reply.pass().unwrap(), pass(*user), "the same, byte for byte");
    }
    for user in [101, 305] {
        assert_eq!(server.order(42, user, Some(&pass(user))).await.status, 201);
        assert_eq!(server.order(42, user, Some(&pass(user))).await.refusal().0, 403, "and no second purchase");
        assert_eq!(server.poll(DROP, user).await.code(), "NOT_IN_QUEUE");
    }
    // The purchase made without the store is settled late; then that pass is as dead as the others.
    let since = Instant::now();
    while server.order(42, 150, Some(&pass(150))).await.code() != "QUEUE_BYPASS_DENIED" {
        assert!(since.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(100)).await;
    }
    let waiting = poll_all(&server, 20..=100).await;
    assert!(waiting.iter().all(|(user, reply)| reply.position() == Some(*user)), "who did not ask waits as before");
    let stats = server.stats(DROP).await;
    assert_eq!(stats["evicted"], 0);
    assert_eq!(stats["direct"], 210);
    server.assert_tells_no_secret().await;
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_place_goes_also_where_the_outage_outlasted_the_pass() {
    let mut redis = durable();
    let settings = [IN_EARNEST, ("VQ_QUEUE__BATCH_SIZE", "1"), ("VQ_TOKEN__TTL_SECONDS", "3")];
    let server = Server::serve(&redis, &settings);
    enter_all(&server, 60).await;
    redis.kill9();
    poll_all(&server, 31..=60).await;
    sleep(Duration::from_secs(4)).await;
    redis.restart();
    back(&server, true).await;
    let found = poll_all(&server, 20..=60).await;
    for (user, reply) in &found {
        if *user <= 30 {
            assert_eq!(reply.position(), Some(*user));
        } else {
            assert_eq!(reply.code(), "NOT_IN_QUEUE", "{user} has had the turn");
        }
    }
    let stats = server.stats(DROP).await;
    assert_eq!((&stats["left"], &stats["evicted"]), (&30.into(), &0.into()));
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn closed_answers_503_to_buyers_and_lets_valid_passes_buy() {
    let mut redis = durable();
    let settings = [IN_EARNEST, ("VQ_REDIS__ON_FAILURE", "closed"), ("VQ_QUEUE__BATCH_SIZE", "5")];
    let server = Server::serve(&redis, &settings);
    enter_all(&server, 30).await;
    let pass = server.await_pass(DROP, 1, Duration::from_secs(5)).await;
    redis.kill9();
    let since = Instant::now();
    while server.poll(DROP, 2).await.status != 503 {
        assert!(since.elapsed() < Duration::from_secs(1));
    }
    for reply in [server.poll(DROP, 2).await, server.enter(DROP, 99).await] {
        assert_eq!(reply.refusal(), (503, "STORE_UNAVAILABLE"));
        let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3).contains(&seconds));
        assert_eq!(reply.header("x-virtual-queue-degraded"), Some("redis"));
        assert!(reply.took < Duration::from_millis(500));
    }
    assert_eq!(server.leave(DROP, 3).await.status, 204);
    assert_eq!(server.order(42, 1, Some(&pass)).await.status, 201, "a pass is checked without the store");
    assert_eq!(server.order(42, 2, None).await.refusal().0, 403);
    assert_eq!(server.get("/health/ready").await.status, 200, "or a balancer would take out all replicas at once");
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains(r#"virtual_queue_redis_degraded_total{operation="status"}"#), "{metrics}");
    redis.restart();
    back(&server, false).await;
    assert_eq!(server.poll(DROP, 30).await.position(), Some(30));
    let stats = server.stats(DROP).await;
    assert_eq!((&stats["direct"], &stats["evicted"]), (&0.into(), &0.into()));
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn throttle_with_three_replicas_lets_at_most_the_target_through() {
    let mut redis = durable();
    let settings = [
        IN_EARNEST,
        ("VQ_REDIS__ON_FAILURE", "throttle"),
        ("VQ_REDIS__REPLICAS", "3"),
        ("VQ_QUEUE__BATCH_SIZE", "7"),
        ("VQ_QUEUE__TICK_MS", "1000"),
    ];
    let servers: Vec<Server> = (0..3).map(|_| Server::serve(&redis, &settings)).collect();
    enter_all(&servers[0], 90).await;
    // Long enough for every replica to have seen that there is a queue.
    sleep(Duration::from_millis(1500)).await;
    redis.kill9();
    let killed = Instant::now();
    // (when the answer came, the pass) of everybody let through, everybody at a replica of their own.
    let mut through: HashMap<u64, (Instant, String)> = HashMap::new();
    while killed.elapsed() < Duration::from_secs(6) {
        let answers = join_all((1..=90u64).map(async |user| {
            let reply = servers[user as usize % 3].poll(DROP, user).await;
            (user, Instant::now(), reply)
        }));
        for (user, at, reply) in answers.await {
            assert_eq!(reply.status, 200, "{reply:?}");
            match reply.state() {
                "DIRECT_ADMITTED" => {
                    let (_, pass) = through.entry(user).or_insert_with(|| (at, reply.pass().unwrap()));
                    assert_eq!(*pass, reply.pass().unwrap(), "the same pass each time, and one slot");
                }
                state => {
                    assert_eq!((state, reply.position(), through.contains_key(&user)), ("WAITING", None, false));
                    assert_eq!(reply.header("x-virtual-queue-degraded"), Some("redis"));
                    assert!(reply.body["pollAfterSeconds"] == 1, "{reply:?}");
                }
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    let elapsed = killed.elapsed();
    let first = through.values().map(|(at, _)| *at - killed).min().unwrap();
    println!("{} of 90 let through in {elapsed:?}, the first after {first:?}", through.len());
    assert!(first >= Duration::from_millis(900), "not on top of the batch before: {first:?}");
    // Two a replica and tick, the first tick's worth at the end of the first tick.
    let most = 6 * elapsed.as_millis().div_ceil(1000) as usize;
    assert!(through.len() <= most, "{} people in {elapsed:?}", through.len());
    assert!(through.len() >= 18, "and not many fewer: {}", through.len());
    redis.restart();
    for server in &servers {
        back(server, true).await;
    }
    for (user, (_, pass)) in &through {
        let reply = servers[0].poll(DROP, *user).await;
        assert_eq!((reply.state(), reply.pass().as_ref()), ("ADMITTED", Some(pass)), "{user}, at another replica too");
    }
    let stats = servers[0].stats(DROP).await;
    assert_eq!(stats["evicted"], 0);
    assert_eq!(stats["direct"], through.len());
    invariants::assert_hold(&redis);
}
