//! A seat's name.

use std::fmt;

/// Characters of the longest seat id.
const LONGEST: usize = 16;

/// A seat of an event: `A1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeatId(String);

/// Why a text names no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a seat id has 1 to 16 letters, digits or hyphens")]
pub struct InvalidSeat;

impl SeatId {
    /// Reads a seat id: 1 to 16 ASCII letters, digits or hyphens.
    ///
    /// # Errors
    /// [`InvalidSeat`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidSeat> {
        let is_valid =
            (1..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidSeat) }
    }

    /// The id itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SeatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
