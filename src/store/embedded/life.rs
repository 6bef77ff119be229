//! One life of a queue: from the first entry until it has been idle. This file has people's calls; ticks are in
//! [`super::tick`].
//!
//! Each function does what the script of the same name does on Redis. `redis-scripts/` explains the rules; here are
//! only the reasons that apply to memory and not to Redis.

use std::collections::{BTreeMap, VecDeque};

use super::{rules::InForce, scored::Scored, waiting::Waiting};
use crate::{
    domain::{Pacing, QueuePosition, QueueStats, UserId, WAIT_UNIT_MS, WaitHistogram},
    store::Adopted,
};

/// The time span of the admission rate.
pub(super) const RATE_WINDOW_MS: u64 = 60_000;

/// What a call found about a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// Neither place nor pass. `expired`: a pass had ended and is now counted.
    NotInQueue {
        expired: bool,
    },
    Waiting(QueuePosition),
    /// The pass was issued in this call. The wait is unknown if the entry time is unknown.
    Issued {
        expires_at: u64,
        wait_ms: Option<u64>,
    },
    /// The pass issued before.
    LivePass {
        expires_at: u64,
    },
}

/// The counters of one life (`docs/design.md`, invariant 6). Each moves only if a removal really removed a person.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) entered: u64,
    pub(super) issued: u64,
    pub(super) left: u64,
    pub(super) evicted: u64,
    pub(super) consumed: u64,
    pub(super) expired: u64,
    pub(super) revoked: u64,
    pub(super) direct: u64,
    pub(super) direct_consumed: u64,
    pub(super) admitted: u64,
    pub(super) waits: WaitHistogram,
}

#[derive(Debug)]
pub(super) struct Life {
    pub(super) waiting: Waiting,
    /// Live passes: the expiry of each, in seconds.
    pub(super) passes: Scored,
    /// The last number given.
    pub(super) last_number: u64,
    /// Numbers up to here are admitted.
    pub(super) mark: u64,
    /// Sparse entry times: number → ms.
    pub(super) entry_times: BTreeMap<u64, u64>,
    marked_at: Option<u64>,
    pub(super) books: Books,
    born: u64,
    /// No batch goes before this time.
    pub(super) next_allowed: u64,
    /// The tick that the last batch paid for, ms.
    pub(super) tick_paid: u64,
    /// Time of the last tick or sweep.
    pub(super) pulse: u64,
    /// No person counts as silent before this time.
    pub(super) grace_until: u64,
    /// (ms, people) of the batches of the last minute.
    pub(super) recent: VecDeque<(u64, u64)>,
}

impl Life {
    /// A life that begins now. The first batch goes one tick later.
    pub(super) fn begin(pacing: Pacing, now: u64) -> Self {
        Self {
            waiting: Waiting::default(),
            passes: Scored::default(),
            last_number: 0,
            mark: 0,
            entry_times: BTreeMap::new(),
            marked_at: None,
            books: Books::default(),
            born: now,
            next_allowed: now + pacing.tick_ms,
            tick_paid: pacing.tick_ms,
            pulse: now,
            grace_until: 0,
            recent: VecDeque::new(),
        }
    }

    /// One person's call: reads, decides and updates in one step. `floor`: their passes up to it are spent or revoked.
    pub(super) fn visit(&mut self, force: &InForce<'_>, user: UserId, floor: u64) -> Visit {
        self.start_over_on_another_clock(force);
        if let Some(number) = self.waiting.number(user) {
            if QueuePosition::is_admitted(number, self.mark) {
                return self.issue(force, user, number, floor);
            }
            self.waiting.polled(user, force.now);
            return Visit::Waiting(self.position(force, number));
        }
        match self.passes.get(user) {
            Some(expires_at) if expires_at > force.now_s() => Visit::LivePass { expires_at },
            Some(_) => {
                self.passes.remove(user);
                self.books.expired += 1;
                Visit::NotInQueue { expired: true }
            }
            None => Visit::NotInQueue { expired: false },
        }
    }

    /// Gives the next number, at the end of the queue. `None`: the queue is full.
    pub(super) fn add(&mut self, force: &InForce<'_>, user: UserId) -> Option<QueuePosition> {
        if self.waiting.len() >= force.capacity {
            return None;
        }
        self.last_number += 1;
        self.note_entry(self.last_number, force.now);
        self.waiting.push(user, self.last_number, force.now);
        self.books.entered += 1;
        Some(self.position(force, self.last_number))
    }

    /// Moves an admitted person from the queue to the passes.
    fn issue(&mut self, force: &InForce<'_>, user: UserId, number: u64, floor: u64) -> Visit {
        self.waiting.remove(user);
        let expires_at = (force.now_s() + force.rules.token_ttl_seconds).max(floor + 1);
        self.passes.set(user, expires_at);
        self.books.issued += 1;
        let wait_ms = self.entry_times.range(..=number).next_back().map(|(_, entry)| force.now.saturating_sub(*entry));
        if let Some(wait_ms) = wait_ms {
            self.books.waits.record(wait_ms);
        }
        Visit::Issued { expires_at, wait_ms }
    }

    /// Takes over one person with a direct pass; `None`: the pass has ended. Returns whether they had a place.
    pub(super) fn adopt(&mut self, force: &InForce<'_>, user: UserId, pass: Option<u64>) -> (bool, Adopted) {
        let had_place = self.waiting.remove(user);
        let mut adopted = Adopted::default();
        match (pass, self.passes.get(user)) {
            (None, _) => adopted.left = had_place.into(),
            (Some(expires_at), Some(live)) if live > force.now_s() => self.passes.set(user, expires_at.max(live)),
            (Some(expires_at), over) => {
                adopted.expired = over.is_some().into();
                adopted.issued = 1;
                self.passes.set(user, expires_at);
                self.books.entered += u64::from(!had_place);
            }
        }
        self.books.left += adopted.left;
        self.books.expired += adopted.expired;
        self.books.issued += adopted.issued;
        (had_place, adopted)
    }

    /// Notes an entry time at most every half second, and when the clock went back.
    fn note_entry(&mut self, number: u64, now: u64) {
        if self.marked_at.is_some_and(|at| now >= at && now - at < WAIT_UNIT_MS) {
            return;
        }
        self.marked_at = Some(now);
        self.entry_times.insert(number, now);
    }

    /// The place of a person beyond the mark. Admitted people who have not polled yet are no longer ahead.
    fn position(&self, force: &InForce<'_>, number: u64) -> QueuePosition {
        QueuePosition {
            seq: number,
            ahead: self.waiting.count_through(number - 1) - self.waiting.count_through(self.mark),
            pacing: force.pacing,
            next_tick_in_ms: self.next_allowed.saturating_sub(force.now),
            paused: force.paused,
            moving: self.room(force) > 0,
        }
    }

    /// A `next_allowed` further ahead than the paid tick comes from another clock: the paid tick starts over.
    pub(super) fn start_over_on_another_clock(&mut self, force: &InForce<'_>) {
        self.next_allowed = self.next_allowed.min(force.now + self.tick_paid);
    }

    /// How many more people may be inside. Admitted people who have not polled yet count as inside.
    pub(super) fn room(&self, force: &InForce<'_>) -> u64 {
        match force.max_active {
            _ if force.paused => 0,
            None => force.pacing.batch,
            Some(max_active) => {
                let inside = self.live_passes(force) + self.waiting.count_through(self.mark);
                max_active.saturating_sub(inside).min(force.pacing.batch)
            }
        }
    }

    /// Passes that have not ended. Few have ended and are not swept yet, so those are counted and subtracted.
    fn live_passes(&self, force: &InForce<'_>) -> u64 {
        self.passes.len() - self.passes.count_through(force.now_s())
    }

    pub(super) fn stats(&self, force: &InForce<'_>) -> QueueStats {
        let live = self.live_passes(force);
        let in_window: u64 = self.recent_batches(force.now).map(|(_, people)| people).sum();
        let window_ms = force.now.saturating_sub(self.born).max(force.pacing.tick_ms).min(RATE_WINDOW_MS);
        QueueStats {
            entered: self.books.entered,
            waiting: self.waiting.len(),
            issued: self.books.issued,
            left: self.books.left,
            evicted: self.books.evicted,
            live,
            consumed: self.books.consumed,
            // Passes that have ended and are not swept yet count as expired.
            expired: self.books.expired + self.passes.len() - live,
            revoked: self.books.revoked,
            direct: self.books.direct,
            direct_consumed: self.books.direct_consumed,
            admitted: self.books.admitted,
            admitted_through: self.mark,
            last_number: self.last_number,
            admission_rate_per_sec: in_window as f64 * 1000.0 / window_ms.max(1) as f64,
            waits: self.books.waits.clone(),
            capacity: force.capacity,
            pacing: force.pacing,
            paused: force.paused,
        }
    }

    /// The batches that count for the rate.
    pub(super) fn recent_batches(&self, now: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.recent.iter().copied().filter(move |(at, _)| at + RATE_WINDOW_MS > now && *at <= now)
    }
}
