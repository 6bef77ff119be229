//! All the masters there are: which one has a key, and calls that find it (`redis.mode`).
//!
//! One where Redis stands alone or Sentinels look after it, many in a Cluster. Each has a breaker of its own, so a master
//! that is away concerns the keys it has and no others.

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
    /// Starts to look after the masters of this configuration, on the calling runtime. Redis may be away: it is given
    /// one short chance to answer, then connected to whenever it comes.
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
            tracing::warn!("redis unavailable at the start; connecting goes on");
        }
        Ok(Arc::new(Self { setup, kind }))
    }

    /// The master that has this key.
    ///
    /// # Errors
    /// [`Failure::Away`] where none is known to have it.
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

    /// Whether any of them is unavailable.
    pub fn is_degraded(&self) -> bool {
        match &self.kind {
            Kind::One(master) => master.breaker().check().is_err(),
            Kind::Cluster(cluster) => cluster.is_degraded(),
        }
    }

    /// Whether keys are spread over slots, and only those of one slot can be touched together.
    pub fn have_slots(&self) -> bool {
        matches!(self.kind, Kind::Cluster(_))
    }

    /// The runtime that outlives any one HTTP worker.
    pub fn runtime(&self) -> &Handle {
        &self.setup.runtime
    }

    /// How long a call may take.
    pub fn call_limit(&self) -> Duration {
        self.setup.call_limit
    }

    /// All of them that have keys.
    fn all(&self) -> Vec<Arc<Master>> {
        match &self.kind {
            Kind::One(master) => vec![master.clone()],
            Kind::Cluster(cluster) => cluster.masters(),
        }
    }

    /// A client of any server of them that seems to answer, for a subscription: all hear the same. With it comes what
    /// ends when the subscription must: the client's server may not be the master any more.
    ///
    /// # Errors
    /// [`Failure::Away`] where none is known.
    pub fn any_client(&self) -> Result<(Client, impl Future<Output = ()> + Send + use<>), Failure> {
        let all = self.all();
        let best = all.iter().find(|master| master.breaker().check().is_ok()).or(all.first());
        let master = best.ok_or_else(|| Failure::Away("no master is known".to_owned()))?;
        // Before the link is looked at, so that no change is missed.
        let replaced = master.link_replaced();
        master.link().map(|link| (link.client().clone(), replaced))
    }

    /// Makes a call that has nothing to do with the queue at each of them: what they answer, those that answer.
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

    /// Runs a script that so many `people` share. Answers the reply, and when it was asked for on
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

    /// Whether the master that has this key takes connections: one is made for that, and given up.
    ///
    /// # Errors
    /// [`Failure::Away`] where it refuses, or is not known; [`Failure::TimedOut`]. No breaker learns of it.
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
