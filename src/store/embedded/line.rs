//! The line: which person has which number, and how many people are ahead, in O(log n).
//!
//! Numbers only grow, so people are kept in an array in order of arrival. A Fenwick tree counts who is still there. A
//! person who leaves makes a hole. Holes are closed when they fill most of the array, so memory follows the number of
//! people and not the numbers.

use crate::domain::UserId;

/// Holes are closed only in arrays larger than this.
const LEAST: usize = 64;

/// People in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// (number, person; `None`: gone), by number.
    slots: Vec<(u64, Option<UserId>)>,
    /// Fenwick tree over `slots`, from 1: node i counts the people in the `i & -i` slots up to i. Its length minus one
    /// is a power of two, and the number of slots it has room for.
    tree: Vec<usize>,
    people: usize,
}

impl Line {
    /// Adds a person at the end. `number` is greater than any before.
    pub(super) fn push(&mut self, number: u64, user: UserId) {
        debug_assert!(self.slots.last().is_none_or(|(last, _)| *last < number), "numbers only grow");
        if self.slots.len() + 1 >= self.tree.len() {
            self.close_holes();
        }
        self.slots.push((number, Some(user)));
        self.people += 1;
        self.count(self.slots.len(), |n| n + 1);
    }

    /// Removes the person with this number. False: no person has it.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Ok(at) = self.slots.binary_search_by_key(&number, |(n, _)| *n) else { return false };
        if self.slots[at].1.take().is_none() {
            return false;
        }
        self.people -= 1;
        self.count(at + 1, |n| n - 1);
        if self.slots.len() > LEAST && self.people * 4 < self.slots.len() {
            self.close_holes();
        }
        true
    }

    pub(super) fn len(&self) -> u64 {
        self.people as u64
    }

    /// How many people have a number up to this one.
    pub(super) fn count_through(&self, number: u64) -> u64 {
        let mut node = self.slots.partition_point(|(n, _)| *n <= number);
        let mut people = 0;
        while node > 0 {
            people += self.tree[node];
            node &= node - 1;
        }
        people as u64
    }

    /// The first person with a number greater than this one.
    pub(super) fn first_after(&self, number: u64) -> Option<(u64, UserId)> {
        // Descend the tree to the last slot that has at most `before` people in front of it.
        let mut before = self.count_through(number) as usize;
        let mut slot = 0;
        let mut step = self.tree.len().saturating_sub(1);
        while step > 0 {
            if slot + step < self.tree.len() && self.tree[slot + step] <= before {
                slot += step;
                before -= self.tree[slot];
            }
            step /= 2;
        }
        let (number, user) = self.slots.get(slot)?;
        Some((*number, (*user)?))
    }

    /// Applies a change to every node that covers `slot` (from 1).
    fn count(&mut self, slot: usize, change: impl Fn(usize) -> usize) {
        let mut node = slot;
        while node < self.tree.len() {
            self.tree[node] = change(self.tree[node]);
            node += node & node.wrapping_neg();
        }
    }

    /// Rebuilds array and tree, with room for twice the people.
    fn close_holes(&mut self) {
        self.slots.retain(|(_, user)| user.is_some());
        let room = (2 * self.people).next_power_of_two().max(LEAST);
        self.slots.shrink_to(room);
        self.tree = vec![0; room + 1];
        for node in 1..=room {
            self.tree[node] += usize::from(node <= self.people);
            let parent = node + (node & node.wrapping_neg());
            if parent <= room {
                self.tree[parent] += self.tree[node];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn user(id: u64) -> UserId {
        UserId::try_from(id).unwrap()
    }

    proptest! {
        #[test]
        fn the_line_counts_as_a_sorted_map_does(
            steps in prop::collection::vec((any::<bool>(), 1u64..4, any::<prop::sample::Index>()), 1..600)
        ) {
            let (mut line, mut model, mut last) = (Line::default(), BTreeMap::new(), 0);
            for (comes, gap, pick) in steps {
                if comes || model.is_empty() {
                    last += gap;
                    line.push(last, user(last));
                    model.insert(last, user(last));
                } else {
                    let number = *model.keys().nth(pick.index(model.len())).unwrap();
                    prop_assert!(line.remove(number));
                    prop_assert!(!line.remove(number));
                    model.remove(&number);
                }
                prop_assert_eq!(line.len(), model.len() as u64);
                let number = pick.index(last as usize + 2) as u64;
                prop_assert_eq!(line.count_through(number), model.range(..=number).count() as u64);
                prop_assert_eq!(line.first_after(number), model.range(number + 1..).next().map(|(n, u)| (*n, *u)));
            }
        }
    }

    #[test]
    fn memory_follows_the_people_and_not_the_numbers() {
        let mut line = Line::default();
        line.push(1, user(1));
        for number in 2..200_000 {
            line.push(number, user(number));
            if number > 100 {
                line.remove(number - 90);
            }
        }
        assert_eq!(line.count_through(1), 1);
        assert!(line.slots.capacity() <= 1024 && line.tree.len() <= 1025, "{} slots", line.slots.capacity());
    }
}
