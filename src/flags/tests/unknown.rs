//! Before the first read the rule is unknown, which is not off.

use std::{collections::VecDeque, sync::Mutex};

use async_trait::async_trait;

use super::*;
use crate::domain::{QueueTarget, QueueTargetType, UserId};

/// A source with given replies to reads; the last one repeats for ever.
struct Told {
    says: Mutex<VecDeque<Result<Option<Arc<FlagRule>>, FlagError>>>,
    refuses: bool,
}

impl Told {
    fn source(refuses: bool, says: impl IntoIterator<Item = Result<Option<Arc<FlagRule>>, FlagError>>) -> Arc<Self> {
        Arc::new(Self { says: Mutex::new(says.into_iter().collect()), refuses })
    }
}

#[async_trait]
impl FlagSource for Told {
    async fn read(&self) -> Result<Option<Arc<FlagRule>>, FlagError> {
        let mut says = self.says.lock().unwrap();
        if says.len() > 1 { says.pop_front().unwrap() } else { says[0].clone() }
    }
    async fn put(&self, _: &FlagChange, _: &str, _: u64) -> Result<Arc<FlagRule>, FlagError> {
        unreachable!("nobody sets it")
    }
    async fn restore(&self, _: &FlagRule) -> Result<Arc<FlagRule>, FlagError> {
        unreachable!("nothing was lost")
    }
    async fn audit(&self, _: usize) -> Result<Vec<AuditEntry>, FlagError> {
        unreachable!("nobody asks")
    }
    async fn listen(&self, _: &Notify) -> Result<(), FlagError> {
        std::future::pending().await
    }
    async fn knock(&self) -> Result<(), FlagError> {
        if self.refuses { Err(away()) } else { Ok(()) }
    }
}

fn away() -> FlagError {
    FlagError::Unavailable { cause: "refused".to_owned() }
}

fn rule(enabled: bool) -> Arc<FlagRule> {
    Arc::new(FlagRule::new(7, 1, change(enabled, "set")))
}

/// Whether the flag is on for a person, and whether that is known.
fn holds(flags: &FeatureFlags) -> (bool, bool) {
    let target = QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap();
    let on = flags.is_enabled(target, UserId::try_from(7).unwrap());
    assert_eq!(flags.reach(target), if on { Reach::Everybody } else { Reach::Nobody });
    (on, flags.is_known())
}

#[tokio::test]
async fn while_it_is_unknown_it_is_off_only_where_doors_open_in_doubt_and_the_default_is_off() {
    for (on_failure, default, on) in [
        (OnFailure::Open, false, false),
        (OnFailure::Open, true, true),
        (OnFailure::Throttle, false, true),
        (OnFailure::Throttle, true, true),
        (OnFailure::Closed, false, true),
        (OnFailure::Closed, true, true),
    ] {
        let source = Told::source(true, [Err(FlagError::TimedOut), Err(away()), Ok(None)]);
        let flags = FeatureFlags::new(source, default, on_failure);
        assert_eq!(holds(&flags), (on, false), "{on_failure:?} {default}");
        flags.first_read().await;
        assert!(flags.refresh().await.is_err());
        assert_eq!(holds(&flags), (on, false), "{on_failure:?} {default}: away is not known either");
        flags.refresh().await.unwrap();
        assert_eq!(holds(&flags), (default, true), "{on_failure:?} {default}: no rule is set, so the default holds");

        let source = Told::source(true, [Ok(Some(rule(!default))), Err(away())]);
        let flags = FeatureFlags::new(source, default, on_failure);
        flags.first_read().await;
        assert!(flags.refresh().await.is_err());
        assert_eq!(holds(&flags), (!default, true), "{on_failure:?} {default}: the last rule holds in an outage");
    }
}

#[tokio::test]
async fn what_is_no_rule_tells_nobody_whether_it_is_on() {
    let rubbish = FlagError::from(FlagRule::from_stored("on", Default::default()).unwrap_err());
    let flags = FeatureFlags::new(Told::source(false, [Err(rubbish)]), false, OnFailure::Closed);
    flags.first_read().await;
    assert_eq!(holds(&flags), (true, false));
}

#[tokio::test]
async fn a_start_waits_for_a_slow_source_and_not_for_one_that_refuses() {
    let slow = || [Err(FlagError::TimedOut), Err(FlagError::TimedOut), Ok(Some(rule(true)))];
    for (refuses, holds_then) in [(false, (true, true)), (true, (false, false))] {
        let flags = FeatureFlags::new(Told::source(refuses, slow()), false, OnFailure::Open);
        timeout(Duration::from_secs(1), flags.first_read()).await.expect("soon");
        assert_eq!(holds(&flags), holds_then, "refuses: {refuses}");
    }
    let flags = FeatureFlags::new(Told::source(false, [Err(FlagError::TimedOut)]), false, OnFailure::Open);
    timeout(Duration::from_secs(4), flags.first_read()).await.expect("a start does not wait for ever");
    assert_eq!(holds(&flags), (false, false));
}

#[tokio::test]
async fn a_redis_that_is_found_again_is_asked_at_once() {
    let mut server = TestServer::start();
    let masters = server.masters().await;
    server.kill();
    masters.of(RULE).unwrap().breaker().reached(State::Open).await;
    let source = RedisFlagSource::new(masters.clone(), AUDIT_KEPT);
    assert!(matches!(source.knock().await, Err(FlagError::Unavailable { .. })));
    let flags = FeatureFlags::new(Arc::new(source), true, OnFailure::Closed);
    timeout(Duration::from_secs(2), flags.first_read()).await.expect("nobody waits for one that refuses");
    let flags = flags.polling_every(Duration::from_secs(3600));
    let comes_back = async {
        sleep(Duration::from_millis(300)).await;
        assert!(!flags.is_known());
        server.restart();
        until("it is known", async || flags.is_known()).await;
    };
    // Neither the next poll nor a subscription can bring the rule.
    tokio::select! {
        () = flags.poll() => unreachable!("it polls for ever"),
        () = comes_back => {}
    }
    assert_eq!(holds(&flags), (true, true));
}
