//! The contract of every source, and how the Redis source keeps it for several replicas.

use super::*;

/// The contract of both sources. `source` keeps three audit entries.
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
    let many = source
        .put(&FlagChange::parse(many.to_string().as_bytes(), Default::default()).unwrap(), "kim", 0)
        .await
        .unwrap();
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
async fn the_switch_does_not_hang_on_its_audit() {
    let server = TestServer::start();
    let flags = replica(&server).await;
    flags.put(&change(true, "opens"), "kim").await.unwrap();
    server.command::<()>(&["DEL", "flags:audit"]).await;
    server.command::<()>(&["SET", "flags:audit", "mine"]).await;
    let rule = flags.put(&change(false, "stop"), "kim").await.unwrap();
    assert_eq!(server.command::<String>(&["GET", RULE]).await, rule.to_stored());
    assert_eq!(flags.current(), rule);
    assert_eq!(server.command::<String>(&["GET", "flags:audit"]).await, "mine", "somebody's, for them to look at");
    // A lost rule is written back even if the audit fails.
    server.command::<()>(&["DEL", RULE]).await;
    flags.refresh().await.unwrap();
    assert_eq!(server.command::<String>(&["GET", RULE]).await, rule.to_stored());
    assert!(matches!(flags.audit(10).await, Err(FlagError::Unavailable { .. })));
    server.command::<()>(&["DEL", "flags:audit"]).await;
    flags.put(&change(true, "on"), "kim").await.unwrap();
    assert_eq!(flags.audit(10).await.unwrap().len(), 1, "it goes on by itself");
}
