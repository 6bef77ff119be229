//! The methods that a request asks for besides its own.
//!
//! Many frameworks take the method from a header or a parameter. The gate cannot know what the shop does, so it checks
//! a request under its own method and under each method that it may ask for.

use actix_web::http::{
    Method, Uri,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING},
};

use super::{
    path::{Words, folded, for_each_decoding},
    query,
};
use crate::{domain::GatedRoute, identity};

/// Headers that name another method: Rails, Laravel, Symfony, Express, Hono, ASP.NET, Google's and Microsoft's APIs.
const HEADERS: [&str; 3] = ["x-http-method-override", "x-method-override", "x-http-method"];

/// Parameters that name another method, in a query or in a form: the frameworks' own names, and the headers' names.
const PARAMETERS: [&str; 4] = ["_method", "x_http_method_override", "x_method_override", "x_http_method"];

/// Content types that no framework reads as a form. Any other may be a form.
const NO_FORMS: [&str; 5] =
    ["application/json", "application/octet-stream", "application/xml", "text/plain", "text/xml"];

/// What is known about a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// The headers say whether there is one: HTTP/1.1.
    Declared,
    /// There may be one whatever the headers say: HTTP/2, and forward auth, where the question itself has no body.
    Unknown,
}

/// A method of a purchase route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GatedMethod {
    name: String,
    word: Words,
}

impl GatedMethod {
    /// The methods of these routes, each once.
    pub(super) fn of(routes: &[GatedRoute]) -> Vec<Self> {
        let mut names: Vec<&str> = routes.iter().map(GatedRoute::method).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| Self { name: name.to_owned(), word: Words::of_word(name) }).collect()
    }

    /// Whether a value names this method, in any case and script: `po` and U+017F and `t` becomes `POST` in upper case.
    fn is_in(&self, value: &[u8]) -> bool {
        let mut found = false;
        for_each_decoding(value, |text| found |= self.word.are_in(text));
        found
    }
}

/// Which methods of purchase routes a request asks for, or may ask for in its body. The gate does not read the body.
pub(super) fn asked_for<'a>(
    gated: &'a [GatedMethod],
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Vec<&'a str> {
    let values = values(uri, headers);
    let may_be_any = may_be_form(method, headers, body);
    if values.is_empty() && !may_be_any {
        return Vec::new();
    }
    let is_asked = |gated: &&GatedMethod| may_be_any || values.iter().any(|value| gated.is_in(value));
    gated.iter().filter(is_asked).map(|gated| gated.name.as_str()).collect()
}

/// The values of all headers and parameters that name a method.
fn values<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Vec<&'a [u8]> {
    let mut values = Vec::new();
    for (name, value) in headers {
        // A cheap test that ends here for almost every header: the other names have another length.
        let is_as_long = |known: &&str| known.len() == name.as_str().len();
        if HEADERS.iter().any(is_as_long) && HEADERS.contains(&identity::folded(name).as_str()) {
            values.push(value.as_bytes());
        }
    }
    let parameters = query::parameters(uri.query().unwrap_or_default());
    values.extend(parameters.filter(|(name, _)| is_parameter(name)).map(|(_, value)| value.as_bytes()));
    values
}

/// PHP turns characters that its names cannot contain into `_`. Other frameworks read brackets before or after a name
/// as a list.
fn is_parameter(raw: &str) -> bool {
    let is_as_long = |known: &&str| raw.len() >= known.len();
    if !PARAMETERS.iter().any(is_as_long) {
        return false;
    }
    let name = query::name(raw);
    let begins_oddly = !name.starts_with(char::is_alphanumeric);
    PARAMETERS.iter().any(|known| folded(&name).eq(folded(known)) && (begins_oddly || !known.starts_with('_')))
}

/// Whether there may be a body that a framework reads as a form.
fn may_be_form(method: &Method, headers: &HeaderMap, body: Body) -> bool {
    let has_length = headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    let is_declared = has_length || headers.contains_key(TRANSFER_ENCODING);
    if !is_declared && body == Body::Declared {
        return false;
    }
    let mut kinds = headers.get_all(CONTENT_TYPE);
    match (kinds.next(), kinds.next()) {
        // Rack reads a body without a content type as a form. With forward auth, a request without a length may be a
        // page view.
        (None, _) => is_declared || matches!(*method, Method::POST | Method::PUT | Method::PATCH),
        (Some(kind), None) => !is_no_form(kind.as_bytes()),
        (Some(_), Some(_)) => true,
    }
}

/// Whether no framework reads this content type as a form, even with a careless parser.
fn is_no_form(kind: &[u8]) -> bool {
    let kind = String::from_utf8_lossy(kind).to_ascii_lowercase();
    let essence = kind.split([';', ',']).next().unwrap_or_default().trim();
    let is_other = NO_FORMS.contains(&essence)
        || ["image/", "audio/", "video/"].iter().any(|family| essence.starts_with(family))
        || essence.ends_with("+json")
        || essence.ends_with("+xml");
    is_other && !["form", "multipart", "urlencoded"].iter().any(|word| kind.contains(word))
}

#[cfg(test)]
mod tests;
