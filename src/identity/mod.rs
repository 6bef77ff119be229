//! Who asks (TDD: FE/외부 계약, `X-User-Id`).
//!
//! Here: from a request's headers to a [`UserId`], by a header that is believed, by a token that is checked, or by a
//! cookie of ours, and what the shop behind us learns of it. Not here: what somebody may do ([`crate::flags`], [`crate::gate`]), and operators
//! ([`crate::http`]).
//!
//! Nothing of a token or a cookie, and no id, is ever logged, whether it is good or not.

pub(crate) mod cookies;
mod fetch;
mod jwks;
mod jwt;
mod keys;
mod published;
#[cfg(test)]
pub(crate) mod tests;
mod visitor;

use std::sync::Arc;

use actix_web::http::{
    StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};

use self::{
    jwt::Rules,
    keys::{Choice, KeySet},
    published::PublishedKeys,
    visitor::Visitors,
};
pub use self::{keys::BadKey, visitor::VISITOR_COOKIE};
use crate::{
    clock::StoreClock,
    config::{IdentityConfig, IdentityMode},
    domain::{UserId, UserIdForm},
    problem::{Problem, words},
    token::Keyring,
};

/// Who buys, as whoever is in front of us says, or as we tell the shop behind us (TDD: FE/외부 계약).
pub const USER_ID_HEADER: HeaderName = HeaderName::from_static("x-user-id");

/// A longer token is none: nobody's session needs it, and reading it costs.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// What is answered to [`Unidentified::NoToken`], by the queue and at the gate; with `WWW-Authenticate: Bearer`.
pub(crate) const INVALID: Problem =
    Problem::for_buyers(StatusCode::UNAUTHORIZED, "INVALID_IDENTITY", "No valid token", words::INVALID_IDENTITY);

/// What is answered to [`Unidentified::NoKeys`].
pub(crate) const UNAVAILABLE: Problem = Problem::for_buyers(
    StatusCode::SERVICE_UNAVAILABLE,
    "IDENTITY_UNAVAILABLE",
    "Tokens cannot be checked",
    words::IDENTITY_UNAVAILABLE,
)
.retry_after(1);

/// Why it is not known who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unidentified {
    /// `X-User-Id` is missing, doubled or not of this form.
    #[error("no valid user id")]
    NoUserId(UserIdForm),
    /// There is no valid token.
    #[error("no valid token")]
    NoToken,
    /// The keys to check a token with are not there: not yet, or they are being looked for now.
    #[error("the keys are not there")]
    NoKeys,
    /// No cookie of ours says which visitor it is.
    #[error("an unknown visitor")]
    NoVisitor,
    /// The same, and the page that asks is of another site: no cookie of ours would come back.
    #[error("an unknown visitor of another site")]
    OtherSite,
}

/// Somebody who asks, and what their browser is to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Who asks.
    pub user: UserId,
    /// The value of a `Set-Cookie` for the answer, where there is something to remember.
    pub cookie: Option<HeaderValue>,
}

impl From<UserId> for Asker {
    fn from(user: UserId) -> Self {
        Self { user, cookie: None }
    }
}

/// Tells from a request's headers who asks. Cheap to clone; clones share the keys.
#[derive(Clone, Default)]
pub struct Identify {
    source: Source,
    form: UserIdForm,
}

#[derive(Clone, Default)]
enum Source {
    #[default]
    Header,
    Token(Arc<Tokens>),
    Visitor(Arc<Visitors>),
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
    /// `X-User-Id` is believed: something in front must set it. The default, with decimal ids.
    pub fn by_header() -> Self {
        Self::default()
    }

    /// What the ids in headers and tokens look like.
    #[must_use]
    pub fn ids(self, form: UserIdForm) -> Self {
        Self { form, ..self }
    }

    /// As configured. Published keys are there once [`Self::keep_keys`] has fetched them. The cookies of visitors are
    /// signed with the keyring.
    ///
    /// # Errors
    /// [`BadKey`] when the key file cannot be read or holds no key that the algorithms can use.
    pub fn from_config(config: &IdentityConfig, clock: StoreClock, keyring: Arc<Keyring>) -> Result<Self, BadKey> {
        let form = config.ids;
        let keys = match (config.mode, &config.jwt_key_file, &config.jwks_url) {
            (IdentityMode::Header, _, _) => return Ok(Self::by_header().ids(form)),
            (IdentityMode::Visitor, _, _) => {
                return Ok(Self { source: Source::Visitor(Arc::new(Visitors::new(keyring))), form });
            }
            (IdentityMode::Jwt, Some(file), _) => {
                let keys = KeySet::from_file(file, &config.jwt_algorithms)?;
                keys.log_passed_over("identity.jwt_key_file", None);
                Keys::Fixed(keys)
            }
            (IdentityMode::Jwt, None, Some(url)) => {
                Keys::Published(PublishedKeys::new(url, &config.jwt_algorithms, clock.clone()))
            }
            (IdentityMode::Jwt, None, None) => return Err(BadKey::Unset),
        };
        Ok(Self { source: Source::Token(Arc::new(Tokens { rules: Rules::from_config(config), keys, clock })), form })
    }

    /// Fetches published keys again and again. Ends at once where there are none to fetch, else never; it runs on the
    /// actix system it is spawned on.
    pub async fn keep_keys(&self) {
        if let Source::Token(tokens) = &self.source
            && let Keys::Published(keys) = &tokens.keys
        {
            keys.keep().await;
        }
    }

    /// What the ids in headers and tokens look like.
    pub fn form(&self) -> UserIdForm {
        self.form
    }

    /// Who asks.
    ///
    /// # Errors
    /// [`Unidentified`], never [`Unidentified::OtherSite`].
    pub fn user(&self, headers: &HeaderMap) -> Result<UserId, Unidentified> {
        match &self.source {
            Source::Header => self.believed(headers).map(|(user, _)| user),
            Source::Token(tokens) => tokens.user(headers, self.form).map(|(user, _)| user),
            Source::Visitor(visitors) => visitors.known(headers).map(|visitor| visitor.id),
        }
    }

    /// Who polls. A cookie that is signed with a secret that may go soon is made anew: nobody loses the place by that.
    ///
    /// # Errors
    /// As [`Self::user`].
    pub fn polling(&self, headers: &HeaderMap) -> Result<Asker, Unidentified> {
        match &self.source {
            Source::Header | Source::Token(_) => self.user(headers).map(Asker::from),
            Source::Visitor(visitors) => visitors.polling(headers),
        }
    }

    /// Who enters. A visitor who is not known becomes a new one, and every visitor's cookie begins its time anew.
    ///
    /// # Errors
    /// [`Unidentified`], never [`Unidentified::NoVisitor`].
    pub fn entering(&self, headers: &HeaderMap) -> Result<Asker, Unidentified> {
        match &self.source {
            Source::Header | Source::Token(_) => self.user(headers).map(Asker::from),
            Source::Visitor(visitors) => visitors.entering(headers),
        }
    }

    /// What the shop calls this person, who has been found to ask: the id as it came, of visitors the number.
    pub fn name_for_shop(&self, headers: &HeaderMap, user: UserId) -> HeaderValue {
        let as_it_came = match (&self.source, self.form) {
            (_, UserIdForm::Decimal) | (Source::Visitor(_), _) => None,
            (Source::Header, UserIdForm::Any) => self.believed(headers).ok().map(|(_, id)| id.clone()),
            (Source::Token(tokens), UserIdForm::Any) => {
                tokens.user(headers, self.form).ok().and_then(|(_, id)| HeaderValue::from_str(&id).ok())
            }
        };
        as_it_came.unwrap_or_else(|| HeaderValue::from(user.get()))
    }

    /// Before a request goes on to the shop: where a token or a cookie tells who asks, `X-User-Id` becomes what that says,
    /// and is gone with everything that servers fold to it if there is none. A believed header stays as it is. The cookie
    /// of a visitor proves who one is and ends here.
    pub fn tell_shop(&self, headers: &mut HeaderMap) {
        let id = match &self.source {
            Source::Header => return,
            Source::Token(tokens) => {
                tokens.user(headers, self.form).ok().and_then(|(_, id)| HeaderValue::from_str(&id).ok())
            }
            Source::Visitor(visitors) => {
                let visitor = visitors.known(headers).ok();
                visitor::strip(headers);
                visitor.map(|visitor| HeaderValue::from(visitor.id.get()))
            }
        };
        let claimed: Vec<HeaderName> =
            headers.keys().filter(|name| folded(name) == USER_ID_HEADER.as_str()).cloned().collect();
        for name in claimed {
            headers.remove(name);
        }
        if let Some(id) = id {
            headers.insert(USER_ID_HEADER, id);
        }
    }

    /// The one `X-User-Id` there is, and the number it stands for.
    fn believed<'a>(&self, headers: &'a HeaderMap) -> Result<(UserId, &'a HeaderValue), Unidentified> {
        let id = only(headers, &USER_ID_HEADER);
        let read = id.and_then(|id| Some((self.form.parse(id.to_str().ok()?).ok()?, id)));
        read.ok_or(Unidentified::NoUserId(self.form))
    }
}

impl Tokens {
    /// Who asks, and the id as the token writes it.
    fn user(&self, headers: &HeaderMap, form: UserIdForm) -> Result<(UserId, String), Unidentified> {
        let token = bearer(headers).ok_or(Unidentified::NoToken)?;
        let checked = jwt::header_of(token).and_then(|head| {
            // An empty name names nothing.
            let kid = head.kid.as_deref().filter(|kid| !kid.is_empty());
            let choice = match &self.keys {
                Keys::Fixed(keys) => keys.choose(head.alg, kid),
                Keys::Published(keys) => keys.choose(head.alg, kid),
            };
            match choice {
                Choice::Key(key) => self.rules.check(token, &key, self.clock.now_ms(), form).map(Ok),
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
