//! Which request a proxy asks about. Proxies append it to the path of their question, or name it in headers.
//!
//! A buyer can send such headers, too. So the question's URL says which header counts (`?original=x-original-uri`); the
//! others are ignored. A question that does not say so is clear only if its headers do not contradict each other.

use std::fmt::Write;

use actix_web::http::{
    Method, Uri,
    header::{HeaderMap, HeaderName, HeaderValue},
};

/// The key in the question's query that names a [`Form`].
const KEY: &str = "original=";

/// The header that holds the target of the original request; another header holds its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// nginx, as in its documentation: `/path?query`.
    OriginalUri,
    /// ingress-nginx: `https://host/path?query`.
    OriginalUrl,
    /// Traefik and Caddy: `/path?query`.
    ForwardedUri,
}

impl Form {
    const ALL: [Self; 3] = [Self::OriginalUri, Self::OriginalUrl, Self::ForwardedUri];

    const fn target(self) -> HeaderName {
        HeaderName::from_static(match self {
            Self::OriginalUri => "x-original-uri",
            Self::OriginalUrl => "x-original-url",
            Self::ForwardedUri => "x-forwarded-uri",
        })
    }

    const fn method(self) -> HeaderName {
        HeaderName::from_static(match self {
            Self::OriginalUri | Self::OriginalUrl => "x-original-method",
            Self::ForwardedUri => "x-forwarded-method",
        })
    }

    /// Reads the original request in this form; `None`: there is none in this form.
    fn read(self, headers: &HeaderMap) -> Result<Option<Original>, Unclear> {
        let Some(target) = only(headers, &self.target())? else { return Ok(None) };
        let method = only(headers, &self.method())?.ok_or(Unclear)?;
        let target = match self {
            Self::OriginalUri | Self::ForwardedUri => target.as_bytes(),
            Self::OriginalUrl => target_of_url(target.as_bytes())?,
        };
        Original::new(method.as_bytes(), target).map(Some)
    }
}

/// The original request that a proxy asks about, as the buyer sent it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) method: Method,
    pub(super) uri: Uri,
}

/// It is unclear which request is meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unclear;

impl Original {
    /// The request with this method and target.
    pub(super) fn new(method: &[u8], target: &[u8]) -> Result<Self, Unclear> {
        // A path, or `*`, the only target without one. Proxies turn `http://host/path` into `/path` themselves.
        if !(target.starts_with(b"/") || target == b"*") || is_joined(target) {
            return Err(Unclear);
        }
        let method = Method::from_bytes(method).map_err(|_| Unclear)?;
        let uri = Uri::try_from(printable(target)).map_err(|_| Unclear)?;
        Ok(Self { method, uri })
    }

    /// Reads the original request from the headers of a question with this query.
    pub(super) fn of_question(query: Option<&str>, headers: &HeaderMap) -> Result<Self, Unclear> {
        match query {
            None | Some("") => Self::of_all_forms(headers),
            Some(query) => {
                let name = query.strip_prefix(KEY).ok_or(Unclear)?;
                let is_named = |form: &&Form| form.target().as_str().eq_ignore_ascii_case(name);
                Form::ALL.iter().find(is_named).ok_or(Unclear)?.read(headers)?.ok_or(Unclear)
            }
        }
    }

    /// Reads all forms that are present; they must agree.
    fn of_all_forms(headers: &HeaderMap) -> Result<Self, Unclear> {
        let mut found: Option<Self> = None;
        for form in Form::ALL {
            let Some(said) = form.read(headers)? else { continue };
            match &found {
                Some(before) if *before != said => return Err(Unclear),
                Some(_) | None => found = Some(said),
            }
        }
        // A method without a target.
        let is_alone = |form: Form| {
            let is_partner = |other: &Form| other.method() == form.method() && headers.contains_key(other.target());
            headers.contains_key(form.method()) && !Form::ALL.iter().any(is_partner)
        };
        if Form::ALL.into_iter().any(is_alone) { Err(Unclear) } else { found.ok_or(Unclear) }
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Unclear> {
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() { Err(Unclear) } else { Ok(first) }
}

/// Two header lines that a proxy joined. A request line has no space in its target.
fn is_joined(target: &[u8]) -> bool {
    target.windows(2).any(|two| two[0] == b',' && matches!(two[1], b' ' | b'\t'))
}

/// The target of `https://host/path?query`. The buyer chooses the host: it must contain nothing that some readers take
/// for its end and others do not.
fn target_of_url(url: &[u8]) -> Result<&[u8], Unclear> {
    let rest = url.strip_prefix(b"https://").or_else(|| url.strip_prefix(b"http://")).ok_or(Unclear)?;
    let (host, target) = rest.split_at(rest.iter().position(|byte| *byte == b'/').ok_or(Unclear)?);
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
    if host.iter().all(is_host) { Ok(target) } else { Err(Unclear) }
}

/// Percent-encodes each byte that a target must not contain: some proxies pass such bytes on, and a shop reads them so.
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

    fn original(query: Option<&str>, lines: &[Line]) -> Result<Original, Unclear> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        Original::of_question(query, &headers)
    }

    fn is(method: &str, target: &str) -> Result<Original, Unclear> {
        Ok(Original { method: method.parse().unwrap(), uri: target.parse().unwrap() })
    }

    const NGINX: &[Line] = &[("x-original-method", b"POST"), ("x-original-uri", b"/a//b%2Fc?d=/e")];
    const INGRESS: &[Line] = &[("x-original-method", b"POST"), ("x-original-url", b"https://shop:8443/a//b%2Fc?d=/e")];
    const TRAEFIK: &[Line] = &[("x-forwarded-method", b"POST"), ("x-forwarded-uri", b"/a//b%2Fc?d=/e")];

    #[test]
    fn every_proxy_names_the_original_in_its_own_way() {
        for (lines, name) in [(NGINX, "x-original-uri"), (INGRESS, "X-Original-URL"), (TRAEFIK, "X-Forwarded-Uri")] {
            assert_eq!(original(None, lines), is("POST", "/a//b%2Fc?d=/e"), "{name}");
            let named = format!("original={name}");
            assert_eq!(original(Some(&named), lines), is("POST", "/a//b%2Fc?d=/e"), "{name}");
        }
        assert_eq!(original(None, &[NGINX, TRAEFIK].concat()), is("POST", "/a//b%2Fc?d=/e"));
        let asterisk: &[Line] = &[("x-original-method", b"OPTIONS"), ("x-original-uri", b"*")];
        assert_eq!(original(None, asterisk), is("OPTIONS", "*"));
    }

    #[test]
    fn where_the_question_names_its_header_no_other_one_is_looked_at() {
        let lies: &[Line] = &[
            ("x-original-method", b"GET"),
            ("x-original-method", b"PUT"),
            ("x-original-uri", b"/lie"),
            ("x-original-url", b"lie"),
        ];
        let question = [TRAEFIK, lies].concat();
        assert_eq!(original(Some("original=x-forwarded-uri"), &question), is("POST", "/a//b%2Fc?d=/e"));
        assert_eq!(original(None, &question), Err(Unclear));
        assert_eq!(original(Some("original=x-original-uri"), TRAEFIK), Err(Unclear), "it is not there");
        for query in ["original", "original=", "original=host", "other=x-forwarded-uri", "original=x-forwarded-uri&a"] {
            assert_eq!(original(Some(query), TRAEFIK), Err(Unclear), "{query}");
        }
    }

    #[test]
    fn what_is_missing_doubled_joined_or_contradicted_is_unclear() {
        let (post, path): (Line, Line) = (("x-original-method", b"POST"), ("x-original-uri", b"/a"));
        let bad: &[&[Line]] = &[
            &[],
            &[post],
            &[path],
            &[post, ("x-forwarded-uri", b"/a")],
            &[post, path, path],
            &[post, post, path],
            &[post, path, ("x-forwarded-uri", b"/a")],
            &[post, path, ("x-forwarded-method", b"POST")],
            &[post, path, ("x-forwarded-uri", b"/a"), ("x-forwarded-method", b"GET")],
            &[post, path, ("x-forwarded-uri", b"/b"), ("x-forwarded-method", b"POST")],
            &[post, path, ("x-original-url", b"https://shop/b")],
            &[post, path, ("x-original-url", b"/a")],
            &[post, ("x-original-uri", b"")],
            &[post, ("x-original-uri", b"a")],
            &[post, ("x-original-uri", b"/a, /b")],
            &[post, ("x-original-uri", b"http://host/a")],
            &[("x-original-method", b""), path],
            &[("x-original-method", b"POST, GET"), path],
            &[("x-original-method", b"P\xc3\xb6st"), path],
        ];
        for lines in bad {
            assert_eq!(original(None, lines), Err(Unclear), "{lines:?}");
        }
    }

    #[test]
    fn of_a_url_the_host_ends_for_everybody_at_the_same_place() {
        for (url, target) in [
            (&b"https://shop/"[..], Some("/")),
            (b"http://shop.example:80/a?b=//c", Some("/a?b=//c")),
            (b"https://[::1]:443//a", Some("//a")),
            (b"https:///a", Some("/a")),
            (b"https://shop", None),
            (b"https://shop?x/a", None),
            (b"https://shop#x/a", None),
            (b"https://user@shop/a", None),
            (b"https://shop\\x/a", None),
            (b"https://shop, https://shop/a", None),
            (b"https://shop/a, https://shop/b", None),
            (b"ftp://shop/a", None),
            (b"/a", None),
        ] {
            let found = original(None, &[("x-original-method", b"GET"), ("x-original-url", url)]);
            assert_eq!(found, target.map_or(Err(Unclear), |target| is("GET", target)), "{}", url.escape_ascii());
        }
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
