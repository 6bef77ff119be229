//! Watches one target's answers for the rules of `docs/design.md`, without knowing how a store works.

use std::collections::HashMap;

use proptest::{prelude::*, test_runner::TestCaseError};
use virtual_queue::{
    domain::QueueStats,
    store::{Adopted, Claim, Departure, Place, QueueRules, Settled, Settlement, Tick, embedded::Overrides},
};

use super::calls::{Answer, Call};

/// What one person was told.
#[derive(Debug, Default)]
struct Person {
    /// The number, while it may still be theirs.
    number: Option<u64>,
    /// Every pass of theirs that was ever seen, direct ones they tried included, in the order of their appearance.
    passes: Vec<u64>,
    /// The pass last told, while it may still be live.
    live: Option<u64>,
    /// Their passes up to here have bought or were given up.
    dead_through: u64,
}

/// A batch: when it went (in time that only goes forward), and the numbers it let in.
#[derive(Debug)]
struct Batch {
    at: u64,
    after: u64,
    through: u64,
    size: u64,
    passes: u64,
}

/// The referee of one target.
pub(super) struct Referee {
    rules: QueueRules,
    in_force: Overrides,
    people: HashMap<u64, Person>,
    batches: Vec<Batch>,
    mark: u64,
    last_number: u64,
    /// Milliseconds that have passed; the store's clock may go back, this does not.
    passed: u64,
    /// The tick that was in force at the last batch, whatever has been set since.
    tick_paid: u64,
    /// The latest second that the store has seen.
    latest_s: u64,
    /// The first of the batches on the clock of now; those before it were on another.
    one_clock_from: usize,
}

impl Referee {
    pub(super) fn new(rules: QueueRules) -> Self {
        let tick_paid = rules.pacing.tick_ms;
        Self {
            rules,
            in_force: Overrides::default(),
            people: HashMap::new(),
            batches: Vec::new(),
            mark: 0,
            last_number: 0,
            passed: 0,
            tick_paid,
            latest_s: 0,
            one_clock_from: 0,
        }
    }

    pub(super) fn time_passed(&mut self, ms: u64) {
        self.passed += ms;
    }

    /// A clock that goes back finds all floors that were over for less than the life of a pass; others may be pruned.
    pub(super) fn clock_went_back(&mut self, now_s: u64) {
        let kept_from = self.latest_s.saturating_sub(self.rules.token_ttl_seconds);
        let pruned = |person: &&mut Person| person.dead_through <= kept_from;
        self.people.values_mut().filter(pruned).for_each(|person| person.dead_through = 0);
        self.latest_s = now_s;
        self.one_clock_from = self.batches.len();
    }

    pub(super) fn overrides(&mut self, overrides: Overrides) {
        self.in_force = overrides;
    }

    pub(super) fn passes_of(&self, who: u64) -> Vec<u64> {
        self.people.get(&who).map(|person| person.passes.clone()).unwrap_or_default()
    }

    fn tick_ms(&self) -> u64 {
        let set = self.in_force.tick_ms.filter(|set| Overrides::TICK_MS.contains(set));
        set.unwrap_or(self.rules.pacing.tick_ms)
    }

    pub(super) fn saw(
        &mut self,
        call: Call,
        answer: &Answer,
        stats: &QueueStats,
        now_s: u64,
    ) -> Result<(), TestCaseError> {
        self.latest_s = self.latest_s.max(now_s);
        match (call, answer) {
            (Call::Enter(_, who) | Call::Poll(_, who), Answer::Place(place)) => self.place(call, who, *place)?,
            (Call::Leave(_, who), Answer::Departure(departure)) => self.departed(who, *departure)?,
            (Call::Claim(_, who, expires_at, _), Answer::Claim(claim)) => {
                let person = self.people.entry(who).or_default();
                if !person.passes.contains(&expires_at) {
                    person.passes.push(expires_at);
                }
                if *claim == Claim::Granted {
                    prop_assert!(expires_at > person.dead_through, "rule 8: a dead pass of {who} was to buy again");
                }
            }
            (Call::Check(_, who, expires_at), Answer::Claim(Claim::Granted)) => {
                let dead_through = self.people.get(&who).map_or(0, |person| person.dead_through);
                prop_assert!(expires_at > dead_through, "rule 8: a dead pass of {who} is said to be good");
            }
            (Call::SpendAll(_, who, ago_ms), Answer::Settled(settled)) => {
                let sold_s = (now_s * 1000).saturating_sub(ago_ms) / 1000;
                let person = self.people.entry(who).or_default();
                person.dead_through = person.dead_through.max(sold_s + self.rules.token_ttl_seconds);
                if *settled == Settled::Consumed {
                    person.dead_through = person.dead_through.max(person.live.take().unwrap_or(0));
                } else if ago_ms == 0 {
                    person.live = person.live.filter(|live| *live <= now_s);
                }
            }
            (Call::Settle(_, who, expires_at, _, Settlement::Spent), Answer::Settled(settled)) => {
                let person = self.people.entry(who).or_default();
                // That a pass has bought is remembered as long as it could buy, and no longer.
                let remembered = expires_at <= person.dead_through && expires_at > now_s;
                prop_assert!(*settled == Settled::Nothing || !remembered, "rule 8: a pass of {who} was used up twice");
                person.dead_through = person.dead_through.max(expires_at);
                if *settled == Settled::Consumed {
                    person.dead_through = person.dead_through.max(person.live.take().unwrap_or(0));
                }
            }
            (Call::Adopt(_, who, expires_at), Answer::Adopted(adopted)) => {
                self.adopted(who, expires_at, adopted, now_s)?;
            }
            (Call::Sweep(_, evicted), Answer::Sweep(sweep)) => {
                prop_assert!(evicted + sweep.evicted <= self.rules.max_evict_per_tick / 2);
            }
            (Call::Admit(_, before), Answer::Tick(Tick::Moved { people, evicted, .. })) => {
                prop_assert!(
                    before + evicted <= self.rules.max_evict_per_tick,
                    "a tick evicted {before} and {evicted}"
                );
                self.batch_went(*people, *evicted, stats)?;
            }
            _ => {}
        }
        prop_assert_eq!(stats.admitted_through, self.mark, "only a batch moves the mark, not {:?}", call);
        prop_assert!(self.mark <= stats.last_number, "the mark went beyond the last number");
        self.last_number = stats.last_number;
        Ok(())
    }

    /// Rules 1 and 3: what a person is told agrees with the mark, and with what they were told before.
    fn place(&mut self, call: Call, who: u64, place: Option<Place>) -> Result<(), TestCaseError> {
        let (mark, last_number) = (self.mark, self.last_number);
        let person = self.people.entry(who).or_default();
        match place {
            None => (person.number, person.live) = (None, None),
            Some(Place::Waiting(position)) => {
                prop_assert!(position.seq > mark, "rule 1: {who} waits with {} at mark {mark}", position.seq);
                match person.number {
                    Some(number) if number == position.seq => {}
                    _ => {
                        prop_assert_eq!(position.seq, last_number + 1, "rule 3: a new number is the next one");
                        prop_assert!(matches!(call, Call::Enter(..)), "rule 3: a poll gave {} a number", who);
                    }
                }
                (person.number, person.live) = (Some(position.seq), None);
            }
            Some(Place::Admitted { expires_at }) => match (person.live, person.number) {
                (Some(live), _) => prop_assert_eq!(live, expires_at, "rule 3: another pass while one is live"),
                (None, Some(number)) => {
                    prop_assert!(number <= mark, "rule 1: {who} was admitted with {number} at mark {mark}");
                    prop_assert!(expires_at > person.dead_through, "{who} was given a dead pass");
                    let batch = self.batches.iter_mut().find(|batch| batch.after < number && number <= batch.through);
                    let Some(batch) = batch else { return Err(TestCaseError::fail("admitted by no batch")) };
                    batch.passes += 1;
                    prop_assert!(batch.passes <= batch.size, "rule 2: more passes than people in {batch:?}");
                    (person.number, person.live) = (None, Some(expires_at));
                    person.passes.push(expires_at);
                }
                (None, None) => return Err(TestCaseError::fail(format!("{who} was admitted out of nowhere"))),
            },
        }
        Ok(())
    }

    fn departed(&mut self, who: u64, departure: Departure) -> Result<(), TestCaseError> {
        let person = self.people.entry(who).or_default();
        match departure {
            Departure::WasNotHere => {}
            Departure::GaveUpPlace => prop_assert!(person.number.take().is_some(), "{who} had no place to give up"),
            Departure::GaveUpPass => {
                let Some(live) = person.live.take() else {
                    return Err(TestCaseError::fail(format!("{who} had no pass to give up")));
                };
                person.dead_through = person.dead_through.max(live);
            }
        }
        Ok(())
    }

    /// Whoever was taken over has no place any more, and a pass that is not dead, unless theirs has ended.
    fn adopted(&mut self, who: u64, expires_at: u64, adopted: &Adopted, now_s: u64) -> Result<(), TestCaseError> {
        let person = self.people.entry(who).or_default();
        prop_assert!(adopted.issued + adopted.left <= 1, "one person, one pass: {adopted:?}");
        if adopted.issued + adopted.left == 1 {
            person.number = None;
        }
        if adopted.issued == 1 {
            prop_assert!(expires_at > person.dead_through && expires_at > now_s, "{who} was given a dead pass");
            person.live = Some(expires_at);
            person.passes.push(expires_at);
        } else if let Some(live) = person.live.filter(|live| *live > now_s) {
            // Two at a time: the longer one is told from now on, and only one of them buys.
            person.live = Some(live.max(expires_at));
            person.passes.push(expires_at);
        }
        Ok(())
    }

    /// Rule 2: at most one batch of people in any window of one tick.
    fn batch_went(&mut self, people: u64, evicted: u64, stats: &QueueStats) -> Result<(), TestCaseError> {
        let set = self.in_force.batch.filter(|set| Overrides::BATCH.contains(set));
        let size = set.unwrap_or(self.rules.pacing.batch);
        prop_assert!(people <= size, "rule 2: {people} people in a batch of {size}");
        prop_assert!(!self.in_force.paused, "a batch went during a pause");
        prop_assert!(stats.admitted_through >= self.mark, "the mark went back");
        prop_assert!(stats.admitted_through - self.mark >= people + evicted);
        if people > 0 {
            if let Some(last) = self.batches.last() {
                let gap = self.passed - last.at;
                prop_assert!(gap >= self.tick_paid, "rule 2: two batches within {gap} ms");
            }
            let window =
                self.batches[self.one_clock_from..].iter().filter(|batch| batch.at + self.tick_ms() > self.passed);
            let before: u64 = window.map(|batch| batch.size).sum();
            prop_assert!(people + before <= size, "rule 2: {before} and {people} people within a tick, not {size}");
        }
        self.tick_paid = self.tick_ms();
        self.batches.push(Batch {
            at: if people > 0 { self.passed } else { self.batches.last().map_or(0, |last| last.at) },
            after: self.mark,
            through: stats.admitted_through,
            size: people,
            passes: 0,
        });
        self.mark = stats.admitted_through;
        Ok(())
    }
}
