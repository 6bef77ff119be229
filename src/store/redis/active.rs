//! The list of active targets (`queue:active`). In a Cluster it may be on another master than a target.

use std::sync::atomic::Ordering;

use ::redis::cmd;

use super::{
    RedisStore, reply,
    settings::{Fields, set_anything},
};
use crate::{
    domain::QueueTarget,
    redis::{
        Call, Lane,
        keys::{self, TargetKeys},
        scripts,
    },
    store::StoreError,
};

/// Lists the served targets, then reads the list.
pub(super) async fn active_targets(store: &RedisStore) -> Result<Vec<QueueTarget>, StoreError> {
    let served = store.runner.take_served();
    if !served.is_empty()
        && let Err(error) = store.runner.add_active(served.clone()).await
    {
        store.runner.note_served(served);
        return Err(error);
    }
    let mut read = cmd("SMEMBERS");
    read.arg(keys::ACTIVE);
    let members: Vec<String> = store.runner.masters.ask(Lane::POOLED, keys::ACTIVE, Call::command(read)).await?;
    let targets = members.into_iter().filter_map(|member| {
        let target = QueueTarget::from_label(&member);
        if target.is_err() && !store.malformed_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(member, "not a target in queue:active, ignored; further ones are not logged");
        }
        target.ok()
    });
    Ok(targets.collect())
}

/// Lists a target, unless `limit` others are listed.
pub(super) async fn register_active(
    store: &RedisStore,
    target: QueueTarget,
    limit: Option<u64>,
) -> Result<bool, StoreError> {
    if let Some(limit) = limit {
        // A buyer waits for this call, so it goes on the hot lane.
        let args = [target.to_string(), limit.to_string()];
        let (reply, _) = store.runner.masters.run(Lane::Hot, &scripts::REGISTER, &[keys::ACTIVE], &args, 1).await?;
        if reply::registered(&reply)? {
            return Ok(true);
        }
        // A target with settings is expected: the limit is for the others.
        let keys = TargetKeys::of(target);
        let mut settings = cmd("HGETALL");
        settings.arg(keys.settings());
        let stored: Fields = store.runner.masters.ask(Lane::POOLED, keys.settings(), Call::command(settings)).await?;
        if !set_anything(&stored) && !store.settings.has(target) {
            return Ok(false);
        }
    }
    // The target has room, and a buyer waits for that answer. The list gets the target with the served ones.
    store.runner.note_served([target]);
    Ok(true)
}

/// Removes a target without a queue from the list. False: it has a queue.
pub(super) async fn retire(store: &RedisStore, target: QueueTarget) -> Result<bool, StoreError> {
    // A person may have entered between the pump's look and the removal, so look again after it. Two calls: in a
    // Cluster the two keys may be on different masters.
    let mut remove = cmd("SREM");
    remove.arg(keys::ACTIVE).arg(target.to_string());
    let () = store.runner.masters.ask(Lane::POOLED, keys::ACTIVE, Call::command(remove)).await?;
    let has_queue = match exists(store, TargetKeys::of(target).seq()).await {
        Ok(has_queue) => has_queue,
        Err(error) => {
            // The result is unknown: a person who has entered must not be without a pump.
            store.runner.note_served([target]);
            return Err(error);
        }
    };
    if has_queue {
        store.runner.add_active(vec![target]).await?;
    }
    Ok(!has_queue)
}

async fn exists(store: &RedisStore, key: &str) -> Result<bool, StoreError> {
    let mut exists = cmd("EXISTS");
    exists.arg(key);
    Ok(store.runner.masters.ask(Lane::POOLED, key, Call::command(exists)).await?)
}
