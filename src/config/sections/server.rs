use crate::config::{error::Problems, layers::SectionReader};

/// Where we listen.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address or host name, of which every address counts.
    pub host: String,
    /// Port; 0 takes any free one.
    pub port: u16,
    /// HTTP worker threads; 0: one a core.
    pub workers: usize,
    /// Connections the system holds before we take them, at most; what the kernel allows is the limit of this, too.
    pub backlog: u32,
    /// Connections of clients a worker has at the same time, at most. Others wait in the backlog.
    pub max_connections: usize,
    /// Seconds a connection is kept open for the next request.
    pub keep_alive_seconds: u64,
    /// Milliseconds the head of a request may take to arrive.
    pub client_request_timeout_ms: u64,
    /// Seconds a client may take nothing of an answer that is ready for it.
    pub client_stall_timeout_seconds: u64,
    /// Seconds running requests get on SIGTERM.
    pub shutdown_grace_seconds: u64,
    /// Seconds between SIGTERM and taking no new connections: not ready any more, and still serving.
    pub drain_seconds: u64,
    /// A port of its own for metrics, health and admin, 0 for any free one; none: they live on `port`.
    pub management_port: Option<u16>,
}

impl ServerConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            host: section.get("host"),
            port: section.get("port"),
            workers: section.get("workers"),
            backlog: section.get("backlog"),
            max_connections: section.get("max_connections"),
            keep_alive_seconds: section.get("keep_alive_seconds"),
            client_request_timeout_ms: section.get("client_request_timeout_ms"),
            client_stall_timeout_seconds: section.get("client_stall_timeout_seconds"),
            shutdown_grace_seconds: section.get("shutdown_grace_seconds"),
            drain_seconds: section.get("drain_seconds"),
            management_port: section.optional("management_port"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        if self.host.is_empty() || self.host.contains(|c: char| c.is_whitespace() || c == '/') {
            problems.add("server.host", format!("must be an address or a host name, not {:?}", self.host));
        }
        // The server takes no more.
        problems.check_range("server.workers", self.workers as u64, 0..=512);
        problems.check_range("server.backlog", self.backlog.into(), 1..=65_535);
        problems.check_range("server.max_connections", self.max_connections as u64, 1..=1_000_000);
        problems.check_range("server.keep_alive_seconds", self.keep_alive_seconds, 1..=3600);
        problems.check_range("server.client_request_timeout_ms", self.client_request_timeout_ms, 1000..=600_000);
        problems.check_range("server.client_stall_timeout_seconds", self.client_stall_timeout_seconds, 1..=3600);
        problems.check_range("server.shutdown_grace_seconds", self.shutdown_grace_seconds, 0..=3600);
        problems.check_range("server.drain_seconds", self.drain_seconds, 0..=3600);
        if self.port != 0 && self.management_port == Some(self.port) {
            problems.add(
                "server.management_port",
                format!("must differ from server.port ({}); leave it out to have one port for both", self.port),
            );
        }
    }
}
