//! The atomic gate before the database: fast, shared by the replicas, and allowed to be wrong or away.

mod embedded;
mod redis;

use std::time::Duration;

use async_trait::async_trait;

pub use self::{embedded::EmbeddedStockGate, redis::RedisStockGate};
use super::seat::SeatId;
use crate::domain::UserId;

/// Says no early. A yes is worth nothing without the database's.
#[async_trait]
pub trait StockGate: Send + Sync {
    /// One piece of a drop. `left` is what the database has left, if it was asked; it is used only where the gate does
    /// not know the drop.
    async fn reserve(&self, drop_id: u64, left: Option<u64>) -> Result<Reservation, GateAway>;

    /// A reserved piece goes back.
    async fn release(&self, drop_id: u64) -> Result<(), GateAway>;

    /// Locks all the seats for this person for so long, or none; false: another has one of them.
    async fn lock_seats(&self, event_id: u64, user: UserId, seats: &[SeatId], hold: Duration)
    -> Result<bool, GateAway>;

    /// Seats this person locked are free again.
    async fn unlock_seats(&self, event_id: u64, user: UserId, seats: &[SeatId]) -> Result<(), GateAway>;
}

/// What reserving gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// A piece.
    Reserved,
    /// Nothing: all are reserved.
    SoldOut,
    /// Nothing yet: the gate does not know the drop; ask again with what the database has left.
    Unknown,
}

/// The gate is away: the shop goes on without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stock gate is away: {0}")]
pub struct GateAway(pub String);
