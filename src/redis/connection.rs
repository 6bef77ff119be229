//! One master: how it is reached, and every call to it bounded and watched by the breaker.
//!
//! People's calls share one pipelined connection, the *hot* one, which is only ever made in the background, by the
//! probe; a pool carries the rest. bb8-redis never reports a broken connection, so the pool tests each
//! at check-out; and bb8 makes connections on the runtime of whoever asks, so all its calls run on ours.

use std::{
    future::Future,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError, aio::MultiplexedConnection,
};
use bb8_redis::{RedisConnectionManager, bb8};
use secrecy::ExposeSecret;
use tokio::{runtime::Handle, time::timeout};

use super::{
    breaker::{Breaker, State},
    failure::Failure,
    probe::Probe,
    scripts::{self, Script},
    tls::{self, BadTls},
};
use crate::{clock::StoreClock, config::RedisConfig, metrics::Metrics};

/// A pool of connections for what nobody waits for.
pub type Pool = bb8::Pool<RedisConnectionManager>;

/// `redis.url`, or a file that goes with it, is not usable. Never repeats the URL: there may be a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It is no Redis URL.
    #[error("redis.url: {0}")]
    Unreadable(String),
    /// A file for TLS.
    #[error(transparent)]
    Tls(#[from] BadTls),
}

/// The connection of people's calls. A new one has a new generation.
#[derive(Clone)]
struct Hot {
    connection: MultiplexedConnection,
    generation: u64,
}

/// One Redis master.
pub struct Master {
    client: Client,
    pool: Pool,
    hot: RwLock<Option<Hot>>,
    breaker: Arc<Breaker>,
    /// Outlives any one HTTP worker.
    runtime: Handle,
    connect_limit: Duration,
    call_limit: Duration,
    clock: StoreClock,
    metrics: Arc<Metrics>,
}

impl Master {
    /// Starts to look after the master at `config.url`, on the calling runtime. Redis may be away: it is given one
    /// short chance to answer, then connected to whenever it comes.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub async fn connect(config: &RedisConfig, clock: StoreClock, metrics: Arc<Metrics>) -> Result<Arc<Self>, BadUrl> {
        let bad = |error: RedisError| BadUrl::Unreadable(error.category().to_owned());
        let info = config.url.expose_secret().into_connection_info().map_err(bad)?;
        let info = tls::secured(info, &config.tls)?;
        // Many small requests on one connection: none may wait for the acknowledgement of another.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info: ConnectionInfo = info.set_tcp_settings(tcp);
        let connect_limit = Duration::from_millis(config.connect_timeout_ms);
        let pool = bb8::Pool::builder()
            .max_size(config.pool_size)
            .connection_timeout(connect_limit)
            .test_on_check_out(true)
            .build_unchecked(RedisConnectionManager::new(info.clone()).map_err(bad)?);
        let master = Arc::new(Self {
            client: Client::open(info).map_err(bad)?,
            pool,
            hot: RwLock::new(None),
            breaker: Arc::new(Breaker::new(clock.clone(), metrics.clone())),
            runtime: Handle::current(),
            connect_limit,
            call_limit: Duration::from_millis(config.command_timeout_ms),
            clock,
            metrics,
        });
        master.runtime.spawn(Probe::new(&master).run());
        if timeout(connect_limit, master.breaker.reached(State::Closed)).await.is_err() {
            tracing::warn!("redis is away at the start; it is connected to when it comes");
        }
        Ok(master)
    }

    /// The pool. Use it on the runtime that called [`Self::connect`]: bb8 makes connections where it is asked.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// For connections of one's own, such as a subscription.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The breaker.
    pub fn breaker(&self) -> &Arc<Breaker> {
        &self.breaker
    }

    /// The runtime that outlives any one HTTP worker.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// How long a call may take.
    pub fn call_limit(&self) -> Duration {
        self.call_limit
    }

    pub(super) fn connect_limit(&self) -> Duration {
        self.connect_limit
    }

    /// Runs a script on the hot connection. `people` share the call. Answers the reply, and when it was asked for on
    /// [`StoreClock::monotonic`].
    ///
    /// # Errors
    /// [`Failure`], of which the breaker has learnt.
    pub async fn run_hot<K: AsRef<str>>(
        &self,
        script: &Script,
        keys: &[K],
        args: &[String],
        people: usize,
    ) -> Result<(Vec<i64>, Duration), Failure> {
        self.breaker.check()?;
        let hot = self.hot.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Hot { mut connection, generation }) = hot else {
            return Err(Failure::Away("not connected".to_owned()));
        };
        let asked = self.clock.monotonic();
        let invocation = script.prepare(keys, args);
        let result = match timeout(self.call_limit, invocation.invoke_async(&mut connection)).await {
            Ok(Ok(reply)) => Ok((reply, asked)),
            Ok(Err(error)) => Err(Failure::of(&error)),
            Err(_) => Err(Failure::TimedOut),
        };
        self.metrics.script_ran(script.name(), people, self.clock.monotonic().saturating_sub(asked));
        result.inspect_err(|failure| {
            // The end of a connection that has been replaced since is no news.
            if generation == self.generation() {
                self.breaker.learn(failure);
            }
        })
    }

    /// Runs a script on a connection of the pool. Otherwise as [`Self::run_hot`].
    ///
    /// # Errors
    /// As [`Self::run_hot`].
    pub async fn run_pooled<K: AsRef<str>>(
        self: &Arc<Self>,
        script: &'static Script,
        keys: &[K],
        args: &[String],
    ) -> Result<(Vec<i64>, Duration), Failure> {
        let keys: Vec<String> = keys.iter().map(|key| key.as_ref().to_owned()).collect();
        let args = args.to_vec();
        let (clock, metrics) = (self.clock.clone(), self.metrics.clone());
        self.pooled(move |mut connection| async move {
            let asked = clock.monotonic();
            let reply: Vec<i64> = script.prepare(&keys, &args).invoke_async(&mut connection).await?;
            metrics.script_ran(script.name(), 1, clock.monotonic().saturating_sub(asked));
            Ok((reply, asked))
        })
        .await
    }

    /// Does something with a connection of the pool. It is given back at once and shared: calls on it are pipelined, so
    /// many targets do not wait for few connections, and waiting for one says nothing about Redis.
    ///
    /// # Errors
    /// As [`Self::run_hot`].
    pub async fn pooled<T, F, W>(self: &Arc<Self>, work: W) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RedisError>> + Send,
        W: FnOnce(MultiplexedConnection) -> F + Send + 'static,
    {
        self.breaker.check()?;
        let this = self.clone();
        let task = self.runtime.spawn(async move {
            let connection = match this.pool.get().await {
                Ok(connection) => connection.clone(),
                Err(bb8::RunError::TimedOut) => return Err(Failure::TimedOut),
                Err(bb8::RunError::User(error)) => {
                    let failure = Failure::of(&error);
                    this.breaker.learn(&failure);
                    return Err(failure);
                }
            };
            let called = timeout(this.call_limit, work(connection)).await;
            let result = called.map_or(Err(Failure::TimedOut), |done| done.map_err(|error| Failure::of(&error)));
            result.inspect_err(|failure| this.breaker.learn(failure))
        });
        task.await.unwrap_or_else(|_| Err(Failure::Away("we are stopping".to_owned())))
    }

    /// Whether the hot connection answers within `limit`.
    pub(super) async fn hot_answers(&self, limit: Duration) -> bool {
        let hot = self.hot.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Hot { mut connection, .. }) = hot else { return false };
        let ping = ::redis::cmd("PING");
        matches!(timeout(limit, ping.exec_async(&mut connection)).await, Ok(Ok(())))
    }

    /// Puts a new hot connection, with all scripts loaded, in the place of the old one.
    pub(super) async fn replace_hot(&self) -> Result<(), Failure> {
        let made = timeout(self.connect_limit, async {
            // Our own limits are shorter, and begin earlier.
            let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            let mut load = ::redis::pipe();
            for script in scripts::all() {
                load.cmd("SCRIPT").arg("LOAD").arg(script.source()).ignore();
            }
            load.exec_async(&mut connection).await?;
            Ok(connection)
        });
        let connection = made.await.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        let connection = connection.map_err(|error: RedisError| Failure::of(&error))?;
        let mut hot = self.hot.write().unwrap_or_else(PoisonError::into_inner);
        let generation = hot.as_ref().map_or(0, |old| old.generation + 1);
        *hot = Some(Hot { connection, generation });
        Ok(())
    }

    fn generation(&self) -> u64 {
        self.hot.read().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, |hot| hot.generation)
    }
}

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Master").field("state", &self.breaker.state()).finish_non_exhaustive()
    }
}
