//! Calls that need a token of their own, sent as `Authorization: Bearer`.

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The hash of the expected token: comparing hashes takes the same time for every input.
pub struct BearerKey([u8; 32]);

impl BearerKey {
    /// The key for this token.
    pub fn new(token: &SecretString) -> Self {
        Self(Sha256::digest(token.expose_secret().as_bytes()).into())
    }

    /// Whether these headers carry the token, exactly once.
    pub(super) fn is_carried_by(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION);
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        match value.as_bytes().split_at_checked(b"Bearer ".len()) {
            Some((scheme, token)) => scheme.eq_ignore_ascii_case(b"Bearer ") && self.opens(token),
            None => false,
        }
    }

    fn opens(&self, presented: &[u8]) -> bool {
        Sha256::digest(presented)[..].ct_eq(&self.0).into()
    }
}

impl std::fmt::Debug for BearerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerKey(***)")
    }
}
