//! Buying, before the built-in shop: what the gate lets through, and that nothing is sold twice.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use reqwest::Method;
use tokio::time::sleep;

use crate::{
    invariants,
    redis_server::RedisServer,
    server::{DROP, EVENT, Reply, Server, shop_file},
};

const FAST: &[(&str, &str)] = &[("VQ_QUEUE__TICK_MS", "500"), ("VQ_QUEUE__BATCH_SIZE", "2000")];

/// Passes for these people.
async fn passes(server: &Server, target: &str, people: std::ops::RangeInclusive<u64>) -> Vec<(u64, String)> {
    stream::iter(people.clone())
        .for_each_concurrent(64, async |user| {
            assert_eq!(server.enter(target, user).await.status, 200);
        })
        .await;
    sleep(Duration::from_millis(1_100)).await;
    stream::iter(people)
        .map(async |user| (user, server.await_pass(target, user, Duration::from_secs(10)).await))
        .buffered(64)
        .collect()
        .await
}

async fn only_a_good_pass_buys(server: &Server) {
    let denied = (403, "QUEUE_BYPASS_DENIED");
    let mine = passes(server, DROP, 7..=8).await;
    let (pass, others) = (&mine[0].1, &mine[1].1);
    let elsewhere = passes(server, "limited-drop/43", 7..=7).await.remove(0).1;

    assert_eq!(server.order(42, 7, None).await.refusal(), denied, "no pass");
    assert_eq!(server.order(42, 7, Some("")).await.refusal(), denied, "an empty one");
    assert_eq!(server.order(42, 7, Some("x.y")).await.refusal(), denied, "nonsense");
    let forged: String = pass.chars().rev().collect();
    assert_eq!(server.order(42, 7, Some(&forged)).await.refusal(), denied, "forged");
    assert_eq!(server.order(42, 7, Some(others)).await.refusal(), denied, "another's");
    assert_eq!(server.order(42, 8, Some(pass)).await.refusal(), denied, "by another");
    assert_eq!(server.order(42, 7, Some(&elsewhere)).await.refusal(), denied, "another target's");
    assert_eq!(server.select(42, 7, Some(pass), &["A1"]).await.refusal(), denied, "another kind's");
    let nobody = server.request(Method::POST, "/limited-drops/42/orders").header("X-Entry-Token", pass);
    assert_eq!(Reply::of(nobody).await.refusal(), denied, "nobody's");
    let two = server.as_user(Method::POST, "/limited-drops/42/orders", 7).header("X-User-Id", "8");
    assert_eq!(Reply::of(two.header("X-Entry-Token", pass)).await.refusal(), denied, "two people's");

    let bought = server.order(42, 7, Some(pass)).await;
    assert_eq!(bought.status, 201, "{bought:?}");
    assert!(bought.body["orderId"].is_string());
    assert_eq!(server.order(42, 7, Some(pass)).await.refusal(), denied, "spent");
    assert_eq!(server.order(42, 8, Some(others)).await.status, 201, "the other's own is as good as before");
    assert_eq!(server.stats(DROP).await["consumed"], 2);
}

#[tokio::test]
async fn on_redis_only_a_good_pass_buys() {
    let redis = RedisServer::start();
    only_a_good_pass_buys(&Server::serve(&redis, FAST)).await;
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn in_memory_only_a_good_pass_buys() {
    only_a_good_pass_buys(&Server::demo(FAST)).await;
}

#[tokio::test]
async fn a_pass_expired_by_a_second_buys_nothing() {
    let server = Server::demo(&[FAST, &[("VQ_TOKEN__TTL_SECONDS", "2")]].concat());
    let (user, pass) = passes(&server, DROP, 7..=7).await.remove(0);
    sleep(Duration::from_millis(3_000)).await;
    assert_eq!(server.order(42, user, Some(&pass)).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
}

#[tokio::test]
async fn a_shop_that_declines_gives_the_pass_back() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[FAST, &[("VQ_DEMO_SHOP__STOCK", "1")]].concat());
    let mine = passes(&server, DROP, 7..=8).await;
    assert_eq!(server.order(42, 7, Some(&mine[0].1)).await.status, 201);
    for _ in 0..3 {
        assert_eq!(server.order(42, 8, Some(&mine[1].1)).await.refusal(), (409, "SOLD_OUT"), "the shop's own answer");
    }
    assert_eq!(server.stats(DROP).await["live"], 1);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn fifty_purchases_at_once_with_one_pass_buy_once() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, FAST);
    let (user, pass) = passes(&server, DROP, 7..=7).await.remove(0);
    let replies: Vec<Reply> =
        stream::iter(0..50).map(|_| server.order(42, user, Some(&pass))).buffer_unordered(50).collect().await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        match reply.refusal() {
            (409, "PASS_IN_USE") => assert_eq!(reply.header("retry-after"), Some("1")),
            (403, "QUEUE_BYPASS_DENIED") => {}
            other => panic!("{other:?}"),
        }
    }
    let metrics = server.get("/metrics").await.text;
    assert!(!metrics.contains("virtual_queue_bypass_attempts_total{"), "neither is an attempt to bypass: {metrics}");
    invariants::assert_hold(&redis);
}

async fn five_hundred_buyers_on_a_hundred_pieces(servers: &[Server]) {
    let mine = passes(&servers[0], DROP, 1..=500).await;
    let replies: Vec<Reply> = stream::iter(&mine)
        .map(|(user, pass)| servers[*user as usize % servers.len()].order(42, *user, Some(pass)))
        .buffer_unordered(100)
        .collect()
        .await;
    let count = |status| replies.iter().filter(|reply| reply.status == status).count();
    assert_eq!(
        (count(201), count(409)),
        (100, 400),
        "{:?}",
        replies.iter().find(|reply| ![201, 409].contains(&reply.status))
    );
}

#[tokio::test]
async fn five_hundred_buyers_on_two_servers_get_the_hundred_pieces_there_are() {
    let (redis, dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
    let file = shop_file(dir.path());
    let settings = [FAST, &[("VQ_DEMO_SHOP__DATABASE", file.as_str())]].concat();
    five_hundred_buyers_on_a_hundred_pieces(&[Server::serve(&redis, &settings), Server::serve(&redis, &settings)])
        .await;
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn in_memory_five_hundred_buyers_get_the_hundred_pieces_there_are() {
    five_hundred_buyers_on_a_hundred_pieces(&[Server::demo(FAST)]).await;
}

#[tokio::test]
async fn two_people_on_one_seat_are_one_and_a_refusal() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, FAST);
    let mine = passes(&server, EVENT, 7..=8).await;
    let (a, b) =
        tokio::join!(server.select(7, 7, Some(&mine[0].1), &["A1"]), server.select(7, 8, Some(&mine[1].1), &["A1"]));
    let (winner, loser, pass) = if a.status == 200 { (7, b, mine[1].1.clone()) } else { (8, a, mine[0].1.clone()) };
    assert_eq!(loser.refusal(), (409, "SEAT_TAKEN"));
    let other = 15 - winner;
    assert_eq!(server.select(7, other, Some(&pass), &["A2"]).await.status, 200, "the pass was given back");
    assert_eq!(server.buy_tickets(7, other, &["A1"]).await.status, 409, "not without the lock");
    // The ticket purchase needs no pass: the lock is the right to go on.
    assert_eq!(server.buy_tickets(7, winner, &["A1"]).await.status, 201);
    assert_eq!(server.buy_tickets(7, other, &["A2"]).await.status, 201);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn the_pass_also_travels_in_a_cookie() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[FAST, &[("VQ_TOKEN__COOKIE", "true")]].concat());
    server.enter(DROP, 7).await;
    server.await_pass(DROP, 7, Duration::from_secs(5)).await;
    let admitted = server.poll(DROP, 7).await;
    let cookie = admitted.header("set-cookie").expect("a cookie").to_owned();
    for part in ["vq_limited-drop_42=", "HttpOnly", "Secure", "SameSite=Lax", "Path=/", "Max-Age="] {
        assert!(cookie.contains(part), "{part} in {}", cookie.len());
    }
    let sent = cookie.split(';').next().unwrap();
    let buy = || server.as_user(Method::POST, "/limited-drops/42/orders", 7).header("Cookie", sent);
    let wrong = buy().header("X-Entry-Token", "wrong.pass");
    assert_eq!(Reply::of(wrong).await.refusal(), (403, "QUEUE_BYPASS_DENIED"), "the header wins");
    assert_eq!(Reply::of(buy()).await.status, 201);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn without_limited_drops_their_routes_are_not_there_whatever_the_flag_says() {
    for flag in ["true", "false"] {
        let settings = [("VQ_LIMITED_DROP__ENABLED", "false"), ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", flag)];
        let server = Server::demo(&settings);
        assert_eq!(server.order(42, 7, None).await.status, 404);
        assert_eq!(server.enter(DROP, 7).await.refusal(), (404, "UNKNOWN_TARGET"));
        assert_eq!(server.enter(EVENT, 7).await.status, 200, "events are as before");
    }
}

#[tokio::test]
async fn without_a_shop_purchases_are_unavailable() {
    let redis = RedisServer::start();
    let settings = [("VQ_DEMO_SHOP__ENABLED", "false"), ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "false")];
    let server = Server::serve(&redis, &settings);
    for reply in [server.order(42, 7, None).await, server.select(7, 7, None, &["A1"]).await] {
        assert_eq!(reply.refusal().0, 503);
        assert!(reply.header("retry-after").is_some());
    }
}
