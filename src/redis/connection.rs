//! The connections to one server: a pool, and the *hot* one that people's calls share.
//!
//! The hot one is pipelined and only ever made in the background, by the probe. bb8-redis never reports a broken
//! connection, so the pool tests each at check-out; and bb8 makes connections on the runtime of whoever asks, so all its
//! calls run on ours.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError,
    aio::MultiplexedConnection,
};
use bb8_redis::{RedisConnectionManager, bb8};
use secrecy::ExposeSecret;
use tokio::{runtime::Handle, sync::Mutex, time::timeout};

use super::{
    failure::Failure,
    scripts,
    tls::{self, BadTls},
};
use crate::{
    clock::StoreClock,
    config::{NodeAddress, RedisConfig, RedisTls},
    metrics::Metrics,
};

/// So long a connection of the pool that has just answered is used without asking it again: a thousand pumps would else
/// queue up for a few connections, and the flag behind them.
const TRUSTED_FOR: Duration = Duration::from_millis(100);

/// A pool of connections for what nobody waits for.
pub type Pool = bb8::Pool<Manager>;

/// bb8-redis's connections, asked with a limit whether they live: bb8 keeps one that has not answered when its own limit
/// is over, and hands it out again.
#[derive(Debug, Clone)]
pub struct Manager {
    connections: RedisConnectionManager,
    answer_within: Duration,
}

impl bb8::ManageConnection for Manager {
    type Connection = MultiplexedConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Self::Connection, Self::Error> {
        self.connections.connect().await
    }

    async fn is_valid(&self, connection: &mut Self::Connection) -> Result<(), Self::Error> {
        let answered = timeout(self.answer_within, self.connections.is_valid(connection)).await;
        answered.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }

    fn has_broken(&self, connection: &mut Self::Connection) -> bool {
        self.connections.has_broken(connection)
    }
}

/// A URL, or a file that goes with it, is not usable. Never repeats the URL: there may be a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It is no Redis URL.
    #[error("{key}: {what}")]
    Unreadable {
        /// The setting.
        key: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A file for TLS.
    #[error(transparent)]
    Tls(#[from] BadTls),
}

impl BadUrl {
    fn of(key: &'static str, error: &RedisError) -> Self {
        Self::Unreadable { key, what: error.category().to_owned() }
    }
}

impl From<RedisError> for BadUrl {
    fn from(error: RedisError) -> Self {
        Self::of("redis.url", &error)
    }
}

/// How servers are connected to, and within which limits.
pub(super) struct Setup {
    /// User, password and the rest; the address is that of `redis.url`.
    info: ConnectionInfo,
    pool_size: u32,
    pub(super) connect_limit: Duration,
    pub(super) call_limit: Duration,
    /// Outlives any one HTTP worker.
    pub(super) runtime: Handle,
    pub(super) clock: StoreClock,
    pub(super) metrics: Arc<Metrics>,
}

impl Setup {
    /// As configured; everything runs on the calling runtime.
    pub(super) fn new(config: &RedisConfig, clock: StoreClock, metrics: Arc<Metrics>) -> Result<Self, BadUrl> {
        Ok(Self {
            info: connection_info("redis.url", config.url.expose_secret(), &config.tls)?,
            pool_size: config.pool_size,
            connect_limit: Duration::from_millis(config.connect_timeout_ms),
            call_limit: Duration::from_millis(config.command_timeout_ms),
            runtime: Handle::current(),
            clock,
            metrics,
        })
    }

    /// How to connect to the server at this address, or to the one in `redis.url`.
    fn info_at(&self, address: Option<&NodeAddress>) -> ConnectionInfo {
        address.map_or_else(|| self.info.clone(), |address| info_at(&self.info, address))
    }

    /// A client of the server at this address, or of the one in `redis.url`.
    pub(super) fn client(&self, address: Option<&NodeAddress>) -> Result<Client, RedisError> {
        Client::open(self.info_at(address))
    }

    /// A new connection of one's own; the call's limit is the caller's.
    pub(super) async fn connect(&self, client: &Client) -> Result<MultiplexedConnection, Failure> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let made = timeout(self.connect_limit, client.get_multiplexed_async_connection_with_config(&config)).await;
        made.map_err(|_| Failure::TimedOut)?.map_err(|error| Failure::of(&error))
    }
}

/// The same user, password and TLS at another address.
pub(super) fn info_at(info: &ConnectionInfo, address: &NodeAddress) -> ConnectionInfo {
    let NodeAddress { host, port } = address.clone();
    let there = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(there)
}

/// What the URL under this key says.
pub(super) fn connection_info(key: &'static str, url: &str, files: &RedisTls) -> Result<ConnectionInfo, BadUrl> {
    let info = url.into_connection_info().map_err(|error| BadUrl::of(key, &error))?;
    let info = tls::secured(key, info, files)?;
    // Many small requests on one connection: none may wait for the acknowledgement of another.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Ok(info.set_tcp_settings(tcp))
}

/// The connection of people's calls. A new one has a new generation.
#[derive(Clone)]
pub(super) struct Hot {
    pub(super) connection: MultiplexedConnection,
    pub(super) generation: u64,
}

/// The way to one server. Where another server takes its place, so does another link, and after an outage: nothing of
/// the old one is used.
pub(super) struct Link {
    address: Option<NodeAddress>,
    client: Client,
    manager: Manager,
    pool: Pool,
    /// A connection of the pool, and when it answered, on [`StoreClock::monotonic`].
    lately: Mutex<Option<(MultiplexedConnection, Duration)>>,
    hot: RwLock<Option<Hot>>,
}

impl Link {
    /// A link that connects to the server at this address, or to the one in `redis.url`, when it is used.
    pub(super) fn new(setup: &Setup, address: Option<NodeAddress>) -> Result<Self, RedisError> {
        let info = setup.info_at(address.as_ref());
        // As long as a call may take, and so that there is time to make another one.
        let answer_within = setup.call_limit.min(setup.connect_limit * 3 / 4);
        let manager = Manager { connections: RedisConnectionManager::new(info.clone())?, answer_within };
        Ok(Self::over(setup, address, Client::open(info)?, manager))
    }

    /// A link to the same address that has no connections yet: its connections look the name up again.
    pub(super) fn anew(&self, setup: &Setup) -> Self {
        Self::over(setup, self.address.clone(), self.client.clone(), self.manager.clone())
    }

    fn over(setup: &Setup, address: Option<NodeAddress>, client: Client, manager: Manager) -> Self {
        let pool = bb8::Pool::builder()
            .max_size(setup.pool_size)
            .connection_timeout(setup.connect_limit)
            .test_on_check_out(true)
            .build_unchecked(manager.clone());
        Self { address, client, manager, pool, lately: Mutex::new(None), hot: RwLock::new(None) }
    }

    /// Where it leads; none: to the server in `redis.url`.
    pub(super) fn address(&self) -> Option<&NodeAddress> {
        self.address.as_ref()
    }

    /// For connections of one's own.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Use it on the runtime of the setup: bb8 makes connections where it is asked.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A connection of the pool that answers, or did a moment ago. It is shared: calls on it are pipelined. On the runtime
    /// of the setup.
    pub(super) async fn answering(&self, setup: &Setup) -> Result<MultiplexedConnection, Failure> {
        let found = timeout(setup.connect_limit, async {
            let mut lately = self.lately.lock().await;
            if let Some((connection, at)) = &*lately
                && setup.clock.monotonic() < *at + TRUSTED_FOR
            {
                return Ok(connection.clone());
            }
            let connection = self.pool.get().await?.clone();
            // From its answer on, which may have come from afar.
            *lately = Some((connection.clone(), setup.clock.monotonic()));
            Ok(connection)
        });
        match found.await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(bb8::RunError::User(error))) => Err(Failure::of(&error)),
            Ok(Err(bb8::RunError::TimedOut)) | Err(_) => Err(Failure::TimedOut),
        }
    }

    /// A call on the connection that answered lately has failed.
    pub(super) fn doubt_lately(&self) {
        // Held by somebody else: then another is being fetched already.
        if let Ok(mut lately) = self.lately.try_lock() {
            *lately = None;
        }
    }

    /// The hot connection, if there is one.
    pub(super) fn hot(&self) -> Option<Hot> {
        self.hot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long the hot connection takes to answer, if it does within `limit`.
    pub(super) async fn hot_answers(&self, limit: Duration, clock: &StoreClock) -> Option<Duration> {
        let Hot { mut connection, .. } = self.hot()?;
        let asked = clock.monotonic();
        let answered = timeout(limit, ::redis::cmd("PING").exec_async(&mut connection)).await;
        answered.is_ok_and(|pong| pong.is_ok()).then(|| clock.monotonic().saturating_sub(asked))
    }

    /// Puts a new hot connection, with all scripts loaded, in the place of the old one.
    pub(super) async fn replace_hot(&self, setup: &Setup) -> Result<(), Failure> {
        let made = timeout(setup.connect_limit, async {
            let mut connection = setup.connect(&self.client).await?;
            let mut load = ::redis::pipe();
            for script in scripts::all() {
                load.cmd("SCRIPT").arg("LOAD").arg(script.source()).ignore();
            }
            load.exec_async(&mut connection).await.map_err(|error| Failure::of(&error))?;
            Ok(connection)
        });
        let connection = made.await.unwrap_or(Err(Failure::TimedOut))?;
        let mut hot = self.hot.write().unwrap_or_else(PoisonError::into_inner);
        let generation = hot.as_ref().map_or(0, |old| old.generation + 1);
        *hot = Some(Hot { connection, generation });
        Ok(())
    }
}
