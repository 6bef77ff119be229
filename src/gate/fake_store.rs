//! A store for the gate's tests. It remembers claims as the real stores do, and fails when told to.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    domain::{QueueTarget, UserId},
    store::{Claim, PassStore, Settled, Settlement, StoreError},
};

#[derive(Default)]
pub(super) struct FakeStore {
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    claims: HashMap<UserId, String>,
    spent: HashSet<UserId>,
    /// What a check answers instead of the true state.
    pub(super) check_answer: Option<Result<Claim, StoreError>>,
    /// Who bought without a pass, one entry for each call, and whether the call was late.
    pub(super) spent_all: Vec<(UserId, bool)>,
    /// What a claim answers instead of the true state, one entry for each call.
    pub(super) claim_answers: VecDeque<Result<Claim, StoreError>>,
    /// How many calls to settle fail.
    pub(super) settle_failures: u32,
    /// Settlements in their order.
    pub(super) settled: Vec<Settlement>,
}

impl FakeStore {
    pub(super) fn settled(&self) -> Vec<Settlement> {
        self.state.lock().unwrap().settled.clone()
    }

    pub(super) fn is_claimed(&self) -> bool {
        !self.state.lock().unwrap().claims.is_empty()
    }
}

#[async_trait]
impl PassStore for FakeStore {
    async fn claim(&self, _: QueueTarget, user: UserId, _: u64, nonce: &str) -> Result<Claim, StoreError> {
        let mut state = self.state.lock().unwrap();
        if let Some(answer) = state.claim_answers.pop_front() {
            return answer;
        }
        if state.spent.contains(&user) {
            return Ok(Claim::Spent);
        }
        let holder = state.claims.entry(user).or_insert_with(|| nonce.to_owned());
        Ok(if holder == nonce { Claim::Granted } else { Claim::InUse })
    }

    async fn check(&self, _: QueueTarget, user: UserId, _: u64) -> Result<Claim, StoreError> {
        let state = self.state.lock().unwrap();
        let truth = if state.spent.contains(&user) { Claim::Spent } else { Claim::Granted };
        state.check_answer.clone().unwrap_or(Ok(truth))
    }

    async fn settle(
        &self,
        _: QueueTarget,
        user: UserId,
        _: u64,
        nonce: &str,
        how: Settlement,
    ) -> Result<Settled, StoreError> {
        let mut state = self.state.lock().unwrap();
        if state.settle_failures > 0 {
            state.settle_failures -= 1;
            return Err(StoreError::TimedOut);
        }
        if state.claims.get(&user).is_some_and(|holder| holder == nonce) {
            state.claims.remove(&user);
        }
        state.settled.push(how);
        match how {
            Settlement::Spent => {
                state.spent.insert(user);
                Ok(Settled::Consumed)
            }
            Settlement::GivenBack => Ok(Settled::Nothing),
        }
    }

    async fn spend_all(&self, _: QueueTarget, user: UserId, ago: Duration) -> Result<Settled, StoreError> {
        let mut state = self.state.lock().unwrap();
        if state.settle_failures > 0 {
            state.settle_failures -= 1;
            return Err(StoreError::TimedOut);
        }
        state.spent_all.push((user, !ago.is_zero()));
        state.spent.insert(user);
        Ok(Settled::Consumed)
    }
}
