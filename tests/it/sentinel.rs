//! `redis.mode = sentinel`: the master dies or is told to go, its replica takes over, nobody loses the place.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    invariants::{self, Moves, assert_never_more_than},
    redis_group::{SENTINEL_PASSWORDS, SENTINEL_RIGHTS, Watched, ask, info, until},
    redis_server::Authority,
    redis_tls::{PASSWORD, documented_user},
    server::{DROP, Reply, Server, borrowed},
};

const LABEL: &str = "LIMITED_DROP:42";
const BATCH: u64 = 3;
const TICK_MS: u64 = 1000;

/// A replica of ours that asks the Sentinels, with the budget buyers have in earnest.
fn serve(watched: &Watched, more: &[(&str, &str)]) -> Server {
    serve_as("redis://nobody.invalid", watched, more)
}

fn serve_as(url: &str, watched: &Watched, more: &[(&str, &str)]) -> Server {
    let settings = watched.settings();
    let own = borrowed(&settings);
    let pace = [
        ("VQ_QUEUE__BATCH_SIZE", "3"),
        ("VQ_QUEUE__TICK_MS", "1000"),
        ("VQ_REDIS__COMMAND_TIMEOUT_MS", "200"),
        ("VQ_LOG__LEVEL", "info"),
    ];
    Server::serve_at(url, &[&own[..], &pace, more].concat())
}

/// People who poll every 200 ms at both until told to stop. On a thread of their own: what a test does to servers holds it
/// up now and then.
struct Crowd {
    stop: Arc<AtomicBool>,
    polling: JoinHandle<Vec<(u64, Reply)>>,
}

impl Crowd {
    fn come(servers: &Arc<[Server; 2]>, people: std::ops::RangeInclusive<u64>) -> Self {
        let (stop, servers) = (Arc::new(AtomicBool::new(false)), servers.clone());
        let told = stop.clone();
        let polling = tokio::spawn(async move {
            let one = async |user: u64| {
                let mut answers = Vec::new();
                while !told.load(Ordering::SeqCst) {
                    answers.push((user, servers[(user % 2) as usize].poll(DROP, user).await));
                    sleep(Duration::from_millis(200)).await;
                }
                answers
            };
            let at_once = people.clone().count();
            let all: Vec<Vec<_>> = stream::iter(people).map(one).buffer_unordered(at_once).collect().await;
            all.into_iter().flatten().collect()
        });
        Self { stop, polling }
    }

    /// Every answer: none but 200, and none that took a second.
    async fn go(self) -> Vec<(u64, Reply)> {
        self.stop.store(true, Ordering::SeqCst);
        let answers = self.polling.await.unwrap();
        for (user, reply) in &answers {
            assert_eq!(reply.status, 200, "{user}: {reply:?}");
            assert!(reply.took < Duration::from_secs(1), "{user}: {reply:?}");
        }
        let slowest = answers.iter().map(|(_, reply)| reply.took).max().unwrap_or_default();
        let direct = answers.iter().filter(|(_, reply)| reply.state() == "DIRECT_ADMITTED").count();
        println!("{} answers, {direct} of them given without Redis, the slowest took {slowest:?}", answers.len());
        answers
    }
}

/// One after the other, so that everybody's number is their id; and the replica has them all.
async fn enter_all(watched: &Watched, server: &Server, people: u64) {
    for user in 1..=people {
        // Who was not answered in time, on a machine that is busy, asks again.
        let reply = loop {
            let reply = server.enter(DROP, user).await;
            if !is_degraded(&reply) {
                break reply;
            }
        };
        assert_eq!(reply.position(), Some(user), "{reply:?}");
    }
    let synced: u64 = ask(&mut watched.servers[0].connection(), &["WAIT", "1", "5000"]);
    assert_eq!(synced, 1);
}

/// The moves at all servers; those that were replicated count once. There were some before and some after.
fn assert_moves(of: Vec<Moves>, lost_ms: u64) {
    let mut all: Vec<(u64, u64)> = of.into_iter().flat_map(|moves| moves.of(LABEL)).collect();
    all.sort_unstable();
    all.dedup();
    println!("batches (ms of Redis, people), lost at {lost_ms}: {all:?}");
    assert_never_more_than(&all, BATCH, TICK_MS);
    let before: Vec<u64> = all.iter().map(|(at, _)| *at).filter(|at| *at <= lost_ms).collect();
    let after: Vec<u64> = all.iter().map(|(at, _)| *at).filter(|at| *at > lost_ms).collect();
    assert!(before.len() >= 2 && after.len() >= 2, "it ticks before and after");
}

/// Watches the one that takes over, from the moment it does: it cuts all connections then.
async fn watch_the_new_one(watched: &Watched) -> Moves {
    while info(&watched.servers[1], "role") != "master" {
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_millis(100)).await;
    Moves::watch(&watched.servers[1])
}

/// The time of day, ms: the clock of all servers here.
fn wall_ms(watched: &Watched) -> u64 {
    let (seconds, micros): (u64, u64) = ask(&mut watched.servers[1].connection(), &["TIME"]);
    seconds * 1000 + micros / 1000
}

/// Waits until somebody is told what Redis says, and says how long that took.
async fn queueing_again(server: &Server, since: Instant) -> Duration {
    let newcomer = 90_000;
    loop {
        let reply = server.poll(DROP, newcomer).await;
        if !is_degraded(&reply) {
            return since.elapsed();
        }
        assert!(since.elapsed() < Duration::from_secs(15), "still {reply:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn is_degraded(reply: &Reply) -> bool {
    reply.header("x-virtual-queue-degraded").is_some()
}

/// Waits until the master answers.
async fn until_ready(server: &Server) {
    let since = Instant::now();
    while server.get("/health/ready").await.body["redis"] != "ok" {
        assert!(since.elapsed() < Duration::from_secs(5), "{}", server.log());
        sleep(Duration::from_millis(20)).await;
    }
}

/// A poll, made again where a busy machine did not answer in time.
async fn answered(server: &Server, user: u64) -> Reply {
    loop {
        let reply = server.poll(DROP, user).await;
        if reply.state() == "DIRECT_ADMITTED" || !is_degraded(&reply) {
            return reply;
        }
    }
}

/// Who said nothing meanwhile is where they were, or has been let in.
async fn assert_places_kept(server: &Server, silent: std::ops::RangeInclusive<u64>) {
    for user in silent {
        let reply = answered(server, user).await;
        assert_eq!(reply.status, 200, "{user}: {reply:?}");
        assert!(reply.state() == "ADMITTED" || reply.position() == Some(user), "{user}: {reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ./test.sh --faults"]
async fn a_master_killed_gives_way_to_its_replica_and_nobody_loses_the_place() {
    let mut watched = Watched::start();
    let servers = Arc::new([serve(&watched, &[]), serve(&watched, &[])]);
    enter_all(&watched, &servers[0], 100).await;
    let mut moves = vec![Moves::watch(&watched.servers[0]), Moves::watch(&watched.servers[1])];
    let crowd = Crowd::come(&servers, 81..=100);
    sleep(Duration::from_millis(2500)).await;
    // One of those that are asked is gone, too: the others know.
    watched.kill_sentinel(0);
    watched.servers[0].kill9();
    let (killed, lost_ms) = (Instant::now(), wall_ms(&watched));
    moves.push(watch_the_new_one(&watched).await);
    let again = queueing_again(&servers[0], killed).await.max(queueing_again(&servers[1], killed).await);
    println!("queueing again {again:?} after the kill");
    sleep(Duration::from_secs(3)).await;
    crowd.go().await;
    assert_places_kept(&servers[1], 1..=80).await;

    // The old one comes back, with nothing, and becomes a replica.
    watched.servers[0].restart();
    let since = Instant::now();
    while info(&watched.servers[0], "role") != "slave" {
        assert!(since.elapsed() < Duration::from_secs(20), "the sentinels make it a replica");
        assert!(!is_degraded(&answered(&servers[0], 80).await));
        sleep(Duration::from_millis(100)).await;
    }
    for _ in 0..10 {
        for server in &*servers {
            let reply = answered(server, 80).await;
            assert!(reply.status == 200 && !is_degraded(&reply), "{reply:?}");
        }
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(servers[0].stats(DROP).await["evicted"], 0);
    assert_moves(moves, lost_ms);
    invariants::assert_hold(&watched.servers[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ./test.sh --faults"]
async fn a_failover_by_hand_is_followed_while_the_old_master_lives_on() {
    let watched = Watched::start();
    let servers = Arc::new([serve(&watched, &[]), serve(&watched, &[])]);
    enter_all(&watched, &servers[0], 100).await;
    let mut moves = vec![Moves::watch(&watched.servers[0]), Moves::watch(&watched.servers[1])];
    let crowd = Crowd::come(&servers, 81..=100);
    sleep(Duration::from_millis(2500)).await;
    watched.fail_over();
    let (asked, lost_ms) = (Instant::now(), wall_ms(&watched));
    moves.push(watch_the_new_one(&watched).await);
    let new = watched.servers[1].port();
    for server in &*servers {
        while !server.log().contains(&format!("address=127.0.0.1:{new}")) {
            assert!(asked.elapsed() < Duration::from_secs(20));
            sleep(Duration::from_millis(20)).await;
        }
        println!("followed {:?} after the sentinels were told", asked.elapsed());
    }
    // Long enough for the old one to be made a replica under us.
    while info(&watched.servers[0], "role") != "slave" {
        assert!(asked.elapsed() < Duration::from_secs(40));
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(1)).await;
    crowd.go().await;
    assert_places_kept(&servers[1], 1..=80).await;
    assert_moves(moves, lost_ms);
    invariants::assert_hold(&watched.servers[1]);
}

#[tokio::test]
async fn without_sentinels_at_the_start_people_go_through_and_queue_once_one_answers() {
    let mut watched = Watched::start();
    (0..2).for_each(|which| watched.kill_sentinel(which));
    // The one that is left is the last of the list.
    let server = serve(&watched, &[]);
    let since = Instant::now();
    // Each time somebody new: who got a direct pass may have it in the store by then.
    let mut user = 1;
    while server.enter(DROP, user).await.state() != "WAITING" {
        user += 1;
        assert!(since.elapsed() < Duration::from_secs(3));
        sleep(Duration::from_millis(20)).await;
    }
    watched.kill_sentinel(2);
    until("it says so", || server.log().contains("no sentinel reports the master"));
    assert!(!is_degraded(&answered(&server, 1).await), "the last known one stays in use");
}

#[tokio::test]
async fn sentinels_that_want_tls_and_a_password_are_followed_and_the_log_says_whom_they_refuse() {
    let document = include_str!("../../migrations-none.md");
    assert!(document.contains(SENTINEL_RIGHTS), "the rights stand there");
    let (authority, stranger) = (Authority::new(), Authority::new());
    let user = documented_user();
    let arguments: Vec<&str> = ["--user"].into_iter().chain(user.iter().map(String::as_str)).collect();
    let watched = Watched::start_secured(&authority, &arguments);
    let [of_the_default_user, of_ours] = SENTINEL_PASSWORDS;
    let (ours, theirs) = (authority.settings(), stranger.settings());
    let start = |sentinel_url: &str, files: &[(&'static str, String)]| {
        let mut settings = borrowed(files);
        settings.extend([("VQ_REDIS__SENTINEL_URL", sentinel_url), ("VQ_REDIS__COMMAND_TIMEOUT_MS", "5000")]);
        let url = format!("rediss://virtual-queue:{PASSWORD}@nobody.invalid");
        serve_as(&url, &watched, &settings)
    };

    for (sentinel_url, files, why) in [
        (String::new(), &ours, ""),
        ("rediss://nobody.invalid".to_owned(), &ours, "NOAUTH"),
        (format!("rediss://virtual-queue:not-{of_ours}@nobody.invalid"), &ours, "authentication failed"),
        (format!("rediss://virtual-queue:{of_ours}@nobody.invalid"), &theirs, "invalid peer certificate"),
    ] {
        let server = start(&sentinel_url, files);
        let reply = server.enter(DROP, 1).await;
        assert_eq!((reply.status, reply.state()), (200, "DIRECT_ADMITTED"), "as away: {reply:?}");
        until("it says why", || server.log().contains("no sentinel reports"));
        let log = server.log();
        let line = log.lines().find(|line| line.contains("no sentinel reports")).unwrap();
        println!("{line}");
        assert!(line.contains(why) && line.contains("127.0.0.1:"), "{why}: {line}");
        assert!(!log.contains("hunter2") && !log.contains("panicked"), "{log}");
    }

    // A database counts for nothing: they have none.
    let servers = [
        start(&format!("rediss://virtual-queue:{of_ours}@nobody.invalid/3"), &ours),
        start(&format!("rediss://:{of_the_default_user}@nobody.invalid"), &ours),
    ];
    for (server, user) in servers.iter().zip(1..) {
        // Later than at once on a machine that is busy.
        until_ready(server).await;
        assert_eq!(server.enter(DROP, user).await.position(), Some(user), "{}", server.log());
    }
    let synced: u64 = ask(&mut watched.servers[0].connection(), &["WAIT", "1", "5000"]);
    assert_eq!(synced, 1);
    watched.fail_over();
    let (asked, new) = (Instant::now(), watched.servers[1].port());
    for (server, user) in servers.iter().zip(1..) {
        until("it follows", || server.log().contains(&format!("address=127.0.0.1:{new}")));
        println!("followed {:?} after the sentinels were told", asked.elapsed());
        until_ready(server).await;
        let reply = answered(server, user).await;
        assert!(reply.state() == "ADMITTED" || reply.position() == Some(user), "{reply:?}");
        assert!(!server.log().contains("hunter2"), "{}", server.log());
    }
    invariants::assert_hold(&watched.servers[1]);
}
