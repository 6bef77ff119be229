//! One Redis behind one name, and a failover: the name comes to lead to another server, while the one from before lives
//! on, takes no writes, and keeps the connections that were made to it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    invariants,
    proxy::Proxy,
    redis_group::ask,
    redis_process::free_port,
    redis_server::RedisServer,
    seen::until,
    server::{DROP, Reply, Server},
};

const SETTINGS_KEY: &str = "queue:{LIMITED_DROP:42}:settings";
const STATS_KEY: &str = "queue:{LIMITED_DROP:42}:stats";
const MARK_KEY: &str = "queue:{LIMITED_DROP:42}:admitted_count";
/// Persons 1 to 5 poll throughout, 6 to 10 say nothing while Redis fails over.
const ASKING: u64 = 5;
const PEOPLE: u64 = 10;

/// What becomes of the old master.
#[derive(Debug, Clone, Copy)]
enum Old {
    /// A replica of the new one.
    Follows,
    /// A replica of a server that is not there: it hears of no change made at the new one.
    IsAlone,
    /// The same, and it answers nothing, not even what reads.
    IsStale,
    /// A master that lacks the replicas it needs to take writes.
    LacksReplicas,
}

impl Old {
    /// How it refuses, in small letters.
    fn codes(self) -> &'static [&'static str] {
        match self {
            Self::Follows => &["readonly", "loading"],
            Self::IsAlone => &["readonly"],
            Self::IsStale => &["masterdown"],
            Self::LacksReplicas => &["noreplicas"],
        }
    }

    fn become_it(self, old: &mut redis::Connection, new: &RedisServer) {
        let follow = |old: &mut redis::Connection, port: u16| {
            ask::<()>(old, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
        };
        match self {
            Self::Follows => follow(old, new.port()),
            Self::IsAlone => follow(old, free_port()),
            Self::IsStale => {
                let () = ask(old, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
                follow(old, free_port());
            }
            // Its only replica has just left it.
            Self::LacksReplicas => ask::<()>(old, &["CONFIG", "SET", "min-replicas-to-write", "1"]),
        }
    }
}

/// How many connections of this kind a server has.
fn clients(connection: &mut redis::Connection, kind: &str) -> usize {
    let list: String = ask(connection, &["CLIENT", "LIST", "TYPE", kind]);
    list.lines().filter(|line| !line.is_empty()).count()
}

fn is_degraded(reply: &Reply) -> bool {
    reply.header("x-virtual-queue-degraded").is_some()
}

/// A failover in a paused queue. `name_is_late`: the name leads to the new master only when the old one has refused.
async fn fail_over(old_one: Old, on_failure: &str, name_is_late: bool) {
    let old = RedisServer::start_here(&[], &[]);
    let new = RedisServer::start_here(&["--replicaof", "127.0.0.1", &old.port().to_string()], &[]);
    let name = Proxy::before(&old);
    let (mut on_old, mut on_new) = (old.connection(), new.connection());
    let () = ask(&mut on_old, &["HSET", SETTINGS_KEY, "version", "1", "paused", "1"]);
    let settings = [
        ("VQ_REDIS__ON_FAILURE", on_failure),
        ("VQ_QUEUE__BATCH_SIZE", "1"),
        ("VQ_QUEUE__TICK_MS", "500"),
        ("VQ_LOG__LEVEL", "info"),
    ];
    let server = Server::serve_at(&name.url(), &settings);
    for user in 1..=PEOPLE {
        assert_eq!(server.enter(DROP, user).await.position(), Some(user));
    }
    let case = format!("{old_one:?}, {on_failure}, the name is late: {name_is_late}");
    let limit = Duration::from_secs(20);
    until("it listens, and ticks", limit, async || {
        let pulse: Option<u64> = ask(&mut on_old, &["HGET", STATS_KEY, "pulse"]);
        clients(&mut on_old, "pubsub") == 1 && pulse.is_some()
    })
    .await;
    until("the replica has it all", limit, async || ask::<u64>(&mut on_old, &["WAIT", "1", "100"]) == 1).await;

    if !name_is_late {
        name.lead_new_ones_to(&new);
    }
    let () = ask(&mut on_new, &["REPLICAOF", "NO", "ONE"]);
    old_one.become_it(&mut on_old, &new);
    let (mut asked, mut let_through) = (0, 0);
    let mut poll = async || {
        let reply = server.poll(DROP, 1 + asked % ASKING).await;
        asked += 1;
        let_through += u64::from(reply.state() == "DIRECT_ADMITTED");
        let as_it_should_be = match on_failure {
            "closed" => reply.status == 503 || (reply.status == 200 && reply.state() == "WAITING"),
            _ => reply.status == 200,
        };
        assert!(as_it_should_be, "{case}: {reply:?}");
        !is_degraded(&reply)
    };
    // Only what a server refuses: on a busy machine a probe may be late for once.
    let refusals = || -> Vec<String> {
        let refuses = |line: &str| old_one.codes().iter().any(|code| line.to_lowercase().contains(code));
        let away = |line: &&str| line.contains("circuit breaker open") && refuses(line);
        server.log().lines().filter(away).map(str::to_owned).collect()
    };
    // The probe writes once a second.
    let seen = async || {
        poll().await;
        !refusals().is_empty()
    };
    until(&format!("{case}: the old one refuses"), Duration::from_secs(3), seen).await;
    if name_is_late {
        name.lead_new_ones_to(&new);
    }
    let since = Instant::now();
    until(&format!("{case}: queueing again"), Duration::from_secs(3), &mut poll).await;
    println!(
        "{case}: queueing again after {:?}, {let_through} of {asked} answers let somebody through",
        since.elapsed()
    );

    // Who said nothing has the number from before, and the queue is paused as before.
    for user in ASKING + 1..=PEOPLE {
        let reply = server.poll(DROP, user).await;
        assert_eq!((reply.state(), reply.position()), ("WAITING", Some(user)), "{case}: {reply:?}\n{}", server.log());
        assert_eq!(reply.body["paused"], true, "{case}: {reply:?}");
    }
    // Not one connection of ours is left at the old one, and we listen at the new one.
    until(&format!("{case}: all connections are new"), limit, async || {
        (clients(&mut on_old, "normal"), clients(&mut on_old, "pubsub"), clients(&mut on_new, "pubsub")) == (1, 0, 1)
    })
    .await;
    let changed = server.set_flag(json!({ "enabled": true, "reason": "after the failover" })).await;
    assert_eq!(changed.status, 200, "{case}: {changed:?}");
    let stored: String = ask(&mut on_new, &["GET", "flags:virtual-queue.enabled"]);
    assert!(stored.contains("after the failover"), "{case}: {stored}");

    // The pump goes on, for many ticks.
    let () = ask(&mut on_new, &["HSET", SETTINGS_KEY, "version", "2", "paused", "0"]);
    until(&format!("{case}: batches go"), limit, async || {
        let mark: Option<u64> = ask(&mut on_new, &["GET", MARK_KEY]);
        let reply = server.poll(DROP, PEOPLE).await;
        assert!(!is_degraded(&reply) && reply.status == 200, "{case}: {reply:?}\n{}", server.log());
        mark.is_some_and(|mark| mark >= 4)
    })
    .await;
    let [refusal] = &refusals()[..] else { panic!("{case}: the breaker flaps: {}", server.log()) };
    println!("{case}: {refusal}");
    invariants::assert_hold(&new);
}

#[tokio::test]
async fn behind_one_name_a_failover_leaves_no_connection_at_the_old_master_and_queueing_resumes() {
    join_all([
        fail_over(Old::Follows, "open", false),
        fail_over(Old::Follows, "closed", true),
        fail_over(Old::IsAlone, "closed", false),
        fail_over(Old::IsStale, "open", true),
        fail_over(Old::LacksReplicas, "closed", false),
    ])
    .await;
}
