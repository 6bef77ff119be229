//! Which master of a Cluster has which slots (`redis.mode = cluster`).
//!
//! One node is asked about once a second, and sooner after a redirect or while a master is unavailable; always in the
//! background. Each master found gets its own circuit breaker and probe, and loses them when it has no slots any more.

mod poller;
mod slot_map;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::Notify, time::timeout};

use self::{poller::SlotMapPoller, slot_map::SlotMap};
use super::{
    breaker::State,
    connection::{Link, Setup},
    failure::Failure,
    master::Master,
    slots::SlotRanges,
};
use crate::config::NodeAddress;

/// How long a node that a redirect named is kept ready, even without slots.
const NAMED_KEPT: Duration = Duration::from_secs(30);

/// A Cluster.
pub(super) struct Cluster {
    setup: Arc<Setup>,
    seeds: Vec<NodeAddress>,
    map: RwLock<Arc<Map>>,
    /// The nodes that redirects named, and when last.
    named: Mutex<HashMap<NodeAddress, Duration>>,
    refresh_now: Arc<Notify>,
}

/// The slot map, and the masters in it.
#[derive(Default)]
struct Map {
    slot_map: SlotMap,
    /// Masters with slots, and nodes that redirects named.
    masters: BTreeMap<NodeAddress, Arc<Master>>,
}

impl Cluster {
    /// Looks for the masters for a short time, then continues in the background.
    pub(super) async fn start(setup: &Arc<Setup>, seeds: Vec<NodeAddress>) -> Arc<Self> {
        let cluster = Arc::new(Self {
            setup: setup.clone(),
            seeds,
            map: RwLock::default(),
            named: Mutex::default(),
            refresh_now: Arc::new(Notify::new()),
        });
        let mut poller = SlotMapPoller::default();
        // Masters that are not found in time are found later.
        let _ = timeout(setup.connect_limit * 2, cluster.refresh(&mut poller)).await;
        setup.runtime.spawn(poller.keep(Arc::downgrade(&cluster)));
        cluster
    }

    /// The master that has this slot.
    pub(super) fn of(&self, slot: u16) -> Result<Arc<Master>, Failure> {
        let map = self.map();
        let master = map.slot_map.at(slot).and_then(|address| map.masters.get(address));
        master.cloned().ok_or_else(|| Failure::Away("no master is known to have this slot".to_owned()))
    }

    /// The master at the address that a redirect of `from` names, if it is known. Else a refresh starts, which adds it.
    pub(super) fn at(&self, named: &str, from: &Master) -> Option<Arc<Master>> {
        let mut address: NodeAddress = named.parse().ok()?;
        if address.host.is_empty() {
            address.host = from.link().ok()?.address()?.host.clone();
        }
        let known = self.map().masters.get(&address).cloned();
        self.named().insert(address, self.setup.clock.monotonic());
        self.refresh_now.notify_one();
        known
    }

    /// All masters that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<Master>> {
        let map = self.map();
        map.slot_map.owned().keys().filter_map(|address| map.masters.get(*address).cloned()).collect()
    }

    /// Whether some slots cannot be served, as far as the slot map shows.
    pub(super) fn is_degraded(&self) -> bool {
        !self.map().slot_map.is_complete() || self.masters().iter().any(|master| master.breaker().check().is_err())
    }

    fn map(&self) -> Arc<Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn named(&self) -> MutexGuard<'_, HashMap<NodeAddress, Duration>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the slots and applies what has changed. False: no node answers.
    async fn refresh(&self, poller: &mut SlotMapPoller) -> bool {
        let old = self.map();
        let Some(slot_map) = poller.slot_map(self, &old).await else { return false };
        let now = self.setup.clock.monotonic();
        let named: Vec<NodeAddress> = {
            let mut named = self.named();
            named.retain(|_, at| now.saturating_sub(*at) < NAMED_KEPT);
            named.keys().cloned().collect()
        };
        let owned = slot_map.owned();
        let wanted: BTreeSet<&NodeAddress> = owned.keys().copied().chain(&named).collect();
        if old.slot_map == slot_map && wanted.iter().copied().eq(old.masters.keys()) {
            return true;
        }
        let (mut masters, mut fresh) = (BTreeMap::new(), Vec::new());
        for address in wanted {
            let slots = SlotRanges::Slots(owned.get(address).cloned().unwrap_or_default());
            let master = match old.masters.get(address) {
                Some(known) => {
                    known.own(slots);
                    known.clone()
                }
                None => match Link::new(&self.setup, Some(address.clone())) {
                    Ok(link) => {
                        let new = Master::start(&self.setup, Some(link), slots);
                        if !old.slot_map.ranges.is_empty() {
                            // It takes over from another master, and may lack the other's last writes.
                            new.breaker().note_lost();
                        }
                        fresh.push(new.clone());
                        new
                    }
                    Err(error) => {
                        tracing::error!(%address, %error, "the cluster reports an unusable node address");
                        continue;
                    }
                },
            };
            masters.insert(address.clone(), master);
        }
        // New masters are used when they are ready. Until then calls go where they went before.
        let ready = join_all(fresh.iter().map(|master| master.breaker().reached(State::Closed)));
        let _ = timeout(self.setup.connect_limit, ready).await;
        if old.slot_map.ranges != slot_map.ranges {
            let masters: Vec<String> = slot_map.owned().keys().map(ToString::to_string).collect();
            tracing::info!(?masters, "the slot map changed");
        }
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Map { slot_map, masters });
        true
    }
}
