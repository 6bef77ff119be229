//! Buyers whose ids are texts: in a header or a token, at the gate, in the flag's rule and for a shop that settles.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    gateway::gateway,
    identity::{Issuer, Publisher, by_token},
    redis_server::RedisServer,
    server::{Reply, Server},
    upstream::Upstream,
};

const ENTRIES: &str = "/virtual-queues/limited-drop/42/entries";
const ME: &str = "/virtual-queues/limited-drop/42/entries/me";
const ORDERS: &str = "/limited-drops/42/orders";
const UUID: &str = "b6f0c1de-9d4c-4f0e-8a51-0c2b8a9f6f37";
const OTHER: &str = "auth0|b6f0c1de-9d4c";
const ANY: (&str, &str) = ("VQ_IDENTITY__IDS", "any");
const FAST: (&str, &str) = ("VQ_QUEUE__TICK_MS", "500");

fn by(server: &Server, method: Method, path: &str, id: &str) -> RequestBuilder {
    server.request(method, path).header("X-User-Id", id)
}

/// Enters, and polls until there is a pass.
async fn pass(server: &Server, id: &str) -> String {
    assert_eq!(Reply::of(by(server, Method::POST, ENTRIES, id)).await.status, 200);
    loop {
        match Reply::of(by(server, Method::GET, ME, id)).await.pass() {
            Some(pass) => return pass,
            None => sleep(Duration::from_millis(50)).await,
        }
    }
}

fn assert_tells_nobody(server: &Server) {
    for text in [UUID, OTHER] {
        assert!(!server.log().contains(text), "an id is in the log");
    }
}

#[tokio::test]
async fn a_text_is_somebody_from_entering_to_buying() {
    let server = Server::demo(&[ANY, FAST]);
    let number = Reply::of(by(&server, Method::POST, ENTRIES, UUID)).await.position();
    assert_eq!(Reply::of(by(&server, Method::POST, ENTRIES, UUID)).await.position(), number, "one person, one place");
    let other = Reply::of(by(&server, Method::POST, ENTRIES, OTHER)).await.position();
    assert_ne!(other, number);
    assert_eq!(Reply::of(by(&server, Method::POST, ENTRIES, "007")).await.status, 200);
    for bad in ["", "a b", &"x".repeat(129)] {
        let reply = Reply::of(by(&server, Method::POST, ENTRIES, bad)).await;
        assert_eq!(reply.refusal(), (400, "INVALID_USER_ID"));
        let detail = reply.body["detail"].as_str().unwrap();
        assert!(detail.ends_with("a text of 1 to 128 visible ASCII characters other than a comma"), "{detail}");
    }
    let pass = pass(&server, UUID).await;
    let order = |id: &str| Reply::of(by(&server, Method::POST, ORDERS, id).header("X-Entry-Token", &pass));
    assert_eq!(order(OTHER).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
    assert_eq!(order(UUID).await.status, 201);
    assert!(!server.get("/metrics").await.text.contains(UUID));
    assert_tells_nobody(&server);

    let decimal = Server::demo(&[]);
    let reply = Reply::of(by(&decimal, Method::POST, ENTRIES, UUID)).await;
    assert_eq!(reply.refusal(), (400, "INVALID_USER_ID"));
    assert!(reply.body["detail"].as_str().unwrap().contains("a decimal number from 1"), "{reply:?}");
}

#[tokio::test]
async fn the_shop_behind_the_gateway_gets_the_text_as_it_came() {
    let shop = Upstream::friendly();
    let issuer = Issuer::new("first");
    let publisher = Publisher::start(Some(issuer.jwks()));
    let behind = [("VQ_DEMO_SHOP__ENABLED", "false"), ("VQ_UPSTREAM__URL", shop.url()), ANY];
    let by_header = gateway(shop.url(), &[ANY, ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "false")]);
    assert_eq!(Reply::of(by(&by_header, Method::POST, ORDERS, OTHER)).await.status, 201);
    assert_eq!(shop.only().all("X-User-Id"), [OTHER]);

    let server = by_token(&publisher.url, &behind);
    let token = issuer.token_for(OTHER);
    let asked = |method, path| server.request(method, path).bearer_auth(&token).header("X-User-Id", UUID);
    let pass = loop {
        let reply = Reply::of(asked(Method::POST, ENTRIES)).await;
        match reply.pass() {
            Some(pass) => break pass,
            None => sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(Reply::of(asked(Method::POST, ORDERS).header("X-Entry-Token", &pass)).await.status, 201);
    assert_eq!(shop.only().all("X-User-Id"), [OTHER], "what the token says, and nothing else");
    assert_tells_nobody(&server);
}

#[tokio::test]
async fn a_proxy_is_told_the_text_and_the_shop_settles_with_it() {
    const SETTLE: &str = "the-shops-own-token";
    let server = Server::demo(&[ANY, FAST, ("VQ_GATE__SETTLE_TOKEN", SETTLE)]);
    let pass = pass(&server, UUID).await;
    let ask = || {
        let question = by(&server, Method::GET, "/gate/verify", UUID).header("X-Entry-Token", &pass);
        Reply::of(question.header("X-Original-Method", "POST").header("X-Original-URI", ORDERS))
    };
    let settle = |user: &str, granted: &Reply, outcome: &str| {
        let claim = granted.header("x-virtual-queue-claim").unwrap();
        let body = json!({ "target": "limited-drop/42", "userId": user, "claim": claim, "outcome": outcome });
        Reply::of(server.request(Method::POST, "/gate/settle").bearer_auth(SETTLE).json(&body))
    };
    let granted = ask().await;
    assert_eq!((granted.status, granted.header("x-virtual-queue-user")), (204, Some(UUID)));
    assert_eq!(settle("a b", &granted, "given_back").await.refusal(), (400, "BAD_REQUEST"));
    assert_eq!(settle(OTHER, &granted, "given_back").await.status, 204);
    assert_eq!(ask().await.refusal(), (403, "PASS_IN_USE"), "another's settlement changes nothing");
    assert_eq!(settle(UUID, &granted, "given_back").await.status, 204);
    let again = ask().await;
    assert_eq!(settle(UUID, &again, "spent").await.status, 204);
    assert_eq!(ask().await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
    assert_tells_nobody(&server);
}

#[tokio::test]
async fn the_flags_rule_names_people_by_their_texts_on_every_replica() {
    let redis = RedisServer::start();
    let servers = [Server::serve(&redis, &[ANY]), Server::serve(&redis, &[ANY])];
    let rule = json!({ "enabled": true, "rolloutPercent": 0, "users": [UUID, "7"], "reason": "canary" });
    let set = servers[0].set_flag(rule).await;
    assert_eq!(set.status, 200, "{set:?}");
    let mut shown: Vec<&str> = set.body["users"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    shown.sort_unstable();
    assert_eq!(shown, ["7", UUID], "as they were given");
    for server in &servers {
        let state = async |id: &str| Reply::of(by(server, Method::POST, ENTRIES, id)).await.state().to_owned();
        while state(UUID).await != "WAITING" {
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!((state("7").await, state(OTHER).await), ("WAITING".to_owned(), "DIRECT_ADMITTED".to_owned()));
    }
    assert_eq!(servers[0].set_flag(json!({ "enabled": true, "users": ["a b"], "reason": "r" })).await.status, 400);
    servers.iter().for_each(assert_tells_nobody);
}
