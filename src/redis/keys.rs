//! The names of the keys (`docs/design.md`, "Redis keys").

use crate::domain::QueueTarget;

/// The targets that have a pump: SET of `TYPE:id`.
pub const ACTIVE: &str = "queue:active";

/// The live replicas and the fingerprints of their secrets: ZSET of `name current also_accepted…` → when last seen, ms.
pub const REPLICAS: &str = "queue:replicas";

/// The ten keys of a target, in the order in which `includes/target.lua` takes them. They share the hash tag
/// `{TYPE:id}`, so in a Cluster they are in one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetKeys([String; 10]);

/// The part after the tag, in the order of `includes/target.lua`.
const PARTS: [&str; 10] =
    ["waiting", "heartbeat", "admitted_count", "seq", "passes", "floors", "claims", "marks", "stats", "settings"];

impl TargetKeys {
    /// The keys of this target.
    pub fn of(target: QueueTarget) -> Self {
        // Runs for every call of a script: the target is formatted once, not ten times.
        let stem = format!("queue:{{{target}}}:");
        Self(PARTS.map(|part| [&stem, part].concat()))
    }

    /// All ten, in order.
    pub fn all(&self) -> &[String; 10] {
        &self.0
    }

    /// The last number given. A target without this key has no queue.
    pub fn seq(&self) -> &str {
        &self.0[3]
    }

    /// The operator's overrides.
    pub fn settings(&self) -> &str {
        &self.0[9]
    }
}

/// The hash tag of all keys of a target.
pub fn tag(target: QueueTarget) -> String {
    format!("{{{target}}}")
}

/// The tick lock of a target.
pub fn tick_lock(target: QueueTarget) -> String {
    format!("queue:admission:{{{target}}}")
}

/// The key that a probe writes. `whose`: the process, and in a Cluster the master.
pub fn probe(whose: &str) -> String {
    format!("queue:probe:{whose}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::QueueTargetType;

    #[test]
    fn keys_stand_in_the_order_in_which_the_scripts_take_them() {
        let target = QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap();
        let keys = TargetKeys::of(target);
        let include = include_str!("../../redis-scripts/includes/target.lua");
        for (at, key) in keys.all().iter().enumerate() {
            let part = key.strip_prefix("queue:{LIMITED_DROP:42}:").unwrap();
            let line = include.lines().find_map(|line| {
                line.strip_prefix("-- ")?.trim_start_matches("KEYS").trim().strip_prefix(&format!("{} ", at + 1))
            });
            assert!(line.unwrap().starts_with(part), "KEYS {} is {part}: {line:?}", at + 1);
        }
        assert!(keys.seq().ends_with(":seq") && keys.settings().ends_with(":settings"));
        assert_eq!(tick_lock(target), "queue:admission:{LIMITED_DROP:42}");
    }
}
