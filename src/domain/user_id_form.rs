//! What the ids of buyers look like, and which number stands for each of them.

use sha2::{Digest, Sha256};

use super::id::{MAX_ID, UserId};

/// Characters of the longest text.
const LONGEST: usize = 128;

/// What the ids of buyers look like (`identity.ids`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserIdForm {
    /// Canonical decimal numbers (TDD: FE/외부 계약).
    #[default]
    Decimal,
    /// Texts of 1 to 128 visible ASCII characters but commas, such as UUIDs. Digits are a text as well.
    Any,
}

/// Why a text is no id of a buyer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a user id is {}", .0.words())]
pub struct InvalidUserId(UserIdForm);

impl UserIdForm {
    /// The number of the buyer with this id.
    ///
    /// # Errors
    /// [`InvalidUserId`] unless it has this form.
    pub fn parse(self, text: &str) -> Result<UserId, InvalidUserId> {
        let user = match self {
            Self::Decimal => UserId::parse(text).ok(),
            Self::Any => is_text_id(text).then(|| number_of(text)),
        };
        user.ok_or(InvalidUserId(self))
    }

    /// What an id must be, after "a user id is" or "X-User-Id must be".
    pub const fn words(self) -> &'static str {
        match self {
            Self::Decimal => "a decimal number from 1 to 9223372036854775807 without sign or leading zeros",
            Self::Any => "a text of 1 to 128 visible ASCII characters other than a comma",
        }
    }
}

/// Not a comma: proxies join two lines of a header by one, and two ids are none.
fn is_text_id(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// The first 63 bits of `SHA-256("vq-user:{text}")`. The one text in 2^63 that gives 0, which is no id, counts as 1.
fn number_of(text: &str) -> UserId {
    let digest = Sha256::new().chain_update("vq-user:").chain_update(text).finalize();
    user_of_bits(digest.iter().take(8).fold(0, |head, byte| head << 8 | u64::from(*byte)))
}

/// The person of the first 63 of these bits; 0 counts as 1.
fn user_of_bits(bits: u64) -> UserId {
    UserId::try_from((bits >> 1).clamp(1, MAX_ID)).expect("63 bits, and not 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number_in_every_release_and_language() {
        // Computed with another implementation: int.from_bytes(sha256(b"vq-user:" + text).digest()[:8], "big") >> 1.
        for (text, number) in [
            ("7", 8_431_877_998_773_315_674),
            ("auth0|42", 4_420_708_648_436_869_539),
            ("b6f0c1de-9d4c-4f0e-8a51-0c2b8a9f6f37", 5_395_356_600_009_742_434),
        ] {
            assert_eq!(UserIdForm::Any.parse(text).map(UserId::get), Ok(number), "{text}");
        }
        assert_ne!(UserIdForm::Any.parse("a"), UserIdForm::Any.parse("A"), "letter case counts");
        assert_eq!((user_of_bits(0).get(), user_of_bits(1).get()), (1, 1), "never 0");
        assert_eq!(user_of_bits(u64::MAX).get(), MAX_ID);
    }

    #[test]
    fn any_id_is_a_text_of_visible_ascii() {
        for good in ["0", "007", "-1", "{a}:b;c;d=\"e\"", "~", &"x".repeat(128)] {
            assert!(UserIdForm::Any.parse(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a,b", "a b", " a", "a ", "a\t", "a\0", "a\u{7f}", "é", "７", &"x".repeat(129)] {
            let error = UserIdForm::Any.parse(bad).expect_err(bad);
            assert_eq!(
                error.to_string(),
                "a user id is a text of 1 to 128 visible ASCII characters other than a comma"
            );
        }
        assert_eq!(UserIdForm::Decimal.parse("42").map(UserId::get), Ok(42));
        assert!(UserIdForm::Decimal.parse("042").is_err() && UserIdForm::Decimal.parse("a").is_err());
    }
}
