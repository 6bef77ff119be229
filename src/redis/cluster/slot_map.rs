//! The slot map that a node of a Cluster reports.

use std::collections::{BTreeMap, BTreeSet};

use ::redis::{Value, from_redis_value};

use crate::{config::NodeAddress, redis::slots::SLOTS};

/// The slot map of one node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// First slot, last slot, master; sorted.
    pub(super) ranges: Vec<(u16, u16, NodeAddress)>,
    /// All nodes, replicas too.
    pub(super) nodes: BTreeSet<NodeAddress>,
}

impl SlotMap {
    /// Reads the reply of the node `asked` to `CLUSTER SLOTS`. Ranges that make no sense are left out.
    pub(super) fn of(reply: Vec<Vec<Value>>, asked: &NodeAddress) -> Self {
        let mut slot_map = Self::default();
        for range in reply {
            let mut parts = range.into_iter();
            let mut slot = || parts.next().and_then(|slot| from_redis_value::<u16>(slot).ok());
            let (Some(first), Some(last)) = (slot(), slot()) else { continue };
            // The master comes first. If it cannot be read, the replica after it does not take its place.
            let nodes: Vec<Option<NodeAddress>> = parts.map(|node| node_of(node, asked)).collect();
            if let Some(Some(master)) = nodes.first()
                && first <= last
                && last < SLOTS
            {
                slot_map.ranges.push((first, last, master.clone()));
            }
            slot_map.nodes.extend(nodes.into_iter().flatten());
        }
        slot_map.ranges.sort_unstable();
        slot_map
    }

    pub(super) fn at(&self, slot: u16) -> Option<&NodeAddress> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, master) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then_some(master)
    }

    pub(super) fn is_complete(&self) -> bool {
        let covered: u32 = self.ranges.iter().map(|(first, last, _)| u32::from(last - first) + 1).sum();
        covered == u32::from(SLOTS)
    }

    /// The ranges of each master.
    pub(super) fn owned(&self) -> BTreeMap<&NodeAddress, Vec<(u16, u16)>> {
        let mut owned: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (first, last, master) in &self.ranges {
            owned.entry(master).or_default().push((*first, *last));
        }
        owned
    }
}

/// `[host, port, …]`; without a host it is the host that was asked.
fn node_of(node: Value, asked: &NodeAddress) -> Option<NodeAddress> {
    let Value::Array(parts) = node else { return None };
    let mut parts = parts.into_iter();
    let host: Option<String> = from_redis_value(parts.next()?).ok()?;
    let port = from_redis_value(parts.next()?).ok()?;
    let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| asked.host.clone());
    // `?`: the node does not know the host.
    (host != "?").then_some(NodeAddress { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> NodeAddress {
        text.parse().unwrap()
    }

    fn slots(reply: &str) -> SlotMap {
        let reply = ::redis::parse_redis_value(reply.as_bytes()).unwrap();
        SlotMap::of(from_redis_value(reply).unwrap(), &node("10.0.0.9:6379"))
    }

    #[test]
    fn a_slot_is_found_at_its_master_and_at_no_replica_and_a_gap_is_nobodys() {
        let slot_map = slots(concat!(
            "*3\r\n",
            "*4\r\n:100\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:7001\r\n$1\r\nb\r\n*3\r\n$9\r\n127.0.0.1\r\n:7003\r\n$1\r\nd\r\n",
            "*3\r\n:0\r\n:98\r\n*4\r\n$0\r\n\r\n:7000\r\n$1\r\na\r\n*0\r\n",
            "*4\r\n:99\r\n:99\r\n*3\r\n$1\r\n?\r\n:7002\r\n$1\r\nc\r\n*3\r\n$9\r\n127.0.0.1\r\n:7004\r\n$1\r\ne\r\n",
        ));
        assert_eq!(slot_map.at(0), Some(&node("10.0.0.9:7000")), "no host: the one that was asked");
        assert_eq!(slot_map.at(98), Some(&node("10.0.0.9:7000")));
        assert_eq!(slot_map.at(99), None, "where the master is not known, its replica is none");
        assert_eq!(
            (slot_map.at(100), slot_map.at(16_383)),
            (Some(&node("127.0.0.1:7001")), Some(&node("127.0.0.1:7001")))
        );
        assert!(!slot_map.is_complete());
        assert!(slot_map.nodes.contains(&node("127.0.0.1:7003")), "replicas can be asked, too");
        assert_eq!(slot_map.owned()[&node("127.0.0.1:7001")], [(100, 16_383)]);
    }

    #[test]
    fn nonsense_is_left_out() {
        for reply in ["*0\r\n", "*1\r\n*0\r\n", "*1\r\n*2\r\n:0\r\n:5\r\n", "*1\r\n*3\r\n:5\r\n:99999\r\n*0\r\n"] {
            assert_eq!(slots(reply), SlotMap::default(), "{reply:?}");
        }
        assert_eq!(SlotMap::default().at(5), None);
    }
}
