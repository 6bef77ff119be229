//! Buyers known by tokens, with keys that a real server publishes, changes, and ceases to.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::sleep;
use virtual_queue::clock::StoreClock;

use crate::{
    seen::until,
    server::{DROP, Reply, Server},
};

const ENTRIES: &str = "/virtual-queues/limited-drop/42/entries";
const ME: &str = "/virtual-queues/limited-drop/42/entries/me";
const ORDERS: &str = "/limited-drops/42/orders";

fn openssl(arguments: &[&str], dir: &Path) -> Vec<u8> {
    let output = Command::new("openssl").args(arguments).current_dir(dir).output().expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Who logs people in.
pub(crate) struct Issuer {
    name: &'static str,
    key: EncodingKey,
}

impl Issuer {
    pub(crate) fn new(name: &'static str) -> Self {
        let how = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
        let pem = openssl(&how, Path::new("."));
        Self { name, key: EncodingKey::from_ec_pem(&pem).unwrap() }
    }

    pub(crate) fn token(&self, user: u64) -> String {
        self.token_until(user, StoreClock::system().now_seconds() + 600)
    }

    /// Of somebody whose id is a text.
    pub(crate) fn token_for(&self, id: &str) -> String {
        self.sign(&json!({ "sub": id, "exp": StoreClock::system().now_seconds() + 600 }))
    }

    fn token_until(&self, user: u64, exp: u64) -> String {
        self.sign(&json!({ "sub": user.to_string(), "exp": exp }))
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.name.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).unwrap()
    }

    pub(crate) fn jwks(&self) -> String {
        let mut jwk = json!(Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap());
        jwk["kid"] = self.name.into();
        json!({ "keys": [jwk] }).to_string()
    }
}

/// A server that publishes keys; with none it hangs up on everybody.
pub(crate) struct Publisher {
    pub(crate) url: String,
    document: Arc<Mutex<Option<String>>>,
    asked: Arc<Mutex<u32>>,
}

impl Publisher {
    pub(crate) fn start(document: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let (document, asked) = (Arc::new(Mutex::new(document)), Arc::new(Mutex::new(0)));
        let (published, counted) = (document.clone(), asked.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                *counted.lock().unwrap() += 1;
                let Some(body) = published.lock().unwrap().clone() else { continue };
                let mut seen = Vec::new();
                let mut chunk = [0; 1024];
                while !seen.ends_with(b"\r\n\r\n") {
                    match connection.read(&mut chunk) {
                        Ok(read @ 1..) => seen.extend_from_slice(&chunk[..read]),
                        _ => break,
                    }
                }
                let _ = write!(
                    connection,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Self { url, document, asked }
    }

    fn publish(&self, document: Option<String>) {
        *self.document.lock().unwrap() = document;
    }
}

pub(crate) fn by_token(url: &str, more: &[(&str, &str)]) -> Server {
    let settings = [("VQ_IDENTITY__MODE", "jwt"), ("VQ_IDENTITY__JWKS_URL", url), ("VQ_QUEUE__TICK_MS", "500")];
    Server::demo(&[&settings, more].concat())
}

/// A request that claims to be somebody else.
fn with_token(server: &Server, method: Method, path: &str, token: &str) -> RequestBuilder {
    server.request(method, path).bearer_auth(token).header("X-User-Id", "99")
}

async fn enter(server: &Server, token: &str) -> Reply {
    Reply::of(with_token(server, Method::POST, ENTRIES, token)).await
}

/// Enters; while the keys are being looked for, comes back as told.
async fn enter_in_time(server: &Server, token: &str) -> Reply {
    let tries = async {
        loop {
            let reply = enter(server, token).await;
            if reply.status != 503 {
                return reply;
            }
            assert_eq!(reply.refusal(), (503, "IDENTITY_UNAVAILABLE"));
            assert_eq!(reply.header("retry-after"), Some("1"));
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), tries).await.expect("the keys are found")
}

/// A pass for drop 42, for the user of this token.
pub(crate) async fn pass(server: &Server, token: &str) -> String {
    assert_eq!(enter_in_time(server, token).await.status, 200);
    loop {
        match Reply::of(with_token(server, Method::GET, ME, token)).await.pass() {
            Some(pass) => return pass,
            None => sleep(Duration::from_millis(50)).await,
        }
    }
}

fn assert_asks_for_a_token(reply: &Reply) {
    assert_eq!(reply.refusal(), (401, "INVALID_IDENTITY"));
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn who_one_is_the_token_says_from_entering_to_buying() {
    let issuer = Issuer::new("first");
    let publisher = Publisher::start(Some(issuer.jwks()));
    let server = by_token(&publisher.url, &[]);
    let (token, other) = (issuer.token(7), issuer.token(8));
    assert_eq!(enter_in_time(&server, &token).await.position(), Some(1));
    assert_eq!(enter(&server, &other).await.position(), Some(2), "the header both claim counts for nothing");

    let pass = pass(&server, &token).await;
    let order = |token: &str| with_token(&server, Method::POST, ORDERS, token).header("X-Entry-Token", &pass);
    assert_eq!(Reply::of(order(&other)).await.refusal(), (403, "QUEUE_BYPASS_DENIED"));
    let nobody = server.as_user(Method::POST, ORDERS, 7).header("X-Entry-Token", &pass);
    assert_asks_for_a_token(&Reply::of(nobody).await);
    assert_eq!(Reply::of(order(&token)).await.status, 201);

    let expired = issuer.token_until(7, StoreClock::system().now_seconds() - 60);
    for reply in [server.enter(DROP, 7).await, server.poll(DROP, 7).await, server.leave(DROP, 7).await] {
        assert_asks_for_a_token(&reply);
    }
    assert_asks_for_a_token(&enter(&server, &expired).await);
    assert_eq!(Reply::of(with_token(&server, Method::DELETE, ME, &other)).await.status, 204);
    assert_eq!(server.stats(DROP).await["entered"], 2);
    for part in token.split('.').chain(expired.split('.').skip(1)) {
        assert!(!server.log().contains(part), "nothing of a token is logged");
    }
}

#[tokio::test]
async fn keys_may_change_and_their_server_may_go_away() {
    let (first, second, third) = (Issuer::new("first"), Issuer::new("second"), Issuer::new("third"));
    let publisher = Publisher::start(Some(first.jwks()));
    let server = by_token(&publisher.url, &[]);
    assert_eq!(enter_in_time(&server, &first.token(7)).await.status, 200);

    publisher.publish(Some(second.jwks()));
    assert_eq!(enter_in_time(&server, &second.token(7)).await.status, 200, "an unknown key is looked for at once");
    assert_asks_for_a_token(&enter(&server, &first.token(7)).await);

    publisher.publish(None);
    let asked = *publisher.asked.lock().unwrap();
    for _ in 0..50 {
        assert_asks_for_a_token(&enter(&server, &third.token(7)).await);
        assert_eq!(enter(&server, &second.token(7)).await.status, 200, "what is known holds");
    }
    assert_eq!(*publisher.asked.lock().unwrap(), asked, "and made-up names do not make us ask again and again");
}

#[tokio::test]
async fn before_any_key_is_known_the_queue_says_so_and_shops_without_a_queue_are_left_alone() {
    let issuer = Issuer::new("first");
    let publisher = Publisher::start(None);
    let server = by_token(&publisher.url, &[("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "true")]);
    let token = issuer.token(7);
    let order = || Reply::of(with_token(&server, Method::POST, ORDERS, &token));
    assert_eq!(enter(&server, &token).await.refusal(), (503, "IDENTITY_UNAVAILABLE"));
    assert_eq!(order().await.refusal(), (503, "IDENTITY_UNAVAILABLE"));
    assert_asks_for_a_token(&server.enter(DROP, 7).await);

    assert_eq!(server.set_flag(json!({ "enabled": false, "reason": "no queue" })).await.status, 200);
    let reply = order().await;
    assert!(![401, 403, 503].contains(&reply.status), "the shop's own answer: {reply:?}");

    assert_eq!(server.set_flag(json!({ "enabled": true, "reason": "a queue" })).await.status, 200);
    publisher.publish(Some(issuer.jwks()));
    assert_eq!(enter_in_time(&server, &token).await.status, 200, "once they are there, all is well");
}

/// A proxy's question about a purchase that claims to be somebody else's: as nginx asks, or as Envoy does.
fn questions(server: &Server) -> [RequestBuilder; 2] {
    let nginx = server.request(Method::GET, "/gate/verify");
    let nginx = nginx.header("X-Original-Method", "POST").header("X-Original-URI", ORDERS);
    let envoy = server.request(Method::POST, &format!("/gate/verify{ORDERS}"));
    [nginx, envoy].map(|question| question.header("X-User-Id", "99"))
}

#[tokio::test]
async fn proxies_are_told_whose_the_token_is_and_ask_for_one_where_there_is_none() {
    let issuer = Issuer::new("first");
    let publisher = Publisher::start(Some(issuer.jwks()));
    let server = by_token(&publisher.url, &[("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "true")]);
    for ((user, status), which) in [(7, 204), (8, 200)].into_iter().zip(0..) {
        let (token, stranger) = (issuer.token(user), issuer.token(99));
        let pass = pass(&server, &token).await;
        let question = || questions(&server).into_iter().nth(which).unwrap().header("X-Entry-Token", &pass);
        for no_token in [question(), question().bearer_auth("nonsense")] {
            let reply = Reply::of(no_token).await;
            assert_asks_for_a_token(&reply);
            assert_eq!(reply.header("x-virtual-queue-code"), Some("INVALID_IDENTITY"));
        }
        let others = Reply::of(question().bearer_auth(&stranger)).await;
        assert_eq!(others.refusal(), (403, "QUEUE_BYPASS_DENIED"));
        assert_eq!(others.header("www-authenticate"), None);
        let granted = Reply::of(question().bearer_auth(&token)).await;
        assert_eq!((granted.status, granted.header("x-virtual-queue-user")), (status, Some(&*user.to_string())));
    }
}

#[tokio::test]
async fn proxies_are_told_no_and_never_of_a_fault_while_no_key_is_known() {
    let publisher = Publisher::start(None);
    let server = by_token(&publisher.url, &[("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "true")]);
    let token = Issuer::new("first").token(7);
    for question in questions(&server) {
        let reply = Reply::of(question.bearer_auth(&token)).await;
        assert_eq!(reply.refusal(), (403, "IDENTITY_UNAVAILABLE"));
        assert_eq!(reply.header("x-virtual-queue-code"), Some("IDENTITY_UNAVAILABLE"));
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
}

/// OpenSSL's own test server, which serves the files of a directory over TLS.
struct TlsPublisher {
    child: Child,
    url: String,
}

impl TlsPublisher {
    fn start(dir: &Path, document: &str) -> Self {
        let config = "[req]\ndistinguished_name = dn\nx509_extensions = ext\nprompt = no\n[dn]\nCN = localhost\n\
                      [ext]\nbasicConstraints = critical,CA:FALSE\nsubjectAltName = IP:127.0.0.1\n";
        std::fs::write(dir.join("openssl.cnf"), config).unwrap();
        std::fs::write(dir.join("jwks.json"), document).unwrap();
        let new = ["req", "-x509", "-config", "openssl.cnf", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        openssl(&[&new[..], &["-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2"]].concat(), dir);
        let mut child = Command::new("openssl")
            .args(["s_server", "-WWW", "-accept", "127.0.0.1:0", "-cert", "cert.pem", "-key", "key.pem"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map(|line| line.unwrap()).find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned));
        let url = format!("https://{}/jwks.json", address.expect("it says where it listens"));
        Self { child, url }
    }
}

impl Drop for TlsPublisher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn keys_come_over_tls_from_those_the_machine_trusts_and_from_nobody_else() {
    let issuer = Issuer::new("first");
    let dir = tempfile::tempdir().unwrap();
    let publisher = TlsPublisher::start(dir.path(), &issuer.jwks());
    let trusting = by_token(&publisher.url, &[("SSL_CERT_FILE", dir.path().join("cert.pem").to_str().unwrap())]);
    assert_eq!(enter_in_time(&trusting, &issuer.token(7)).await.status, 200);

    let elsewhere = tempfile::tempdir().unwrap();
    drop(TlsPublisher::start(elsewhere.path(), "{}"));
    let other = elsewhere.path().join("cert.pem");
    let wary = by_token(&publisher.url, &[("SSL_CERT_FILE", other.to_str().unwrap())]);
    let says = async || wary.log().contains("identity.jwks_url: the keys could not be fetched");
    until("it says that it has no keys", Duration::from_secs(20), says).await;
    assert_eq!(enter(&wary, &issuer.token(7)).await.refusal(), (503, "IDENTITY_UNAVAILABLE"));
}

#[tokio::test]
async fn one_address_behind_a_trusted_proxy_enters_only_so_often() {
    let server = Server::demo(&[
        ("VQ_RATE_LIMIT__ENTER_PER_SECOND", "1"),
        ("VQ_RATE_LIMIT__ENTER_BURST", "3"),
        ("VQ_RATE_LIMIT__TRUSTED_PROXIES", "127.0.0.0/8"),
    ]);
    let enter = |user: u64, forwarded: &str| {
        Reply::of(server.as_user(Method::POST, ENTRIES, user).header("X-Forwarded-For", forwarded))
    };
    let mut statuses = Vec::new();
    for user in 1..=20 {
        statuses.push(enter(user, &format!("10.0.0.{user}, 192.0.2.1")).await.status);
    }
    assert_eq!(statuses[..3], [200, 200, 200], "the burst");
    assert!(statuses.iter().filter(|status| **status == 429).count() > 10, "made-up hops do not help: {statuses:?}");
    assert_eq!(enter(50, "192.0.2.2").await.status, 200, "another's own");
    for _ in 0..20 {
        assert_eq!(server.poll(DROP, 1).await.status, 200, "polling is not limited");
    }
    let entered: Value = server.stats(DROP).await["entered"].clone();
    assert_eq!(entered.as_u64(), Some(statuses.iter().filter(|status| **status == 200).count() as u64 + 1));
}

#[tokio::test]
async fn keys_that_are_not_usable_stop_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_virtual-queue"))
        .arg("demo")
        .env_clear()
        .envs([("VQ_IDENTITY__MODE", "jwt"), ("VQ_IDENTITY__JWT_KEY_FILE", "/nowhere/jwt.pem")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("identity.jwt_key_file: /nowhere/jwt.pem"), "{said}");
}
