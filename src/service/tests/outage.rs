//! Without the store: the three policies, who is remembered, and the hand-over when the store is available again.

use super::*;
use crate::{
    config::OnFailure,
    domain::{Pacing, QueuePosition},
};

fn away() -> Mood {
    Mood::Fail(StoreError::Unavailable("refused".to_owned()))
}

fn throttled(batch: u64, replicas: u64) -> ServiceFixture {
    let fixture = ServiceFixture::with(|config| {
        config.queue.capacity = 1000;
        config.queue.batch_size = batch;
        config.redis.on_failure = OnFailure::Throttle;
        config.redis.replicas = Some(replicas);
    });
    // A replica waits one tick after its start.
    fixture.pass_time(2);
    fixture
}

impl ServiceFixture {
    fn told_pass(&self, answer: &Result<Answer, QueueError>) -> Option<String> {
        match &answer.as_ref().ok()?.status {
            QueueStatus::Admitted(pass) | QueueStatus::DirectAdmitted(pass) => Some(pass.raw().to_owned()),
            QueueStatus::Waiting(_) | QueueStatus::WaitingUnknown => None,
        }
    }

    async fn ask(&self, id: u64) -> Result<Answer, QueueError> {
        self.service.enter(drop_42(), user(id)).await
    }
}

#[actix_rt::test]
async fn whoever_was_let_through_comes_back_to_the_same_pass_and_no_place() {
    let fixture = ServiceFixture::with(|config| config.queue.capacity = 100);
    fixture.enter(1).await;
    fixture.enter(2).await;
    fixture.store.be(away());
    let (waited, came) = (fixture.pass_of(1).await, fixture.told_pass(&fixture.ask(3).await).unwrap());
    fixture.pass_time(90);
    assert_eq!(fixture.pass_of(1).await, waited, "the same, byte for byte, also a minute later");
    fixture.service.hand_over().await;
    fixture.store.be(Mood::Answer);
    // The failed hand-over lost nothing.
    fixture.service.hand_over().await;
    for (id, pass) in [(1, waited), (3, came)] {
        let answer = fixture.service.status(drop_42(), user(id)).await;
        assert_eq!((told(&answer), fixture.told_pass(&answer)), ("ADMITTED".to_owned(), Some(pass.clone())));
        assert_eq!(fixture.buy(id, &pass).await, "bought");
        assert_eq!(fixture.buy(id, &pass).await, "refused: Spent");
        assert_eq!(fixture.poll(id).await, "NotInQueue");
    }
    assert_eq!(fixture.poll(2).await, "WAITING 2", "whoever did not ask meanwhile waits on");
    let stats = fixture.store.stats(drop_42()).await.unwrap();
    assert_eq!((stats.direct, stats.waiting, stats.issued, stats.consumed), (2, 1, 2, 2));
    let calls = fixture.store.calls();
    fixture.service.hand_over().await;
    assert_eq!(fixture.store.calls(), calls, "handed over once");
    fixture.books_balance().await;
}

#[actix_rt::test]
async fn a_crowd_is_handed_over_in_chunks_and_what_fails_stays_to_be_handed_over() {
    let fixture = ServiceFixture::with(|config| config.queue.capacity = 1000);
    for id in 1..=600 {
        fixture.enter(id).await;
    }
    fixture.store.be(away());
    for id in 1..=600 {
        fixture.poll(id).await;
    }
    fixture.store.be(Mood::Fail(StoreError::TimedOut));
    fixture.service.hand_over_admissions().await;
    fixture.store.be(Mood::Answer);
    let calls = fixture.store.calls();
    fixture.service.hand_over_admissions().await;
    assert_eq!(fixture.store.calls() - calls, 3, "250 at a time");
    let stats = fixture.store.stats(drop_42()).await.unwrap();
    assert_eq!((stats.waiting, stats.issued), (0, 600));
}

#[actix_rt::test]
async fn whoever_has_left_since_is_not_handed_over() {
    let fixture = ServiceFixture::with(|config| config.queue.capacity = 100);
    fixture.enter(1).await;
    fixture.enter(2).await;
    fixture.store.be(away());
    fixture.poll(1).await;
    fixture.store.be(Mood::Answer);
    fixture.service.leave(drop_42(), user(1)).await.unwrap();
    fixture.service.hand_over().await;
    assert_eq!(fixture.poll(1).await, "NotInQueue");
    let stats = fixture.store.stats(drop_42()).await.unwrap();
    assert_eq!((stats.left, stats.issued), (1, 0));
}

#[actix_rt::test]
async fn a_closed_door_is_closed_to_whoever_comes_and_polls_and_not_to_purchases() {
    let fixture = ServiceFixture::with(|config| config.redis.on_failure = OnFailure::Closed);
    fixture.enter(7).await;
    fixture.pass_time(2);
    fixture.tick().await;
    let pass = fixture.pass_of(7).await;
    fixture.store.be(away());
    for answer in [fixture.ask(8).await, fixture.service.status(drop_42(), user(7)).await] {
        let Err(QueueError::StoreUnavailable { retry_after_seconds }) = answer else { panic!("{answer:?}") };
        assert!((1..=3).contains(&retry_after_seconds));
    }
    assert!(fixture.keys.verify(drop_42(), user(7), &pass, fixture.clock.now_seconds()).is_ok());
    fixture.store.be(Mood::Fail(StoreError::TimedOut));
    assert_eq!(told(&fixture.ask(8).await), "WAITING", "a hiccup closes no door either");
    let text = fixture.metrics.render();
    assert!(text.contains(r#"virtual_queue_redis_degraded_total{operation="enter"} 2"#), "{text}");
    fixture.store.be(Mood::Answer);
    assert_eq!(fixture.poll(7).await, "ADMITTED");
}

#[actix_rt::test]
async fn a_throttled_door_lets_the_share_through_each_tick_and_nobody_twice() {
    let fixture = throttled(6, 3);
    fixture.enter(1).await;
    fixture.store.be(away());
    for tick in 0..3 {
        let answers: Vec<_> = futures_util::future::join_all((1..=10).map(|id| fixture.ask(id))).await;
        let through: Vec<usize> = (0..10).filter(|at| fixture.told_pass(&answers[*at]).is_some()).collect();
        // Each tick admits two more. Those admitted before still hold the same passes.
        assert_eq!(through, (0..2 * (tick + 1)).collect::<Vec<_>>());
        for answer in &answers[through.len()..] {
            let wait = answer.as_ref().unwrap();
            assert_eq!(
                *wait,
                Answer {
                    status: QueueStatus::WaitingUnknown,
                    poll_after_seconds: Some(2),
                    paused: false,
                    degraded: true
                }
            );
        }
        fixture.pass_time(2);
    }
    fixture.store.be(Mood::Fail(StoreError::TimedOut));
    assert_eq!(told(&fixture.ask(99).await), "WAITING", "a hiccup opens no door");
    fixture.store.be(Mood::Answer);
    fixture.service.hand_over().await;
    let stats = fixture.store.stats(drop_42()).await.unwrap();
    assert_eq!((stats.direct, stats.issued, stats.waiting), (6, 6, 0));
    fixture.books_balance().await;
}

#[actix_rt::test]
async fn a_throttled_door_stays_shut_for_a_tick_after_the_replica_began() {
    let fixture = ServiceFixture::with(|config| {
        config.redis.on_failure = OnFailure::Throttle;
        config.redis.replicas = Some(1);
    });
    fixture.store.be(away());
    fixture.machine.advance(Duration::from_millis(1999));
    assert_eq!(told(&fixture.ask(1).await), "WAITING", "another replica's batch may just have gone");
    fixture.machine.advance(Duration::from_millis(1));
    assert_eq!(told(&fixture.ask(1).await), "DIRECT_ADMITTED");
}

/// Three replicas on one clock; people ask any of them at any time. Checks how many people all three admit together.
#[actix_rt::test]
async fn three_throttled_replicas_let_no_more_than_the_target_through_in_any_window_of_a_tick() {
    let replicas: Vec<ServiceFixture> = (0..3).map(|_| throttled(10, 3)).collect();
    replicas.iter().for_each(|replica| replica.store.be(away()));
    let (mut through, mut asking) = (Vec::new(), 0u64);
    for at in (0..12_000u64).step_by(100) {
        for _ in 0..4 {
            // Asks all replicas, in an uneven order.
            asking += 1;
            let replica = &replicas[(asking * asking / 7 % 3) as usize];
            if told(&replica.ask(asking).await) == "DIRECT_ADMITTED" {
                through.push(at);
            }
        }
        replicas.iter().for_each(|replica| replica.machine.advance(Duration::from_millis(100)));
    }
    for (i, start) in through.iter().enumerate() {
        let within = through[i..].iter().take_while(|at| **at < start + 2000).count();
        assert!(within <= 10, "{within} from {start}: {through:?}");
    }
    assert!(through.len() >= 50, "and close to it: {}", through.len());
}

#[actix_rt::test]
async fn a_pause_and_a_pace_of_the_operator_hold_without_the_store() {
    let fixture = throttled(6, 3);
    let position = QueuePosition {
        seq: 1,
        ahead: 0,
        pacing: Pacing { batch: 3, tick_ms: 2000 },
        next_tick_in_ms: 0,
        paused: false,
        moving: true,
    };
    fixture.service.outage.record_pacing(drop_42(), &position);
    fixture.store.be(away());
    let answers = [told(&fixture.ask(1).await), told(&fixture.ask(2).await)];
    assert_eq!(answers, ["DIRECT_ADMITTED", "WAITING"]);
}

#[actix_rt::test]
async fn a_target_that_takes_nobody_over_holds_no_other_up_and_is_forgotten_with_the_passes() {
    let fixture = ServiceFixture::with(|config| config.queue.capacity = 100);
    let sound = QueueTarget::new(QueueTargetType::TicketingEvent, 7).unwrap();
    fixture.enter(1).await;
    fixture.service.enter(sound, user(1)).await.unwrap();
    fixture.store.be(away());
    for target in [drop_42(), sound] {
        fixture.service.status(target, user(1)).await.unwrap();
    }
    fixture.store.be(Mood::Answer);
    fixture.store.spoil(drop_42(), Mood::Fail(StoreError::Broken("WRONGTYPE".to_owned())));
    for _ in 0..3 {
        fixture.service.hand_over_admissions().await;
    }
    assert_eq!(fixture.store.stats(sound).await.unwrap().issued, 1);
    let calls = fixture.store.handed_over();
    fixture.pass_time(301);
    fixture.service.hand_over_admissions().await;
    assert_eq!(fixture.store.handed_over(), calls + 1, "tried a last time");
    fixture.service.hand_over_admissions().await;
    assert_eq!(fixture.store.handed_over(), calls + 1, "and forgotten, since the pass is over");
}

#[actix_rt::test]
async fn a_place_goes_also_where_the_store_was_slow_until_the_pass_was_over() {
    let fixture = ServiceFixture::with(|config| config.queue.capacity = 100);
    fixture.enter(1).await;
    fixture.store.be(away());
    fixture.poll(1).await;
    fixture.store.be(Mood::Answer);
    fixture.store.spoil(drop_42(), Mood::Fail(StoreError::TimedOut));
    fixture.pass_time(301);
    fixture.service.hand_over().await;
    fixture.store.spoil(drop_42(), Mood::Answer);
    fixture.service.hand_over().await;
    let stats = fixture.store.stats(drop_42()).await.unwrap();
    assert_eq!((stats.waiting, stats.left), (0, 1));
}

#[actix_rt::test]
async fn direct_passes_are_counted_again_only_where_they_surely_were_not() {
    let fixture = ServiceFixture::new();
    fixture.enter(7).await;
    fixture.flag.0.store(false, Ordering::SeqCst);
    let mut direct = 0;
    for (error, are_kept) in [
        (StoreError::Unavailable("refused".to_owned()), true),
        (StoreError::TimedOut, false),
        (StoreError::Broken("WRONGTYPE".to_owned()), false),
    ] {
        for id in 1..=5 {
            fixture.poll(id).await;
        }
        fixture.store.spoil(drop_42(), Mood::Fail(error.clone()));
        fixture.service.hand_over().await;
        fixture.store.spoil(drop_42(), Mood::Answer);
        fixture.service.hand_over().await;
        direct += if are_kept { 5 } else { 0 };
        assert_eq!(fixture.store.stats(drop_42()).await.unwrap().direct, direct, "{error}");
    }
}
