//! A real `redis-server` for one test: on a free port, gone with the test.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::config::{OnFailure, RedisConfig, RedisMode, RedisTls};

/// A running server. Killed when dropped.
pub(crate) struct TestServer {
    port: u16,
    args: Vec<String>,
    child: Child,
}

impl TestServer {
    /// A server that keeps nothing on disk.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with further arguments.
    pub(crate) async fn start_with(args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        // Between our letting go of the port and the server's taking it, another may: then another port will do.
        loop {
            let port = free_port();
            let child = spawn(port, &args);
            let mut server = Self { port, args: args.clone(), child };
            if server.answers().await {
                return server;
            }
        }
    }

    /// A port on which nothing listens, and what a server on it would be reached by.
    pub(crate) fn nowhere() -> RedisConfig {
        config(free_port())
    }

    /// How to reach it, with the default limits.
    pub(crate) fn config(&self) -> RedisConfig {
        config(self.port)
    }

    /// A connection of the test's own.
    pub(crate) async fn connection(&self) -> ::redis::aio::MultiplexedConnection {
        let client = ::redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, empty.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(self.port, &self.args);
        assert!(self.answers().await, "redis-server does not start again");
    }

    /// SIGSTOP: the connections stay, nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    async fn answers(&mut self) -> bool {
        let client = ::redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        loop {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await {
                // Another server on this port would answer too: it must be ours.
                let info: String = ::redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
                return info.contains(&format!("process_id:{}\r\n", self.child.id()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // It may be dead already: that is what some tests are about.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn spawn(port: u16, args: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--dir", &std::env::temp_dir().to_string_lossy()])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("these tests need `redis-server` (6.2 or newer) on the PATH: install it, for example `apt install redis-server`")
}

fn config(port: u16) -> RedisConfig {
    RedisConfig {
        url: format!("redis://127.0.0.1:{port}").into(),
        tls: RedisTls::default(),
        pool_size: 4,
        connect_timeout_ms: 500,
        command_timeout_ms: 200,
        mode: RedisMode::Standalone,
        on_failure: OnFailure::Open,
        replicas: None,
    }
}
