//! Replicas with different secrets notice each other, and replicas in the middle of a rotation do not.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    invariants,
    redis_server::RedisServer,
    server::{DROP, Reply, SECRET, Server},
};

const OTHER: &str = "another secret of the tests, and of nobody else: 9876543210";
const WARNING: &str = "another replica has another token.secret";
const FAST: [(&str, &str); 2] = [("VQ_QUEUE__TICK_MS", "500"), ("VQ_SERVER__DRAIN_SECONDS", "0")];

fn replica(redis: &RedisServer, port: &str, current: &str, also_accepted: &str) -> Server {
    // In quotes: there are commas in them.
    let also_accepted = &if also_accepted.is_empty() { String::new() } else { format!("[{also_accepted:?}]") };
    let own = [("VQ_SERVER__PORT", port), ("VQ_TOKEN__SECRET", current), ("VQ_TOKEN__ALSO_ACCEPTED", also_accepted)];
    Server::serve(redis, &[&FAST[..], &own].concat())
}

fn port(server: &Server) -> String {
    server.host_and_port().rsplit(':').next().unwrap().to_owned()
}

/// The replica, ended and started again at the same port with other secrets.
fn restarted(redis: &RedisServer, mut server: Server, current: &str, also_accepted: &str) -> Server {
    server.terminate();
    assert!(server.wait().success());
    replica(redis, &port(&server), current, also_accepted)
}

async fn metrics(server: &Server) -> String {
    server.get("/metrics").await.text
}

async fn disagrees(server: &Server, disagrees: bool) -> bool {
    metrics(server).await.contains(&format!("virtual_queue_token_keys_disagree {}\n", u8::from(disagrees)))
}

/// The fingerprint that a replica says it signs with.
async fn fingerprint(server: &Server) -> String {
    let metrics = metrics(server).await;
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("virtual_queue_token_key_info{fingerprint=\""));
    let current = lines.filter_map(|line| line.strip_suffix("\",role=\"current\"} 1")).next();
    current.unwrap_or_else(|| panic!("no current key: {metrics}")).to_owned()
}

#[tokio::test]
async fn replicas_with_different_secrets_name_each_other_until_one_is_put_right() {
    let redis = RedisServer::start();
    let (a, b) = (replica(&redis, "0", SECRET, ""), replica(&redis, "0", OTHER, ""));
    let since = Instant::now();
    for (one, other) in [(&a, &b), (&b, &a)] {
        while !(one.log().contains(WARNING) && disagrees(one, true).await) {
            assert!(since.elapsed() < Duration::from_secs(5), "{}", one.log());
            sleep(Duration::from_millis(50)).await;
        }
        let log = one.log();
        let line = log.lines().find(|line| line.contains(WARNING)).unwrap();
        assert!(line.contains(&format!(":{}/", port(other))), "it names the other: {line}");
        for server in [one, other] {
            let print = fingerprint(server).await;
            assert!(line.contains(&print), "and both keys, as their metrics show them: {line}");
            assert!(server.log().contains(&format!("fingerprint={print}")), "which is logged at the start, too");
        }
    }
    println!("both noticed {:?} after the second had started", since.elapsed());

    // What it means for a buyer.
    a.enter(DROP, 7).await;
    let pass = a.await_pass(DROP, 7, Duration::from_secs(5)).await;
    assert_eq!(b.order(42, 7, Some(&pass)).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));

    sleep(Duration::from_secs(2)).await;
    assert_eq!(a.log().matches(WARNING).count(), 1, "once a change");
    let b = restarted(&redis, b, SECRET, "");
    let since = Instant::now();
    while !(disagrees(&a, false).await && disagrees(&b, false).await) {
        assert!(since.elapsed() < Duration::from_secs(5));
        sleep(Duration::from_millis(50)).await;
    }
    assert!(a.log().contains("accept each other's passes again"), "{}", a.log());
    assert!(!b.log().contains(WARNING));
    let pass = a.await_pass(DROP, 7, Duration::from_secs(5)).await;
    assert_eq!(b.order(42, 7, Some(&pass)).await.status, 201);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_rotation_step_by_step_warns_nobody_and_sends_nobody_back() {
    let redis = RedisServer::start();
    let mut replicas = vec![replica(&redis, "0", SECRET, ""), replica(&redis, "0", SECRET, "")];
    let mut logs = String::new();
    replicas[0].enter(DROP, 7).await;
    let pass = replicas[0].await_pass(DROP, 7, Duration::from_secs(5)).await;
    let known = || -> Vec<String> {
        redis::cmd("ZRANGE").arg("queue:replicas").arg(&["0", "-1"]).query(&mut redis.connection()).unwrap()
    };
    for (current, also_accepted) in [(SECRET, OTHER), (OTHER, SECRET), (OTHER, "")] {
        for _ in 0..2 {
            let next = replicas.remove(0);
            let before = known();
            replicas.push(restarted(&redis, next, current, also_accepted));
            // Until both have told, and then once more, so that both have seen the other.
            let since = Instant::now();
            while known().len() != 2 || known() == before {
                assert!(since.elapsed() < Duration::from_secs(5), "{:?}", known());
                sleep(Duration::from_millis(20)).await;
            }
            sleep(Duration::from_millis(1100)).await;
            for server in &replicas {
                assert!(disagrees(server, false).await, "{current} {also_accepted}: {:?}", known());
            }
            if also_accepted == SECRET {
                assert_eq!(replicas[1].poll(DROP, 7).await.status, 200);
            }
        }
        logs.extend(replicas.iter().map(Server::log));
    }
    assert!(!logs.contains(WARNING), "{logs}");
    assert!(known().iter().all(|text| !text.contains(OTHER) && !text.contains(SECRET)), "{:?}", known());
    let refused: Reply = replicas[0].order(42, 7, Some(&pass)).await;
    assert_eq!(refused.status, 403, "the old secret is gone");
    invariants::assert_hold(&redis);
}
