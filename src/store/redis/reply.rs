//! What the scripts' replies mean: flat integers in, our words out. The only place that knows their order.

use std::time::Duration;

use crate::{
    domain::{Pacing, QueuePosition, QueueStats, WaitHistogram},
    store::{Adopted, Claim, Departure, Place, Settled, StoreError, Sweep, Tick},
};

/// A reply, read from the front.
struct Reader<'a> {
    script: &'static str,
    all: &'a [i64],
    rest: &'a [i64],
}

impl<'a> Reader<'a> {
    fn new(script: &'static str, all: &'a [i64]) -> Self {
        Self { script, all, rest: all }
    }

    fn signed(&mut self) -> Result<i64, StoreError> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.odd())?;
        self.rest = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, StoreError> {
        let number = self.signed()?;
        u64::try_from(number).map_err(|_| self.odd())
    }

    fn yes(&mut self) -> Result<bool, StoreError> {
        match self.signed()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.odd()),
        }
    }

    fn ms(&mut self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_millis)
    }

    fn end(&self) -> Result<(), StoreError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.odd()) }
    }

    fn odd(&self) -> StoreError {
        let shown = &self.all[..self.all.len().min(12)];
        StoreError::Broken(format!("{}: {} integers: {shown:?}…", self.script, self.all.len()))
    }
}

/// A reply and the store's time (ms) in it.
#[derive(Debug, PartialEq)]
pub(super) struct Timed<T> {
    pub(super) now_ms: u64,
    pub(super) value: T,
}

/// A reply of `now` and something more.
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
    /// Passes given in this call, and the waits they ended as far as they are known.
    pub(super) issued: u64,
    pub(super) waits: Vec<Duration>,
    /// Passes found to be over in this call.
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

/// What `purchase.lua` says of one purchase.
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
mod tests {
    use super::*;

    #[test]
    fn each_person_gets_their_own_three_integers() {
        let reply =
            [1_002_500, 1_004_000, 100, 2000, 0, 1, 3, 2, 1302, 2500, 1, 101, 0, 3, 1400, 0, 0, 0, 0, 2, 1302, -1];
        let found = visits("status", 0, 5, &reply).unwrap();
        let waiting = QueuePosition {
            seq: 101,
            ahead: 0,
            pacing: Pacing { batch: 100, tick_ms: 2000 },
            next_tick_in_ms: 1500,
            paused: false,
            moving: true,
        };
        let admitted = |expires_at| Some(Place::Admitted { expires_at });
        assert_eq!(found.now_ms, 1_002_500);
        assert_eq!(
            found.value.places,
            [admitted(1302), Some(Place::Waiting(waiting)), admitted(1400), None, admitted(1302)]
        );
        assert_eq!((found.value.issued, found.value.expired), (2, 3));
        assert_eq!(found.value.waits, [Duration::from_millis(2500)], "an unknown entry time is no wait");
    }

    #[test]
    fn a_batch_overdue_is_due_now() {
        let found = visits("status", 0, 1, &[2_000, 1_000, 1, 2000, 0, 1, 0, 1, 5, 4]).unwrap();
        let Some(Place::Waiting(position)) = found.value.places[0] else { panic!("waiting") };
        assert_eq!(position.next_tick_in_ms, 0);
    }

    #[test]
    fn anything_odd_is_an_error_and_never_a_panic() {
        let broken =
            |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Broken(_))), "{result:?}");
        let head = [1, 2, 3, 4, 0, 1, 0];
        for people in [&[][..], &[1], &[1, 5], &[1, 5, -1], &[1, -5, 0], &[9, 0, 0], &[0, 0, 0], &[4, 0, 0, 7]] {
            let reply = [&head[..], people].concat();
            broken(visits("enter", 4, 1, &reply).map(drop));
        }
        broken(visits("enter", 4, 1, &[]).map(drop));
        broken(visits("enter", 4, 0, &[1, 2, 3, 4, 2, 1, 0]).map(drop));
        for reply in [&[][..], &[1], &[-1, 0], &[1, 9], &[1, 0, 0], &[1, -1]] {
            broken(departure(reply).map(drop));
            broken(purchases(1, reply).map(drop));
            broken(sweep(reply).map(drop));
            broken(tick(reply).map(drop));
            broken(stats(reply).map(drop));
        }
        for reply in [&[1, 2][..], &[1, 1], &[1, 2, 1, 1, 1], &[1, 2, 1, 1, 1, -1], &[1, 0, 5]] {
            broken(tick(reply).map(drop));
        }
        broken(stats(&[1, 1, 5, 5, 5, 0, 1]).map(drop));
        broken(registered(&[]).map(drop));
        broken(registered(&[2]).map(drop));
    }

    #[test]
    fn the_books_of_an_unused_target_are_zeros() {
        let books = stats(&[1_000_000, 0, 100_000, 100, 2000, 1]).unwrap().value;
        assert_eq!(books, QueueStats::unused(100_000, Pacing { batch: 100, tick_ms: 2000 }, true));
    }

    #[test]
    fn the_books_are_read_in_the_scripts_order() {
        let mut reply = vec![1_000_000, 1, 10, 100, 2000, 0];
        reply.extend(1..=14);
        reply.extend([300, 60_000, 9_000, 4, 2, 6, 1]);
        let books = stats(&reply).unwrap().value;
        assert_eq!((books.waiting, books.admitted_through, books.last_number, books.entered), (1, 2, 3, 4));
        assert_eq!((books.issued, books.left, books.evicted, books.live, books.consumed), (5, 6, 7, 8, 9));
        assert_eq!((books.expired, books.revoked, books.direct), (10, 11, 12));
        assert_eq!((books.direct_consumed, books.admitted), (13, 14));
        assert_eq!(books.admission_rate_per_sec, 5.0);
        assert_eq!((books.waits.count(), books.waits.mean_seconds()), (3, 3.0));
    }
}
