//! The connections to one server: a pool, and the *hot* one that buyers' calls share.
//!
//! The hot one is pipelined and only made in the background. bb8-redis never reports a broken connection, so the pool
//! tests each at check-out. bb8 makes connections on the caller's runtime, so all its calls run on the runtime of
//! `Setup`.

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

/// A pooled connection that answered less than this ago is used without a test. Else a thousand pumps would queue for a
/// few connections, and the flag behind them.
const TRUSTED_FOR: Duration = Duration::from_millis(100);

/// A pool of connections for calls that no buyer waits for.
pub type Pool = bb8::Pool<Manager>;

/// bb8-redis's connections, with a time limit for their test. bb8 keeps a connection that has not answered within bb8's
/// own limit, and hands it out again.
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

/// A URL, or a file that belongs to it, is not usable. The message never repeats the URL: it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It is not a Redis URL.
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

/// How to connect to servers, and within which limits.
pub(super) struct Setup {
    /// User, password and the rest; the address is that of `redis.url`.
    info: ConnectionInfo,
    pool_size: u32,
    pub(super) connect_limit: Duration,
    pub(super) call_limit: Duration,
    /// Outlives each HTTP worker.
    pub(super) runtime: Handle,
    pub(super) clock: StoreClock,
    pub(super) metrics: Arc<Metrics>,
}

impl Setup {
    /// From the configuration. Everything runs on the caller's runtime.
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

    /// Makes a new connection that is not shared. The caller must limit its calls.
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

/// Reads the URL of the setting `key`.
pub(super) fn connection_info(key: &'static str, url: &str, files: &RedisTls) -> Result<ConnectionInfo, BadUrl> {
    let info = url.into_connection_info().map_err(|error| BadUrl::of(key, &error))?;
    let info = tls::secured(key, info, files)?;
    // Many small requests share a connection: none may wait for the TCP acknowledgement of another.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Ok(info.set_tcp_settings(tcp))
}

/// The connection for buyers' calls. A new one has a new generation.
#[derive(Clone)]
pub(super) struct Hot {
    pub(super) connection: MultiplexedConnection,
    pub(super) generation: u64,
}

/// The connections to one server. When another server takes its place, and after an outage, a new link replaces it:
/// nothing of the old one is used.
pub(super) struct Link {
    address: Option<NodeAddress>,
    client: Client,
    manager: Manager,
    pool: Pool,
    /// The shared connection of the pool, and when it answered, on [`StoreClock::monotonic`].
    lately: Mutex<Option<(MultiplexedConnection, Duration)>>,
    hot: RwLock<Option<Hot>>,
}

impl Link {
    /// A link to the server at this address, or to the one in `redis.url`. It connects when it is used.
    pub(super) fn new(setup: &Setup, address: Option<NodeAddress>) -> Result<Self, RedisError> {
        let info = setup.info_at(address.as_ref());
        // At most the limit of a call, and short enough that there is time to make another connection.
        let answer_within = setup.call_limit.min(setup.connect_limit * 3 / 4);
        let manager = Manager { connections: RedisConnectionManager::new(info.clone())?, answer_within };
        Ok(Self::over(setup, address, Client::open(info)?, manager))
    }

    /// A link to the same address that has no connections yet: its connections resolve the name again.
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

    /// The server's address. None: the server in `redis.url`.
    pub(super) fn address(&self) -> Option<&NodeAddress> {
        self.address.as_ref()
    }

    /// For connections that are not shared.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Use it on the runtime of the setup: bb8 makes connections on the caller's runtime.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A connection of the pool that answers, or answered a moment ago. It is shared: calls on it are pipelined. Call
    /// this on the runtime of the setup.
    pub(super) async fn answering(&self, setup: &Setup) -> Result<MultiplexedConnection, Failure> {
        let found = timeout(setup.connect_limit, async {
            let mut lately = self.lately.lock().await;
            if let Some((connection, at)) = &*lately
                && setup.clock.monotonic() < *at + TRUSTED_FOR
            {
                return Ok(connection.clone());
            }
            let connection = self.pool.get().await?.clone();
            // From its answer on, because the round trip may be long.
            *lately = Some((connection.clone(), setup.clock.monotonic()));
            Ok(connection)
        });
        match found.await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(bb8::RunError::User(error))) => Err(Failure::of(&error)),
            Ok(Err(bb8::RunError::TimedOut)) | Err(_) => Err(Failure::TimedOut),
        }
    }

    /// A call on the shared connection failed: the next call tests one first.
    pub(super) fn doubt_lately(&self) {
        // If the lock is held, another connection is being fetched already.
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

    /// Replaces the hot connection with a new one that has all scripts loaded.
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
