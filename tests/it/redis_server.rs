//! A real Redis of one test's own: on a free port, in a directory that goes with it, killed when dropped.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;
use virtual_queue::config::{Config, RedisConfig};

/// A running `redis-server`.
pub(crate) struct RedisServer {
    child: Child,
    dir: TempDir,
    port: u16,
    arguments: Vec<String>,
}

impl RedisServer {
    /// An empty one that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with more arguments, such as `["--appendonly", "yes"]` to find its data again after a restart.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        loop {
            let port = free_port();
            // Between our looking and Redis binding, somebody else may have taken the port: then take another.
            if let Some(child) = launch(dir.path().as_os_str(), port, &arguments) {
                return Self { child, dir, port, arguments };
            }
        }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How `redis.url` names it.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A configuration that reaches it, and waits longer than a busy machine can make it.
    pub(crate) fn config(&self) -> RedisConfig {
        RedisConfig {
            url: self.url().into(),
            connect_timeout_ms: 5000,
            command_timeout_ms: 5000,
            ..Config::parse_default().redis
        }
    }

    /// A connection of the test's own, past everything that is tested.
    pub(crate) fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).and_then(|client| client.get_connection()).expect("the test's own connection")
    }

    /// Dies at once, as a machine does.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it can be waited for");
    }

    /// Freezes: connections stay open and nothing answers.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    /// Thaws.
    pub(crate) fn cont(&self) {
        self.signal("-CONT");
    }

    /// Starts again on the same port, with whatever its arguments made it keep. Kills it first if it still runs.
    pub(crate) fn restart(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill9();
        }
        // Somebody's outgoing connection may hold the port for a moment.
        let child = (0..100).find_map(|_| launch(self.dir.path().as_os_str(), self.port, &self.arguments));
        self.child = child.expect("its own port is free again");
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill(1)");
        assert!(done.success(), "kill {signal}: {done}");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Starts one and waits until it accepts connections. `None`: it ended before.
fn launch(dir: &OsStr, port: u16, arguments: &[String]) -> Option<Child> {
    let mut child = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
        .arg(dir)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("install redis-server (Debian: apt-get install redis-server): {error}"));
    let mut log = BufReader::new(child.stdout.take().expect("its output is ours"));
    let mut line = String::new();
    while log.read_line(&mut line).expect("its log") > 0 {
        if line.contains("Ready to accept connections") {
            // Reads on, so that a full pipe never stops it.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Some(child);
        }
        line.clear();
    }
    child.wait().expect("it can be waited for");
    None
}

#[test]
fn a_server_dies_and_comes_back_with_what_it_was_told_to_keep() {
    for (arguments, kept) in [(&["--appendonly", "yes", "--appendfsync", "always"][..], Some(7)), (&[][..], None)] {
        let mut server = RedisServer::start_with(arguments);
        let () = redis::cmd("SET").arg("x").arg(7).query(&mut server.connection()).unwrap();
        server.kill9();
        assert!(redis::Client::open(server.url()).unwrap().get_connection().is_err());
        server.restart();
        server.stop();
        server.cont();
        let found: Option<u64> = redis::cmd("GET").arg("x").query(&mut server.connection()).unwrap();
        assert_eq!(found, kept);
    }
}
