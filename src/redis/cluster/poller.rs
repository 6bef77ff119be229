//! Which node of a Cluster is asked for the slots, and how often.

use std::{sync::Weak, time::Duration};

use ::redis::{Value, aio::MultiplexedConnection, pipe};
use tokio::time::{sleep, timeout};

use super::{Cluster, Map, slot_map::SlotMap};
use crate::config::NodeAddress;

/// How long a node may take to report the slots, connecting included.
const LIMIT: Duration = Duration::from_millis(500);
/// From one question to the next while all slots can be served.
const PACE_CLOSED: Duration = Duration::from_secs(1);
/// The same while some cannot.
const PACE_TROUBLED: Duration = Duration::from_millis(250);
/// The shortest time between two questions, however many redirects there are.
const PACE_NAMED: Duration = Duration::from_millis(20);

/// Asks for the slots, and remembers the node that reported them.
#[derive(Default)]
pub(super) struct SlotMapPoller {
    current: Option<(NodeAddress, MultiplexedConnection)>,
    /// For the log: one line when no node reports them, and one when a node does again.
    silent: bool,
}

impl SlotMapPoller {
    /// Keeps the map as the nodes report it, until the cluster is dropped.
    pub(super) async fn keep(mut self, cluster: Weak<Cluster>) {
        loop {
            let Some(cluster) = cluster.upgrade() else { return };
            match (cluster.refresh(&mut self).await, self.silent) {
                (true, true) => tracing::info!("the cluster reports its slots again"),
                (false, false) => {
                    tracing::warn!("no cluster node reports its slots; the last known slot map stays in use")
                }
                (true, false) | (false, true) => {}
            }
            self.silent = cluster.map().slot_map.ranges.is_empty() || self.current.is_none();
            let pace = if cluster.is_degraded() { PACE_TROUBLED } else { PACE_CLOSED };
            let refresh_now = cluster.refresh_now.clone();
            drop(cluster);
            sleep(PACE_NAMED).await;
            // In both cases it is time to ask again.
            let _ = timeout(pace, refresh_now.notified()).await;
        }
    }

    /// The slot map from the first node that reports one, beginning with the previous node.
    pub(super) async fn slot_map(&mut self, cluster: &Cluster, map: &Map) -> Option<SlotMap> {
        if let Some((address, mut connection)) = self.current.take()
            && let Ok(Some(slot_map)) = timeout(LIMIT, ask(&mut connection, &address)).await
        {
            self.current = Some((address, connection));
            return Some(slot_map);
        }
        let answering = map.masters.iter().filter(|(_, master)| master.breaker().check().is_ok());
        let mut candidates: Vec<&NodeAddress> = answering.map(|(address, _)| address).collect();
        for address in map.slot_map.nodes.iter().chain(&cluster.seeds) {
            if !candidates.contains(&address) {
                candidates.push(address);
            }
        }
        for address in candidates {
            let asked = timeout(LIMIT, async {
                let client = cluster.setup.client(Some(address)).ok()?;
                let mut connection = cluster.setup.connect(&client).await.ok()?;
                let slot_map = ask(&mut connection, address).await?;
                Some((slot_map, connection))
            });
            if let Ok(Some((slot_map, connection))) = asked.await {
                self.current = Some((address.clone(), connection));
                return Some(slot_map);
            }
        }
        None
    }
}

/// The slot map of this node. None if the node does not see a whole cluster: it may be cut off from the others, or have
/// just restarted, and report old slots.
async fn ask(connection: &mut MultiplexedConnection, node: &NodeAddress) -> Option<SlotMap> {
    let mut ask = pipe();
    ask.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let (info, slots): (String, Vec<Vec<Value>>) = ask.query_async(connection).await.ok()?;
    info.lines().any(|line| line.trim() == "cluster_state:ok").then(|| SlotMap::of(slots, node))
}
