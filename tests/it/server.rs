//! The real program, started as a process of its own, and what people do with it.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{redis_process, redis_server::RedisServer};

/// The secret of every server under test.
pub(crate) const SECRET: &str = "a secret of the tests, and of nobody else: 0123456789";
/// The admin token of every server under test.
pub(crate) const ADMIN: &str = "the-operators-own-token";
/// The drop most tests are about.
pub(crate) const DROP: &str = "limited-drop/42";
/// The event most tests are about.
pub(crate) const EVENT: &str = "ticketing-event/7";

/// What a pass begins with, whoever holds it: the encoded names of the two kinds.
const PASS_BEGINNINGS: [&str; 2] = ["TElNSVRFRF9EUk9Q", "VElDS0VUSU5HX0VWRU5U"];

/// Panics if a text that anybody but the holder sees has a pass or a secret in it.
pub(crate) fn assert_tells_no_secret(what: &str, text: &str) {
    for secret in PASS_BEGINNINGS.into_iter().chain([SECRET, ADMIN]) {
        if let Some(at) = text.find(secret) {
            let around: String = text[..at].chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
            panic!("{what} tells a secret ({secret}…) after: {around}");
        }
    }
}

/// One running server.
pub(crate) struct Server {
    child: Child,
    address: String,
    log: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    http: Client,
}

impl Server {
    /// `serve` on this Redis, the shop built in and the flag on.
    pub(crate) fn serve(redis: &RedisServer, settings: &[(&str, &str)]) -> Self {
        Self::serve_at(&redis.url(), settings)
    }

    /// `serve` on the Redis at this URL.
    pub(crate) fn serve_at(url: &str, settings: &[(&str, &str)]) -> Self {
        let mut all = vec![
            ("VQ_REDIS__URL", url),
            ("VQ_TOKEN__SECRET", SECRET),
            ("VQ_DEMO_SHOP__ENABLED", "true"),
            ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "true"),
            // A debug build and a crowd on one small machine: only tests of outages are about a buyer's 200 ms.
            ("VQ_REDIS__COMMAND_TIMEOUT_MS", "5000"),
        ];
        all.extend(settings);
        Self::start("serve", &all)
    }

    /// `demo`: everything in memory.
    pub(crate) fn demo(settings: &[(&str, &str)]) -> Self {
        Self::start("demo", settings)
    }

    fn start(command: &str, settings: &[(&str, &str)]) -> Self {
        let mut env: HashMap<&str, &str> =
            HashMap::from([("VQ_SERVER__PORT", "0"), ("VQ_ADMIN__TOKEN", ADMIN), ("VQ_LOG__LEVEL", "debug")]);
        env.extend(settings.iter().copied());
        // Figures are those of a release build, where one is named.
        let program = std::env::var_os("SERVER_UNDER_TEST").unwrap_or(env!("CARGO_BIN_EXE_virtual-queue").into());
        let mut child = Command::new(program)
            .arg(command)
            .envs(env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program under test starts");
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("piped");
        let mut readers = vec![collect(BufReader::new(stderr), log.clone())];
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("its output");
        let Some(address) = line.trim().strip_prefix("listening on ").map(str::to_owned) else {
            let _ = child.wait();
            readers.drain(..).for_each(|reader| reader.join().expect("reads"));
            panic!("instead of listening it said {line:?} and {}", log.lock().unwrap());
        };
        readers.push(collect(stdout, log.clone()));
        let http = Client::builder()
            .timeout(Duration::from_secs(20))
            // The server closes idle connections after 5 s; one it is about to close must not be used.
            .pool_idle_timeout(Duration::from_secs(3))
            .build()
            .expect("a client");
        Self { child, address, log, readers, http }
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> &str {
        &self.address
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn host_and_port(&self) -> &str {
        self.address.strip_prefix("http://").expect("it says so")
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for its end; all that it logged.
    pub(crate) fn whole_log(&mut self) -> String {
        self.child.wait().expect("it can be waited for");
        for reader in self.readers.drain(..) {
            reader.join().expect("reads");
        }
        self.log()
    }

    /// Dies at once.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it can be waited for");
    }

    /// SIGTERM, as an orchestrator sends it.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// SIGINT, as Ctrl-C sends it.
    pub(crate) fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Freezes: connections stay open and nothing answers.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        // One thread takes the signal, and only then do the others stop: on a busy machine they go on answering until then.
        while !self.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it is there");
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Thaws.
    pub(crate) fn cont(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        redis_process::send(signal, &self.child);
    }

    /// Processor time it has used.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it is running");
        // The name in brackets may hold anything; user and system time are the 12th and 13th field after it, in
        // hundredths of a second on every Linux.
        let after = stat.rsplit_once(") ").expect("a name").1;
        after.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number") / 100.0).sum()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_some()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it can be waited for")
    }

    /// Any request.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.address))
    }

    /// A GET by nobody in particular.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn enter(&self, target: &str, user: u64) -> Reply {
        self.try_enter(target, user).await.expect("an answer")
    }

    /// Entering, where the server may be dead.
    pub(crate) async fn try_enter(&self, target: &str, user: u64) -> reqwest::Result<Reply> {
        Reply::try_of(self.as_user(Method::POST, &format!("/virtual-queues/{target}/entries"), user)).await
    }

    pub(crate) async fn poll(&self, target: &str, user: u64) -> Reply {
        Reply::of(self.as_user(Method::GET, &format!("/virtual-queues/{target}/entries/me"), user)).await
    }

    pub(crate) async fn leave(&self, target: &str, user: u64) -> Reply {
        Reply::of(self.as_user(Method::DELETE, &format!("/virtual-queues/{target}/entries/me"), user)).await
    }

    pub(crate) async fn stats(&self, target: &str) -> Value {
        let reply = self.get(&format!("/virtual-queues/{target}/stats")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.body
    }

    /// `POST /limited-drops/{drop}/orders`.
    pub(crate) async fn order(&self, drop: u64, user: u64, pass: Option<&str>) -> Reply {
        let request = self.as_user(Method::POST, &format!("/limited-drops/{drop}/orders"), user);
        Reply::of(with_pass(request, pass)).await
    }

    /// `POST /events/{event}/seats/select`.
    pub(crate) async fn select(&self, event: u64, user: u64, pass: Option<&str>, seats: &[&str]) -> Reply {
        let request = self.as_user(Method::POST, &format!("/events/{event}/seats/select"), user);
        Reply::of(with_pass(request.json(&json!({ "seatIds": seats })), pass)).await
    }

    /// `POST /events/{event}/tickets`.
    pub(crate) async fn buy_tickets(&self, event: u64, user: u64, seats: &[&str]) -> Reply {
        let request = self.as_user(Method::POST, &format!("/events/{event}/tickets"), user);
        Reply::of(request.json(&json!({ "seatIds": seats }))).await
    }

    /// Sets the flag's rule.
    pub(crate) async fn set_flag(&self, rule: Value) -> Reply {
        let request = self.request(Method::PUT, "/admin/flags/virtual-queue.enabled");
        Reply::of(request.bearer_auth(ADMIN).header("X-Operator", "tester").json(&rule)).await
    }

    /// Polls until this person has a pass, at most `limit`.
    pub(crate) async fn await_pass(&self, target: &str, user: u64, limit: Duration) -> String {
        let waited = tokio::time::timeout(limit, async {
            loop {
                let reply = self.poll(target, user).await;
                if let Some(pass) = reply.pass() {
                    return pass;
                }
                assert_eq!(reply.state(), "WAITING", "{reply:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{user} has no pass for {target} after {limit:?}"))
    }

    pub(crate) fn as_user(&self, method: Method, path: &str, user: u64) -> RequestBuilder {
        self.request(method, path).header("X-User-Id", user.to_string())
    }

    /// Everything a stranger could read here: the log and the metrics.
    pub(crate) async fn assert_tells_no_secret(&self) {
        assert_tells_no_secret("the log", &self.log());
        assert_tells_no_secret("the metrics", &self.get("/metrics").await.text);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if !std::thread::panicking() {
            assert_tells_no_secret("the log", &self.log());
        }
    }
}

fn with_pass(request: RequestBuilder, pass: Option<&str>) -> RequestBuilder {
    match pass {
        Some(pass) => request.header("X-Entry-Token", pass),
        None => request,
    }
}

/// Reads a pipe to its end, so that it never fills.
fn collect(mut from: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..read]));
        }
    })
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
    pub(crate) took: Duration,
}

impl Reply {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        Self::try_of(request).await.expect("an answer")
    }

    pub(crate) async fn try_of(request: RequestBuilder) -> reqwest::Result<Self> {
        let began = tokio::time::Instant::now();
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Self { status, headers, body, text, took: began.elapsed() })
    }

    /// `status` of an entry.
    pub(crate) fn state(&self) -> &str {
        self.body["status"].as_str().unwrap_or_default()
    }

    /// `position` of an entry.
    pub(crate) fn position(&self) -> Option<u64> {
        self.body["position"].as_u64()
    }

    /// `entryToken` of an entry.
    pub(crate) fn pass(&self) -> Option<String> {
        self.body["entryToken"].as_str().map(str::to_owned)
    }

    /// `code` of a problem.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// (status, code): what a refusal is known by.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        (self.status, self.code())
    }
}

/// Settings, as [`Server`] takes them.
pub(crate) fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A file in a directory of the test's own, for shops that share a database.
pub(crate) fn shop_file(dir: &Path) -> String {
    dir.join("shop.sqlite").display().to_string()
}
