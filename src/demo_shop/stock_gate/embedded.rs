//! The gate in memory, for one process.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::{GateAway, Reservation, StockGate};
use crate::{clock::StoreClock, demo_shop::SeatId, domain::UserId};

/// Does in memory what the scripts do in Redis.
#[derive(Debug)]
pub struct EmbeddedStockGate {
    clock: StoreClock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Pieces left by drop.
    stock: HashMap<u64, u64>,
    /// Who has which seats until when (ms), by event.
    seats: HashMap<u64, HashMap<SeatId, (UserId, u64)>>,
}

impl EmbeddedStockGate {
    /// A gate that knows no drop and no seat.
    pub fn new(clock: StoreClock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The database has the last word, so a state half changed by a panic does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StockGate for EmbeddedStockGate {
    async fn reserve(&self, drop_id: u64, left: Option<u64>) -> Result<Reservation, GateAway> {
        let mut state = self.state();
        if let Some(left) = left {
            state.stock.entry(drop_id).or_insert(left);
        }
        Ok(match state.stock.get_mut(&drop_id) {
            None => Reservation::Unknown,
            Some(0) => Reservation::SoldOut,
            Some(left) => {
                *left -= 1;
                Reservation::Reserved
            }
        })
    }

    async fn release(&self, drop_id: u64) -> Result<(), GateAway> {
        if let Some(left) = self.state().stock.get_mut(&drop_id) {
            *left += 1;
        }
        Ok(())
    }

    async fn lock_seats(
        &self,
        event_id: u64,
        user: UserId,
        seats: &[SeatId],
        hold: Duration,
    ) -> Result<bool, GateAway> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state();
        let locks = state.seats.entry(event_id).or_default();
        locks.retain(|_, (_, until_ms)| *until_ms > now_ms);
        if seats.iter().any(|seat| locks.get(seat).is_some_and(|(holder, _)| *holder != user)) {
            return Ok(false);
        }
        let until_ms = now_ms + hold.as_millis() as u64;
        locks.extend(seats.iter().map(|seat| (seat.clone(), (user, until_ms))));
        Ok(true)
    }

    async fn unlock_seats(&self, event_id: u64, user: UserId, seats: &[SeatId]) -> Result<(), GateAway> {
        if let Some(locks) = self.state().seats.get_mut(&event_id) {
            locks.retain(|seat, (holder, _)| *holder != user || !seats.contains(seat));
        }
        Ok(())
    }
}
