//! The flag as replicas see it: one contract for both sources, then what only Redis can do to us.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::*;
use crate::{
    clock::{FakeClock, StoreClock},
    redis::test_server::TestServer,
};

const RULE: &str = "flags:virtual-queue.enabled";
const NEVER: Duration = Duration::from_secs(3600);
/// A version far after any that the time of a test gives.
const LATE: u64 = 100_000_000_000_000;
const BOUND: Duration = Duration::from_secs(3);

fn change(enabled: bool, reason: &str) -> FlagChange {
    FlagChange::parse(json!({"enabled": enabled, "reason": reason}).to_string().as_bytes()).unwrap()
}

impl TestServer {
    /// A source as a replica has one.
    async fn source(&self, audit_kept: usize) -> RedisFlagSource {
        RedisFlagSource::new(self.masters().await, audit_kept)
    }
}

async fn replica(server: &TestServer) -> FeatureFlags {
    FeatureFlags::new(Arc::new(server.source(AUDIT_KEPT).await), false)
}

/// Keeps a replica fresh until dropped.
struct Running(Arc<FeatureFlags>, JoinHandle<()>);

impl Running {
    fn start(flags: FeatureFlags) -> Self {
        let flags = Arc::new(flags);
        let task = tokio::spawn({
            let flags = Arc::clone(&flags);
            async move { flags.run().await }
        });
        Self(flags, task)
    }

    async fn sees(&self, rule: &FlagRule) {
        let seen = timeout(BOUND, async {
            while *self.0.current() != *rule {
                sleep(Duration::from_millis(5)).await;
            }
        });
        seen.await.unwrap_or_else(|_| panic!("{rule:?} within 3 s, not {:?}", self.0.current()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.1.abort();
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = timeout(BOUND, async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    });
    held.await.unwrap_or_else(|_| panic!("{what} within 3 s"));
}

/// What both sources promise. `source` keeps three audit entries.
async fn keeps_the_contract(source: &dyn FlagSource) {
    assert_eq!(source.read().await, Ok(None));
    assert_eq!(source.audit(10).await, Ok(vec![]));

    let first = source.put(&change(true, "opens"), "kim", 0).await.unwrap();
    let first_json = serde_json::to_value(&*first).unwrap();
    assert_eq!(first_json["version"], first_json["updatedAtMs"], "so it is newer than what was ever set before");
    assert_eq!(source.read().await, Ok(Some(Arc::clone(&first))));
    let second = source.put(&change(false, "stop"), "lee", 0).await.unwrap();
    assert!(second.version() > first.version(), "after the stored one");
    let third = source.put(&change(true, "again"), "kim", LATE).await.unwrap();
    assert_eq!(third.version(), LATE + 1, "after the known one");

    assert_eq!(source.restore(&second).await, Ok(Arc::clone(&third)), "a newer one is stored");
    let other = FlagRule::new(LATE + 1, 1, change(false, "other"));
    assert_eq!(source.restore(&other).await, Ok(Arc::clone(&third)), "one as new is stored");
    assert_eq!(source.audit(10).await.unwrap().len(), 3, "nothing was restored");

    let newer = FlagRule::new(LATE + 2, 1, change(false, "newer"));
    assert_eq!(*source.restore(&newer).await.unwrap(), newer);
    assert_eq!(source.read().await.unwrap().as_deref(), Some(&newer));

    let audit = source.audit(10).await.unwrap();
    let lines: Vec<_> = audit.iter().map(|entry| (entry.who.as_str(), entry.why.as_str())).collect();
    assert_eq!(
        lines,
        [("restore", "the store had lost version 100000000000002"), ("kim", "again"), ("lee", "stop")],
        "the newest three, newest first"
    );
    assert_eq!(audit[1].old, Some(serde_json::to_value(&*second).unwrap()));
    assert_eq!(audit[1].new, Some(serde_json::to_value(&*third).unwrap()));
    assert_eq!(json!(audit[1].at_ms), audit[1].new.as_ref().unwrap()["updatedAtMs"]);
    assert_eq!(source.audit(1).await.unwrap(), audit[..1]);
    assert_eq!(source.audit(0).await.unwrap(), []);

    let many = json!({"enabled": true, "reason": "many", "users": (1..=10_000).collect::<Vec<_>>()});
    let many = source.put(&FlagChange::parse(many.to_string().as_bytes()).unwrap(), "kim", 0).await.unwrap();
    assert_eq!(source.read().await.unwrap(), Some(Arc::clone(&many)));
    let bytes = many.to_stored().len();
    assert_eq!(source.audit(1).await.unwrap()[0].new, Some(json!({"version": LATE + 3, "omittedBytes": bytes})));
}

#[tokio::test]
async fn the_embedded_source_keeps_the_contract() {
    let clock = StoreClock::new(FakeClock::at(1_790_000_000_000));
    keeps_the_contract(&EmbeddedFlagSource::new(clock, 3)).await;
}

#[tokio::test]
async fn the_redis_source_keeps_the_contract() {
    let server = TestServer::start();
    keeps_the_contract(&server.source(3).await).await;
    assert_eq!(server.command::<u64>(&["XLEN", "flags:audit"]).await, 3, "the rest is not kept");
    assert_eq!(server.command::<i64>(&["TTL", RULE]).await, -1);
}

#[tokio::test]
async fn the_first_entry_of_the_audit_has_no_rule_before_it() {
    let server = TestServer::start();
    let source = server.source(3).await;
    let rule = source.put(&change(true, "카나리 \"시작\"\n"), "김", 0).await.unwrap();
    let stored: String = server.command(&["GET", RULE]).await;
    assert_eq!(stored, rule.to_stored());
    assert!(stored.contains(r#""targets":[],"users":[]"#), "{stored}");
    let entry = source.audit(1).await.unwrap().remove(0);
    assert_eq!((entry.who.as_str(), entry.why.as_str(), entry.old), ("김", "카나리 \"시작\"", None));
    let time: Vec<u64> = server.command(&["TIME"]).await;
    assert!((time[0] * 1000).abs_diff(entry.at_ms) < 5_000, "on Redis's clock: {}", entry.at_ms);
}

#[tokio::test]
async fn changes_made_at_once_get_versions_of_their_own() {
    let server = TestServer::start();
    let replicas = [replica(&server).await, replica(&server).await, replica(&server).await];
    let stop = change(false, "stop");
    let puts = replicas.iter().cycle().take(30).map(|flags| flags.put(&stop, "kim"));
    let versions: BTreeSet<_> = join_all(puts).await.into_iter().map(|rule| rule.unwrap().version()).collect();
    assert_eq!(versions.len(), 30);
    for flags in &replicas {
        flags.refresh().await.unwrap();
        assert_eq!(Some(&flags.current().version()), versions.last());
    }
}

#[tokio::test]
async fn a_change_is_in_force_here_at_once_and_elsewhere_by_polling_alone() {
    let server = TestServer::start();
    // What managed Redis services do to a new user: no channel may be used.
    server.command::<()>(&["ACL", "SETUSER", "default", "resetchannels"]).await;
    let here = replica(&server).await;
    let elsewhere = Running::start(replica(&server).await);
    let deaf = server.source(3).await.listen(&Notify::new()).await;
    assert!(deaf.is_err(), "this test wants the channel closed");

    let rule = here.put(&change(true, "opens"), "kim").await.unwrap();
    assert_eq!(here.current(), rule);
    elsewhere.sees(&rule).await;
    let rule = here.put(&change(false, "stop"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;
    assert!(!elsewhere.0.current().change().enabled);
}

#[tokio::test]
async fn a_change_is_announced_and_listening_comes_back_by_itself() {
    let server = TestServer::start();
    let here = replica(&server).await;
    let listening = async || {
        let counts: (String, u64) = server.command(&["PUBSUB", "NUMSUB", "flags:changed"]).await;
        counts.1 == 1
    };
    let elsewhere = Running::start(replica(&server).await.polling_every(NEVER));
    until("it listens", listening).await;
    let rule = here.put(&change(true, "opens"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;

    assert_eq!(server.command::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await, 1);
    // Made while it was deaf, perhaps: listening again looks first.
    let rule = here.put(&change(false, "stop"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;
    until("it listens again", listening).await;
    let rule = here.put(&change(true, "on"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;
}

#[tokio::test]
async fn listening_to_a_peer_that_fell_silent_ends() {
    let server = TestServer::start();
    let source = server.source(3).await;
    let listens = Notify::new();
    let ended = tokio::join!(timeout(BOUND, source.listen(&listens)), async {
        listens.notified().await;
        server.freeze();
    });
    assert_eq!(ended.0, Ok(Ok(())), "cut off, not still waiting");
}

#[tokio::test]
async fn a_rule_that_redis_lost_is_written_back() {
    let mut server = TestServer::start();
    let flags = Running::start(replica(&server).await);
    let rule = flags.0.put(&change(true, "opens"), "kim").await.unwrap();
    let is_back = async |server: &TestServer| {
        until("the rule is back", async || server.command::<Option<String>>(&["GET", RULE]).await.is_some()).await;
        assert_eq!(server.command::<String>(&["GET", RULE]).await, rule.to_stored());
    };

    server.command::<()>(&["FLUSHALL"]).await;
    is_back(&server).await;
    let audit = flags.0.audit(10).await.unwrap();
    assert_eq!((audit.len(), audit[0].who.as_str(), &audit[0].old), (1, "restore", &None));

    server.kill();
    assert!(flags.0.refresh().await.is_err());
    server.restart();
    is_back(&server).await;
    assert_eq!(flags.0.current(), rule);
}

#[tokio::test]
async fn several_replicas_write_a_lost_rule_back_once() {
    let server = TestServer::start();
    let replicas = [replica(&server).await, replica(&server).await, replica(&server).await];
    replicas[0].put(&change(true, "opens"), "kim").await.unwrap();
    join_all(replicas.iter().map(FeatureFlags::refresh)).await;
    server.command::<()>(&["FLUSHALL"]).await;
    for outcome in join_all(replicas.iter().map(FeatureFlags::refresh)).await {
        outcome.unwrap();
    }
    assert_eq!(replicas[0].audit(10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_older_rule_gives_way_and_one_as_new_is_taken() {
    let server = TestServer::start();
    let flags = replica(&server).await;
    flags.put(&change(true, "one"), "kim").await.unwrap();
    let backup: String = server.command(&["GET", RULE]).await;
    let rule = flags.put(&change(false, "two"), "kim").await.unwrap();

    // A failover lost the last change.
    server.command::<()>(&["SET", RULE, &backup]).await;
    flags.refresh().await.unwrap();
    assert_eq!(server.command::<String>(&["GET", RULE]).await, rule.to_stored());
    assert_eq!(flags.current(), rule);

    // It lost the change, and another replica made one with the same version.
    let rival = FlagRule::new(rule.version(), 1, change(true, "rival"));
    server.command::<()>(&["SET", RULE, &rival.to_stored()]).await;
    flags.refresh().await.unwrap();
    assert_eq!(*flags.current(), rival, "all replicas agree on what is stored");

    server.command::<()>(&["FLUSHALL"]).await;
    let three = flags.put(&change(true, "three"), "kim").await.unwrap();
    assert!(three.version() > rule.version(), "versions go on after a loss");
}

#[tokio::test]
async fn a_change_made_where_nobody_knows_the_lost_rule_wins_over_it() {
    let server = TestServer::start();
    let [knows, new] = [replica(&server).await, replica(&server).await];
    for enabled in [false, true] {
        knows.put(&change(enabled, "opens"), "kim").await.unwrap();
    }
    server.command::<()>(&["FLUSHALL"]).await;
    let stop = new.put(&change(false, "stop"), "lee").await.unwrap();
    for flags in [&knows, &new] {
        flags.refresh().await.unwrap();
        assert_eq!(flags.current(), stop);
    }
    assert_eq!(server.command::<String>(&["GET", RULE]).await, stop.to_stored());
}

#[tokio::test]
async fn a_replica_that_never_saw_a_rule_writes_nothing() {
    let server = TestServer::start();
    let flags = FeatureFlags::new(Arc::new(server.source(AUDIT_KEPT).await), true);
    flags.refresh().await.unwrap();
    assert_eq!(*flags.current(), FlagRule::before_any(true));
    assert_eq!(server.command::<Vec<String>>(&["KEYS", "flags:*"]).await, [""; 0]);
}

#[tokio::test]
async fn without_redis_the_last_rule_holds_and_a_change_fails_in_bounded_time() {
    let mut server = TestServer::start();
    let flags = Running::start(replica(&server).await);
    let rule = flags.0.put(&change(true, "opens"), "kim").await.unwrap();
    let stop = change(false, "stop");
    let fails_soon = async || {
        let put = timeout(Duration::from_secs(1), flags.0.put(&stop, "kim"));
        assert!(matches!(put.await.unwrap(), Err(FlagError::Unavailable { .. })));
        assert!(timeout(Duration::from_secs(1), flags.0.audit(1)).await.unwrap().is_err());
        assert!(timeout(Duration::from_secs(1), flags.0.refresh()).await.unwrap().is_err());
        assert_eq!(flags.0.current(), rule);
    };
    server.freeze();
    fails_soon().await;
    server.kill();
    fails_soon().await;
    server.restart();
    until("changes work again", async || flags.0.put(&stop, "kim").await.is_ok()).await;
    assert!(!flags.0.current().change().enabled);
}

#[tokio::test]
async fn what_somebody_wrote_by_hand_changes_nothing_until_the_flag_is_set_anew() {
    let server = TestServer::start();
    let flags = replica(&server).await;
    let source = server.source(3).await;
    flags.put(&change(true, "opens"), "kim").await.unwrap();
    for (rubbish, at_least) in
        [("on", 1), (r#"{"version":100000000000000}"#, LATE + 1), ("{\"version\":1e99,\"enabled\":true}", LATE + 2)]
    {
        let before = flags.current();
        server.command::<()>(&["SET", RULE, rubbish]).await;
        assert!(matches!(flags.refresh().await, Err(FlagError::Unreadable(_))), "{rubbish}");
        assert_eq!(flags.current(), before);
        // Written by hand between a replica's read and its restoring.
        assert!(matches!(source.restore(&before).await, Err(FlagError::Unreadable(_))), "{rubbish}");
        assert_eq!(server.command::<String>(&["GET", RULE]).await, rubbish, "left for somebody to look at");

        let mended = flags.put(&change(true, "mended"), "kim").await.unwrap().version();
        assert!(mended > before.version() && mended >= at_least && mended <= LATE + 2, "{rubbish}: {mended}");
        flags.refresh().await.unwrap();
        let old = flags.audit(1).await.unwrap().remove(0).old.unwrap();
        assert!(old == json!(rubbish) || Some(old) == serde_json::from_str::<Value>(rubbish).ok());
    }

    server.command::<()>(&["DEL", RULE]).await;
    server.command::<u64>(&["RPUSH", RULE, "on"]).await;
    assert!(matches!(flags.refresh().await, Err(FlagError::Unreadable(_))));
    assert_eq!(flags.put(&change(false, "mended"), "kim").await.unwrap().version(), LATE + 3);
}

#[tokio::test]
async fn a_change_that_cannot_be_audited_is_not_made() {
    let server = TestServer::start();
    let flags = replica(&server).await;
    let rule = flags.put(&change(true, "opens"), "kim").await.unwrap();
    server.command::<()>(&["DEL", "flags:audit"]).await;
    server.command::<()>(&["SET", "flags:audit", "mine"]).await;
    let before: String = server.command(&["GET", RULE]).await;
    assert!(flags.put(&change(false, "stop"), "kim").await.is_err());
    assert_eq!(server.command::<String>(&["GET", RULE]).await, before);
    assert_eq!(flags.current(), rule);
}
