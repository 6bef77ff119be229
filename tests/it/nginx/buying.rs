//! Buying behind nginx: passes, spellings, settling, cookies.

use serde_json::json;

use super::{FAST, Nginx, ORDERS, closed, denied, pass};
use crate::{
    forward_shop::Shop,
    invariants,
    redis_server::RedisServer,
    server::{DROP, Server},
    wire::header,
};

const SETTLE_TOKEN: &str = "the-shops-own-token";

#[tokio::test]
async fn behind_nginx_a_pass_buys_once() {
    let redis = RedisServer::start();
    let (server, shop) = (Server::serve(&redis, FAST), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let (mine, others) = (pass(&server, DROP, 7).await, pass(&server, DROP, 8).await);

    assert_eq!(nginx.request("POST", ORDERS, &[("X-User-Id", "7")], "").refusal(), denied(), "no pass");
    assert_eq!(nginx.buy(ORDERS, "7", "x.y").refusal(), denied(), "nonsense");
    assert_eq!(nginx.buy(ORDERS, "7", &others).refusal(), denied(), "another's");
    assert_eq!(nginx.buy("/limited-drops/43/orders", "7", &mine).refusal(), denied(), "another target's");
    let two = [("X-User-Id", "7"), ("X-User-Id", "8"), ("X-Entry-Token", mine.as_str())];
    assert_eq!(nginx.request("POST", ORDERS, &two, "").refusal(), denied(), "two people's");
    assert_eq!(shop.lines(), [] as [&str; 0]);

    let liar = [
        ("X-User-Id", "7"),
        ("X-Entry-Token", mine.as_str()),
        ("X-Virtual-Queue-User", "8"),
        ("X-Virtual-Queue-Claim", "made-up"),
        ("X-Forwarded-Method", "GET"),
        ("X-Forwarded-Uri", "/"),
    ];
    let bought = nginx.request("POST", "/limited-drops/42/orders?a=b", &liar, "{\"piece\":1}");
    assert_eq!((bought.status, bought.body.as_str()), (201, "{\"piece\":1}"), "{bought:?}");
    let saw = shop.saw();
    assert!(saw.len() == 1 && saw[0].starts_with("POST /limited-drops/42/orders?a=b HTTP/1.1\r\n"), "{saw:?}");
    assert_eq!(header(&saw[0], "x-virtual-queue-user"), Some("7"));
    assert_eq!(header(&saw[0], "x-virtual-queue-target"), Some("LIMITED_DROP:42"));
    assert_eq!(header(&saw[0], "x-virtual-queue-claim"), None, "there is nothing to settle");
    assert_eq!(header(&saw[0], "x-entry-token"), None);

    assert_eq!(nginx.buy(ORDERS, "7", &mine).refusal(), denied(), "spent");
    assert_eq!(nginx.buy(ORDERS, "8", &others).status, 201);
    assert_eq!(shop.lines().len(), 1);
    assert_eq!(server.stats(DROP).await["consumed"], 2);
    let unknown = nginx.buy("/limited-drops/042/orders", "7", &mine);
    assert_eq!(unknown.refusal(), (404, "UNKNOWN_TARGET".to_owned()));
    assert_eq!(nginx.request("GET", "/gate/verify", &[], "").status, 404, "not for buyers");
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn behind_nginx_no_other_spelling_reaches_the_purchase() {
    let redis = RedisServer::start();
    let (server, shop) = (Server::serve(&redis, FAST), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let mine = pass(&server, DROP, 7).await;
    for odd in [
        "//limited-drops/42/orders",
        "/limited-drops//42/orders",
        "/limited-drops/42/orders/",
        "/limited-drops/42//orders//",
        "/./limited-drops/42/orders",
        "/x/../limited-drops/42/orders",
        "/limited-drops/42/orders/x/..",
        "/virtual-queues/../limited-drops/42/orders",
        "/../limited-drops/42/orders",
        "/limited-drops%2F42/orders",
        "/limited-drops%2f42%2forders",
        "/limited-drops%252F42%252Forders",
        "/x/..%2Flimited-drops/42/orders",
        "/x/..%252flimited-drops/42/orders",
        "/x/%2e%2e/limited-drops/42/orders",
        "/x/..;/limited-drops/42/orders",
        "/limited-drops/42/orders;v=1",
        "/limited-drops;a/42/orders",
        "/limited-drops/42/orders.json",
        "/LIMITED-DROPS/42/ORDERS",
        "/limited-drops/42/order%73",
        "/limited-drops\\42\\orders",
        "/limited-drops%5C42/orders",
        "/limited-drops/42/orders%00",
        "/limited-drops/42/orders%0a",
        "/limited-drops/42/orders%20",
        "/limited-drops/42/orders%3Fx",
        "/limited-drops/42/orders#x",
        "/limited-drops/042/orders",
        "/limited-drops/%34%32/orders",
        "/limited-drops/+42/orders",
        "http://shop//limited-drops/42/orders",
    ] {
        let answer = nginx.buy(odd, "7", &mine);
        assert!((400..500).contains(&answer.status), "{odd}: {answer:?}");
        assert_eq!(shop.lines(), [] as [&str; 0], "{odd}");
    }
    // nginx itself makes a plain path of this one, and tells both the same.
    assert_eq!(
        nginx.request("POST", "http://shop/limited-drops/42/orders", &[("X-User-Id", "7")], "").refusal(),
        denied()
    );
    assert_eq!(nginx.buy("http://shop/limited-drops/42/orders", "7", &mine).status, 201);
    assert_eq!(shop.lines(), ["POST /limited-drops/42/orders"]);

    for harmless in [
        "/",
        "/products/a%2Fb;v=1?q=%20",
        "/products//x/",
        "/products/%EA%B9%80",
        "/limited-drops/42",
        "/events/7/seats",
        "/products/x%2F..%2Fy/../z",
        "/files/100%25",
    ] {
        let answer = nginx.request("POST", harmless, &[], "");
        assert_eq!(answer.status, 201, "{harmless}: {answer:?}");
        assert_eq!(shop.lines(), [format!("POST {harmless}")], "as it was sent");
    }
    assert_eq!(nginx.request("GET", ORDERS, &[], "").status, 201, "looking is no purchase");
    assert_eq!(shop.lines(), [format!("GET {ORDERS}")]);
    let raw = "POST /products/김 HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(nginx.send(raw.as_bytes()).status, 201);
    assert_eq!(shop.lines(), ["POST /products/김"]);
}

#[tokio::test]
async fn behind_nginx_everything_passes_while_the_flag_is_off() {
    let off = [FAST, &[("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "false")]].concat();
    let (server, shop) = (Server::demo(&off), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    for target in [ORDERS, "//limited-drops/42/orders", "/events/07/seats/select"] {
        assert_eq!(nginx.request("POST", target, &[], "").status, 201, "{target}");
        let saw = shop.saw();
        assert!(saw[0].starts_with(&format!("POST {target} HTTP/1.1\r\n")), "{saw:?}");
        assert!(!saw[0].to_ascii_lowercase().contains("x-virtual-queue"), "{saw:?}");
    }
}

#[tokio::test]
async fn behind_nginx_a_purchase_passes_while_redis_is_away() {
    let mut redis = RedisServer::start();
    let (server, shop) = (Server::serve(&redis, FAST), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let mine = pass(&server, DROP, 7).await;
    redis.kill9();
    assert_eq!(nginx.buy(ORDERS, "7", &mine).status, 201);
    assert_eq!(nginx.buy(ORDERS, "8", &mine).refusal(), denied(), "signatures are checked all the same");
    assert_eq!(shop.lines().len(), 1);
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains(r#"virtual_queue_redis_degraded_total{operation="gate"} 1"#), "{metrics}");
}

#[tokio::test]
async fn behind_nginx_the_shop_settles_what_it_sold_and_what_it_did_not() {
    let redis = RedisServer::start();
    let settings = [FAST, &[("VQ_GATE__SETTLE_TOKEN", SETTLE_TOKEN)]].concat();
    let (server, shop) = (Server::serve(&redis, &settings), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let mine = pass(&server, DROP, 7).await;
    let settle = async |outcome: &str| {
        let head = shop.saw().remove(0);
        let said = |name| header(&head, name).expect("the shop is told");
        let body = json!({
            "target": said("x-virtual-queue-target"),
            "userId": said("x-virtual-queue-user"),
            "claim": said("x-virtual-queue-claim"),
            "outcome": outcome,
        });
        let request = server.request(reqwest::Method::POST, "/gate/settle").bearer_auth(SETTLE_TOKEN).json(&body);
        assert_eq!(request.send().await.unwrap().status(), 204);
    };

    assert_eq!(nginx.buy(ORDERS, "7", &mine).status, 201);
    let meanwhile = nginx.buy(ORDERS, "7", &mine);
    assert_eq!(meanwhile.refusal(), (409, "PASS_IN_USE".to_owned()));
    assert_eq!(meanwhile.header("retry-after"), Some("1"));
    settle("given_back").await;
    assert_eq!(nginx.buy(ORDERS, "7", &mine).status, 201, "the pass works again");
    settle("spent").await;
    assert_eq!(nginx.buy(ORDERS, "7", &mine).refusal(), denied());
    assert_eq!(server.stats(DROP).await["consumed"], 1);
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn behind_nginx_a_browser_queues_and_buys_with_its_cookie() {
    let cookies = [FAST, &[("VQ_TOKEN__COOKIE", "true")]].concat();
    let (server, shop) = (Server::demo(&cookies), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let me = [("X-User-Id", "7")];
    assert_eq!(nginx.request("POST", "/virtual-queues/limited-drop/42/entries", &me, "").status, 200);
    pass(&server, DROP, 7).await;
    let admitted = nginx.request("GET", "/virtual-queues/limited-drop/42/entries/me", &me, "");
    let cookie = admitted.header("set-cookie").expect("a cookie").split(';').next().unwrap();
    let buy = || nginx.request("POST", ORDERS, &[me[0], ("Cookie", &format!("theme=dark; {cookie}"))], "");
    assert_eq!(buy().status, 201);
    assert_eq!(buy().refusal(), denied(), "once");
    assert_eq!(shop.lines(), [format!("POST {ORDERS}")]);
}
