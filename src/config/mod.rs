//! Configuration: what can be set, where it comes from, and whether it makes sense (`docs/design.md`).
//!
//! `config/default.toml` documents every key and is the default; then what the command changes (`demo` is embedded and
//! on); then a file; then `VQ_SECTION__KEY` variables. Every mistake is named with its key and where it came from: first
//! all that cannot be read, then all that make no sense. No secret's value is ever shown.
//!
//! Here: reading and judging. Not here: the process's environment (the caller hands it in), nor anything that must
//! ask the network, such as how Redis itself is configured.

mod error;
mod layers;
mod sections;
mod service_links;
mod value;

use std::path::Path;

pub use error::{ConfigErrors, Origin, Problem};
pub use layers::Setting;
pub use sections::*;

use self::{error::Problems, layers::Layers};

/// The default, as it is written down for people.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");

/// What the process is started for: `demo` and `serve` have different defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Redis, no built-in shop, the flag off.
    Serve,
    /// The embedded store, the built-in shop, the flag on.
    Demo,
}

impl Mode {
    /// What this command sets where neither a file nor a variable does.
    const fn defaults(self) -> &'static str {
        match self {
            Self::Serve => "store.kind = 'redis'\ndemo_shop.enabled = false",
            Self::Demo => "store.kind = 'embedded'\ndemo_shop.enabled = true\nflags.virtual_queue_enabled = true",
        }
    }

    /// The command's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Demo => "demo",
        }
    }
}

/// The whole configuration, one field a section.
#[derive(Debug, Clone)]
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
    /// How buyers are known.
    pub identity: IdentityConfig,
    /// Which pages may call from a browser.
    pub cors: CorsConfig,
    /// How often one address may enter.
    pub rate_limit: RateLimitConfig,
    /// Limited drops.
    pub limited_drop: LimitedDropConfig,
    /// The feature flag before any rule is set.
    pub flags: FlagsConfig,
    /// The gate before the purchase routes.
    pub gate: GateConfig,
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
    /// Every setting as it was read.
    settings: Vec<Setting>,
}

impl Config {
    /// Reads the default, what `mode` changes, `file` and the variables in `env`, in this order, and judges the whole.
    /// Variables that do not begin with `VQ_` are none of ours.
    ///
    /// # Errors
    /// [`ConfigErrors`]: every mistake found.
    pub fn load(
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        mode: Mode,
    ) -> Result<Self, ConfigErrors> {
        let mut layers = Layers::of_default();
        layers.add_toml(mode.defaults(), &Origin::Command(mode));
        if let Some(path) = file {
            layers.add_file(path);
        }
        layers.add_variables(env);
        let config = Self::read(layers)?;
        config.validate()?;
        Ok(config)
    }

    /// `config/default.toml` alone, as tests and users of the library start from: change the public fields, then
    /// [`Self::validate`]. What the commands differ in (`store.kind`, `demo_shop.enabled`) is not set.
    pub fn parse_default() -> Self {
        Self::read(Layers::of_default()).expect("a test reads config/default.toml")
    }

    /// Whether the settings make sense, each alone and together.
    ///
    /// # Errors
    /// [`ConfigErrors`]: every setting that does not.
    pub fn validate(&self) -> Result<(), ConfigErrors> {
        let mut problems = Problems::default();
        self.server.validate(&mut problems);
        self.redis.validate(&mut problems);
        self.queue.validate(&mut problems);
        self.token.validate(&mut problems);
        self.gate.validate(&mut problems);
        self.identity.validate(&mut problems);
        self.cors.validate(&mut problems);
        self.rate_limit.validate(&mut problems);
        self.upstream.validate(&mut problems);
        self.demo_shop.validate(&mut problems);
        self.load_shedding.validate(&mut problems);
        self.admin.validate(&mut problems);
        self.log.validate(&mut problems);
        self.validate_together(&mut problems);
        problems.into_result(|key| {
            // Of a list as a whole where a place in it is meant: `gate.routes[1].path`.
            let key = key.split('[').next().unwrap_or(key);
            self.settings.iter().find(|seen| seen.key == key).and_then(|seen| seen.origin.clone())
        })
    }

    /// The rules that tie one section to another.
    fn validate_together(&self, problems: &mut Problems) {
        if self.store.kind == Some(StoreKind::Redis) && self.token.secret.is_none() {
            problems.add(
                "token.secret",
                "must be set with the Redis store, the same on every replica: at least 32 bytes, for instance from \
                 `openssl rand -base64 48`",
            );
        }
        self.gate.validate_places(self.server.management_port.is_some(), problems);
        if self.gate.settle_token.is_some() && !self.token.single_use {
            problems.add("gate.settle_token", "has no use without token.single_use: there would be nothing to settle");
        }
        if let Some(replicas) = self.redis.replicas.filter(|replicas| *replicas > self.queue.batch_size) {
            problems.add(
                "redis.replicas",
                format!(
                    "must be at most {}, queue.batch_size, not {replicas}: each replica's share of a batch is at least \
                     one person",
                    self.queue.batch_size
                ),
            );
        }
        if self.upstream.url.is_some() && self.demo_shop.enabled == Some(true) {
            problems.add("upstream.url", "must not be set while demo_shop.enabled is true: set that to false");
        }
        let (idle_ms, lease_ms) = (self.queue.idle_ttl_seconds.saturating_mul(1000), self.upstream.lease_ms());
        let pass_ms = self.token.ttl_seconds.saturating_mul(1000).saturating_add(lease_ms);
        if idle_ms < pass_ms {
            problems.add(
                "queue.idle_ttl_seconds",
                format!(
                    "must be at least {}, not {}: token.ttl_seconds and the longest purchase (upstream.timeout_ms and \
                     5 s); a target forgotten earlier would forget which passes were used",
                    pass_ms.div_ceil(1000),
                    self.queue.idle_ttl_seconds
                ),
            );
        }
    }

    /// What makes sense and is unwise all the same.
    pub fn warnings(&self) -> Vec<String> {
        let limited = self.rate_limit.enter_per_second.is_some_and(|rate| rate > 0);
        let mut warnings = Vec::new();
        if self.identity.mode == IdentityMode::Visitor && !limited {
            warnings.push(
                "rate_limit.enter_per_second: visitors are not limited, and each new cookie is a new person".to_owned(),
            );
        }
        if self.identity.mode == IdentityMode::Visitor && limited && self.rate_limit.trusted_proxies.is_empty() {
            warnings.push(
                "rate_limit.trusted_proxies is empty: behind a proxy all visitors come from its one address and are \
                 limited together"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Every setting as it was read, with where it came from; secrets only as set or not.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    fn read(mut layers: Layers) -> Result<Self, ConfigErrors> {
        let config = Self {
            server: ServerConfig::read(&mut layers.section("server")),
            store: StoreConfig::read(&mut layers.section("store")),
            redis: RedisConfig::read(&mut layers.section("redis")),
            queue: QueueConfig::read(&mut layers.section("queue")),
            token: TokenConfig::read(&mut layers.section("token")),
            identity: {
                let identity = IdentityConfig::read(&mut layers.section("identity"));
                if identity.mode == IdentityMode::Visitor && !layers.says("rate_limit.enter_per_second") {
                    layers.add_toml_below(RateLimitConfig::FOR_VISITORS, &Origin::VisitorMode);
                }
                identity
            },
            cors: CorsConfig::read(&mut layers.section("cors")),
            rate_limit: RateLimitConfig::read(&mut layers.section("rate_limit")),
            limited_drop: LimitedDropConfig::read(&mut layers.section("limited_drop")),
            flags: FlagsConfig::read(&mut layers.section("flags")),
            gate: GateConfig::read(&mut layers.section("gate")),
            upstream: UpstreamConfig::read(&mut layers.section("upstream")),
            demo_shop: DemoShopConfig::read(&mut layers.section("demo_shop")),
            load_shedding: LoadSheddingConfig::read(&mut layers.section("load_shedding")),
            admin: AdminConfig::read(&mut layers.section("admin")),
            log: LogConfig::read(&mut layers.section("log")),
            settings: Vec::new(),
        };
        Ok(Self { settings: layers.finish()?, ..config })
    }
}

#[cfg(test)]
mod tests;
