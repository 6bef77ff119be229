//! `redis.mode = cluster`: targets of all masters, a slot that moves under traffic, a master that dies.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    invariants::{self, Moves, assert_never_more_than},
    redis_group::{Cluster, RANGES, ask, cluster_info, cluster_node, info, until},
    redis_server::{Authority, RedisServer},
    redis_tls::{PASSWORD, documented_user},
    server::{Reply, Server, borrowed},
};

const BATCH: u64 = 3;
const TICK_MS: u64 = 1000;

/// What our user needs in a Cluster besides.
const MORE_RIGHTS: &str = "~{flags}:* +asking +cluster|info +cluster|slots";

/// A cluster in which our user may do what is documented and no more.
fn cluster(replicas: bool) -> Cluster {
    with_our_user(Cluster::start(replicas))
}

fn with_our_user(cluster: Cluster) -> Cluster {
    let document = include_str!("../../migrations-none.md");
    assert!(document.contains(MORE_RIGHTS), "the rights stand there");
    cluster.masters.iter().chain(&cluster.replicas).for_each(let_in);
    cluster
}

fn let_in(server: &RedisServer) {
    let (user, of_the_shop) = (documented_user(), ["~shop:*", "+decr"]);
    let words = ["ACL", "SETUSER"].into_iter().chain(user.iter().map(String::as_str));
    let words: Vec<&str> = words.chain(MORE_RIGHTS.split(' ')).chain(of_the_shop).collect();
    let () = ask(&mut server.connection(), &words);
}

/// A replica of ours that uses the cluster.
fn serve(cluster: &Cluster, more: &[(&str, &str)]) -> Server {
    let settings = cluster.settings(0);
    let own = borrowed(&settings);
    let pace = [("VQ_QUEUE__BATCH_SIZE", "3"), ("VQ_QUEUE__TICK_MS", "1000"), ("VQ_LOG__LEVEL", "info")];
    let url = cluster.masters[0].url_of(&format!("virtual-queue:{PASSWORD}@"));
    Server::serve_at(&url.replace("127.0.0.1", "nobody.invalid"), &[&own[..], &pace, more].concat())
}

/// The budget buyers have in earnest.
const IN_EARNEST: (&str, &str) = ("VQ_REDIS__COMMAND_TIMEOUT_MS", "200");

fn path(drop: u64) -> String {
    format!("limited-drop/{drop}")
}

fn label(drop: u64) -> String {
    format!("LIMITED_DROP:{drop}")
}

fn slot_of(cluster: &Cluster, drop: u64) -> u16 {
    ask(&mut cluster.masters[0].connection(), &["CLUSTER", "KEYSLOT", &format!("queue:{{{}}}:seq", label(drop))])
}

/// One after the other, so that everybody's number is their id.
async fn enter_all(server: &Server, drop: u64, people: u64) {
    for user in 1..=people {
        // Who was not answered in time, on a machine that is busy, asks again.
        let reply = loop {
            let reply = server.enter(&path(drop), user).await;
            if !is_degraded(&reply) {
                break reply;
            }
        };
        assert_eq!(reply.position(), Some(user), "{reply:?}");
    }
}

/// A poll, made again where a busy machine did not answer in time.
async fn answered(server: &Server, drop: u64, user: u64) -> Reply {
    loop {
        let reply = server.poll(&path(drop), user).await;
        if reply.state() == "DIRECT_ADMITTED" || !is_degraded(&reply) {
            return reply;
        }
    }
}

/// People of these drops poll every 200 ms, and now and then enter again, until told to stop; every answer. Each stays with
/// one of the servers.
async fn crowd(
    servers: &[Server],
    drops: &[u64],
    people: std::ops::RangeInclusive<u64>,
    stop: &AtomicBool,
) -> Vec<(Instant, u64, u64, Reply)> {
    let one = async |(drop, user): (u64, u64)| {
        let (mut answers, server) = (Vec::new(), &servers[user as usize % servers.len()]);
        for turn in 0_u64.. {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            let reply = if (turn + user).is_multiple_of(5) {
                server.enter(&path(drop), user).await
            } else {
                server.poll(&path(drop), user).await
            };
            answers.push((Instant::now(), drop, user, reply));
            sleep(Duration::from_millis(200)).await;
        }
        answers
    };
    let everybody: Vec<(u64, u64)> =
        drops.iter().flat_map(|drop| people.clone().map(move |user| (*drop, user))).collect();
    let at_once = everybody.len();
    let all: Vec<Vec<_>> = stream::iter(everybody).map(one).buffer_unordered(at_once).collect().await;
    all.into_iter().flatten().collect()
}

fn is_degraded(reply: &Reply) -> bool {
    reply.header("x-virtual-queue-degraded").is_some()
}

async fn gauge(server: &Server, line: &str) -> bool {
    server.get("/metrics").await.text.lines().any(|found| found == line)
}

/// Everything people and operators do, at targets of all three masters.
async fn queue_buy_and_switch(cluster: &Cluster, drops: [u64; 3], settings: &[(&str, &str)]) {
    let settings = [settings, &[("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "false")]].concat();
    let server = serve(cluster, &settings);
    assert_eq!(server.enter(&path(drops[0]), 1).await.state(), "DIRECT_ADMITTED", "the flag is off");
    let rule = json!({ "enabled": true, "reason": "the sale" });
    assert_eq!(server.set_flag(rule).await.status, 200);
    let other = serve(cluster, &settings);
    for drop in drops {
        enter_all(&server, drop, 10).await;
        // Its first calls over new connections may be too slow on a busy machine: the answer then has no number.
        let knows = async || other.poll(&path(drop), 10).await.position() == Some(10);
        crate::seen::until("the other replica knows rule and place", Duration::from_secs(5), knows).await;
    }
    for drop in drops {
        let pass = server.await_pass(&path(drop), 1, Duration::from_secs(6)).await;
        assert_eq!(other.poll(&path(drop), 1).await.pass(), Some(pass.clone()));
        assert_eq!(server.order(drop, 1, Some(&pass)).await.status, 201);
        assert_eq!(other.order(drop, 1, Some(&pass)).await.refusal().0, 403, "once");
        assert_eq!(server.leave(&path(drop), 10).await.status, 204);
        let stats = other.stats(&path(drop)).await;
        assert_eq!((&stats["entered"], &stats["left"], &stats["consumed"]), (&10.into(), &1.into(), &1.into()));
    }
    // Seats are locked and orders counted by the shop, at masters of their own.
    let event = server.enter("ticketing-event/7", 5).await;
    assert_eq!(event.position(), Some(1), "{event:?}");
    let pass = server.await_pass("ticketing-event/7", 5, Duration::from_secs(6)).await;
    assert_eq!(server.select(7, 5, Some(&pass), &["A1", "A2"]).await.status, 200);
    assert_eq!(server.get("/health/ready").await.body["redis"], "ok");
    assert_eq!(server.set_flag(json!({ "enabled": false, "reason": "over" })).await.status, 200);
    let since = Instant::now();
    while other.enter(&path(drops[1]), 50).await.state() != "DIRECT_ADMITTED" {
        assert!(since.elapsed() < Duration::from_secs(3), "a change is everywhere within 3 s");
        sleep(Duration::from_millis(50)).await;
    }
    cluster.masters.iter().for_each(invariants::assert_hold);
    server.assert_tells_no_secret().await;
}

#[tokio::test]
async fn targets_of_three_masters_queue_buy_and_switch_as_on_one() {
    let cluster = cluster(false);
    let drops = [0, 1, 2].map(|master| cluster.drop_at(master, 100));
    let moves: Vec<Moves> = cluster.masters.iter().map(Moves::watch).collect();
    queue_buy_and_switch(&cluster, drops, &[]).await;
    for (moves, drop) in moves.into_iter().zip(drops) {
        let moves = moves.of(&label(drop));
        assert!(moves.len() >= 2, "{drop} was pumped: {moves:?}");
        assert_never_more_than(&moves, BATCH, TICK_MS);
    }
}

#[tokio::test]
async fn a_cluster_that_speaks_tls_alone_is_used_as_any() {
    let authority = Authority::new();
    let cluster = with_our_user(Cluster::start_secured(&authority));
    let files = authority.settings();
    let drops = [0, 1, 2].map(|master| cluster.drop_at(master, 100));
    queue_buy_and_switch(&cluster, drops, &borrowed(&files)).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_that_is_taken_for_a_lone_redis_is_found_out_by_the_log() {
    let [(owner, _), (empty, bus)] =
        [(); 2].map(|()| cluster_node(|arguments| RedisServer::start_here(arguments, &[])));
    let mut connection = owner.connection();
    let () = ask(&mut connection, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let port = empty.port().to_string();
    let () = ask(&mut connection, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus.to_string()]);
    let is_whole = |one: &RedisServer| {
        cluster_info(one, "cluster_state") == "ok" && cluster_info(one, "cluster_slots_ok") == "16384"
    };
    until("both know that it is whole", || is_whole(&owner) && is_whole(&empty));
    let told = "this redis is a node of a cluster: set redis.mode";

    // One that has nothing takes no probe.
    says(&empty, &["redis unavailable: circuit breaker open", told]).await;
    // One that has the probe's key may not have a target's.
    let slot: u16 = ask(&mut connection, &["CLUSTER", "KEYSLOT", "queue:{LIMITED_DROP:42}:seq"]);
    let id: String = ask(&mut empty.connection(), &["CLUSTER", "MYID"]);
    let () = ask(&mut connection, &["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
    says(&owner, &["something unexpected", told]).await;
}

/// A line of the log of a server on this Redis has these words once somebody has entered, who is answered without Redis.
async fn says(redis: &RedisServer, words: &[&str]) {
    let (server, since) = (Server::serve(redis, &[]), Instant::now());
    loop {
        let reply = server.enter(&path(42), 1).await;
        assert!(reply.status == 200 && is_degraded(&reply), "{reply:?}");
        let log = server.log();
        if log.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "{log}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Moves the slot of a drop from one master to another, one key at a time.
async fn migrate(cluster: &Cluster, slot: u16, from: usize, to: usize, pause: Duration) {
    let (mut source, mut target) = (cluster.masters[from].connection(), cluster.masters[to].connection());
    let (source_id, target_id): (String, String) =
        (ask(&mut source, &["CLUSTER", "MYID"]), ask(&mut target, &["CLUSTER", "MYID"]));
    let slot = slot.to_string();
    let () = ask(&mut target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
    let () = ask(&mut source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
    sleep(pause).await;
    loop {
        let keys: Vec<String> = ask(&mut source, &["CLUSTER", "GETKEYSINSLOT", &slot, "1"]);
        let Some(key) = keys.first() else { break };
        let port = cluster.masters[to].port().to_string();
        let _: String = ask(&mut source, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        sleep(pause).await;
    }
    let () = ask(&mut target, &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
    let () = ask(&mut source, &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
}

#[tokio::test]
async fn a_slot_that_moves_under_traffic_is_no_outage_and_loses_nobody() {
    let cluster = cluster(false);
    let server = serve(&cluster, &[IN_EARNEST]);
    let (moving, still) = (cluster.drop_at(0, 100), cluster.drop_at(1, 100));
    let slot = slot_of(&cluster, moving);
    for drop in [moving, still] {
        enter_all(&server, drop, 100).await;
    }
    let moves: Vec<Moves> = cluster.masters.iter().map(Moves::watch).collect();
    let stop = AtomicBool::new(false);
    let fault = async {
        sleep(Duration::from_secs(2)).await;
        let began = Instant::now();
        migrate(&cluster, slot, 0, 2, Duration::from_millis(100)).await;
        let took = began.elapsed();
        sleep(Duration::from_secs(3)).await;
        stop.store(true, Ordering::SeqCst);
        (began, took)
    };
    let watch_the_breaker = async {
        while !stop.load(Ordering::SeqCst) {
            assert!(gauge(&server, "virtual_queue_redis_breaker_open 0").await, "no outage: {}", server.log());
            assert_eq!(server.get("/health/ready").await.body["redis"], "ok");
            sleep(Duration::from_millis(100)).await;
        }
    };
    let drops = [moving, still];
    let (answers, (began, took), ()) =
        tokio::join!(crowd(std::slice::from_ref(&server), &drops, 61..=100, &stop), fault, watch_the_breaker);
    let blind = |of: u64| answers.iter().filter(|(_, drop, _, reply)| *drop == of && is_degraded(reply)).count();
    let [of_moving, of_still] = [blind(moving), blind(still)];
    println!(
        "the slot moved in {took:?}; of {} answers {of_moving} without numbers, and {of_still} about the other drop",
        answers.len()
    );
    // A busy machine may cost somebody an answer in time now and then.
    assert!(of_moving > 0 && of_still * 10 < of_moving, "the slot that moved and no other");
    for (at, drop, user, reply) in &answers {
        assert_eq!(reply.status, 200, "{drop} {user}: {reply:?}");
        assert!(reply.took < Duration::from_secs(1), "{drop} {user}: {reply:?}");
        assert_ne!(reply.state(), "DIRECT_ADMITTED", "{drop} {user} at {:?}", at.duration_since(began));
        assert!(
            is_degraded(reply) || reply.state() == "ADMITTED" || reply.position() == Some(*user),
            "{drop} {user}: {reply:?}"
        );
        assert!(!is_degraded(reply) || *at <= began + took + Duration::from_millis(500), "only meanwhile: {reply:?}");
    }
    assert!(!server.log().contains("redis unavailable: circuit breaker open"), "{}", server.log());
    let newcomer = server.enter(&path(moving), 500).await;
    assert_eq!(newcomer.position(), Some(101), "the next number is the next number: {newcomer:?}");
    for user in 1..=100 {
        let reply = answered(&server, moving, user).await;
        assert!(reply.state() == "ADMITTED" || reply.position() == Some(user), "{user}: {reply:?}");
    }
    assert_eq!(server.stats(&path(moving)).await["evicted"], 0);
    // What MIGRATE carries over is no move of the mark.
    let mut all: Vec<(u64, u64)> = moves.into_iter().flat_map(|moves| moves.of(&label(moving))).collect();
    all.sort_unstable();
    all.dedup();
    println!("batches (ms of Redis, people): {all:?}");
    assert!(all.len() >= 4, "it goes on ticking");
    assert_never_more_than(&all, BATCH, TICK_MS);
    cluster.masters.iter().for_each(invariants::assert_hold);
}

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn a_master_of_a_cluster_killed_degrades_its_own_targets_alone_until_its_replica_takes_over() {
    let mut cluster = cluster(true);
    let servers = [serve(&cluster, &[IN_EARNEST]), serve(&cluster, &[IN_EARNEST])];
    // The one with the list of active targets.
    let active: u16 = ask(&mut cluster.masters[0].connection(), &["CLUSTER", "KEYSLOT", "queue:active"]);
    let hit = RANGES.iter().position(|(first, last)| (*first..=*last).contains(&active)).expect("one has it");
    let (safe, other) = ((hit + 1) % 3, (hit + 2) % 3);
    let drops = [hit, safe, other].map(|master| cluster.drop_at(master, 100));
    for drop in drops {
        enter_all(&servers[0], drop, 100).await;
    }
    for (master, replica) in cluster.masters.iter().zip(&cluster.replicas) {
        let offset = info(master, "master_repl_offset");
        while info(replica, "slave_repl_offset") < offset {
            sleep(Duration::from_millis(20)).await;
        }
    }
    let mut moves: Vec<Moves> = cluster.masters.iter().map(Moves::watch).collect();
    moves.push(Moves::watch(&cluster.replicas[hit]));
    let newcomers = cluster.drop_at(safe, 5000);
    let stop = AtomicBool::new(false);
    let fault = async {
        sleep(Duration::from_millis(2500)).await;
        cluster.masters[hit].kill9();
        let killed = Instant::now();
        for (server, user) in servers.iter().zip(1..) {
            while !is_degraded(&server.poll(&path(drops[0]), 100).await) {
                assert!(killed.elapsed() < Duration::from_secs(1));
                sleep(Duration::from_millis(10)).await;
            }
            // A new target of a master that lives: the list is away, and that is no outage of this one.
            let reply = server.enter(&path(newcomers), user).await;
            assert_eq!((reply.state(), reply.position()), ("WAITING", Some(user)), "{reply:?}");
            assert_eq!(server.get("/health/ready").await.body["redis"], "degraded");
        }
        let mut again = Vec::new();
        for server in &servers {
            while is_degraded(&server.poll(&path(drops[0]), 90_000).await) {
                assert!(killed.elapsed() < Duration::from_secs(15));
                sleep(Duration::from_millis(20)).await;
            }
            again.push(killed.elapsed());
        }
        sleep(Duration::from_secs(3)).await;
        stop.store(true, Ordering::SeqCst);
        (killed, again)
    };
    let (answers, (killed, again)) = tokio::join!(crowd(&servers, &drops, 81..=100, &stop), fault);
    println!("queueing again {again:?} after the kill, at one and the other");
    let direct = |at: u64| {
        answers.iter().filter(|(_, _, user, reply)| user % 2 == at && reply.state() == "DIRECT_ADMITTED").count()
    };
    assert!(direct(0) > 0 && direct(1) > 0, "both let people through: {} and {}", direct(0), direct(1));
    for (at, drop, user, reply) in &answers {
        assert_eq!(reply.status, 200, "{drop} {user}: {reply:?}");
        assert!(reply.took < Duration::from_secs(1), "{drop} {user}: {reply:?}");
        let after = at.saturating_duration_since(killed);
        let opened = reply.state() == "DIRECT_ADMITTED";
        assert!(*drop == drops[0] || !opened, "{drop} {user} {after:?} after the kill: {reply:?}");
    }
    for drop in drops {
        for user in 1..=80 {
            let reply = answered(&servers[user as usize % 2], drop, user).await;
            assert_eq!(reply.status, 200, "{drop} {user}: {reply:?}");
            assert!(reply.state() == "ADMITTED" || reply.position() == Some(user), "{drop} {user}: {reply:?}");
        }
        assert_eq!(servers[0].stats(&path(drop)).await["evicted"], 0);
    }
    servers[1].await_pass(&path(newcomers), 1, Duration::from_secs(6)).await;
    // Back as a replica: nothing changes. (What was not in its configuration it has forgotten.)
    cluster.masters[hit].restart();
    let_in(&cluster.masters[hit]);
    let id: String = ask(&mut cluster.masters[hit].connection(), &["CLUSTER", "MYID"]);
    let is_its_replica = |server: &RedisServer| {
        let nodes: String = ask(&mut server.connection(), &["CLUSTER", "NODES"]);
        nodes.lines().any(|line| line.starts_with(&id) && line.contains("slave") && !line.contains("fail"))
    };
    // Not at once after its link is up: what was written meanwhile is sent to it only when it next tells where it is.
    let has_caught_up = || {
        let offset: Option<u64> = info(&cluster.replicas[hit], "master_repl_offset").parse().ok();
        offset.is_some() && info(&cluster.masters[hit], "slave_repl_offset").parse().ok() >= offset
    };
    let since = Instant::now();
    while !has_caught_up()
        || cluster_info(&cluster.masters[hit], "cluster_state") != "ok"
        || !cluster.masters.iter().chain(&cluster.replicas).all(is_its_replica)
    {
        assert!(since.elapsed() < Duration::from_secs(20), "it comes back as a replica, and all know");
        for server in &servers {
            assert!(!is_degraded(&answered(server, drops[0], 80).await));
        }
        sleep(Duration::from_millis(100)).await;
    }
    // And by hand the old one is made the master again, while the other lives on. That one takes no writes until this has
    // caught up and the others have agreed: a moment, where both have been waited for.
    let () = ask(&mut cluster.masters[hit].connection(), &["CLUSTER", "FAILOVER"]);
    let (since, mut blind) = (Instant::now(), 0);
    while info(&cluster.masters[hit], "role") != "master" || since.elapsed() < Duration::from_secs(4) {
        assert!(since.elapsed() < Duration::from_secs(20), "it is made the master");
        for server in &servers {
            let reply = server.poll(&path(drops[0]), 80).await;
            assert!(["WAITING", "ADMITTED"].contains(&reply.state()), "no outage: {reply:?}: {}", server.log());
            blind += usize::from(is_degraded(&reply));
        }
        sleep(Duration::from_millis(50)).await;
    }
    println!("{blind} answers without numbers while it was made the master again");
    for server in &servers {
        assert!(!is_degraded(&answered(server, drops[0], 80).await));
    }
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (at, moves) in moves.into_iter().enumerate() {
        // The killed one and its replica are about the first drop, the others about their own.
        let drop = if at == safe {
            drops[1]
        } else if at == other {
            drops[2]
        } else {
            drops[0]
        };
        let found = moves.of(&label(drop));
        assert_never_more_than(&found, BATCH, TICK_MS);
        if drop == drops[0] {
            all.extend(found);
        }
    }
    all.sort_unstable();
    all.dedup();
    println!("batches of the one that was hit (ms of Redis, people): {all:?}");
    assert_never_more_than(&all, BATCH, TICK_MS);
    cluster.masters.iter().for_each(invariants::assert_hold);
}
