//! Forward auth with a real nginx, set up as `docs/integrations/nginx.md` says, before a small shop.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    identity::{self, Issuer, Publisher},
    invariants,
    redis_server::RedisServer,
    server::{DROP, EVENT, Server},
};

const PAGE: &str = include_str!("../../docs/integrations/nginx.md");
const FAST: &[(&str, &str)] = &[("VQ_QUEUE__TICK_MS", "500"), ("VQ_REDIS__COMMAND_TIMEOUT_MS", "1000")];
const SETTLE_TOKEN: &str = "the-shops-own-token";
const ORDERS: &str = "/limited-drops/42/orders";

/// The page's blocks of nginx configuration: the whole, and the last location for shops that fail open.
fn blocks() -> Vec<&'static str> {
    let after_fences = PAGE.split("```nginx\n").skip(1);
    after_fences.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Replaces what must be there exactly once.
pub(crate) fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from:?} in the page");
    text.replace(from, to)
}

pub(crate) fn closed() -> String {
    blocks()[0].to_owned()
}

fn open() -> String {
    let whole = closed();
    let (before, rest) = whole.split_once("    location @waiting_room_away {\n").expect("the last location");
    let (_, after) = rest.split_once("\n    }\n").expect("its end");
    format!("{before}{}{after}", blocks()[1])
}

/// A running nginx on a socket in a directory of its own.
pub(crate) struct Nginx {
    child: Child,
    socket: PathBuf,
    dir: TempDir,
}

impl Nginx {
    fn start(page: &str, waiting_room: &Server, shop: &Shop) -> Self {
        Self::before(page, &[waiting_room.host_and_port()], shop)
    }

    /// Before these replicas.
    pub(crate) fn before(page: &str, replicas: &[&str], shop: &Shop) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nginx.sock");
        let line = "server 127.0.0.1:8080 fail_timeout=1s;";
        let lines: String = replicas.iter().map(|address| line.replace("127.0.0.1:8080", address)).collect();
        let page = replaced(page, "listen 80;", &format!("listen unix:{};", socket.display()));
        let page = replaced(&page, line, &lines);
        let page = replaced(&page, "server 127.0.0.1:3000;", &format!("server {};", shop.address));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {}/{what};\n", dir.path().display()))
            .concat();
        let text = format!(
            "daemon off; master_process off; error_log stderr; error_log {0}/error.log; pid {0}/pid;\nevents {{ worker_connections 512; }}\n\
             http {{ access_log off;\n{temporary}{page} }}",
            dir.path().display()
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let mut child = launch(&file, dir.path());
        while UnixStream::connect(&socket).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "nginx refuses the page's configuration, see above");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, socket, dir }
    }

    /// Sends these bytes on a connection of their own and reads the answer to its end.
    fn send(&self, request: &[u8]) -> Answer {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(request).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::read(&bytes)
    }

    /// What it complained about so far.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("error.log")).unwrap()
    }

    pub(crate) fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: {length}\r\n");
        self.send(format!("{head}{lines}\r\n{body}").as_bytes())
    }

    /// `POST` by this person, with this pass.
    fn buy(&self, target: &str, user: &str, pass: &str) -> Answer {
        self.request("POST", target, &[("X-User-Id", user), ("X-Entry-Token", pass)], "{\"piece\":1}")
    }
}

/// Some put it where only root looks.
fn launch(file: &Path, dir: &Path) -> Child {
    for program in ["nginx", "/usr/sbin/nginx"] {
        let mut command = Command::new(program);
        command.arg("-p").arg(dir).arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        if let Ok(child) = command.spawn() {
            return child;
        }
    }
    panic!("nginx is missing; please install it (on Debian and Ubuntu: apt-get install nginx)");
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer, as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// (status, code) of a problem in the form of the contract.
    #[track_caller]
    fn refusal(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        let body: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(body["status"], self.status);
        assert!(["type", "title", "detail"].iter().all(|field| body[field].is_string()), "{body}");
        (self.status, body["code"].as_str().unwrap().to_owned())
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(there, _)| there.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A shop that writes down what it gets, and answers 201.
pub(crate) struct Shop {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen) = (stream.unwrap(), seen.clone());
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Self { address, heads }
    }

    /// The heads of the requests since this was last asked.
    fn saw(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }

    /// `METHOD TARGET` of the requests since this was last asked.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.saw().iter().map(|head| head.split(" HTTP/").next().unwrap().to_owned()).collect()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<String>>) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    let head = loop {
        let Ok(read @ 1..) = stream.read(&mut chunk) else { return };
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break String::from_utf8_lossy(&bytes.drain(..end + 4).collect::<Vec<_>>()).into_owned();
        }
    };
    let length: usize = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < length {
        let Ok(read @ 1..) = stream.read(&mut chunk) else { return };
        bytes.extend_from_slice(&chunk[..read]);
    }
    seen.lock().unwrap().push(head);
    let body = if length == 0 { "from the shop" } else { std::str::from_utf8(&bytes).unwrap() };
    let _ = write!(stream, "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
}

/// A pass for this person.
async fn pass(server: &Server, target: &str, user: u64) -> String {
    server.enter(target, user).await;
    server.await_pass(target, user, Duration::from_secs(10)).await
}

fn denied() -> (u16, String) {
    (403, "QUEUE_BYPASS_DENIED".to_owned())
}

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
async fn behind_nginx_a_dead_waiting_room_closes_or_opens_the_shop_as_chosen() {
    for (page, open) in [(closed(), false), (open(), true)] {
        let (mut server, shop) = (Server::demo(FAST), Shop::open());
        let nginx = Nginx::start(&page, &server, &shop);
        assert_eq!(nginx.buy(ORDERS, "7", "x.y").refusal(), denied());
        server.kill9();
        let liar = [("X-User-Id", "7"), ("X-Virtual-Queue-User", "8"), ("X-Entry-Token", "x.y")];
        let answer = nginx.request("POST", "/limited-drops/42//orders?a=%2F", &liar, "{\"piece\":1}");
        if open {
            assert_eq!((answer.status, answer.body.as_str()), (201, "{\"piece\":1}"));
            let saw = shop.saw();
            assert!(saw[0].starts_with("POST /limited-drops/42//orders?a=%2F HTTP/1.1\r\n"), "{saw:?}");
            assert_eq!((header(&saw[0], "x-virtual-queue-user"), header(&saw[0], "x-entry-token")), (None, None));
        } else {
            assert_eq!(answer.refusal(), (503, "WAITING_ROOM_AWAY".to_owned()));
            assert!(answer.header("retry-after").is_some());
            assert_eq!(shop.lines(), [] as [&str; 0]);
        }
    }
}

#[tokio::test]
async fn behind_nginx_the_shop_settles_what_it_sold_and_what_it_did_not() {
    let redis = RedisServer::start();
    let settings = [FAST, &[("VQ_GATE__SETTLE_TOKEN", SETTLE_TOKEN)]].concat();
    let (server, shop) = (Server::serve(&redis, &settings), Shop::open());
    let nginx = Nginx::start(&closed(), &server, &shop);
    let mine = pass(&server, EVENT, 7).await;
    let select = "/events/7/seats/select";
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

    assert_eq!(nginx.buy(select, "7", &mine).status, 201);
    let meanwhile = nginx.buy(select, "7", &mine);
    assert_eq!(meanwhile.refusal(), (409, "PASS_IN_USE".to_owned()));
    assert_eq!(meanwhile.header("retry-after"), Some("1"));
    settle("given_back").await;
    assert_eq!(nginx.buy(select, "7", &mine).status, 201, "the pass works again");
    settle("spent").await;
    assert_eq!(nginx.buy(select, "7", &mine).refusal(), denied());
    assert_eq!(server.stats(EVENT).await["consumed"], 1);
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

/// With the line that the page adds where buyers are known by tokens.
fn by_token() -> String {
    let line = "        proxy_set_header X-Virtual-Queue-User $vq_user;\n";
    let added = "    proxy_set_header X-User-Id $vq_user;\n";
    assert!(PAGE.contains(&format!("add to `location /`\n\n{added}")), "the page says so");
    replaced(&closed(), line, &format!("{line}    {added}"))
}

#[tokio::test]
async fn behind_nginx_the_token_tells_who_buys_and_no_claimed_id_reaches_the_shop() {
    let (issuer, shop) = (Issuer::new("first"), Shop::open());
    let publisher = Publisher::start(Some(issuer.jwks()));
    let on = [("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "true")];
    let server = identity::by_token(&publisher.url, &on);
    let nginx = Nginx::start(&by_token(), &server, &shop);
    let bearer = format!("Bearer {}", issuer.token(7));
    let mine = identity::pass(&server, &issuer.token(7)).await;

    let nobody = nginx.buy(ORDERS, "7", &mine);
    assert_eq!(nobody.refusal(), (401, "INVALID_IDENTITY".to_owned()));
    assert_eq!(nobody.head.to_ascii_lowercase().matches("\r\nwww-authenticate: bearer").count(), 1, "{nobody:?}");
    let liar = [("X-User-Id", "99"), ("X-Entry-Token", mine.as_str()), ("Authorization", bearer.as_str())];
    assert_eq!(nginx.request("POST", "/anything", &liar, "").status, 201);
    assert_eq!(nginx.request("POST", ORDERS, &liar, "").status, 201);
    let saw = shop.saw();
    assert_eq!((header(&saw[0], "x-user-id"), header(&saw[1], "x-user-id")), (None, Some("7")), "{saw:?}");
    assert!(saw.iter().all(|head| header(head, "authorization") == Some(&*bearer)), "{saw:?}");

    let keyless = Publisher::start(None);
    let server = identity::by_token(&keyless.url, &on);
    let nginx = Nginx::start(&by_token(), &server, &shop);
    let answer = nginx.request("POST", ORDERS, &liar, "");
    assert_eq!(answer.refusal(), (503, "IDENTITY_UNAVAILABLE".to_owned()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(shop.lines(), [] as [&str; 0]);
}
