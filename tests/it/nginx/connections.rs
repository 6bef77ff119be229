//! Connections behind nginx: kept, closing and broken ones, other protocols, and what a shop learns of the buyer.

use std::time::Duration;

use tokio::time::Instant;
use virtual_queue::gate::PathHeader;

use super::{FAST, Nginx, ORDERS, closed, pass};
use crate::{
    forward_shop::{self, Shop},
    server::{DROP, Server},
    wire::{self, header},
};

#[tokio::test]
async fn behind_nginx_nothing_that_may_buy_is_sent_twice() {
    let routes = "[{ method = 'PUT', path = '/api/sales/{id}/claim', target = 'limited-drop' }]";
    let server = Server::demo(&[FAST, &[("VQ_GATE__ROUTES", routes)]].concat());
    let shop = Shop::keeping(wire::PATIENCE);
    let nginx = Nginx::start(&closed(), &server, &shop);
    let mine = pass(&server, DROP, 7).await;
    let claim = "/api/sales/42/claim";
    let headers = [("X-User-Id", "7"), ("X-Entry-Token", mine.as_str())];
    for (method, target, headers) in
        [("PUT", claim, &headers[..]), ("PUT", "/cart", &[]), ("POST", "/cart", &[]), ("DELETE", "/cart", &[])]
    {
        assert_eq!(nginx.request("GET", "/", &[], "").status, 201, "leaves a connection behind");
        shop.lines();
        shop.break_next(1);
        assert_eq!(nginx.request(method, target, headers, "").status, 502, "{method} {target}");
        assert_eq!(shop.lines(), [format!("{method} {target}")], "once");
    }
    assert_eq!(nginx.request("GET", "/", &[], "").status, 201);
    shop.lines();
    shop.break_next(1);
    assert_eq!(nginx.request("GET", "/again", &[], "").status, 201, "on a new connection");
    assert_eq!(shop.lines(), ["GET /again", "GET /again"]);
}

#[tokio::test]
async fn behind_nginx_no_purchase_fails_at_the_close_of_the_shops_idle_connection() {
    const IDLE: Duration = Duration::from_millis(200);
    let server = Server::demo(FAST);
    let shop = Shop::keeping(IDLE);
    let nginx = Nginx::start(&closed(), &server, &shop);
    for user in 1..=48 {
        server.enter(DROP, user).await;
    }
    let (mut failed, mut gets_failed) = (Vec::new(), 0);
    for user in 1..=48_u64 {
        let mine = server.await_pass(DROP, user, Duration::from_secs(10)).await;
        assert_eq!(nginx.request("GET", "/", &[], "").status, 201);
        let answered = Instant::now();
        // From 3 ms before the close to 3 ms after it, in steps of an eighth of a millisecond.
        let at = IDLE - Duration::from_millis(3) + Duration::from_micros(125) * u32::try_from(user).unwrap();
        while answered.elapsed() < at {
            std::hint::spin_loop();
        }
        let status = if user % 4 == 0 {
            let status = nginx.request("GET", "/", &[], "").status;
            gets_failed += usize::from(status != 201);
            nginx.buy(ORDERS, &user.to_string(), &mine).status
        } else {
            nginx.buy(ORDERS, &user.to_string(), &mine).status
        };
        if status != 201 {
            failed.push((at, status));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(gets_failed, 0);
    let purchases = shop.lines().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(purchases, 48);
    assert!(shop.connections() >= 48, "a connection of its own for each purchase");
}

#[test]
fn behind_nginx_websockets_pass_and_no_other_protocol_does() {
    let (server, shop) = (Server::demo(FAST), Shop::keeping(wire::PATIENCE));
    let nginx = Nginx::start(&closed(), &server, &shop);
    assert!(forward_shop::echoes(nginx.connect(), "/chat"));
    assert_eq!(shop.lines(), ["GET /chat"]);
    let answer = nginx.send(&forward_shop::h2c_tunnel(ORDERS));
    assert_eq!(answer.status, 201);
    let saw = shop.saw();
    assert!(saw.len() == 1 && saw[0].starts_with("GET / "), "{saw:?}");
    assert_eq!((header(&saw[0], "upgrade"), header(&saw[0], "http2-settings")), (None, Some("AAMAAABkAAQAAP__")));
    assert!(answer.body.contains("QUEUE_BYPASS_DENIED"), "the second request is asked about, too: {answer:?}");
}

#[test]
fn behind_nginx_no_header_that_moves_the_path_reaches_the_shop() {
    let (server, shop) = (Server::demo(FAST), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    for name in PathHeader::names() {
        for name in [name.to_owned(), name.replace('_', "-"), name.replace('-', "_"), name.replace('-', ".")] {
            assert_eq!(nginx.request("GET", "/", &[(&name, "/x")], "").status, 201, "{name}: harmless");
            let saw = shop.saw().remove(0);
            assert_eq!(header(&saw, &name), None, "{saw}");
        }
    }
}

#[tokio::test]
async fn behind_nginx_the_shop_gets_nothing_that_lies_about_the_buyer_or_the_path() {
    let (server, shop) = (Server::demo(FAST), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let mine = pass(&server, DROP, 7).await;
    let lies = [
        ("X-Virtual-Queue-Claim", "made-up"),
        ("X_Virtual_Queue_Claim", "made-up"),
        ("X.Virtual.Queue.Claim", "made-up"),
        ("X_User_Id", "8"),
        ("X.User.Id", "8"),
        ("X-Original-URI", "/limited-drops/43/orders"),
        ("X-Forwarded-Uri", "/limited-drops/43/orders"),
        ("X-Forwarded-Prefix", "/x"),
        ("SCRIPT_NAME", "/x"),
        ("Script-Name", "/x"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("Connection", "close, X-Virtual-Queue-Claim, X-Virtual-Queue-User, X-User-Id"),
    ];
    for (method, target) in [("GET", "/"), ("POST", ORDERS)] {
        let headers = [&[("X-User-Id", "7"), ("X-Entry-Token", mine.as_str())], &lies[..]].concat();
        let answer = nginx.request(method, target, &headers, "");
        assert_eq!(answer.status, 201, "{answer:?}");
        let saw = shop.saw().remove(0);
        let ids: Vec<&str> = wire::values(&saw, "x-user-id").collect();
        assert_eq!(ids, ["7"]);
        assert_eq!(header(&saw, "x-virtual-queue-user"), (method == "POST").then_some("7"));
        assert_eq!(header(&saw, "x-forwarded-for"), Some("unix:"), "who connected");
        for (name, _) in lies.iter().filter(|(name, _)| !["X-Forwarded-For", "Connection"].contains(name)) {
            assert_eq!(header(&saw, name), None, "{saw}");
        }
    }
}
