//! Settings that an operator wrote by hand, with what hands do.

use super::*;
use crate::{
    redis::scripts,
    store::{Tick, TickLock},
};

async fn set(room: &Room, fields: &[(&str, &str)]) {
    let keys = room.keys();
    let mut tamper = ::redis::pipe();
    tamper.del(keys.settings()).hset_multiple(keys.settings(), fields);
    tamper.exec_async(&mut room.redis().await).await.unwrap();
}

/// A poll of somebody who waits, of a pump, and of an operator make sense of what is set; the first says how it goes on.
async fn goes_on(room: &Room) -> crate::domain::QueuePosition {
    room.store.lock_tick(target(), "somebody").await.unwrap();
    room.store.sweep_stale(target(), 0).await.unwrap();
    room.store.stats(target()).await.unwrap();
    assert!(room.enter(2).await.is_some());
    match room.poll(1).await {
        Some(Place::Waiting(position)) => position,
        other => panic!("1 waits: {other:?}"),
    }
}

#[tokio::test]
async fn what_is_no_number_counts_as_not_set() {
    let room = Room::open().await;
    room.enter(1).await;
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
            set(&room, &[("version", "5"), (field, value)]).await;
            let position = goes_on(&room).await;
            assert_eq!((position.pacing, position.moving), (rules().pacing, true), "{field} {value:?}");
        }
    }
    set(&room, &[("tick_ms", "0")]).await;
    assert_eq!(goes_on(&room).await.pacing, rules().pacing);
    assert!(!room.store.is_degraded());
}

#[tokio::test]
async fn whatever_is_written_to_pause_pauses() {
    let room = Room::open().await;
    room.enter(1).await;
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
        set(&room, &[("paused", value)]).await;
        assert_eq!(goes_on(&room).await.paused, pauses, "{value:?}");
    }
}

#[tokio::test]
async fn settings_of_a_wrong_kind_count_as_none_and_what_is_known_comes_back() {
    let room = Room::open().await;
    room.enter(1).await;
    let keys = room.keys();
    let ruin = async || {
        let mut tamper = ::redis::pipe();
        tamper.del(keys.settings()).set(keys.settings(), "paused");
        tamper.exec_async(&mut room.redis().await).await.unwrap();
    };
    ruin().await;
    assert_eq!(goes_on(&room).await.pacing, rules().pacing);
    set(&room, &[("version", "3"), ("batch_size", "7")]).await;
    assert_eq!(goes_on(&room).await.pacing.batch, 7);
    ruin().await;
    assert_eq!(goes_on(&room).await.pacing.batch, 7);
}

#[tokio::test]
async fn after_lost_settings_are_back_no_batch_goes_for_a_tick_of_theirs() {
    let room = Room::open().await;
    set(&room, &[("version", "5"), ("tick_ms", "8000")]).await;
    room.enter(1).await;
    goes_on(&room).await;
    room.pass(8000);
    assert!(matches!(room.store.advance_admission(target(), 0).await, Ok(Tick::Moved { people: 2, .. })));

    ::redis::cmd("FLUSHALL").exec_async(&mut room.redis().await).await.unwrap();
    room.enter(1).await;
    room.pass(1999);
    assert_eq!(room.store.lock_tick(target(), "somebody").await, Ok(TickLock::Ours));
    room.pass(1);
    assert_eq!(room.store.advance_admission(target(), 0).await, Ok(Tick::NotYet(Duration::from_millis(7999))));
    assert_eq!(goes_on(&room).await.next_tick_in_ms, 7999);
    // A shorter one takes nothing back, and without a queue there is nothing to wait for.
    let restore = async |version: &str, tick_ms: &str| {
        let fields = [version, "version", version, "tick_ms", tick_ms].map(str::to_owned);
        room.store.shared.pooled(&scripts::SETTINGS_RESTORE, target(), fields, super::super::reply::restored).await
    };
    assert_eq!(restore("6", "500").await, Ok(true));
    assert_eq!(goes_on(&room).await.next_tick_in_ms, 7999);
    ::redis::cmd("FLUSHALL").exec_async(&mut room.redis().await).await.unwrap();
    assert_eq!(restore("6", "500").await, Ok(true));
    let kept: i64 =
        ::redis::cmd("EXISTS").arg(&room.keys().all()[8]).query_async(&mut room.redis().await).await.unwrap();
    assert_eq!(kept, 0);
}
