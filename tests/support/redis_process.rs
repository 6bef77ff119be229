//! A `redis-server` of one test's own, on a free port of this machine, gone when dropped.
//!
//! Shared by the tests within the crate and those in `tests/it`, so it names neither.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// Sends a signal, such as `-STOP`, to a process.
pub(crate) fn send(signal: &str, to: &Child) {
    let done = Command::new("kill").args([signal, &to.id().to_string()]).status().expect("kill(1)");
    assert!(done.success(), "kill {signal}: {done}");
}

/// A running one. It keeps nothing on disk unless its arguments say so.
pub(crate) struct RedisProcess {
    child: Child,
    dir: TempDir,
    port: u16,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl RedisProcess {
    /// An empty one, with more arguments and a changed environment, that accepts connections.
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_on(|_| arguments.iter().map(|argument| (*argument).to_owned()).collect(), environment)
    }

    /// The same, where the arguments name the port.
    pub(crate) fn start_on(arguments: impl Fn(u16) -> Vec<String>, environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let environment: Vec<_> = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        // Between our looking and Redis binding, somebody else may have taken the port: then take another.
        let started = (0..10).find_map(|_| {
            let port = free_port();
            let arguments = arguments(port);
            let child = launch(dir.path().as_os_str(), port, &arguments, &environment)?;
            Some((child, port, arguments))
        });
        let (child, port, arguments) = started.expect("a redis-server that takes these arguments");
        Self { child, dir, port, arguments, environment }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
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

    fn signal(&self, signal: &str) {
        send(signal, &self.child);
    }

    /// Starts again on the same port, with whatever its arguments made it keep. Kills it first if it still runs.
    pub(crate) fn restart(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill9();
        }
        // Somebody's outgoing connection may hold the port for a moment.
        let again =
            (0..100).find_map(|_| launch(self.dir.path().as_os_str(), self.port, &self.arguments, &self.environment));
        self.child = again.expect("its own port is free again");
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port on which nothing listens just now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Starts one and waits until it accepts connections. `None`: it ended before.
fn launch(dir: &OsStr, port: u16, arguments: &[String], environment: &[(String, String)]) -> Option<Child> {
    let mut child = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
        .arg(dir)
        // Else a master waits 5 s before it feeds a replica, for others that may come.
        .args(["--repl-diskless-sync-delay", "0"])
        .args(arguments)
        .envs(environment.iter().cloned())
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
