//! One call to Redis: commands on keys of one slot, or one script.
//!
//! A call is a list of commands, not code that runs on a connection: in a Cluster it may have to be made again at
//! another master, with an ASKING before each of its commands.

use std::time::Duration;

use ::redis::{
    Cmd, FromRedisValue, RedisError, Script, Value, aio::MultiplexedConnection, cmd, from_redis_value, pipe,
};

use super::failure::codes;

/// Which connection a call uses, how long it may take, and whether the circuit breaker applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The connection that all buyers share. Limit: `redis.command_timeout_ms`. The breaker stops calls and learns.
    Hot,
    /// A connection of the pool, for pumps and operators. The limit and the breaker are the same. Not sent if the
    /// master was lost less than `quiet` ago.
    Pooled {
        /// How long no call is sent after a loss. Zero: a call may go at once.
        quiet: Duration,
    },
    /// A connection of the pool, for calls outside the queue. The breaker neither stops the call nor learns of it.
    Aside {
        /// How long it may take, waiting for a connection included.
        limit: Duration,
    },
}

impl Lane {
    /// A call of a pump or an operator that may go at any time.
    pub const POOLED: Self = Self::Pooled { quiet: Duration::ZERO };
}

/// A call.
#[derive(Debug)]
pub struct Call {
    commands: Vec<Cmd>,
    /// Loaded if the server does not have it.
    script: Option<&'static Script>,
}

impl Call {
    /// One command. Its reply is the reply of the call.
    pub fn command(command: Cmd) -> Self {
        Self::commands(vec![command])
    }

    /// Commands on keys of one slot. The reply of the call is the list of their replies.
    pub fn commands(commands: Vec<Cmd>) -> Self {
        Self { commands, script: None }
    }

    /// A script.
    pub fn script<K: AsRef<str>>(script: &'static Script, keys: &[K], args: &[String]) -> Self {
        let mut eval = cmd("EVALSHA");
        eval.arg(script.get_hash()).arg(keys.len());
        for key in keys {
            eval.arg(key.as_ref());
        }
        eval.arg(args);
        Self { commands: vec![eval], script: Some(script) }
    }

    /// Makes the call. `asking`: the slot is still moving to this master.
    pub(super) async fn make<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        asking: bool,
    ) -> Result<T, RedisError> {
        let reply = match (self.reply(connection, asking).await, self.script) {
            (Err(error), Some(script)) if codes(&error).iter().any(|code| code == "NOSCRIPT") => {
                script.load_async(connection).await?;
                self.reply(connection, asking).await
            }
            (reply, _) => reply,
        };
        Ok(from_redis_value(reply?)?)
    }

    async fn reply(&self, connection: &mut MultiplexedConnection, asking: bool) -> Result<Value, RedisError> {
        if let ([command], false) = (&self.commands[..], asking) {
            return command.query_async(connection).await;
        }
        let mut all = pipe();
        for command in &self.commands {
            if asking {
                all.cmd("ASKING").ignore();
            }
            all.add_command(command.clone());
        }
        let mut replies: Vec<Value> = all.query_async(connection).await?;
        Ok(if self.commands.len() == 1 { replies.pop().unwrap_or(Value::Nil) } else { Value::Array(replies) })
    }
}
