//! Forward auth as each proxy asks, and settling as a shop does.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use virtual_queue::clock::StoreClock;

use crate::{
    invariants,
    redis_server::RedisServer,
    server::{DROP, EVENT, Reply, Server},
};

const FAST: &[(&str, &str)] = &[("VQ_QUEUE__TICK_MS", "500"), ("VQ_QUEUE__BATCH_SIZE", "2000")];
const SETTLE_TOKEN: &str = "the-shops-own-token";
const SETTLE: (&str, &str) = ("VQ_GATE__SETTLE_TOKEN", SETTLE_TOKEN);
const ORDERS: &str = "/limited-drops/42/orders";

/// The ways of the proxies.
#[derive(Debug, Clone, Copy)]
enum Proxy {
    Nginx,
    Ingress,
    Traefik,
    Envoy,
}

const PROXIES: [Proxy; 4] = [Proxy::Nginx, Proxy::Ingress, Proxy::Traefik, Proxy::Envoy];

impl Proxy {
    /// What it takes for a yes.
    fn yes(self) -> (u16, Option<String>) {
        match self {
            Self::Nginx | Self::Ingress | Self::Traefik => (204, None),
            Self::Envoy => (200, None),
        }
    }
}

/// A question about a request with this method and target, as the pages have it.
fn question(server: &Server, proxy: Proxy, method: &str, target: &str) -> RequestBuilder {
    let ask = |form: &str| server.request(Method::GET, &format!("/gate/verify?original={form}"));
    match proxy {
        Proxy::Nginx => unnamed(server, method, target),
        Proxy::Ingress => {
            let url = format!("https://shop.example{target}");
            ask("x-original-url").header("X-Original-Method", method).header("X-Original-URL", url)
        }
        Proxy::Traefik => {
            let ask = ask("x-forwarded-uri").header("X-Forwarded-Method", method).header("X-Forwarded-Uri", target);
            ask.header("X-Forwarded-Host", "shop.example").header("X-Forwarded-Proto", "https")
        }
        Proxy::Envoy => server.request(method.parse().unwrap(), &format!("/gate/verify{target}")),
    }
}

/// The same, without saying which header names the original.
fn unnamed(server: &Server, method: &str, target: &str) -> RequestBuilder {
    let ask = server.request(Method::GET, "/gate/verify");
    ask.header("X-Original-Method", method).header("X-Original-URI", target)
}

/// A question about a purchase by this person.
async fn ask(server: &Server, proxy: Proxy, user: u64, pass: Option<&str>) -> Reply {
    let mut question = question(server, proxy, "POST", ORDERS).header("X-User-Id", user.to_string());
    if let Some(pass) = pass {
        question = question.header("X-Entry-Token", pass);
    }
    Reply::of(question).await
}

async fn pass(server: &Server, user: u64) -> String {
    server.enter(DROP, user).await;
    server.await_pass(DROP, user, Duration::from_secs(10)).await
}

/// What a proxy is told: the status, and the code of a refusal, the same in header and body.
#[track_caller]
fn verdict(reply: &Reply) -> (u16, Option<String>) {
    let code = reply.header("x-virtual-queue-code").map(str::to_owned);
    match reply.status {
        200 | 204 => assert_eq!((code.as_deref(), reply.text.as_str()), (None, "")),
        403 => {
            assert_eq!(code.as_deref(), Some(reply.code()), "{reply:?}");
            let reason = reply.header("x-virtual-queue-reason");
            assert_eq!(reason, reply.body["reason"].as_str(), "{reply:?}");
            assert_eq!(reason.is_some(), reply.code() == "QUEUE_BYPASS_DENIED", "{reply:?}");
        }
        _ => panic!("a proxy takes that for a fault: {reply:?}"),
    }
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    (reply.status, code)
}

fn refused(code: &str) -> (u16, Option<String>) {
    (403, Some(code.to_owned()))
}

fn told(reply: &Reply) -> [Option<&str>; 3] {
    ["x-virtual-queue-user", "x-virtual-queue-target", "x-virtual-queue-claim"].map(|name| reply.header(name))
}

#[tokio::test]
async fn every_proxy_gets_the_gates_verdict_in_its_own_way() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, FAST);
    for (proxy, user) in PROXIES.into_iter().zip(7..) {
        let pass = pass(&server, user).await;
        let denied = refused("QUEUE_BYPASS_DENIED");
        assert_eq!(verdict(&ask(&server, proxy, user, None).await), denied, "{proxy:?}: no pass");
        assert_eq!(verdict(&ask(&server, proxy, user + 10, Some(&pass)).await), denied, "{proxy:?}: another's");
        let odd =
            question(&server, proxy, "POST", "/limited-drops/42/orders;v=1").header("X-User-Id", user.to_string());
        assert_eq!(verdict(&Reply::of(odd.header("X-Entry-Token", &pass)).await), denied, "{proxy:?}: spelled oddly");
        let unknown = Reply::of(question(&server, proxy, "POST", "/limited-drops/042/orders")).await;
        assert_eq!(verdict(&unknown), refused("UNKNOWN_TARGET"), "{proxy:?}");

        let granted = ask(&server, proxy, user, Some(&pass)).await;
        assert_eq!(verdict(&granted), proxy.yes(), "{proxy:?}");
        let name = user.to_string();
        assert_eq!(told(&granted), [Some(name.as_str()), Some("LIMITED_DROP:42"), None], "nothing to settle");
        assert_eq!(verdict(&ask(&server, proxy, user, Some(&pass)).await), denied, "{proxy:?}: spent");

        for (method, target) in [("GET", ORDERS), ("POST", "/"), ("POST", "/cart?back=/limited-drops/42/orders")] {
            let free = Reply::of(question(&server, proxy, method, target)).await;
            assert_eq!((verdict(&free), told(&free)), (proxy.yes(), [None; 3]), "{proxy:?}: {method} {target}");
        }
    }
    let stats = server.stats(DROP).await;
    assert_eq!((&stats["consumed"], &stats["live"]), (&json!(4), &json!(0)));
    let metrics = server.get("/metrics").await.text;
    for counted in [r#"{reason="no_pass"} 4"#, r#"{reason="other_user"} 4"#, r#"{reason="odd_path"} 8"#] {
        assert!(metrics.contains(&format!("virtual_queue_bypass_attempts_total{counted}")), "{metrics}");
    }
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn a_question_that_is_not_clear_is_answered_with_no() {
    let server = Server::demo(FAST);
    let nginx = || question(&server, Proxy::Nginx, "GET", "/");
    for (what, question) in [
        ("no original", server.request(Method::GET, "/gate/verify")),
        ("half of one", server.request(Method::GET, "/gate/verify").header("X-Original-URI", "/")),
        ("two", nginx().header("X-Original-URI", "/")),
        ("a contradiction", nginx().header("X-Forwarded-Method", "POST").header("X-Forwarded-Uri", "/")),
        ("another one", nginx().header("X-Original-URL", "https://shop/limited-drops/42/orders")),
        ("two of which one counts", question(&server, Proxy::Traefik, "GET", "/").header("X-Forwarded-Uri", "/")),
        ("joined", unnamed(&server, "GET", "/a, /b")),
        ("of an unknown form", server.request(Method::GET, "/gate/verify?original=host")),
        ("not a path", server.request(Method::GET, "/gate/verifyx")),
        ("another spelling", server.request(Method::GET, "/gate/%76erify/x")),
    ] {
        assert_eq!(verdict(&Reply::of(question).await), refused("UNCLEAR_REQUEST"), "{what}");
    }
    let head = server.request(Method::HEAD, "/gate/verify").header("X-Original-Method", "GET");
    assert_eq!(Reply::of(head.header("X-Original-URI", "/")).await.status, 204);
    let odd = Reply::of(question(&server, Proxy::Envoy, "POST", "/limited-drops/42/orders%0A")).await;
    assert_eq!(verdict(&odd), refused("QUEUE_BYPASS_DENIED"));
}

#[tokio::test]
async fn where_the_url_names_the_header_a_buyers_own_lines_count_for_nothing() {
    let server = Server::demo(FAST);
    for (method, target, expected) in [("GET", "/", None), ("POST", ORDERS, Some("QUEUE_BYPASS_DENIED"))] {
        for proxy in [Proxy::Traefik, Proxy::Envoy] {
            let lying = question(&server, proxy, method, target).header("X-Original-URL", "/limited-drops/42/orders");
            let lying = lying.header("X-Original-URI", "/").header("X-Original-Method", "GET");
            let expected = expected.map_or(proxy.yes(), refused);
            assert_eq!(verdict(&Reply::of(lying).await), expected, "{proxy:?}: {method} {target}");
        }
    }
}

#[tokio::test]
async fn a_header_that_the_shop_may_take_for_ours_is_refused_and_counted() {
    let server = Server::demo(FAST);
    for name in ["X_User_Id", "X.User.Id", "X_Entry_Token", "X-Virtual-Queue-User", "X_Virtual_Queue_Claim"] {
        for proxy in PROXIES {
            let free = question(&server, proxy, "GET", "/").header(name, "8");
            assert_eq!(verdict(&Reply::of(free).await), refused("UNCLEAR_REQUEST"), "{proxy:?}: {name}");
        }
    }
    let metrics = server.get("/metrics").await.text;
    let counted = r#"virtual_queue_bypass_attempts_total{reason="look_alike_header"} 20"#;
    assert!(metrics.contains(counted), "{metrics}");
    let joined = [("X-User-Id", "7, 8"), ("X-User-Id", "7,7")];
    for (name, value) in joined {
        let purchase = question(&server, Proxy::Envoy, "POST", ORDERS).header(name, value);
        assert_eq!(verdict(&Reply::of(purchase).await), refused("QUEUE_BYPASS_DENIED"), "{name}: {value}");
    }
}

#[tokio::test]
async fn nobody_is_asked_for_a_pass_while_the_flag_is_off_or_the_kind_does_not_exist() {
    let off = [FAST, &[("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "false")]].concat();
    let free = ask(&Server::demo(&off), Proxy::Nginx, 7, None).await;
    assert_eq!((verdict(&free), told(&free)), ((204, None), [None; 3]));
    let without = [&off[..], &[("VQ_LIMITED_DROP__ENABLED", "false")]].concat();
    assert_eq!(verdict(&ask(&Server::demo(&without), Proxy::Nginx, 7, None).await), refused("UNKNOWN_TARGET"));
}

#[tokio::test]
async fn a_store_that_is_away_stops_no_good_pass() {
    let mut redis = RedisServer::start();
    let server = Server::serve(&redis, &[FAST, &[("VQ_REDIS__COMMAND_TIMEOUT_MS", "1000"), SETTLE]].concat());
    let pass = pass(&server, 7).await;
    redis.kill9();
    let granted = ask(&server, Proxy::Nginx, 7, Some(&pass)).await;
    assert_eq!(verdict(&granted), (204, None));
    assert_eq!(granted.header("x-virtual-queue-degraded"), Some("redis"));
    assert_eq!(verdict(&ask(&server, Proxy::Nginx, 8, Some(&pass)).await), refused("QUEUE_BYPASS_DENIED"));
    let settled = settle(&server, &settlement(&granted, "spent")).await;
    assert_eq!(settled.refusal(), (503, "STORE_UNAVAILABLE"), "the shop says it again");
    assert!(settled.header("retry-after").is_some());
}

async fn of_fifty_questions_with_one_pass_one_is_answered_with_yes(settings: &[(&str, &str)]) {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[FAST, settings].concat());
    let pass = pass(&server, 7).await;
    let all: Vec<Reply> =
        stream::iter(0..50).map(|_| ask(&server, Proxy::Nginx, 7, Some(&pass))).buffer_unordered(50).collect().await;
    assert_eq!(all.iter().filter(|reply| verdict(reply).0 == 204).count(), 1);
    assert!(
        all.iter()
            .filter(|reply| reply.status == 403)
            .all(|reply| { ["PASS_IN_USE", "QUEUE_BYPASS_DENIED"].contains(&reply.code()) })
    );
    let metrics = server.get("/metrics").await.text;
    assert!(!metrics.contains("virtual_queue_bypass_attempts_total{"), "neither is an attempt to bypass: {metrics}");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn one_pass_is_one_passage_where_asking_spends_it() {
    of_fifty_questions_with_one_pass_one_is_answered_with_yes(&[]).await;
}

#[tokio::test]
async fn one_pass_is_one_passage_where_the_shop_settles() {
    of_fifty_questions_with_one_pass_one_is_answered_with_yes(&[SETTLE]).await;
}

/// What the shop says of a purchase that was let through with this answer.
fn settlement(granted: &Reply, outcome: &str) -> Value {
    let [user, target, claim] = told(granted).map(|value| value.expect("a purchase to settle"));
    json!({ "target": target, "userId": user, "claim": claim, "outcome": outcome })
}

async fn settle(server: &Server, body: &Value) -> Reply {
    Reply::of(server.request(Method::POST, "/gate/settle").bearer_auth(SETTLE_TOKEN).json(body)).await
}

#[tokio::test]
async fn the_shop_settles_and_may_say_everything_twice() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[FAST, &[SETTLE]].concat());
    let pass = pass(&server, 7).await;
    let first = ask(&server, Proxy::Traefik, 7, Some(&pass)).await;
    assert_eq!(verdict(&ask(&server, Proxy::Traefik, 7, Some(&pass)).await), refused("PASS_IN_USE"));
    for _ in 0..2 {
        assert_eq!(settle(&server, &settlement(&first, "given_back")).await.status, 204);
    }
    let second = ask(&server, Proxy::Traefik, 7, Some(&pass)).await;
    assert_eq!(verdict(&second), (204, None), "the pass works again");
    assert_eq!(settle(&server, &settlement(&first, "given_back")).await.status, 204);
    assert_eq!(
        verdict(&ask(&server, Proxy::Traefik, 7, Some(&pass)).await),
        refused("PASS_IN_USE"),
        "that was not its claim"
    );
    let mut sold = settlement(&second, "spent");
    sold["target"] = json!(DROP);
    for _ in 0..2 {
        assert_eq!(settle(&server, &sold).await.status, 204);
    }
    assert_eq!(settle(&server, &settlement(&second, "given_back")).await.status, 204);
    assert_eq!(
        verdict(&ask(&server, Proxy::Traefik, 7, Some(&pass)).await),
        refused("QUEUE_BYPASS_DENIED"),
        "sold is sold"
    );
    let stats = server.stats(DROP).await;
    assert_eq!((&stats["consumed"], &stats["live"]), (&json!(1), &json!(0)));
    invariants::assert_hold(&redis);
}

/// A question about a call to the event of the tests.
async fn ask_event(server: &Server, what: &str, pass: Option<&str>) -> Reply {
    let question = question(server, Proxy::Nginx, "POST", &format!("/events/7/{what}")).header("X-User-Id", "7");
    Reply::of(match pass {
        Some(pass) => question.header("X-Entry-Token", pass),
        None => question,
    })
    .await
}

#[tokio::test]
async fn seats_are_selected_without_a_claim_and_the_shop_spends_by_the_user_when_it_has_sold() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[FAST, &[SETTLE]].concat());
    server.enter(EVENT, 7).await;
    let pass = server.await_pass(EVENT, 7, Duration::from_secs(10)).await;
    for _ in 0..3 {
        let granted = ask_event(&server, "seats/select", Some(&pass)).await;
        assert_eq!(verdict(&granted), (204, None), "checked, never claimed");
        assert_eq!(told(&granted), [Some("7"), Some("TICKETING_EVENT:7"), None]);
    }
    assert_eq!(verdict(&ask_event(&server, "seats/select", None).await), refused("QUEUE_BYPASS_DENIED"));
    let granted = ask_event(&server, "tickets", None).await;
    assert_eq!(verdict(&granted), (204, None));
    assert_eq!(told(&granted), [Some("7"), Some("TICKETING_EVENT:7"), None]);
    let says = |outcome: &str| json!({ "target": "TICKETING_EVENT:7", "userId": "7", "outcome": outcome });
    assert_eq!(settle(&server, &says("given_back")).await.status, 204, "nothing is held");
    assert_eq!(verdict(&ask_event(&server, "seats/select", Some(&pass)).await), (204, None));
    let mut sold = says("spent");
    assert_eq!(settle(&server, &sold).await.status, 204);
    sold["claim"] = Value::Null;
    assert_eq!(settle(&server, &sold).await.status, 204, "said again");
    let spent = ask_event(&server, "seats/select", Some(&pass)).await;
    assert_eq!(verdict(&spent), refused("QUEUE_BYPASS_DENIED"));
    assert_eq!(spent.header("x-virtual-queue-reason"), Some("spent"));
    let stats = server.stats(EVENT).await;
    assert_eq!((&stats["consumed"], &stats["live"]), (&json!(1), &json!(0)));
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn where_the_shop_does_not_settle_a_purchase_without_a_pass_spends_nothing() {
    let server = Server::demo(FAST);
    server.enter(EVENT, 7).await;
    let pass = server.await_pass(EVENT, 7, Duration::from_secs(10)).await;
    assert_eq!(verdict(&ask_event(&server, "tickets", None).await), (204, None));
    assert_eq!(verdict(&ask_event(&server, "seats/select", Some(&pass)).await), (204, None));
    assert_eq!(server.stats(EVENT).await["consumed"], 0);
}

#[tokio::test]
async fn only_the_shop_settles_and_only_in_words_that_make_sense() {
    let server = Server::demo(&[FAST, &[SETTLE]].concat());
    let now = StoreClock::system().now_seconds();
    let claim_until = |expires_at: u64| format!("{expires_at}-{}", "0".repeat(32));
    let good =
        json!({ "target": "LIMITED_DROP:42", "userId": "7", "claim": claim_until(now + 3600), "outcome": "spent" });
    let post = || server.request(Method::POST, "/gate/settle").json(&good);
    for (what, request) in [
        ("no token", post()),
        ("another", post().bearer_auth("the-shops-own-tokem")),
        ("the operator's", post().bearer_auth(crate::server::ADMIN)),
        ("two", post().bearer_auth(SETTLE_TOKEN).header("Authorization", "Bearer x")),
    ] {
        let reply = Reply::of(request).await;
        assert_eq!(reply.refusal(), (401, "UNAUTHORIZED"), "{what}");
    }
    for (key, value) in [
        ("target", json!("limited-drop/042")),
        ("target", json!(42)),
        ("userId", json!("07")),
        ("userId", json!(7)),
        ("claim", json!("x")),
        ("outcome", json!("sold")),
        ("surprise", json!(1)),
    ] {
        let mut body = good.clone();
        body[key] = value.clone();
        assert_eq!(settle(&server, &body).await.refusal(), (400, "BAD_REQUEST"), "{key} {value}");
    }
    for never_given_out in [claim_until(now + 90_000), claim_until(99_999_999_999)] {
        let mut body = good.clone();
        body["claim"] = json!(never_given_out);
        assert_eq!(settle(&server, &body).await.refusal(), (409, "UNKNOWN_CLAIM"));
    }
    assert_eq!(settle(&server, &json!("x".repeat(10_000))).await.refusal(), (413, "PAYLOAD_TOO_LARGE"));
    assert_eq!(settle(&server, &good).await.status, 204);
    let without = Server::demo(FAST);
    assert_eq!(settle(&without, &good).await.refusal(), (404, "NOT_FOUND"), "nothing to settle");
}

#[tokio::test]
async fn other_purchase_routes_are_guarded_in_both_ways_and_the_prds_are_not() {
    let routes = "[{ method = 'PUT', path = '/api/sales/{id}/claim', target = 'limited-drop' }]";
    let server = Server::demo(&[FAST, &[("VQ_GATE__ROUTES", routes)]].concat());
    let claim = "/api/sales/42/claim";
    let asked = Reply::of(question(&server, Proxy::Nginx, "PUT", claim)).await;
    assert_eq!(verdict(&asked), refused("QUEUE_BYPASS_DENIED"));
    let post = || question(&server, Proxy::Nginx, "POST", claim);
    assert_eq!(verdict(&Reply::of(post().header("Content-Type", "application/json")).await), (204, None));
    assert_eq!(verdict(&Reply::of(post()).await), refused("QUEUE_BYPASS_DENIED"), "it may be a form that asks for PUT");
    assert_eq!(verdict(&ask(&server, Proxy::Nginx, 7, None).await), (204, None));
    let direct = Reply::of(server.request(Method::PUT, claim)).await;
    assert_eq!(direct.refusal(), (403, "QUEUE_BYPASS_DENIED"), "the middleware, too");
    assert_eq!(server.order(42, 7, None).await.status, 201);
    let pass = pass(&server, 7).await;
    let good = question(&server, Proxy::Nginx, "PUT", claim).header("X-User-Id", "7").header("X-Entry-Token", &pass);
    let granted = Reply::of(good).await;
    assert_eq!(told(&granted)[1], Some("LIMITED_DROP:42"));
}
