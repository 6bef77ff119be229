//! The gate in Redis, shared by the replicas.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bb8_redis::{RedisConnectionManager, bb8::Pool};
use redis::{Script, ScriptInvocation};

use super::{GateAway, Reservation, StockGate};
use crate::{clock::StoreClock, demo_shop::SeatId, domain::UserId};

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
    pool: Pool<RedisConnectionManager>,
    clock: StoreClock,
    /// A buyer waits this long for Redis, in all.
    limit: Duration,
    /// On the monotonic clock.
    paused_until_ms: AtomicU64,
    /// The last answer was none. For the log: an outage is a line when it begins and one when it ends.
    away: AtomicBool,
}

impl RedisStockGate {
    /// A gate on the Redis of this pool, where a call takes at most `limit` (`redis.command_timeout_ms`).
    pub fn new(pool: Pool<RedisConnectionManager>, clock: StoreClock, limit: Duration) -> Self {
        Self { pool, clock, limit, paused_until_ms: AtomicU64::new(0), away: AtomicBool::new(false) }
    }

    fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }

    async fn run(&self, call: &ScriptInvocation<'_>) -> Result<i64, GateAway> {
        if self.monotonic_ms() < self.paused_until_ms.load(Ordering::Relaxed) {
            return Err(GateAway("it was a moment ago".to_owned()));
        }
        let answer = tokio::time::timeout(self.limit, async {
            let mut connection = self.pool.get().await.map_err(|error| GateAway(error.to_string()))?;
            call.invoke_async(&mut *connection).await.map_err(|error| GateAway(error.to_string()))
        });
        let answer = answer.await.unwrap_or_else(|_| Err(GateAway("no answer in time".to_owned())));
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

fn seat_key(event_id: u64, seat: &SeatId) -> String {
    format!("shop:{{event:{event_id}}}:seat:{seat}")
}

#[async_trait]
impl StockGate for RedisStockGate {
    async fn reserve(&self, drop_id: u64, left: Option<u64>) -> Result<Reservation, GateAway> {
        let mut call = RESERVE.key(stock_key(drop_id));
        match left {
            Some(left) => call.arg(left),
            None => call.arg(-1),
        };
        match self.run(call.arg(COUNT_LIFETIME_MS)).await? {
            1 => Ok(Reservation::Reserved),
            0 => Ok(Reservation::SoldOut),
            -1 => Ok(Reservation::Unknown),
            other => Err(GateAway(format!("it answered {other} to reserve"))),
        }
    }

    async fn release(&self, drop_id: u64) -> Result<(), GateAway> {
        self.run(&RELEASE.key(stock_key(drop_id))).await.map(drop)
    }

    async fn lock_seats(
        &self,
        event_id: u64,
        user: UserId,
        seats: &[SeatId],
        hold: Duration,
    ) -> Result<bool, GateAway> {
        let mut call = LOCK_SEATS.prepare_invoke();
        for seat in seats {
            call.key(seat_key(event_id, seat));
        }
        let locked = self.run(call.arg(user.get()).arg(hold.as_millis() as u64)).await?;
        Ok(locked == 1)
    }

    async fn unlock_seats(&self, event_id: u64, user: UserId, seats: &[SeatId]) -> Result<(), GateAway> {
        let mut call = UNLOCK_SEATS.prepare_invoke();
        for seat in seats {
            call.key(seat_key(event_id, seat));
        }
        self.run(call.arg(user.get())).await.map(drop)
    }
}
