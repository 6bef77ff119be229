//! Selling: the gate says no early, the database has the last word.

use std::{sync::Arc, time::Duration};

use actix_web::web;

use super::{
    database::{Database, DatabaseError},
    seat::SeatId,
    stock_gate::{Reservation, StockGate},
};
use crate::{
    clock::StoreClock,
    domain::{UserId, UserIdForm},
};

/// How long selected seats are locked: as long as a pass lives (TDD OQ3).
pub const SEAT_LOCK: Duration = Duration::from_secs(300);

/// Why something was not sold.
#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    /// No piece is left.
    #[error("sold out")]
    SoldOut,
    /// Another has one of the seats.
    #[error("a seat is taken")]
    SeatTaken,
    /// One of the seats is not locked by this person (any more).
    #[error("a seat is not locked")]
    SeatNotLocked,
    /// Too much is going on; nothing happened, and trying again makes sense.
    #[error("the shop is busy")]
    Busy,
    /// The database failed.
    #[error("the shop failed: {0}")]
    Failed(String),
}

impl From<DatabaseError> for ShopError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Busy => Self::Busy,
            DatabaseError::Failed(_) => Self::Failed(error.to_string()),
        }
    }
}

/// The shop.
pub struct ShopService {
    database: Database,
    gate: Arc<dyn StockGate>,
    clock: StoreClock,
    stock: u64,
    ids: UserIdForm,
}

impl ShopService {
    /// A shop where every drop begins with `stock` pieces.
    pub fn new(database: Database, gate: Arc<dyn StockGate>, clock: StoreClock, stock: u64) -> Self {
        Self { database, gate, clock, stock, ids: UserIdForm::default() }
    }

    /// What the ids of buyers look like. Decimal unless set.
    #[must_use]
    pub fn ids(self, form: UserIdForm) -> Self {
        Self { ids: form, ..self }
    }

    /// The buyer with this id, if it is one.
    pub(super) fn buyer(&self, id: &str) -> Option<UserId> {
        self.ids.parse(id).ok()
    }

    /// Sells one piece of a drop: the order's id. A person may order any number of times.
    ///
    /// # Errors
    /// [`ShopError::SoldOut`], or that the database did not do it.
    pub async fn order(&self, drop_id: u64, user: UserId) -> Result<String, ShopError> {
        let reserved = self.reserve(drop_id).await?;
        let (stock, now_ms) = (self.stock, self.clock.now_ms());
        match self.database(move |database| database.sell_piece(drop_id, user, stock, now_ms)).await {
            Ok(Some(order_id)) => Ok(order_id),
            // Nothing is left, so a reserved piece is none to give back.
            Ok(None) => Err(ShopError::SoldOut),
            Err(error) => {
                if reserved {
                    // A gate that cannot take it back asks the database again before long.
                    let _ = self.gate.release(drop_id).await;
                }
                Err(error)
            }
        }
    }

    /// Whether the gate has reserved a piece; false: it is away, and the database alone decides.
    async fn reserve(&self, drop_id: u64) -> Result<bool, ShopError> {
        let mut reservation = self.gate.reserve(drop_id, None).await;
        if reservation == Ok(Reservation::Unknown) {
            let stock = self.stock;
            let left = self.database(move |database| database.remaining(drop_id, stock)).await?;
            reservation = self.gate.reserve(drop_id, Some(left)).await;
        }
        match reservation {
            Ok(Reservation::Reserved) => Ok(true),
            Ok(Reservation::SoldOut) => Err(ShopError::SoldOut),
            Ok(Reservation::Unknown) | Err(_) => Ok(false),
        }
    }

    /// Locks all the seats for this person for [`SEAT_LOCK`], or none: the second (since the epoch) they are free
    /// again. Seats the person has locked already are locked anew.
    ///
    /// # Errors
    /// [`ShopError::SeatTaken`], or that the database did not do it.
    pub async fn select_seats(&self, event_id: u64, user: UserId, seats: Vec<SeatId>) -> Result<u64, ShopError> {
        let at_gate = self.gate.lock_seats(event_id, user, &seats, SEAT_LOCK).await;
        if at_gate == Ok(false) {
            return Err(ShopError::SeatTaken);
        }
        let now_ms = self.clock.now_ms();
        // Whole seconds, as the answer names them.
        let until_s = now_ms / 1000 + SEAT_LOCK.as_secs();
        let wanted = seats.clone();
        let locked =
            self.database(move |database| database.lock_seats(event_id, user, &wanted, now_ms, until_s * 1000)).await;
        match locked {
            Ok(true) => Ok(until_s),
            refused => {
                if at_gate.is_ok() {
                    // Else the gate would refuse these seats to who has them. If it cannot, its locks end by themselves.
                    let _ = self.gate.unlock_seats(event_id, user, &seats).await;
                }
                Err(refused.err().unwrap_or(ShopError::SeatTaken))
            }
        }
    }

    /// Sells tickets for seats this person has locked, all or none: the tickets' ids, the same when repeated.
    ///
    /// # Errors
    /// [`ShopError::SeatNotLocked`], or that the database did not do it.
    pub async fn buy_tickets(&self, event_id: u64, user: UserId, seats: Vec<SeatId>) -> Result<Vec<String>, ShopError> {
        let now_ms = self.clock.now_ms();
        let tickets = self.database(move |database| database.sell_tickets(event_id, user, &seats, now_ms)).await?;
        tickets.ok_or(ShopError::SeatNotLocked)
    }

    /// Pieces of a drop sold, by its orders.
    ///
    /// # Errors
    /// [`ShopError`] if the database fails.
    pub async fn sold(&self, drop_id: u64) -> Result<u64, ShopError> {
        self.database(move |database| database.orders(drop_id)).await
    }

    /// Tickets of an event sold.
    ///
    /// # Errors
    /// [`ShopError`] if the database fails.
    pub async fn tickets_sold(&self, event_id: u64) -> Result<u64, ShopError> {
        self.database(move |database| database.tickets(event_id)).await
    }

    /// Works with the database off the HTTP workers.
    async fn database<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, ShopError> {
        let database = self.database.clone();
        let done = web::block(move || work(&database)).await.map_err(|error| ShopError::Failed(error.to_string()))?;
        Ok(done?)
    }
}

#[cfg(test)]
#[path = "shop_tests.rs"]
mod tests;
