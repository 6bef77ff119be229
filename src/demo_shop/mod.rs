//! The built-in shop for the demo and the end-to-end tests (`docs/design.md`).
//!
//! It does what a shop behind a waiting room should: an atomic gate in Redis takes the rush off the database, and the
//! database has the last word, so that nothing is sold twice whatever queue and Redis do. Here: selling. Not here:
//! the queue, passes; the shop knows nothing of either.

mod database;
mod routes;
mod seat;
mod shop;
mod stock_gate;

pub use database::{Database, DatabaseError};
pub use routes::configure;
pub use seat::{InvalidSeat, SeatId};
pub use shop::{SEAT_LOCK, ShopError, ShopService};
pub use stock_gate::{EmbeddedStockGate, GateAway, RedisStockGate, Reservation, StockGate};
