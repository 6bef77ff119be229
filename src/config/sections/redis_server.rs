use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

use super::NodeAddress;
use crate::config::{
    error::Problems,
    layers::SectionReader,
    value::{Raw, Value, one_of},
};

/// How Redis is reached, and what happens without it.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// `redis[s]://[[user]:password@]host[:port][/database]`; `rediss` is TLS. Secret because of the password:
    /// [`Self::address`] may be shown.
    pub url: SecretString,
    /// Whom to believe over TLS, and as whom to come.
    pub tls: RedisTls,
    /// How Redis is run.
    pub mode: RedisMode,
    /// The Sentinels, or some nodes of the Cluster; none for [`RedisMode::Standalone`].
    pub nodes: Vec<NodeAddress>,
    /// What the Sentinels call the master; only with [`RedisMode::Sentinel`].
    pub sentinel_master: Option<String>,
    /// Of the form of [`Self::url`]: TLS, user and password for the Sentinels themselves. Host, port and database count for
    /// nothing. None: neither TLS nor password. Only with [`RedisMode::Sentinel`].
    pub sentinel_url: Option<SecretString>,
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

/// The files of a TLS connection, all in PEM: of every one there is. Only with a `rediss://` URL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedisTls {
    /// The authorities that may vouch for the server. None: those of this machine.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and what is between it and the authority, for a server that asks for one.
    pub cert_file: Option<PathBuf>,
    /// The private key of that certificate.
    pub key_file: Option<PathBuf>,
}

/// How Redis is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedisMode {
    /// One address.
    #[default]
    Standalone,
    /// A master whose address Sentinels tell.
    Sentinel,
    /// Several masters, each with some of the slots.
    Cluster,
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
            tls: RedisTls {
                ca_file: section.optional("ca_file"),
                cert_file: section.optional("cert_file"),
                key_file: section.optional("key_file"),
            },
            mode: section.get("mode"),
            nodes: section.get("nodes"),
            sentinel_master: section.optional("sentinel_master"),
            sentinel_url: section.optional("sentinel_url"),
            pool_size: section.get("pool_size"),
            connect_timeout_ms: section.get("connect_timeout_ms"),
            command_timeout_ms: section.get("command_timeout_ms"),
            on_failure: section.get("on_failure"),
            replicas: section.optional("replicas"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        let mut check = |key, url: &SecretString| {
            parts_of(url.expose_secret()).map(|(scheme, _)| scheme).map_err(|what| problems.add(key, what))
        };
        let sentinels = self.sentinel_url.as_ref().map(|url| check("redis.sentinel_url", url)).transpose();
        if let (Ok(scheme), Ok(sentinels)) = (check("redis.url", &self.url), sentinels) {
            self.tls.validate(scheme == TLS_SCHEME || sentinels == Some(TLS_SCHEME), problems);
        }
        problems.check_range("redis.pool_size", self.pool_size.into(), 1..=1000);
        problems.check_range("redis.connect_timeout_ms", self.connect_timeout_ms, 1..=60_000);
        problems.check_range("redis.command_timeout_ms", self.command_timeout_ms, 1..=60_000);
        self.validate_mode(problems);
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

    /// Each mode needs its keys, and refuses those of the others.
    fn validate_mode(&self, problems: &mut Problems) {
        let has_nodes = !self.nodes.is_empty();
        match self.mode {
            RedisMode::Standalone => {
                if has_nodes {
                    problems.add("redis.nodes", "means something only with redis.mode = \"sentinel\" or \"cluster\"");
                }
            }
            RedisMode::Sentinel => {
                if !has_nodes {
                    problems.add("redis.nodes", "must name the sentinels with redis.mode = \"sentinel\"");
                }
                let is_tls = |url: &SecretString| url.expose_secret().starts_with(TLS_SCHEME);
                if self.tls.ca_file.is_none() && is_tls(&self.url) && !self.sentinel_url.as_ref().is_some_and(is_tls) {
                    // Anybody could answer for them, and the name they give is the name that the certificate must have.
                    problems
                        .add("redis.ca_file", "must be set where redis.url is rediss:// and redis.sentinel_url is not");
                }
                if self.sentinel_master.as_ref().is_none_or(String::is_empty) {
                    problems.add("redis.sentinel_master", "must be set with redis.mode = \"sentinel\"");
                }
            }
            RedisMode::Cluster => {
                if !has_nodes {
                    problems.add("redis.nodes", "must name some nodes with redis.mode = \"cluster\"");
                }
                if let Ok((_, address)) = parts_of(self.url.expose_secret())
                    && address.split_once('/').is_some_and(|(_, database)| !database.bytes().all(|digit| digit == b'0'))
                {
                    problems.add("redis.url", "must name no database but 0 with redis.mode = \"cluster\"");
                }
            }
        }
        let of_sentinels = [
            ("redis.sentinel_master", self.sentinel_master.is_some()),
            ("redis.sentinel_url", self.sentinel_url.is_some()),
        ];
        for (key, is_set) in of_sentinels {
            if is_set && self.mode != RedisMode::Sentinel {
                problems.add(key, "means something only with redis.mode = \"sentinel\"");
            }
        }
    }

    /// Where Redis is, for logs, without user and password: `redis://127.0.0.1:6379/0`, or the nodes.
    pub fn address(&self) -> String {
        let nodes = || self.nodes.iter().map(NodeAddress::to_string).collect::<Vec<_>>().join(", ");
        match self.mode {
            RedisMode::Standalone => {}
            RedisMode::Sentinel => return format!("the sentinels {}", nodes()),
            RedisMode::Cluster => return format!("the cluster of {}", nodes()),
        }
        match parts_of(self.url.expose_secret()) {
            Ok((scheme, address)) => format!("{scheme}{address}"),
            Err(_) => "redis://?".to_owned(),
        }
    }
}

impl RedisTls {
    fn validate(&self, is_tls: bool, problems: &mut Problems) {
        for (key, file) in
            [("redis.ca_file", &self.ca_file), ("redis.cert_file", &self.cert_file), ("redis.key_file", &self.key_file)]
        {
            if file.is_some() && !is_tls {
                problems.add(key, "means something only where redis.url or redis.sentinel_url begins with rediss://");
            }
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => problems.add("redis.key_file", "must be set with redis.cert_file: its private key"),
            (None, Some(_)) => problems.add("redis.cert_file", "must be set with redis.key_file: its certificate"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

const TLS_SCHEME: &str = "rediss://";

/// The scheme, and what stands behind the user and password, if it is a URL of ours. The error never holds any part of
/// the URL.
fn parts_of(url: &str) -> Result<(&'static str, &str), String> {
    const FORM: &str = "must be redis[s]://[[user]:password@]host[:port][/database]";
    let (scheme, rest) = ["redis://", TLS_SCHEME]
        .into_iter()
        .find_map(|scheme| Some((scheme, url.strip_prefix(scheme)?)))
        .ok_or(FORM)?;
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
    Ok((scheme, &rest[address_start..]))
}

impl Value for RedisMode {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("standalone", Self::Standalone), ("sentinel", Self::Sentinel), ("cluster", Self::Cluster)])
    }

    fn shown(&self) -> String {
        match self {
            Self::Standalone => "\"standalone\"".to_owned(),
            Self::Sentinel => "\"sentinel\"".to_owned(),
            Self::Cluster => "\"cluster\"".to_owned(),
        }
    }
}

impl Value for OnFailure {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("open", Self::Open), ("throttle", Self::Throttle), ("closed", Self::Closed)])
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
            ("rediss://app:hunter2@redis.internal:6380/3", "redis.internal:6380/3"),
        ] {
            assert_eq!(parts_of(url).map(|(_, address)| address), Ok(address));
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
            "redisss://app:hunter2@host",
            // An option of the client that trusts anybody: not with us.
            "rediss://app:hunter2@host#insecure",
            "rediss://app:hunter2@host/0#insecure",
            "rediss://app:hunter2@host/?insecure",
        ] {
            let what = parts_of(url).expect_err(url);
            assert!(what.contains("redis[s]://[") && !what.contains("hunter2"), "{url}: {what}");
        }
    }
}
