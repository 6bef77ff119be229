//! What tells secrets apart without telling them: for logs, metrics, and replicas that look at each other.

use std::fmt;

/// Eight hexadecimal digits that stand for a secret. Who knows them can test a guess at the secret, and has to be lucky
/// once in four thousand million for a wrong one to pass: no more than a pass gives away. A secret of 32 random bytes
/// cannot be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u32);

impl Fingerprint {
    pub(super) const fn new(bits: u32) -> Self {
        Self(bits)
    }

    /// Reads eight lower-case hexadecimal digits, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let bits = u32::from_str_radix(text, 16).ok()?;
        let read = Self(bits);
        (read.to_string() == text).then_some(read)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The fingerprints of a keyring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFingerprints {
    /// Of the secret that signs.
    pub current: Fingerprint,
    /// Of the others that verify.
    pub also_accepted: Vec<Fingerprint>,
}

impl KeyFingerprints {
    /// Whether passes of this keyring are good with the other one, and the other way round.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.accepts(other.current) && other.accepts(self.current)
    }

    fn accepts(&self, key: Fingerprint) -> bool {
        self.current == key || self.also_accepted.contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_else() {
        for bits in [0, 1, 0x0bad_f00d, u32::MAX] {
            assert_eq!(Fingerprint::parse(&Fingerprint::new(bits).to_string()), Some(Fingerprint::new(bits)));
        }
        for text in ["", "1", "+0000001", "0000000G", "ABCDEF01", "123456789"] {
            assert_eq!(Fingerprint::parse(text), None, "{text:?}");
        }
    }
}
