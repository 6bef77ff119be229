use crate::config::{error::Problems, layers::SectionReader};

/// Where we listen.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address or host name.
    pub host: String,
    /// Port; 0 takes any free one.
    pub port: u16,
    /// HTTP worker threads; 0: one a core.
    pub workers: usize,
    /// Seconds running requests get on SIGTERM.
    pub shutdown_grace_seconds: u64,
    /// Seconds between SIGTERM and taking no new connections: not ready any more, and still serving.
    pub drain_seconds: u64,
    /// A port of its own for metrics, health and admin; none: they live on `port`.
    pub management_port: Option<u16>,
}

impl ServerConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            host: section.get("host"),
            port: section.get("port"),
            workers: section.get("workers"),
            shutdown_grace_seconds: section.get("shutdown_grace_seconds"),
            drain_seconds: section.get("drain_seconds"),
            management_port: section.optional("management_port"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        if self.host.is_empty() || self.host.contains(|c: char| c.is_whitespace() || c == '/') {
            problems.add("server.host", format!("must be an address or a host name, not {:?}", self.host));
        }
        problems.check_range("server.workers", self.workers as u64, 0..=1024);
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
