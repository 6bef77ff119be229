//! A replica that cannot read the flag when it starts: nobody knows whether the queue is on, which is not off.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    invariants,
    proxy::Proxy,
    redis_group::{Cluster, RANGES, ask, cluster_info, until},
    redis_server::RedisServer,
    server::{DROP, Reply, Server},
};

const OFF_BY_DEFAULT: (&str, &str) = ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "false");
const IN_EARNEST: (&str, &str) = ("VQ_REDIS__COMMAND_TIMEOUT_MS", "200");

async fn turn_on(server: &Server) {
    assert_eq!(server.set_flag(json!({ "enabled": true, "reason": "the sale" })).await.status, 200);
}

fn serve(url: &str, settings: &[(&str, &str)]) -> Server {
    let began = Instant::now();
    let server = Server::serve_at(url, &[&[OFF_BY_DEFAULT, IN_EARNEST], settings].concat());
    println!("{settings:?}: listening after {:?}", began.elapsed());
    server
}

fn is_marked(reply: &Reply) -> bool {
    reply.header("x-virtual-queue-degraded") == Some("redis")
}

/// What readiness and metrics say of the flag.
async fn assert_known(server: &Server, known: bool) {
    let ready = server.get("/health/ready").await;
    let word = if known { "known" } else { "unknown" };
    assert_eq!((ready.status, &ready.body["flag"]), (200, &word.into()), "{ready:?}");
    let metrics = server.get("/metrics").await.text;
    let gauge = format!("virtual_queue_flag_known {}", u8::from(known));
    assert!(metrics.lines().any(|line| line == gauge), "{metrics}");
}

/// Waits until it is known, at most 3 s since then.
async fn becomes_known(server: &Server, since: Instant) {
    while server.get("/health/ready").await.body["flag"] != "known" {
        assert!(since.elapsed() < Duration::from_secs(3), "{}", server.log());
        sleep(Duration::from_millis(20)).await;
    }
    println!("the flag was known {:?} after redis was back", since.elapsed());
}

/// (entering, an order without any pass): status, and whether the answer says that it was given without Redis.
async fn doors(server: &Server, user: u64) -> [(u16, bool); 2] {
    let (entered, ordered) = (server.enter(DROP, user).await, server.order(42, user, None).await);
    assert!(entered.took.max(ordered.took) < Duration::from_secs(1), "{entered:?} {ordered:?}");
    [(entered.status, is_marked(&entered)), (ordered.status, is_marked(&ordered))]
}

#[tokio::test]
async fn a_replica_started_while_redis_is_away_opens_the_gate_only_where_on_failure_says_so() {
    let mut redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "no"]);
    turn_on(&Server::serve(&redis, &[OFF_BY_DEFAULT])).await;
    redis.kill9();
    let on = [("VQ_REDIS__ON_FAILURE", "open"), ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "true")];
    let throttle = [("VQ_REDIS__ON_FAILURE", "throttle"), ("VQ_REDIS__REPLICAS", "1")];
    let refused = (403, false);
    let through = (200, true);
    let servers = [
        (&[("VQ_REDIS__ON_FAILURE", "closed")][..], [(503, true), refused], "counts as on for everybody"),
        (&throttle, [through, refused], "counts as on for everybody"),
        (&on, [through, refused], "counts as on for everybody"),
        (&[("VQ_REDIS__ON_FAILURE", "open")], [through, (201, true)], "everybody is let through"),
    ]
    .map(|(settings, doors, says)| (serve(&redis.url(), settings), doors, says));
    for (server, expected, says) in &servers {
        assert_eq!(doors(server, 7).await, *expected);
        assert_known(server, false).await;
        assert!(server.log().contains("refused"), "{}", server.log());
        assert!(server.log().contains(says) && !server.log().contains("the last rule stays"), "{}", server.log());
    }
    let (closed, throttled, open) = (&servers[0].0, &servers[1].0, &servers[3].0);
    let first = throttled.enter(DROP, 8).await;
    assert_eq!((first.status, first.position()), (200, None), "no more than its share, a tick after the start");
    assert_eq!(open.enter(DROP, 7).await.state(), "DIRECT_ADMITTED");
    let metrics = open.get("/metrics").await.text;
    for counted in [r#"{operation="enter"} 2"#, r#"{operation="gate"} 1"#] {
        assert!(metrics.contains(&format!("virtual_queue_redis_degraded_total{counted}")), "{metrics}");
    }
    // Who has a pass buys on, whatever is known.
    let pass = open.enter(DROP, 9).await.pass().unwrap();
    assert_eq!(closed.order(42, 9, Some(&pass)).await.status, 201);

    redis.restart();
    let back = Instant::now();
    for (server, _, _) in &servers {
        becomes_known(server, back).await;
        assert_eq!(server.order(42, 10, None).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
        while server.enter(DROP, 11).await.position().is_none() {
            assert!(back.elapsed() < Duration::from_secs(4), "{}", server.log());
            sleep(Duration::from_millis(20)).await;
        }
        assert_known(server, true).await;
    }
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_replica_started_with_a_slow_redis_has_read_the_flag_before_it_listens() {
    let redis = RedisServer::start();
    turn_on(&Server::serve(&redis, &[OFF_BY_DEFAULT])).await;
    let slow = Proxy::before(&redis);
    for round_trip in [190, 300] {
        slow.delay(Duration::from_millis(round_trip));
        let server = serve(&slow.url(), &[("VQ_REDIS__COMMAND_TIMEOUT_MS", "1000")]);
        assert_eq!(server.order(42, 7, None).await.refusal(), (403, "QUEUE_BYPASS_DENIED"), "{}", server.log());
        assert_known(&server, true).await;
    }
}

#[tokio::test]
async fn a_start_waits_a_little_for_a_redis_that_hangs() {
    let redis = RedisServer::start();
    turn_on(&Server::serve(&redis, &[OFF_BY_DEFAULT])).await;
    redis.stop();
    let began = Instant::now();
    let server = serve(&redis.url(), &[("VQ_REDIS__ON_FAILURE", "closed")]);
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert_known(&server, false).await;
    assert_eq!(server.order(42, 7, None).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
    redis.cont();
    becomes_known(&server, Instant::now()).await;
}

#[tokio::test]
async fn in_a_cluster_without_the_flags_master_a_new_replica_queues_for_the_targets_of_the_others() {
    let mut cluster = Cluster::start(false);
    let settings = cluster.settings(0);
    let nodes: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let serve = |mode: &[(&str, &str)]| serve("redis://nobody.invalid", &[&nodes[..], mode].concat());
    turn_on(&serve(&[])).await;
    let slot: u16 = ask(&mut cluster.masters[0].connection(), &["CLUSTER", "KEYSLOT", "{flags}:audit"]);
    let of_flags = RANGES.iter().position(|(first, last)| (*first..=*last).contains(&slot)).unwrap();
    let drop = cluster.drop_at((of_flags + 1) % 3, 1);
    cluster.masters[of_flags].kill9();
    let closed = serve(&[("VQ_REDIS__ON_FAILURE", "closed")]);
    let path = format!("limited-drop/{drop}");
    assert_eq!(closed.order(drop, 7, None).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
    assert_eq!(closed.enter(&path, 7).await.position(), Some(1), "its master is there");
    assert_known(&closed, false).await;
    let open = serve(&[("VQ_REDIS__ON_FAILURE", "open")]);
    let (entered, ordered) = (open.enter(&path, 8).await, open.order(drop, 8, None).await);
    assert_eq!((entered.state(), is_marked(&entered)), ("DIRECT_ADMITTED", true));
    assert_eq!((ordered.status, is_marked(&ordered)), (201, true));
    cluster.masters[of_flags].restart();
    // It refuses for two seconds after it has come back.
    until("it takes its slots again", || cluster_info(&cluster.masters[of_flags], "cluster_state") == "ok");
    let back = Instant::now();
    for server in [&closed, &open] {
        becomes_known(server, back).await;
    }
}
