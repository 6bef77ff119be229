//! The gate in Redis, shared by the replicas.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use redis::Script;

use super::{GateAway, Reservation, StockGate};
use crate::{
    clock::StoreClock,
    demo_shop::SeatId,
    domain::UserId,
    redis::{Call, Lane, Masters},
};

/// After a failure buyers do not wait for Redis at all for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a drop's count lives before it is taken from the database again, in milliseconds.
const COUNT_LIFETIME_MS: u64 = 60_000;

static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../redis-scripts/reserve.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../redis-scripts/release.lua")));
static LOCK_SEATS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../redis-scripts/lock_seats.lua")));
static UNLOCK_SEATS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../redis-scripts/unlock_seats.lua")));

/// Asks Redis, within a limit; after a failure not at all for a second.
#[derive(Debug)]
pub struct RedisStockGate {
    masters: Arc<Masters>,
    clock: StoreClock,
    /// A buyer waits this long for Redis, in all.
    limit: Duration,
    /// On the monotonic clock.
    paused_until_ms: AtomicU64,
    /// The last answer was none. For the log: an outage is a line when it begins and one when it ends.
    away: AtomicBool,
}

impl RedisStockGate {
    /// A gate on the Redis of these masters, where a call takes at most `limit` (`redis.command_timeout_ms`).
    pub fn new(masters: Arc<Masters>, clock: StoreClock, limit: Duration) -> Self {
        Self { masters, clock, limit, paused_until_ms: AtomicU64::new(0), away: AtomicBool::new(false) }
    }

    fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }

    async fn run(&self, script: &'static Script, keys: &[String], args: &[String]) -> Result<i64, GateAway> {
        if self.monotonic_ms() < self.paused_until_ms.load(Ordering::Relaxed) {
            return Err(GateAway("it was a moment ago".to_owned()));
        }
        let key = keys.first().map_or("", String::as_str);
        let answer = self.masters.ask(Lane::Aside { limit: self.limit }, key, Call::script(script, keys, args)).await;
        let answer = answer.map_err(|failure| GateAway(failure.to_string()));
        if answer.is_err() {
            self.paused_until_ms.store(self.monotonic_ms() + PAUSE.as_millis() as u64, Ordering::Relaxed);
        }
        let was_away = self.away.swap(answer.is_err(), Ordering::Relaxed);
        match &answer {
            Err(error) if !was_away => tracing::warn!(%error, "selling goes on with the database alone"),
            Ok(_) if was_away => tracing::info!("the stock gate answers again"),
            Ok(_) | Err(_) => {}
        }
        answer
    }
}

fn stock_key(drop_id: u64) -> String {
    format!("shop:{{drop:{drop_id}}}:stock")
}

/// In one slot, since one script takes them all.
fn seat_keys(event_id: u64, seats: &[SeatId]) -> Vec<String> {
    seats.iter().map(|seat| format!("shop:{{event:{event_id}}}:seat:{seat}")).collect()
}

#[async_trait]
impl StockGate for RedisStockGate {
    async fn reserve(&self, drop_id: u64, left: Option<u64>) -> Result<Reservation, GateAway> {
        let left = left.map_or_else(|| "-1".to_owned(), |left| left.to_string());
        match self.run(&RESERVE, &[stock_key(drop_id)], &[left, COUNT_LIFETIME_MS.to_string()]).await? {
            1 => Ok(Reservation::Reserved),
            0 => Ok(Reservation::SoldOut),
            -1 => Ok(Reservation::Unknown),
            other => Err(GateAway(format!("it answered {other} to reserve"))),
        }
    }

    async fn release(&self, drop_id: u64) -> Result<(), GateAway> {
        self.run(&RELEASE, &[stock_key(drop_id)], &[]).await.map(drop)
    }

    async fn lock_seats(
        &self,
        event_id: u64,
        user: UserId,
        seats: &[SeatId],
        hold: Duration,
    ) -> Result<bool, GateAway> {
        let args = [user.to_string(), hold.as_millis().to_string()];
        let locked = self.run(&LOCK_SEATS, &seat_keys(event_id, seats), &args).await?;
        Ok(locked == 1)
    }

    async fn unlock_seats(&self, event_id: u64, user: UserId, seats: &[SeatId]) -> Result<(), GateAway> {
        self.run(&UNLOCK_SEATS, &seat_keys(event_id, seats), &[user.to_string()]).await.map(drop)
    }
}
