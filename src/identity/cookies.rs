//! `Cookie` headers: what is in them, and what of it goes on.

use actix_web::http::header::{self, HeaderMap, HeaderValue};

/// Names and values of all cookies of a request, in their order; those that are text.
pub(crate) fn of(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers.get_all(header::COOKIE).flat_map(|line| {
        let pairs = pairs(line).filter_map(|pair| str::from_utf8(pair).ok());
        pairs.filter_map(|pair| pair.split_once('=')).map(|(name, value)| {
            let value = value.trim();
            (name.trim(), value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value))
        })
    })
}

/// Removes the cookies with these names. Others stay byte for byte.
pub(crate) fn remove(headers: &mut HeaderMap, is_unwanted: impl Fn(&[u8]) -> bool) {
    let before: Vec<HeaderValue> = headers.get_all(header::COOKIE).cloned().collect();
    headers.remove(header::COOKIE);
    for line in before {
        if let Some(line) = without(&line, &is_unwanted) {
            headers.append(header::COOKIE, line);
        }
    }
}

/// One `Cookie` header without the cookies with these names; `None` if nothing else is in it. Others stay byte for byte.
pub(crate) fn without(line: &HeaderValue, is_unwanted: impl Fn(&[u8]) -> bool) -> Option<HeaderValue> {
    let is_unwanted = |pair: &[u8]| is_unwanted(name_of(pair));
    if !pairs(line).any(is_unwanted) {
        return Some(line.clone());
    }
    let kept: Vec<&[u8]> = pairs(line).filter(|pair| !is_unwanted(pair)).collect();
    let kept = kept.join(&b';');
    let kept = kept.trim_ascii();
    if kept.is_empty() { None } else { HeaderValue::from_bytes(kept).ok() }
}

fn pairs(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    line.as_bytes().split(|byte| *byte == b';')
}

fn name_of(pair: &[u8]) -> &[u8] {
    pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}
