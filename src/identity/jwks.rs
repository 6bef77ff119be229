//! Reads a JWKS document (RFC 7517): the keys that can be used, and why the others cannot.
//!
//! One key that cannot be used says nothing about those beside it.

use jsonwebtoken::{
    DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

use super::keys::{Key, MIN_RSA_BYTES};
use crate::config::JwtAlgorithm;

/// So many keys that are passed over are named, the others counted: somebody else writes the document.
const MOST_NAMED: usize = 8;

/// So much of a key's name is shown.
const SHOWN_CHARS: usize = 64;

/// Why an entry cannot be used that says what it is in a way that we do not read.
const UNREADABLE: &str = "is malformed, or of a kind that is none of ours";

/// What a document holds.
pub(super) struct Contents {
    pub(super) keys: Vec<Key>,
    /// The keys that cannot be used and why, for the log; empty where there are none.
    pub(super) passed_over: String,
}

/// Whether these bytes are a JWKS document, whatever its keys are.
pub(super) fn is_document(bytes: &[u8]) -> bool {
    entries(bytes).is_some()
}

/// Reads a document.
///
/// # Errors
/// It is none.
pub(super) fn read(bytes: &[u8], algorithms: &[JwtAlgorithm]) -> Result<Contents, &'static str> {
    let entries = entries(bytes).ok_or("is not a JWKS document")?;
    let (mut keys, mut passed_over) = (Vec::new(), Vec::new());
    for (at, entry) in entries.iter().enumerate() {
        match key(entry, algorithms) {
            Ok(key) => keys.push(key),
            Err(why) => passed_over.push(format!("{} {why}", name(at, entry))),
        }
    }
    let more = passed_over.len().saturating_sub(MOST_NAMED);
    passed_over.truncate(MOST_NAMED);
    if more > 0 {
        passed_over.push(format!("{more} more"));
    }
    Ok(Contents { keys, passed_over: passed_over.join("; ") })
}

fn entries(bytes: &[u8]) -> Option<Vec<Value>> {
    match serde_json::from_slice::<Value>(bytes).ok()?.get_mut("keys")?.take() {
        Value::Array(entries) => Some(entries),
        _ => None,
    }
}

/// What the log calls an entry. Nothing else of it is shown: it may hold a secret.
fn name(at: usize, entry: &Value) -> String {
    match &entry["kid"] {
        Value::String(kid) => format!("{:?}", kid.chars().take(SHOWN_CHARS).collect::<String>()),
        _ => format!("keys[{at}]"),
    }
}

/// The key of an entry, or why it cannot be used.
fn key(entry: &Value, algorithms: &[JwtAlgorithm]) -> Result<Key, &'static str> {
    if !entry.is_object() {
        return Err("is no object");
    }
    if !entry["kid"].is_null() && !entry["kid"].is_string() {
        return Err("has a kid that is no text");
    }
    let jwk = Jwk::deserialize(entry).map_err(|_| UNREADABLE)?;
    let algorithm = algorithm_for(&jwk)?;
    if !algorithms.contains(&algorithm) {
        return Err("is for an algorithm that identity.jwt_algorithms does not name");
    }
    let verifying = DecodingKey::from_jwk(&jwk).map_err(|_| "is malformed")?;
    // An empty name names nothing.
    let id = jwk.common.key_id.filter(|id| !id.is_empty());
    Ok(Key::new(id, algorithm, verifying))
}

/// The algorithm a published key is for. Secrets are not published.
fn algorithm_for(jwk: &Jwk) -> Result<JwtAlgorithm, &'static str> {
    if jwk.common.public_key_use.as_ref().is_some_and(|usage| *usage != PublicKeyUse::Signature) {
        return Err("is not for signatures");
    }
    let (algorithm, named) = match &jwk.algorithm {
        // Four letters are three bytes.
        AlgorithmParameters::RSA(rsa) if rsa.n.len() / 4 * 3 + 3 > MIN_RSA_BYTES => {
            (JwtAlgorithm::Rs256, KeyAlgorithm::RS256)
        }
        AlgorithmParameters::RSA(_) => return Err("has fewer than 2048 bits"),
        AlgorithmParameters::EllipticCurve(point) if point.curve == EllipticCurve::P256 => {
            (JwtAlgorithm::Es256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::EllipticCurve(_) => return Err("is of another curve than P-256"),
        AlgorithmParameters::OctetKey(_) => return Err("is a secret"),
        _ => return Err(UNREADABLE),
    };
    let is_named = jwk.common.key_algorithm.is_none_or(|theirs| theirs == named);
    is_named.then_some(algorithm).ok_or("is for an algorithm that is none of ours")
}
