//! Asks Redis all the time whether it takes writes. It alone closes the breaker (DESIGN 5 "Failing well").
//!
//! Once the breaker is open, nothing that was connected before is used any more (ADR 0020): the probe writes over a new
//! link, which looks the server's name up again, and when that server takes the write, everybody gets this link.

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
/// From one probe to the next while all is well.
const PACE_CLOSED: Duration = Duration::from_secs(1);
/// And while not.
const PACE_TROUBLED: Duration = Duration::from_millis(250);
/// How long the key that a probe writes stays.
const KEPT_MS: u64 = 10_000;

/// Why a Redis that answers stays away.
const TOO_SLOW: &str = "it answers, but not within redis.command_timeout_ms";

/// How many slots a probe tries that are on their way to another master.
const TRIES: usize = 3;

/// The probe of a master, on a connection of its own.
pub(super) struct Probe {
    master: Weak<Master>,
    breaker: Arc<Breaker>,
    instance: String,
    connection: Option<(Arc<Link>, MultiplexedConnection)>,
    /// While the breaker is open: the link that it opened on, and the one to take its place.
    next: Option<(Arc<Link>, Arc<Link>)>,
    /// In a Cluster: what makes the key one of the master's, while it is.
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
        // No link: nobody knows yet where the master is, and the breaker has never been closed.
        let Ok(current) = master.link() else { return };
        let was_open = self.breaker.state() == State::Open;
        let link = if was_open { self.next_link(master, &current) } else { current.clone() };
        let (written, hot_answers) =
            tokio::join!(self.write(master, &link), link.hot_answers(LIMIT, &master.setup().clock));
        let took = match written {
            Ok(took) => took,
            // It answers, but has nothing of its own to write to: no news of whether it takes writes.
            Err(Failure::Moving(_)) if matches!(master.owned(), SlotRanges::Slots(_)) => return,
            Err(Failure::Moving(_)) => return self.breaker.open("this redis is a node of a cluster: set redis.mode"),
            Err(_) if !master.is_current(&current) => return,
            Err(failure) => {
                // A connection that was slow once may be one that leads nowhere.
                self.connection = None;
                tracing::debug!(%failure, "a probe failed");
                self.breaker.open(&cause(&failure));
                return;
            }
        };
        // As slow as this, people's calls would get no answer: no reason to take it for away, nor for back. Of one that is
        // away only fresh connections tell whether it is back.
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

    /// The link to take the place of this one, on which the breaker opened. Nobody but the probe uses it before it does.
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

    /// How long it took, connecting left out.
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

    /// A write that shows that the master takes writes; a PING where nothing belongs to it.
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

    /// RESP3, because there the client tells at once when the connection is cut: so a restart of Redis is noticed
    /// even if nobody calls.
    async fn connect(&self, client: &Client, link: &Arc<Link>) -> Result<MultiplexedConnection, RedisError> {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let (master, of) = (self.master.clone(), Arc::downgrade(link));
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_push_sender(move |push: PushInfo| -> Result<(), SendError> {
                // The end of the way to a server that is the master no more is no news.
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
