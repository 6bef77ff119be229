//! The one spelling of an id: canonical decimal, 1..=9223372036854775807.
//!
//! A second spelling (`042`, `+42`, `４２`) would be a second person, or a second queue, for the same thing.

use std::fmt;

/// The largest id: a TDD id is a `Long`.
pub const MAX_ID: u64 = i64::MAX as u64;

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is a decimal number from 1 to 9223372036854775807, without sign or leading zeros")]
pub struct InvalidId;

/// Reads an id in its only spelling: ASCII digits, no sign, no leading zero, 1..=[`MAX_ID`].
///
/// # Errors
/// [`InvalidId`] for anything else.
pub fn parse_canonical_id(text: &str) -> Result<u64, InvalidId> {
    let bytes = text.as_bytes();
    let canonical = matches!(bytes.first(), Some(b'1'..=b'9')) && bytes.iter().all(u8::is_ascii_digit);
    if !canonical {
        return Err(InvalidId);
    }
    match text.parse::<u64>() {
        Ok(id) if id <= MAX_ID => Ok(id),
        _ => Err(InvalidId),
    }
}

/// Who waits: the number of a buyer. It is the id itself, or stands for it ([`super::UserIdForm`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(u64);

impl UserId {
    /// Reads a number as passes, keys and the store write it.
    ///
    /// # Errors
    /// [`InvalidId`] unless it is canonical.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        parse_canonical_id(text).map(Self)
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for UserId {
    type Error = InvalidId;

    fn try_from(id: u64) -> Result<Self, InvalidId> {
        if (1..=MAX_ID).contains(&id) { Ok(Self(id)) } else { Err(InvalidId) }
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_exactly_one_spelling() {
        for good in ["1", "42", "9223372036854775807"] {
            assert_eq!(parse_canonical_id(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "0",
            "00",
            "042",
            "-1",
            "+42",
            " 42",
            "42 ",
            "4 2",
            "4２",
            "٤٢",
            "0x2a",
            "1e3",
            "9223372036854775808",
            "18446744073709551616",
            "99999999999999999999999",
            "42\0",
            "４２",
            "4_2",
        ] {
            assert_eq!(parse_canonical_id(bad), Err(InvalidId), "{bad:?}");
        }
    }
}
