//! Redis is unavailable, restarts empty, fails over, or is changed by hand.

use super::*;

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

    // The failover lost the change, and another replica made one with the same version.
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
    let flags = FeatureFlags::new(Arc::new(server.source(AUDIT_KEPT).await), true, OnFailure::Open);
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
        let put = timeout(BOUND / 2, flags.0.put(&stop, "kim"));
        assert!(matches!(put.await.unwrap(), Err(FlagError::Unavailable { .. } | FlagError::TimedOut)));
        assert!(timeout(BOUND / 2, flags.0.audit(1)).await.unwrap().is_err());
        assert!(timeout(BOUND / 2, flags.0.refresh()).await.unwrap().is_err());
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
        // Written by hand between the read and the restore of a replica.
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
