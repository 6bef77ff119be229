//! Both stores asked the same random things answer the same, and never break the rules (`docs/design.md`).
//!
//! A case is a random sequence of what people, three replicas' pumps and an operator do, with time passing. Every call
//! goes to both stores; answers and books are compared after each. A referee who sees only answers watches rules 1
//! to 3 on its own.

mod calls;
mod referee;

use std::sync::Arc;

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestRunner},
};
use virtual_queue::{
    domain::Pacing,
    store::{QueueRules, TickLock, embedded::Overrides},
};

use self::{
    calls::{Answer, Call, How, Step},
    referee::Referee,
};
use crate::{
    redis_server::RedisServer,
    store_fixture::{StoreFixture, target},
};

/// Small rules, so that a few people reach every limit.
fn rules() -> QueueRules {
    QueueRules {
        capacity: 8,
        pacing: Pacing { batch: 2, tick_ms: 2000 },
        silent_after_ms: 12_000,
        max_evict_per_tick: 2,
        // Redis counts idle time on its own clock, so here no target becomes idle.
        idle_ttl_ms: 864_000_000,
        token_ttl_seconds: 20,
        lease_ms: 6_000,
    }
}

/// The targets of a case.
const TARGETS: u64 = 2;
/// Ids whose order as texts is not that of the numbers.
const USERS: [u64; 12] = [1, 2, 9, 10, 11, 19, 90, 99, 100, 101, 110, 9_223_372_036_854_775_807];

/// Both stores, and what is known of them from their answers.
struct Case {
    fixtures: Vec<StoreFixture>,
    referees: Vec<Referee>,
    last: Option<Call>,
}

impl Case {
    fn new(fixtures: Vec<StoreFixture>) -> Self {
        let referees = (0..TARGETS).map(|_| Referee::new(rules())).collect();
        Self { fixtures, referees, last: None }
    }

    fn now_ms(&self) -> u64 {
        virtual_queue::clock::Clock::wall_ms(&*self.fixtures[0].clock)
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Advance(ms) => self.pass_time(ms),
            Step::ClockGoesBack(ms) => {
                let now = self.now_ms() - ms;
                self.fixtures.iter().for_each(|fixture| fixture.clock.set(now));
                self.referees.iter_mut().for_each(|referee| referee.clock_went_back(now / 1000));
            }
            Step::Override(at, overrides) => self.set_overrides(at, overrides),
            Step::Enter(at, who) => self.call(Call::Enter(at, USERS[who])).await?,
            Step::Poll(at, who) => self.call(Call::Poll(at, USERS[who])).await?,
            Step::Leave(at, who) => self.call(Call::Leave(at, USERS[who])).await?,
            Step::Claim(at, who, which, nonce) => {
                let expires_at = self.pass(at, who, which);
                self.call(Call::Claim(at, USERS[who], expires_at, nonce)).await?;
            }
            Step::Settle(at, who, which, nonce, how) => {
                let expires_at = self.pass(at, who, which);
                self.call(Call::Settle(at, USERS[who], expires_at, nonce, how)).await?;
            }
            Step::SpendAll(at, who, ago) => self.call(Call::SpendAll(at, USERS[who], ago)).await?,
            Step::Check(at, who, which) => {
                let expires_at = self.pass(at, who, which);
                self.call(Call::Check(at, USERS[who], expires_at)).await?;
            }
            Step::Direct(at, passes) => self.call(Call::Direct(at, passes)).await?,
            Step::Adopt(at, who, seconds) => {
                let expires_at = self.now_ms() / 1000 + seconds;
                self.call(Call::Adopt(at, USERS[who], expires_at)).await?;
            }
            Step::Tick(at, replica, how) => self.tick(at, replica, how).await?,
            Step::Lull(at, ticks, how) => self.lull(at, ticks, how).await?,
            Step::Pause(at, ticks, how) => {
                self.set_overrides(at, Overrides { paused: true, ..Overrides::default() });
                self.lull(at, ticks, how).await?;
                self.set_overrides(at, Overrides::default());
            }
            Step::Again => {
                if let Some(last) = self.last {
                    self.call(last).await?;
                }
            }
        }
        Ok(())
    }

    fn pass_time(&mut self, ms: u64) {
        self.fixtures.iter().for_each(|fixture| fixture.advance(ms));
        self.referees.iter_mut().for_each(|referee| referee.time_passed(ms));
    }

    fn set_overrides(&mut self, at: u64, overrides: Overrides) {
        for fixture in &self.fixtures {
            fixture.hands.set_overrides(target(at), overrides);
        }
        self.referee(at).overrides(overrides);
    }

    async fn lull(&mut self, at: u64, ticks: u64, how: How) -> Result<(), TestCaseError> {
        for _ in 0..ticks {
            self.pass_time(2000);
            self.tick(at, 0, how).await?;
        }
        Ok(())
    }

    /// What a pump does.
    async fn tick(&mut self, at: u64, replica: u8, how: How) -> Result<(), TestCaseError> {
        // Redis counts the lock's time on its own clock; the embedded store's lock serves both here.
        let lock = self.fixtures[0].store.lock_tick(target(at), &format!("replica {replica}")).await.unwrap();
        if lock != TickLock::Ours && how != How::WithoutTheLock {
            return Ok(());
        }
        let mut evicted = 0;
        if how != How::WithoutTheSweep
            && let Answer::Sweep(sweep) = self.ask(Call::Sweep(at, 0)).await?
        {
            evicted = sweep.evicted;
        }
        if how != How::DiesAfterTheSweep {
            self.call(Call::Admit(at, evicted)).await?;
        }
        Ok(())
    }

    /// Everybody comes once more, so that no difference stays hidden.
    async fn end(&mut self) -> Result<(), TestCaseError> {
        for at in 1..=TARGETS {
            for who in USERS {
                self.call(Call::Poll(at, who)).await?;
            }
        }
        let counted: Vec<Vec<String>> =
            self.fixtures.iter().map(|fixture| passes_and_waits(&fixture.metrics.render())).collect();
        prop_assert!(counted.iter().all(|one| *one == counted[0]), "the metrics differ: {counted:#?}");
        Ok(())
    }

    /// One of the passes this person has had, or else a direct one.
    fn pass(&mut self, at: u64, who: usize, which: usize) -> u64 {
        let direct = self.now_ms() / 1000 + rules().token_ttl_seconds;
        let passes = self.referee(at).passes_of(USERS[who]);
        passes.iter().rev().nth(which).copied().unwrap_or(direct)
    }

    fn referee(&mut self, at: u64) -> &mut Referee {
        &mut self.referees[at as usize - 1]
    }

    async fn call(&mut self, call: Call) -> Result<(), TestCaseError> {
        self.ask(call).await.map(drop)
    }

    /// Asks both stores, compares, and shows the referee.
    async fn ask(&mut self, call: Call) -> Result<Answer, TestCaseError> {
        self.last = Some(call);
        let mut seen = Vec::new();
        for fixture in &self.fixtures {
            let answer = call.ask(&*fixture.store).await;
            let stats = fixture.store.stats(target(call.target())).await.unwrap();
            prop_assert_eq!(stats.imbalance(), None, "after {:?} of {:?}", answer, call);
            seen.push((answer, stats));
        }
        prop_assert!(seen.iter().all(|one| *one == seen[0]), "after {call:?} the stores differ: {seen:#?}");
        let (answer, stats) = seen.swap_remove(0);
        let now_s = self.now_ms() / 1000;
        self.referee(call.target()).saw(call, &answer, &stats, now_s)?;
        Ok(answer)
    }
}

/// The metrics that a store counts by itself.
fn passes_and_waits(text: &str) -> Vec<String> {
    let ours = ["virtual_queue_tokens_total{", "virtual_queue_wait_seconds"];
    text.lines().filter(|line| ours.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect()
}

fn run(cases: u32, fixtures: impl Fn() -> Vec<StoreFixture>, runtime: &tokio::runtime::Runtime) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let steps = prop::collection::vec(calls::step(), 1..150);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        let mut case = Case::new(fixtures());
        runtime.block_on(async {
            for step in &steps {
                case.step(step).await?;
            }
            case.end().await
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// One Redis for all cases, wiped between them.
#[test]
fn both_stores_answer_the_same_whatever_happens() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Arc::new(RedisServer::start());
    let fixtures = || {
        redis::cmd("FLUSHALL").exec(&mut server.connection()).unwrap();
        runtime.block_on(async {
            vec![StoreFixture::embedded(rules()).await, StoreFixture::on_redis(server.clone(), rules()).await]
        })
    };
    run(100, fixtures, &runtime);
}

#[test]
fn the_embedded_store_keeps_the_rules_whatever_happens() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    run(300, || vec![runtime.block_on(StoreFixture::embedded(rules()))], &runtime);
}
