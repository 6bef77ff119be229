//! The rule in memory, for one process. It is lost when the process ends.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    AuditEntry, FlagChange, FlagError, FlagRule, FlagSource,
    source::{AUDITED_BYTES, RESTORER, restored_because},
};
use crate::clock::StoreClock;

/// Keeps the rule in memory.
#[derive(Debug)]
pub struct EmbeddedFlagSource {
    clock: StoreClock,
    audit_kept: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    rule: Option<Arc<FlagRule>>,
    /// Newest first.
    audit: VecDeque<AuditEntry>,
}

impl EmbeddedFlagSource {
    /// A source without a rule. It keeps the newest `audit_kept` changes ([`super::AUDIT_KEPT`]).
    pub fn new(clock: StoreClock, audit_kept: usize) -> Self {
        Self { clock, audit_kept, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, kept: &mut Kept, rule: FlagRule, who: &str, why: String) -> Arc<FlagRule> {
        let rule = Arc::new(rule);
        let old = kept.rule.replace(Arc::clone(&rule));
        kept.audit.push_front(AuditEntry {
            who: who.to_owned(),
            at_ms: self.clock.now_ms(),
            old: old.map(|old| audited(&old)),
            new: Some(audited(&rule)),
            why,
        });
        kept.audit.truncate(self.audit_kept);
        rule
    }
}

fn audited(rule: &FlagRule) -> Value {
    let length = rule.to_stored().len();
    if length > AUDITED_BYTES {
        return json!({"version": rule.version(), "omittedBytes": length});
    }
    serde_json::to_value(rule).expect("a rule's keys are text and its values finite")
}

#[async_trait]
impl FlagSource for EmbeddedFlagSource {
    async fn read(&self) -> Result<Option<Arc<FlagRule>>, FlagError> {
        Ok(self.kept().rule.clone())
    }

    async fn put(&self, change: &FlagChange, who: &str, known: u64) -> Result<Arc<FlagRule>, FlagError> {
        let mut kept = self.kept();
        let stored = kept.rule.as_ref().map_or(0, |rule| rule.version());
        let now = self.clock.now_ms();
        let rule = FlagRule::new((stored.max(known) + 1).max(now), now, change.clone());
        Ok(self.store(&mut kept, rule, who, change.reason.clone()))
    }

    async fn restore(&self, rule: &FlagRule) -> Result<Arc<FlagRule>, FlagError> {
        let mut kept = self.kept();
        match &kept.rule {
            Some(stored) if stored.version() >= rule.version() => Ok(Arc::clone(stored)),
            _ => Ok(self.store(&mut kept, rule.clone(), RESTORER, restored_because(rule))),
        }
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>, FlagError> {
        Ok(self.kept().audit.iter().take(limit).cloned().collect())
    }

    async fn listen(&self, _changed: &Notify) -> Result<(), FlagError> {
        // Every change is made in this process, and the answer to the change updates the snapshot.
        std::future::pending().await
    }
}
