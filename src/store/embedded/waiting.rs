//! Who waits: number, place in the line and last poll of each, never one without the others.

use std::collections::HashMap;

use super::{line::Line, scored::Scored};
use crate::domain::UserId;

/// The people who wait for one target.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    numbers: HashMap<UserId, u64>,
    line: Line,
    /// Last poll in ms.
    heartbeat: Scored,
}

impl Waiting {
    /// Puts somebody new at the back, with a number greater than any before.
    pub(super) fn push(&mut self, user: UserId, number: u64, now: u64) {
        self.numbers.insert(user, number);
        self.line.push(number, user);
        self.heartbeat.set(user, now);
    }

    /// Takes somebody out. False: they do not wait.
    pub(super) fn remove(&mut self, user: UserId) -> bool {
        let Some(number) = self.numbers.remove(&user) else { return false };
        self.line.remove(number);
        self.heartbeat.remove(user);
        true
    }

    /// Somebody's number.
    pub(super) fn number(&self, user: UserId) -> Option<u64> {
        self.numbers.get(&user).copied()
    }

    /// Somebody who waits has polled.
    pub(super) fn polled(&mut self, user: UserId, now: u64) {
        self.heartbeat.set(user, now);
    }

    /// When somebody polled last; 0 if they do not wait.
    pub(super) fn last_poll(&self, user: UserId) -> u64 {
        self.heartbeat.get(user).unwrap_or(0)
    }

    /// The `limit` longest silent among those whose last poll was at `since` or before.
    pub(super) fn silent(&self, since: u64, limit: usize) -> Vec<UserId> {
        self.heartbeat.lowest(since, limit)
    }

    /// How many wait.
    pub(super) fn len(&self) -> u64 {
        self.line.len()
    }

    /// How many wait with a number up to this one.
    pub(super) fn count_through(&self, number: u64) -> u64 {
        self.line.count_through(number)
    }

    /// The first who waits with a number beyond this one.
    pub(super) fn first_after(&self, number: u64) -> Option<(u64, UserId)> {
        self.line.first_after(number)
    }
}
