//! Choosing seats and buying them: the pass lets its buyer choose as often as they like, and ends with the purchase.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::{
    invariants,
    redis_server::RedisServer,
    server::{EVENT, Reply, Server},
};

const FAST: &[(&str, &str)] = &[("VQ_QUEUE__TICK_MS", "500")];

/// Enters the queue of the event, and is admitted.
async fn pass(server: &Server, user: u64) -> String {
    assert_eq!(server.enter(EVENT, user).await.status, 200);
    server.await_pass(EVENT, user, Duration::from_secs(10)).await
}

#[track_caller]
fn assert_refused(reply: &Reply, reason: &str) {
    assert_eq!((reply.refusal(), &reply.body["reason"]), ((403, "QUEUE_BYPASS_DENIED"), &json!(reason)), "{reply:?}");
}

async fn seats_may_be_changed_until_they_are_bought(server: &Server) {
    let mine = pass(server, 7).await;
    let other = pass(server, 8).await;
    for seats in [&["A1"][..], &["A2"], &["A2", "A3"]] {
        let selected = server.select(7, 7, Some(&mine), seats).await;
        assert_eq!((selected.status, &selected.body["seatIds"]), (200, &json!(seats)), "{selected:?}");
        // The answer was lost on its way: the buyer asks again.
        assert_eq!(server.select(7, 7, Some(&mine), seats).await.status, 200);
    }
    assert_eq!(server.poll(EVENT, 7).await.pass().as_deref(), Some(mine.as_str()), "the pass is as it was");
    assert_refused(&server.select(7, 7, None, &["A4"]).await, "no_pass");
    assert_eq!(server.select(7, 8, Some(&other), &["A2"]).await.refusal(), (409, "SEAT_TAKEN"));
    assert_eq!(server.buy_tickets(7, 8, &["A2"]).await.refusal(), (409, "SEAT_NOT_LOCKED"));
    assert_eq!(server.stats(EVENT).await["consumed"], 0, "nothing is spent so far");

    let bought = server.buy_tickets(7, 7, &["A2", "A3"]).await;
    assert_eq!(bought.status, 201, "{bought:?}");
    assert_eq!(server.stats(EVENT).await["consumed"], 1);
    assert_refused(&server.select(7, 7, Some(&mine), &["A4"]).await, "spent");
    assert_eq!(server.poll(EVENT, 7).await.refusal(), (404, "NOT_IN_QUEUE"));
    let again = server.buy_tickets(7, 7, &["A2", "A3"]).await;
    assert_eq!((again.status, &again.body), (201, &bought.body), "the answer was lost, and the tickets are the same");
    assert_eq!(server.stats(EVENT).await["consumed"], 1, "once");
    assert_eq!(server.select(7, 8, Some(&other), &["A5"]).await.status, 200, "the other's pass is as it was");

    let new = pass(server, 7).await;
    assert_ne!(new, mine);
    assert_eq!(server.select(7, 7, Some(&new), &["B1"]).await.status, 200, "whoever queues again has another turn");
    assert_eq!(server.buy_tickets(7, 7, &["B1"]).await.status, 201);
    assert_eq!(server.stats(EVENT).await["consumed"], 2);
    assert_refused(&server.select(7, 7, Some(&new), &["B2"]).await, "spent");
}

#[tokio::test]
async fn seats_may_be_changed_until_they_are_bought_on_redis() {
    let redis = RedisServer::start();
    seats_may_be_changed_until_they_are_bought(&Server::serve(&redis, FAST)).await;
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn seats_may_be_changed_until_they_are_bought_in_memory() {
    seats_may_be_changed_until_they_are_bought(&Server::demo(FAST)).await;
}

#[tokio::test]
async fn tickets_are_sold_while_redis_is_away_and_the_pass_is_spent_when_it_is_back() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, FAST);
    let mine = pass(&server, 7).await;
    assert_eq!(server.select(7, 7, Some(&mine), &["A1"]).await.status, 200);
    redis.stop();
    let bought = server.buy_tickets(7, 7, &["A1"]).await;
    assert_eq!((bought.status, bought.header("x-virtual-queue-degraded")), (201, Some("redis")), "{bought:?}");
    redis.cont();
    let spent = tokio::time::timeout(Duration::from_secs(20), async {
        // Not answered before the server has found Redis again.
        while server.get(&format!("/virtual-queues/{EVENT}/stats")).await.body["consumed"] != 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    spent.await.expect("it is told afterwards");
    assert_refused(&server.select(7, 7, Some(&mine), &["A2"]).await, "spent");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn buyers_read_their_own_language_and_are_told_why() {
    let server = Server::demo(FAST);
    let ask = |path: &str, method: Method, language: &str| {
        let request = server.as_user(method, path, 7);
        if language.is_empty() { request } else { request.header("Accept-Language", language) }
    };
    for (method, path, code) in [
        (Method::POST, "/limited-drops/42/orders", "QUEUE_BYPASS_DENIED"),
        (Method::POST, "/limited-drops/042/orders", "UNKNOWN_TARGET"),
        (Method::GET, "/virtual-queues/limited-drop/42/entries/me", "NOT_IN_QUEUE"),
    ] {
        let mut details = Vec::new();
        for (asked, language) in [("", "ko"), ("en-US,en;q=0.9", "en"), ("ko-KR,en;q=0.9", "ko"), ("fr", "ko")] {
            let reply = Reply::of(ask(path, method.clone(), asked)).await;
            assert_eq!(reply.code(), code);
            assert_eq!(reply.header("content-language"), Some(language), "{path} {asked:?}");
            assert!(reply.header("vary").is_some_and(|vary| vary.contains("Accept-Language")), "{reply:?}");
            details.push(reply.body["detail"].as_str().unwrap().to_owned());
        }
        assert!(details[0] == details[2] && details[0] == details[3] && details[1].is_ascii(), "{details:?}");
        assert!(!details[0].is_ascii(), "{details:?}");
    }
    // What only developers see has one language.
    let developers = Reply::of(ask("/virtual-queues/concert/42/stats", Method::GET, "ko")).await;
    assert_eq!((developers.code(), developers.header("content-language")), ("UNKNOWN_TARGET", None));
}
