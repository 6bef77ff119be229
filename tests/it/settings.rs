//! What an operator set for a target outlives a Redis that forgets it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    invariants,
    redis_server::RedisServer,
    seen::sweeps,
    server::{DROP, Server},
    store_fixture::{StoreFixture, default_rules, target},
};

const LABEL: &str = "LIMITED_DROP:42";
const KEY: &str = "queue:{LIMITED_DROP:42}:settings";

fn set(redis: &RedisServer, fields: &[(&str, &str)]) {
    redis::pipe().atomic().del(KEY).hset_multiple(KEY, fields).exec(&mut redis.connection()).unwrap();
}

fn stored(redis: &RedisServer) -> BTreeMap<String, String> {
    redis::cmd("HGETALL").arg(KEY).query(&mut redis.connection()).unwrap()
}

fn fields(fields: &[(&str, &str)]) -> BTreeMap<String, String> {
    fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn settings_that_redis_lost_are_back_before_the_next_batch_and_newer_ones_win() {
    let redis = Arc::new(RedisServer::start());
    let knows = StoreFixture::on_redis(redis.clone(), default_rules()).await;
    let new = StoreFixture::on_redis(redis.clone(), default_rules()).await;
    let look = async |fixture: &StoreFixture| fixture.store.lock_tick(fixture.target, "somebody").await.unwrap();
    let flush = || redis::cmd("FLUSHALL").exec(&mut redis.connection()).unwrap();

    let paused = [("version", "3"), ("paused", "1")];
    set(&redis, &paused);
    look(&knows).await;
    flush();
    look(&new).await;
    assert_eq!(stored(&redis), fields(&[]), "who never saw any writes none");
    // Another holds the lock: it is put right all the same.
    look(&knows).await;
    assert_eq!(stored(&redis), fields(&paused));
    let ttl: i64 = redis::cmd("PTTL").arg(KEY).query(&mut redis.connection()).unwrap();
    assert_eq!(ttl, -1);

    look(&new).await;
    let newer = [("version", "4"), ("batch_size", "7")];
    set(&redis, &newer);
    look(&new).await;
    look(&knows).await;
    assert_eq!(stored(&redis), fields(&newer));
    set(&redis, &paused);
    look(&new).await;
    assert_eq!(stored(&redis), fields(&newer), "a failover that went back to older ones is put right");

    // Taking them away is a change too.
    set(&redis, &[("version", "5")]);
    look(&knows).await;
    flush();
    look(&new).await;
    look(&knows).await;
    assert_eq!(stored(&redis), fields(&[("version", "5")]));
    assert!(knows.store.register_active(target(1), Some(1)).await.unwrap());
    assert!(!knows.store.register_active(knows.target, Some(1)).await.unwrap(), "nothing is set for it any more");
}

#[tokio::test]
async fn settings_without_a_version_come_back_only_where_there_are_none() {
    let redis = Arc::new(RedisServer::start());
    let fixture = StoreFixture::on_redis(redis.clone(), default_rules()).await;
    let look = async || fixture.store.lock_tick(fixture.target, "somebody").await.unwrap();
    for batch in ["5", "6"] {
        set(&redis, &[("batch_size", batch)]);
        look().await;
        assert_eq!(stored(&redis), fields(&[("batch_size", batch)]), "by hand, and so it stays");
    }
    redis::cmd("DEL").arg(KEY).exec(&mut redis.connection()).unwrap();
    look().await;
    assert_eq!(stored(&redis), fields(&[("batch_size", "6")]));
}

#[tokio::test]
async fn a_paused_target_stays_paused_when_redis_restarts_empty() {
    let mut redis = RedisServer::start();
    let settings = [
        ("VQ_QUEUE__TICK_MS", "1000"),
        ("VQ_QUEUE__HEARTBEAT_TIMEOUT_SECONDS", "10"),
        ("VQ_QUEUE__HEARTBEAT_SLACK_SECONDS", "0"),
        // Nobody is to be inside but by the queue.
        ("VQ_REDIS__ON_FAILURE", "closed"),
    ];
    let servers = [Server::serve(&redis, &settings), Server::serve(&redis, &settings)];
    set(&redis, &[("version", "3"), ("paused", "1")]);
    for user in 1..=10 {
        assert_eq!(servers[0].enter(DROP, user).await.position(), Some(user));
    }
    // Whoever ticks has looked at the target by then.
    sweeps(&mut redis.connection(), LABEL, 2).await;
    redis.restart();

    let began = Instant::now();
    for server in &servers {
        while server.poll(DROP, 1).await.status != 404 {
            assert!(began.elapsed() < Duration::from_secs(3), "{}", server.log());
        }
    }
    let back_after = began.elapsed();
    for user in 1..=10 {
        assert_eq!(servers[(user % 2) as usize].enter(DROP, user).await.state(), "WAITING");
    }
    let entered = Instant::now();
    while stored(&redis).is_empty() {
        assert!(entered.elapsed() < Duration::from_secs(2), "{}", servers[0].log());
        sleep(Duration::from_millis(10)).await;
    }
    println!("queueing again after {back_after:?}, settings back {:?} after people were", entered.elapsed());
    assert_eq!(stored(&redis), fields(&[("version", "3"), ("paused", "1")]));
    sweeps(&mut redis.connection(), LABEL, 3).await;
    for user in 1..=10 {
        let reply = servers[0].poll(DROP, user).await;
        assert_eq!((reply.state(), &reply.body["paused"]), ("WAITING", &true.into()), "{reply:?}");
    }
    assert_eq!(servers[0].stats(DROP).await["admittedCount"], 0);
    let said = servers.iter().map(|server| server.log().matches("they are restored").count()).sum::<usize>();
    assert_eq!(said, 1, "one of them wrote them back");

    // A newer version, written elsewhere, wins.
    set(&redis, &[("version", "4")]);
    servers[1].await_pass(DROP, 1, Duration::from_secs(4)).await;
    assert_eq!(stored(&redis), fields(&[("version", "4")]));
    invariants::assert_hold(&redis);
}
