//! HTTP under poor and hostile clients: slow, silent, vanished, ten thousand at a time, or with too much to say. Whoever
//! behaves is served all the same.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::{
    gateway::{gateway, until},
    invariants,
    redis_server::RedisServer,
    server::{DROP, Server},
    upstream::{Raw, Upstream},
};

/// So long may a head take here.
const HEAD: Duration = Duration::from_secs(2);
/// So long may a body take, of a purchase and of entering.
const BODY: Duration = Duration::from_secs(5);
/// For a busy machine, and for the second in which a client may close its side.
const SLACK: Duration = Duration::from_millis(2500);

const SETTINGS: [(&str, &str); 4] = [
    ("VQ_SERVER__CLIENT_REQUEST_TIMEOUT_MS", "2000"),
    ("VQ_SERVER__CLIENT_STALL_TIMEOUT_SECONDS", "2"),
    ("VQ_QUEUE__BATCH_SIZE", "50"),
    ("VQ_QUEUE__TICK_MS", "1000"),
];

const ALIVE: &str = "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n";

/// Sends this, and gives the status of the answer, or what came instead of one.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> String {
    // An early answer makes the rest unwelcome.
    let _ = stream.write_all(request).await;
    let mut answer = vec![0; 64 * 1024];
    match timeout(Duration::from_secs(10), stream.read(&mut answer)).await {
        Ok(Ok(read)) => String::from_utf8_lossy(&answer[..read]).into_owned(),
        Ok(Err(error)) => error.kind().to_string(),
        Err(_) => "nothing".to_owned(),
    }
}

fn status(answer: &str) -> &str {
    answer.strip_prefix("HTTP/1.1 ").map_or("none", |rest| &rest[..3])
}

/// A request whose rest comes a byte at a time, until the server ends it: how long that took, and what it said.
async fn drip(address: &str, first: Option<&str>, begin: &str, nth: usize) -> (Duration, String) {
    // Not all in the same moment: this is not about how fast connections are taken.
    sleep(Duration::from_millis(10) * u32::try_from(nth).unwrap()).await;
    let mut stream = TcpStream::connect(address).await.expect("it takes connections");
    if let Some(first) = first {
        assert_eq!(status(&exchange(&mut stream, first.as_bytes()).await), "200");
    }
    let began = Instant::now();
    stream.write_all(begin.as_bytes()).await.expect("it is read");
    let mut said = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match timeout(Duration::from_millis(250), stream.read(&mut chunk)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(read)) => said.extend_from_slice(&chunk[..read]),
            Err(_) => {
                if stream.write_all(b"x").await.is_err() {
                    break;
                }
            }
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{begin:?} is never ended");
    }
    (began.elapsed(), String::from_utf8_lossy(&said).into_owned())
}

/// People who enter and poll until told to stop: how long each answer took.
async fn people(server: &Server, ids: std::ops::Range<u64>, stop: &AtomicBool) -> Vec<Duration> {
    let first = ids.start;
    let one = async |user: u64| {
        sleep(Duration::from_millis(10 * (user - first))).await;
        let entered = server.enter(DROP, user).await;
        assert_eq!(entered.status, 200, "{entered:?}");
        let (place, mut took) = (entered.position(), vec![entered.took]);
        while !stop.load(Ordering::SeqCst) {
            let reply = server.poll(DROP, user).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            assert!(reply.state() == "ADMITTED" || reply.position() == place, "{reply:?}");
            took.push(reply.took);
            sleep(Duration::from_millis(200)).await;
        }
        took
    };
    join_all(ids.map(one)).await.concat()
}

fn assert_quick(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100];
    let most = took[took.len() - 1];
    println!("{what}: {} answers, p99 {p99:?}, slowest {most:?}", took.len());
    assert!(most < Duration::from_secs(1), "{what}: {most:?}");
}

pub(crate) fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("a process of ours").count()
}

/// What is open while nothing happens, with the connection of this client, which stays. Of a server that has just said where
/// it listens the threads are still starting.
pub(crate) fn at_rest(server: &Server) -> (Raw, usize) {
    let mut raw = Raw::connect(server.url());
    raw.send(ALIVE.as_bytes());
    assert_eq!(raw.answer().expect("it lives").status, 200);
    (raw, open_files(server))
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a process of ours");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[tokio::test]
async fn four_hundred_slow_clients_are_ended_in_time_and_everybody_else_is_served() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &SETTINGS);
    let address = server.host_and_port();
    let mut passes = Vec::new();
    for user in 1..=50 {
        assert_eq!(server.enter(DROP, user).await.status, 200);
    }
    for user in 1..=50 {
        passes.push((user, server.await_pass(DROP, user, Duration::from_secs(10)).await));
    }
    let order = |user: u64, pass: &str| {
        format!(
            "POST /limited-drops/42/orders HTTP/1.1\r\nHost: x\r\nX-User-Id: {user}\r\nX-Entry-Token: {pass}\r\n\
             Content-Length: 1000\r\n\r\n{{"
        )
    };
    let enter = |user: u64| {
        format!(
            "POST /virtual-queues/{DROP}/entries HTTP/1.1\r\nHost: x\r\nX-User-Id: {user}\r\nContent-Length: 1000\r\n\r\n{{"
        )
    };
    let half_a_head = "GET /health/live HTTP/1.1\r\nHost: x\r\nX-Slow: ";

    let stop = AtomicBool::new(false);
    let slow = async {
        let (mut first, mut second, mut bodies, mut bought, mut refused) = (vec![], vec![], vec![], vec![], vec![]);
        for i in 0..100 {
            first.push(drip(address, None, half_a_head, i));
            second.push(drip(address, Some(ALIVE), half_a_head, i));
            bodies.push(enter(10_000 + i as u64));
        }
        for (user, pass) in &passes {
            bought.push(order(*user, pass));
            refused.push(order(*user, "no.pass"));
        }
        let of_bodies = |begun: &[String]| {
            let begun = begun.to_vec();
            async move { join_all(begun.iter().enumerate().map(|(i, begin)| drip(address, None, begin, i))).await }
        };
        let ended = tokio::join!(
            join_all(first),
            join_all(second),
            of_bodies(&bodies),
            of_bodies(&bought),
            of_bodies(&refused)
        );
        stop.store(true, Ordering::SeqCst);
        ended
    };
    let normal = people(&server, 1001..1051, &stop);
    let ((first, second, bodies, bought, refused), took) = tokio::join!(slow, normal);

    for (what, ended, limit, answers) in [
        ("first heads", first, HEAD, &["408"][..]),
        ("second heads", second, HEAD, &["none"]),
        ("bodies on enter", bodies, BODY, &["408"]),
        ("bodies of purchases", bought, BODY, &["408", "400"]),
        ("bodies without a pass", refused, Duration::ZERO, &["403"]),
    ] {
        let slowest = ended.iter().map(|(took, _)| *took).max().unwrap();
        println!("{what}: {} ended, the last after {slowest:?}, with {:?}", ended.len(), status(&ended[0].1));
        for (took, answer) in &ended {
            assert!(*took < limit + SLACK, "{what}: ended after {took:?}");
            assert!(answers.contains(&status(answer)), "{what}: {answer:?}");
            assert!(what != "first heads" || answer.ends_with("\r\n\r\n"), "README: an empty body: {answer}");
        }
    }
    assert_quick("people beside 400 slow clients", took);
    assert_eq!(server.poll(DROP, 10_000).await.refusal(), (404, "NOT_IN_QUEUE"), "a slow body enters nobody");
    let (user, pass) = &passes[0];
    assert_eq!(server.order(42, *user, Some(pass)).await.status, 201, "the pass was not used up");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
    invariants::assert_hold(&redis);
}

#[tokio::test]
async fn clients_that_vanish_without_a_word_leave_nothing_behind() {
    let redis = RedisServer::start();
    let server = Server::serve(&redis, &[&SETTINGS[..], &[("VQ_SERVER__KEEP_ALIVE_SECONDS", "2")]].concat());
    server.enter(DROP, 7).await;
    let before = open_files(&server);
    let mut vanished = Vec::new();
    let entering = "POST /virtual-queues/limited-drop/42/entries HTTP/1.1\r\nHost: x\r\nX-User-Id: 8\r\n";
    for (first, begun) in [
        (false, String::new()),
        (true, String::new()),
        (false, "GET /health/live HTTP/1.1\r\nHost".to_owned()),
        (true, "GET /health/live HTTP/1.1\r\nHost".to_owned()),
        (false, format!("{entering}Content-Length: 9\r\n\r\n{{")),
        (true, format!("{entering}Transfer-Encoding: chunked\r\n\r\n9")),
    ] {
        for _ in 0..20 {
            // Neither read from nor closed: to the server it is as if the cable had been pulled.
            let mut stream = TcpStream::connect(server.host_and_port()).await.unwrap();
            if first {
                assert_eq!(status(&exchange(&mut stream, ALIVE.as_bytes()).await), "200");
            }
            stream.write_all(begun.as_bytes()).await.unwrap();
            vanished.push(stream);
        }
    }
    let seen = Instant::now();
    while open_files(&server) < before + vanished.len() - 20 {
        assert!(seen.elapsed() < Duration::from_secs(2), "they are there, or the test tests nothing");
        sleep(Duration::from_millis(10)).await;
    }
    let since = Instant::now();
    while open_files(&server) > before {
        assert!(since.elapsed() < BODY + SLACK, "{} of {} are left", open_files(&server) - before, vanished.len());
        let reply = server.poll(DROP, 7).await;
        assert_eq!((reply.status, reply.took < Duration::from_secs(1)), (200, true), "{reply:?}");
        sleep(Duration::from_millis(100)).await;
    }
    println!("{} vanished clients were let go of after {:?}", vanished.len(), since.elapsed());
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answers_is_cut_off() {
    let server = Server::demo(&SETTINGS);
    let (_stays, before) = at_rest(&server);
    let mut stream = TcpStream::connect(server.host_and_port()).await.unwrap();
    // Far more than all buffers on the way hold.
    let asked = 4000;
    let request = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(asked);
    let _ = timeout(Duration::from_secs(1), stream.write_all(request.as_bytes())).await;
    let served = server.enter(DROP, 7).await;
    assert_eq!((served.status, served.took < Duration::from_secs(1)), (200, true), "{served:?}");
    assert!(open_files(&server) > before, "it is not cut off yet");
    until("it is cut off", || open_files(&server) <= before).await;
    let (mut read, mut chunk) = (0, vec![0; 1024 * 1024]);
    let mut answers = 0;
    while let Ok(Ok(some @ 1..)) = timeout(Duration::from_secs(5), stream.read(&mut chunk)).await {
        read += some;
        answers += chunk[..some].windows(15).filter(|line| line == b"HTTP/1.1 200 OK").count();
    }
    println!("cut off after {answers} of {asked} answers, {read} bytes");
    assert!(answers < asked / 2, "it was waited for");
}

#[tokio::test]
async fn a_download_that_is_taken_slowly_is_not_cut_off() {
    // Far more than all buffers on the way hold.
    const LENGTH: usize = 32 << 20;
    let shop = Upstream::answering(|_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'x'; LENGTH])).is_ok()
    });
    let server = gateway(shop.url(), &SETTINGS);
    let mut stream = TcpStream::connect(server.host_and_port()).await.unwrap();
    stream.write_all(b"GET /film HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let (began, mut chunk, mut read) = (Instant::now(), vec![0; 20_000], 0);
    // 200 KB a second, for longer than a client may take nothing.
    while began.elapsed() < Duration::from_secs(5) {
        read += stream.read_exact(&mut chunk).await.unwrap_or_else(|error| panic!("{error} after {read} bytes"));
        sleep(Duration::from_millis(100)).await;
    }
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest).await;
    let body = read + rest.len();
    println!("{read} bytes slowly, {} at once, {ended:?}", rest.len());
    assert!(body > LENGTH, "{body} of {LENGTH} bytes and a head");
}

#[tokio::test]
async fn a_connection_is_kept_between_two_polls() {
    let server = Server::demo(&[]);
    let mut stream = TcpStream::connect(server.host_and_port()).await.unwrap();
    assert_eq!(status(&exchange(&mut stream, ALIVE.as_bytes()).await), "200");
    // Longer than the HTTP library would by itself.
    sleep(Duration::from_secs(6)).await;
    assert_eq!(status(&exchange(&mut stream, ALIVE.as_bytes()).await), "200");
}

#[tokio::test]
async fn the_end_of_a_body_that_comes_after_the_answer_is_no_slow_head() {
    let server = Server::demo(&SETTINGS);
    let mut stream = TcpStream::connect(server.host_and_port()).await.unwrap();
    let asks = "GET /health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab";
    assert_eq!(status(&exchange(&mut stream, asks.as_bytes()).await), "200", "it needs no body");
    stream.write_all(b"cde\r\n0\r\n\r\n").await.unwrap();
    sleep(HEAD + Duration::from_millis(500)).await;
    assert_eq!(status(&exchange(&mut stream, ALIVE.as_bytes()).await), "200");
}

#[tokio::test]
async fn too_much_in_a_head_is_refused_and_harms_nobody() {
    let server = Server::demo(&[]);
    server.enter(DROP, 7).await;
    let enter = format!("POST /virtual-queues/{DROP}/entries HTTP/1.1\r\nHost: x\r\nX-User-Id: 8\r\n");
    let header = |bytes: usize| format!("{enter}X-Large: {}\r\n\r\n", "x".repeat(bytes));
    let headers = |count: usize| {
        let more: String = (0..count - 2).map(|i| format!("X-{i}: 1\r\n")).collect();
        format!("{enter}{more}\r\n")
    };
    let uri =
        |bytes: usize| format!("GET /virtual-queues/{DROP}/stats?{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(bytes));
    let method = format!("{} / HTTP/1.1\r\nHost: x\r\n\r\n", "M".repeat(10_000));
    for (what, request, expected) in [
        ("a header of 8 KB", header(8 << 10), "200"),
        ("a header of 100 KB", header(100 << 10), "200"),
        ("a header of 200 KB", header(200 << 10), "431"),
        ("a header of 2 MB", header(2 << 20), "431"),
        ("96 headers", headers(96), "200"),
        ("97 headers", headers(97), "431"),
        ("1,000 headers", headers(1000), "431"),
        ("a URI of 8 KB", uri(8 << 10), "200"),
        ("a URI of 63 KB", uri(63 << 10), "200"),
        ("a URI of 65 KB", uri(65 << 10), "400"),
        ("a URI of 200 KB", uri(200 << 10), "431"),
        ("a method of 10 KB", method, "404"),
    ] {
        let mut stream = TcpStream::connect(server.host_and_port()).await.unwrap();
        let answer = exchange(&mut stream, request.as_bytes()).await;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        println!("{what}: {}, {} bytes of body", status(&answer), body.len());
        assert_eq!(status(&answer), expected, "{what}: {answer}");
        if expected == "400" || expected == "431" {
            let after = exchange(&mut stream, b"").await;
            let is_over = after.is_empty() || after == "connection reset";
            assert!(body.is_empty() && is_over, "README: an empty body, and the end: {answer}{after}");
        }
        let beside = server.poll(DROP, 7).await;
        assert_eq!((beside.status, beside.position(), beside.took < Duration::from_secs(1)), (200, Some(1), true));
    }
    assert!(!server.log().contains("ERROR") && !server.log().contains("panicked"), "{}", server.log());
}

/// Opens connections, makes a request on each, and keeps them all: prints `OPEN n`, and when told to go on, how many
/// are open still.
const IDLE_CLIENT: &str = r#"
import resource, socket, sys, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if hard != resource.RLIM_INFINITY and hard < count + 100:
    sys.exit(f"the hard limit of open files is {hard}: raise it to 20000 (ulimit -Hn, as root)")
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for i in range(count):
    # 2,000 a second: this is not about how fast connections are taken.
    if i % 20 == 0:
        time.sleep(0.01)
    s = socket.create_connection((host, port), timeout=10)
    s.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    held.append(s)
good = sum(s.recv(65536).startswith(b"HTTP/1.1 200") for s in held)
print("OPEN", good, flush=True)
sys.stdin.readline()
still = 0
for s in held:
    s.setblocking(False)
    try:
        s.recv(1)
    except BlockingIOError:
        still += 1
    except OSError:
        pass
print("STILL", still, flush=True)
sys.stdin.readline()
"#;

#[tokio::test]
#[ignore = "long: ./test.sh --faults"]
async fn ten_thousand_idle_connections_are_kept_and_everybody_else_is_served() {
    const IDLE: usize = 10_000;
    let redis = RedisServer::start();
    let settings = [("VQ_SERVER__KEEP_ALIVE_SECONDS", "300"), ("VQ_QUEUE__BATCH_SIZE", "5"), ("VQ_LOG__LEVEL", "info")];
    let server = Server::serve(&redis, &settings);
    server.enter(DROP, 1).await;
    let (files, bytes) = (open_files(&server), resident_bytes(&server));
    let (host, port) = server.host_and_port().split_once(':').unwrap();
    let mut client = Command::new("python3")
        .args(["-c", IDLE_CLIENT, host, port, &IDLE.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("install python3");
    let (mut tell, told) = (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()).lines());
    let told = Arc::new(Mutex::new(told));
    let line = || {
        let told = told.clone();
        let read = tokio::task::spawn_blocking(move || told.lock().unwrap().next());
        async { read.await.unwrap().expect("what is missing is said above").unwrap() }
    };

    // While they come the machine is busy with that: everybody is served, and how quickly is only told.
    let opened = AtomicBool::new(false);
    let opening = async {
        assert_eq!(line().await, format!("OPEN {IDLE}"));
        opened.store(true, Ordering::SeqCst);
    };
    let ((), mut took) = tokio::join!(opening, people(&server, 101..111, &opened));
    took.sort_unstable();
    println!("while they were opened: {} answers, p99 {:?}", took.len(), took[took.len() * 99 / 100]);

    let held = open_files(&server) - files;
    let bytes = resident_bytes(&server).saturating_sub(bytes) / IDLE as u64;
    println!("{IDLE} idle connections: {bytes} bytes each in the server");
    assert!(held >= IDLE, "{held} files");
    let stop = AtomicBool::new(false);
    let five_seconds = async {
        sleep(Duration::from_secs(5)).await;
        stop.store(true, Ordering::SeqCst);
    };
    let ((), took) = tokio::join!(five_seconds, people(&server, 1001..1051, &stop));
    assert_quick("people beside 10,000 idle connections", took);

    tell.write_all(b"\n").unwrap();
    assert_eq!(line().await, format!("STILL {IDLE}"));
    tell.write_all(b"\n").unwrap();
    assert!(client.wait().unwrap().success());
    let since = Instant::now();
    while open_files(&server) > files + 100 {
        assert!(since.elapsed() < Duration::from_secs(10), "{} files", open_files(&server));
        sleep(Duration::from_millis(50)).await;
    }
    invariants::assert_hold(&redis);
}
