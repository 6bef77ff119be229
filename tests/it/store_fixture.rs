//! A store on a test bench: a clock that moves when told, verbs for what people and pumps do, and the books looked at
//! after each of them.

use std::{sync::Arc, time::Duration};

use virtual_queue::{
    clock::{FakeClock, StoreClock},
    config::Config,
    domain::{QueuePosition, QueueStats, QueueTarget, QueueTargetType, UserId},
    metrics::Metrics,
    redis::keys::TargetKeys,
    store::{
        Claim, Departure, Place, QueueRules, Settled, Settlement, Sweep, Tick, VirtualQueueStore,
        embedded::{EmbeddedStore, Overrides},
        redis::RedisStore,
    },
};

use crate::redis_server::RedisServer;

/// Where every test's clock starts: an odd millisecond, so that whole seconds are never hit by chance.
pub(crate) const START_MS: u64 = 1_790_000_000_123;

/// The rules as the default configuration has them, but with no slack after the heartbeat timeout.
pub(crate) fn default_rules() -> QueueRules {
    QueueRules { silent_after_ms: 60_000, ..QueueRules::from_config(&Config::parse_default()) }
}

pub(crate) fn target(id: u64) -> QueueTarget {
    QueueTarget::new(QueueTargetType::LimitedDrop, id).expect("an id")
}

pub(crate) fn user(id: u64) -> UserId {
    UserId::try_from(id).expect("an id")
}

/// What only the test can do to a store, and each store has its own way of.
pub(crate) trait Hands: Send {
    /// Sets the operator's overrides.
    fn set_overrides(&self, target: QueueTarget, overrides: Overrides);

    /// Lets a target's idle time end.
    fn end_idle(&self, target: QueueTarget);

    /// Whether anything at all is kept of a target.
    fn keeps_anything_of(&self, target: QueueTarget) -> bool;
}

/// A store, its clock, and one target that the verbs are about.
pub(crate) struct StoreFixture {
    pub(crate) store: Arc<dyn VirtualQueueStore>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) target: QueueTarget,
    pub(crate) hands: Box<dyn Hands>,
}

impl StoreFixture {
    /// The embedded store.
    pub(crate) async fn embedded(rules: QueueRules) -> Self {
        let clock = FakeClock::at(START_MS);
        let metrics = Arc::new(Metrics::new());
        let idle = Duration::from_millis(rules.idle_ttl_ms);
        let store = EmbeddedStore::new(rules, StoreClock::new(clock.clone()), metrics.clone());
        let hands = EmbeddedHands { store: store.clone(), clock: clock.clone(), idle };
        Self { store, clock, metrics, target: target(42), hands: Box::new(hands) }
    }

    /// The Redis store, on a Redis of its own.
    pub(crate) async fn redis(rules: QueueRules) -> Self {
        Self::on_redis(Arc::new(RedisServer::start()), rules).await
    }

    /// The Redis store, on a given Redis.
    pub(crate) async fn on_redis(server: Arc<RedisServer>, rules: QueueRules) -> Self {
        let clock = FakeClock::at(START_MS);
        let metrics = Arc::new(Metrics::new());
        let stores_clock = StoreClock::new(clock.clone());
        let store =
            RedisStore::connect_with_test_time(&server.config(), rules, stores_clock, metrics.clone(), clock.clone())
                .await
                .unwrap();
        Self { store, clock, metrics, target: target(42), hands: Box::new(RedisHands { server }) }
    }

    /// Now, in the whole seconds in which passes are counted.
    pub(crate) fn now_s(&self) -> u64 {
        virtual_queue::clock::Clock::wall_ms(&*self.clock) / 1000
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    pub(crate) fn set_overrides(&self, overrides: Overrides) {
        self.hands.set_overrides(self.target, overrides);
    }

    pub(crate) async fn stats(&self) -> QueueStats {
        let stats = self.store.stats(self.target).await.unwrap();
        assert_eq!(stats.imbalance(), None, "{stats:?}");
        stats
    }

    pub(crate) async fn enter(&self, id: u64) -> Option<Place> {
        let place = self.store.enter_if_absent(self.target, user(id)).await.unwrap();
        self.stats().await;
        place
    }

    /// Enters, and is told to wait.
    pub(crate) async fn waits(&self, id: u64) -> QueuePosition {
        match self.enter(id).await {
            Some(Place::Waiting(position)) => position,
            other => panic!("{id} was to wait: {other:?}"),
        }
    }

    /// Many enter one after the other, and all of them wait.
    pub(crate) async fn crowd(&self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            let place = self.store.enter_if_absent(self.target, user(id)).await.unwrap();
            assert!(matches!(place, Some(Place::Waiting(_))), "{id}: {place:?}");
        }
        self.stats().await;
    }

    pub(crate) async fn poll(&self, id: u64) -> Option<Place> {
        let place = self.store.status(self.target, user(id)).await.unwrap();
        self.stats().await;
        place
    }

    /// Polls, and is still waiting.
    pub(crate) async fn still_waits(&self, id: u64) -> QueuePosition {
        match self.poll(id).await {
            Some(Place::Waiting(position)) => position,
            other => panic!("{id} was to wait still: {other:?}"),
        }
    }

    /// Polls, and has a pass, whose expiry this is.
    pub(crate) async fn pass(&self, id: u64) -> u64 {
        match self.poll(id).await {
            Some(Place::Admitted { expires_at }) => expires_at,
            other => panic!("{id} was to have a pass: {other:?}"),
        }
    }

    pub(crate) async fn leave(&self, id: u64) -> Departure {
        let departure = self.store.leave(self.target, user(id)).await.unwrap();
        self.stats().await;
        departure
    }

    pub(crate) async fn claim(&self, id: u64, expires_at: u64, nonce: &str) -> Claim {
        let claim = self.store.claim(self.target, user(id), expires_at, nonce).await.unwrap();
        self.stats().await;
        claim
    }

    pub(crate) async fn settle(&self, id: u64, expires_at: u64, nonce: &str, how: Settlement) -> Settled {
        let settled = self.store.settle(self.target, user(id), expires_at, nonce, how).await.unwrap();
        self.stats().await;
        settled
    }

    pub(crate) async fn check(&self, id: u64, expires_at: u64) -> Claim {
        self.store.check(self.target, user(id), expires_at).await.unwrap()
    }

    pub(crate) async fn spend_all(&self, id: u64, ago_ms: u64) -> Settled {
        let ago = std::time::Duration::from_millis(ago_ms);
        let settled = self.store.spend_all(self.target, user(id), ago).await.unwrap();
        self.stats().await;
        settled
    }

    /// Claims and spends.
    pub(crate) async fn buy(&self, id: u64, expires_at: u64) -> Settled {
        assert_eq!(self.claim(id, expires_at, "purchase").await, Claim::Granted);
        self.settle(id, expires_at, "purchase", Settlement::Spent).await
    }

    pub(crate) async fn sweep(&self) -> Sweep {
        let sweep = self.store.sweep_stale(self.target, 0).await.unwrap();
        self.stats().await;
        sweep
    }

    pub(crate) async fn tick(&self) -> Tick {
        let tick = self.store.advance_admission(self.target, 0).await.unwrap();
        self.stats().await;
        tick
    }

    /// Time passes until a batch is due, and it goes: (people, evicted).
    pub(crate) async fn batch(&self) -> (u64, u64) {
        if let Tick::NotYet(wait) = self.tick().await {
            self.clock.advance(wait);
        } else {
            panic!("a batch went before this one was asked for");
        }
        match self.tick().await {
            Tick::Moved { people, evicted, next_in, late } => {
                assert_eq!((next_in, late), (Duration::from_millis(self.stats().await.pacing.tick_ms), Duration::ZERO));
                (people, evicted)
            }
            other => panic!("a batch was due: {other:?}"),
        }
    }

    /// Time passes with a sweep every two seconds, as a pump makes them while admission is held up. Returns how many
    /// were evicted.
    pub(crate) async fn sweep_for(&self, ms: u64) -> u64 {
        let mut evicted = 0;
        for _ in 0..ms / 2000 {
            self.advance(2000);
            evicted += self.sweep().await.evicted;
        }
        self.advance(ms % 2000);
        evicted
    }
}

struct EmbeddedHands {
    store: Arc<EmbeddedStore>,
    clock: Arc<FakeClock>,
    idle: Duration,
}

impl Hands for EmbeddedHands {
    fn set_overrides(&self, target: QueueTarget, overrides: Overrides) {
        self.store.set_overrides(target, overrides);
    }

    fn end_idle(&self, _target: QueueTarget) {
        self.clock.advance(self.idle);
    }

    fn keeps_anything_of(&self, target: QueueTarget) -> bool {
        format!("{:?}", self.store).contains(&format!("{target:?}"))
    }
}

/// Works on the keys, past the store.
struct RedisHands {
    server: Arc<RedisServer>,
}

impl Hands for RedisHands {
    fn set_overrides(&self, target: QueueTarget, overrides: Overrides) {
        let keys = TargetKeys::of(target);
        let mut connection = self.server.connection();
        let version: Option<u64> =
            redis::cmd("HGET").arg(keys.settings()).arg("version").query(&mut connection).unwrap();
        let mut commands = redis::pipe();
        commands.atomic().del(keys.settings()).hset(keys.settings(), "version", version.unwrap_or(0) + 1);
        let numbers = [
            ("batch_size", overrides.batch),
            ("tick_ms", overrides.tick_ms),
            ("capacity", overrides.capacity),
            ("max_active", overrides.max_active),
            ("paused", overrides.paused.then_some(1)),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                commands.hset(keys.settings(), name, number);
            }
        }
        commands.exec(&mut connection).unwrap();
    }

    fn end_idle(&self, target: QueueTarget) {
        let keys = TargetKeys::of(target);
        let lived: Vec<&String> = keys.all().iter().filter(|key| *key != keys.settings()).collect();
        redis::cmd("DEL").arg(lived).exec(&mut self.server.connection()).unwrap();
    }

    fn keeps_anything_of(&self, target: QueueTarget) -> bool {
        let keys: Vec<String> = redis::cmd("KEYS").arg("queue:*").query(&mut self.server.connection()).unwrap();
        keys.iter().any(|key| key.contains(&format!("{{{target}}}")))
    }
}
