//! The rule in Redis: shared by all replicas (DESIGN 7).
//!
//! Both keys are written by one script. They have no common hash tag, so this wants a Redis that is not a Cluster.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bb8_redis::{RedisConnectionManager, bb8};
use futures_util::StreamExt;
use redis::{RedisError, Script, aio::MultiplexedConnection};
use serde_json::Value;
use tokio::{sync::Notify, time::timeout};

use super::{
    AuditEntry, FlagChange, FlagError, FlagRule, FlagSource, UnreadableRule,
    source::{AUDITED_BYTES, RESTORER, restored_because},
};

const RULE_KEY: &str = "flags:virtual-queue.enabled";
const AUDIT_KEY: &str = "flags:audit";
const CHANNEL: &str = "flags:changed";

/// A call takes no longer, waiting for a connection included.
const LIMIT: Duration = Duration::from_millis(500);
/// A subscription hears nothing for hours; so often it is asked whether it still lives.
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
    client: redis::Client,
    pool: bb8::Pool<RedisConnectionManager>,
    audit_kept: usize,
    /// The text last read and what it says: an unchanged one, and it may be long, is not read anew each second.
    last: Mutex<Option<(String, Arc<FlagRule>)>>,
}

impl RedisFlagSource {
    /// Sends commands through `pool`, listens on a connection of its own from `client`, and keeps the newest
    /// `audit_kept` changes ([`super::AUDIT_KEPT`]). The pool must test its connections (bb8's default): it does not
    /// notice a broken one otherwise.
    pub fn new(client: redis::Client, pool: bb8::Pool<RedisConnectionManager>, audit_kept: usize) -> Self {
        Self { client, pool, audit_kept, last: Mutex::new(None) }
    }

    /// Runs one command on a pooled connection, in bounded time.
    async fn command<T>(
        &self,
        run: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, FlagError> {
        limited(async {
            let mut connection = self.pool.get().await.map_err(unavailable)?;
            run(&mut connection).await.map_err(refused)
        })
        .await
    }

    fn parse(&self, text: String) -> Result<Arc<FlagRule>, FlagError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, rule)) = &*last
            && *known == text
        {
            return Ok(Arc::clone(rule));
        }
        let rule = Arc::new(FlagRule::from_stored(&text)?);
        *last = Some((text, Arc::clone(&rule)));
        Ok(rule)
    }
}

async fn limited<T>(call: impl Future<Output = Result<T, FlagError>>) -> Result<T, FlagError> {
    timeout(LIMIT, call).await.unwrap_or_else(|_| Err(FlagError::Unavailable { cause: "no answer in time".to_owned() }))
}

fn refused(error: RedisError) -> FlagError {
    match error.code() {
        Some("WRONGTYPE") => UnreadableRule("its key holds something else than a string".to_owned()).into(),
        _ => unavailable(error),
    }
}

fn unavailable(error: impl std::fmt::Display) -> FlagError {
    FlagError::Unavailable { cause: error.to_string() }
}

#[async_trait]
impl FlagSource for RedisFlagSource {
    async fn read(&self) -> Result<Option<Arc<FlagRule>>, FlagError> {
        let stored: Option<Vec<u8>> =
            self.command(async |redis| redis::cmd("GET").arg(RULE_KEY).query_async(redis).await).await?;
        // Bytes that are no text are no JSON either, and are refused as such.
        stored.map(|bytes| self.parse(String::from_utf8_lossy(&bytes).into_owned())).transpose()
    }

    async fn put(&self, change: &FlagChange, who: &str, known: u64) -> Result<Arc<FlagRule>, FlagError> {
        let json = serde_json::to_string(change).expect("a change's keys are text and its values finite");
        let mut call = PUT.key(RULE_KEY);
        call.key(AUDIT_KEY).arg(json).arg(who).arg(&change.reason).arg(known);
        call.arg(self.audit_kept).arg(AUDITED_BYTES).arg(CHANNEL);
        let stored = self.command(async |redis| call.invoke_async(redis).await).await?;
        self.parse(stored)
    }

    async fn restore(&self, rule: &FlagRule) -> Result<Arc<FlagRule>, FlagError> {
        let mut call = RESTORE.key(RULE_KEY);
        call.key(AUDIT_KEY).arg(rule.to_stored()).arg(RESTORER).arg(restored_because(rule));
        call.arg(self.audit_kept).arg(AUDITED_BYTES).arg(CHANNEL);
        let stored = self.command(async |redis| call.invoke_async(redis).await).await?;
        self.parse(stored)
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditEntry>, FlagError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let entries: Vec<(String, HashMap<String, String>)> = self
            .command(async |redis| {
                let mut newest = redis::cmd("XREVRANGE");
                newest.arg(AUDIT_KEY).arg("+").arg("-").arg("COUNT").arg(limit);
                newest.query_async(redis).await
            })
            .await?;
        Ok(entries.into_iter().map(|(_, fields)| audit_entry(fields)).collect())
    }

    async fn listen(&self, changed: &Notify) -> Result<(), FlagError> {
        let (mut asking, mut announced) = limited(async {
            let mut subscription = self.client.get_async_pubsub().await.map_err(unavailable)?;
            subscription.subscribe(CHANNEL).await.map_err(unavailable)?;
            Ok(subscription.split())
        })
        .await?;
        // A change may have been made before we listened.
        changed.notify_one();
        loop {
            match timeout(PROBE_EVERY, announced.next()).await {
                Ok(Some(_)) => changed.notify_one(),
                Ok(None) => return Ok(()),
                Err(_) => {
                    // A peer that vanished without a word is noticed only by asking.
                    let alive = limited(async { asking.ping::<redis::Value>().await.map_err(unavailable) }).await;
                    if alive.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// What is missing or unreadable in an entry, by somebody's hand, is shown as it is.
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
