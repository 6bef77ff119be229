//! Configuration: what can be set, where it comes from, and whether it makes sense (DESIGN 9).
//!
//! `config/default.toml` documents every key and is the default; then a file; then `VQ_SECTION__KEY` variables.

mod sections;

pub use sections::*;

use serde::Deserialize;

/// The whole configuration, one field a section.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where we listen.
    pub server: ServerConfig,
    /// Which store.
    pub store: StoreConfig,
    /// How Redis is reached, and what happens without it.
    pub redis: RedisConfig,
    /// The queue's rules.
    pub queue: QueueConfig,
    /// The pass.
    pub token: TokenConfig,
    /// Limited drops.
    pub limited_drop: LimitedDropConfig,
    /// The feature flag before any rule is set.
    pub flags: FlagsConfig,
    /// The shop behind us.
    pub upstream: UpstreamConfig,
    /// The built-in shop.
    pub demo_shop: DemoShopConfig,
    /// How many purchases at a time.
    pub load_shedding: LoadSheddingConfig,
    /// The admin API.
    pub admin: AdminConfig,
    /// The log.
    pub log: LogConfig,
}
