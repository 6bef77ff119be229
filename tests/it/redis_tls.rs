//! Redis over TLS, and with a user that may do no more than it must.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use reqwest::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    invariants,
    redis_server::{Authority, RedisServer},
    server::{ADMIN, DROP, EVENT, Reply, Server, borrowed},
    upstream::Upstream,
};

pub(crate) const PASSWORD: &str = "hunter2-of-the-tests";

/// What `migrations-none.md` says that our user may do, as the words of a `user` line of Redis's configuration.
pub(crate) fn documented_user() -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations-none.md")).unwrap();
    let block = text.split("```").find_map(|block| block.trim().strip_prefix("user ")).expect("a line for our user");
    block.replace("PASSWORD", PASSWORD).split_whitespace().map(str::to_owned).collect()
}

/// Arguments with which Redis knows that user, less one word.
fn arguments_without<'a>(user: &'a [String], less: &str) -> Vec<&'a str> {
    ["--user"].into_iter().chain(user.iter().map(String::as_str).filter(|word| *word != less)).collect()
}

/// Waits until the log says this.
async fn until_log(server: &Server, text: &str) {
    let since = Instant::now();
    while !server.log().contains(text) {
        assert!(since.elapsed() < Duration::from_secs(5), "no {text:?} in {}", server.log());
        sleep(Duration::from_millis(20)).await;
    }
}

/// Everything the service does with Redis: places, batches, passes, purchases, the flag with its subscription and
/// audit, an outage and the taking over after it.
async fn whole_life(redis: &mut RedisServer, settings: &[(&str, &str)]) {
    let shop = Upstream::friendly();
    let mut all = vec![
        ("VQ_DEMO_SHOP__ENABLED", "false"),
        ("VQ_UPSTREAM__URL", shop.url()),
        ("VQ_QUEUE__BATCH_SIZE", "1"),
        ("VQ_QUEUE__TICK_MS", "500"),
        ("VQ_QUEUE__HEARTBEAT_TIMEOUT_SECONDS", "3"),
        ("VQ_QUEUE__HEARTBEAT_SLACK_SECONDS", "0"),
    ];
    all.extend(settings);
    let url = redis.url_of(&format!("virtual-queue:{PASSWORD}@"));
    let [a, b] = [Server::serve_at(&url, &all), Server::serve_at(&url, &all)];
    for user in 1..=4 {
        assert_eq!(a.enter(DROP, user).await.position(), Some(user), "{}", a.log());
    }
    let pass = b.await_pass(DROP, 1, Duration::from_secs(5)).await;
    assert_eq!(a.order(42, 1, Some(&pass)).await.status, 201);
    assert_eq!(b.order(42, 1, Some(&pass)).await.refusal(), (403, "QUEUE_BYPASS_DENIED"), "used up");
    assert_eq!(a.leave(DROP, 2).await.status, 204);

    // The flag, heard of by subscription: polling alone would take a second on average.
    for enabled in [false, true] {
        assert_eq!(a.set_flag(json!({ "enabled": enabled, "reason": "a test" })).await.status, 200);
        let expected = if enabled { "WAITING" } else { "DIRECT_ADMITTED" };
        let since = Instant::now();
        while b.enter(EVENT, 9).await.state() != expected {
            assert!(since.elapsed() < Duration::from_secs(3), "{}", b.log());
        }
        println!("the other server followed after {:?}", since.elapsed());
    }
    let audit = Reply::of(a.request(Method::GET, "/admin/flags/virtual-queue.enabled/audit").bearer_auth(ADMIN)).await;
    assert!(audit.status == 200 && audit.text.contains("a test"), "{audit:?}");

    // The silent go: 3 and 4 do not poll.
    let since = Instant::now();
    while a.stats(DROP).await["waitingCount"] != 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", a.stats(DROP).await);
        sleep(Duration::from_millis(100)).await;
    }

    assert_eq!(a.enter(EVENT, 10).await.state(), "WAITING");
    let (before, away) = (a.log().len(), "redis unavailable: circuit breaker open");
    assert!(!a.log().contains(away) && !b.log().contains(away), "{}", a.log());
    redis.kill9();
    while a.poll(EVENT, 10).await.state() != "DIRECT_ADMITTED" {}
    redis.restart();
    until_log(&a, "people admitted during the outage are recorded").await;
    println!("{}", a.log()[before..].lines().filter(|line| line.contains("redis")).collect::<Vec<_>>().join("\n"));
    invariants::assert_hold(redis);
    for server in [&a, &b] {
        assert!(!server.log().contains(PASSWORD), "{}", server.log());
        assert!(!server.log().contains("something unexpected"), "{}", server.log());
    }
}

/// What Redis refused so far to somebody's commands.
fn refused(redis: &RedisServer) -> BTreeSet<String> {
    let log: Vec<Vec<redis::Value>> = redis::cmd("ACL").arg("LOG").query(&mut redis.connection()).unwrap();
    let object = |entry: Vec<redis::Value>| redis::from_redis_value::<String>(entry[7].clone()).unwrap();
    log.into_iter().map(object).filter(|what| !["config|get", "client|setinfo"].contains(&what.as_str())).collect()
}

#[tokio::test]
async fn a_user_with_the_documented_rights_is_enough() {
    let user = documented_user();
    let mut arguments = arguments_without(&user, "");
    arguments.extend(["--appendonly", "yes", "--appendfsync", "no"]);
    let mut redis = RedisServer::start_with(&arguments);
    whole_life(&mut redis, &[]).await;
    assert_eq!(refused(&redis), BTreeSet::new());
}

#[tokio::test]
async fn everything_goes_over_tls_with_a_certificate_on_both_sides() {
    let (authority, user) = (Authority::new(), documented_user());
    let mut arguments = arguments_without(&user, "");
    arguments.extend(["--appendonly", "yes", "--appendfsync", "no"]);
    let mut redis = RedisServer::start_with_tls(&authority, &arguments);
    whole_life(&mut redis, &borrowed(&authority.settings())).await;
}

#[tokio::test]
async fn a_redis_that_cannot_be_trusted_or_does_not_trust_us_counts_as_away_and_the_log_says_why() {
    let (authority, stranger, user) = (Authority::new(), Authority::new(), documented_user());
    let arguments = arguments_without(&user, "");
    let open = RedisServer::start_with_tls(&authority, &[&arguments[..], &["--tls-auth-clients", "no"]].concat());
    let strict = RedisServer::start_with_tls(&authority, &[&arguments[..], &["--tls-auth-clients", "yes"]].concat());
    let (right, wrong) = (authority.ca(), stranger.ca());
    let (right, wrong) = (right.to_str().unwrap(), wrong.to_str().unwrap());
    let good = format!("virtual-queue:{PASSWORD}@");
    for (url, ca, why) in [
        (open.url_of(&good), Some(wrong), "invalid peer certificate"),
        // The machine's own authorities do not know it either.
        (open.url_of(&good), None, "invalid peer certificate"),
        (open.url_of(&good).replace("127.0.0.1", "localhost"), Some(right), "not valid for name"),
        (open.url_of(&format!("virtual-queue:not-{PASSWORD}@")), Some(right), "WRONGPASS"),
        (open.url_of(&good).replace("rediss:", "redis:"), None, ""),
        (strict.url_of(&good), Some(right), "CertificateRequired"),
    ] {
        let settings: Vec<(&str, &str)> = ca.map(|ca| ("VQ_REDIS__CA_FILE", ca)).into_iter().collect();
        let server = Server::serve_at(&url, &settings);
        let log = server.log();
        let line = log
            .lines()
            .find(|line| line.contains("redis unavailable: circuit breaker open"))
            .unwrap_or_else(|| panic!("{log}"));
        println!("{line}");
        assert!(line.contains(why), "{why}: {line}");
        let reply = server.enter(DROP, 7).await;
        assert_eq!((reply.status, reply.state()), (200, "DIRECT_ADMITTED"), "{reply:?}");
        assert_eq!(reply.header("x-virtual-queue-degraded"), Some("redis"));
        assert!(server.get("/health/ready").await.text.contains("degraded"));
        assert!(!server.log().contains(PASSWORD) && !server.log().contains("panicked"), "{log}");
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_in_the_log_and_blocks_nobody() {
    let user = documented_user();
    for (less, why) in [("+set", "'set'"), ("+script|load", "'script|load'"), ("+hincrby", "something unexpected")] {
        let redis = RedisServer::start_with(&arguments_without(&user, less));
        let server = Server::serve_at(&redis.url_of(&format!("virtual-queue:{PASSWORD}@")), &[]);
        let reply = server.enter(DROP, 7).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let log = server.log();
        let line = log.lines().find(|line| line.contains(why)).unwrap_or_else(|| panic!("{less}: {log}"));
        println!("without {less}: {} and in the log {line}", reply.state());
        assert!(!log.contains(PASSWORD) && !log.contains("panicked"), "{log}");
    }
}

#[test]
fn the_documented_rights_are_those_that_are_used() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis-scripts");
    let of_the_demo_shop = ["reserve.lua", "release.lua", "lock_seats.lua", "unlock_seats.lua"];
    let mut used: BTreeSet<String> = [
        "ping",
        "select",
        "evalsha",
        "script|load",
        "subscribe",
        "unsubscribe",
        "set",
        "get",
        "mget",
        "pttl",
        "exists",
        "sadd",
        "srem",
        "smembers",
        "xrevrange",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    for folder in [dir.clone(), dir.join("includes")] {
        for file in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if !file.file_type().unwrap().is_file() || of_the_demo_shop.iter().any(|name| file.file_name() == *name) {
                continue;
            }
            let text = fs::read_to_string(file.path()).unwrap();
            let calls = text.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
            used.extend(calls.map(str::to_lowercase));
        }
    }
    let documented: BTreeSet<String> =
        documented_user().iter().filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect();
    assert_eq!(documented, used);
}

#[test]
fn files_that_are_no_use_stop_the_start_by_their_key() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().unwrap());
    let ((cert, key), (_, other_key)) =
        (authority.issue("a", "subjectAltName=DNS:a"), authority.issue("b", "subjectAltName=DNS:b"));
    let nonsense = dir.path().join("nonsense.pem");
    fs::write(&nonsense, "hunter2\n").unwrap();
    let nowhere = dir.path().join("nowhere.pem");
    let ca = authority.ca();
    for (ca, identity, expected) in [
        (&nowhere, None, "redis.ca_file: "),
        (&nonsense, None, "holds no certificate"),
        (&key, None, "holds no certificate"),
        (&ca, Some((&nowhere, &key)), "redis.cert_file: "),
        (&ca, Some((&nonsense, &key)), "redis.cert_file: "),
        (&ca, Some((&cert, &nonsense)), "redis.key_file: "),
        (&ca, Some((&cert, &other_key)), "is not the key of redis.cert_file"),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_virtual-queue"));
        command.arg("serve").env("VQ_TOKEN__SECRET", crate::server::SECRET).env("VQ_SERVER__PORT", "0");
        command
            .env("VQ_REDIS__URL", format!("rediss://virtual-queue:{PASSWORD}@127.0.0.1:1"))
            .env("VQ_REDIS__CA_FILE", ca);
        if let Some((cert, key)) = identity {
            command.env("VQ_REDIS__CERT_FILE", cert).env("VQ_REDIS__KEY_FILE", key);
        }
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        println!("{said}");
        assert!(!ended.status.success() && said.contains(expected), "{expected}: {said}");
        assert!(!said.contains(PASSWORD) && !said.contains("hunter2\n") && !said.contains("panicked"), "{said}");
    }
}
