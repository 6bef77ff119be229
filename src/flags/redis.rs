//! The rule in Redis, shared by all replicas (`docs/design.md`, "Switch and flags").
//!
//! One script writes both keys. In a Cluster they need a common hash tag for that; only there they have one.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::StreamExt;
use redis::{FromRedisValue, Script};
use serde_json::Value;
use tokio::{sync::Notify, time::timeout};

use super::{
    AuditEntry, FlagChange, FlagError, FlagRule, FlagSource, UnreadableRule,
    source::{AUDITED_BYTES, RESTORER, restored_because},
};
use crate::{
    domain::UserIdForm,
    redis::{Call, Failure, Lane, Masters, breaker::State},
};

/// The rule and the audit.
const KEYS: [&str; 2] = ["flags:virtual-queue.enabled", "flags:audit"];
/// The same in a Cluster.
const KEYS_OF_ONE_SLOT: [&str; 2] = ["{flags}:virtual-queue.enabled", "{flags}:audit"];
const CHANNEL: &str = "flags:changed";

/// The limit of a call, including the wait for a connection and its test: two round trips on a network so slow that
/// Redis only just counts as available (500 ms). Shorter than the second between two polls.
const LIMIT: Duration = Duration::from_millis(900);
/// A subscription may receive nothing for hours. A PING checks this often that it is still alive.
const PROBE_EVERY: Duration = Duration::from_secs(1);

static PUT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../redis-scripts/includes/flag.lua"),
        include_str!("../../redis-scripts/flag_put.lua")
    ))
});
static RESTORE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../redis-scripts/includes/flag.lua"),
        include_str!("../../redis-scripts/flag_restore.lua")
    ))
});

/// Keeps the rule in Redis.
pub struct RedisFlagSource {
    masters: Arc<Masters>,
    keys: &'static [&'static str; 2],
    audit_kept: usize,
    ids: UserIdForm,
    /// The text last read and its rule: an unchanged text, which may be long, is not parsed again each second.
    last: Mutex<Option<(String, Arc<FlagRule>)>>,
}

impl RedisFlagSource {
    /// Keeps the rule in the Redis of these masters, with the newest `audit_kept` changes ([`super::AUDIT_KEPT`]).
    /// Listens on its own connection.
    pub fn new(masters: Arc<Masters>, audit_kept: usize) -> Self {
        let keys = if masters.have_slots() { &KEYS_OF_ONE_SLOT } else { &KEYS };
        Self { masters, keys, audit_kept, ids: UserIdForm::default(), last: Mutex::new(None) }
    }

    /// The form of user ids in the rule. Decimal unless set.
    #[must_use]
    pub fn ids(self, form: UserIdForm) -> Self {
        Self { ids: form, ..self }
    }

    /// Makes one call, within `LIMIT`.
    async fn call<T: FromRedisValue + Send + 'static>(&self, call: Call) -> Result<T, FlagError> {
        self.masters.ask(Lane::Aside { limit: LIMIT }, self.keys[0], call).await.map_err(refused)
    }

    /// Logs a change that is in force but not in the audit: only this log line records it.
    fn note_audit(&self, lost: &str, who: &str, why: &str) {
        if !lost.is_empty() {
            let key = self.keys[1];
            tracing::error!(
                key,
                cause = lost,
                who,
                why,
                "the flag rule changed, and the audit did not take it: look at its key, and remove it if it is no stream"
            );
        }
    }

    fn parse(&self, text: String) -> Result<Arc<FlagRule>, FlagError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, rule)) = &*last
            && *known == text
        {
            return Ok(Arc::clone(rule));
        }
        let rule = Arc::new(FlagRule::from_stored(&text, self.ids)?);
        *last = Some((text, Arc::clone(&rule)));
        Ok(rule)
    }
}

async fn limited<T>(call: impl Future<Output = Result<T, FlagError>>) -> Result<T, FlagError> {
    timeout(LIMIT, call).await.unwrap_or(Err(FlagError::TimedOut))
}

fn refused(failure: Failure) -> FlagError {
    match failure {
        Failure::Broken(what) if what.contains("WRONGTYPE") => {
            UnreadableRule("its key holds something else than a string".to_owned()).into()
        }
        Failure::TimedOut => FlagError::TimedOut,
        _ => unavailable(failure),
    }
}

fn unavailable(error: impl std::fmt::Display) -> FlagError {
    FlagError::Unavailable { cause: error.to_string() }
}

#[async_trait]
impl FlagSource for RedisFlagSource {
    async fn read(&self) -> Result<Option<Arc<FlagRule>>, FlagError> {
        let mut get = redis::cmd("GET");
        get.arg(self.keys[0]);
        let stored: Option<Vec<u8>> = self.call(Call::command(get)).await?;
        // Bytes that are not text are not JSON either, and are refused as such.
        stored.map(|bytes| self.parse(String::from_utf8_lossy(&bytes).into_owned())).transpose()
    }

    async fn put(&self, change: &FlagChange, who: &str, known: u64) -> Result<Arc<FlagRule>, FlagError> {
        let json = serde_json::to_string(change).expect("a change's keys are text and its values finite");
        let (known, kept) = (known.to_string(), self.audit_kept.to_string());
        let args =
            [json, who.to_owned(), change.reason.clone(), known, kept, AUDITED_BYTES.to_string(), CHANNEL.into()];
        let (stored, lost): (String, String) = self.call(Call::script(&PUT, self.keys, &args)).await?;
        self.note_audit(&lost, who, &change.reason);
        self.parse(stored)
    }

    async fn restore(&self, rule: &FlagRule) -> Result<Arc<FlagRule>, FlagError> {
        let (because, kept) = (restored_because(rule), self.audit_kept.to_string());
        let args =
            [rule.to_stored(), RESTORER.into(), because.clone(), kept, AUDITED_BYTES.to_string(), CHANNEL.into()];
        let (stored, lost): (String, String) = self.call(Call::script(&RESTORE, self.keys, &args)).await?;
        self.note_audit(&lost, RESTORER, &because);
        self.parse(stored)
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>, FlagError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut newest = redis::cmd("XREVRANGE");
        newest.arg(self.keys[1]).arg("+").arg("-").arg("COUNT").arg(limit);
        let entries: Vec<(String, HashMap<String, String>)> = match self.call(Call::command(newest)).await {
            Err(FlagError::Unreadable(_)) => return Err(unavailable(format!("{} is no stream", self.keys[1]))),
            entries => entries?,
        };
        Ok(entries.into_iter().map(|(_, fields)| audit_entry(fields)).collect())
    }

    async fn listen(&self, changed: &Notify) -> Result<(), FlagError> {
        let (client, replaced) = self.masters.any_client().map_err(refused)?;
        let mut replaced = std::pin::pin!(replaced);
        let (mut asking, mut announced) = limited(async {
            let mut subscription = client.get_async_pubsub().await.map_err(unavailable)?;
            subscription.subscribe(CHANNEL).await.map_err(unavailable)?;
            Ok(subscription.split())
        })
        .await?;
        // A change may have been made before this subscription.
        changed.notify_one();
        loop {
            let heard = tokio::select! {
                heard = timeout(PROBE_EVERY, announced.next()) => heard,
                () = &mut replaced => return Ok(()),
            };
            match heard {
                Ok(Some(_)) => changed.notify_one(),
                Ok(None) => return Ok(()),
                Err(_) => {
                    // If the peer is gone and did not close the connection, only a PING shows it.
                    let alive = limited(async { asking.ping::<redis::Value>().await.map_err(unavailable) }).await;
                    if alive.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn knock(&self) -> Result<(), FlagError> {
        // Not through the pool: there a refused connection looks like a slow one.
        match self.masters.connects(self.keys[0]).await {
            Err(Failure::Away(cause)) => Err(FlagError::Unavailable { cause }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn found_again(&self) {
        match self.masters.of(self.keys[0]) {
            Ok(master) if master.breaker().state() != State::Closed => master.breaker().reached(State::Closed).await,
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }
}

/// If a field is missing or unreadable because it was edited by hand, it is shown as it is.
fn audit_entry(mut fields: HashMap<String, String>) -> AuditEntry {
    let mut take = |field| fields.remove(field).unwrap_or_default();
    let rule = |text: String| {
        (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone())))
    };
    AuditEntry {
        at_ms: take("at").parse().unwrap_or_default(),
        old: rule(take("old")),
        new: rule(take("new")),
        who: take("who"),
        why: take("why"),
    }
}
