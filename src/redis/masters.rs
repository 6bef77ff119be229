//! All masters: which one has a key, and calls that find it (`redis.mode`).
//!
//! Standalone and Sentinel have one master, a Cluster has many. Each has its own circuit breaker, so an unavailable
//! master affects only the keys that it has.

mod route;

use std::{sync::Arc, time::Duration};

use ::redis::{Client, FromRedisValue};
use tokio::{runtime::Handle, time::timeout};

use self::route::Route;
use super::{
    breaker::State,
    call::{Call, Lane},
    cluster::Cluster,
    connection::{BadUrl, Link, Setup},
    failure::Failure,
    master::Master,
    scripts::Script,
    sentinel::Sentinels,
    slots::{SlotRanges, slot_of},
};
use crate::{
    clock::StoreClock,
    config::{RedisConfig, RedisMode},
    metrics::Metrics,
};

/// The masters.
pub struct Masters {
    setup: Arc<Setup>,
    kind: Kind,
}

enum Kind {
    One(Arc<Master>),
    Cluster(Arc<Cluster>),
}

impl Masters {
    /// Starts the masters of this configuration on the caller's runtime. Waits a short time for Redis to answer. If
    /// Redis is unavailable, it is connected to when it becomes available.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub async fn connect(config: &RedisConfig, clock: StoreClock, metrics: Arc<Metrics>) -> Result<Arc<Self>, BadUrl> {
        let setup = Arc::new(Setup::new(config, clock, metrics)?);
        let (kind, found) = match config.mode {
            RedisMode::Standalone => {
                let master = Master::start(&setup, Some(Link::new(&setup, None)?), SlotRanges::All);
                let answers = answers(&setup, &master).await;
                (Kind::One(master), answers)
            }
            RedisMode::Sentinel => {
                let sentinels = Sentinels::of(config)?;
                let master = Master::start(&setup, None, SlotRanges::All);
                setup.runtime.spawn(sentinels.keep(Arc::downgrade(&master)));
                let answers = answers(&setup, &master).await;
                (Kind::One(master), answers)
            }
            RedisMode::Cluster => {
                let cluster = Cluster::start(&setup, config.nodes.clone()).await;
                let answers = !cluster.is_degraded();
                (Kind::Cluster(cluster), answers)
            }
        };
        if !found {
            tracing::warn!(address = config.address(), "redis unavailable at the start; connecting goes on");
        }
        Ok(Arc::new(Self { setup, kind }))
    }

    /// The master that has this key.
    ///
    /// # Errors
    /// [`Failure::Away`]: no master is known for this key.
    pub fn of(&self, key: &str) -> Result<Arc<Master>, Failure> {
        match &self.kind {
            Kind::One(master) => Ok(master.clone()),
            Kind::Cluster(cluster) => cluster.of(slot_of(key)),
        }
    }

    /// Whether the master that has this key is unavailable.
    pub fn is_away(&self, key: &str) -> bool {
        self.of(key).and_then(|master| master.breaker().check()).is_err()
    }

    /// Whether any master is unavailable.
    pub fn is_degraded(&self) -> bool {
        match &self.kind {
            Kind::One(master) => master.breaker().check().is_err(),
            Kind::Cluster(cluster) => cluster.is_degraded(),
        }
    }

    /// Whether keys are spread over slots. Then one call can only use keys of one slot.
    pub fn have_slots(&self) -> bool {
        matches!(self.kind, Kind::Cluster(_))
    }

    /// The runtime, which outlives each HTTP worker.
    pub fn runtime(&self) -> &Handle {
        &self.setup.runtime
    }

    /// How long a call may take.
    pub fn call_limit(&self) -> Duration {
        self.setup.call_limit
    }

    /// All masters that have keys.
    fn all(&self) -> Vec<Arc<Master>> {
        match &self.kind {
            Kind::One(master) => vec![master.clone()],
            Kind::Cluster(cluster) => cluster.masters(),
        }
    }

    /// A client for a subscription, of a master that seems to answer: all publish the same messages. The future ends
    /// when the subscription must end: the server may not be the master any more.
    ///
    /// # Errors
    /// [`Failure::Away`]: no master is known.
    pub fn any_client(&self) -> Result<(Client, impl Future<Output = ()> + Send + use<>), Failure> {
        let all = self.all();
        let best = all.iter().find(|master| master.breaker().check().is_ok()).or(all.first());
        let master = best.ok_or_else(|| Failure::Away("no master is known".to_owned()))?;
        // Before the link is read, so that no change is missed.
        let replaced = master.link_replaced();
        master.link().map(|link| (link.client().clone(), replaced))
    }

    /// Makes a call outside the queue at each master. Returns the replies of those that answer.
    pub async fn ask_all<T: FromRedisValue + Send + 'static>(&self, call: Call) -> Vec<T> {
        let call = Arc::new(call);
        let mut replies = Vec::new();
        for master in self.all() {
            let limit = self.setup.connect_limit;
            let reply = master.call(Lane::Aside { limit }, &call, false, limit).await;
            replies.extend(reply.ok().map(|(reply, _)| reply));
        }
        replies
    }

    /// Runs a script for this many `people`. Returns the reply, and when the request was sent on
    /// [`StoreClock::monotonic`].
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run<K: AsRef<str>>(
        &self,
        lane: Lane,
        script: &'static Script,
        keys: &[K],
        args: &[String],
        people: usize,
    ) -> Result<(Vec<i64>, Duration), Failure> {
        let began = self.setup.clock.monotonic();
        let key = keys.first().map_or("", AsRef::as_ref);
        let result = self.call(lane, key, script.call(keys, args)).await;
        if !matches!(result, Err(Failure::Away(_) | Failure::JustLost(_))) {
            let asked = result.as_ref().map_or(began, |(_, asked)| *asked);
            let took = self.setup.clock.monotonic().saturating_sub(asked);
            self.setup.metrics.script_ran(script.name(), people, took);
        }
        result
    }

    /// Makes a call at the master that has this key.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn ask<T: FromRedisValue + Send + 'static>(
        &self,
        lane: Lane,
        key: &str,
        call: Call,
    ) -> Result<T, Failure> {
        self.call(lane, key, call).await.map(|(reply, _)| reply)
    }

    async fn call<T: FromRedisValue + Send + 'static>(
        &self,
        lane: Lane,
        key: &str,
        call: Call,
    ) -> Result<(T, Duration), Failure> {
        let limit = match lane {
            Lane::Hot | Lane::Pooled { .. } => self.setup.call_limit,
            Lane::Aside { limit } => limit,
        };
        let call = Arc::new(call);
        let mut route = Route::new(self, key, limit)?;
        loop {
            let result = route.master.call(lane, &call, route.asking, route.left()).await;
            if !route.goes_on(&result).await {
                return route.settled(result);
            }
        }
    }

    /// Whether the master that has this key takes connections: makes one and closes it.
    ///
    /// # Errors
    /// [`Failure::Away`]: it refuses, or no master is known. [`Failure::TimedOut`]. No breaker learns of it.
    pub async fn connects(&self, key: &str) -> Result<(), Failure> {
        let link = self.of(key)?.link()?;
        self.setup.connect(link.client()).await.map(drop)
    }
}

impl std::fmt::Debug for Masters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

async fn answers(setup: &Setup, master: &Master) -> bool {
    timeout(setup.connect_limit, master.breaker().reached(State::Closed)).await.is_ok()
}
