//! A real `redis-server` for one test: on a free port, stopped when the test ends.

use std::{sync::Arc, time::Duration};

use super::{
    Masters,
    test_process::{RedisProcess, free_port},
};
use crate::{
    clock::StoreClock,
    config::{OnFailure, RedisConfig, RedisMode, RedisTls},
    metrics::Metrics,
};

/// A running server, and how tests reach it.
pub(crate) struct TestServer(RedisProcess);

impl TestServer {
    /// A server that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self(RedisProcess::start(arguments, &[]))
    }

    /// How to reach a port on which nothing listens.
    pub(crate) fn nowhere() -> RedisConfig {
        config(free_port())
    }

    /// How to reach it, with the default limits.
    pub(crate) fn config(&self) -> RedisConfig {
        config(self.0.port())
    }

    /// A client.
    pub(crate) fn client(&self) -> ::redis::Client {
        ::redis::Client::open(url(self.0.port())).unwrap()
    }

    /// The masters, as a replica connects to them: one.
    pub(crate) async fn masters(&self) -> Arc<Masters> {
        Masters::connect(&self.config(), StoreClock::system(), Arc::new(Metrics::new())).await.unwrap()
    }

    /// A connection for the test. Its timeouts are longer than the library's half second: test machines are busy.
    pub(crate) async fn connection(&self) -> ::redis::aio::MultiplexedConnection {
        let patience = Some(Duration::from_secs(10));
        let config =
            ::redis::AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
        self.client().get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    /// Runs a command, as in redis-cli.
    pub(crate) async fn command<T: ::redis::FromRedisValue>(&self, words: &[&str]) -> T {
        ::redis::cmd(words[0]).arg(&words[1..]).query_async(&mut self.connection().await).await.unwrap()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill9();
    }

    /// Starts it again on the same port, empty.
    pub(crate) fn restart(&mut self) {
        self.0.restart();
    }

    /// SIGSTOP: the connections stay, nothing answers.
    pub(crate) fn freeze(&self) {
        self.0.stop();
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.0.cont();
    }
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn config(port: u16) -> RedisConfig {
    RedisConfig {
        url: url(port).into(),
        tls: RedisTls::default(),
        pool_size: 4,
        connect_timeout_ms: 500,
        command_timeout_ms: 200,
        mode: RedisMode::Standalone,
        nodes: Vec::new(),
        sentinel_master: None,
        sentinel_url: None,
        on_failure: OnFailure::Open,
        replicas: None,
    }
}
