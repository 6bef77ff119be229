//! A `redis-server` of its own for each test.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bb8_redis::{RedisConnectionManager, bb8};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::flags::RedisFlagSource;

/// A running server, gone with this value.
pub(super) struct RedisServer {
    process: Child,
    port: u16,
    directory: TempDir,
}

impl RedisServer {
    /// An empty one on a free port.
    pub(super) async fn start() -> Self {
        loop {
            let directory = TempDir::new().unwrap();
            let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
            let process = spawn(port, &directory);
            let mut server = Self { process, port, directory };
            if server.answers().await {
                return server;
            }
        }
    }

    /// Whether it comes up; not when somebody else took the port meanwhile.
    async fn answers(&mut self) -> bool {
        let up = timeout(Duration::from_secs(10), async {
            while self.process.try_wait().unwrap().is_none() {
                if let Ok(mut connection) = self.client().get_multiplexed_async_connection().await
                    && redis::cmd("PING").query_async::<()>(&mut connection).await.is_ok()
                {
                    return true;
                }
                sleep(Duration::from_millis(5)).await;
            }
            false
        });
        up.await.expect("redis-server starts within 10 s")
    }

    /// kill -9.
    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Comes back on the same port without any data.
    pub(super) async fn restart_empty(&mut self) {
        self.process = spawn(self.port, &self.directory);
        assert!(self.answers().await);
    }

    /// Takes connections and answers nothing any more.
    pub(super) fn freeze(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    }

    pub(super) fn client(&self) -> redis::Client {
        redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap()
    }

    /// A source as a replica has one.
    pub(super) async fn source(&self, audit_kept: usize) -> RedisFlagSource {
        let manager = RedisConnectionManager::new(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let pool = bb8::Pool::builder().max_size(4).build(manager).await.unwrap();
        RedisFlagSource::new(self.client(), pool, audit_kept)
    }

    /// What somebody types into redis-cli.
    pub(super) async fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = self.client().get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut connection).await.unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(port: u16, directory: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("these tests need redis-server (package redis-server) on the PATH")
}
