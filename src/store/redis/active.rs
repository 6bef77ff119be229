//! The list of the targets that pumps look after (`queue:active`). In a Cluster it may be at another master than a target.

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

impl RedisStore {
    /// Who is listed, after listing those who were served.
    pub(super) async fn read_active(&self) -> Result<Vec<QueueTarget>, StoreError> {
        let served = self.runner.take_served();
        if !served.is_empty()
            && let Err(error) = self.runner.add_active(served.clone()).await
        {
            self.runner.note_served(served);
            return Err(error);
        }
        let mut read = cmd("SMEMBERS");
        read.arg(keys::ACTIVE);
        let members: Vec<String> = self.runner.masters.ask(Lane::POOLED, keys::ACTIVE, Call::command(read)).await?;
        let targets = members.into_iter().filter_map(|member| {
            let target = QueueTarget::from_label(&member);
            if target.is_err() && !self.malformed_logged.swap(true, Ordering::Relaxed) {
                tracing::warn!(member, "not a target in queue:active, ignored; further ones are not logged");
            }
            target.ok()
        });
        Ok(targets.collect())
    }

    /// Lists a target, unless there are `limit` others already.
    pub(super) async fn list_as_active(&self, target: QueueTarget, limit: Option<u64>) -> Result<bool, StoreError> {
        if let Some(limit) = limit {
            // A buyer waits for it: on the connection of people's calls.
            let args = [target.to_string(), limit.to_string()];
            let (reply, _) = self.runner.masters.run(Lane::Hot, &scripts::REGISTER, &[keys::ACTIVE], &args, 1).await?;
            if reply::registered(&reply)? {
                return Ok(true);
            }
            // A target with settings is expected: the limit is against the others.
            let keys = TargetKeys::of(target);
            let mut settings = cmd("HGETALL");
            settings.arg(keys.settings());
            let stored: Fields =
                self.runner.masters.ask(Lane::POOLED, keys.settings(), Call::command(settings)).await?;
            if !set_anything(&stored) && !self.settings.has(target) {
                return Ok(false);
            }
        }
        // It has room, and a buyer waits to hear that: the list gets it with those that were served.
        self.runner.note_served([target]);
        Ok(true)
    }

    /// Takes a target that has no queue off the list. False: it has one.
    pub(super) async fn retire_target(&self, target: QueueTarget) -> Result<bool, StoreError> {
        // Somebody may have entered between the pump's look and the removal: so it looks again after it. Two calls: in a
        // Cluster the two keys are at different masters.
        let mut remove = cmd("SREM");
        remove.arg(keys::ACTIVE).arg(target.to_string());
        let () = self.runner.masters.ask(Lane::POOLED, keys::ACTIVE, Call::command(remove)).await?;
        let has_queue = match self.exists(TargetKeys::of(target).seq()).await {
            Ok(has_queue) => has_queue,
            Err(error) => {
                // Not known: whoever entered must not be without a pump.
                self.runner.note_served([target]);
                return Err(error);
            }
        };
        if has_queue {
            self.runner.add_active(vec![target]).await?;
        }
        Ok(!has_queue)
    }

    async fn exists(&self, key: &str) -> Result<bool, StoreError> {
        let mut exists = cmd("EXISTS");
        exists.arg(key);
        Ok(self.runner.masters.ask(Lane::POOLED, key, Call::command(exists)).await?)
    }
}
