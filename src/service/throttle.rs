//! `redis.on_failure = throttle`: how many people a replica admits while the store is unavailable.
//!
//! Replicas cannot talk to each other then, so each has a fixed share: in any window of one tick at most
//! `batch / replicas` people for each target, rounded down. All shares together never exceed the batch, in any window.
//! For that the remainder (less than one person for each replica and tick) is not admitted.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::domain::{Pacing, QueuePosition, QueueTarget};

/// The targets of one replica.
#[derive(Debug)]
pub(super) struct Throttle {
    replicas: u64,
    configured: Pacing,
    targets: Mutex<HashMap<QueueTarget, TargetThrottle>>,
}

/// One target's throttle.
#[derive(Debug, Default)]
struct TargetThrottle {
    /// The pace of the store's last answer, which an operator may have changed. Inner `None`: paused.
    last_seen: Option<Option<Pacing>>,
    /// (time on the monotonic clock, people) admitted within the last window.
    recent: VecDeque<(Duration, u64)>,
}

impl Throttle {
    /// A throttle for one of `replicas` replicas.
    pub(super) fn new(replicas: u64, configured: Pacing) -> Self {
        Self { replicas: replicas.max(1), configured, targets: Mutex::default() }
    }

    /// Notes the pace of the store's answer; this pace also applies without the store.
    pub(super) fn record_pacing(&self, target: QueueTarget, position: &QueuePosition) {
        let pace = (!position.paused).then_some(position.pacing);
        let mut targets = self.lock();
        if pace != Some(self.configured) || targets.contains_key(&target) {
            targets.entry(target).or_default().last_seen = Some(pace);
        }
    }

    /// Forgets the targets without a queue.
    pub(super) fn retain(&self, has_queue: impl Fn(QueueTarget) -> bool) {
        self.lock().retain(|target, _| has_queue(*target));
    }

    /// Takes a slot of this target, if one is free. The last batch may have gone just before the store was lost, so the
    /// first share waits one tick from then: the configured tick or the target's own, whichever is longer.
    pub(super) fn take_slot(&self, target: QueueTarget, lost_at: Duration, now: Duration) -> bool {
        let mut targets = self.lock();
        let throttle = targets.entry(target).or_default();
        let Some(pace) = throttle.last_seen.unwrap_or(Some(self.configured)) else { return false };
        if now < lost_at + Duration::from_millis(pace.tick_ms.max(self.configured.tick_ms)) {
            return false;
        }
        let (share, window) = share(pace, self.replicas);
        while throttle.recent.front().is_some_and(|(at, _)| *at + window <= now) {
            throttle.recent.pop_front();
        }
        if throttle.recent.iter().map(|(_, people)| people).sum::<u64>() >= share {
            return false;
        }
        match throttle.recent.back_mut() {
            Some((at, people)) if *at == now => *people += 1,
            _ => throttle.recent.push_back((now, 1)),
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueTarget, TargetThrottle>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many people a replica may admit, and in which window. If the batch is smaller than the number of replicas (an
/// operator's override; the configuration forbids it), it is one person in as many ticks as keep the long-term rate.
fn share(pace: Pacing, replicas: u64) -> (u64, Duration) {
    let tick = Duration::from_millis(pace.tick_ms);
    match (pace.batch, pace.batch / replicas) {
        (0, _) => (0, tick),
        (batch, 0) => (1, tick.saturating_mul(u32::try_from(replicas.div_ceil(batch)).unwrap_or(u32::MAX))),
        (_, share) => (share, tick),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::QueueTargetType;

    fn target(id: u64) -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, id).unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The times (ms) of the admitted requests, out of requests at these times (ms, replica).
    fn through(batch: u64, replicas: u64, asked: &[(u64, usize)]) -> Vec<u64> {
        let replicas: Vec<Throttle> =
            (0..replicas).map(|_| Throttle::new(replicas, Pacing { batch, tick_ms: 2000 })).collect();
        let took = |(at, replica): &&(u64, usize)| {
            replicas[replica % replicas.len()].take_slot(target(42), ms(0), ms(2000 + *at))
        };
        asked.iter().filter(took).map(|(at, _)| *at).collect()
    }

    proptest! {
        #[test]
        fn all_replicas_together_never_let_more_than_a_batch_through_in_any_window(
            batch in 3u64..40,
            replicas in 1u64..4,
            mut asked in prop::collection::vec((0u64..10_000, 0usize..3), 0..400),
        ) {
            asked.sort_unstable();
            let through = through(batch, replicas, &asked);
            for (i, start) in through.iter().enumerate() {
                let within = through[i..].iter().take_while(|at| **at < start + 2000).count() as u64;
                prop_assert!(within <= batch, "{within} from {start}: {through:?}");
            }
        }
    }

    #[test]
    fn a_crowd_gets_the_whole_share_first_come_first_served_each_tick() {
        let crowd: Vec<(u64, usize)> = (0..10_000).step_by(5).flat_map(|at| (0..3).map(move |of| (at, of))).collect();
        let through = through(100, 3, &crowd);
        for tick in 0..5 {
            let within = through.iter().filter(|at| (tick * 2000..(tick + 1) * 2000).contains(*at)).count();
            assert_eq!(within, 99, "a third rounded down, three times: {through:?}");
        }
        assert!(through.iter().take(99).all(|at| *at < 200), "at once, not spread");
    }

    #[test]
    fn the_first_share_waits_a_tick_from_the_loss_the_targets_own_where_that_is_longer() {
        let throttle = Throttle::new(1, Pacing { batch: 5, tick_ms: 2000 });
        let take = |id, at| throttle.take_slot(target(id), ms(10_000), ms(at));
        assert!(!take(1, 11_999) && take(1, 12_000));
        let pacing = Pacing { batch: 5, tick_ms: 8000 };
        let told = QueuePosition { seq: 1, ahead: 0, pacing, next_tick_in_ms: 0, paused: false, moving: true };
        throttle.record_pacing(target(2), &told);
        assert!(!take(2, 17_999) && take(2, 18_000));
    }

    #[test]
    fn each_target_has_a_door_of_its_own_and_the_operators_pace() {
        let throttle = Throttle::new(3, Pacing { batch: 6, tick_ms: 2000 });
        let told = |batch, paused| QueuePosition {
            seq: 1,
            ahead: 0,
            pacing: Pacing { batch, tick_ms: 2000 },
            next_tick_in_ms: 0,
            paused,
            moving: !paused,
        };
        let slots = |id, at: u64| (0..50).filter(|_| throttle.take_slot(target(id), ms(0), ms(60_000 + at))).count();
        assert_eq!((slots(1, 0), slots(2, 0), slots(1, 1999), slots(1, 2000)), (2, 2, 0, 2));
        throttle.record_pacing(target(1), &told(30, false));
        throttle.record_pacing(target(2), &told(6, true));
        assert_eq!((slots(1, 4000), slots(2, 4000)), (10, 0), "more where the operator said so, nobody while paused");
        throttle.record_pacing(target(2), &told(1, false));
        assert_eq!((slots(2, 10_000), slots(2, 15_999), slots(2, 16_000)), (1, 0, 1), "one person in three ticks");
        throttle.record_pacing(target(2), &told(0, false));
        assert_eq!(slots(2, 60_000), 0);
        throttle.retain(|target| target.id() == 1);
        assert_eq!(slots(2, 70_000), 2, "forgotten with its queue");
    }
}
