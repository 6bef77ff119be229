//! Checks all the time whether Redis takes writes. Only the probe closes the circuit breaker (`docs/design.md`). Each
//! master starts its own probe, which has only a weak reference to it, so that the probe ends with its master.
//!
//! While the breaker is open, no old connection is used (ADR 0020): the probe writes over a new link, which resolves
//! the server's name again. When that server takes the write, all callers get this link.

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
    connection::Link,
    failure::Failure,
    keys,
    master::Master,
    slots::SlotRanges,
};

/// How long a probe's write may take.
const LIMIT: Duration = Duration::from_millis(500);
/// From one probe to the next while the breaker is closed.
const PACE_CLOSED: Duration = Duration::from_secs(1);
/// The same while it is not closed.
const PACE_TROUBLED: Duration = Duration::from_millis(250);
/// How long the key that a probe writes lives.
const KEPT_MS: u64 = 10_000;

/// The cause if Redis answers, but too slowly.
const TOO_SLOW: &str = "it answers, but not within redis.command_timeout_ms";

/// How many slots a probe tries if they are moving to another master.
const TRIES: usize = 3;

/// The probe of a master, on its own connection.
pub(super) struct Probe {
    master: Weak<Master>,
    breaker: Arc<Breaker>,
    instance: String,
    connection: Option<(Arc<Link>, MultiplexedConnection)>,
    /// While the breaker is open: the link on which it opened, and the link to replace it.
    next: Option<(Arc<Link>, Arc<Link>)>,
    /// In a Cluster: the hash tag that puts the key into a slot of this master, while it owns the slot.
    tag: Option<String>,
}

impl Probe {
    pub(super) fn new(master: &Arc<Master>) -> Self {
        Self {
            master: Arc::downgrade(master),
            breaker: master.breaker().clone(),
            instance: format!("{:016x}", rand::random::<u64>()),
            connection: None,
            next: None,
            tag: None,
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

    async fn round(&mut self, master: &Arc<Master>) {
        let alarms_before = self.breaker.alarms();
        // No link: the master's address is not known yet, and the breaker was never closed.
        let Ok(current) = master.link() else { return };
        let was_open = self.breaker.state() == State::Open;
        let link = if was_open { self.next_link(master, &current) } else { current.clone() };
        let (written, hot_answers) =
            tokio::join!(self.write(master, &link), link.hot_answers(LIMIT, &master.setup().clock));
        let took = match written {
            Ok(took) => took,
            // It answers, but owns no slot that was tried: this does not show whether it takes writes.
            Err(Failure::Moving(_)) if matches!(master.owned(), SlotRanges::Slots(_)) => return,
            Err(Failure::Moving(_)) => return self.breaker.open("this redis is a node of a cluster: set redis.mode"),
            Err(_) if !master.is_current(&current) => return,
            Err(failure) => {
                // A connection that was slow once may be dead.
                self.connection = None;
                tracing::debug!(%failure, "a probe failed");
                self.breaker.open(&cause(&failure));
                return;
            }
        };
        // At this speed buyers' calls would time out: no reason to open the breaker, and none to close it. While it is
        // open, only new connections show whether Redis is available.
        let call_limit = master.setup().call_limit;
        if took > call_limit || (!was_open && hot_answers.is_some_and(|took| took > call_limit)) {
            if was_open {
                self.connection = None;
                self.breaker.open(TOO_SLOW);
            }
            return;
        }
        if !self.breaker.may_close() {
            return;
        }
        if was_open || hot_answers.is_none() {
            if !was_open {
                self.breaker.note_lost();
            }
            if let Err(failure) = link.replace_hot(master.setup()).await {
                tracing::debug!(%failure, "people's calls could not be given a connection");
                self.breaker.open(&cause(&failure));
                return;
            }
            if was_open && link.hot_answers(call_limit, &master.setup().clock).await.is_none() {
                self.breaker.open(TOO_SLOW);
                return;
            }
        }
        if was_open {
            self.next = None;
            if !master.replace_link(&current, link) {
                return;
            }
        }
        self.breaker.close(alarms_before);
    }

    /// The link to replace this one, on which the breaker opened. Only the probe uses it until then.
    fn next_link(&mut self, master: &Master, current: &Arc<Link>) -> Arc<Link> {
        match &self.next {
            Some((old, next)) if Arc::ptr_eq(old, current) => next.clone(),
            _ => {
                let next = Arc::new(current.anew(master.setup()));
                self.next = Some((current.clone(), next.clone()));
                next
            }
        }
    }

    /// Writes the probe's key. Returns how long that took, without connecting.
    async fn write(&mut self, master: &Arc<Master>, link: &Arc<Link>) -> Result<Duration, Failure> {
        let mut connection = match &self.connection {
            Some((of, connection)) if Arc::ptr_eq(of, link) => connection.clone(),
            _ => {
                let made = timeout(master.setup().connect_limit, self.connect(link.client(), link)).await;
                let made = made.map_err(|_| Failure::TimedOut)?.map_err(|error| Failure::of(&error))?;
                self.connection.insert((link.clone(), made)).1.clone()
            }
        };
        let mut tries = 0;
        loop {
            let write = self.command(master);
            let asked = master.setup().clock.monotonic();
            let written = match timeout(LIMIT, write.exec_async(&mut connection)).await {
                Ok(result) => result.map_err(|error| Failure::of(&error)),
                Err(_) => Err(Failure::TimedOut),
            };
            tries += 1;
            match written {
                Err(Failure::Moving(_)) if tries < TRIES => self.tag = None,
                other => return other.map(|()| master.setup().clock.monotonic().saturating_sub(asked)),
            }
        }
    }

    /// A write, to show that the master takes writes. A PING if it owns no slots.
    fn command(&mut self, master: &Master) -> ::redis::Cmd {
        let owned = master.owned();
        if owned.is_nothing() {
            return ::redis::cmd("PING");
        }
        if self.tag.is_none() {
            self.tag = owned.a_tag();
        }
        let tag = self.tag.as_deref().unwrap_or_default();
        let mut set = ::redis::cmd("SET");
        set.arg(keys::probe(&format!("{tag}{}", self.instance))).arg(1).arg("PX").arg(KEPT_MS);
        set
    }

    /// Uses RESP3: there the client reports at once when the connection is cut, so a restart of Redis is noticed even
    /// without calls.
    async fn connect(&self, client: &Client, link: &Arc<Link>) -> Result<MultiplexedConnection, RedisError> {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let (master, of) = (self.master.clone(), Arc::downgrade(link));
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_push_sender(move |push: PushInfo| -> Result<(), SendError> {
                // A connection to a replaced server may end; that says nothing about Redis.
                if push.kind == PushKind::Disconnection
                    && let (Some(master), Some(link)) = (master.upgrade(), of.upgrade())
                    && master.is_current(&link)
                {
                    master.breaker().open("the connection was cut");
                }
                Ok(())
            });
        client.get_multiplexed_async_connection_with_config(&config).await
    }
}

fn cause(failure: &Failure) -> String {
    match failure {
        Failure::TimedOut => "no answer to a probe".to_owned(),
        other => other.to_string(),
    }
}
