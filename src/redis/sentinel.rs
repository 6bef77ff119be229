//! Where Sentinels say the master is (`redis.mode = sentinel`).
//!
//! They are asked about once a second all the time, and more often while the master is away: after a failover the old
//! master comes back as a replica, or never went, and connections to it live on.

use std::{sync::Weak, time::Duration};

use ::redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, aio::MultiplexedConnection};
use tokio::time::{sleep, timeout};

use super::{breaker::State, failure::Failure, master::Master};
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
    master_name: String,
    /// Which one is asked, and a connection to it if there is one.
    current: usize,
    connection: Option<MultiplexedConnection>,
    /// For the log: a line when they stop answering and one when they answer again.
    silent: bool,
}

impl Sentinels {
    pub(super) fn of(config: &RedisConfig) -> Self {
        Self {
            addresses: config.nodes.clone(),
            master_name: config.sentinel_master.clone().unwrap_or_default(),
            current: 0,
            connection: None,
            silent: false,
        }
    }

    /// Keeps the master's link where they say, until the master is dropped.
    pub(super) async fn keep(mut self, master: Weak<Master>) {
        loop {
            let address = self.master_address().await;
            let Some(master) = master.upgrade() else { return };
            match address {
                Some(address) => self.found(&master, address).await,
                None if !self.silent => {
                    tracing::warn!("no sentinel tells where the master is; the last one known holds");
                    self.silent = true;
                }
                None => {}
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
            Ok(true) => tracing::info!(%address, "the sentinels name this master"),
            Ok(false) => {}
            Err(error) => tracing::error!(%address, %error, "the sentinels name a master that cannot be one"),
        }
    }

    /// What the first of them says that says anything; each is tried once.
    async fn master_address(&mut self) -> Option<NodeAddress> {
        for _ in 0..self.addresses.len() {
            match timeout(LIMIT, self.ask()).await {
                Ok(Ok(Some((host, port)))) => return Some(NodeAddress { host, port }),
                // It does not know the name, does not answer, or answers nonsense.
                Ok(Ok(None) | Err(_)) | Err(_) => self.next(),
            }
        }
        None
    }

    async fn ask(&mut self) -> Result<Option<(String, u16)>, Failure> {
        let of = |error| Failure::of(&error);
        let mut connection = match self.connection.clone() {
            Some(connection) => connection,
            None => {
                let NodeAddress { host, port } = self.addresses[self.current].clone();
                let info = ConnectionAddr::Tcp(host, port).into_connection_info().map_err(of)?;
                let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
                let client = Client::open(info).map_err(of)?;
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
