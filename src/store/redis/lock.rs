//! The tick lock, and the target's settings, which are read with it.

use std::time::Duration;

use ::redis::cmd;

use super::{RedisStore, reply, script_runner::ScriptCall, settings::Fields};
use crate::{
    domain::QueueTarget,
    redis::{
        Call, Failure, Lane,
        keys::{self, TargetKeys},
        scripts,
    },
    store::{StoreError, TickLock},
};

/// No replica takes the tick lock for longer, whatever its tick ([`crate::store::QueueRules::lock_ms`]).
const LONGEST_LOCK_MS: i64 = 2000;
/// The `PTTL` of a missing key.
const NO_KEY: i64 = -2;

/// What was found when the lock of a target was requested.
struct Look {
    /// `None`: no holder, or a value that names none.
    holder: Option<String>,
    ttl_ms: i64,
    settings: Fields,
}

impl Look {
    /// Whether this key cannot be a replica's lock, which ends by itself. Someone else wrote it or copied it without
    /// its expiry, the clock went back, or a failover led to a server whose clock is behind.
    fn is_no_lock(&self) -> bool {
        match &self.holder {
            Some(_) => self.ttl_ms == -1 || self.ttl_ms > LONGEST_LOCK_MS,
            None => self.ttl_ms != NO_KEY,
        }
    }
}

/// Takes the lock, or says how long another holds it. Lost settings are restored first.
pub(super) async fn lock_tick(store: &RedisStore, target: QueueTarget, owner: &str) -> Result<TickLock, StoreError> {
    let key = keys::tick_lock(target);
    let look = match look(store, target, &key, owner, true).await {
        // Only the settings can have a wrong type here. The scripts then use the configuration, and so do we.
        Err(Failure::Broken(why)) if why.contains("WRONGTYPE") => look(store, target, &key, owner, false).await?,
        look => look?,
    };
    let ours = look.holder.as_deref() == Some(owner);
    let is_no_lock = look.is_no_lock();
    if let Some(lost) = store.settings.note_stored(target, look.settings) {
        let version = lost.version();
        if store
            .runner
            .run(ScriptCall::pooled(&scripts::SETTINGS_RESTORE, target, lost.into_args()), reply::restored)
            .await?
        {
            tracing::warn!(%target, version, "redis lost the settings of this target; they are restored");
        }
    }
    if is_no_lock && !ours {
        // Its holder may be gone or may never have existed. The lock only saves work, so nobody waits for it.
        let mut remove = cmd("DEL");
        remove.arg(&key);
        let () = store.runner.masters.ask(Lane::POOLED, &key, Call::command(remove)).await?;
        return Ok(TickLock::HeldFor(Duration::from_millis(1)));
    }
    // The lock may have ended between the commands: then try again at once.
    let rest = Duration::from_millis(look.ttl_ms.max(1).unsigned_abs());
    Ok(if ours { TickLock::Ours } else { TickLock::HeldFor(rest) })
}

async fn look(
    store: &RedisStore,
    target: QueueTarget,
    key: &str,
    owner: &str,
    settings: bool,
) -> Result<Look, Failure> {
    let (mut lock, mut holder, mut rest) = (cmd("SET"), cmd("MGET"), cmd("PTTL"));
    lock.arg(key).arg(owner).arg("NX").arg("PX").arg(store.runner.rules.lock_ms());
    // GET would fail for a key of a wrong type, and with it the whole call.
    holder.arg(key);
    rest.arg(key);
    let mut commands = vec![lock, holder, rest];
    if settings {
        let mut read = cmd("HGETALL");
        read.arg(TargetKeys::of(target).settings());
        commands.push(read);
    }
    // In the order of the commands.
    type Found = (Option<String>, Vec<Option<String>>, i64);
    let masters = &store.runner.masters;
    let ((_, holders, ttl_ms), settings) = if settings {
        let (lock, holders, rest, settings) = masters.ask(Lane::POOLED, key, Call::commands(commands)).await?;
        let found: Found = (lock, holders, rest);
        (found, settings)
    } else {
        let found: Found = masters.ask(Lane::POOLED, key, Call::commands(commands)).await?;
        (found, Fields::new())
    };
    Ok(Look { holder: holders.into_iter().next().flatten(), ttl_ms, settings })
}
