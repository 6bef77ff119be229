//! Which headers are forwarded, in both directions (RFC 9110, section 7.6).

use std::net::IpAddr;

use actix_web::{
    HttpRequest,
    http::{
        Version,
        header::{self as actix_header, HeaderMap as ActixHeaders},
    },
};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, VIA};

use crate::gate::{is_pass_header, without_passes};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Headers about one connection, whether `Connection` names them or not.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header is not forwarded: it is hop-by-hop, or a `Connection` header names it.
fn ends_here(name: &str, named: &[String]) -> bool {
    HOP_BY_HOP.contains(&name) || named.iter().any(|other| other == name)
}

/// Whether a request header is for proxies. `Proxy` is never forwarded: a shop that runs as a CGI program would use it
/// as the proxy for its own requests ("httpoxy").
fn is_for_proxies(name: &str) -> bool {
    name.strip_prefix("proxy").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The names in the `Connection` headers, in lower case.
pub(super) fn named_by_connection<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut named = Vec::new();
    for value in values {
        let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty());
        named.extend(words.map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()));
    }
    named
}

/// The request headers for the shop, except `Host`: hop-by-hop headers and passes are removed, and the request's origin
/// is added.
pub(super) fn to_shop(request: &HttpRequest, pass_cookies: bool, body_is_chunked: bool) -> HeaderMap {
    let theirs = request.headers();
    let named = named_by_connection(theirs.get_all(actix_header::CONNECTION).map(|value| value.as_bytes()));
    let mut headers = HeaderMap::with_capacity(theirs.len() + 4);
    for (name, value) in theirs {
        if ends_here(name.as_str(), &named) || is_for_proxies(name.as_str()) || is_pass_header(name) {
            continue;
        }
        if pass_cookies && *name == actix_header::COOKIE {
            if let Some(value) = without_passes(value) {
                append(&mut headers, name.as_str(), value.as_bytes());
            }
        } else {
            append(&mut headers, name.as_str(), value.as_bytes());
        }
    }
    if body_is_chunked {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    add_origin(&mut headers, request.peer_addr().map(|peer| peer.ip()));
    let via = if request.version() == Version::HTTP_10 { "1.0 virtual-queue" } else { "1.1 virtual-queue" };
    headers.append(VIA, HeaderValue::from_static(via));
    headers
}

/// Whether a request has already passed a gateway like this one.
pub(super) fn was_here(headers: &ActixHeaders) -> bool {
    let ours = |value: &actix_header::HeaderValue| {
        let mut hops = value.as_bytes().split(|byte| *byte == b',');
        hops.any(|hop| hop.trim_ascii().ends_with(b" virtual-queue"))
    };
    headers.get_all(actix_header::VIA).any(ours)
}

/// `X-Forwarded-*`: appends the peer's address; sets scheme and host only if they are missing.
fn add_origin(headers: &mut HeaderMap, peer: Option<IpAddr>) {
    if let Some(peer) = peer {
        let mut chain: Vec<u8> = Vec::new();
        for value in headers.get_all(FORWARDED_FOR) {
            chain.extend_from_slice(value.as_bytes());
            chain.extend_from_slice(b", ");
        }
        chain.extend_from_slice(peer.to_canonical().to_string().as_bytes());
        if let Ok(chain) = HeaderValue::from_maybe_shared(actix_web::web::Bytes::from(chain)) {
            headers.insert(FORWARDED_FOR, chain);
        }
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if !headers.contains_key(FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(FORWARDED_HOST, host);
    }
}

/// The answer's headers for the client. The server writes the length itself, unless `keep_length`.
pub(super) fn to_client(shops: &HeaderMap, keep_length: bool, ours: &mut ActixHeaders) {
    let named = named_by_connection(shops.get_all(CONNECTION).iter().map(|value| value.as_bytes()));
    for (name, value) in shops {
        if ends_here(name.as_str(), &named) || (!keep_length && *name == CONTENT_LENGTH) {
            continue;
        }
        let name = actix_header::HeaderName::from_bytes(name.as_str().as_bytes());
        let value = actix_header::HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            ours.append(name, value);
        }
    }
}

/// Both types allow the same bytes, so no header is lost.
fn append(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}
