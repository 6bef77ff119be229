//! A real Redis of one test's own, on a free port, gone when dropped: a container where a Docker engine answers, else a
//! `redis-server` of this machine.

use std::{fs, path::PathBuf, process::Command};

use tempfile::TempDir;
use testcontainers::{ContainerAsync, GenericImage};
use virtual_queue::config::{Config, RedisConfig};

use crate::{
    docker,
    redis_process::{RedisProcess, free_port},
};

/// A running Redis.
pub(crate) struct RedisServer {
    process: Process,
    port: u16,
    /// Where it speaks TLS: who vouches for it, its certificate and its key.
    tls: Option<[PathBuf; 3]>,
}

enum Process {
    Here(RedisProcess),
    Container(Box<ContainerAsync<GenericImage>>),
}

impl RedisServer {
    /// An empty one that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with more arguments, such as `["--appendonly", "yes"]` to find its data again after a restart.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let port = free_port();
        match docker::redis(port, arguments) {
            Some(container) => Self { process: Process::Container(Box::new(container)), port, tls: None },
            None => Self::start_here(arguments, &[]),
        }
    }

    /// One on this machine whether or not a Docker engine answers, for a process that others on this machine reach by
    /// its address or that needs an environment of its own.
    pub(crate) fn start_here(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let process = RedisProcess::start(arguments, environment);
        Self { port: process.port(), process: Process::Here(process), tls: None }
    }

    /// One of this machine that speaks TLS and nothing else, with a certificate of `authority` for 127.0.0.1.
    pub(crate) fn start_with_tls(authority: &Authority, arguments: &[&str]) -> Self {
        let files = authority.server_files();
        let names = ["--tls-ca-cert-file", "--tls-cert-file", "--tls-key-file"];
        let of_files =
            names.iter().zip(&files).flat_map(|(name, file)| [(*name).to_owned(), file.display().to_string()]);
        let more: Vec<String> = of_files.chain(arguments.iter().map(|argument| (*argument).to_owned())).collect();
        let process = RedisProcess::start_on(
            |port| {
                let own = ["--port", "0", "--tls-port", &port.to_string()].map(str::to_owned);
                own.into_iter().chain(more.iter().cloned()).collect()
            },
            &[],
        );
        Self { port: process.port(), process: Process::Here(process), tls: Some(files) }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How `redis.url` names it.
    pub(crate) fn url(&self) -> String {
        self.url_of("")
    }

    /// The same with somebody's name and password: `name:password@`.
    pub(crate) fn url_of(&self, who: &str) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{who}127.0.0.1:{}", self.port)
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
        self.try_connection().expect("the test's own connection")
    }

    /// The same of one that may not answer.
    pub(crate) fn try_connection(&self) -> redis::RedisResult<redis::Connection> {
        connect(&self.url(), self.tls.as_ref())
    }

    /// Dies at once, as a machine does.
    pub(crate) fn kill9(&mut self) {
        match &mut self.process {
            Process::Here(process) => process.kill9(),
            Process::Container(container) => docker::apart(container.stop_with_timeout(Some(0))).expect("it stops"),
        }
    }

    /// Freezes: connections stay open and nothing answers.
    pub(crate) fn stop(&self) {
        match &self.process {
            Process::Here(process) => process.stop(),
            Process::Container(container) => docker::apart(container.pause()).expect("it freezes"),
        }
    }

    /// Thaws.
    pub(crate) fn cont(&self) {
        match &self.process {
            Process::Here(process) => process.cont(),
            Process::Container(container) => docker::apart(container.unpause()).expect("it thaws"),
        }
    }

    /// Starts again on the same port, with whatever its arguments made it keep. Kills it first if it still runs.
    pub(crate) fn restart(&mut self) {
        match &mut self.process {
            Process::Here(process) => process.restart(),
            Process::Container(container) => {
                // It may be stopped already.
                let _ = docker::apart(container.stop_with_timeout(Some(0)));
                docker::apart(container.start()).expect("it starts again");
                while self.try_connection().is_err() {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
        }
    }
}

/// A connection of a test's own; over TLS with these files, as [`Authority::server_files`] makes them.
pub(crate) fn connect(url: &str, tls: Option<&[PathBuf; 3]>) -> redis::RedisResult<redis::Connection> {
    let client = match tls {
        None => redis::Client::open(url)?,
        Some(files) => {
            let [ca, client_cert, client_key] = files.each_ref().map(|file| fs::read(file).expect("its files"));
            let client_tls = Some(redis::ClientTlsConfig { client_cert, client_key });
            redis::Client::build_with_tls(url, redis::TlsCertificates { client_tls, root_cert: Some(ca) })?
        }
    };
    client.get_connection()
}

/// Somebody who vouches for servers and clients.
pub(crate) struct Authority(TempDir);

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Self {
        let this = Self(tempfile::tempdir().expect("a temporary directory"));
        this.certificate("ca", &[]);
        this
    }

    /// The file with its own certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Who vouches for a server at 127.0.0.1, its certificate and its key.
    pub(crate) fn server_files(&self) -> [PathBuf; 3] {
        let (cert, key) = self.issue("server", "subjectAltName=IP:127.0.0.1");
        [self.ca(), cert, key]
    }

    /// Our own settings for servers that it vouches for and that want a certificate of us.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let (cert, key) = self.issue("client", "extendedKeyUsage=clientAuth");
        ["VQ_REDIS__CA_FILE", "VQ_REDIS__CERT_FILE", "VQ_REDIS__KEY_FILE"]
            .into_iter()
            .zip([self.ca(), cert, key].map(|file| file.display().to_string()))
            .collect()
    }

    /// The files with a certificate and its key.
    pub(crate) fn issue(&self, name: &str, extension: &str) -> (PathBuf, PathBuf) {
        let (ca, key) = (self.ca(), self.path("ca.key"));
        let (ca, key) = (ca.to_str().expect("a text"), key.to_str().expect("a text"));
        self.certificate(
            name,
            &["-CA", ca, "-CAkey", key, "-addext", "basicConstraints=critical,CA:FALSE", "-addext", extension],
        );
        (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn certificate(&self, name: &str, more: &[&str]) {
        let kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2"];
        let made = Command::new("openssl")
            .args(kind)
            .args(["-subj", &format!("/CN={name}"), "-out", &format!("{name}.pem"), "-keyout", &format!("{name}.key")])
            .args(more)
            .current_dir(self.0.path())
            .output()
            .unwrap_or_else(|error| panic!("install openssl, 3 or newer (Debian: apt-get install openssl): {error}"));
        assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    }
}

#[test]
fn a_server_dies_and_comes_back_with_what_it_was_told_to_keep() {
    for (arguments, kept) in [(&["--appendonly", "yes", "--appendfsync", "no"][..], Some(7)), (&[][..], None)] {
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
