//! The 16384 slots of a Cluster, and the slot of each key.

use crc::{CRC_16_XMODEM, Crc, Table};

const CRC: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_XMODEM);

/// The number of slots.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: that of its hash tag, if it has one.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    CRC.checksum(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// The keys that a master owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlotRanges {
    /// Every key: there is no Cluster.
    All,
    /// The keys in these slots, first and last of each range.
    Slots(Vec<(u16, u16)>),
}

impl SlotRanges {
    /// Whether the master owns no slots: slots may be moving to it.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Slots(ranges) if ranges.is_empty())
    }

    /// A hash tag that puts a key into one of these slots, a random one each time.
    pub(super) fn a_tag(&self) -> Option<String> {
        let Self::Slots(ranges) = self else { return None };
        let count: u32 = ranges.iter().map(|(first, last)| u32::from(last - first) + 1).sum();
        let mut nth = rand::random_range(0..count.max(1));
        let wanted = ranges.iter().find_map(|(first, last)| {
            let length = u32::from(last - first) + 1;
            if nth < length {
                return Some(u32::from(*first) + nth);
            }
            nth -= length;
            None
        })?;
        // One number in 16384 fits, so this ends soon.
        (0_u32..).map(|number| format!("{{{number}}}")).find(|tag| u32::from(slot_of(tag)) == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As CLUSTER KEYSLOT replies.
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("queue:{foo}:seq", 12_182),
            ("{foo}{bar}", 12_182),
            ("foo{}{bar}", slot_of("foo{}{bar}")),
            ("", 0),
        ] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_ne!(slot_of("foo{}{bar}"), slot_of("bar"), "an empty tag is none");
    }

    #[test]
    fn a_tag_leads_into_a_slot_that_belongs_to_the_master() {
        let owned = SlotRanges::Slots(vec![(5, 5), (16_382, 16_383)]);
        for _ in 0..10 {
            let slot = slot_of(&format!("queue:probe:{}:x", owned.a_tag().unwrap()));
            assert!([5, 16_382, 16_383].contains(&slot), "{slot}");
        }
        assert_eq!((SlotRanges::All.a_tag(), SlotRanges::Slots(Vec::new()).a_tag()), (None, None));
    }
}
