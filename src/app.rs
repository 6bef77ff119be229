//! The composition root: the one place where everything is put together.
//!
//! Here: which store, who shares what, in which order things start and end. Not here: any rule.

mod demo_shop;
mod descriptors;
mod key_watch;
mod listen;
mod signals;
mod watched;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use actix::{Actor, Addr};
use actix_rt::{Arbiter, task::JoinHandle};
use actix_web::web::Data;
use futures_util::future::join_all;

use self::{
    key_watch::KeyWatch,
    listen::{Listening, Shop, listen},
    signals::Signals,
};
use crate::{
    actors::{MetricsActor, PumpParts, PumpWatch, StopPumps},
    clock::StoreClock,
    config::{Config, StoreKind},
    domain::QueueTargetType,
    flags::{AUDIT_KEPT, EmbeddedFlagSource, FeatureFlags, FlagSource, RedisFlagSource},
    gate::{EntryTokenGate, GatedRoutes},
    http::{EnterLimit, HttpOptions, HttpState, Lifecycle},
    identity::Identify,
    metrics::Metrics,
    proxy::ProxySettings,
    redis::Masters,
    service::{ServiceParts, VirtualQueueService},
    store::{QueueRules, Replica, StoreHealth, VirtualQueueStore, embedded::EmbeddedStore, redis::RedisStore},
    token::Keyring,
};

/// Why the start failed. Names no secret.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// As configured.
        address: String,
        /// What the system says.
        cause: io::Error,
    },
    /// The demo shop's database cannot be opened.
    #[cfg(feature = "demo-shop")]
    #[error("demo_shop.database: {0}")]
    Shop(#[from] crate::demo_shop::DatabaseError),
    /// The demo shop was left out of this build.
    #[cfg(not(feature = "demo-shop"))]
    #[error(
        "demo_shop.enabled: this build has no demo shop; build it with the feature demo-shop, or set this to false"
    )]
    NoDemoShop,
    /// `redis.url`, or a file that goes with it, is not usable.
    #[error(transparent)]
    Redis(#[from] crate::redis::connection::BadUrl),
    /// A secret is too short.
    #[error("token.secret: {0}")]
    Secret(#[from] crate::token::WeakSecret),
    /// The key that tokens are checked with is not usable.
    #[error(transparent)]
    Identity(#[from] crate::identity::BadKey),
}

/// A running waiting room. Ends with [`Self::run_until_signal`], or is abandoned when dropped.
pub struct App {
    addresses: Addresses,
    lifecycle: Arc<Lifecycle>,
    drain: Duration,
    grace: Duration,
    gate: EntryTokenGate,
    servers: Vec<Listening>,
    background: Background,
    replica: Replica,
    store: Arc<dyn VirtualQueueStore>,
    pumps: Addr<PumpWatch>,
    pump_thread: Arbiter,
    service: Arc<VirtualQueueService>,
}

/// The tasks that run beside the requests. Dropped, they end.
#[derive(Default)]
struct Background(Vec<JoinHandle<()>>);

impl Background {
    fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.0.push(actix_rt::spawn(task));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Everything that depends on which store it is.
struct Stores {
    queue: Arc<dyn VirtualQueueStore>,
    flags: Arc<dyn FlagSource>,
    /// Where the store is on Redis.
    masters: Option<Arc<Masters>>,
}

/// Where a waiting room listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// For buyers: every address of `server.host`, at least one.
    pub public: Vec<SocketAddr>,
    /// For operators and their machines; none where `server.management_port` is not set: they come to the public ones.
    pub management: Vec<SocketAddr>,
}

/// Starts on a system of its own, tells `started` where it listens, and serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`StartError`], or what `started` says.
pub fn run(config: &Config, started: impl FnOnce(&Addresses) -> io::Result<()>) -> io::Result<()> {
    actix_rt::System::new().block_on(async {
        // Who reads where it listens may end it at once.
        let signals = Signals::listen()?;
        let app = App::start(config).await.map_err(io::Error::other)?;
        started(app.addresses())?;
        app.run_until(signals).await
    })
}

/// Tries what can be tried of this configuration without serving. Gives what works but is unwise: how its Redis is set
/// up, or that it could not be asked.
///
/// # Errors
/// [`StartError`], as [`App::start`] would fail.
pub fn check(config: &Config) -> Result<Vec<String>, StartError> {
    // What signs makes no difference to whether it works.
    Identify::from_config(&config.identity, StoreClock::system(), Arc::new(Keyring::random()))?;
    let mut warnings = config.warnings();
    if config.store.kind == Some(StoreKind::Embedded) {
        return Ok(warnings);
    }
    let (rules, clock, metrics) = (QueueRules::from_config(config), StoreClock::system(), Arc::new(Metrics::new()));
    actix_rt::System::new().block_on(async {
        let store = RedisStore::connect(&config.redis, rules, clock, metrics).await?;
        if store.is_degraded() {
            warnings.push(format!("redis at {} is unavailable", config.redis.address()));
        } else {
            warnings.extend(store.server_warnings().await);
        }
        Ok(warnings)
    })
}

impl App {
    /// Starts everything; when this returns, requests are welcome. Call it inside an actix system, which must outlive
    /// the app: the store's calls run on it. Redis may be away.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let (clock, metrics) = (StoreClock::system(), Arc::new(Metrics::new()));
        let keyring = Arc::new(keyring(config)?);
        let keys = keyring.fingerprints();
        tracing::info!(fingerprint = %keys.current, "passes are signed with the secret of this fingerprint");
        metrics.token_keys(&keys);
        let identity = Identify::from_config(&config.identity, clock.clone(), keyring.clone())?;
        let stores = stores(config, &clock, &metrics).await?;
        let flags = FeatureFlags::new(stores.flags, config.flags.virtual_queue_enabled, config.redis.on_failure);
        let flags = Arc::new(flags);
        flags.first_read().await;
        let mut background = Background::default();
        background.spawn({
            let flags = flags.clone();
            async move { flags.run().await }
        });
        background.spawn({
            let identity = identity.clone();
            async move { identity.keep_keys().await }
        });

        let parts = ServiceParts {
            store: stores.queue.clone(),
            flags: flags.clone(),
            issuer: keyring.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
        };
        let service = Arc::new(VirtualQueueService::new(parts, config));
        background.spawn({
            let service = service.clone();
            async move { service.keep_handing_over().await }
        });
        let pump_thread = Arbiter::new();
        let pumps = start_pumps(config, &pump_thread, &stores.queue, &clock, &metrics, &service);

        let (store, of_watch) = (stores.queue.clone(), metrics.clone());
        let gate = gate(config, keyring, flags.clone(), &clock, &metrics, stores.queue).identity(identity.clone());
        let shop = match (&config.upstream.url, config.demo_shop.enabled) {
            (Some(url), _) => Shop::Upstream(ProxySettings::new(url, &config.upstream, config.token.cookie)),
            (None, Some(true)) => demo_shop::shop(config, stores.masters, &clock)?,
            (None, Some(false) | None) => Shop::None,
        };
        let lifecycle = Arc::new(Lifecycle::new());
        let options = HttpOptions::from_config(config);
        let state = Data::new(HttpState {
            service: service.clone(),
            gate: gate.clone(),
            flags,
            identity,
            enter_limit: EnterLimit::from_config(&config.rate_limit, &clock),
            metrics,
            clock,
            lifecycle: lifecycle.clone(),
            options,
        });
        let (addresses, servers) = listen(config, &state, &gate, &shop)?;
        let key_watch = KeyWatch::new(key_watch::name(addresses.public[0]), keys, of_watch);
        let replica = key_watch.me().clone();
        background.spawn(key_watch.run(store.clone()));
        lifecycle.serving();
        let drain = Duration::from_secs(config.server.drain_seconds);
        Ok(Self {
            addresses,
            lifecycle,
            drain,
            grace: Duration::from_secs(config.server.shutdown_grace_seconds),
            gate,
            servers,
            background,
            replica,
            store,
            pumps,
            pump_thread,
            service,
        })
    }

    /// Where it is reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until SIGTERM or SIGINT, then ends in order: not ready any more for `server.drain_seconds` (not on SIGINT),
    /// no new connections, running requests get `server.shutdown_grace_seconds` in all, then the pumps stop (others take
    /// over), then the rest. Another signal ends the waiting: what is under way then is cut off, as at the end of its time.
    ///
    /// # Errors
    /// When the signals cannot be listened for.
    pub async fn run_until_signal(self) -> io::Result<()> {
        let signals = Signals::listen()?;
        self.run_until(signals).await
    }

    async fn run_until(self, mut signals: Signals) -> io::Result<()> {
        let signal = signals.next().await;
        tracing::info!(signal, "shutting down: waiting for running requests");
        self.lifecycle.draining();
        let drain = if signal == "SIGTERM" { self.drain } else { Duration::ZERO };
        let in_time = async {
            tokio::time::sleep(drain).await;
            let all = join_all(self.servers.iter().map(|server| server.end(&self.gate)));
            if tokio::time::timeout(self.grace, all).await.is_err() {
                tracing::warn!("shutdown timeout: running requests are cut off");
            }
        };
        tokio::select! {
            () = in_time => {}
            signal = signals.next() => tracing::info!(signal, "second signal: running requests are cut off"),
        }
        join_all(self.servers.into_iter().map(Listening::close)).await;
        let _ = self.pumps.send(StopPumps).await;
        self.pump_thread.stop();
        let _ = self.pump_thread.join();
        drop(self.background);
        // What the loop has not handed over yet.
        self.service.hand_over().await;
        // Where the store is away, it is forgotten all the same, a little later.
        let _ = self.store.withdraw(&self.replica).await;
        Ok(())
    }
}

/// The secrets that sign and verify passes. Only with the embedded store may there be none: a validated configuration
/// for Redis has one.
fn keyring(config: &Config) -> Result<Keyring, StartError> {
    match &config.token.secret {
        Some(secret) => Ok(Keyring::new(secret, &config.token.also_accepted)?),
        None => {
            tracing::warn!("no token.secret: passes are signed with one made for this run, and end with it");
            Ok(Keyring::random())
        }
    }
}

async fn stores(config: &Config, clock: &StoreClock, metrics: &Arc<Metrics>) -> Result<Stores, StartError> {
    let rules = QueueRules::from_config(config);
    match config.store.kind {
        Some(StoreKind::Embedded) => Ok(Stores {
            queue: EmbeddedStore::new(rules, clock.clone(), metrics.clone()),
            flags: Arc::new(EmbeddedFlagSource::new(clock.clone(), AUDIT_KEPT)),
            masters: None,
        }),
        Some(StoreKind::Redis) | None => {
            let store = RedisStore::connect(&config.redis, rules, clock.clone(), metrics.clone()).await?;
            if !store.is_degraded() {
                for warning in store.server_warnings().await {
                    tracing::warn!("{warning}");
                }
            }
            Ok(Stores {
                flags: Arc::new(RedisFlagSource::new(store.masters().clone(), AUDIT_KEPT).ids(config.identity.ids)),
                masters: Some(store.masters().clone()),
                queue: store,
            })
        }
    }
}

fn start_pumps(
    config: &Config,
    thread: &Arbiter,
    store: &Arc<dyn VirtualQueueStore>,
    clock: &StoreClock,
    metrics: &Arc<Metrics>,
    service: &Arc<VirtualQueueService>,
) -> Addr<PumpWatch> {
    let reports = MetricsActor::start_in_arbiter(&thread.handle(), {
        let metrics = metrics.clone();
        |_| MetricsActor::new(metrics)
    });
    let parts = PumpParts {
        store: store.clone(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        // Different in every process: 128 random bits.
        owner: format!("{:032x}", rand::random::<u128>()).into(),
        tick: Duration::from_millis(config.queue.tick_ms),
        reports,
    };
    let active = service.active_targets().clone();
    PumpWatch::start_in_arbiter(&thread.handle(), |_| PumpWatch::begin(parts, active))
}

fn gate(
    config: &Config,
    keyring: Arc<Keyring>,
    flags: Arc<FeatureFlags>,
    clock: &StoreClock,
    metrics: &Arc<Metrics>,
    store: Arc<dyn VirtualQueueStore>,
) -> EntryTokenGate {
    let gate = EntryTokenGate::new(keyring, flags, clock.clone())
        .cookie(config.token.cookie)
        .keep_headers(config.upstream.keep_headers.clone())
        .metrics(metrics.clone())
        .lease(Duration::from_millis(config.upstream.lease_ms()))
        .passes_live(Duration::from_secs(config.token.ttl_seconds))
        .shed_beyond(config.load_shedding.max_concurrent_requests)
        .routes(GatedRoutes::new(config.gate.routes.clone()));
    // Where limited drops do not exist, neither does their purchase: 404, not 403.
    let gate = if config.limited_drop.enabled { gate } else { gate.without(QueueTargetType::LimitedDrop) };
    if config.token.single_use { gate.single_use(store) } else { gate }
}
