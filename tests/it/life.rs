//! Starting, serving, ending.

use std::{io::Write, sync::mpsc, time::Duration};

use reqwest::Method;
use tokio::time::{Instant, sleep};

use crate::{
    gateway::{buy, gateway, order, pass},
    invariants,
    redis_server::RedisServer,
    server::{DROP, Reply, Server},
    upstream::{Raw, Upstream},
};

#[tokio::test]
async fn it_tells_that_it_lives_and_that_it_is_ready() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[]);
    assert_eq!(server.get("/health/live").await.status, 200);
    let ready = server.get("/health/ready").await;
    assert_eq!((ready.status, &ready.body["redis"]), (200, &"ok".into()), "{ready:?}");
    let openapi = server.get("/openapi.json").await;
    assert!(openapi.body["openapi"].as_str().unwrap().starts_with("3."));
    assert!(openapi.body["paths"]["/virtual-queues/{type}/{targetId}/entries"].is_object());
}

#[tokio::test]
async fn a_management_port_takes_metrics_health_and_admin_off_the_public_one() {
    let server = Server::demo(&[("VQ_SERVER__MANAGEMENT_PORT", "0")]);
    let until = Instant::now() + Duration::from_secs(5);
    let management = loop {
        let said = server.log();
        if let Some((line, _)) = said.split_once("management on ").and_then(|(_, rest)| rest.split_once('\n')) {
            break line.to_owned();
        }
        assert!(Instant::now() < until, "it says where: {said}");
        sleep(Duration::from_millis(10)).await;
    };
    assert_ne!(management, server.url());
    for path in ["/metrics", "/health/live", "/health/ready", "/admin/flags/virtual-queue.enabled"] {
        assert_eq!(server.get(path).await.refusal(), (404, "NOT_FOUND"), "{path}");
        let there = reqwest::Client::new().get(format!("{management}{path}")).bearer_auth(crate::server::ADMIN);
        assert_eq!(Reply::of(there).await.status, 200, "{path}");
    }
    assert_eq!(server.enter(DROP, 7).await.status, 200);
}

#[tokio::test]
async fn sigterm_lets_running_requests_end_and_no_others_begin() {
    let redis = RedisServer::start();
    // Redis hangs: a poll takes its whole budget, and is under way when the signal comes.
    let mut server =
        Server::serve(&redis, &[("VQ_REDIS__COMMAND_TIMEOUT_MS", "1500"), ("VQ_SERVER__DRAIN_SECONDS", "0")]);
    server.enter(DROP, 7).await;
    redis.stop();
    let running = server.as_user(Method::GET, &format!("/virtual-queues/{DROP}/entries/me"), 7).send();
    let signal = async {
        sleep(Duration::from_millis(150)).await;
        server.terminate();
    };
    let (answer, ()) = tokio::join!(running, signal);
    assert_eq!(answer.expect("an answer, not a cut connection").status(), 200);
    assert!(server.try_enter(DROP, 8).await.is_err(), "no new ones");
    let began = Instant::now();
    assert!(server.wait().success(), "a clean end");
    assert!(began.elapsed() < Duration::from_secs(5));
    redis.cont();
}

#[tokio::test]
async fn every_replica_shows_the_same_numbers() {
    let redis = RedisServer::start();
    let [a, b] = [Server::serve(&redis, &[]), Server::serve(&redis, &[])];
    for user in 1..=30 {
        a.enter(DROP, user).await;
    }
    assert_eq!(a.stats(DROP).await["waitingCount"], 30);
    assert_eq!(b.stats(DROP).await["waitingCount"], 30);
    let line = r#"virtual_queue_length{target="LIMITED_DROP:42"} 30"#;
    let until = Instant::now() + Duration::from_secs(5);
    while !(a.get("/metrics").await.text.contains(line) && b.get("/metrics").await.text.contains(line)) {
        assert!(Instant::now() < until, "{}", b.get("/metrics").await.text);
        sleep(Duration::from_millis(100)).await;
    }
    let unused = a.stats("ticketing-event/99").await;
    assert_eq!((&unused["waitingCount"], &unused["capacity"]), (&0.into(), &100_000.into()));
    let keys: Vec<String> = redis::cmd("KEYS").arg("*TICKETING_EVENT:99*").query(&mut redis.connection()).unwrap();
    assert!(keys.is_empty(), "asking creates nothing: {keys:?}");
}

#[tokio::test]
async fn before_the_end_readiness_turns_while_everything_is_still_served() {
    let mut server = Server::demo(&[("VQ_SERVER__DRAIN_SECONDS", "2")]);
    assert_eq!(server.get("/health/ready").await.status, 200);
    server.terminate();
    let until = Instant::now() + Duration::from_secs(1);
    while server.get("/health/ready").await.status == 200 {
        assert!(Instant::now() < until, "readiness turns first");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.enter(DROP, 7).await.status, 200, "whoever still comes is served");
    assert!(server.wait().success());
}

#[tokio::test]
async fn at_the_end_purchases_and_all_other_requests_have_one_grace_together() {
    let (arrived, came) = mpsc::channel();
    let shop = Upstream::answering(move |got, stream| {
        arrived.send(()).unwrap();
        let takes = if got.line().starts_with("POST") { 2 } else { 60 };
        std::thread::sleep(Duration::from_secs(takes));
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let mut server =
        gateway(shop.url(), &[("VQ_SERVER__DRAIN_SECONDS", "0"), ("VQ_SERVER__SHUTDOWN_GRACE_SECONDS", "3")]);
    let [mut buyer, mut other] = [Raw::connect(server.url()), Raw::connect(server.url())];
    buyer.send(&order(7, &pass(7), "{}"));
    other.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    for _ in 0..2 {
        came.recv_timeout(Duration::from_secs(5)).unwrap();
    }
    let began = Instant::now();
    server.terminate();
    assert!(server.wait().success());
    let took = began.elapsed();
    println!("with a grace of 3 s it ended after {took:?}");
    assert_eq!(buyer.answer().expect("it had the time").status, 201);
    assert!(other.answer().is_none(), "it was cut off");
    assert!((2900..4500).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test]
async fn a_second_signal_ends_the_waiting_at_once_and_leaves_a_purchase_claimed() {
    let (arrived, came) = mpsc::channel();
    let shop = Upstream::answering(move |_, _| {
        arrived.send(()).unwrap();
        std::thread::sleep(Duration::from_secs(60));
        false
    });
    let redis = RedisServer::start();
    let settings = [
        ("VQ_UPSTREAM__URL", shop.url()),
        ("VQ_UPSTREAM__TIMEOUT_MS", "60000"),
        ("VQ_DEMO_SHOP__ENABLED", "false"),
        ("VQ_SERVER__DRAIN_SECONDS", "30"),
        ("VQ_SERVER__SHUTDOWN_GRACE_SECONDS", "30"),
    ];
    let remains = Server::serve(&redis, &settings);
    for (user, signal) in [(7, Server::terminate as fn(&Server)), (8, Server::interrupt)] {
        let mut server = Server::serve(&redis, &settings);
        let (mut buyer, pass) = (Raw::connect(server.url()), pass(user));
        buyer.send(&order(user, &pass, "{}"));
        came.recv_timeout(Duration::from_secs(5)).unwrap();
        signal(&server);
        // One is still in the drain then, the other in the grace: Ctrl-C does not wait for balancers.
        sleep(Duration::from_secs(1)).await;
        assert!(!server.has_ended(), "it waits");
        let began = Instant::now();
        signal(&server);
        assert!(server.wait().success());
        let took = began.elapsed();
        println!("ended {took:?} after the second signal");
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert!(buyer.answer().is_none(), "it was cut off");
        assert!(buy(&remains, user, &pass).is_problem(409, "PASS_IN_USE"), "nobody knows whether it bought");
    }
    assert_eq!(shop.take().len(), 2);
    invariants::assert_hold(&redis);
}
