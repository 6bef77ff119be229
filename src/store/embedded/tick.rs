//! What ticks do: the sweep before the batch, and the batch (`evict.lua`, `admit.lua`, `includes/silence.lua`).

use std::time::Duration;

use super::{life::Life, rules::InForce};
use crate::store::{Sweep, Tick};

/// A sweep removes at most this many of each kind.
pub(super) const SWEEP_CHUNK: usize = 250;
/// If more people than this are silent, a batch looks at a limited number of people (`admit.lua`).
const FEW: usize = 250;
const MOST_LOOKED_AT: usize = 1250;

impl Life {
    /// The latest poll (ms) that counts as silence; `None` while no person counts as silent. Only this function decides
    /// it. Time in which nobody could poll does not count (`docs/design.md`, invariant 7).
    fn silent_since(&mut self, force: &InForce<'_>) -> Option<u64> {
        let silent_after = force.rules.silent_after_ms;
        let limit = (3 * force.pacing.tick_ms).min(silent_after / 3);
        if self.pulse > force.now || force.now - self.pulse > limit {
            self.grace_until = force.now + silent_after;
        }
        self.pulse = force.now;
        if force.now < self.grace_until { None } else { force.now.checked_sub(silent_after) }
    }

    /// Evicts silent people, and counts passes that have ended.
    pub(super) fn sweep(&mut self, force: &InForce<'_>, may_evict: u64) -> Sweep {
        let silent = match self.silent_since(force) {
            Some(since) => self.waiting.silent(since, SWEEP_CHUNK.min(may_evict as usize)),
            None => Vec::new(),
        };
        let evicted = silent.iter().filter(|user| self.waiting.remove(**user)).count() as u64;
        self.books.evicted += evicted;

        let over = self.passes.lowest(force.now_s(), SWEEP_CHUNK);
        let expired = over.iter().filter(|user| self.passes.remove(**user)).count() as u64;
        self.books.expired += expired;

        self.forget_old_entry_times();
        Sweep { gone: false, evicted, expired, more: silent.len() == SWEEP_CHUNK || over.len() == SWEEP_CHUNK }
    }

    /// Removes entry times that no waiting person needs.
    fn forget_old_entry_times(&mut self) {
        let oldest = self.waiting.first_after(0).map_or(self.last_number, |(number, _)| number);
        if let Some(needed) = self.entry_times.range(..=oldest).next_back().map(|(number, _)| *number) {
            self.entry_times = self.entry_times.split_off(&needed);
        }
    }

    /// Moves the mark past the next batch of people who are there, if a batch is due. Only this function guarantees at
    /// most one batch in any window of one tick (`docs/design.md`, invariant 2).
    pub(super) fn advance(&mut self, force: &InForce<'_>, may_evict: u64) -> Tick {
        let since = self.silent_since(force);
        self.start_over_on_another_clock(force);
        let (now, tick_ms) = (force.now, force.pacing.tick_ms);
        if now < self.next_allowed {
            return Tick::NotYet(Duration::from_millis(self.next_allowed - now));
        }
        if force.paused {
            self.next_allowed = now;
            return Tick::NotYet(Duration::from_millis(tick_ms));
        }
        let (in_window, wait_ms) = self.within_our_tick(force);
        if in_window > 0 && in_window >= force.pacing.batch {
            return Tick::NotYet(Duration::from_millis(wait_ms));
        }
        let late = Duration::from_millis(now - self.next_allowed);
        (self.next_allowed, self.tick_paid) = (now + tick_ms, tick_ms);

        let size = self.room(force).min(force.pacing.batch - in_window);
        let (mut people, mut evicted) = (0, 0);
        let many_are_silent = since.is_some_and(|since| self.waiting.silent(since, FEW + 1).len() > FEW);
        let mut left_to_look_at = if many_are_silent { MOST_LOOKED_AT } else { usize::MAX };
        while people < size && left_to_look_at > 0 {
            left_to_look_at -= 1;
            let Some((number, user)) = self.waiting.first_after(self.mark) else { break };
            if since.is_none_or(|since| self.waiting.last_poll(user) > since) {
                people += 1;
            } else if evicted < may_evict {
                self.waiting.remove(user);
                evicted += 1;
            } else {
                // The person is neither counted nor evicted: the mark stops before them.
                break;
            }
            self.mark = number;
        }
        self.books.evicted += evicted;
        self.books.admitted += people;
        if people > 0 {
            self.recent = self.recent_batches(now).chain([(now, people)]).collect();
        }
        Tick::Moved { people, evicted, next_in: Duration::from_millis(tick_ms), late }
    }

    /// For earlier batches within the present tick, which paid for a shorter one: their people, and the time until the
    /// first of them is out of it.
    fn within_our_tick(&self, force: &InForce<'_>) -> (u64, u64) {
        let tick_ms = force.pacing.tick_ms;
        if self.tick_paid >= tick_ms {
            return (0, tick_ms);
        }
        let ours = self.recent_batches(force.now).filter(|(at, _)| force.now - at < tick_ms);
        ours.fold((0, tick_ms), |(people, wait), (at, more)| (people + more, wait.min(tick_ms - (force.now - at))))
    }
}
