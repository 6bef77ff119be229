//! The rule in force in this process, kept up to date (`docs/design.md`, "Switch and flags").
//!
//! Requests read the rule from memory. Two loops update it, and each alone is enough: polling brings a change in 3 s,
//! listening at once. While the source is unavailable, the last rule stays in force. Before the first read the rule is
//! unknown (`docs/adr/0014-a-flag-never-read-is-not-off.md`).

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use super::{AuditEntry, FeatureFlagEvaluator, FlagChange, FlagError, FlagRule, FlagSource, Reach};
use crate::{
    config::OnFailure,
    domain::{QueueTarget, QueueTargetType, UserId},
};

/// How long the start waits for a slow source.
const FIRST_READ: Duration = Duration::from_secs(3);
const FIRST_READ_PAUSE: Duration = Duration::from_millis(50);
/// A read is limited to 0.9 s, so a change is seen within 3 s even if one read in between fails.
const POLL_EVERY: Duration = Duration::from_secs(1);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(2);

/// The most audit entries in one answer.
const MAX_AUDIT_PAGE: usize = 1000;

/// The flag in this process: evaluates it, changes it, and follows changes made elsewhere.
pub struct FeatureFlags {
    source: Arc<dyn FlagSource>,
    current: RwLock<Arc<FlagRule>>,
    /// The rule in force if the source says that no rule is set.
    unset: Arc<FlagRule>,
    changed: Notify,
    trouble: Mutex<Trouble>,
    poll_every: Duration,
}

impl FeatureFlags {
    /// Starts with an unknown rule. The default (`flags.virtual_queue_enabled`) decides if the source says that no rule
    /// is set. Until the first read, the flag is off only if the default is off and `redis.on_failure` is `open`. Call
    /// [`Self::first_read`] before serving, then keep [`Self::run`] running.
    pub fn new(source: Arc<dyn FlagSource>, default_enabled: bool, on_failure: OnFailure) -> Self {
        let on_in_doubt = match on_failure {
            OnFailure::Open => default_enabled,
            OnFailure::Throttle | OnFailure::Closed => true,
        };
        Self {
            source,
            current: RwLock::new(Arc::new(FlagRule::while_unknown(on_in_doubt))),
            unset: Arc::new(FlagRule::before_any(default_enabled)),
            changed: Notify::new(),
            trouble: Mutex::new(Trouble::None),
            poll_every: POLL_EVERY,
        }
    }

    #[cfg(test)]
    pub(super) fn polling_every(mut self, poll_every: Duration) -> Self {
        self.poll_every = poll_every;
        self
    }

    /// The rule in force in this process.
    pub fn current(&self) -> Arc<FlagRule> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the rule for every replica. In this process it is in force when this returns.
    ///
    /// # Errors
    /// [`FlagError`] if the source gave no answer. Nothing changed in this process, but the source may have stored the
    /// change and answered too late.
    pub async fn put(&self, change: &FlagChange, who: &str) -> Result<Arc<FlagRule>, FlagError> {
        let rule = self.source.put(change, who, self.current().version()).await?;
        self.adopt(&rule);
        Ok(rule)
    }

    /// The newest changes, newest first: at most `limit`, and at most 1,000.
    ///
    /// # Errors
    /// [`FlagError`] if the source gave no answer.
    pub async fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>, FlagError> {
        self.source.audit(limit.min(MAX_AUDIT_PAGE)).await
    }

    /// Reads the rule for the first time, before serving. Retries for 3 s if the source is slow, and tries once if it
    /// refuses. The outcome is logged. An unavailable source does not stop the start.
    pub async fn first_read(&self) {
        let looking = timeout(FIRST_READ, async {
            loop {
                match self.look().await {
                    Err(FlagError::TimedOut) => self.source.knock().await?,
                    outcome => return outcome,
                }
                sleep(FIRST_READ_PAUSE).await;
            }
        });
        let outcome = looking.await.unwrap_or(Err(FlagError::TimedOut));
        self.log(&outcome);
    }

    /// Reads once: takes over a newer rule, and writes ours back if the source has lost it. A failure is logged when it
    /// begins and when it ends, not in between.
    ///
    /// # Errors
    /// [`FlagError`] if the source gave no answer, or holds something that is not a rule. The rule in force stays.
    pub async fn refresh(&self) -> Result<(), FlagError> {
        let outcome = self.look().await;
        self.log(&outcome);
        outcome
    }

    async fn look(&self) -> Result<(), FlagError> {
        let known = self.current();
        let stored = match self.source.read().await? {
            Some(stored) if stored.version() >= known.version() => stored,
            None if known.version() == 0 => Arc::clone(&self.unset),
            Some(_) | None => self.source.restore(&known).await?,
        };
        self.adopt(&stored);
        Ok(())
    }

    /// Keeps the rule up to date while this future is polled: reads every second, and at once when a change is
    /// announced or the source is available again.
    pub async fn run(&self) {
        tokio::join!(self.poll(), self.listen());
    }

    pub(super) async fn poll(&self) {
        let mut every = interval(self.poll_every);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.changed.notified() => {}
                () = self.source.found_again() => {}
            }
            // `refresh` logs it, and the next read comes anyway.
            let _ = self.refresh().await;
        }
    }

    pub(super) async fn listen(&self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            match self.source.listen(&self.changed).await {
                Ok(()) => backoff = FIRST_BACKOFF,
                Err(error) => {
                    tracing::debug!(?error, "not listening for flag changes, polling brings them");
                    backoff = (backoff * 2).min(LAST_BACKOFF);
                }
            }
            sleep(backoff).await;
        }
    }

    /// Takes over a rule unless ours is newer: answers may overtake each other. If both have the same version (a
    /// failover lost one), the stored rule is used, so that all replicas agree.
    fn adopt(&self, rule: &Arc<FlagRule>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if rule.version() < current.version() || *rule == *current {
            return;
        }
        let (version, change) = (rule.version(), rule.change());
        let (enabled, rollout_percent) = (change.enabled, change.rollout_percent);
        match (current.is_known(), version) {
            (_, 0) => tracing::info!(enabled, "no flag rule is set: flags.virtual_queue_enabled decides"),
            (false, _) => tracing::info!(version, enabled, rollout_percent, "the flag rule was read"),
            (true, _) => tracing::info!(version, enabled, rollout_percent, "the flag rule changed"),
        }
        *current = Arc::clone(rule);
    }

    fn log(&self, outcome: &Result<(), FlagError>) {
        if !self.trouble.lock().unwrap_or_else(PoisonError::into_inner).turns_into(outcome) {
            return;
        }
        let Err(error) = outcome else {
            tracing::info!("the flag store answers again");
            return;
        };
        let cause = match error {
            FlagError::Unavailable { cause } => cause.clone(),
            FlagError::TimedOut | FlagError::Unreadable(_) => error.to_string(),
        };
        let in_force = self.current();
        match (in_force.is_known(), in_force.change().enabled) {
            (true, _) => tracing::warn!(cause, "the flag cannot be read: the last rule stays in force"),
            (false, true) => {
                tracing::error!(cause, "the flag counts as on for everybody: it has not been read since the start");
            }
            (false, false) => tracing::error!(
                cause,
                "everybody is let through without a queue: the flag has not been read since the start. Set \
                 flags.virtual_queue_enabled or redis.on_failure for a sale"
            ),
        }
    }
}

impl FeatureFlagEvaluator for FeatureFlags {
    fn is_enabled(&self, target: QueueTarget, user: UserId) -> bool {
        self.current().is_enabled(target, user)
    }

    fn reach(&self, target: QueueTarget) -> Reach {
        self.current().reach(target)
    }

    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget> {
        self.current().any_of(kind)
    }

    fn names(&self, target: QueueTarget) -> bool {
        self.current().names(target)
    }

    fn is_known(&self) -> bool {
        self.current().is_known()
    }
}

/// The problem with the source that was logged last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    Unavailable,
    Unreadable,
}

impl Trouble {
    /// Whether the outcome differs from what was logged last.
    fn turns_into(&mut self, outcome: &Result<(), FlagError>) -> bool {
        let now = match outcome {
            Ok(()) => Self::None,
            Err(FlagError::Unavailable { .. } | FlagError::TimedOut) => Self::Unavailable,
            Err(FlagError::Unreadable(_)) => Self::Unreadable,
        };
        std::mem::replace(self, now) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{FakeClock, StoreClock},
        flags::{AUDIT_KEPT, EmbeddedFlagSource},
    };

    #[test]
    fn an_answer_that_was_overtaken_changes_nothing() {
        let source = EmbeddedFlagSource::new(StoreClock::new(FakeClock::at(1)), AUDIT_KEPT);
        let flags = FeatureFlags::new(Arc::new(source), false, OnFailure::Open);
        let [older, newer] = [(4, true), (5, false)].map(|(version, enabled)| {
            let change = format!(r#"{{"enabled":{enabled},"reason":"r"}}"#);
            Arc::new(FlagRule::new(version, 1, FlagChange::parse(change.as_bytes(), Default::default()).unwrap()))
        });
        flags.adopt(&newer);
        flags.adopt(&older);
        assert_eq!(flags.current(), newer);
    }

    #[test]
    fn trouble_is_news_once() {
        let unreadable = Err(FlagError::Unreadable(FlagRule::from_stored("on", Default::default()).unwrap_err()));
        let away = Err(FlagError::Unavailable { cause: "refused".to_owned() });
        let mut trouble = Trouble::None;
        let news: Vec<_> = [&Ok(()), &unreadable, &unreadable, &away, &away, &unreadable, &Ok(()), &Ok(())]
            .map(|outcome| trouble.turns_into(outcome))
            .into();
        assert_eq!(news, [false, true, false, true, false, true, true, false]);
    }
}
