//! Stub to be split, one file a section.

use secrecy::SecretString;
use serde::Deserialize;

/// Where we listen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Address.
    pub host: String,
    /// Port; 0 takes any free one.
    pub port: u16,
    /// HTTP worker threads; 0: one a core.
    pub workers: usize,
    /// Seconds running requests get on SIGTERM.
    pub shutdown_grace_seconds: u64,
    /// A port of its own for metrics, health and admin; none: they live on `port`.
    pub management_port: Option<u16>,
}

/// Which store.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// None: `redis` for `serve`, `embedded` for `demo`.
    pub kind: Option<StoreKind>,
}

/// The two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Shared by all replicas.
    Redis,
    /// In memory: one process.
    Embedded,
}

/// How Redis is reached.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port[/db]`.
    pub url: SecretString,
    /// Connections for ticks, locks, stats, settings and flags.
    pub pool_size: u32,
    /// Milliseconds to connect.
    pub connect_timeout_ms: u64,
    /// Milliseconds a buyer's call waits for Redis, in all.
    pub command_timeout_ms: u64,
}

/// The queue's rules.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// How many may wait for one target.
    pub capacity: u64,
    /// People a tick (1..=10000).
    pub batch_size: u64,
    /// Milliseconds a tick (500..=60000).
    pub tick_ms: u64,
    /// Seconds without a poll after which a place is lost.
    pub heartbeat_timeout_seconds: u64,
    /// Silent people a tick evicts at most.
    pub max_evict_per_tick: u64,
    /// Seconds after which an unused target is forgotten.
    pub idle_ttl_seconds: u64,
    /// How many targets may have a queue at a time.
    pub max_active_targets: u64,
}

/// The pass.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// Signs and verifies.
    pub secret: Option<SecretString>,
    /// Verify too.
    pub also_accepted: Vec<SecretString>,
    /// Seconds a pass lives.
    pub ttl_seconds: u64,
    /// A pass buys once.
    pub single_use: bool,
    /// The pass also travels in a cookie.
    pub cookie: bool,
}

/// Limited drops.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitedDropConfig {
    /// False: the purchase route of limited drops and their queue are 404.
    pub enabled: bool,
}

/// The feature flag before any rule is set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlagsConfig {
    /// What `virtual-queue.enabled` is while nobody has set it.
    pub virtual_queue_enabled: bool,
}

/// The shop behind us.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// Milliseconds a purchase call may take.
    pub timeout_ms: u64,
}

impl UpstreamConfig {
    /// Milliseconds a claim holds without being settled: the longest call, and 5 s.
    pub fn lease_ms(&self) -> u64 {
        self.timeout_ms + 5000
    }
}

/// The built-in shop.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemoShopConfig {
    /// None: on for `demo`, off for `serve`.
    pub enabled: Option<bool>,
    /// SQLite file, shared by replicas; none: a temporary one.
    pub database: Option<std::path::PathBuf>,
    /// Pieces of every drop.
    pub stock: u64,
}

/// How many purchases at a time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSheddingConfig {
    /// Purchase calls under way at a time; beyond: 503.
    pub max_concurrent_requests: usize,
}

/// The admin API.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminConfig {
    /// None: the admin API does not exist.
    pub token: Option<SecretString>,
}

/// The log.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// `text` or `json`.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,virtual_queue=debug`.
    pub level: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors.
    Json,
}
