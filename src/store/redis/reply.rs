//! What the scripts' replies mean: flat integers in, store types out. Only this module knows their order.

mod reader;

use std::time::Duration;

use self::reader::Reader;
use crate::{
    domain::{Pacing, QueuePosition, QueueStats, WaitHistogram},
    store::{Adopted, Claim, Departure, Place, Settled, StoreError, Sweep, Tick},
};

/// A reply with the store's time (ms).
#[derive(Debug, PartialEq)]
pub(super) struct Timed<T> {
    pub(super) now_ms: u64,
    pub(super) value: T,
}

/// Reads a reply of `now` and more values.
fn timed<T>(
    script: &'static str,
    reply: &[i64],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, StoreError>,
) -> Result<Timed<T>, StoreError> {
    let mut reader = Reader::new(script, reply);
    let now_ms = reader.number()?;
    let value = read(&mut reader)?;
    reader.end()?;
    Ok(Timed { now_ms, value })
}

/// What one call for many people found.
#[derive(Debug, PartialEq)]
pub(super) struct Visits {
    /// Each person's place, in the order of the call.
    pub(super) places: Vec<Option<Place>>,
    /// Passes issued in this call, and the waits that ended with them, as far as they are known.
    pub(super) issued: u64,
    pub(super) waits: Vec<Duration>,
    /// Passes that were found to have ended.
    pub(super) expired: u64,
}

/// The reply of `enter.lua` (`absent` 4: full) or `status.lua` (`absent` 0: not in the queue).
pub(super) fn visits(
    script: &'static str,
    absent: i64,
    people: usize,
    reply: &[i64],
) -> Result<Timed<Visits>, StoreError> {
    let mut reader = Reader::new(script, reply);
    let now_ms = reader.number()?;
    let next_allowed = reader.number()?;
    let pacing = Pacing { batch: reader.number()?, tick_ms: reader.number()? };
    let (paused, moving) = (reader.yes()?, reader.yes()?);
    let mut found =
        Visits { places: Vec::with_capacity(people), issued: 0, waits: Vec::new(), expired: reader.number()? };
    for _ in 0..people {
        let (code, first, second) = (reader.signed()?, reader.number()?, reader.signed()?);
        let place = match code {
            1 => Some(Place::Waiting(QueuePosition {
                seq: first,
                ahead: u64::try_from(second).map_err(|_| reader.odd())?,
                pacing,
                next_tick_in_ms: next_allowed.saturating_sub(now_ms),
                paused,
                moving,
            })),
            2 => {
                found.issued += 1;
                // -1: the entry time is not known.
                found.waits.extend(u64::try_from(second).ok().map(Duration::from_millis));
                Some(Place::Admitted { expires_at: first })
            }
            3 => Some(Place::Admitted { expires_at: first }),
            code if code == absent => None,
            _ => return Err(reader.odd()),
        };
        found.places.push(place);
    }
    reader.end()?;
    Ok(Timed { now_ms, value: found })
}

/// The reply of `leave.lua`.
pub(super) fn departure(reply: &[i64]) -> Result<Timed<Departure>, StoreError> {
    timed("leave", reply, |reader| match reader.signed()? {
        0 => Ok(Departure::WasNotHere),
        1 => Ok(Departure::GaveUpPlace),
        2 => Ok(Departure::GaveUpPass),
        _ => Err(reader.odd()),
    })
}

/// The answer of `purchase.lua` for one purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purchased {
    /// To a claim.
    Claim(Claim),
    /// To a settlement.
    Settled(Settled),
}

/// The reply of `purchase.lua`.
pub(super) fn purchases(count: usize, reply: &[i64]) -> Result<Timed<Vec<Purchased>>, StoreError> {
    let one = |reader: &mut Reader<'_>| match reader.signed()? {
        1 => Ok(Purchased::Claim(Claim::Granted)),
        2 => Ok(Purchased::Claim(Claim::Spent)),
        3 => Ok(Purchased::Claim(Claim::InUse)),
        4 => Ok(Purchased::Claim(Claim::Expired)),
        5 => Ok(Purchased::Settled(Settled::Nothing)),
        6 => Ok(Purchased::Settled(Settled::Consumed)),
        7 => Ok(Purchased::Settled(Settled::DirectConsumed)),
        _ => Err(reader.odd()),
    };
    timed("purchase", reply, |reader| (0..count).map(|_| one(reader)).collect())
}

/// The reply of `direct.lua`: whether the target has a queue.
pub(super) fn direct(reply: &[i64]) -> Result<Timed<bool>, StoreError> {
    timed("direct", reply, |reader| reader.yes())
}

/// The reply of `adopt.lua`.
pub(super) fn adopted(reply: &[i64]) -> Result<Timed<Adopted>, StoreError> {
    timed("adopt", reply, |reader| {
        Ok(Adopted { issued: reader.number()?, expired: reader.number()?, left: reader.number()? })
    })
}

/// The reply of `settings_restore.lua`: whether the settings were written.
pub(super) fn restored(reply: &[i64]) -> Result<Timed<bool>, StoreError> {
    timed("settings_restore", reply, |reader| reader.yes())
}

/// The reply of `evict.lua`.
pub(super) fn sweep(reply: &[i64]) -> Result<Timed<Sweep>, StoreError> {
    timed("evict", reply, |reader| {
        Ok(Sweep { gone: !reader.yes()?, evicted: reader.number()?, expired: reader.number()?, more: reader.yes()? })
    })
}

/// The reply of `admit.lua`.
pub(super) fn tick(reply: &[i64]) -> Result<Timed<Tick>, StoreError> {
    timed("admit", reply, |reader| match reader.signed()? {
        0 => Ok(Tick::Gone),
        1 => Ok(Tick::NotYet(reader.ms()?)),
        2 => Ok(Tick::Moved {
            people: reader.number()?,
            evicted: reader.number()?,
            next_in: reader.ms()?,
            late: reader.ms()?,
        }),
        _ => Err(reader.odd()),
    })
}

/// The reply of `register.lua`.
pub(super) fn registered(reply: &[i64]) -> Result<bool, StoreError> {
    let mut reader = Reader::new("register", reply);
    let there_is_room = reader.yes()?;
    reader.end()?;
    Ok(there_is_room)
}

/// The reply of `stats.lua`.
pub(super) fn stats(reply: &[i64]) -> Result<Timed<QueueStats>, StoreError> {
    timed("stats", reply, |reader| {
        let alive = reader.yes()?;
        let capacity = reader.number()?;
        let pacing = Pacing { batch: reader.number()?, tick_ms: reader.number()? };
        let mut books = QueueStats::unused(capacity, pacing, reader.yes()?);
        if !alive {
            return Ok(books);
        }
        for field in [
            &mut books.waiting,
            &mut books.admitted_through,
            &mut books.last_number,
            &mut books.entered,
            &mut books.issued,
            &mut books.left,
            &mut books.evicted,
            &mut books.live,
            &mut books.consumed,
            &mut books.expired,
            &mut books.revoked,
            &mut books.direct,
            &mut books.direct_consumed,
            &mut books.admitted,
        ] {
            *field = reader.number()?;
        }
        let (in_window, window_ms) = (reader.number()?, reader.number()?);
        books.admission_rate_per_sec = in_window as f64 * 1000.0 / window_ms.max(1) as f64;
        let sum_ms = reader.number()?;
        let mut buckets = Vec::new();
        while !reader.rest.is_empty() {
            buckets.push((reader.number()?, reader.number()?));
        }
        books.waits = WaitHistogram::from_buckets(buckets, sum_ms);
        Ok(books)
    })
}

#[cfg(test)]
mod tests;
