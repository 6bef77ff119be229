//! What servers undo in a path, one thing at a time.
//!
//! Here: each by itself, as plainly as some server does it. Not here: in which order, or how often; that is
//! [`super::readings`]'s to try.

use super::letters::{escaped_byte, escaped_char, full_width_ascii, is_blank, key, next_char, overlong_ascii};

/// One thing that some server does to a path: a new text, or `None` where there is nothing to do. None makes a text
/// longer, joins the letters of two segments, or takes letters from within a segment: a word that is in what comes out
/// was in what went in, decoded at the latest.
pub(super) type Undoing = fn(&[u8]) -> Option<Vec<u8>>;

/// All of them.
pub(super) const ALL: [Undoing; 21] = [
    // Dots first, so that texts get shorter early.
    |text| without_dots(text, |segment| matches!(segment, b"." | b"..")),
    |text| without_dots(text, is_dots_perhaps_escaped),
    merged,
    |text| decoded_once(text, |_| true),
    // Who takes a path apart before decoding: the slashes that were written stay the only ones.
    |text| decoded_once(text, |byte| byte != b'/'),
    decoded_code_units,
    |text| rewritten(text, |code, length| if length > 1 { overlong_ascii(code) } else { None }),
    |text| rewritten(text, |code, _| full_width_ascii(code)),
    visible,
    |text| cut(text, b"?"),
    |text| cut(text, b"#"),
    |text| cut(text, b";"),
    |text| cut(text, b"\0"),
    |text| cut(text, b"\r\n"),
    without_parameters,
    with_plain_slashes,
    |text| without_authority(text, usize::MAX),
    |text| without_authority(text, 2),
    |text| script(text).map(|(before, after)| [before, after].concat()),
    |text| script(text).map(|(_, after)| after.to_vec()),
    without_trailing_dots,
];

/// Percent-decoded once, the bytes that are wanted.
fn decoded_once(text: &[u8], wanted: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    replaced(text, b'%', |rest, done| {
        let byte = escaped_byte(rest).filter(|byte| wanted(*byte))?;
        done.push(byte);
        Some(3)
    })
}

/// `%uXXXX` decoded once.
fn decoded_code_units(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b'%', |rest, done| {
        done.extend_from_slice(escaped_char(rest)?.encode_utf8(&mut [0; 4]).as_bytes());
        Some(6)
    })
}

/// What starts with `mark` replaced: `by` writes what it stands for and says how long it was.
fn replaced(text: &[u8], mark: u8, by: impl Fn(&[u8], &mut Vec<u8>) -> Option<usize>) -> Option<Vec<u8>> {
    if !text.contains(&mark) {
        return None;
    }
    let mut done = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first == mark).then(|| by(rest, &mut done)).flatten() {
            Some(length) => &rest[length..],
            None => {
                done.push(first);
                tail
            }
        };
    }
    Some(done)
}

/// Characters beyond ASCII that stand for one as that one; `by` gets the code and the length.
fn rewritten(text: &[u8], by: impl Fn(u32, usize) -> Option<u8>) -> Option<Vec<u8>> {
    if text.is_ascii() {
        return None;
    }
    let mut done = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (code, length) = next_char(rest);
        match code.and_then(|code| by(code, length)) {
            Some(byte) => done.push(byte),
            None => done.extend_from_slice(&rest[..length]),
        }
        rest = &rest[length..];
    }
    Some(done)
}

/// Without what cannot be seen.
fn visible(text: &[u8]) -> Option<Vec<u8>> {
    if text.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let mut done = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (code, length) = next_char(rest);
        if !code.is_some_and(is_blank) {
            done.extend_from_slice(&rest[..length]);
        }
        rest = &rest[length..];
    }
    Some(done)
}

/// Up to the first of what ends a path for who reads it again after decoding, or reads it in C.
fn cut(text: &[u8], ends: &[u8]) -> Option<Vec<u8>> {
    text.iter().position(|byte| ends.contains(byte)).map(|end| text[..end].to_vec())
}

/// Without `;parameters` of segments.
fn without_parameters(text: &[u8]) -> Option<Vec<u8>> {
    let head = |segment: &[u8]| segment.split(|byte| *byte == b';').next().unwrap_or_default().to_vec();
    text.contains(&b';').then(|| each_segment(text, head))
}

fn with_plain_slashes(text: &[u8]) -> Option<Vec<u8>> {
    text.contains(&b'\\').then(|| text.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect())
}

/// `//host/path` is a path on another host to who resolves a target as a reference (RFC 3986, section 4.2; `new URL`,
/// `urlparse`, `parse_url`, `java.net.URI`). Browsers' rules skip further slashes before the host, others take the host
/// for empty.
fn without_authority(text: &[u8], most_slashes: usize) -> Option<Vec<u8>> {
    let slashes = text.iter().take_while(|byte| **byte == b'/').count();
    if slashes < 2 {
        return None;
    }
    let host = &text[slashes.min(most_slashes)..];
    let path = host.iter().position(|byte| *byte == b'/');
    Some(path.map_or_else(|| b"/".to_vec(), |at| host[at..].to_vec()))
}

/// What stands before and after the first segment that names a program: `/index.php/cart` is `/cart` to the program.
fn script(text: &[u8]) -> Option<(&[u8], &[u8])> {
    const KINDS: [&str; 12] = ["php", "phtml", "cgi", "fcgi", "pl", "py", "rb", "asp", "aspx", "ashx", "cfm", "dll"];
    let mut start = 0;
    for segment in text.split(|byte| *byte == b'/') {
        let end = start + segment.len();
        // Cheap for almost every segment: no name ends without a dot, however it is written.
        if segment.iter().any(|byte| matches!(byte, b'.' | b'%' | 0x80..)) {
            let name = key(segment);
            let name = name.split(';').next().unwrap_or_default();
            let kind = name.rsplit_once('.').map(|(_, kind)| kind.trim_end_matches(|c: char| c.is_ascii_digit()));
            if kind.is_some_and(|kind| KINDS.contains(&kind)) {
                return Some((&text[..start.saturating_sub(1)], &text[end..]));
            }
        }
        start = end + 1;
    }
    None
}

/// Without empty segments.
fn merged(text: &[u8]) -> Option<Vec<u8>> {
    if !text.windows(2).any(|pair| pair == b"//") {
        return None;
    }
    let mut done = text.to_vec();
    done.dedup_by(|byte, before| *byte == b'/' && *before == b'/');
    Some(done)
}

/// Dot segments resolved. Empty segments are segments like others.
fn without_dots(text: &[u8], is_dots: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    if !text.split(|byte| *byte == b'/').any(&is_dots) {
        return None;
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in text.split(|byte| *byte == b'/') {
        if !is_dots(segment) {
            kept.push(segment);
        } else if dots_in(segment) == 2 && !matches!(kept[..], [] | [b""]) {
            kept.pop();
        }
    }
    Some(kept.join(&b'/'))
}

/// `.`, `..`, and the same with escaped dots, as browsers' rules have them.
fn is_dots_perhaps_escaped(segment: &[u8]) -> bool {
    let mut rest = segment;
    while !rest.is_empty() {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return false,
        };
    }
    matches!(dots_in(segment), 1 | 2)
}

/// Of a segment that is nothing but dots.
fn dots_in(segment: &[u8]) -> usize {
    segment.iter().filter(|byte| matches!(byte, b'.' | b'%')).count()
}

/// Some file systems lose the dots and spaces that names end with.
fn without_trailing_dots(text: &[u8]) -> Option<Vec<u8>> {
    let is_lost = |byte: &u8| matches!(byte, b'.' | b' ');
    let name = |segment: &[u8]| {
        let end = segment.iter().rposition(|byte| !is_lost(byte)).map_or(0, |at| at + 1);
        if matches!(segment, b"." | b"..") { segment.to_vec() } else { segment[..end].to_vec() }
    };
    text.iter().any(is_lost).then(|| each_segment(text, name))
}

fn each_segment(text: &[u8], into: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let segments: Vec<Vec<u8>> = text.split(|byte| *byte == b'/').map(into).collect();
    segments.join(&b'/')
}
