//! Finds the master through Sentinels (`redis.mode = sentinel`).
//!
//! They are asked about once a second all the time, and more often while the master is unavailable: after a failover
//! the old master may come back as a replica, or may never have stopped, and connections to it stay open.

use std::{sync::Weak, time::Duration};

use ::redis::{AsyncConnectionConfig, Client, ConnectionInfo, aio::MultiplexedConnection};
use secrecy::ExposeSecret;
use tokio::time::{sleep, timeout};

use super::{
    breaker::State,
    connection::{BadUrl, connection_info, info_at},
    failure::Failure,
    master::Master,
};
use crate::config::{NodeAddress, RedisConfig};

/// How long a Sentinel may take to answer, connecting included.
const LIMIT: Duration = Duration::from_millis(500);
/// From one question to the next while the breaker is closed.
const PACE_CLOSED: Duration = Duration::from_secs(1);
/// How much later than this process another one may learn of a failover: the time until it asks, and the asking.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
/// From one question to the next while the breaker is not closed.
const PACE_TROUBLED: Duration = Duration::from_millis(250);

/// The Sentinels of one master.
pub(super) struct Sentinels {
    addresses: Vec<NodeAddress>,
    /// User, password and TLS. Its address is not used.
    info: ConnectionInfo,
    master_name: String,
    /// Which Sentinel is asked, and a connection to it if there is one.
    current: usize,
    connection: Option<MultiplexedConnection>,
    /// For the log: one line when they stop answering, and one when they answer again.
    silent: bool,
}

impl Sentinels {
    pub(super) fn of(config: &RedisConfig) -> Result<Self, BadUrl> {
        let url = config.sentinel_url.as_ref().map_or("redis://sentinels", |url| url.expose_secret());
        let info = connection_info("redis.sentinel_url", url, &config.tls)?;
        // Sentinels have no databases.
        let settings = info.redis_settings().clone().set_db(0);
        Ok(Self {
            addresses: config.nodes.clone(),
            info: info.set_redis_settings(settings),
            master_name: config.sentinel_master.clone().unwrap_or_default(),
            current: 0,
            connection: None,
            silent: false,
        })
    }

    /// Moves the master's link to the address that they report, until the master is dropped.
    pub(super) async fn keep(mut self, master: Weak<Master>) {
        loop {
            let address = self.master_address().await;
            let Some(master) = master.upgrade() else { return };
            match address {
                Ok(address) => self.found(&master, address).await,
                Err(cause) if !self.silent => {
                    tracing::warn!(cause, "no sentinel reports the master; the last known one stays in use");
                    self.silent = true;
                }
                Err(_) => {}
            }
            let breaker = master.breaker().clone();
            drop(master);
            if breaker.state() == State::Closed {
                // In both cases it is time to ask again.
                let _ = timeout(PACE_CLOSED, breaker.reached(State::Open)).await;
            } else {
                // This Sentinel may be cut off from the others and report an old master.
                self.next();
                sleep(PACE_TROUBLED).await;
            }
        }
    }

    async fn found(&mut self, master: &Master, address: NodeAddress) {
        if std::mem::take(&mut self.silent) {
            tracing::info!("the sentinels answer again");
        }
        match master.move_to(address.clone(), NOTICED_WITHIN).await {
            Ok(true) => tracing::info!(%address, "the sentinels report this master"),
            Ok(false) => {}
            Err(error) => tracing::error!(%address, %error, "the sentinels report an unusable master address"),
        }
    }

    /// The address from the first Sentinel that reports one; each is tried once. Error: the cause at the last one.
    async fn master_address(&mut self) -> Result<NodeAddress, String> {
        let mut cause = String::new();
        for _ in 0..self.addresses.len() {
            cause = match timeout(LIMIT, self.ask()).await {
                Ok(Ok(Some((host, port)))) => return Ok(NodeAddress { host, port }),
                Ok(Ok(None)) => "it knows no master of this name".to_owned(),
                Ok(Err(failure)) => failure.to_string(),
                Err(_) => Failure::TimedOut.to_string(),
            };
            cause = format!("{}: {cause}", self.addresses[self.current]);
            self.next();
        }
        Err(cause)
    }

    async fn ask(&mut self) -> Result<Option<(String, u16)>, Failure> {
        let of = |error| Failure::of(&error);
        let mut connection = match self.connection.clone() {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
                let client = Client::open(info_at(&self.info, &self.addresses[self.current])).map_err(of)?;
                let made = client.get_multiplexed_async_connection_with_config(&config).await.map_err(of)?;
                self.connection.insert(made).clone()
            }
        };
        let mut ask = ::redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master_name);
        ask.query_async(&mut connection).await.map_err(of)
    }

    fn next(&mut self) {
        self.connection = None;
        self.current = (self.current + 1) % self.addresses.len().max(1);
    }
}
