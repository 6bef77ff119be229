//! Redis dies, freezes, fills up. The faults and the time are real: the tests check behaviour and generous limits.

use std::sync::Mutex;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::*;
use crate::{
    clock::{Clock, SystemClock},
    redis::breaker::State,
    store::{StoreError, Tick},
};

/// A store with its own Redis, in real time.
async fn open() -> (TestServer, Arc<RedisStore>, Arc<Metrics>) {
    let server = TestServer::start();
    let metrics = Arc::new(Metrics::new());
    let store = RedisStore::connect(&server.config(), rules(), StoreClock::system(), metrics.clone()).await.unwrap();
    assert!(!store.is_degraded(), "a normal start is closed at once");
    (server, store, metrics)
}

async fn enter(store: &RedisStore, id: u64) -> Result<Option<Place>, StoreError> {
    store.enter_if_absent(target(), user(id)).await
}

/// A call's answer, and how long it took.
async fn timed(store: &RedisStore, id: u64) -> (Result<Option<Place>, StoreError>, Duration) {
    let clock = SystemClock::new();
    (enter(store, id).await, clock.monotonic())
}

async fn reaches(store: &RedisStore, state: State, within: Duration) {
    let master = store.runner.masters.of("").unwrap();
    let reached = master.breaker().reached(state);
    tokio::time::timeout(within, reached).await.unwrap_or_else(|_| panic!("not {state:?} within {within:?}"));
}

const SOON: Duration = Duration::from_secs(3);
/// The limit of a call, plus what a busy machine may add.
const BUDGET: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_killed_redis_fails_calls_at_once_and_is_found_again_when_it_comes_back() {
    let (mut server, store, metrics) = open().await;
    assert!(enter(&store, 1).await.unwrap().is_some());
    let found_at = store.lost_at(target());
    server.kill();
    for id in 2..=20 {
        let (answer, took) = timed(&store, id).await;
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        assert!(took < BUDGET, "{took:?}");
    }
    assert!(store.is_degraded() && store.lost_at(target()) > found_at);
    assert!(matches!(store.advance_admission(target(), 0).await, Err(StoreError::Unavailable(_))), "the pump too");
    assert!(metrics.render().contains("virtual_queue_redis_breaker_open 1"));
    server.restart();
    reaches(&store, State::Closed, SOON).await;
    assert!(metrics.render().contains("virtual_queue_redis_breaker_open 0"));
    let tick = store.advance_admission(target(), 0).await;
    assert!(matches!(tick, Ok(Tick::NotYet(rest)) if rest <= Duration::from_secs(2)), "not within a tick: {tick:?}");
    let Ok(Some(Place::Waiting(position))) = enter(&store, 1).await else { panic!("it works again") };
    assert_eq!(position.seq, 1, "it came back empty");
    store.stats(target()).await.unwrap();
}

#[tokio::test]
async fn a_killed_redis_is_noticed_though_nobody_calls() {
    let (mut server, store, _) = open().await;
    let found_at = store.lost_at(target());
    server.kill();
    reaches(&store, State::Open, Duration::from_millis(500)).await;
    assert!(store.lost_at(target()) > found_at);
}

#[tokio::test]
async fn calls_under_way_when_redis_dies_fail_together() {
    let (mut server, store, _) = open().await;
    server.freeze();
    let crowd: Vec<_> = (1..=600)
        .map(|id| {
            let store = store.clone();
            tokio::spawn(async move { enter(&store, id).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.kill();
    for asked in crowd {
        let answer = asked.await.unwrap();
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn a_frozen_redis_times_out_until_a_probe_fails_and_is_away_from_then_on() {
    let (server, store, _) = open().await;
    enter(&store, 1).await.unwrap();
    server.freeze();
    let (answer, took) = timed(&store, 2).await;
    assert_eq!(answer, Err(StoreError::TimedOut), "one time-out opens nothing");
    assert!(took < BUDGET, "{took:?}");
    assert!(!store.is_degraded());
    reaches(&store, State::Open, SOON).await;
    let (answer, took) = timed(&store, 3).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    assert!(took < Duration::from_millis(100), "{took:?}");
    server.thaw();
    reaches(&store, State::Closed, SOON).await;
    let tick = store.advance_admission(target(), 0).await;
    assert!(matches!(tick, Ok(Tick::NotYet(rest)) if rest <= Duration::from_secs(2)), "not within a tick: {tick:?}");
    let Ok(Some(Place::Waiting(position))) = enter(&store, 1).await else { panic!("it works again") };
    assert_eq!(position.seq, 1, "and has kept everybody's place");
}

#[tokio::test]
async fn a_stall_of_400_ms_opens_nothing() {
    let (server, store, metrics) = open().await;
    let found_at = store.lost_at(target());
    enter(&store, 1).await.unwrap();
    for round in 0..3 {
        let mut redis = server.connection().await;
        let stall = tokio::spawn(async move {
            let mut stall = ::redis::cmd("EVAL");
            let busy = "local t = redis.call('TIME') local s = t[1] * 1e6 + t[2] \
                        repeat t = redis.call('TIME') until t[1] * 1e6 + t[2] - s > 400000";
            stall.arg(busy).arg(0).exec_async(&mut redis).await
        });
        let clock = SystemClock::new();
        while clock.monotonic() < Duration::from_millis(700) {
            let answer = enter(&store, 1).await;
            assert!(matches!(answer, Ok(Some(_)) | Err(StoreError::TimedOut)), "round {round}: {answer:?}");
            assert!(!store.is_degraded(), "round {round}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stall.await.unwrap().unwrap();
    }
    assert_eq!(store.lost_at(target()), found_at);
    assert!(metrics.render().contains("virtual_queue_redis_breaker_open 0"));
}

#[tokio::test]
async fn a_full_redis_counts_as_away_and_room_brings_it_back() {
    let (server, store, _) = open().await;
    enter(&store, 1).await.unwrap();
    let mut redis = server.connection().await;
    ::redis::cmd("SET").arg("filler").arg(vec![b'x'; 20_000_000]).exec_async(&mut redis).await.unwrap();
    ::redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("15mb").exec_async(&mut redis).await.unwrap();
    let answer = store.status(target(), user(1)).await;
    assert!(matches!(&answer, Err(StoreError::Unavailable(cause)) if cause.contains("OOM")), "{answer:?}");
    assert!(store.is_degraded());
    // The probe also writes, so it does not close the breaker on a read-only server.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(store.is_degraded());
    ::redis::cmd("DEL").arg("filler").exec_async(&mut redis).await.unwrap();
    reaches(&store, State::Closed, SOON).await;
    assert!(enter(&store, 1).await.unwrap().is_some());
}

#[tokio::test]
async fn a_read_only_redis_counts_as_away() {
    let (server, store, _) = open().await;
    let mut redis = server.connection().await;
    ::redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec_async(&mut redis).await.unwrap();
    let answer = enter(&store, 1).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    ::redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec_async(&mut redis).await.unwrap();
    reaches(&store, State::Closed, SOON).await;
    assert!(enter(&store, 1).await.unwrap().is_some());
}

#[tokio::test]
async fn a_cut_connection_heals_by_itself() {
    let (server, store, _) = open().await;
    enter(&store, 1).await.unwrap();
    let (mut redis, found_at) = (server.connection().await, store.lost_at(target()));
    ::redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec_async(&mut redis).await.unwrap();
    reaches(&store, State::Open, SOON).await;
    reaches(&store, State::Closed, SOON).await;
    assert!(store.lost_at(target()) > found_at);
    assert!(enter(&store, 1).await.unwrap().is_some());
    store.stats(target()).await.unwrap();
}

#[tokio::test]
async fn redis_may_be_away_at_the_start() {
    let mut server = TestServer::start();
    server.kill();
    let metrics = Arc::new(Metrics::new());
    let store = RedisStore::connect(&server.config(), rules(), StoreClock::system(), metrics).await.unwrap();
    let (answer, took) = timed(&store, 1).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    assert!(took < Duration::from_millis(100), "{took:?}");
    server.restart();
    reaches(&store, State::Closed, SOON).await;
    assert!(enter(&store, 1).await.unwrap().is_some());
}

/// Forwards bytes to and from a Redis until the test holds a connection.
struct Proxy {
    config: RedisConfig,
    connections: Arc<Mutex<Vec<watch::Sender<bool>>>>,
}

impl Proxy {
    async fn before(server: &TestServer) -> Self {
        use secrecy::ExposeSecret;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let redis = server.config().url.expose_secret().trim_start_matches("redis://").to_owned();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let list: Arc<Mutex<Vec<watch::Sender<bool>>>> = connections.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (client_reads, client_writes) = client.into_split();
                let (redis_reads, redis_writes) = TcpStream::connect(&redis).await.unwrap().into_split();
                let held = watch::Sender::new(false);
                tokio::spawn(pass(client_reads, redis_writes, held.subscribe()));
                tokio::spawn(pass(redis_reads, client_writes, held.subscribe()));
                list.lock().unwrap().push(held);
            }
        });
        Self { config: RedisConfig { url: url.into(), ..server.config() }, connections }
    }

    /// Stops all traffic on the connection that was made as the `at`-th.
    fn hold(&self, at: usize) {
        self.connections.lock().unwrap()[at].send_replace(true);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if held.wait_for(|held| !held).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// The probe connects first. The hot connection is made after the probe's first write.
const PROBE: usize = 0;
const HOT: usize = 1;

#[tokio::test]
async fn a_hot_connection_that_leads_nowhere_is_replaced_though_redis_answers() {
    let server = TestServer::start();
    let proxy = Proxy::before(&server).await;
    let metrics = Arc::new(Metrics::new());
    let store = RedisStore::connect(&proxy.config, rules(), StoreClock::system(), metrics).await.unwrap();
    enter(&store, 1).await.unwrap();
    let found_at = store.lost_at(target());
    proxy.hold(HOT);
    assert_eq!(enter(&store, 1).await, Err(StoreError::TimedOut));
    reaches(&store, State::Closed, SOON).await;
    assert!(enter(&store, 1).await.unwrap().is_some());
    assert!(store.lost_at(target()) > found_at, "a connection was lost, and with it perhaps an answer");
}

#[tokio::test]
async fn a_probe_that_leads_nowhere_finds_another_way() {
    let server = TestServer::start();
    let proxy = Proxy::before(&server).await;
    let metrics = Arc::new(Metrics::new());
    let store = RedisStore::connect(&proxy.config, rules(), StoreClock::system(), metrics).await.unwrap();
    proxy.hold(PROBE);
    reaches(&store, State::Open, SOON).await;
    reaches(&store, State::Closed, SOON).await;
    assert!(enter(&store, 1).await.unwrap().is_some());
}
