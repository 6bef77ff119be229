//! Three replicas behind a real nginx, set up as `docs/integrations/nginx.md` says, are replaced one after the other
//! while people queue and buy.

use std::{
    io::{Read, Write},
    net::TcpStream,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    forward_shop::Shop,
    invariants::{self, Moves, assert_never_more_than},
    nginx::{self, Nginx},
    redis_server::RedisServer,
    server::{DROP, Server},
};

const LABEL: &str = "LIMITED_DROP:42";
const PEOPLE: u64 = 30;
const DRAIN: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(10);

const SETTINGS: [(&str, &str); 5] = [
    ("VQ_QUEUE__BATCH_SIZE", "8"),
    ("VQ_QUEUE__TICK_MS", "1000"),
    ("VQ_SERVER__DRAIN_SECONDS", "2"),
    ("VQ_SERVER__SHUTDOWN_GRACE_SECONDS", "10"),
    ("VQ_LOG__LEVEL", "info"),
];

#[expect(clippy::disallowed_methods, reason = "threads of the test's own, on no runtime")]
fn now() -> Instant {
    Instant::now()
}

/// What the crowd has seen.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    sales: AtomicU64,
    slowest_ms: AtomicU64,
    failed: Mutex<Vec<(Instant, String)>>,
    stop: AtomicBool,
}

/// People who enter, poll, buy, and come again as somebody else, until told to stop.
struct Crowd {
    seen: Arc<Seen>,
    people: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(nginx: &Arc<Nginx>) -> Self {
        let seen = Arc::new(Seen::default());
        let people = (1..=PEOPLE).map(|first| {
            let (nginx, seen) = (nginx.clone(), seen.clone());
            std::thread::spawn(move || {
                let mut user = first;
                while !seen.stop.load(Ordering::SeqCst) {
                    queue_and_buy(&nginx, &seen, user);
                    user += 1000;
                }
            })
        });
        Self { people: people.collect(), seen }
    }

    fn failed(&self) -> Vec<(Instant, String)> {
        self.seen.failed.lock().unwrap().clone()
    }

    fn end(self) -> Arc<Seen> {
        self.seen.clone()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::SeqCst);
        for person in self.people.drain(..) {
            let _ = person.join();
        }
    }
}

fn queue_and_buy(nginx: &Nginx, seen: &Seen, user: u64) {
    let id = user.to_string();
    let call = |method: &str, path: &str, pass: &str, expected: u16| -> Option<Value> {
        let began = now();
        let headers = [("X-User-Id", id.as_str()), ("X-Entry-Token", pass)];
        // A connection without an answer is a failure to count, and no end of the test.
        let answer = catch_unwind(AssertUnwindSafe(|| nginx.request(method, path, &headers, "")));
        seen.requests.fetch_add(1, Ordering::SeqCst);
        seen.slowest_ms.fetch_max(began.elapsed().as_millis() as u64, Ordering::SeqCst);
        match answer {
            Ok(answer) if answer.status == expected => Some(serde_json::from_str(&answer.body).unwrap_or_default()),
            other => {
                let what = other.map_or("no answer".to_owned(), |answer| format!("{} {}", answer.status, answer.body));
                seen.failed.lock().unwrap().push((began, format!("{user} {method} {path}: {what}")));
                None
            }
        }
    };
    let entries = format!("/virtual-queues/{DROP}/entries");
    let Some(entered) = call("POST", &entries, "", 200) else {
        sleep(Duration::from_millis(100));
        return;
    };
    let place = &entered["position"];
    while !seen.stop.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(100));
        let Some(polled) = call("GET", &format!("{entries}/me"), "", 200) else { continue };
        if let Some(pass) = polled["entryToken"].as_str() {
            if call("POST", "/limited-drops/42/orders", pass, 201).is_some() {
                seen.sales.fetch_add(1, Ordering::SeqCst);
            }
            return;
        }
        if polled["position"] != *place {
            let what = format!("{user} lost the place {place}: {polled}");
            seen.failed.lock().unwrap().push((now(), what));
        }
    }
}

/// Asks one replica itself whether it is ready: the status, or `None` where it takes no connection.
fn readiness(address: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// SIGTERM, and what is seen from outside: when it stopped being ready, when it took no more connections, when it ended.
fn drained(server: &mut Server) -> [Duration; 3] {
    let address = server.host_and_port().to_owned();
    assert_eq!(readiness(&address), Some(200));
    server.terminate();
    let signalled = now();
    let mut unready = None;
    let closed = loop {
        match readiness(&address) {
            Some(503) => _ = unready.get_or_insert_with(|| signalled.elapsed()),
            None => break signalled.elapsed(),
            other => assert!(other == Some(200) && unready.is_none(), "{other:?}"),
        }
        assert!(signalled.elapsed() < DRAIN + GRACE);
        sleep(Duration::from_millis(10));
    };
    assert!(server.wait().success(), "a clean end");
    [unready.expect("readiness turns before connections are refused"), closed, signalled.elapsed()]
}

#[test]
#[ignore = "long: ./test.sh --faults"]
fn three_replicas_are_replaced_behind_nginx_and_nobody_notices() {
    let redis = RedisServer::start();
    let mut replicas: Vec<Server> = (0..3).map(|_| Server::serve(&redis, &SETTINGS)).collect();
    let addresses: Vec<String> = replicas.iter().map(|replica| replica.host_and_port().to_owned()).collect();
    let shop = Shop::open();
    let all: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let nginx = Arc::new(Nginx::before(&nginx::closed(), &all, &shop));
    let moves = Moves::watch(&redis);
    let crowd = Crowd::start(&nginx);
    sleep(Duration::from_secs(2));
    let again = |address: &str| {
        let port = address.rsplit(':').next().unwrap();
        Server::serve(&redis, &[&SETTINGS[..], &[("VQ_SERVER__PORT", port)]].concat())
    };

    for (replica, address) in replicas.iter_mut().zip(&addresses) {
        let [unready, closed, ended] = drained(replica);
        println!("not ready after {unready:?}, no connections after {closed:?}, ended after {ended:?}");
        assert!(unready < Duration::from_millis(500), "readiness turns first: {unready:?}");
        assert!(closed >= DRAIN - Duration::from_millis(100), "and is served until then: {closed:?}");
        assert!(ended < DRAIN + GRACE, "{ended:?}");
        *replica = again(address);
        sleep(Duration::from_millis(1500));
    }
    let failed = crowd.failed();
    let requests = crowd.seen.requests.load(Ordering::SeqCst);
    let errors = nginx.errors();
    let (refused, cut): (Vec<&str>, Vec<&str>) = errors.lines().partition(|line| line.contains("connect() failed"));
    println!("{requests} requests, {} failed; asked again: {} refused, {} cut", failed.len(), refused.len(), cut.len());
    assert!(failed.is_empty(), "{failed:#?}");
    // Only what has been refused may be sent again, if it is a purchase. One may meet a connection that is closing.
    assert!(cut.len() <= 1, "{cut:#?}");

    // One dies instead of ending.
    let killed = now();
    replicas[1].kill9();
    sleep(Duration::from_secs(2));
    replicas[1] = again(&addresses[1]);
    sleep(Duration::from_secs(2));
    let seen = crowd.end();
    let failed = seen.failed.lock().unwrap().clone();
    let requests = seen.requests.load(Ordering::SeqCst);
    let sales = seen.sales.load(Ordering::SeqCst);
    println!("after the kill: {requests} requests, {} failed: {failed:#?}", failed.len());
    println!("{sales} sales; slowest answer {} ms", seen.slowest_ms.load(Ordering::SeqCst));
    assert!(failed.len() as u64 <= PEOPLE, "{failed:#?}");
    for (at, what) in &failed {
        // A pass that the dead one had claimed is held until its lease ends, or is spent.
        assert!(what.contains("/orders"), "the queue's own calls are asked again elsewhere: {what}");
        let after = at.saturating_duration_since(killed);
        assert!(*at + Duration::from_millis(500) > killed && after < Duration::from_millis(500), "{after:?}: {what}");
    }
    assert!(sales > 50, "they bought all the time: {sales}");
    assert_eq!(shop.lines().len() as u64, sales, "nobody bought twice");
    assert!(seen.slowest_ms.load(Ordering::SeqCst) < 1500, "nobody waited long");
    assert_never_more_than(&moves.of(LABEL), 8, 1000);
    invariants::assert_hold(&redis);
}
