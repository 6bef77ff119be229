//! The people who wait: number, place in the line and last poll of each, always all three.

use std::collections::HashMap;

use super::{line::Line, scored::Scored};
use crate::domain::UserId;

#[derive(Debug, Default)]
pub(super) struct Waiting {
    numbers: HashMap<UserId, u64>,
    line: Line,
    /// Last poll in ms.
    heartbeat: Scored,
}

impl Waiting {
    /// Adds a new person at the end, with a number greater than any before.
    pub(super) fn push(&mut self, user: UserId, number: u64, now: u64) {
        self.numbers.insert(user, number);
        self.line.push(number, user);
        self.heartbeat.set(user, now);
    }

    /// Removes a person. False: they do not wait.
    pub(super) fn remove(&mut self, user: UserId) -> bool {
        let Some(number) = self.numbers.remove(&user) else { return false };
        self.line.remove(number);
        self.heartbeat.remove(user);
        true
    }

    pub(super) fn number(&self, user: UserId) -> Option<u64> {
        self.numbers.get(&user).copied()
    }

    /// Notes the poll of a person who waits.
    pub(super) fn polled(&mut self, user: UserId, now: u64) {
        self.heartbeat.set(user, now);
    }

    /// When the person last polled; 0 if they do not wait.
    pub(super) fn last_poll(&self, user: UserId) -> u64 {
        self.heartbeat.get(user).unwrap_or(0)
    }

    /// The `limit` longest silent among those whose last poll was at `since` or before.
    pub(super) fn silent(&self, since: u64, limit: usize) -> Vec<UserId> {
        self.heartbeat.lowest(since, limit)
    }

    pub(super) fn len(&self) -> u64 {
        self.line.len()
    }

    /// How many people wait with a number up to this one.
    pub(super) fn count_through(&self, number: u64) -> u64 {
        self.line.count_through(number)
    }

    /// The first waiting person with a number greater than this one.
    pub(super) fn first_after(&self, number: u64) -> Option<(u64, UserId)> {
        self.line.first_after(number)
    }
}
