//! People with a score each, in order, like a Redis sorted set in the scripts.
//!
//! If only some of the lowest are taken, the order among equal scores matters. Redis compares members as texts, so `10`
//! comes before `9`. This type does the same, because tests require the same answers from both stores.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
};

use crate::domain::UserId;

/// People with a score each, ordered by score, then by the text of the id.
#[derive(Debug, Default)]
pub(super) struct Scored {
    scores: HashMap<UserId, u64>,
    order: BTreeSet<(u64, ByText)>,
}

impl Scored {
    pub(super) fn set(&mut self, user: UserId, score: u64) {
        if let Some(before) = self.scores.insert(user, score) {
            self.order.remove(&(before, ByText(user)));
        }
        self.order.insert((score, ByText(user)));
    }

    /// Removes a person. False: they were not here.
    pub(super) fn remove(&mut self, user: UserId) -> bool {
        match self.scores.remove(&user) {
            Some(score) => self.order.remove(&(score, ByText(user))),
            None => false,
        }
    }

    pub(super) fn get(&self, user: UserId) -> Option<u64> {
        self.scores.get(&user).copied()
    }

    pub(super) fn len(&self) -> u64 {
        self.order.len() as u64
    }

    /// How many people have at most this score. Takes as many steps as the answer: for scores that a sweep keeps few.
    pub(super) fn count_through(&self, score: u64) -> u64 {
        self.through(score).count() as u64
    }

    /// The lowest `limit` among those with at most this score.
    pub(super) fn lowest(&self, score: u64, limit: usize) -> Vec<UserId> {
        self.through(score).take(limit).collect()
    }

    fn through(&self, score: u64) -> impl Iterator<Item = UserId> + '_ {
        self.order.iter().take_while(move |(s, _)| *s <= score).map(|(_, ByText(user))| *user)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// A user id in the order of its decimal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByText(UserId);

impl ByText {
    /// The digits shifted to the left of 19 places, and their number: `9` comes after `10`, and `1` before it.
    fn key(self) -> (u64, u32) {
        let digits = self.0.get().ilog10() + 1;
        (self.0.get() * 10u64.pow(19 - digits), digits)
    }
}

impl Ord for ByText {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for ByText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::MAX_ID;

    fn user(id: u64) -> UserId {
        UserId::try_from(id).unwrap()
    }

    #[test]
    fn ids_are_ordered_as_their_texts_are() {
        let ids = [1, 2, 9, 10, 11, 19, 90, 99, 100, 109, 1_000_000, 999_999, MAX_ID, MAX_ID - 1, MAX_ID / 10];
        for a in ids {
            for b in ids {
                assert_eq!(ByText(user(a)).cmp(&ByText(user(b))), a.to_string().cmp(&b.to_string()), "{a} against {b}");
            }
        }
    }

    #[test]
    fn the_lowest_are_taken_first_and_equals_by_text() {
        let mut scored = Scored::default();
        for (id, score) in [(9, 5), (10, 5), (3, 4), (7, 6), (1, 9)] {
            scored.set(user(id), score);
        }
        scored.set(user(1), 1);
        assert_eq!(scored.lowest(5, 3), [user(1), user(3), user(10)]);
        assert_eq!(scored.count_through(5), 4);
        assert!(scored.remove(user(3)) && !scored.remove(user(3)));
        assert_eq!((scored.len(), scored.get(user(3)), scored.get(user(1))), (4, None, Some(1)));
    }
}
