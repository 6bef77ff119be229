//! Where Sentinels say the master is (`redis.mode = sentinel`).
//!
//! They are asked about once a second all the time, and more often while the master is away: after a failover the old
//! master comes back as a replica, or never went, and connections to it live on.

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
/// How often they are asked while all is well.
const PACE_CLOSED: Duration = Duration::from_secs(1);
/// So much later than this one another process may learn of a failover: its turn to ask, and the asking.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
/// And while not.
const PACE_TROUBLED: Duration = Duration::from_millis(250);

/// The Sentinels of one master.
pub(super) struct Sentinels {
    addresses: Vec<NodeAddress>,
    /// User, password and TLS; the address is none of theirs.
    info: ConnectionInfo,
    master_name: String,
    /// Which one is asked, and a connection to it if there is one.
    current: usize,
    connection: Option<MultiplexedConnection>,
    /// For the log: a line when they stop answering and one when they answer again.
    silent: bool,
}

impl Sentinels {
    pub(super) fn of(config: &RedisConfig) -> Result<Self, BadUrl> {
        let url = config.sentinel_url.as_ref().map_or("redis://sentinels", |url| url.expose_secret());
        let info = connection_info("redis.sentinel_url", url, &config.tls)?;
        // They have no databases to choose from.
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

    /// Keeps the master's link where they say, until the master is dropped.
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
                // Either way it is time to ask again.
                let _ = timeout(PACE_CLOSED, breaker.reached(State::Open)).await;
            } else {
                // The one asked may be cut off from the others and know no better.
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

    /// What the first of them says that says anything; each is tried once. Else what the last one tried had.
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
