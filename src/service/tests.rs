//! The TDD's state table (상태 전이 표), row by row, and what the service adds: the flag branch and failing open.

mod outage;

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{
    clock::FakeClock,
    domain::QueueTargetType,
    flags::Reach,
    store::{
        Claim, PassStore, PumpStore, QueueRules, QueueStore, Settlement,
        embedded::EmbeddedStore,
        faulty::{FaultyStore, Mood},
    },
    token::{EntryTokenGuard, Keyring, PassRefusal},
};

const START: u64 = 1_790_000_000_000;

/// A queue of at most two people that admits one person each tick, on a clock that stands still.
struct ServiceFixture {
    machine: Arc<FakeClock>,
    clock: StoreClock,
    store: Arc<FaultyStore>,
    flag: Arc<Switch>,
    keys: Arc<Keyring>,
    metrics: Arc<Metrics>,
    service: VirtualQueueService,
}

/// On or off, and whether that is known.
struct Switch(AtomicBool, AtomicBool);

impl FeatureFlagEvaluator for Switch {
    fn is_enabled(&self, _: QueueTarget, _: UserId) -> bool {
        self.0.load(Ordering::SeqCst)
    }
    fn reach(&self, _: QueueTarget) -> Reach {
        if self.0.load(Ordering::SeqCst) { Reach::Everybody } else { Reach::Nobody }
    }
    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget> {
        self.0.load(Ordering::SeqCst).then(|| QueueTarget::new(kind, 1).unwrap())
    }
    fn names(&self, _: QueueTarget) -> bool {
        false
    }
    fn is_known(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
}

fn drop_42() -> QueueTarget {
    QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap()
}

fn user(id: u64) -> UserId {
    UserId::try_from(id).unwrap()
}

impl ServiceFixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::parse_default();
        config.queue.capacity = 2;
        config.queue.batch_size = 1;
        config.queue.max_active_targets = 3;
        change(&mut config);
        let machine = FakeClock::at(START);
        let clock = StoreClock::new(machine.clone());
        let metrics = Arc::new(Metrics::new());
        let inner: Arc<dyn VirtualQueueStore> =
            EmbeddedStore::new(QueueRules::from_config(&config), clock.clone(), metrics.clone());
        let store = FaultyStore::before(inner);
        let flag = Arc::new(Switch(AtomicBool::new(true), AtomicBool::new(true)));
        let keys = Arc::new(Keyring::random());
        let parts = ServiceParts {
            store: store.clone(),
            flags: flag.clone(),
            issuer: keys.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
        };
        let service = VirtualQueueService::new(parts, &config);
        Self { machine, clock, store, flag, keys, metrics, service }
    }

    fn pass_time(&self, seconds: u64) {
        self.machine.advance(Duration::from_secs(seconds));
    }

    async fn tick(&self) {
        self.store.sweep_stale(drop_42(), 0).await.unwrap();
        self.store.advance_admission(drop_42(), 0).await.unwrap();
    }

    async fn enter(&self, id: u64) -> String {
        told(&self.service.enter(drop_42(), user(id)).await)
    }

    async fn poll(&self, id: u64) -> String {
        told(&self.service.status(drop_42(), user(id)).await)
    }

    async fn pass_of(&self, id: u64) -> String {
        match self.service.status(drop_42(), user(id)).await.unwrap().status {
            QueueStatus::Admitted(pass) | QueueStatus::DirectAdmitted(pass) => pass.raw().to_owned(),
            other => panic!("{id} has no pass but {other:?}"),
        }
    }

    /// A purchase, as the gate makes it: verify, claim, settle.
    async fn buy(&self, id: u64, pass: &str) -> String {
        match self.keys.verify(drop_42(), user(id), pass, self.clock.now_seconds()) {
            Err(refusal) => format!("refused: {refusal}"),
            Ok(claims) => match self.store.claim(drop_42(), user(id), claims.expires_at, "n").await.unwrap() {
                Claim::Granted => {
                    let until = claims.expires_at;
                    self.store.settle(drop_42(), user(id), until, "n", Settlement::Spent).await.unwrap();
                    "bought".to_owned()
                }
                other => format!("refused: {other:?}"),
            },
        }
    }

    async fn books_balance(&self) {
        assert_eq!(self.store.stats(drop_42()).await.unwrap().imbalance(), None);
    }
}

fn told(answer: &Result<Answer, QueueError>) -> String {
    match answer {
        Ok(Answer { status: QueueStatus::Waiting(position), .. }) => format!("WAITING {}", position.seq),
        Ok(answer) => answer.status.name().to_owned(),
        Err(QueueError::Full { .. }) => "QUEUE_FULL".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

/// Runs each row of the table in its own fixture.
macro_rules! rows {
    ($($name:ident: |$fixture:ident| { $($row:tt)* })*) => {$(
        #[actix_rt::test]
        async fn $name() {
            let $fixture = ServiceFixture::new();
            $($row)*
            $fixture.books_balance().await;
        }
    )*};
}

rows! {
    nobody_who_enters_with_the_flag_on_waits_under_a_fixed_number: |fixture| {
        assert_eq!(fixture.enter(7).await, "WAITING 1");
        assert_eq!(fixture.enter(8).await, "WAITING 2");
    }

    nobody_who_enters_a_full_queue_is_turned_away: |fixture| {
        fixture.enter(7).await;
        fixture.enter(8).await;
        assert_eq!(fixture.enter(9).await, "QUEUE_FULL");
        assert_eq!(fixture.enter(7).await, "WAITING 1", "never somebody who is in");
    }

    nobody_who_enters_with_the_flag_off_goes_straight_through: |fixture| {
        fixture.flag.0.store(false, Ordering::SeqCst);
        fixture.store.be(Mood::Panic);
        assert_eq!(fixture.enter(7).await, "DIRECT_ADMITTED");
        assert_eq!(fixture.poll(8).await, "DIRECT_ADMITTED");
        fixture.store.be(Mood::Answer);
    }

    waiting_and_entering_again_keeps_the_number: |fixture| {
        fixture.enter(7).await;
        assert_eq!(fixture.enter(7).await, "WAITING 1");
        assert_eq!(fixture.enter(8).await, "WAITING 2", "and no number is wasted");
    }

    waiting_and_polling_when_the_mark_has_come_is_admitted_and_leaves_the_queue: |fixture| {
        fixture.enter(7).await;
        fixture.pass_time(2);
        fixture.tick().await;
        assert_eq!(fixture.poll(7).await, "ADMITTED");
        assert_eq!(fixture.store.stats(drop_42()).await.unwrap().waiting, 0);
        assert_eq!(fixture.pass_of(7).await, fixture.pass_of(7).await, "the same pass, byte for byte");
        assert_eq!(fixture.enter(7).await, "ADMITTED", "entering is as good as polling");
    }

    waiting_and_polling_before_the_mark_goes_on_waiting: |fixture| {
        fixture.enter(7).await;
        fixture.enter(8).await;
        fixture.pass_time(2);
        fixture.tick().await;
        assert_eq!(fixture.poll(8).await, "WAITING 2");
        fixture.service.leave(drop_42(), user(7)).await.unwrap();
        assert_eq!(fixture.poll(8).await, "WAITING 2", "somebody leaving lets nobody in before the next tick");
    }

    waiting_and_silent_for_a_minute_is_evicted: |fixture| {
        fixture.enter(7).await;
        // The timeout of 60 s, the slack of 10 s, and a tick.
        for _ in 0..36 {
            fixture.pass_time(2);
            fixture.store.sweep_stale(drop_42(), 0).await.unwrap();
        }
        assert_eq!(fixture.poll(7).await, "NotInQueue");
        assert_eq!(fixture.enter(7).await, "WAITING 2", "back, at the end");
    }

    admitted_and_buying_is_over: |fixture| {
        fixture.enter(7).await;
        fixture.pass_time(2);
        fixture.tick().await;
        let pass = fixture.pass_of(7).await;
        assert_eq!(fixture.buy(7, &pass).await, "bought");
        assert_eq!(fixture.buy(7, &pass).await, "refused: Spent");
        assert_eq!(fixture.poll(7).await, "NotInQueue");
        assert_eq!(fixture.enter(7).await, "WAITING 2", "again, at the end");
    }

    admitted_and_five_minutes_later_is_expired: |fixture| {
        fixture.enter(7).await;
        fixture.pass_time(2);
        fixture.tick().await;
        let pass = fixture.pass_of(7).await;
        fixture.pass_time(299);
        assert_eq!(fixture.poll(7).await, "ADMITTED");
        fixture.pass_time(1);
        assert_eq!(fixture.buy(7, &pass).await, format!("refused: {}", PassRefusal::Expired));
        assert_eq!(fixture.enter(7).await, "WAITING 2");
    }

    buying_without_a_genuine_pass_is_refused: |fixture| {
        assert_eq!(fixture.buy(7, "").await, format!("refused: {}", PassRefusal::Malformed));
        let others = Keyring::random().mint(drop_42(), user(7), START / 1000 + 300);
        assert_eq!(fixture.buy(7, others.raw()).await, format!("refused: {}", PassRefusal::Forged));
    }

    off_and_on_again_within_a_minute_loses_nobodys_place: |fixture| {
        fixture.enter(7).await;
        fixture.enter(8).await;
        fixture.flag.0.store(false, Ordering::SeqCst);
        fixture.pass_time(50);
        assert_eq!(fixture.poll(8).await, "DIRECT_ADMITTED", "released on the next poll");
        fixture.flag.0.store(true, Ordering::SeqCst);
        assert_eq!(fixture.poll(7).await, "WAITING 1");
        fixture.service.hand_over().await;
        assert_eq!(fixture.store.stats(drop_42()).await.unwrap().direct, 1);
    }

    where_nobody_knows_whether_it_is_on_people_go_through_as_in_an_outage: |fixture| {
        fixture.enter(7).await;
        fixture.flag.0.store(false, Ordering::SeqCst);
        fixture.flag.1.store(false, Ordering::SeqCst);
        let calls = fixture.store.calls();
        for answer in [
            fixture.service.enter(drop_42(), user(8)).await.unwrap(),
            fixture.service.status(drop_42(), user(7)).await.unwrap(),
        ] {
            assert!(answer.degraded);
            assert!(matches!(answer.status, QueueStatus::DirectAdmitted(_)), "{answer:?}");
        }
        assert_eq!(fixture.store.calls(), calls, "no store is asked");
        let text = fixture.metrics.render();
        for operation in ["enter", "status"] {
            let line = format!(r#"virtual_queue_redis_degraded_total{{operation="{operation}"}} 1"#);
            assert!(text.contains(&line), "{line} in {text}");
        }
        let pass = fixture.pass_of(7).await;
        fixture.service.hand_over().await;
        fixture.flag.0.store(true, Ordering::SeqCst);
        fixture.flag.1.store(true, Ordering::SeqCst);
        assert_eq!(fixture.pass_of(7).await, pass, "it was on: they have had their turn, and keep no place beside it");
        assert_eq!(fixture.store.stats(drop_42()).await.unwrap().waiting, 0);
    }

    the_store_being_away_holds_nobody_up: |fixture| {
        fixture.enter(7).await;
        fixture.store.be(Mood::Fail(StoreError::Unavailable("refused".to_owned())));
        for answer in [
            fixture.service.enter(drop_42(), user(8)).await.unwrap(),
            fixture.service.status(drop_42(), user(7)).await.unwrap(),
        ] {
            assert!(answer.degraded);
            assert!(matches!(answer.status, QueueStatus::DirectAdmitted(_)), "{answer:?}");
        }
        assert!(fixture.service.is_degraded());
        assert!(fixture.service.leave(drop_42(), user(7)).await.unwrap().degraded);
        assert!(matches!(fixture.service.stats(drop_42()).await, Err(QueueError::StoreUnavailable { .. })));
        let text = fixture.metrics.render();
        for operation in ["enter", "status", "leave", "stats"] {
            let line = format!(r#"virtual_queue_redis_degraded_total{{operation="{operation}"}} 1"#);
            assert!(text.contains(&line), "{line} in {text}");
        }
        let pass = fixture.pass_of(7).await;
        fixture.store.be(Mood::Answer);
        assert_eq!(fixture.buy(7, &pass).await, "bought", "a direct pass is a pass");
        assert_eq!(fixture.buy(7, &pass).await, "refused: Spent", "for one purchase");
    }

    a_store_that_is_merely_slow_opens_no_doors: |fixture| {
        fixture.enter(7).await;
        fixture.store.be(Mood::Fail(StoreError::TimedOut));
        for answer in [
            fixture.service.enter(drop_42(), user(8)).await.unwrap(),
            fixture.service.status(drop_42(), user(7)).await.unwrap(),
        ] {
            assert_eq!(
                answer,
                Answer { status: QueueStatus::WaitingUnknown, poll_after_seconds: Some(1), paused: false, degraded: true }
            );
        }
        fixture.store.be(Mood::Answer);
        assert_eq!(fixture.poll(7).await, "WAITING 1");
    }

    a_fourth_target_finds_no_room_and_those_there_are_unharmed: |fixture| {
        for id in 1..=3 {
            let target = QueueTarget::new(QueueTargetType::TicketingEvent, id).unwrap();
            assert_eq!(told(&fixture.service.enter(target, user(7)).await), "WAITING 1");
        }
        assert_eq!(fixture.enter(7).await, "TooManyTargets { retry_after_seconds: 30 }");
        let first = QueueTarget::new(QueueTargetType::TicketingEvent, 1).unwrap();
        assert_eq!(told(&fixture.service.enter(first, user(8)).await), "WAITING 2");
    }
}

#[actix_rt::test]
async fn direct_passes_for_made_up_targets_make_no_series() {
    let fixture = ServiceFixture::new();
    fixture.flag.0.store(false, Ordering::SeqCst);
    for id in 1..=500 {
        let target = QueueTarget::new(QueueTargetType::LimitedDrop, id).unwrap();
        fixture.service.enter(target, user(7)).await.unwrap();
    }
    let text = fixture.metrics.render();
    assert!(text.contains(r#"virtual_queue_tokens_total{event="direct",target="other"} 500"#), "{text}");
    assert!(!text.contains("LIMITED_DROP"), "{text}");
}

#[actix_rt::test]
async fn entering_a_new_target_far_away_takes_the_time_of_one_call_and_succeeds_in_the_end() {
    // Uses a running clock.
    let clock = StoreClock::system();
    let mut config = Config::parse_default();
    config.redis.command_timeout_ms = 200;
    let metrics = Arc::new(Metrics::new());
    let inner = EmbeddedStore::new(QueueRules::from_config(&config), clock.clone(), metrics.clone());
    let store = FaultyStore::before(inner);
    let (flags, issuer) = (Arc::new(Switch(AtomicBool::new(true), AtomicBool::new(true))), Arc::new(Keyring::random()));
    let parts = ServiceParts { store: store.clone(), flags, issuer, clock: clock.clone(), metrics };
    let service = VirtualQueueService::new(parts, &config);
    for round_trip in [120, 300] {
        store.be(Mood::Far(Duration::from_millis(round_trip)));
        let target = QueueTarget::new(QueueTargetType::LimitedDrop, round_trip).unwrap();
        let began = clock.monotonic();
        let answer = service.enter(target, user(7)).await.unwrap();
        let took = clock.monotonic() - began;
        assert!(answer.degraded, "two calls of {round_trip} ms do not fit in");
        assert!(took < Duration::from_millis(550), "{took:?}");
        // The call continues in the background.
        while !service.active_targets().contains(target) {
            assert!(clock.monotonic() < began + Duration::from_secs(5));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    store.be(Mood::Far(Duration::from_millis(20)));
    let target = QueueTarget::new(QueueTargetType::LimitedDrop, 120).unwrap();
    assert_eq!(told(&service.enter(target, user(7)).await), "WAITING 1");
}
