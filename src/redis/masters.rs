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
    call::Call,
    cluster::Cluster,
    connection::{BadUrl, Link, Setup},
    failure::Failure,
    master::Master,
    scripts::Script,
    sentinel::Sentinels,
    slots::{Owned, slot_of},
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
                let master = Master::start(&setup, Some(Link::new(&setup, None)?), Owned::All);
                let answers = answers(&setup, &master).await;
                (Kind::One(master), answers)
            }
            RedisMode::Sentinel => {
                let sentinels = Sentinels::of(config)?;
                let master = Master::start(&setup, None, Owned::All);
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
            tracing::warn!("redis is away at the start; it is connected to when it comes");
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

    /// Whether the master that has this key counts as away.
    pub fn is_away(&self, key: &str) -> bool {
        self.of(key).and_then(|master| master.breaker().check()).is_err()
    }

    /// Whether any of them counts as away.
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
            replies.extend(master.aside(&call, false, self.setup.connect_limit).await.ok());
        }
        replies
    }

    /// Runs a script on the hot connection. `people` share the call. Answers the reply, and when it was asked for on
    /// [`StoreClock::monotonic`].
    ///
    /// # Errors
    /// [`Failure`], of which the breaker has learnt.
    pub async fn run_hot<K: AsRef<str>>(
        &self,
        script: &'static Script,
        keys: &[K],
        args: &[String],
        people: usize,
    ) -> Result<(Vec<i64>, Duration), Failure> {
        let call = script.call(keys, args);
        let mut route = Route::new(self, first(keys), self.setup.call_limit)?;
        loop {
            let ran = |took| self.setup.metrics.script_ran(script.name(), people, took);
            let result = route.master.hot(&call, route.asking, route.left(), ran).await;
            if !route.goes_on(&result).await {
                return route.settled(result);
            }
        }
    }

    /// Runs a script on a connection of the pool, not before the master's last loss is `quiet` ago. Otherwise as
    /// [`Self::run_hot`].
    ///
    /// # Errors
    /// As [`Self::run_hot`]; [`Failure::JustLost`].
    pub async fn run_pooled<K: AsRef<str>>(
        &self,
        script: &'static Script,
        keys: &[K],
        args: &[String],
        quiet: Duration,
    ) -> Result<(Vec<i64>, Duration), Failure> {
        let (reply, asked) = self.timed(first(keys), script.call(keys, args), quiet).await?;
        let (metrics, now) = (&self.setup.metrics, self.setup.clock.monotonic());
        metrics.script_ran(script.name(), 1, now.saturating_sub(asked));
        Ok((reply, asked))
    }

    /// Makes a call at the master that has this key, over its pool.
    ///
    /// # Errors
    /// As [`Self::run_hot`].
    pub async fn pooled<T: FromRedisValue + Send + 'static>(&self, key: &str, call: Call) -> Result<T, Failure> {
        self.timed(key, call, Duration::ZERO).await.map(|(reply, _)| reply)
    }

    async fn timed<T: FromRedisValue + Send + 'static>(
        &self,
        key: &str,
        call: Call,
        quiet: Duration,
    ) -> Result<(T, Duration), Failure> {
        let call = Arc::new(call);
        let mut route = Route::new(self, key, self.setup.call_limit)?;
        loop {
            let result = route.master.pooled(&call, route.asking, route.left(), quiet).await;
            if !route.goes_on(&result).await {
                return route.settled(result);
            }
        }
    }

    /// Makes a call that has nothing to do with the queue at the master that has this key, all within `limit`: its
    /// breaker neither stops the call nor learns of it.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn aside<T: FromRedisValue + Send + 'static>(
        &self,
        key: &str,
        call: Call,
        limit: Duration,
    ) -> Result<T, Failure> {
        let call = Arc::new(call);
        let mut route = Route::new(self, key, limit)?;
        loop {
            let result = route.master.aside(&call, route.asking, route.left()).await;
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

fn first<K: AsRef<str>>(keys: &[K]) -> &str {
    keys.first().map_or("", AsRef::as_ref)
}
