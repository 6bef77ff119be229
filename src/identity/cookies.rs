//! `Cookie` headers: what is in them, and what of it goes on.

use actix_web::http::header::{self, HeaderMap, HeaderValue};

/// Names and values of all cookies of a request, in their order; those that are text.
pub(super) fn of(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers.get_all(header::COOKIE).flat_map(|line| {
        let pairs = line.as_bytes().split(|byte| *byte == b';').filter_map(|pair| str::from_utf8(pair).ok());
        pairs.filter_map(|pair| pair.split_once('=')).map(|(name, value)| {
            let value = value.trim();
            (name.trim(), value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value))
        })
    })
}

/// Takes the cookies of this name out. Others stay byte for byte.
pub(super) fn remove(headers: &mut HeaderMap, name: &str) {
    let is_it =
        |pair: &&[u8]| pair.split(|byte| *byte == b'=').next().is_some_and(|n| n.trim_ascii() == name.as_bytes());
    let before: Vec<HeaderValue> = headers.get_all(header::COOKIE).cloned().collect();
    if !before.iter().any(|line| line.as_bytes().split(|byte| *byte == b';').any(|pair| is_it(&pair))) {
        return;
    }
    headers.remove(header::COOKIE);
    for line in before {
        let kept: Vec<&[u8]> = line.as_bytes().split(|byte| *byte == b';').filter(|pair| !is_it(pair)).collect();
        let kept = kept.join(&b';');
        let kept = kept.trim_ascii();
        if let (false, Ok(kept)) = (kept.is_empty(), HeaderValue::from_bytes(kept)) {
            headers.append(header::COOKIE, kept);
        }
    }
}
