//! Which replicas there are, as they tell each other.

use std::{sync::Arc, time::Duration};

use crate::{
    redis::{Failure, connection::Master, keys},
    store::Replica,
    token::{Fingerprint, KeyFingerprints},
};

/// A replica that has not been heard of for so long is gone. They tell once a second.
const GONE_AFTER: Duration = Duration::from_secs(4);

/// More than these nobody compares.
const MOST: isize = 1000;

/// Writes down that this replica lives; the others that do.
pub(super) async fn announce(master: &Arc<Master>, me: &Replica) -> Result<Vec<Replica>, Failure> {
    let mine = written(me);
    let of_me = mine.clone();
    let asked = master.pooled(move |mut connection| async move {
        let (seconds, micros): (u64, u64) = ::redis::cmd("TIME").query_async(&mut connection).await?;
        let now_ms = seconds * 1000 + micros / 1000;
        let (key, gone_ms) = (keys::REPLICAS, GONE_AFTER.as_millis() as u64);
        let gone = now_ms.saturating_sub(gone_ms);
        // No pipeline, which fails in a way that counts as an outage where our user lacks a right.
        let zadd = ::redis::Cmd::zadd(key, of_me, now_ms);
        let prune = ::redis::Cmd::zrembyscore(key, "-inf", gone);
        let expire = ::redis::Cmd::pexpire(key, i64::try_from(gone_ms).unwrap_or(i64::MAX));
        let list = ::redis::Cmd::zrange(key, -MOST, -1);
        let [mut a, mut b, mut c, mut d] = [(); 4].map(|()| connection.clone());
        let (_, _, _, all) = tokio::try_join!(
            zadd.exec_async(&mut a),
            prune.exec_async(&mut b),
            expire.exec_async(&mut c),
            list.query_async::<Vec<String>>(&mut d),
        )?;
        Ok(all)
    });
    Ok(asked.await?.iter().filter(|other| **other != mine).filter_map(|other| read(other)).collect())
}

/// Takes that back: it ends.
pub(super) async fn withdraw(master: &Arc<Master>, me: &Replica) -> Result<(), Failure> {
    let mine = written(me);
    let asked = master.pooled(|mut connection| async move {
        ::redis::cmd("ZREM").arg(keys::REPLICAS).arg(mine).exec_async(&mut connection).await
    });
    asked.await
}

/// `name current also_accepted…`.
fn written(replica: &Replica) -> String {
    let keys = std::iter::once(&replica.keys.current).chain(&replica.keys.also_accepted);
    keys.fold(replica.name.clone(), |text, key| format!("{text} {key}"))
}

/// What [`written`] wrote. `None`: another version's.
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
