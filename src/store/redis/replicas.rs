//! Which replicas there are; they announce themselves.

use std::time::Duration;

use crate::{
    redis::{Call, Failure, Lane, Masters, keys},
    store::Replica,
    token::{Fingerprint, KeyFingerprints},
};

/// A replica that was not heard of for this long is gone. Replicas announce themselves once a second.
const GONE_AFTER: Duration = Duration::from_secs(4);

/// Most replicas that are compared.
const MOST: isize = 1000;

/// Writes that this replica is alive. Returns the others that are.
pub(super) async fn announce(masters: &Masters, me: &Replica) -> Result<Vec<Replica>, Failure> {
    let mine = written(me);
    let (seconds, micros): (u64, u64) = ask(masters, Call::command(::redis::cmd("TIME"))).await?;
    let now_ms = seconds * 1000 + micros / 1000;
    let (key, gone_ms) = (keys::REPLICAS, GONE_AFTER.as_millis() as u64);
    let gone = now_ms.saturating_sub(gone_ms);
    let tell = Call::commands(vec![
        ::redis::Cmd::zadd(key, &mine, now_ms),
        ::redis::Cmd::zrembyscore(key, "-inf", gone),
        ::redis::Cmd::pexpire(key, i64::try_from(gone_ms).unwrap_or(i64::MAX)),
        ::redis::Cmd::zrange(key, -MOST, -1),
    ]);
    let (_, _, _, all): (u64, u64, bool, Vec<String>) = ask(masters, tell).await?;
    Ok(all.iter().filter(|other| **other != mine).filter_map(|other| read(other)).collect())
}

/// Removes this replica: it ends.
pub(super) async fn withdraw(masters: &Masters, me: &Replica) -> Result<(), Failure> {
    let mut remove = ::redis::cmd("ZREM");
    remove.arg(keys::REPLICAS).arg(written(me));
    ask(masters, Call::command(remove)).await
}

/// Failures do not open the breaker: a right that our user lacks is no outage. Not while Redis is unavailable.
async fn ask<T: ::redis::FromRedisValue + Send + 'static>(masters: &Masters, call: Call) -> Result<T, Failure> {
    masters.of(keys::REPLICAS)?.breaker().check()?;
    masters.ask(Lane::Aside { limit: masters.call_limit() }, keys::REPLICAS, call).await
}

/// `name current also_accepted…`.
fn written(replica: &Replica) -> String {
    let keys = std::iter::once(&replica.keys.current).chain(&replica.keys.also_accepted);
    keys.fold(replica.name.clone(), |text, key| format!("{text} {key}"))
}

/// Reads what [`written`] wrote. `None`: another version wrote it.
fn read(text: &str) -> Option<Replica> {
    let mut words = text.split(' ');
    let name = words.next()?.to_owned();
    let current = Fingerprint::parse(words.next()?)?;
    let also_accepted = words.map(Fingerprint::parse).collect::<Option<_>>()?;
    Some(Replica { name, keys: KeyFingerprints { current, also_accepted } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_read_as_it_was_written() {
        for text in ["vm:8080/3f9a12bc 00c0ffee", "vm:8080/3f9a12bc 00c0ffee 0badf00d ffffffff"] {
            assert_eq!(written(&read(text).unwrap()), text);
        }
        for other in ["", "name", "name secret", "name 00c0ffee x", "name  00c0ffee"] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }
}
