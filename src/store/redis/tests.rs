//! Tests with a real Redis.

mod faults;
mod memory;
mod queue;
mod scripts;
mod settings;

use std::{sync::Arc, time::Duration};

use super::RedisStore;
use crate::{
    clock::{FakeClock, StoreClock},
    config::{Config, RedisConfig},
    domain::{Pacing, QueueTarget, QueueTargetType, UserId},
    metrics::Metrics,
    redis::{keys::TargetKeys, test_server::TestServer},
    store::{PassStore, Place, PumpStore, QueueRules, QueueStore, StoreHealth},
};

/// Where the fake clock starts: 1,000,000 ms, as in the scripts' examples.
const START_MS: u64 = 1_000_000;

/// The default rules, with no slack after the heartbeat timeout.
fn rules() -> QueueRules {
    QueueRules { silent_after_ms: 60_000, ..QueueRules::from_config(&Config::parse_default()) }
}

fn target() -> QueueTarget {
    QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap()
}

fn user(id: u64) -> UserId {
    UserId::try_from(id).unwrap()
}

/// A store with its own Redis and its own time.
struct RedisStoreFixture {
    server: TestServer,
    store: Arc<RedisStore>,
    time: Arc<FakeClock>,
    metrics: Arc<Metrics>,
}

impl RedisStoreFixture {
    async fn open() -> Self {
        Self::with(rules()).await
    }

    async fn with(rules: QueueRules) -> Self {
        let server = TestServer::start();
        let (time, metrics) = (FakeClock::at(START_MS), Arc::new(Metrics::new()));
        let clock = StoreClock::new(time.clone());
        // These tests are not about slowness.
        let config = RedisConfig { command_timeout_ms: 10_000, ..server.config() };
        let store = RedisStore::connect_with_test_time(&config, rules, clock, metrics.clone(), time.clone()).await;
        Self { server, store: store.unwrap(), time, metrics }
    }

    async fn enter(&self, id: u64) -> Option<Place> {
        self.store.enter_if_absent(target(), user(id)).await.unwrap()
    }

    async fn poll(&self, id: u64) -> Option<Place> {
        self.store.status(target(), user(id)).await.unwrap()
    }

    fn pass(&self, ms: u64) {
        self.time.advance(Duration::from_millis(ms));
    }

    async fn redis(&self) -> ::redis::aio::MultiplexedConnection {
        self.server.connection().await
    }

    fn keys(&self) -> TargetKeys {
        TargetKeys::of(target())
    }
}
