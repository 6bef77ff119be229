//! A proxy that is closed while no replica answers, before two replicas and a shop that settles.

use std::{io::Write, thread::JoinHandle, time::Duration};

use serde_json::json;
use tokio::time::Instant;
use virtual_queue::domain::PathHeader;

use super::{
    DENIED, ORDERS,
    process::{Away, Kind, Proxy},
    shop::Shop,
    wire::{Answer, connect, exchange, header, headers, more, request, send},
};
use crate::{
    invariants,
    redis_server::RedisServer,
    server::{DROP, Server},
    smuggling::spellings::SPELLINGS,
};

const SETTLE_TOKEN: &str = "the-shops-own-token";
const SETTINGS: &[(&str, &str)] =
    &[("VQ_QUEUE__TICK_MS", "500"), ("VQ_GATE__SETTLE_TOKEN", SETTLE_TOKEN), ("VQ_SERVER__DRAIN_SECONDS", "0")];

/// What a shop may read as another header.
const LOOK_ALIKES: &[&str] = &[
    "X_User_Id",
    "X.User.Id",
    "X!User-Id",
    "X_Entry_Token",
    "X_Virtual_Queue_Claim",
    "X.Virtual.Queue.User",
    "X~Virtual-Queue|Target",
    "X-Virtual-Queue-Claim",
    "X.HTTP.Method.Override",
    "X_ORIGINAL_URL",
    "X.Original.Url",
    "SCRIPT_NAME",
    "PATH_INFO",
    "X-Original-Method",
    "X-Forwarded-Method",
];

struct ProxyFixture {
    proxy: Proxy,
    shop: Shop,
    first: Server,
    second: Server,
}

/// All of it, one after the other, on one proxy: starting one takes longer than most of this.
pub(super) async fn all(kind: Kind) {
    let redis = RedisServer::start();
    let shop = Shop::open();
    let (first, second) = (Server::serve(&redis, SETTINGS), Server::serve(&redis, SETTINGS));
    let proxy = Proxy::start(kind, Away::Closed, &[first.host_and_port(), second.host_and_port()], shop.port);
    let mut fixture = ProxyFixture { proxy, shop, first, second };
    fixture.await_passage();
    let slow = fixture.ask_a_slow_shop();
    fixture.a_pass_buys_once_and_the_shop_settles().await;
    fixture.no_header_of_a_buyer_deceives_the_shop().await;
    fixture.no_other_spelling_reaches_the_purchase();
    fixture.harmless_requests_reach_the_shop_as_they_came();
    fixture.websockets_pass_and_no_tunnel_is_opened();
    fixture.purchases_have_connections_of_their_own().await;
    fixture.too_many_headers_are_refused();
    if let Some(slow) = slow {
        assert_eq!(slow.join().unwrap().status, 201, "a slow shop is waited for");
    }
    fixture.one_replica_dies_and_nobody_notices();
    fixture.a_hanging_waiting_room_holds_nobody_for_long();
    fixture.nobody_passes_while_no_replica_answers();
    invariants::assert_hold(&redis);
}

impl ProxyFixture {
    fn get(&self, target: &str) -> Answer {
        request(self.proxy.port, "GET", target, &[], "")
    }

    fn buy(&self, user: &str, pass: &str, more: &[(&str, &str)]) -> Answer {
        let headers = [&[("X-User-Id", user), ("X-Entry-Token", pass)], more].concat();
        request(self.proxy.port, "POST", ORDERS, &headers, "{\"piece\":1}")
    }

    async fn pass(&self, user: u64) -> String {
        self.second.enter(DROP, user).await;
        self.second.await_pass(DROP, user, Duration::from_secs(10)).await
    }

    /// Until the proxy has found the replicas healthy.
    fn await_passage(&self) {
        let began = Instant::now();
        while self.get("/").status != 201 {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", self.get("/"));
            std::thread::sleep(Duration::from_millis(50));
        }
        self.shop.saw();
    }

    /// Where it matters: Envoy gives a shop 15 s by default, the others give it longer.
    fn ask_a_slow_shop(&self) -> Option<JoinHandle<Answer>> {
        let port = self.proxy.port;
        (self.proxy.kind == Kind::Envoy).then(|| std::thread::spawn(move || request(port, "GET", "/slow", &[], "")))
    }

    async fn settle(&self, head: &str, outcome: &str) {
        let said = |name| {
            let said = headers(head, name);
            assert_eq!(said.len(), 1, "{name} once in {head}");
            said[0]
        };
        let body = json!({
            "target": said("x-virtual-queue-target"),
            "userId": said("x-virtual-queue-user"),
            "claim": said("x-virtual-queue-claim"),
            "outcome": outcome,
        });
        let request = self.second.request(reqwest::Method::POST, "/gate/settle").bearer_auth(SETTLE_TOKEN).json(&body);
        assert_eq!(request.send().await.unwrap().status(), 204);
    }

    /// The one purchase that the shop saw; nothing that a buyer made up is in it.
    fn purchase(&self) -> String {
        let mut saw = self.shop.saw();
        saw.retain(|head| !head.starts_with("GET /slow "));
        assert!(saw.len() == 1 && saw[0].starts_with(&format!("POST {ORDERS} HTTP/1.1\r\n")), "{saw:?}");
        assert!(!saw[0].contains("evil"), "{saw:?}");
        assert_eq!(header(&saw[0], "x-entry-token"), None, "{saw:?}");
        saw.remove(0)
    }

    async fn a_pass_buys_once_and_the_shop_settles(&self) {
        let (mine, others) = (self.pass(7).await, self.pass(8).await);
        for (what, pass) in [("none", ""), ("nonsense", "x.y"), ("another's", &others)] {
            assert_eq!(self.buy("7", pass, &[]).refusal(), (403, DENIED.to_owned()), "{what}");
        }
        let two = self.buy("7", &mine, &[("X-User-Id", "8")]);
        assert_eq!(two.status, 403, "two people's: {two:?}");
        let lines = self.shop.lines();
        assert!(lines.iter().all(|line| line == "GET /slow"), "{lines:?}");

        let liar = [("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/evil"), ("X-Virtual-Queue-User", "evil")];
        let bought = self.buy("7", &mine, &liar);
        assert_eq!((bought.status, bought.body.as_str()), (201, "{\"piece\":1}"), "{bought:?}");
        let head = self.purchase();
        assert_eq!(header(&head, "x-virtual-queue-user"), Some("7"));
        let meanwhile = self.buy("7", &mine, &[]);
        assert_eq!(meanwhile.refusal().1, "PASS_IN_USE", "{meanwhile:?}");
        assert_eq!(meanwhile.header("retry-after"), Some("1"));
        self.settle(&head, "given_back").await;

        // What Connection names ends at a proxy: nothing of ours may.
        let taken = "close, X-Virtual-Queue-Claim, x-virtual-queue-user, X-Virtual-Queue-Target";
        assert_eq!(self.buy("7", &mine, &[("Connection", taken)]).status, 201);
        self.settle(&self.purchase(), "given_back").await;

        let chunked = format!(
            "POST {ORDERS} HTTP/1.1\r\nHost: shop\r\nX-User-Id: 7\r\nX-Entry-Token: {mine}\r\n\
             Transfer-Encoding: chunked\r\n\r\n5\r\npiece\r\n0\r\n\r\n"
        );
        assert_eq!(send(self.proxy.port, &chunked).status, 201);
        self.settle(&self.purchase(), "spent").await;
        assert_eq!(self.buy("7", &mine, &[]).refusal(), (403, DENIED.to_owned()), "spent");
        assert_eq!(self.shop.lines(), [] as [&str; 0]);
    }

    async fn no_header_of_a_buyer_deceives_the_shop(&self) {
        for name in LOOK_ALIKES {
            let answer = request(self.proxy.port, "POST", "/cart", &[(name, "/evil"), (name, "/evil/too")], "");
            let saw = self.shop.saw();
            assert!(saw.iter().all(|head| !head.contains("evil")), "{name}: {saw:?}");
            assert!(answer.status == 201 || (400..500).contains(&answer.status), "{name}: {answer:?}");
        }
        for name in PathHeader::names() {
            // Refusing it would do; but somebody's own front may send it.
            let answer = request(self.proxy.port, "POST", "/cart", &[(name, "/evil"), (name, "/evil/too")], "");
            let saw = self.shop.saw();
            assert!(answer.status == 201 && !saw[0].contains("evil"), "{name}: {answer:?} {saw:?}");
        }
        let shop = request(self.proxy.port, "POST", "/", &[("X-Original-URL", ORDERS), ("X-Original-URL", "/y")], "");
        assert!(self.shop.saw().iter().all(|head| !head.contains("limited-drops")), "{shop:?}");

        let mine = self.pass(9).await;
        for name in ["X_User_Id", "X.Virtual.Queue.User", "X_Virtual_Queue_Claim", "X-Virtual-Queue-Claim"] {
            let answer = self.buy("9", &mine, &[(name, "evil")]);
            if answer.status == 201 {
                self.settle(&self.purchase(), "given_back").await;
            } else {
                assert!((400..500).contains(&answer.status), "{name}: {answer:?}");
                assert_eq!(self.shop.lines(), [] as [&str; 0]);
            }
        }

        let mine = [("X-Forwarded-For", "6.6.6.6"), ("X-Real-Ip", "6.6.6.6"), ("Forwarded", "for=6.6.6.6")];
        assert_eq!(request(self.proxy.port, "GET", "/", &mine, "").status, 201);
        let saw = self.shop.saw();
        assert_eq!(headers(&saw[0], "x-forwarded-for").len(), 1, "{saw:?}");
        assert!(!saw[0].contains("6.6.6.6"), "{saw:?}");
    }

    fn no_other_spelling_reaches_the_purchase(&self) {
        for target in SPELLINGS {
            let head = format!("POST {target} HTTP/1.1\r\nHost: shop.example\r\nX-User-Id: 7\r\n");
            let answer = send(self.proxy.port, &format!("{head}Content-Length: 0\r\n\r\n"));
            let lines = self.shop.lines();
            let sold = lines.iter().any(|line| line.to_ascii_lowercase().starts_with("post /limited"));
            assert!(!sold && answer.status < 500, "{target}: {answer:?} {lines:?}");
            // The way from here to the shop is open only to another path, which the proxy has made of it.
            assert!(lines.is_empty() || lines != [format!("POST {target}")], "{target}: {lines:?}");
        }
    }

    fn harmless_requests_reach_the_shop_as_they_came(&self) {
        for target in
            ["/", "/a/b?c=%2F&d=/limited-drops/42/orders", "/%ED%95%9C", "/limited-drops/42", "/events/7/seats"]
        {
            for method in ["GET", "POST", "DELETE"] {
                assert_eq!(request(self.proxy.port, method, target, &[], "").status, 201, "{method} {target}");
                assert_eq!(self.shop.lines(), [format!("{method} {target}")]);
            }
        }
        assert_eq!(self.get(ORDERS).status, 201, "looking is no purchase");
        assert_eq!(self.shop.lines(), [format!("GET {ORDERS}")]);
        let queue = format!("/virtual-queues/{DROP}/entries/me");
        assert_eq!(request(self.proxy.port, "GET", &queue, &[("X-User-Id", "77")], "").refusal().1, "NOT_IN_QUEUE");
        for ours in ["/gate/verify", "/metrics", "/admin/flags/virtual-queue.enabled"] {
            let answer = self.get(ours);
            assert_eq!(answer.body, "from the shop", "{ours} is none of ours here");
        }
        self.shop.saw();
    }

    fn websockets_pass_and_no_tunnel_is_opened(&self) {
        for (named, offered) in [("Upgrade, HTTP2-Settings", "h2c"), ("upgrade", "H2C"), ("Upgrade", "websocket, h2c")]
        {
            for method in ["GET", "POST"] {
                let offer =
                    [("Connection", named), ("Upgrade", offered), ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA")];
                let answer = request(self.proxy.port, method, "/", &offer, "");
                assert!(answer.status != 101, "{method} {offered}: {answer:?}");
                assert!(answer.status == 201 || offered.contains(','), "Java offers it with all it sends: {answer:?}");
                let saw = self.shop.saw();
                assert!(saw.iter().all(|head| header(head, "upgrade").is_none()), "{method} {offered}: {saw:?}");
            }
        }
        let mut stream = connect(self.proxy.port);
        let hello = "GET /live HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(hello.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            assert!(more(&mut stream, &mut bytes) > 0);
        }
        assert!(bytes.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&bytes));
        let frame = b"\x81\x85\0\0\0\0hello";
        stream.write_all(frame).unwrap();
        bytes.clear();
        while bytes.len() < frame.len() {
            assert!(more(&mut stream, &mut bytes) > 0, "the socket is open");
        }
        assert_eq!(bytes, frame);
        self.shop.saw();
    }

    /// A purchase that meets a connection which the shop is closing fails, or is sent twice.
    async fn purchases_have_connections_of_their_own(&self) {
        let mut passes = Vec::new();
        for user in 20..24 {
            self.second.enter(DROP, user).await;
        }
        for user in 20..24 {
            passes.push((user.to_string(), self.pass(user).await));
        }
        self.shop.becomes_stale(true);
        for (user, pass) in &passes {
            // Leaves connections that are good for nothing, the buyer's own way to the shop included.
            assert_eq!(self.get("/").status, 201, "looking may be repeated");
            let mut stream = connect(self.proxy.port);
            let other = exchange(&mut stream, "POST /cart HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(other.status, 201, "{other:?}");
            self.shop.saw();
            let purchase = format!(
                "POST {ORDERS} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\nX-User-Id: {user}\r\n\
                 X-Entry-Token: {pass}\r\nIdempotency-Key: a-purchase\r\n\r\n"
            );
            let answer = exchange(&mut stream, &purchase);
            assert_eq!(answer.status, 201, "{answer:?}");
            self.settle(&self.purchase(), "spent").await;
        }
        self.shop.becomes_stale(false);
        let answer = request(self.proxy.port, "POST", "/dying", &[("Idempotency-Key", "a-purchase")], "");
        assert!(answer.status >= 500, "{answer:?}");
        assert_eq!(self.shop.lines(), ["POST /dying"], "sent once");
    }

    fn too_many_headers_are_refused(&self) {
        let names: Vec<String> = (0..150).map(|nth| format!("X-{nth}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        let answer = request(self.proxy.port, "POST", ORDERS, &many, "");
        assert!((400..500).contains(&answer.status), "{answer:?}");
        assert_eq!(request(self.proxy.port, "GET", "/", &many[..60], "").status, 201, "browsers send fewer");
        self.shop.saw();
    }

    fn one_replica_dies_and_nobody_notices(&mut self) {
        self.first.kill9();
        let queue = format!("/virtual-queues/{DROP}/stats");
        for nth in 0..30 {
            let page = self.get(&format!("/{nth}"));
            assert_eq!(page.status, 201, "page {nth}: {page:?}");
            let call = self.get(&queue);
            assert_eq!(call.status, 200, "call {nth}: {call:?}");
        }
        self.shop.saw();
    }

    fn is_away(&self, answer: &Answer) {
        if self.proxy.kind == Kind::Traefik {
            assert!((502..=504).contains(&answer.status), "{answer:?}");
            return;
        }
        assert_eq!(answer.refusal(), (503, "WAITING_ROOM_AWAY".to_owned()), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!((answer.header("cache-control"), answer.header("retry-after")), (Some("no-store"), Some("1")));
    }

    fn a_hanging_waiting_room_holds_nobody_for_long(&self) {
        self.second.stop();
        for _ in 0..3 {
            let answer = self.get("/");
            self.is_away(&answer);
            assert!(answer.took < Duration::from_secs(6), "{answer:?}");
        }
        assert_eq!(self.shop.lines(), [] as [&str; 0]);
        self.second.cont();
        self.await_passage();
    }

    fn nobody_passes_while_no_replica_answers(&mut self) {
        self.second.kill9();
        for answer in [self.get("/"), self.buy("7", "x.y", &[])] {
            self.is_away(&answer);
        }
        assert_eq!(self.shop.lines(), [] as [&str; 0]);
    }
}
