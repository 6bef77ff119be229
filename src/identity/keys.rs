//! The keys that tokens are checked with.
//!
//! A key knows the one algorithm it is for, and only keys for the configured algorithms are taken up. What a token says
//! about its algorithm picks among these and changes nothing about them: `none` picks nothing, and a public key is never
//! taken for a secret.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use super::jwks;
use crate::config::JwtAlgorithm;

/// The fewest bytes of a secret (RFC 7518, 3.2).
const MIN_SECRET_BYTES: usize = 32;

/// The fewest bytes of an RSA modulus: 2048 bits (RFC 7518, 3.3).
pub(super) const MIN_RSA_BYTES: usize = 256;

/// Why a key file is not usable. Shows nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    /// There is no file and no URL.
    #[error("with jwt, identity.jwt_key_file or identity.jwks_url must be set")]
    Unset,
    /// The file cannot be read.
    #[error("identity.jwt_key_file: {path} cannot be read: {cause}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The file was read.
    #[error("identity.jwt_key_file: {path} {what}")]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// A key for one algorithm.
pub(super) struct Key {
    id: Option<String>,
    verifying: DecodingKey,
    signature_alone: Validation,
}

/// Which key a token is checked with.
pub(super) enum Choice {
    /// This one.
    Key(Arc<Key>),
    /// None fits.
    None,
    /// The keys are not there, or the one that would fit is being looked for.
    LookedFor,
}

/// Keys to choose from; at least one.
pub(super) struct KeySet {
    keys: Vec<Arc<Key>>,
    /// Those beside them that cannot be used, for the log; empty where there are none.
    passed_over: String,
    /// They have names, and a token says which one it is signed with.
    named: bool,
}

impl Key {
    pub(super) fn new(id: Option<String>, algorithm: JwtAlgorithm, verifying: DecodingKey) -> Self {
        // The claims are ours to judge, by the store's time.
        let mut signature_alone = Validation::new(algorithm_of(algorithm));
        signature_alone.required_spec_claims = HashSet::new();
        signature_alone.validate_exp = false;
        signature_alone.validate_aud = false;
        Self { id, verifying, signature_alone }
    }

    pub(super) fn verifying(&self) -> &DecodingKey {
        &self.verifying
    }

    /// Checks the signature by the one algorithm, and no claim.
    pub(super) fn signature_alone(&self) -> &Validation {
        &self.signature_alone
    }

    fn is_for(&self, algorithm: Algorithm) -> bool {
        self.signature_alone.algorithms.contains(&algorithm)
    }
}

const fn algorithm_of(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Es256 => Algorithm::ES256,
    }
}

impl KeySet {
    /// Reads a file: a secret where the algorithm is HS256, else a public key in PEM or a JWKS document.
    pub(super) fn from_file(path: &Path, algorithms: &[JwtAlgorithm]) -> Result<Self, BadKey> {
        let bytes = std::fs::read(path).map_err(|cause| BadKey::Unreadable { path: path.to_owned(), cause })?;
        let keys = if algorithms.contains(&JwtAlgorithm::Hs256) {
            Self::from_secret(&bytes)
        } else if bytes.trim_ascii_start().starts_with(b"{") {
            Self::from_jwks(&bytes, algorithms)
        } else {
            Self::from_pem(&bytes, algorithms)
        };
        keys.map_err(|what| BadKey::Unusable { path: path.to_owned(), what })
    }

    /// A secret; the line end that editors and `openssl rand` put after it is none of it.
    pub(super) fn from_secret(bytes: &[u8]) -> Result<Self, &'static str> {
        let secret = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
        if secret.len() < MIN_SECRET_BYTES {
            return Err("holds fewer than 32 bytes: too few for HS256");
        }
        if secret.trim_ascii_start().starts_with(b"-----BEGIN") || jwks::is_document(secret) {
            return Err("holds a key in PEM or a JWKS document, which is no secret: HS256 is the wrong algorithm");
        }
        let key = DecodingKey::from_secret(secret).map_err(|_| "holds no secret")?;
        Ok(Self::of_one(Key::new(None, JwtAlgorithm::Hs256, key)))
    }

    /// One public key in PEM.
    pub(super) fn from_pem(bytes: &[u8], algorithms: &[JwtAlgorithm]) -> Result<Self, &'static str> {
        let text = str::from_utf8(bytes).map_err(|_| "holds neither a key in PEM nor a JWKS document")?;
        if text.contains("PRIVATE KEY") {
            return Err("holds a private key: only the public one belongs here");
        }
        if text.matches("-----BEGIN").count() != 1 || !text.contains("PUBLIC KEY") {
            return Err("must hold one PUBLIC KEY in PEM, or a JWKS document");
        }
        let (algorithm, key) = if let Ok(key) = DecodingKey::from_rsa_pem(bytes) {
            if key.try_get_as_bytes().is_ok_and(|der| der.len() < MIN_RSA_BYTES) {
                return Err("holds an RSA key of fewer than 2048 bits");
            }
            (JwtAlgorithm::Rs256, key)
        } else {
            let key = DecodingKey::from_ec_pem(bytes).map_err(|_| "holds neither an RSA key nor one for ES256")?;
            // An uncompressed point of the curve P-256.
            if !key.try_get_as_bytes().is_ok_and(|point| point.len() == 65) {
                return Err("holds a key of another curve than P-256");
            }
            (JwtAlgorithm::Es256, key)
        };
        if !algorithms.contains(&algorithm) {
            return Err("holds a key for an algorithm that identity.jwt_algorithms does not name");
        }
        Ok(Self::of_one(Key::new(None, algorithm, key)))
    }

    /// The keys of a JWKS document (RFC 7517) that the algorithms can use; others in it are passed over.
    pub(super) fn from_jwks(bytes: &[u8], algorithms: &[JwtAlgorithm]) -> Result<Self, &'static str> {
        let jwks::Contents { keys, passed_over } = jwks::read(bytes, algorithms)?;
        if keys.is_empty() {
            return Err("holds no key that identity.jwt_algorithms can use");
        }
        Ok(Self { keys: keys.into_iter().map(Arc::new).collect(), passed_over, named: true })
    }

    /// A key without a name that stands alone.
    fn of_one(key: Key) -> Self {
        Self { keys: vec![Arc::new(key)], passed_over: String::new(), named: false }
    }

    /// Names in the log what was passed over, unless it was the same `before`.
    pub(super) fn log_passed_over(&self, setting: &'static str, before: Option<&Self>) {
        if !self.passed_over.is_empty() && before.is_none_or(|before| before.passed_over != self.passed_over) {
            tracing::warn!(setting, keys = self.passed_over, "unusable keys are ignored");
        }
    }

    /// The key for a token that says this of itself. Without a name there must be only one that fits.
    pub(super) fn choose(&self, algorithm: Algorithm, id: Option<&str>) -> Choice {
        let mut fitting = self
            .keys
            .iter()
            .filter(|key| key.is_for(algorithm) && (!self.named || id.is_none() || key.id.as_deref() == id));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Choice::Key(key.clone()),
            _ => Choice::None,
        }
    }
}
