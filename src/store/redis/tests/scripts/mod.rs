//! The scripts: the examples in their headers, their values, and how long their keys live.

mod examples;
mod full;
mod lifetimes;
mod values;

use std::collections::BTreeMap;

use ::redis::aio::MultiplexedConnection;

use super::*;
use crate::redis::scripts::{self, Script};

/// A Redis without a store, so that only the scripts write.
struct ScriptFixture {
    _server: TestServer,
    connection: MultiplexedConnection,
}

impl ScriptFixture {
    async fn open() -> Self {
        let server = TestServer::start();
        let connection = server.connection().await;
        Self { _server: server, connection }
    }

    /// Runs a script of the target at `now` with the default rules.
    async fn run(&mut self, script: &Script, now: u64, own: &[&str]) -> Vec<i64> {
        self.try_run(script, now, own).await.unwrap()
    }

    async fn try_run(&mut self, script: &Script, now: u64, own: &[&str]) -> Result<Vec<i64>, ::redis::RedisError> {
        let mut call = ::redis::cmd("EVAL");
        call.arg(script.source()).arg(10);
        for key in TargetKeys::of(target()).all() {
            call.arg(key);
        }
        call.arg(now).arg(&["1800000", "100", "2000", "100000", "60000", "300", "1000"]).arg(own);
        call.query_async(&mut self.connection).await
    }

    async fn enter(&mut self, now: u64, users: std::ops::RangeInclusive<u64>) {
        let users: Vec<String> = users.map(|user| user.to_string()).collect();
        for some in users.chunks(250) {
            self.run(&scripts::ENTER, now, &some.iter().map(String::as_str).collect::<Vec<_>>()).await;
        }
    }

    /// Makes a target active while there are fewer than `limit`.
    async fn register(&mut self, target: &str, limit: u64) -> Vec<i64> {
        let mut call = ::redis::cmd("EVAL");
        call.arg(scripts::REGISTER.source()).arg(1).arg("queue:active").arg(target).arg(limit);
        call.query_async(&mut self.connection).await.unwrap()
    }

    /// Restores the target's settings.
    async fn restore_settings(&mut self, version: &str, fields: &[&str]) -> Vec<i64> {
        self.run(&scripts::SETTINGS_RESTORE, 1_000_000, &[&[version], fields].concat()).await
    }

    /// A sweep and a tick every 2 s, from `from` to `to`.
    async fn pump(&mut self, from: u64, to: u64) {
        for now in (from..=to).step_by(2000) {
            self.run(&scripts::EVICT, now, &[]).await;
            self.run(&scripts::ADMIT, now, &[]).await;
        }
    }

    /// The remaining life (ms) of each existing key of the target, by its last part; -1: no expiry.
    async fn ttls(&mut self) -> BTreeMap<String, i64> {
        let mut ttls = BTreeMap::new();
        for key in TargetKeys::of(target()).all() {
            let ttl: i64 = ::redis::cmd("PTTL").arg(key).query_async(&mut self.connection).await.unwrap();
            if ttl != -2 {
                ttls.insert(key.rsplit(':').next().unwrap().to_owned(), ttl);
            }
        }
        ttls
    }

    async fn shorten_all(&mut self, ms: i64) {
        for key in &TargetKeys::of(target()).all()[..9] {
            ::redis::cmd("PEXPIRE").arg(key).arg(ms).exec_async(&mut self.connection).await.unwrap();
        }
    }

    /// Writes so far: a server without persistence counts them since its start.
    async fn writes(&mut self) -> u64 {
        let info: String = ::redis::cmd("INFO").arg("persistence").query_async(&mut self.connection).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:")).unwrap();
        line.trim().parse().unwrap()
    }

    async fn ask<T: ::redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        ::redis::cmd(command[0]).arg(&command[1..]).query_async(&mut self.connection).await.unwrap()
    }
}

/// A key of the target, by its place in `KEYS`, from 0.
fn redis_key(at: usize) -> String {
    TargetKeys::of(target()).all()[at].clone()
}
