//! Forward auth as ingress-nginx asks: the page's values, put where the controller's template puts them, into a location
//! of a real nginx. The controller itself is not run.

use serde_json::json;
use virtual_queue::gate::PathHeader;

use super::{FAST, Nginx, ORDERS, pass};
use crate::{
    forward_shop::{self, Shop},
    server::{DROP, EVENT, Server},
    wire::{self, header},
};

const PAGE: &str = include_str!("../../../docs/integrations/ingress-nginx.md");
const SETTLE_TOKEN: &str = "the-shops-own-token";

/// What the page gives for this key, exactly once.
fn value(key: &str) -> &'static str {
    let begins = format!("{key}: \"");
    let lines: Vec<&str> = PAGE.lines().filter_map(|line| line.trim().strip_prefix(&*begins)).collect();
    assert_eq!(lines.len(), 1, "{key} on the page");
    lines[0].strip_suffix('"').unwrap_or_else(|| panic!("{key} on one line"))
}

fn annotation(name: &str) -> &'static str {
    value(&format!("nginx.ingress.kubernetes.io/{name}"))
}

/// The headers that the page's ConfigMap removes before the shop.
fn removed() -> Vec<&'static str> {
    let (_, map) = PAGE.split_once("name: headers-to-the-shop, ").expect("the ConfigMap");
    let (map, _) = map.split_once("```").expect("its end");
    map.lines().filter_map(|line| line.trim().strip_suffix(": \"\"")).collect()
}

/// What the controller makes of the two Ingresses and its ConfigMap.
fn configuration(waiting_room: &Server, shop: &Shop) -> String {
    let question =
        annotation("auth-url").replace("virtual-queue.default.svc.cluster.local:8080", waiting_room.host_and_port());
    let (mut told, mut headers) = (String::new(), String::new());
    for (at, name) in annotation("auth-response-headers").split(", ").enumerate() {
        let variable = name.to_ascii_lowercase().replace('-', "_");
        told += &format!("auth_request_set $auth_header_{at} $upstream_http_{variable};\n");
        headers += &format!("proxy_set_header '{name}' $auth_header_{at};\n");
    }
    assert_eq!(value("proxy-set-headers"), "ingress-nginx/headers-to-the-shop");
    for name in removed() {
        headers += &format!("proxy_set_header {name} \"\";\n");
    }
    assert_eq!(value("upstream-keepalive-connections"), "0", "so that the upstream has no `keepalive`");
    let (connection, repeats) = (annotation("connection-proxy-header"), annotation("proxy-next-upstream"));
    format!(
        "upstream shop {{ server {shop}; server {shop}; }}
        server {{
            listen 80;
            location /virtual-queues/ {{ proxy_pass http://{waiting_room}; }}
            location = /_external-auth {{
                internal;
                proxy_pass_request_body off;
                proxy_set_header Content-Length \"\";
                proxy_set_header X-Forwarded-Proto \"\";
                proxy_set_header X-Request-ID $request_id;
                proxy_set_header Host virtual-queue;
                proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
                proxy_set_header X-Original-Method $request_method;
                proxy_set_header X-Sent-From \"nginx-ingress-controller\";
                proxy_set_header X-Real-IP $remote_addr;
                proxy_set_header X-Forwarded-For $remote_addr;
                proxy_set_header X-Auth-Request-Redirect $request_uri;
                proxy_pass_request_headers on;
                proxy_http_version 1.1;
                set $target {question};
                proxy_pass $target;
            }}
            location / {{
                auth_request /_external-auth;
                auth_request_set $auth_cookie $upstream_http_set_cookie;
                add_header Set-Cookie $auth_cookie;
                {told}
                proxy_set_header Host $http_host;
                proxy_set_header Upgrade $http_upgrade;
                proxy_set_header Connection {connection};
                proxy_set_header X-Request-ID $request_id;
                proxy_set_header X-Real-IP $remote_addr;
                proxy_set_header X-Forwarded-For $remote_addr;
                proxy_set_header Proxy \"\";
                {headers}
                proxy_http_version 1.1;
                proxy_next_upstream {repeats};
                proxy_pass http://shop;
            }}
        }}",
        shop = shop.address,
        waiting_room = waiting_room.host_and_port(),
    )
}

#[tokio::test]
async fn as_ingress_nginx_asks_a_pass_buys_once_and_nothing_lies() {
    let (server, shop) = (Server::demo(FAST), Shop::open());
    let nginx = Nginx::run(&configuration(&server, &shop));
    let mine = pass(&server, DROP, 7).await;
    for (method, target) in [("POST", ORDERS), ("POST", "//limited-drops/42/orders"), ("post", ORDERS)] {
        assert_ne!(nginx.request(method, target, &[("X-User-Id", "7")], "").status / 100, 2, "{method} {target}");
    }
    for (header, value) in [("X-Virtual-Queue-User", "8"), ("X-Virtual-Queue-Claim", "made-up")] {
        assert_eq!(nginx.request("GET", "/", &[(header, value)], "").status, 403, "{header}");
    }
    for host in ["shop?x", "shop#x", "a@shop"] {
        let odd = format!("POST {ORDERS} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert!([400, 403].contains(&nginx.send(odd.as_bytes()).status), "{host}");
    }
    assert_eq!(shop.lines(), [] as [&str; 0]);

    let lies = [
        ("X-Original-URI", "/"),
        ("X-Original-URL", "/limited-drops/43/orders"),
        ("X-Original-Method", "GET"),
        ("X-Forwarded-Uri", "/"),
        ("X-Forwarded-Method", "GET"),
        ("X-Rewrite-URL", "/limited-drops/43/orders"),
        ("X_User_Id", "8"),
    ];
    for (method, target) in [("GET", "/"), ("GET", ORDERS)] {
        assert_eq!(nginx.request(method, target, &lies, "").status, 201, "a buyer's own lines block nothing");
    }
    assert_eq!(shop.lines(), ["GET /", "GET /limited-drops/42/orders"]);
    let headers = [&[("X-User-Id", "7"), ("X-Entry-Token", mine.as_str())], &lies[..]].concat();
    assert_eq!(nginx.request("POST", "/limited-drops/42/orders?a=%2F", &headers, "{}").status, 201);
    let saw = shop.saw().remove(0);
    assert!(saw.starts_with("POST /limited-drops/42/orders?a=%2F "), "{saw}");
    assert_eq!(header(&saw, "x-virtual-queue-user"), Some("7"));
    assert_eq!(header(&saw, "x-virtual-queue-target"), Some("LIMITED_DROP:42"));
    for name in removed().into_iter().chain(["X-Virtual-Queue-Claim", "X_User_Id"]) {
        assert_eq!(header(&saw, name), None, "{name}");
    }
    assert_eq!(nginx.buy(ORDERS, "7", &mine).status, 403, "once");
    for name in PathHeader::names().map(|name| name.replace('_', "-")) {
        assert!(removed().contains(&&*name), "{name} is removed, too");
    }
}

#[tokio::test]
async fn as_ingress_nginx_asks_the_shop_settles_and_no_put_is_sent_twice() {
    let routes = "[{ method = 'PUT', path = '/events/{id}/seats', target = 'ticketing-event' }]";
    let settings = [FAST, &[("VQ_GATE__SETTLE_TOKEN", SETTLE_TOKEN), ("VQ_GATE__ROUTES", routes)]].concat();
    let (server, shop) = (Server::demo(&settings), Shop::keeping(wire::PATIENCE));
    let nginx = Nginx::run(&configuration(&server, &shop));
    let mine = pass(&server, EVENT, 7).await;
    let select =
        || nginx.request("PUT", "/events/7/seats", &[("X-User-Id", "7"), ("X-Entry-Token", &mine)], "{}").status;
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
    assert_eq!(select(), 201);
    assert_eq!(select(), 403, "in use");
    settle("given_back").await;
    shop.break_next(1);
    assert_eq!(select(), 502);
    assert_eq!(shop.saw().len(), 1, "once");
}

#[test]
fn as_ingress_nginx_asks_nothing_passes_unasked() {
    let (mut server, shop) = (Server::demo(FAST), Shop::keeping(wire::PATIENCE));
    let nginx = Nginx::run(&configuration(&server, &shop));
    let tunnel = nginx.send(&forward_shop::h2c_tunnel(ORDERS));
    assert_eq!(tunnel.status, 201);
    assert_eq!(shop.lines(), ["GET /"]);
    assert!(!forward_shop::echoes(nginx.connect(), "/chat"), "as the page says");
    assert_eq!(shop.lines(), ["GET /chat"]);
    for method in ["GET", "POST"] {
        assert_eq!(nginx.request(method, ORDERS, &[("X-A", "\u{1}")], "").status, 500);
    }
    server.kill9();
    for method in ["GET", "POST"] {
        assert_eq!(nginx.request(method, ORDERS, &[], "").status, 500);
    }
    assert_eq!(shop.lines(), [] as [&str; 0]);
}
