//! The store, seen from outside.

use super::*;
use crate::store::{Claim, Departure, Settled, Settlement, StoreError, Sweep, Tick, TickLock};

#[tokio::test]
async fn who_enters_gets_the_next_number_and_keeps_it() {
    let fixture = RedisStoreFixture::open().await;
    for (id, number) in [(7, 1), (8, 2), (7, 1), (9, 3), (8, 2)] {
        let Some(Place::Waiting(position)) = fixture.enter(id).await else { panic!("{id} waits") };
        assert_eq!((position.seq, position.ahead), (number, number - 1));
        assert_eq!((position.next_tick_in_ms, position.moving, position.paused), (2000, true, false));
    }
    assert_eq!(fixture.poll(10).await, None);
}

#[tokio::test]
async fn a_full_queue_turns_newcomers_away_and_nobody_who_is_in() {
    let fixture = RedisStoreFixture::with(QueueRules { capacity: 2, ..rules() }).await;
    assert!(fixture.enter(1).await.is_some() && fixture.enter(2).await.is_some());
    assert_eq!(fixture.enter(3).await, None);
    assert!(fixture.enter(2).await.is_some());
}

#[tokio::test]
async fn a_way_through_the_queue_is_booked_and_counted_at_every_step() {
    let fixture = RedisStoreFixture::open().await;
    let store = &fixture.store;
    for id in 1..=4 {
        fixture.enter(id).await;
    }
    assert_eq!(store.advance_admission(target(), 0).await, Ok(Tick::NotYet(Duration::from_secs(2))));
    assert_eq!(store.leave(target(), user(4)).await, Ok(Departure::GaveUpPlace));
    fixture.pass(2500);
    assert_eq!(store.sweep_stale(target(), 0).await, Ok(Sweep::default()));
    let moved =
        Tick::Moved { people: 3, evicted: 0, next_in: Duration::from_secs(2), late: Duration::from_millis(500) };
    assert_eq!(store.advance_admission(target(), 0).await, Ok(moved));
    let pass = Some(Place::Admitted { expires_at: 1302 });
    for id in 1..=3 {
        assert_eq!(fixture.poll(id).await, pass);
    }
    fixture.pass(1000);
    assert_eq!(fixture.enter(1).await, pass, "the same pass again");

    assert_eq!(store.leave(target(), user(2)).await, Ok(Departure::GaveUpPass));
    assert_eq!(store.leave(target(), user(2)).await, Ok(Departure::WasNotHere));
    assert_eq!(store.claim(target(), user(2), 1302, "n2").await, Ok(Claim::Spent));
    assert_eq!(store.claim(target(), user(1), 1302, "n1").await, Ok(Claim::Granted));
    assert_eq!(store.claim(target(), user(1), 1302, "n3").await, Ok(Claim::InUse));
    let settle = |nonce, how| store.settle(target(), user(1), 1302, nonce, how);
    assert_eq!(settle("n1", Settlement::GivenBack).await, Ok(Settled::Nothing));
    assert_eq!(store.claim(target(), user(1), 1302, "n3").await, Ok(Claim::Granted));
    assert_eq!(settle("n3", Settlement::Spent).await, Ok(Settled::Consumed));
    assert_eq!(settle("n3", Settlement::Spent).await, Ok(Settled::Nothing), "once");
    assert_eq!(store.claim(target(), user(1), 1302, "n4").await, Ok(Claim::Spent));
    store.count_direct(target(), 2).await.unwrap();
    assert_eq!(store.claim(target(), user(9), 1100, "n9").await, Ok(Claim::Granted), "a direct pass");
    assert_eq!(store.settle(target(), user(9), 1100, "n9", Settlement::Spent).await, Ok(Settled::DirectConsumed));
    fixture.pass(300_000);
    assert_eq!(store.claim(target(), user(3), 1302, "n5").await, Ok(Claim::Expired));
    assert_eq!(store.sweep_stale(target(), 0).await, Ok(Sweep { expired: 1, ..Sweep::default() }));

    let books = store.stats(target()).await.unwrap();
    assert_eq!(books.imbalance(), None);
    assert_eq!((books.entered, books.waiting, books.issued, books.left), (4, 0, 3, 1));
    assert_eq!((books.live, books.consumed, books.expired, books.revoked), (0, 1, 1, 1));
    assert_eq!((books.direct, books.direct_consumed, books.admitted), (2, 1, 3));
    assert_eq!((books.admitted_through, books.last_number), (3, 4));
    assert_eq!((books.waits.count(), books.waits.mean_seconds()), (3, 2.5));
    let metrics = fixture.metrics.render();
    for (event, count) in [("issued", 3), ("consumed", 1), ("expired", 1), ("revoked", 1)] {
        let line = format!(r#"virtual_queue_tokens_total{{event="{event}",target="LIMITED_DROP:42"}} {count}"#);
        assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
    }
    assert!(metrics.contains(r#"virtual_queue_wait_seconds_sum{target="LIMITED_DROP:42"} 7.5"#), "{metrics}");
}

#[tokio::test]
async fn a_crowd_shares_calls_and_everybody_gets_their_own_number() {
    let fixture = RedisStoreFixture::open().await;
    let crowd = (1..=3000).map(|id| {
        let store = fixture.store.clone();
        tokio::spawn(async move { store.enter_if_absent(target(), user(id)).await })
    });
    let mut numbers = Vec::new();
    for (at, place) in futures_util::future::join_all(crowd).await.into_iter().enumerate() {
        let Ok(Ok(Some(Place::Waiting(position)))) = place else { panic!("{at}: {place:?}") };
        numbers.push(position.seq);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=3000).collect::<Vec<u64>>());
    let metrics = fixture.metrics.render();
    let calls =
        metrics.lines().find_map(|line| line.strip_prefix(r#"virtual_queue_batch_people_count{script="enter"} "#));
    let calls: u64 = calls.unwrap().parse().unwrap();
    assert!((12..100).contains(&calls), "{calls} calls for 3000 people");
}

#[tokio::test]
async fn flushed_scripts_are_loaded_again_and_nobody_notices() {
    let fixture = RedisStoreFixture::open().await;
    fixture.enter(1).await;
    let mut redis = fixture.redis().await;
    for id in 2..=4 {
        ::redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut redis).await.unwrap();
        assert!(fixture.enter(id).await.is_some());
        ::redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut redis).await.unwrap();
        assert_eq!(fixture.store.stats(target()).await.unwrap().entered, id);
        assert!(!fixture.store.is_degraded());
    }
}

#[tokio::test]
async fn one_owner_at_a_time_holds_the_tick_lock_and_its_own_counts_as_taken() {
    let fixture = RedisStoreFixture::open().await;
    assert_eq!(fixture.store.lock_tick(target(), "a").await, Ok(TickLock::Ours));
    assert_eq!(fixture.store.lock_tick(target(), "a").await, Ok(TickLock::Ours));
    let Ok(TickLock::HeldFor(rest)) = fixture.store.lock_tick(target(), "b").await else { panic!("a has it") };
    assert!((1..=1900).contains(&rest.as_millis()), "{rest:?}");
    tokio::time::sleep(rest + Duration::from_millis(5)).await;
    assert_eq!(fixture.store.lock_tick(target(), "b").await, Ok(TickLock::Ours), "it ends by itself");
}

#[tokio::test]
async fn a_lock_that_would_not_end_by_itself_is_not_waited_for() {
    let fixture = RedisStoreFixture::open().await;
    let key = crate::redis::keys::tick_lock(target());
    let odd: [&[&[&str]]; 6] = [
        &[&["SET", &key, "a", "PX", "11900"]],
        &[&["SET", &key, "a"]],
        &[&["SET", &key, ""]],
        &[&["SADD", &key, "a"]],
        &[&["SADD", &key, "a"], &["PEXPIRE", &key, "1000"]],
        &[&["HSET", &key, "a", "b"]],
    ];
    let mut redis = fixture.redis().await;
    for commands in odd {
        for command in commands {
            ::redis::cmd(command[0]).arg(&command[1..]).exec_async(&mut redis).await.unwrap();
        }
        let look = fixture.store.lock_tick(target(), "b").await;
        assert_eq!(look, Ok(TickLock::HeldFor(Duration::from_millis(1))), "{commands:?}");
        assert_eq!(fixture.store.lock_tick(target(), "b").await, Ok(TickLock::Ours), "{commands:?}");
        ::redis::cmd("DEL").arg(&key).exec_async(&mut redis).await.unwrap();
    }
}

#[tokio::test]
async fn two_replicas_ticking_together_admit_one_batch_a_tick() {
    let fixture = RedisStoreFixture::open().await;
    let config = fixture.server.config();
    let clock = StoreClock::new(fixture.time.clone());
    let second =
        RedisStore::connect_with_test_time(&config, rules(), clock, fixture.metrics.clone(), fixture.time.clone());
    let second = second.await.unwrap();
    futures_util::future::join_all((1..=500).map(|id| fixture.enter(id))).await;
    for tick in 1..=3 {
        fixture.pass(2000);
        let ticks = (0..10).map(|at| {
            let store = if at % 2 == 0 { &fixture.store } else { &second };
            store.advance_admission(target(), 0)
        });
        let moved = futures_util::future::join_all(ticks).await;
        let people = moved.iter().map(|tick| match tick {
            Ok(Tick::Moved { people, .. }) => *people,
            Ok(Tick::NotYet(_)) => 0,
            other => panic!("{other:?}"),
        });
        assert_eq!(people.sum::<u64>(), 100, "tick {tick}");
    }
    assert_eq!(fixture.store.stats(target()).await.unwrap().admitted_through, 300);
}

#[tokio::test]
async fn a_replica_with_a_shorter_tick_cuts_nothing_that_another_has_paid_for() {
    let pace = |batch, tick_ms| QueueRules { pacing: Pacing { batch, tick_ms }, ..rules() };
    let slow = RedisStoreFixture::with(pace(1000, 10_000)).await;
    let clock = StoreClock::new(slow.time.clone());
    let (config, metrics) = (slow.server.config(), slow.metrics.clone());
    let fast = RedisStore::connect_with_test_time(&config, pace(50, 500), clock, metrics, slow.time.clone());
    let (fast, slow_store) = (fast.await.unwrap(), slow.store.clone());
    futures_util::future::join_all((1..=2500).map(|id| slow.enter(id))).await;
    let not_yet = |ms| Ok(Tick::NotYet(Duration::from_millis(ms)));
    let people = |tick| match tick {
        Ok(Tick::Moved { people, .. }) => people,
        other => panic!("a batch was due: {other:?}"),
    };
    slow.pass(10_000);
    assert_eq!(people(slow_store.advance_admission(target(), 0).await), 1000);
    assert!(fast.status(target(), user(2500)).await.unwrap().is_some());
    slow.pass(600);
    assert_eq!(fast.advance_admission(target(), 0).await, not_yet(9400));
    assert_eq!(slow_store.advance_admission(target(), 0).await, not_yet(9400));
    slow.pass(9400);
    assert_eq!(people(fast.advance_admission(target(), 0).await), 50);
    slow.pass(500);
    assert_eq!(people(slow_store.advance_admission(target(), 0).await), 950, "in ten seconds 1000 and no more");
    slow.pass(500);
    assert_eq!(fast.advance_admission(target(), 0).await, not_yet(9500));
}

fn other(id: u64) -> QueueTarget {
    QueueTarget::new(QueueTargetType::TicketingEvent, id).unwrap()
}

#[tokio::test]
async fn targets_beyond_the_limit_are_refused_unless_they_have_settings() {
    let fixture = RedisStoreFixture::open().await;
    let store = &fixture.store;
    assert_eq!(store.register_active(other(1), Some(1)).await, Ok(true));
    assert_eq!(store.register_active(other(1), Some(1)).await, Ok(true));
    assert_eq!(store.register_active(other(2), Some(1)).await, Ok(false));
    assert_eq!(store.register_active(other(3), None).await, Ok(true), "named in the flag rule");
    let settings = TargetKeys::of(other(2)).settings().to_owned();
    let mut redis = fixture.redis().await;
    ::redis::cmd("HSET").arg(settings).arg("batch_size").arg(5).exec_async(&mut redis).await.unwrap();
    assert_eq!(store.register_active(other(2), Some(1)).await, Ok(true));
    let mut active = store.active_targets().await.unwrap();
    active.sort();
    assert_eq!(active, [other(1), other(2), other(3)]);
}

#[tokio::test]
async fn what_was_served_is_active_again_even_if_redis_forgot() {
    let fixture = RedisStoreFixture::open().await;
    fixture.enter(1).await;
    assert_eq!(fixture.store.active_targets().await, Ok(vec![target()]));
    let mut redis = fixture.redis().await;
    let mut tamper = ::redis::pipe();
    tamper.del("queue:active").sadd("queue:active", "nonsense:x");
    tamper.exec_async(&mut redis).await.unwrap();
    assert_eq!(fixture.store.active_targets().await, Ok(vec![]), "nobody called since; nonsense is ignored");
    assert_eq!(fixture.poll(2).await, None);
    assert_eq!(fixture.store.active_targets().await, Ok(vec![]), "nobody was found");
    fixture.poll(1).await;
    assert_eq!(fixture.store.active_targets().await, Ok(vec![target()]));
}

#[tokio::test]
async fn only_a_target_without_a_queue_retires() {
    let fixture = RedisStoreFixture::open().await;
    fixture.store.register_active(target(), None).await.unwrap();
    fixture.store.register_active(other(1), None).await.unwrap();
    fixture.enter(1).await;
    fixture.store.active_targets().await.unwrap();
    assert_eq!(fixture.store.retire(target()).await, Ok(false));
    assert_eq!(fixture.store.retire(other(1)).await, Ok(true));
    assert_eq!(fixture.store.active_targets().await, Ok(vec![target()]));
    assert_eq!(fixture.store.advance_admission(other(1), 0).await, Ok(Tick::Gone));
    assert_eq!(fixture.store.sweep_stale(other(1), 0).await, Ok(Sweep { gone: true, ..Sweep::default() }));
}

#[tokio::test]
async fn a_key_of_the_wrong_kind_is_a_fault_and_no_outage() {
    let fixture = RedisStoreFixture::open().await;
    let mut redis = fixture.redis().await;
    ::redis::cmd("SET").arg(&fixture.keys().all()[0]).arg("x").exec_async(&mut redis).await.unwrap();
    assert!(matches!(fixture.store.leave(target(), user(1)).await, Err(StoreError::Broken(_))));
    assert!(!fixture.store.is_degraded());
}

#[tokio::test]
async fn a_step_of_the_stores_clock_is_counted_and_our_own_wrong_clock_is_not() {
    let fixture = RedisStoreFixture::open().await;
    // A replica on the same Redis whose clock is ten minutes behind.
    let metrics = Arc::new(Metrics::new());
    let clock = StoreClock::new(FakeClock::at(START_MS - 600_000));
    let config = fixture.server.config();
    let behind =
        RedisStore::connect_with_test_time(&config, rules(), clock.clone(), metrics.clone(), fixture.time.clone());
    let behind = behind.await.unwrap();
    behind.stats(target()).await.unwrap();
    assert_eq!(clock.now_ms(), START_MS);
    assert!(!metrics.render().contains("virtual_queue_store_clock_steps_total{"));
    fixture.pass(5000);
    behind.stats(target()).await.unwrap();
    assert!(metrics.render().contains(r#"virtual_queue_store_clock_steps_total{direction="forward"} 1"#));
    fixture.time.set(START_MS);
    behind.status(target(), user(1)).await.unwrap();
    assert!(metrics.render().contains(r#"virtual_queue_store_clock_steps_total{direction="back"} 1"#));
}

#[tokio::test]
async fn settings_that_would_lose_places_are_pointed_out() {
    let fixture = RedisStoreFixture::open().await;
    assert_eq!(fixture.store.server_warnings().await, Vec::<String>::new());
    let mut redis = fixture.redis().await;
    for (name, value) in [("maxmemory-policy", "allkeys-lru"), ("maxmemory", "100mb")] {
        ::redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(&mut redis).await.unwrap();
    }
    let warnings = fixture.store.server_warnings().await;
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].contains("allkeys-lru") && warnings[1].contains("100 MB"), "{warnings:?}");

    let closed = TestServer::start_with(&["--rename-command", "CONFIG", ""]);
    let store = RedisStore::connect(&closed.config(), rules(), StoreClock::system(), fixture.metrics.clone()).await;
    let warnings = store.unwrap().server_warnings().await;
    assert!(warnings.len() == 2 && warnings.iter().all(|warning| warning.contains("does not tell")), "{warnings:?}");
}

#[tokio::test]
async fn a_bad_url_is_refused_without_repeating_it() {
    let config = RedisConfig { url: "rediss//:secret@nowhere".into(), ..TestServer::nowhere() };
    let refused = RedisStore::connect(&config, rules(), StoreClock::system(), Arc::new(Metrics::new())).await;
    let text = refused.err().expect("that is no url").to_string();
    assert!(text.contains("redis.url") && !text.contains("secret"), "{text}");
}
