//! Asks Redis all the time whether it takes writes. It alone closes the breaker (DESIGN 5 "Failing well").

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, PushKind, RedisError,
    aio::{MultiplexedConnection, SendError},
};
use tokio::time::timeout;

use super::{
    breaker::{Breaker, State},
    connection::Master,
    failure::Failure,
    keys,
};

/// How long a probe's write may take.
const LIMIT: Duration = Duration::from_millis(500);
/// From one probe to the next while all is well.
const PACE_CLOSED: Duration = Duration::from_secs(1);
/// And while not.
const PACE_TROUBLED: Duration = Duration::from_millis(250);
/// How long the key that a probe writes stays.
const KEPT_MS: u64 = 10_000;

/// The probe of a master, on a connection of its own.
pub(super) struct Probe {
    master: Weak<Master>,
    breaker: Arc<Breaker>,
    key: String,
    connection: Option<MultiplexedConnection>,
}

impl Probe {
    pub(super) fn new(master: &Arc<Master>) -> Self {
        Self {
            master: Arc::downgrade(master),
            breaker: master.breaker().clone(),
            key: keys::probe(&format!("{:016x}", rand::random::<u64>())),
            connection: None,
        }
    }

    /// Probes until the master is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let Some(master) = self.master.upgrade() else { return };
            self.round(&master).await;
            drop(master);
            let pace = if self.breaker.state() == State::Closed { PACE_CLOSED } else { PACE_TROUBLED };
            self.breaker.probe_wanted(pace).await;
        }
    }

    async fn round(&mut self, master: &Master) {
        let alarms_before = self.breaker.alarms();
        let was_open = self.breaker.state() == State::Open;
        let (written, hot_answers) = tokio::join!(self.write(master), master.hot_answers(LIMIT));
        if let Err(failure) = written {
            // A connection that was slow once may be one that leads nowhere.
            self.connection = None;
            self.breaker.open(&cause(&failure));
            return;
        }
        // One that was in use when the breaker opened may still have answers to come that nobody waits for.
        if was_open || !hot_answers {
            if !was_open {
                self.breaker.note_lost();
            }
            if let Err(failure) = master.replace_hot().await {
                self.breaker.open(&cause(&failure));
                return;
            }
        }
        self.breaker.close(alarms_before);
    }

    async fn write(&mut self, master: &Master) -> Result<(), Failure> {
        let mut connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => {
                let made = timeout(master.connect_limit(), self.connect(master.client())).await;
                let made = made.map_err(|_| Failure::TimedOut)?.map_err(|error| Failure::of(&error))?;
                self.connection.insert(made).clone()
            }
        };
        let mut set = ::redis::cmd("SET");
        set.arg(&self.key).arg(1).arg("PX").arg(KEPT_MS);
        match timeout(LIMIT, set.exec_async(&mut connection)).await {
            Ok(result) => result.map_err(|error| Failure::of(&error)),
            Err(_) => Err(Failure::TimedOut),
        }
    }

    /// RESP3, because there the client tells at once when the connection is cut: so a restart of Redis is noticed
    /// even if nobody calls.
    async fn connect(&self, client: &Client) -> Result<MultiplexedConnection, RedisError> {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let breaker = self.breaker.clone();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_push_sender(move |push: PushInfo| -> Result<(), SendError> {
                if push.kind == PushKind::Disconnection {
                    breaker.open("the connection was cut");
                }
                Ok(())
            });
        client.get_multiplexed_async_connection_with_config(&config).await
    }
}

fn cause(failure: &Failure) -> String {
    match failure {
        Failure::Away(cause) | Failure::Broken(cause) => cause.clone(),
        Failure::TimedOut => "no answer to a probe".to_owned(),
    }
}
