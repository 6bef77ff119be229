//! Which master of a Cluster has which slots (`redis.mode = cluster`).
//!
//! Any node is asked about once a second, and sooner where a master names another or is away; always in the background.
//! Each master found gets a breaker and a probe of its own, and loses them when it has no slots any more.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
    time::Duration,
};

use ::redis::{Value, aio::MultiplexedConnection, from_redis_value, pipe};
use futures_util::future::join_all;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    breaker::State,
    connection::{Link, Setup},
    failure::Failure,
    master::Master,
    slots::{Owned, SLOTS},
};
use crate::config::NodeAddress;

/// How long a node may take to tell the slots, connecting included.
const LIMIT: Duration = Duration::from_millis(500);
/// How often one is asked while all is well.
const PACE_CLOSED: Duration = Duration::from_secs(1);
/// And while not.
const PACE_TROUBLED: Duration = Duration::from_millis(250);
/// However often masters name others: not more often than this.
const PACE_NAMED: Duration = Duration::from_millis(20);
/// A node that a redirect named is kept ready for so long after it, also without slots.
const NAMED_KEPT: Duration = Duration::from_secs(30);

/// A Cluster.
pub(super) struct Cluster {
    setup: Arc<Setup>,
    seeds: Vec<NodeAddress>,
    map: RwLock<Arc<Map>>,
    /// Named by redirects, when last.
    named: Mutex<HashMap<NodeAddress, Duration>>,
    refresh_now: Arc<Notify>,
}

/// Where the slots are, and how to reach them.
#[derive(Default)]
struct Map {
    view: View,
    /// Those with slots, and those named by redirects.
    masters: BTreeMap<NodeAddress, Arc<Master>>,
}

/// What a node says.
#[derive(Debug, Default, PartialEq, Eq)]
struct View {
    /// First slot, last slot, master; sorted.
    ranges: Vec<(u16, u16, NodeAddress)>,
    /// All nodes, replicas too.
    nodes: BTreeSet<NodeAddress>,
}

impl View {
    /// The reply of `CLUSTER SLOTS` by this node. Ranges that make no sense are left out.
    fn of(reply: Vec<Vec<Value>>, teller: &NodeAddress) -> Self {
        let mut view = Self::default();
        for range in reply {
            let mut parts = range.into_iter();
            let mut slot = || parts.next().and_then(|slot| from_redis_value::<u16>(slot).ok());
            let (Some(first), Some(last)) = (slot(), slot()) else { continue };
            // The master comes first; one that cannot be read is not the replica after it.
            let nodes: Vec<Option<NodeAddress>> = parts.map(|node| node_of(node, teller)).collect();
            if let Some(Some(master)) = nodes.first()
                && first <= last
                && last < SLOTS
            {
                view.ranges.push((first, last, master.clone()));
            }
            view.nodes.extend(nodes.into_iter().flatten());
        }
        view.ranges.sort_unstable();
        view
    }

    fn at(&self, slot: u16) -> Option<&NodeAddress> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, master) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then_some(master)
    }

    fn is_complete(&self) -> bool {
        let covered: u32 = self.ranges.iter().map(|(first, last, _)| u32::from(last - first) + 1).sum();
        covered == u32::from(SLOTS)
    }

    /// The ranges of each master.
    fn owned(&self) -> BTreeMap<&NodeAddress, Vec<(u16, u16)>> {
        let mut owned: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (first, last, master) in &self.ranges {
            owned.entry(master).or_default().push((*first, *last));
        }
        owned
    }
}

/// `[host, port, …]`; without a host it is the one that was asked.
fn node_of(node: Value, teller: &NodeAddress) -> Option<NodeAddress> {
    let Value::Array(parts) = node else { return None };
    let mut parts = parts.into_iter();
    let host: Option<String> = from_redis_value(parts.next()?).ok()?;
    let port = from_redis_value(parts.next()?).ok()?;
    let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| teller.host.clone());
    // `?`: the node does not know.
    (host != "?").then_some(NodeAddress { host, port })
}

impl Cluster {
    /// Looks for the masters, for a short time, and keeps on looking.
    pub(super) async fn start(setup: &Arc<Setup>, seeds: Vec<NodeAddress>) -> Arc<Self> {
        let cluster = Arc::new(Self {
            setup: setup.clone(),
            seeds,
            map: RwLock::default(),
            named: Mutex::default(),
            refresh_now: Arc::new(Notify::new()),
        });
        let mut teller = Teller::default();
        // Not found in time: found later.
        let _ = timeout(setup.connect_limit * 2, cluster.refresh(&mut teller)).await;
        setup.runtime.spawn(teller.keep(Arc::downgrade(&cluster)));
        cluster
    }

    /// The master that has this slot.
    pub(super) fn of(&self, slot: u16) -> Result<Arc<Master>, Failure> {
        let map = self.map();
        let master = map.view.at(slot).and_then(|address| map.masters.get(address));
        master.cloned().ok_or_else(|| Failure::Away("no master is known to have this slot".to_owned()))
    }

    /// The master at the address that a redirect of `from` names, if it is ready for calls; else it will be soon.
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

    /// All that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<Master>> {
        let map = self.map();
        map.view.owned().keys().filter_map(|address| map.masters.get(*address).cloned()).collect()
    }

    /// Whether some slots cannot be served, as far as is known.
    pub(super) fn is_degraded(&self) -> bool {
        !self.map().view.is_complete() || self.masters().iter().any(|master| master.breaker().check().is_err())
    }

    fn map(&self) -> Arc<Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn named(&self) -> MutexGuard<'_, HashMap<NodeAddress, Duration>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the slots and takes over what is new. False: nobody tells.
    async fn refresh(&self, teller: &mut Teller) -> bool {
        let old = self.map();
        let Some(view) = teller.view(self, &old).await else { return false };
        let now = self.setup.clock.monotonic();
        let named: Vec<NodeAddress> = {
            let mut named = self.named();
            named.retain(|_, at| now.saturating_sub(*at) < NAMED_KEPT);
            named.keys().cloned().collect()
        };
        let owned = view.owned();
        let wanted: BTreeSet<&NodeAddress> = owned.keys().copied().chain(&named).collect();
        if old.view == view && wanted.iter().copied().eq(old.masters.keys()) {
            return true;
        }
        let (mut masters, mut fresh) = (BTreeMap::new(), Vec::new());
        for address in wanted {
            let slots = Owned::Slots(owned.get(address).cloned().unwrap_or_default());
            let master = match old.masters.get(address) {
                Some(known) => {
                    known.own(slots);
                    known.clone()
                }
                None => match Link::new(&self.setup, Some(address.clone())) {
                    Ok(link) => {
                        let new = Master::start(&self.setup, Some(link), slots);
                        if !old.view.ranges.is_empty() {
                            // What it takes over from another may lack the other's last writes.
                            new.breaker().note_lost();
                        }
                        fresh.push(new.clone());
                        new
                    }
                    Err(error) => {
                        tracing::error!(%address, %error, "the cluster names a node that cannot be one");
                        continue;
                    }
                },
            };
            masters.insert(address.clone(), master);
        }
        // They take over when they are ready: until then the call goes where it went.
        let ready = join_all(fresh.iter().map(|master| master.breaker().reached(State::Closed)));
        let _ = timeout(self.setup.connect_limit, ready).await;
        if old.view.ranges != view.ranges {
            let masters: Vec<String> = view.owned().keys().map(ToString::to_string).collect();
            tracing::info!(?masters, "slots have other masters");
        }
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Map { view, masters });
        true
    }
}

/// Who tells the slots at present.
#[derive(Default)]
struct Teller {
    current: Option<(NodeAddress, MultiplexedConnection)>,
    /// For the log: a line when they stop telling and one when they tell again.
    silent: bool,
}

impl Teller {
    /// Keeps the map as the nodes tell it, until the cluster is dropped.
    async fn keep(mut self, cluster: Weak<Cluster>) {
        loop {
            let Some(cluster) = cluster.upgrade() else { return };
            match (cluster.refresh(&mut self).await, self.silent) {
                (true, true) => tracing::info!("the cluster tells its slots again"),
                (false, false) => tracing::warn!("no node of the cluster tells its slots; those known hold"),
                (true, false) | (false, true) => {}
            }
            self.silent = cluster.map().view.ranges.is_empty() || self.current.is_none();
            let pace = if cluster.is_degraded() { PACE_TROUBLED } else { PACE_CLOSED };
            let refresh_now = cluster.refresh_now.clone();
            drop(cluster);
            sleep(PACE_NAMED).await;
            // Either way it is time to ask again.
            let _ = timeout(pace, refresh_now.notified()).await;
        }
    }

    /// What the first node says that says anything, beginning with the one from before.
    async fn view(&mut self, cluster: &Cluster, map: &Map) -> Option<View> {
        if let Some((address, mut connection)) = self.current.take()
            && let Ok(Some(view)) = timeout(LIMIT, ask(&mut connection, &address)).await
        {
            self.current = Some((address, connection));
            return Some(view);
        }
        let answering = map.masters.iter().filter(|(_, master)| master.breaker().check().is_ok());
        let mut candidates: Vec<&NodeAddress> = answering.map(|(address, _)| address).collect();
        for address in map.view.nodes.iter().chain(&cluster.seeds) {
            if !candidates.contains(&address) {
                candidates.push(address);
            }
        }
        for address in candidates {
            let told = timeout(LIMIT, async {
                let client = cluster.setup.client(Some(address)).ok()?;
                let mut connection = cluster.setup.connect(&client).await.ok()?;
                let view = ask(&mut connection, address).await?;
                Some((view, connection))
            });
            if let Ok(Some((view, connection))) = told.await {
                self.current = Some((address.clone(), connection));
                return Some(view);
            }
        }
        None
    }
}

/// What this node says. Nothing where it does not see a whole cluster: it may be cut off from the others, or have just
/// come back, and know no better.
async fn ask(connection: &mut MultiplexedConnection, teller: &NodeAddress) -> Option<View> {
    let mut ask = pipe();
    ask.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let (info, slots): (String, Vec<Vec<Value>>) = ask.query_async(connection).await.ok()?;
    info.lines().any(|line| line.trim() == "cluster_state:ok").then(|| View::of(slots, teller))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> NodeAddress {
        text.parse().unwrap()
    }

    fn slots(reply: &str) -> View {
        let reply = ::redis::parse_redis_value(reply.as_bytes()).unwrap();
        View::of(from_redis_value(reply).unwrap(), &node("10.0.0.9:6379"))
    }

    #[test]
    fn a_slot_is_found_at_its_master_and_a_gap_is_nobodys() {
        let view = slots(concat!(
            "*3\r\n",
            "*4\r\n:100\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:7001\r\n$1\r\nb\r\n*3\r\n$9\r\n127.0.0.1\r\n:7003\r\n$1\r\nd\r\n",
            "*3\r\n:0\r\n:98\r\n*4\r\n$0\r\n\r\n:7000\r\n$1\r\na\r\n*0\r\n",
            "*3\r\n:99\r\n:99\r\n*3\r\n$1\r\n?\r\n:7002\r\n$1\r\nc\r\n",
        ));
        assert_eq!(view.at(0), Some(&node("10.0.0.9:7000")), "no host: the one that was asked");
        assert_eq!((view.at(98), view.at(99)), (Some(&node("10.0.0.9:7000")), None));
        assert_eq!((view.at(100), view.at(16_383)), (Some(&node("127.0.0.1:7001")), Some(&node("127.0.0.1:7001"))));
        assert!(!view.is_complete());
        assert!(view.nodes.contains(&node("127.0.0.1:7003")), "replicas can be asked, too");
        assert_eq!(view.owned()[&node("127.0.0.1:7001")], [(100, 16_383)]);
    }

    #[test]
    fn nonsense_is_left_out() {
        for reply in ["*0\r\n", "*1\r\n*0\r\n", "*1\r\n*2\r\n:0\r\n:5\r\n", "*1\r\n*3\r\n:5\r\n:99999\r\n*0\r\n"] {
            assert_eq!(slots(reply), View::default(), "{reply:?}");
        }
        assert_eq!(View::default().at(5), None);
    }
}
