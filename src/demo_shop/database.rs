//! The last word on what is sold: SQLite, in a file that replicas share.
//!
//! Calls block; [`super::shop`] makes them off the HTTP workers.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use super::seat::SeatId;
use crate::domain::UserId;

/// How long a call waits for another replica's write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a sale that another replica overtook is tried again.
const MAX_OVERTAKEN: u32 = 100;

/// How often opening is tried while another replica makes the file.
const MAX_OPEN_TRIES: u32 = 40;

/// A count without orders behind it, or a seat with two owners, cannot be written at all.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS stock (
        drop_id INTEGER PRIMARY KEY,
        total INTEGER NOT NULL,
        remaining INTEGER NOT NULL CHECK (remaining BETWEEN 0 AND total),
        version INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS orders (
        order_id TEXT PRIMARY KEY,
        drop_id INTEGER NOT NULL REFERENCES stock (drop_id),
        user_id INTEGER NOT NULL,
        ordered_ms INTEGER NOT NULL
    );
    CREATE INDEX IF NOT EXISTS orders_of_drop ON orders (drop_id);
    CREATE TABLE IF NOT EXISTS seats (
        event_id INTEGER NOT NULL,
        seat_id TEXT NOT NULL,
        user_id INTEGER NOT NULL,
        locked_until_ms INTEGER NOT NULL,
        ticket_id TEXT UNIQUE
    );
    CREATE UNIQUE INDEX IF NOT EXISTS active_seats ON seats (event_id, seat_id);
";

/// Why the database did not do it.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Others were faster too often; nothing happened, and trying again makes sense.
    #[error("the database is busy")]
    Busy,
    /// Anything else.
    #[error("the database failed: {0}")]
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::Failed(error),
        }
    }
}

/// The shop's database. Cheap to clone; clones share one connection.
#[derive(Debug, Clone)]
pub struct Database {
    connection: Arc<Mutex<Connection>>,
}

impl Database {
    /// Opens the file, made if it is not there; without a path a temporary one that goes with the process.
    ///
    /// # Errors
    /// [`DatabaseError`] if it cannot be opened or made.
    pub fn open(path: Option<&Path>) -> Result<Self, DatabaseError> {
        // SQLite takes the empty name for a temporary file.
        let path = path.unwrap_or(Path::new(""));
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_open(path) {
                // Switching a new file to WAL does not wait for who else does so.
                Err(DatabaseError::Busy) if tries < MAX_OPEN_TRIES => std::thread::sleep(Duration::from_millis(50)),
                opened => return opened,
            }
        }
    }

    fn try_open(path: &Path) -> Result<Self, DatabaseError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        // A panic while it was held rolled its transaction back.
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut connection)
    }

    /// Sells one piece of a drop that began with `stock` of them: the order's id, or `None` when sold out.
    ///
    /// # Errors
    /// [`DatabaseError`]; nothing is sold then.
    pub fn sell_piece(
        &self,
        drop_id: u64,
        user: UserId,
        stock: u64,
        now_ms: u64,
    ) -> Result<Option<String>, DatabaseError> {
        self.with(|connection| {
            stock_up(connection, drop_id, stock)?;
            for _ in 0..MAX_OVERTAKEN {
                let (remaining, version) = connection
                    .prepare_cached("SELECT remaining, version FROM stock WHERE drop_id = ?1")?
                    .query_row([signed(drop_id)], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
                if remaining == 0 {
                    return Ok(None);
                }
                let sale = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let taken = sale
                    .prepare_cached(
                        "UPDATE stock SET remaining = remaining - 1, version = version + 1
                         WHERE drop_id = ?1 AND version = ?2 AND remaining > 0",
                    )?
                    .execute([signed(drop_id), version])?;
                if taken == 1 {
                    let order_id = new_id();
                    sale.prepare_cached("INSERT INTO orders VALUES (?1, ?2, ?3, ?4)")?.execute(params![
                        order_id,
                        signed(drop_id),
                        signed(user.get()),
                        signed(now_ms)
                    ])?;
                    sale.commit()?;
                    return Ok(Some(order_id));
                }
                // Another replica sold one in between: look again.
            }
            Err(DatabaseError::Busy)
        })
    }

    /// Pieces of a drop left, of `stock` at its beginning.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn remaining(&self, drop_id: u64, stock: u64) -> Result<u64, DatabaseError> {
        self.with(|connection| {
            let remaining = connection
                .prepare_cached("SELECT remaining FROM stock WHERE drop_id = ?1")?
                .query_row([signed(drop_id)], |row| row.get::<_, i64>(0))
                .optional()?;
            Ok(remaining.map_or(stock, i64::cast_unsigned))
        })
    }

    /// Orders of a drop.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn orders(&self, drop_id: u64) -> Result<u64, DatabaseError> {
        self.count("SELECT count(*) FROM orders WHERE drop_id = ?1", drop_id)
    }

    /// Tickets of an event.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn tickets(&self, event_id: u64) -> Result<u64, DatabaseError> {
        self.count("SELECT count(*) FROM seats WHERE event_id = ?1 AND ticket_id IS NOT NULL", event_id)
    }

    fn count(&self, query: &str, id: u64) -> Result<u64, DatabaseError> {
        self.with(|connection| {
            Ok(connection.prepare_cached(query)?.query_row([signed(id)], |row| row.get::<_, i64>(0))?.cast_unsigned())
        })
    }

    /// Locks all the seats for this person until `until_ms`, or none; false: another has one of them. What the person
    /// has locked already is locked anew.
    ///
    /// # Errors
    /// [`DatabaseError`]; nothing is locked then.
    pub fn lock_seats(
        &self,
        event_id: u64,
        user: UserId,
        seats: &[SeatId],
        now_ms: u64,
        until_ms: u64,
    ) -> Result<bool, DatabaseError> {
        self.with(|connection| {
            let lock = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for seat in seats {
                let locked = lock
                    .prepare_cached(
                        "INSERT INTO seats (event_id, seat_id, user_id, locked_until_ms) VALUES (?1, ?2, ?3, ?4)
                         ON CONFLICT (event_id, seat_id) DO UPDATE
                         SET user_id = excluded.user_id, locked_until_ms = excluded.locked_until_ms
                         WHERE ticket_id IS NULL AND (user_id = excluded.user_id OR locked_until_ms <= ?5)",
                    )?
                    .execute(params![
                        signed(event_id),
                        seat.as_str(),
                        signed(user.get()),
                        signed(until_ms),
                        signed(now_ms)
                    ])?;
                if locked == 0 {
                    return Ok(false);
                }
            }
            lock.commit()?;
            Ok(true)
        })
    }

    /// Turns this person's locked seats into tickets, all or none; `None`: one of them is not locked by this person
    /// (any more). Seats the person has bought already give the same tickets again.
    ///
    /// # Errors
    /// [`DatabaseError`]; nothing is sold then.
    pub fn sell_tickets(
        &self,
        event_id: u64,
        user: UserId,
        seats: &[SeatId],
        now_ms: u64,
    ) -> Result<Option<Vec<String>>, DatabaseError> {
        self.with(|connection| {
            let sale = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut tickets = Vec::with_capacity(seats.len());
            for seat in seats {
                let ticket = sale
                    .prepare_cached(
                        "UPDATE seats SET ticket_id = coalesce(ticket_id, ?5)
                         WHERE event_id = ?1 AND seat_id = ?2 AND user_id = ?3
                         AND (ticket_id IS NOT NULL OR locked_until_ms > ?4) RETURNING ticket_id",
                    )?
                    .query_row(
                        params![signed(event_id), seat.as_str(), signed(user.get()), signed(now_ms), new_id()],
                        |row| row.get::<_, String>(0),
                    )
                    .optional()?;
                let Some(ticket) = ticket else { return Ok(None) };
                tickets.push(ticket);
            }
            sale.commit()?;
            Ok(Some(tickets))
        })
    }
}

fn stock_up(connection: &Connection, drop_id: u64, stock: u64) -> Result<(), DatabaseError> {
    let is_known = connection.prepare_cached("SELECT 1 FROM stock WHERE drop_id = ?1")?.exists([signed(drop_id)])?;
    if !is_known {
        connection
            .prepare_cached("INSERT OR IGNORE INTO stock VALUES (?1, ?2, ?2, 0)")?
            .execute([signed(drop_id), signed(stock)])?;
    }
    Ok(())
}

/// SQLite's integers are signed; ids, counts and times all fit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// An id for an order or a ticket that nobody guesses.
fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}
