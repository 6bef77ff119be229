//! The methods that a request asks for beside its own (DESIGN 8).
//!
//! Many frameworks take the method from a header or a parameter. The gate cannot know what the shop's does, so a request
//! counts as a purchase when it is one under its own method or under any it may ask for.

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

/// Parameters that name another method, in a query or in a form: the frameworks' own, and the headers' names.
const PARAMETERS: [&str; 4] = ["_method", "x_http_method_override", "x_method_override", "x_http_method"];

/// Bodies that are no form to anybody. What is not among them may be one.
const NO_FORMS: [&str; 5] =
    ["application/json", "application/octet-stream", "application/xml", "text/plain", "text/xml"];

/// What is known of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Its headers say whether there is one: HTTP/1.1.
    Declared,
    /// There may be one whatever they say: in a proxy's question, which has none itself, and in HTTP/2.
    Unknown,
}

/// A method that buys.
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

    /// Whether a value names it, in letters of any case and script: `po` and U+017F and `t` is `POST` to who turns it
    /// into capitals.
    fn is_in(&self, value: &[u8]) -> bool {
        let mut found = false;
        for_each_decoding(value, |text| found |= self.word.are_in(text));
        found
    }
}

/// Which of the methods that buy a request asks for, or may ask for in its body: nobody here reads that.
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

/// What the headers and parameters say that name a method.
fn values<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Vec<&'a [u8]> {
    let mut values = Vec::new();
    for (name, value) in headers {
        // Cheap for almost every header of almost every request: all others have another length.
        let is_as_long = |known: &&str| known.len() == name.as_str().len();
        if HEADERS.iter().any(is_as_long) && HEADERS.contains(&identity::folded(name).as_str()) {
            values.push(value.as_bytes());
        }
    }
    let parameters = query::parameters(uri.query().unwrap_or_default());
    values.extend(parameters.filter(|(name, _)| is_parameter(name)).map(|(_, value)| value.as_bytes()));
    values
}

/// PHP turns what may not stand in its names into `_`; others take a name with brackets, before it or after it, for a list.
fn is_parameter(raw: &str) -> bool {
    let is_as_long = |known: &&str| raw.len() >= known.len();
    if !PARAMETERS.iter().any(is_as_long) {
        return false;
    }
    let name = query::name(raw);
    let begins_oddly = !name.starts_with(char::is_alphanumeric);
    PARAMETERS.iter().any(|known| folded(&name).eq(folded(known)) && (begins_oddly || !known.starts_with('_')))
}

/// Whether there may be a body that somebody takes for a form.
fn may_be_form(method: &Method, headers: &HeaderMap, body: Body) -> bool {
    let has_length = headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    let is_declared = has_length || headers.contains_key(TRANSFER_ENCODING);
    if !is_declared && body == Body::Declared {
        return false;
    }
    let mut kinds = headers.get_all(CONTENT_TYPE);
    match (kinds.next(), kinds.next()) {
        // Rack takes what does not say what it is for a form. A question without a length may be about a page.
        (None, _) => is_declared || matches!(*method, Method::POST | Method::PUT | Method::PATCH),
        (Some(kind), None) => !is_no_form(kind.as_bytes()),
        (Some(_), Some(_)) => true,
    }
}

/// Whether a content type is of no form to anybody, however carelessly it is read.
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
