//! Settings that an operator wrote by hand, with typical mistakes.

use super::{super::script_runner::ScriptCall, *};
use crate::{
    redis::scripts,
    store::{Tick, TickLock},
};

async fn set(fixture: &RedisStoreFixture, fields: &[(&str, &str)]) {
    let keys = fixture.keys();
    let mut tamper = ::redis::pipe();
    tamper.del(keys.settings()).hset_multiple(keys.settings(), fields);
    tamper.exec_async(&mut fixture.redis().await).await.unwrap();
}

/// A poll, a pump and an operator can all work with the settings. Returns the position that the poll got.
async fn goes_on(fixture: &RedisStoreFixture) -> crate::domain::QueuePosition {
    fixture.store.lock_tick(target(), "somebody").await.unwrap();
    fixture.store.sweep_stale(target(), 0).await.unwrap();
    fixture.store.stats(target()).await.unwrap();
    assert!(fixture.enter(2).await.is_some());
    match fixture.poll(1).await {
        Some(Place::Waiting(position)) => position,
        other => panic!("1 waits: {other:?}"),
    }
}

#[tokio::test]
async fn what_is_no_number_counts_as_not_set() {
    let fixture = RedisStoreFixture::open().await;
    fixture.enter(1).await;
    let wrong = [
        "-1",
        "nan",
        "inf",
        "-inf",
        "1.5",
        "1e3",
        "0x10",
        "+5",
        " 5",
        "5 ",
        "",
        "abc",
        "99999999999",
        "9223372036854775808",
        "99999999999999999999999999",
    ];
    for field in ["batch_size", "tick_ms", "capacity", "max_active"] {
        for value in wrong {
            set(&fixture, &[("version", "5"), (field, value)]).await;
            let position = goes_on(&fixture).await;
            assert_eq!((position.pacing, position.moving), (rules().pacing, true), "{field} {value:?}");
        }
    }
    set(&fixture, &[("tick_ms", "0")]).await;
    assert_eq!(goes_on(&fixture).await.pacing, rules().pacing);
    assert!(!fixture.store.is_degraded());
}

#[tokio::test]
async fn whatever_is_written_to_pause_pauses() {
    let fixture = RedisStoreFixture::open().await;
    fixture.enter(1).await;
    for (value, pauses) in [
        ("1", true),
        ("true", true),
        ("TRUE", true),
        ("yes", true),
        ("on", true),
        ("2", true),
        (" 0", true),
        ("0", false),
        ("", false),
        ("false", false),
        ("False", false),
    ] {
        set(&fixture, &[("paused", value)]).await;
        assert_eq!(goes_on(&fixture).await.paused, pauses, "{value:?}");
    }
}

#[tokio::test]
async fn settings_of_a_wrong_kind_count_as_none_and_what_is_known_comes_back() {
    let fixture = RedisStoreFixture::open().await;
    fixture.enter(1).await;
    let keys = fixture.keys();
    let ruin = async || {
        let mut tamper = ::redis::pipe();
        tamper.del(keys.settings()).set(keys.settings(), "paused");
        tamper.exec_async(&mut fixture.redis().await).await.unwrap();
    };
    ruin().await;
    assert_eq!(goes_on(&fixture).await.pacing, rules().pacing);
    set(&fixture, &[("version", "3"), ("batch_size", "7")]).await;
    assert_eq!(goes_on(&fixture).await.pacing.batch, 7);
    ruin().await;
    assert_eq!(goes_on(&fixture).await.pacing.batch, 7);
}

#[tokio::test]
async fn after_lost_settings_are_back_no_batch_goes_for_a_tick_of_theirs() {
    let fixture = RedisStoreFixture::open().await;
    set(&fixture, &[("version", "5"), ("tick_ms", "8000")]).await;
    fixture.enter(1).await;
    goes_on(&fixture).await;
    fixture.pass(8000);
    assert!(matches!(fixture.store.advance_admission(target(), 0).await, Ok(Tick::Moved { people: 2, .. })));

    ::redis::cmd("FLUSHALL").exec_async(&mut fixture.redis().await).await.unwrap();
    fixture.enter(1).await;
    fixture.pass(1999);
    assert_eq!(fixture.store.lock_tick(target(), "somebody").await, Ok(TickLock::Ours));
    fixture.pass(1);
    assert_eq!(fixture.store.advance_admission(target(), 0).await, Ok(Tick::NotYet(Duration::from_millis(7999))));
    assert_eq!(goes_on(&fixture).await.next_tick_in_ms, 7999);
    // A shorter tick does not shorten the wait, and without a queue there is no wait.
    let restore = async |version: &str, tick_ms: &str| {
        let fields = [version, "version", version, "tick_ms", tick_ms].map(str::to_owned);
        let call = ScriptCall::pooled(&scripts::SETTINGS_RESTORE, target(), fields);
        fixture.store.runner.run(call, super::super::reply::restored).await
    };
    assert_eq!(restore("6", "500").await, Ok(true));
    assert_eq!(goes_on(&fixture).await.next_tick_in_ms, 7999);
    ::redis::cmd("FLUSHALL").exec_async(&mut fixture.redis().await).await.unwrap();
    assert_eq!(restore("6", "500").await, Ok(true));
    let kept: i64 =
        ::redis::cmd("EXISTS").arg(&fixture.keys().all()[8]).query_async(&mut fixture.redis().await).await.unwrap();
    assert_eq!(kept, 0);
}
