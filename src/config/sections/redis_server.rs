use secrecy::{ExposeSecret, SecretString};

use crate::config::{
    error::Problems,
    layers::SectionReader,
    value::{Raw, Value, one_of},
};

/// How Redis is reached, and what happens without it.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// `redis://[[user:password@]host[:port][/database]`. Secret because of the password: [`Self::address`] may be shown.
    pub url: SecretString,
    /// How Redis is run.
    pub mode: RedisMode,
    /// Connections for ticks, locks, stats, settings and flags.
    pub pool_size: u32,
    /// Milliseconds to connect.
    pub connect_timeout_ms: u64,
    /// Milliseconds a buyer's call waits for Redis, in all.
    pub command_timeout_ms: u64,
    /// What buyers get while Redis is away.
    pub on_failure: OnFailure,
    /// How many replicas share the rate while Redis is away; only with [`OnFailure::Throttle`].
    pub replicas: Option<u64>,
}

/// How Redis is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedisMode {
    /// One address.
    #[default]
    Standalone,
}

/// What buyers get while Redis is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// They are let through with a direct pass, and it is counted.
    #[default]
    Open,
    /// Each replica lets its share of the rate through; the others wait.
    Throttle,
    /// Nothing: 503.
    Closed,
}

impl RedisConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            url: section.get("url"),
            mode: section.get("mode"),
            pool_size: section.get("pool_size"),
            connect_timeout_ms: section.get("connect_timeout_ms"),
            command_timeout_ms: section.get("command_timeout_ms"),
            on_failure: section.get("on_failure"),
            replicas: section.optional("replicas"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        if let Err(what) = parts_of(self.url.expose_secret()) {
            problems.add("redis.url", what);
        }
        problems.check_range("redis.pool_size", self.pool_size.into(), 1..=1000);
        problems.check_range("redis.connect_timeout_ms", self.connect_timeout_ms, 1..=60_000);
        problems.check_range("redis.command_timeout_ms", self.command_timeout_ms, 1..=60_000);
        match (self.on_failure, self.replicas) {
            (OnFailure::Throttle, None) => {
                problems
                    .add("redis.replicas", "must be set with redis.on_failure = \"throttle\": each takes its share");
            }
            (OnFailure::Throttle, Some(replicas)) => problems.check_range("redis.replicas", replicas, 1..=10_000),
            (OnFailure::Open | OnFailure::Closed, Some(_)) => {
                problems.add("redis.replicas", "means something only with redis.on_failure = \"throttle\"");
            }
            (OnFailure::Open | OnFailure::Closed, None) => {}
        }
    }

    /// The URL without user and password, for logs: `redis://127.0.0.1:6379/0`.
    pub fn address(&self) -> String {
        match parts_of(self.url.expose_secret()) {
            Ok(address) => format!("redis://{address}"),
            Err(_) => "redis://?".to_owned(),
        }
    }
}

/// What stands behind the user and password, if it is a URL of ours. The error never holds any part of the URL.
fn parts_of(url: &str) -> Result<&str, String> {
    const FORM: &str = "must be redis://[[user:password@]host[:port][/database]";
    if url.starts_with("rediss://") {
        return Err(format!("{FORM}; TLS (rediss://) is not in this version yet"));
    }
    let rest = url.strip_prefix("redis://").ok_or(FORM)?;
    if rest.contains(|c: char| c.is_whitespace() || c == '#' || c == '?') {
        return Err(format!("{FORM}, special characters in a password %-encoded"));
    }
    let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
    let address_start = authority.rfind('@').map_or(0, |at| at + 1);
    let host_and_port = &authority[address_start..];
    let (host, port) = match host_and_port.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host_and_port, None),
    };
    if host.is_empty() {
        return Err(format!("{FORM}: the host is missing"));
    }
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(format!("{FORM}: the port is not a number from 0 to 65535"));
    }
    if !path.is_empty() && path.parse::<u16>().is_err() {
        return Err(format!("{FORM}: the database is not a number"));
    }
    Ok(&rest[address_start..])
}

impl Value for RedisMode {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("standalone", Self::Standalone)], &["sentinel", "cluster"])
    }

    fn shown(&self) -> String {
        match self {
            Self::Standalone => "\"standalone\"".to_owned(),
        }
    }
}

impl Value for OnFailure {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("open", Self::Open), ("throttle", Self::Throttle), ("closed", Self::Closed)], &[])
    }

    fn shown(&self) -> String {
        match self {
            Self::Open => "\"open\"".to_owned(),
            Self::Throttle => "\"throttle\"".to_owned(),
            Self::Closed => "\"closed\"".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_url_is_read_and_its_password_never_shown() {
        for (url, address) in [
            ("redis://localhost", "localhost"),
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis://:hunter2@redis.internal:6380/3", "redis.internal:6380/3"),
            ("redis://app:hunter2@[::1]:6379/", "[::1]:6379/"),
            ("redis://app:hunter2@[::1]", "[::1]"),
            ("redis://app:hun@ter2@host", "host"),
        ] {
            assert_eq!(parts_of(url), Ok(address));
        }
        for url in [
            "",
            "localhost:6379",
            "http://hunter2@localhost",
            "unix:///hunter2",
            "redis://",
            "redis://app:hunter2@",
            "redis://app:hunter2@:6379",
            "redis://app:hunter2@host:port",
            "redis://app:hunter2@host:70000",
            "redis://app:hunter2@host/hunter2",
            "redis://app:hunter2/@host",
            "redis://app:hunter2#@host",
            "redis://app:hunter2?@host",
            "redis://app:hunter2 @host",
            "rediss://app:hunter2@host",
        ] {
            let what = parts_of(url).expect_err(url);
            assert!(what.contains("redis://[") && !what.contains("hunter2"), "{url}: {what}");
        }
    }
}
