//! What a token must say to be believed (RFC 7519).
//!
//! Here: the claims and the time. Not here: which key signs ([`super::keys`]).

use jsonwebtoken::{Header, decode, decode_header};
use serde_json::{Map, Value};

use super::keys::Key;
use crate::{
    config::IdentityConfig,
    domain::{UserId, UserIdForm},
};

/// Why a token is refused, for the log: never anything of the token.
pub(super) type Why = &'static str;

/// What is asked of the claims.
pub(super) struct Rules {
    claim: String,
    audience: Option<String>,
    issuer: Option<String>,
    leeway_seconds: f64,
}

impl Rules {
    pub(super) fn from_config(config: &IdentityConfig) -> Self {
        Self {
            claim: config.jwt_claim.clone(),
            audience: config.jwt_audience.clone(),
            issuer: config.jwt_issuer.clone(),
            leeway_seconds: config.jwt_leeway_seconds as f64,
        }
    }

    /// Checks the signature, then the claims, at this time: who it is, and the id as the token writes it.
    pub(super) fn check(&self, token: &str, key: &Key, now_ms: u64, form: UserIdForm) -> Result<(UserId, String), Why> {
        let claims = decode::<Map<String, Value>>(token, key.verifying(), key.signature_alone())
            .map_err(|_| "its signature does not hold")?
            .claims;
        let now = now_ms as f64 / 1000.0;
        let expires = seconds(&claims, "exp")?.ok_or("exp is missing")?;
        if now >= expires + self.leeway_seconds {
            return Err("it has expired");
        }
        if seconds(&claims, "nbf")?.is_some_and(|begins| now + self.leeway_seconds < begins) {
            return Err("it is not valid yet");
        }
        if self.issuer.as_ref().is_some_and(|issuer| claims.get("iss") != Some(&Value::String(issuer.clone()))) {
            return Err("iss is another");
        }
        if self.audience.as_ref().is_some_and(|audience| !is_for(claims.get("aud"), audience)) {
            return Err("aud is another");
        }
        user(claims.get(&self.claim), form)
    }
}

/// What the token says of itself. Only a hint at the key: what is done with it, the key decides.
pub(super) fn header_of(token: &str) -> Result<Header, Why> {
    decode_header(token).map_err(|_| "it is not a token, or its algorithm is none of ours")
}

/// A time claim, seconds since the epoch, if it is there.
fn seconds(claims: &Map<String, Value>, name: &str) -> Result<Option<f64>, Why> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    value.as_f64().filter(|at| at.is_finite()).map(Some).ok_or("exp or nbf is no number")
}

/// `aud` is a text or a list of them.
fn is_for(claim: Option<&Value>, audience: &str) -> bool {
    match claim {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(audience)),
        _ => false,
    }
}

/// An id as a text, or as a whole number, which is its digits. `42.0` is neither.
fn user(claim: Option<&Value>, form: UserIdForm) -> Result<(UserId, String), Why> {
    let id = match claim {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => number.as_u64().map(|id| id.to_string()),
        _ => None,
    };
    let read = id.and_then(|id| Some((form.parse(&id).ok()?, id)));
    read.ok_or("the claim with the id is missing, or no id")
}
