//! Anonymous visitors: nobody logs in before the queue, and a signed cookie of ours says who comes again.
//!
//! A visitor is a random number. The cookie is set on entering; polling, leaving and the gate only read it. A page of
//! ours that is loaded before may set it the same way ([`Visitors::entering`]).

use std::sync::Arc;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{Asker, Unidentified, cookies, only};
use crate::{
    domain::{MAX_ID, UserId},
    token::{Keyring, Visitor},
};

/// The cookie that says which visitor it is.
pub const VISITOR_COOKIE: &str = "vq_visitor";

/// A week: longer than anybody waits, so that nobody's cookie ends before their turn.
const MAX_AGE_SECONDS: u64 = 7 * 24 * 60 * 60;

/// So many cookies of the name are looked at. Each costs a signature for each secret, and anybody can send hundreds.
const MOST_LOOKED_AT: usize = 8;

/// Where browsers say what kind of page asks.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What visitors are known by.
pub(super) struct Visitors {
    keyring: Arc<Keyring>,
}

impl Visitors {
    pub(super) fn new(keyring: Arc<Keyring>) -> Self {
        Self { keyring }
    }

    /// Which visitor it is. Of several cookies the first whose signature holds counts: others are stale, or forged.
    pub(super) fn known(&self, headers: &HeaderMap) -> Result<Visitor, Unidentified> {
        let ours = cookies::of(headers).filter(|(name, _)| *name == VISITOR_COOKIE).take(MOST_LOOKED_AT);
        ours.filter_map(|(_, value)| self.keyring.visitor(value)).next().ok_or(Unidentified::NoVisitor)
    }

    pub(super) fn polling(&self, headers: &HeaderMap) -> Result<Asker, Unidentified> {
        let visitor = self.known(headers)?;
        let cookie = (!visitor.is_current).then(|| self.cookie(visitor.id));
        Ok(Asker { user: visitor.id, cookie })
    }

    pub(super) fn entering(&self, headers: &HeaderMap) -> Result<Asker, Unidentified> {
        let user = match self.known(headers) {
            Ok(visitor) => visitor.id,
            // Browsers send no `SameSite=Lax` cookie along with another site's POST, but they store one that comes back:
            // any page could make its guests lose their places here.
            Err(_) if is_from_other_site(headers) => return Err(Unidentified::OtherSite),
            Err(_) => somebody_new(),
        };
        Ok(Asker { user, cookie: Some(self.cookie(user)) })
    }

    fn cookie(&self, id: UserId) -> HeaderValue {
        let value = self.keyring.sign_visitor(id);
        let cookie =
            format!("{VISITOR_COOKIE}={value}; HttpOnly; Secure; SameSite=Lax; Path=/; Max-Age={MAX_AGE_SECONDS}");
        HeaderValue::try_from(cookie).expect("digits, letters and punctuation make a header")
    }
}

/// Takes the cookie out before the shop.
pub(super) fn strip(headers: &mut HeaderMap) {
    cookies::remove(headers, |name| name == VISITOR_COOKIE.as_bytes());
}

/// A page of another site asks. Apps and old browsers do not say.
fn is_from_other_site(headers: &HeaderMap) -> bool {
    only(headers, &FETCH_SITE).is_some_and(|site| site == "cross-site")
}

/// 63 random bits, never 0.
fn somebody_new() -> UserId {
    UserId::try_from(rand::random_range(1..=MAX_ID)).expect("it is in the range of ids")
}
