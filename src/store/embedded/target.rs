//! All that is kept of one target: the life of its queue, floors, claims of purchases under way, overrides.

use std::collections::HashMap;

use super::{
    life::{Life, Visit},
    rules::InForce,
    scored::Scored,
};
use crate::{
    domain::{QueuePosition, QueueStats, UserId},
    store::{Adopted, Claim, Departure, Overrides, Settled, Settlement, Sweep, Tick},
};

/// A purchase under way.
#[derive(Debug)]
struct Held {
    nonce: String,
    lease_until: u64,
}

#[derive(Debug, Default)]
pub(super) struct Target {
    life: Option<Life>,
    /// A pass that ends at or before its user's floor (s) is spent or revoked. Floors and claims outlive a life: their
    /// passes may still be live, direct ones among them.
    floors: Scored,
    claims: HashMap<UserId, Held>,
    /// When (ms) everything but the overrides is forgotten, unless a person calls before.
    idle_at: Option<u64>,
    pub(super) overrides: Option<Overrides>,
}

impl Target {
    /// Forgets what has been idle for too long. Everything else relies on this being called first.
    pub(super) fn forget_if_idle(&mut self, now: u64) {
        if self.idle_at.is_some_and(|at| now >= at) {
            *self = Self { overrides: self.overrides, ..Self::default() };
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    /// Whether the target can be dropped without loss.
    pub(super) fn is_empty(&self) -> bool {
        self.life.is_none() && self.floors.is_empty() && self.claims.is_empty() && self.overrides.is_none()
    }

    /// Renews the idle time of the target. Only people's calls do this, never ticks.
    fn slide(&mut self, force: &InForce<'_>) {
        self.idle_at = Some(force.now + force.rules.idle_ttl_ms);
    }

    fn floor(&self, user: UserId) -> u64 {
        self.floors.get(user).unwrap_or(0)
    }

    /// `enter.lua`: what was found, and the new place if nothing was found (`None`: the queue is full).
    pub(super) fn enter(&mut self, force: &InForce<'_>, user: UserId) -> (Visit, Option<QueuePosition>) {
        let visit = self.status(force, user);
        if !matches!(visit, Visit::NotInQueue { .. }) || (self.life.is_none() && force.capacity == 0) {
            return (visit, None);
        }
        let life = self.life.get_or_insert_with(|| Life::begin(force.pacing, force.now));
        let place = life.add(force, user);
        if place.is_some() {
            self.slide(force);
        }
        (visit, place)
    }

    /// `status.lua`.
    pub(super) fn status(&mut self, force: &InForce<'_>, user: UserId) -> Visit {
        let floor = self.floor(user);
        let Some(life) = &mut self.life else { return Visit::NotInQueue { expired: false } };
        let visit = life.visit(force, user, floor);
        if !matches!(visit, Visit::NotInQueue { .. }) {
            self.slide(force);
        }
        visit
    }

    /// `leave.lua`.
    pub(super) fn leave(&mut self, force: &InForce<'_>, user: UserId) -> Departure {
        let Some(life) = &mut self.life else { return Departure::WasNotHere };
        if life.waiting.remove(user) {
            life.books.left += 1;
            return Departure::GaveUpPlace;
        }
        // The sweep counts a pass that has ended.
        let Some(expires_at) = life.passes.get(user).filter(|at| *at > force.now_s()) else {
            return Departure::WasNotHere;
        };
        life.passes.remove(user);
        life.books.revoked += 1;
        // Covers every pass this person was given so far, direct ones included.
        let all_so_far = force.now_s() + force.rules.token_ttl_seconds;
        self.floors.set(user, self.floor(user).max(expires_at).max(all_so_far));
        self.slide(force);
        Departure::GaveUpPass
    }

    /// `purchase.lua`, a check.
    pub(super) fn check(&self, force: &InForce<'_>, user: UserId, expires_at: u64) -> Claim {
        if expires_at <= self.floor(user) {
            Claim::Spent
        } else if expires_at <= force.now_s() {
            Claim::Expired
        } else {
            Claim::Granted
        }
    }

    /// `purchase.lua`, a claim.
    pub(super) fn claim(&mut self, force: &InForce<'_>, user: UserId, expires_at: u64, nonce: &str) -> Claim {
        let checked = self.check(force, user, expires_at);
        if checked != Claim::Granted {
            return checked;
        }
        if self.claims.get(&user).is_some_and(|held| held.nonce != nonce && held.lease_until > force.now) {
            return Claim::InUse;
        }
        let held = Held { nonce: nonce.to_owned(), lease_until: force.now + force.rules.lease_ms };
        self.claims.insert(user, held);
        self.slide(force);
        Claim::Granted
    }

    /// `purchase.lua`, a settlement.
    pub(super) fn settle(
        &mut self,
        force: &InForce<'_>,
        user: UserId,
        expires_at: u64,
        nonce: &str,
        how: Settlement,
    ) -> Settled {
        if self.claims.get(&user).is_some_and(|held| held.nonce == nonce) {
            self.claims.remove(&user);
        }
        if how != Settlement::Spent || expires_at <= self.floor(user) {
            return Settled::Nothing;
        }
        let floor = expires_at.max(force.now_s() + force.rules.token_ttl_seconds);
        self.floors.set(user, floor);
        self.slide(force);
        let Some(life) = &mut self.life else { return Settled::Nothing };
        if life.passes.get(user).is_some_and(|pass| pass <= floor) {
            life.passes.remove(user);
            life.books.consumed += 1;
            Settled::Consumed
        } else if expires_at > force.now_s() {
            life.books.direct_consumed += 1;
            Settled::DirectConsumed
        } else {
            Settled::Nothing
        }
    }

    /// `purchase.lua`, a purchase without a pass, `ago_ms` ago.
    pub(super) fn spend_all(&mut self, force: &InForce<'_>, user: UserId, ago_ms: u64) -> Settled {
        let sold_s = force.now.saturating_sub(ago_ms) / 1000;
        let pass = self.life.as_ref().and_then(|life| life.passes.get(user));
        let given_until = sold_s + force.rules.token_ttl_seconds;
        let floor = pass.filter(|_| ago_ms == 0).map_or(given_until, |pass| pass.max(given_until));
        if floor <= self.floor(user) {
            return Settled::Nothing;
        }
        self.floors.set(user, floor);
        self.slide(force);
        match &mut self.life {
            Some(life) if pass.is_some_and(|pass| sold_s < pass && pass <= floor) => {
                life.passes.remove(user);
                life.books.consumed += 1;
                Settled::Consumed
            }
            _ => Settled::Nothing,
        }
    }

    /// `stats.lua`.
    pub(super) fn stats(&self, force: &InForce<'_>) -> QueueStats {
        match &self.life {
            Some(life) => life.stats(force),
            None => QueueStats::unused(force.capacity, force.pacing, force.paused),
        }
    }

    /// `direct.lua`.
    pub(super) fn count_direct(&mut self, passes: u64) {
        if let Some(life) = &mut self.life {
            life.books.direct += passes;
        }
    }

    /// `adopt.lua`.
    pub(super) fn adopt(&mut self, force: &InForce<'_>, passes: &[(UserId, u64)]) -> Adopted {
        let mut all = Adopted::default();
        let mut found = false;
        let Some(life) = &mut self.life else { return all };
        for (user, expires_at) in passes.iter().copied() {
            let ended = expires_at <= force.now_s() || expires_at <= self.floors.get(user).unwrap_or(0);
            let (had_place, adopted) = life.adopt(force, user, (!ended).then_some(expires_at));
            found |= had_place || !ended;
            all.issued += adopted.issued;
            all.expired += adopted.expired;
            all.left += adopted.left;
        }
        if found {
            self.slide(force);
        }
        all
    }

    /// `evict.lua`.
    pub(super) fn sweep(&mut self, force: &InForce<'_>, may_evict: u64) -> Sweep {
        let Some(life) = &mut self.life else { return Sweep { gone: true, ..Sweep::default() } };
        let sweep = life.sweep(force, may_evict);
        // A floor in the past refuses only passes that have ended anyway. The clock may go back by the life of a pass.
        let long_over = force.now_s().saturating_sub(force.rules.token_ttl_seconds);
        for user in self.floors.lowest(long_over, super::tick::SWEEP_CHUNK) {
            self.floors.remove(user);
        }
        // Few claims remain: a claim ends with its call, unless the call died.
        self.claims.retain(|_, held| held.lease_until > force.now);
        sweep
    }

    /// `admit.lua`.
    pub(super) fn advance(&mut self, force: &InForce<'_>, may_evict: u64) -> Tick {
        match &mut self.life {
            Some(life) => life.advance(force, may_evict),
            None => Tick::Gone,
        }
    }
}
