//! The flag as replicas see it: the contract of both sources, then faults that only Redis can have.

mod contract;
mod losses;
mod spreading;
mod unknown;

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
    config::OnFailure,
    redis::{breaker::State, test_server::TestServer},
};

const RULE: &str = "flags:virtual-queue.enabled";

/// A version much larger than any that the time of a test gives.
const LATE: u64 = 100_000_000_000_000;

const BOUND: Duration = Duration::from_secs(3);

fn change(enabled: bool, reason: &str) -> FlagChange {
    let body = json!({"enabled": enabled, "reason": reason}).to_string();
    FlagChange::parse(body.as_bytes(), Default::default()).unwrap()
}

impl TestServer {
    /// A source as a replica uses it.
    async fn source(&self, audit_kept: usize) -> RedisFlagSource {
        RedisFlagSource::new(self.masters().await, audit_kept)
    }
}

async fn replica(server: &TestServer) -> FeatureFlags {
    FeatureFlags::new(Arc::new(server.source(AUDIT_KEPT).await), false, OnFailure::Open)
}

/// Keeps a replica up to date until dropped.
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
