//! Which request a proxy asks about: each names it in its own headers, or appends it to the path it asks at.

use std::fmt::Write;

use actix_web::http::{
    Method, Uri,
    header::{HeaderMap, HeaderName, HeaderValue},
};

/// Where proxies put the method and the target of the request they ask about: nginx as its documentation shows it, and
/// Traefik (and Caddy).
const ORIGINALS: [(HeaderName, HeaderName); 2] = [
    (HeaderName::from_static("x-original-method"), HeaderName::from_static("x-original-uri")),
    (HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-forwarded-uri")),
];

/// The request a proxy asks about, as the buyer sent it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) method: Method,
    pub(super) uri: Uri,
}

/// Nobody can say which request is meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unclear;

impl Original {
    pub(super) fn new(method: &[u8], target: &[u8]) -> Result<Self, Unclear> {
        // A path, or the one target that has none. Proxies turn `http://host/path` into `/path` themselves.
        if !(target.starts_with(b"/") || target == b"*") {
            return Err(Unclear);
        }
        let method = Method::from_bytes(method).map_err(|_| Unclear)?;
        let uri = Uri::try_from(printable(target)).map_err(|_| Unclear)?;
        Ok(Self { method, uri })
    }

    /// What the headers say, all of them that say something; `also` is what the request itself says. A buyer can send
    /// these headers, too: what a proxy does not overwrite must not contradict what it says.
    pub(super) fn of_headers(headers: &HeaderMap, also: Option<Self>) -> Result<Self, Unclear> {
        let mut found = also;
        for (method, target) in &ORIGINALS {
            let said = match (only(headers, method)?, only(headers, target)?) {
                (None, None) => continue,
                (Some(method), Some(target)) => Self::new(method.as_bytes(), target.as_bytes())?,
                (Some(_), None) | (None, Some(_)) => return Err(Unclear),
            };
            match &found {
                Some(before) if *before != said => return Err(Unclear),
                Some(_) | None => found = Some(said),
            }
        }
        found.ok_or(Unclear)
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Unclear> {
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() { Err(Unclear) } else { Ok(first) }
}

/// With the encoding of each byte that has no place in a target, as which a shop reads it: some proxies pass them on.
fn printable(target: &[u8]) -> String {
    let mut text = String::with_capacity(target.len());
    for byte in target {
        match byte {
            b'"' | b'#' | b'<' | b'>' | b'`' => write!(text, "%{byte:02X}").expect("a string takes everything"),
            b if b.is_ascii_graphic() => text.push(char::from(*b)),
            b => write!(text, "%{b:02X}").expect("a string takes everything"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = (&'static str, &'static [u8]);

    fn original(lines: &[Line], also: Option<(&str, &str)>) -> Result<Original, Unclear> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        let also = also.map(|(method, target)| Original::new(method.as_bytes(), target.as_bytes())).transpose()?;
        Original::of_headers(&headers, also)
    }

    fn is(method: &str, target: &str) -> Result<Original, Unclear> {
        Ok(Original { method: method.parse().unwrap(), uri: target.parse().unwrap() })
    }

    #[test]
    fn every_proxy_names_the_original_in_its_own_way() {
        let nginx: &[Line] = &[("x-original-method", b"POST"), ("x-original-uri", b"/a//b%2Fc?d=/e")];
        let traefik: &[Line] = &[("x-forwarded-method", b"POST"), ("x-forwarded-uri", b"/a//b%2Fc?d=/e")];
        assert_eq!(original(nginx, None), is("POST", "/a//b%2Fc?d=/e"));
        assert_eq!(original(traefik, None), is("POST", "/a//b%2Fc?d=/e"));
        assert_eq!(original(&[], Some(("POST", "/a//b%2Fc?d=/e"))), is("POST", "/a//b%2Fc?d=/e"));
        assert_eq!(
            original(&[nginx, traefik].concat(), Some(("POST", "/a//b%2Fc?d=/e"))),
            is("POST", "/a//b%2Fc?d=/e")
        );
        assert_eq!(original(&[("x-original-method", b"OPTIONS"), ("x-original-uri", b"*")], None), is("OPTIONS", "*"));
    }

    #[test]
    fn what_is_missing_doubled_or_contradicted_is_unclear() {
        let (post, path): (Line, Line) = (("x-original-method", b"POST"), ("x-original-uri", b"/a"));
        let bad: &[&[Line]] = &[
            &[],
            &[post],
            &[path],
            &[post, ("x-forwarded-uri", b"/a")],
            &[post, path, path],
            &[post, post, path],
            &[post, path, ("x-forwarded-uri", b"/a")],
            &[post, path, ("x-forwarded-uri", b"/a"), ("x-forwarded-method", b"GET")],
            &[post, path, ("x-forwarded-uri", b"/b"), ("x-forwarded-method", b"POST")],
            &[post, ("x-original-uri", b"")],
            &[post, ("x-original-uri", b"a")],
            &[post, ("x-original-uri", b"http://host/a")],
            &[("x-original-method", b""), path],
            &[("x-original-method", b"P\xc3\xb6st"), path],
        ];
        for lines in bad {
            assert_eq!(original(lines, None), Err(Unclear), "{lines:?}");
        }
        assert_eq!(original(&[post, path], Some(("POST", "/b"))), Err(Unclear));
        assert_eq!(original(&[post, path], Some(("GET", "/a"))), Err(Unclear));
    }

    #[test]
    fn bytes_that_have_no_place_in_a_target_are_read_as_their_encoding() {
        for (raw, read) in [
            (&b"/x\xc0\xaf\xea\xb9\x80/%EA"[..], "/x%C0%AF%EA%B9%80/%EA"),
            (b"/a b\tc", "/a%20b%09c"),
            (b"/a#b?c", "/a%23b?c"),
            (b"/\"<>`", "/%22%3C%3E%60"),
            (b"//a\\b^c|d{e}[f]?", "//a\\b^c|d{e}[f]?"),
        ] {
            assert_eq!(printable(raw), read);
            let found = Original::new(b"GET", raw).expect("clear");
            assert_eq!(found.uri.to_string(), read);
        }
    }
}
