//! Requests that can be read in two ways are refused before any reading of them.
//!
//! Actix has already refused: two lengths or two encodings, a length together with an encoding, an encoding other than
//! chunked, folded lines, line ends within values, two `Host`s, a method or a target with spaces or control characters.
//! This module refuses the rest.

use actix_web::{
    Error, HttpRequest,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, Uri,
        header::{self, HeaderMap, HeaderName},
    },
    middleware::Next,
};

use super::{failure::Failure, headers::named_by_connection};
use crate::identity::folded;

/// Headers that say where a message ends or which host it is for. No other header may look like them.
const FRAMING: [HeaderName; 4] = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::HOST, header::CONNECTION];

/// Headers that a `Connection` header must not remove before the shop: the gate or a proxy before us has already used
/// them.
const NEVER_HOP_BY_HOP: [&str; 9] = [
    "x-user-id",
    "x-entry-token",
    "host",
    "content-length",
    "content-type",
    "cookie",
    "authorization",
    "via",
    "forwarded",
];

/// The outermost middleware, before the gate.
///
/// # Errors
/// The errors of the service behind it.
pub async fn refuse_ambiguous(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    match ambiguity(request.request()) {
        Some(what) => Ok(request.into_response(Failure::Ambiguous(what).into_response()).map_into_right_body()),
        None => Ok(next.call(request).await?.map_into_left_body()),
    }
}

/// What is ambiguous about a request; `None`: nothing.
fn ambiguity(request: &HttpRequest) -> Option<&'static str> {
    let headers = request.headers();
    target_ambiguity(request.method(), request.uri(), headers).or_else(|| header_ambiguity(headers))
}

fn target_ambiguity(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
    if *method == Method::CONNECT {
        // The forwarding handler refuses it.
        return None;
    }
    if !uri.path().starts_with('/') {
        return Some("the target of the request is no path");
    }
    let host = headers.get(header::HOST).map(|host| host.as_bytes().trim_ascii());
    let is_of_hosts = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(byte);
    if host.is_some_and(|host| host.is_empty() || !host.iter().all(is_of_hosts)) {
        return Some("the Host header names no host");
    }
    let authority = uri.authority()?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let same = host.is_none_or(|host| host.eq_ignore_ascii_case(authority.as_str().as_bytes()));
    (!is_http || !same).then_some("the target of the request and its Host header name different hosts")
}

fn header_ambiguity(headers: &HeaderMap) -> Option<&'static str> {
    for name in headers.keys() {
        if name.as_str().contains(['_', '.']) && FRAMING.iter().any(|framing| folded(name) == framing.as_str()) {
            return Some("a header looks like one that says where the message ends");
        }
    }
    let named = named_by_connection(headers.get_all(header::CONNECTION).map(|value| value.as_bytes()));
    let must_stay = |name: &String| NEVER_HOP_BY_HOP.contains(&name.as_str()) || name.starts_with("x-forwarded-");
    named.iter().any(must_stay).then_some("the Connection header names a header that is not about the connection")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{ENTRY_TOKEN_HEADER, USER_ID_HEADER};

    #[test]
    fn the_gates_own_headers_are_among_those_that_stay() {
        for header in [USER_ID_HEADER, ENTRY_TOKEN_HEADER] {
            assert!(NEVER_HOP_BY_HOP.contains(&header.as_str()), "{header}");
        }
    }
}
