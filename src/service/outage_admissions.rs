//! People whom this replica admitted while the store was unavailable.
//!
//! They are remembered so that asking again gives the same pass, and so that the store can take them over later
//! (`adopt.lua`). Beyond the limit the open policy admits but does not remember; the throttled policy does not admit.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::domain::{QueueTarget, UserId};

/// Most people remembered: about 10 MB.
pub(super) const MOST_PEOPLE: usize = 200_000;

/// How a person is admitted without the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Admitted before, with the pass that ends at this time (s).
    Again(u64),
    /// Admitted for the first time, or again because the earlier pass has ended.
    New {
        /// Whether the next call finds them, and the store will take them over.
        remembered: bool,
    },
    /// Not admitted now.
    NotNow,
}

/// The people admitted, each with the expiry (s) of their newest pass.
#[derive(Debug)]
pub(super) struct OutageAdmissions {
    people: Mutex<People>,
    most_people: usize,
    /// Limit for targets that are not known to have a queue: anyone can ask for any id.
    most_targets: usize,
}

#[derive(Debug, Default)]
struct People {
    targets: HashMap<QueueTarget, HashMap<UserId, u64>>,
    count: usize,
}

impl OutageAdmissions {
    pub(super) fn new(most_people: usize, most_targets: u64) -> Self {
        let most_targets = usize::try_from(most_targets).unwrap_or(usize::MAX);
        Self { people: Mutex::default(), most_people, most_targets }
    }

    /// Open policy: admits everyone, also if there is no room to remember them. `known`: the target is known to have a
    /// queue.
    pub(super) fn admit(&self, target: QueueTarget, known: bool, user: UserId, expires_at: u64, now: u64) -> Admission {
        let mut people = self.lock();
        match people.live(target, user, now) {
            Some(live) => Admission::Again(live),
            None => Admission::New { remembered: self.remember(&mut people, target, known, user, expires_at) },
        }
    }

    /// Throttled policy: a new person needs a slot, and room to be remembered: else they would take a slot each time.
    pub(super) fn admit_throttled(
        &self,
        target: QueueTarget,
        known: bool,
        user: UserId,
        (expires_at, now): (u64, u64),
        take_slot: impl FnOnce() -> bool,
    ) -> Admission {
        let mut people = self.lock();
        if let Some(live) = people.live(target, user, now) {
            return Admission::Again(live);
        }
        if !self.has_room(&people, target, known, user) || !take_slot() {
            return Admission::NotNow;
        }
        Admission::New { remembered: self.remember(&mut people, target, known, user, expires_at) }
    }

    /// The person gave up place or pass, and the store knows it.
    pub(super) fn forget(&self, target: QueueTarget, user: UserId) {
        let mut people = self.lock();
        if people.targets.get_mut(&target).is_some_and(|those| those.remove(&user).is_some()) {
            people.count -= 1;
        }
    }

    /// The targets with remembered people that `which` selects.
    pub(super) fn targets(&self, which: impl Fn(QueueTarget) -> bool) -> Vec<QueueTarget> {
        self.lock().targets.keys().copied().filter(|target| which(*target)).collect()
    }

    /// Takes out all people of this target; they are then forgotten here.
    pub(super) fn take(&self, target: QueueTarget) -> Taken<'_> {
        let mut people = self.lock();
        let those: Vec<_> = people.targets.remove(&target).unwrap_or_default().into_iter().collect();
        people.count -= those.len();
        Taken { memory: self, target, people: those }
    }

    /// Remembers again what could not be handed over. A pass given in the meantime is newer and stays.
    fn put_back(&self, target: QueueTarget, those: &[(UserId, u64)]) {
        let mut people = self.lock();
        for (user, expires_at) in those.iter().copied() {
            let newer = people.targets.get(&target).is_some_and(|known| known.contains_key(&user));
            if !newer {
                self.remember(&mut people, target, true, user, expires_at);
            }
        }
    }

    fn has_room(&self, people: &People, target: QueueTarget, known: bool, user: UserId) -> bool {
        match people.targets.get(&target) {
            Some(those) if those.contains_key(&user) => true,
            Some(_) => people.count < self.most_people,
            None => people.count < self.most_people && (known || people.targets.len() < self.most_targets),
        }
    }

    fn remember(&self, people: &mut People, target: QueueTarget, known: bool, user: UserId, expires_at: u64) -> bool {
        if !self.has_room(people, target, known, user) {
            return false;
        }
        if people.targets.entry(target).or_default().insert(user, expires_at).is_none() {
            people.count += 1;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, People> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// People of one target on their way to the store. On drop, those still in it are remembered again.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    memory: &'a OutageAdmissions,
    target: QueueTarget,
    people: Vec<(UserId, u64)>,
}

impl Taken<'_> {
    pub(super) fn target(&self) -> QueueTarget {
        self.target
    }

    pub(super) fn count(&self) -> usize {
        self.people.len()
    }

    /// Some of them, at most `most`.
    pub(super) fn some(&self, most: usize) -> Option<&[(UserId, u64)]> {
        self.people.rchunks(most).next()
    }

    /// Removes these [`Self::some`]: the store has them.
    pub(super) fn done(&mut self, most: usize) {
        self.people.truncate(self.people.len().saturating_sub(most));
    }

    /// Removes people whose pass has ended at `now`, so that they are not remembered again.
    pub(super) fn forget_expired(&mut self, now: u64) {
        self.people.retain(|(_, expires_at)| *expires_at > now);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.people.is_empty() {
            self.memory.put_back(self.target, &self.people);
        }
    }
}

impl People {
    fn live(&self, target: QueueTarget, user: UserId, now: u64) -> Option<u64> {
        self.targets.get(&target)?.get(&user).copied().filter(|expires_at| *expires_at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::QueueTargetType;

    fn target(id: u64) -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, id).unwrap()
    }

    fn user(id: u64) -> UserId {
        UserId::try_from(id).unwrap()
    }

    /// Takes all people of a target.
    fn taken(through: &OutageAdmissions, id: u64) -> Vec<(UserId, u64)> {
        std::mem::take(&mut through.take(target(id)).people)
    }

    const REMEMBERED: Admission = Admission::New { remembered: true };
    const FORGOTTEN: Admission = Admission::New { remembered: false };

    #[test]
    fn beyond_the_bound_open_admits_people_and_throttle_does_not() {
        let through = OutageAdmissions::new(2, 10);
        assert_eq!(through.admit(target(1), true, user(1), 300, 0), REMEMBERED);
        assert_eq!(through.admit(target(2), true, user(1), 300, 0), REMEMBERED, "each target for itself");
        assert_eq!(through.admit(target(1), true, user(2), 300, 0), FORGOTTEN);
        let slot = || panic!("nobody may take a slot who could not be remembered");
        assert_eq!(through.admit_throttled(target(1), true, user(2), (300, 0), slot), Admission::NotNow);
        assert_eq!(through.admit(target(1), true, user(1), 360, 299), Admission::Again(300));
        assert_eq!(through.admit(target(1), true, user(1), 600, 300), REMEMBERED, "anew, in the same room");
        through.forget(target(1), user(1));
        through.forget(target(1), user(1));
        assert_eq!(through.admit_throttled(target(1), true, user(2), (300, 0), || true), REMEMBERED);
        taken(&through, 2);
        assert_eq!(through.admit(target(2), true, user(1), 300, 0), REMEMBERED, "there is room again");
        assert_eq!(through.targets(|_| true).len(), 2);
        assert_eq!((taken(&through, 1).len(), taken(&through, 2).len()), (1, 1));
        assert_eq!(through.targets(|_| true).len(), 0);
    }

    #[test]
    fn made_up_targets_take_no_room_from_those_that_have_a_queue() {
        let through = OutageAdmissions::new(100, 3);
        for id in 1..=10 {
            let expected = if id <= 3 { REMEMBERED } else { FORGOTTEN };
            assert_eq!(through.admit(target(id), false, user(1), 300, 0), expected);
        }
        assert_eq!(through.admit(target(42), true, user(1), 300, 0), REMEMBERED);
    }

    #[test]
    fn who_is_not_handed_over_is_remembered_unless_there_is_a_newer_pass() {
        let through = OutageAdmissions::new(100, 3);
        for id in 1..=3 {
            through.admit(target(1), true, user(id), 300, 0);
        }
        let mut on_the_way = through.take(target(1));
        through.admit(target(1), true, user(1), 360, 60);
        let handed_over = on_the_way.some(1).unwrap()[0].0;
        on_the_way.done(1);
        drop(on_the_way);
        let mut all = taken(&through, 1);
        all.sort_unstable_by_key(|(user, _)| user.get());
        let expected = [(user(1), 360), (user(2), 300), (user(3), 300)];
        let still_there = |(who, until): &(UserId, u64)| *who != handed_over || *until == 360;
        assert_eq!(all, expected.into_iter().filter(still_there).collect::<Vec<_>>());
    }

    #[test]
    fn who_has_had_the_turn_can_be_forgotten() {
        let through = OutageAdmissions::new(100, 3);
        through.admit(target(1), true, user(1), 300, 0);
        through.admit(target(1), true, user(2), 360, 0);
        through.take(target(1)).forget_expired(300);
        assert_eq!(taken(&through, 1), [(user(2), 360)]);
    }
}
