//! Who asks (TDD: FE/외부 계약, `X-User-Id`).
//!
//! Here: from a request's headers to a [`UserId`], by a header that is believed or by a token that is checked, and what
//! the shop behind us learns of it. Not here: what somebody may do ([`crate::flags`], [`crate::gate`]), and operators
//! ([`crate::http`]).
//!
//! Nothing of a token is ever logged, whether it is good or not.

mod jwt;
mod keys;
mod published;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use actix_web::http::{
    StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};

pub use self::keys::BadKey;
use self::{
    jwt::Rules,
    keys::{Choice, KeySet},
    published::PublishedKeys,
};
use crate::{
    clock::StoreClock,
    config::{IdentityConfig, IdentityMode},
    domain::UserId,
    problem::Problem,
};

/// Who buys, as whoever is in front of us says, or as we tell the shop behind us (TDD: FE/외부 계약).
pub const USER_ID_HEADER: HeaderName = HeaderName::from_static("x-user-id");

/// A longer token is none: nobody's session needs it, and reading it costs.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// What is answered to [`Unidentified::NoToken`], by the queue and at the gate; with `WWW-Authenticate: Bearer`.
pub(crate) const INVALID: Problem = Problem::new(
    StatusCode::UNAUTHORIZED,
    "INVALID_IDENTITY",
    "No valid token",
    "a valid token is needed, once, as Authorization: Bearer",
);

/// What is answered to [`Unidentified::NoKeys`].
pub(crate) const UNAVAILABLE: Problem = Problem::new(
    StatusCode::SERVICE_UNAVAILABLE,
    "IDENTITY_UNAVAILABLE",
    "Tokens cannot be checked",
    "the keys to check the token with are not there yet",
)
.retry_after(1);

/// Why it is not known who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unidentified {
    /// `X-User-Id` is missing, malformed or doubled.
    #[error("no valid user id")]
    NoUserId,
    /// There is no valid token.
    #[error("no valid token")]
    NoToken,
    /// The keys to check a token with are not there: not yet, or they are being looked for now.
    #[error("the keys are not there")]
    NoKeys,
}

/// Tells from a request's headers who asks. Cheap to clone; clones share the keys.
#[derive(Clone, Default)]
pub struct Identify(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Header,
    Token(Arc<Tokens>),
}

/// What tokens are checked with.
struct Tokens {
    rules: Rules,
    keys: Keys,
    clock: StoreClock,
}

enum Keys {
    Fixed(KeySet),
    Published(PublishedKeys),
}

impl Identify {
    /// `X-User-Id` is believed: something in front must set it. The default.
    pub fn by_header() -> Self {
        Self::default()
    }

    /// As configured. Published keys are there once [`Self::keep_keys`] has fetched them.
    ///
    /// # Errors
    /// [`BadKey`] when the key file cannot be read or holds no key that the algorithms can use.
    pub fn from_config(config: &IdentityConfig, clock: StoreClock) -> Result<Self, BadKey> {
        let keys = match (config.mode, &config.jwt_key_file, &config.jwks_url) {
            (IdentityMode::Header, _, _) => return Ok(Self::by_header()),
            (IdentityMode::Jwt, Some(file), _) => Keys::Fixed(KeySet::from_file(file, &config.jwt_algorithms)?),
            (IdentityMode::Jwt, None, Some(url)) => {
                Keys::Published(PublishedKeys::new(url, &config.jwt_algorithms, clock.clone()))
            }
            (IdentityMode::Jwt, None, None) => return Err(BadKey::Unset),
        };
        Ok(Self(Source::Token(Arc::new(Tokens { rules: Rules::from_config(config), keys, clock }))))
    }

    /// Fetches published keys again and again. Ends at once where there are none to fetch, else never; it runs on the
    /// actix system it is spawned on.
    pub async fn keep_keys(&self) {
        if let Source::Token(tokens) = &self.0
            && let Keys::Published(keys) = &tokens.keys
        {
            keys.keep().await;
        }
    }

    /// Who asks.
    ///
    /// # Errors
    /// [`Unidentified`].
    pub fn user(&self, headers: &HeaderMap) -> Result<UserId, Unidentified> {
        match &self.0 {
            Source::Header => {
                let id = only(headers, &USER_ID_HEADER).ok_or(Unidentified::NoUserId)?;
                id.to_str().ok().and_then(|id| UserId::parse(id).ok()).ok_or(Unidentified::NoUserId)
            }
            Source::Token(tokens) => tokens.user(bearer(headers).ok_or(Unidentified::NoToken)?),
        }
    }

    /// Before a request goes on to the shop: where tokens are checked, `X-User-Id` becomes what the token says, and is
    /// gone with everything that servers fold to it if there is no valid token. A believed header stays as it is.
    pub fn tell_shop(&self, headers: &mut HeaderMap) {
        if let Source::Token(_) = &self.0 {
            let user = self.user(headers).ok();
            let claimed: Vec<HeaderName> =
                headers.keys().filter(|name| folded(name) == USER_ID_HEADER.as_str()).cloned().collect();
            for name in claimed {
                headers.remove(name);
            }
            if let Some(id) = user.and_then(|user| HeaderValue::from_str(&user.to_string()).ok()) {
                headers.insert(USER_ID_HEADER, id);
            }
        }
    }
}

impl Tokens {
    fn user(&self, token: &str) -> Result<UserId, Unidentified> {
        let checked = jwt::header_of(token).and_then(|head| {
            let choice = match &self.keys {
                Keys::Fixed(keys) => keys.choose(head.alg, head.kid.as_deref()),
                Keys::Published(keys) => keys.choose(head.alg, head.kid.as_deref()),
            };
            match choice {
                Choice::Key(key) => self.rules.check(token, &key, self.clock.now_ms()).map(Ok),
                Choice::None => Err("no key fits"),
                Choice::LookedFor => Ok(Err(Unidentified::NoKeys)),
            }
        });
        checked.unwrap_or_else(|why| {
            tracing::debug!(why, "a token is refused");
            Err(Unidentified::NoToken)
        })
    }
}

/// A header's name as CGI, WSGI and PHP see it: `X_User_Id` and `X-User-Id` are one variable to them.
pub(crate) fn folded(name: &HeaderName) -> String {
    name.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut all = headers.get_all(name);
    all.next().filter(|_| all.next().is_none())
}

/// The token of the one `Authorization: Bearer` there is.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, &header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty() && token.len() <= MAX_TOKEN_BYTES).then_some(token)
}
