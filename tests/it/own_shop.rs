//! The library in somebody's own application: `examples/own_shop.rs` as a process.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use reqwest::{Client, Method, RequestBuilder};
use virtual_queue::{
    clock::StoreClock,
    domain::{QueueTarget, QueueTargetType},
    token::{EntryTokenIssuer, Keyring},
};

use crate::{
    invariants,
    redis_server::RedisServer,
    server::{Reply, SECRET},
    store_fixture::{target, user},
};

const DENIED: (u16, &str) = (403, "QUEUE_BYPASS_DENIED");

/// The running example.
struct OwnShop {
    child: Child,
    address: String,
    http: Client,
}

impl OwnShop {
    fn open(settings: &[(&str, &str)]) -> Self {
        // Beside this test's own directory; cargo builds examples before it runs all tests.
        let tests = std::env::current_exe().expect("this test");
        let example = tests.ancestors().nth(2).expect("target/debug").join("examples/own_shop");
        let mut child = Command::new(&example)
            .envs(settings.iter().copied())
            .env("SHOP_PORT", "0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cargo build --example own_shop makes {}: {error}", example.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its output");
        let address = line.trim().strip_prefix("listening on ").expect("it listens").to_owned();
        Self { child, address, http: Client::new() }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.address))
    }

    /// A purchase of drop 42 by who is logged in.
    async fn buy(&self, buyer: &str, pass: &str) -> Reply {
        let request = self.request(Method::POST, "/shop/drops/42/buy").header("Cookie", format!("session={buyer}"));
        Reply::of(request.header("X-Entry-Token", pass)).await
    }
}

impl Drop for OwnShop {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pass as the waiting room makes them, good for some seconds more.
fn pass(target: QueueTarget, holder: u64, seconds: i64) -> String {
    let keyring = Keyring::new(&SECRET.into(), &[]).unwrap();
    let expires_at = StoreClock::system().now_seconds().strict_add_signed(seconds);
    keyring.mint(target, user(holder), expires_at).raw().to_owned()
}

#[tokio::test]
async fn with_nothing_but_the_secret_only_a_good_pass_buys() {
    let shop = OwnShop::open(&[("VQ_TOKEN__SECRET", SECRET)]);
    for page in ["/", "/shop/drops/42"] {
        assert_eq!(Reply::of(shop.request(Method::GET, page)).await.status, 200, "pages need no pass");
    }
    let good = pass(target(42), 7, 300);
    let event = QueueTarget::new(QueueTargetType::TicketingEvent, 42).unwrap();
    for (buyer, wrong) in [
        ("7", String::new()),
        ("8", good.clone()),
        ("7", pass(target(43), 7, 300)),
        ("7", pass(event, 7, 300)),
        ("7", pass(target(42), 7, -1)),
        ("7", format!("{good}=")),
    ] {
        assert_eq!(shop.buy(buyer, &wrong).await.refusal(), DENIED, "{buyer} with {wrong}");
    }
    let outside = shop.request(Method::POST, "/shop/drops/42/buy").header("X-User-Id", "7");
    let outside = outside.header("X-Entry-Token", &good);
    assert_eq!(Reply::of(outside).await.refusal(), DENIED, "only the login says who buys");
    let odd = shop.request(Method::POST, "/shop/drops/%34%32/buy").header("Cookie", "session=7");
    assert_eq!(Reply::of(odd.header("X-Entry-Token", &good)).await.status, 403, "another spelling");

    let bought = shop.buy("7", &good).await;
    assert_eq!((bought.status, bought.text.as_str()), (201, "drop 42 is yours, 7\n"));
    assert_eq!(shop.buy("7", &good).await.status, 201, "without a store nobody knows that it has bought");
}

#[tokio::test]
async fn with_the_waiting_rooms_redis_a_pass_buys_once() {
    let redis = RedisServer::start();
    let shop = OwnShop::open(&[("VQ_TOKEN__SECRET", SECRET), ("VQ_REDIS__URL", &redis.url())]);
    let good = pass(target(42), 7, 300);
    assert_eq!(shop.buy("7", &good).await.status, 201);
    assert_eq!(shop.buy("7", &good).await.refusal(), DENIED);
    assert_eq!(shop.buy("8", &pass(target(42), 8, 300)).await.status, 201);
    invariants::assert_hold(&redis);
}
