//! The flag: on, off, everywhere within three seconds, and never lost.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    invariants,
    redis_server::RedisServer,
    seen,
    server::{DROP, EVENT, Reply, Server},
};

fn rule(enabled: bool) -> serde_json::Value {
    json!({ "enabled": enabled, "reason": "a test" })
}

/// How long until this server answers an unknown person so.
async fn until(server: &Server, state: &str) -> Duration {
    let began = Instant::now();
    loop {
        let reply = server.enter(EVENT, 1_000_000 + began.elapsed().as_micros() as u64).await;
        if reply.state() == state {
            return began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(6), "still {reply:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_change_on_one_server_reaches_the_other_within_three_seconds() {
    let redis = RedisServer::start();
    let [a, b] = [Server::serve(&redis, &[]), Server::serve(&redis, &[])];
    assert_eq!(a.enter(DROP, 7).await.state(), "WAITING");
    for (enabled, state) in [(false, "DIRECT_ADMITTED"), (true, "WAITING"), (false, "DIRECT_ADMITTED")] {
        assert_eq!(a.set_flag(rule(enabled)).await.status, 200);
        assert_eq!(a.poll(DROP, 7).await.state(), state, "where it was changed, at once");
        let took = until(&b, state).await;
        println!("the other server followed after {took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    // Off: the gate lets everything through.
    assert_eq!(b.order(42, 99, None).await.status, 201);
    let audit =
        Reply::of(b.request(Method::GET, "/admin/flags/virtual-queue.enabled/audit").bearer_auth(crate::server::ADMIN));
    let audit = audit.await;
    assert!(audit.text.contains("tester") && audit.text.contains("a test"), "{audit:?}");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_change_is_followed_also_where_pubsub_is_blocked() {
    let redis = RedisServer::start();
    let () = redis::cmd("ACL")
        .arg(&["SETUSER", "deaf", "on", ">deaf-password", "~*", "resetchannels", "+@all", "-subscribe", "-psubscribe"])
        .query(&mut redis.connection())
        .unwrap();
    let deaf = format!("redis://deaf:deaf-password@127.0.0.1:{}", redis.port());
    let [a, b] = [Server::serve(&redis, &[]), Server::serve_at(&deaf, &[])];
    assert_eq!(b.enter(DROP, 7).await.state(), "WAITING");
    assert_eq!(a.set_flag(rule(false)).await.status, 200);
    let took = until(&b, "DIRECT_ADMITTED").await;
    println!("without pub/sub the other server followed after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(!b.log().contains("deaf-password"), "no password in the log");
}

#[tokio::test]
async fn redis_restarted_empty_leaves_the_flag_as_it_was() {
    let mut redis = RedisServer::start();
    let server = Server::serve(&redis, &[]);
    assert_eq!(
        server.set_flag(json!({"enabled": true, "targets": ["limited-drop/42"], "reason": "one"})).await.status,
        200
    );
    assert_eq!(server.enter(EVENT, 7).await.state(), "DIRECT_ADMITTED", "only the drop queues");
    redis.restart();
    let mut connection = redis.connection();
    let is_back = async || redis::cmd("EXISTS").arg("flags:virtual-queue.enabled").query(&mut connection).unwrap();
    seen::until("the rule is written back", Duration::from_secs(5), is_back).await;
    let is_found = async || server.enter(DROP, 7).await.state() == "WAITING";
    seen::until("redis is found again", Duration::from_secs(3), is_found).await;
    assert_eq!(server.enter(EVENT, 7).await.state(), "DIRECT_ADMITTED");
    let late = Server::serve(&redis, &[]);
    assert_eq!(late.enter(EVENT, 7).await.state(), "DIRECT_ADMITTED", "a new server finds the rule again");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn the_switch_does_not_hang_on_its_audit_and_the_log_has_what_the_audit_lacks() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[]);
    redis::cmd("SET").arg("flags:audit").arg("x").exec(&mut redis.connection()).unwrap();
    assert_eq!(server.enter(DROP, 7).await.state(), "WAITING");
    assert_eq!(server.set_flag(json!({"enabled": false, "reason": "stop it"})).await.status, 200);
    assert_eq!(server.poll(DROP, 7).await.state(), "DIRECT_ADMITTED");
    assert_eq!(server.order(42, 8, None).await.status, 201);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("the audit did not take it")).expect("a line for it");
    assert!(line.contains("ERROR") && line.contains("WRONGTYPE"), "{line}");
    for word in ["flags:audit", "tester", "stop it"] {
        assert!(line.contains(word), "{word} in {line}");
    }
    let audit = server.request(Method::GET, "/admin/flags/virtual-queue.enabled/audit");
    assert_eq!(Reply::of(audit.bearer_auth(crate::server::ADMIN)).await.refusal(), (503, "STORE_UNAVAILABLE"));
}

#[tokio::test]
async fn off_and_on_again_loses_nobodys_place() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[("VQ_QUEUE__BATCH_SIZE", "1")]);
    for user in 1..=20 {
        server.enter(DROP, user).await;
    }
    server.set_flag(rule(false)).await;
    assert_eq!(server.poll(DROP, 20).await.state(), "DIRECT_ADMITTED");
    seen::batches(&mut redis.connection(), "LIMITED_DROP:42", 1).await;
    server.set_flag(rule(true)).await;
    assert_eq!(server.poll(DROP, 19).await.position(), Some(19));
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn without_a_token_there_is_no_admin_api_and_a_wrong_one_is_refused() {
    let path = "/admin/flags/virtual-queue.enabled";
    let closed = Server::demo(&[("VQ_ADMIN__TOKEN", "")]);
    assert_eq!(closed.get(path).await.refusal(), (404, "NOT_FOUND"));
    assert_eq!(closed.set_flag(rule(false)).await.refusal(), (404, "NOT_FOUND"));
    let open = Server::demo(&[]);
    assert_eq!(open.get(path).await.status, 401);
    let wrong = open.request(Method::PUT, path).bearer_auth("the-operators-own-tokem").json(&rule(false));
    assert_eq!(Reply::of(wrong).await.status, 401);
    assert_eq!(open.enter(DROP, 7).await.state(), "WAITING", "nothing changed");
    let bad = open.set_flag(json!({"enabled": false})).await;
    assert_eq!(bad.refusal().0, 400);
    assert!(bad.body["detail"].as_str().unwrap().contains("reason"), "{bad:?}");
}
