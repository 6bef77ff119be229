//! The letters of a path: encodings undone, and what a careless comparison makes of the rest.
//!
//! Here: bytes, characters, their escapes. Not here: separators and what segments mean; that is [`super::undoings`].

/// A text as the most careless comparison sees it: decoded until nothing is left to decode, without whatever cannot be
/// seen, and without case. Whatever any order of decodings makes of a text, a word in it is also in this.
pub(super) fn key(raw: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'+');
    if raw.iter().all(is_plain) {
        return raw.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    }
    let decoded = decoded(raw);
    if decoded.is_ascii() {
        return decoded.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    }
    // To capitals and back: `ı`, `ſ` and ligatures have no capitals of their own. What is no text is dropped.
    let text = decoded.utf8_chunks().flat_map(|chunk| chunk.valid().chars());
    text.flat_map(char::to_uppercase).flat_map(char::to_lowercase).filter(|c| *c != DOT_OF_CAPITAL_I).collect()
}

/// What is left of `İ` above the `i` in small letters.
const DOT_OF_CAPITAL_I: char = '\u{307}';

/// Decoded to the end, in one pass: what a byte completes is decoded where it ends up. What cannot be seen is gone.
pub(super) fn decoded(raw: &[u8]) -> Vec<u8> {
    let mut done: Vec<u8> = Vec::with_capacity(raw.len());
    for byte in raw {
        done.push(*byte);
        while shorten(&mut done) {}
    }
    done
}

/// Undoes the escape that a text ends with, or drops what cannot be seen there; whether there was one.
fn shorten(done: &mut Vec<u8>) -> bool {
    let tail = |length: usize| done.len().checked_sub(length).map(|at| &done[at..]);
    match done.last() {
        Some(last) if last.is_ascii_hexdigit() => {
            if let Some(byte) = tail(3).and_then(escaped_byte) {
                replace_tail(done, 3, &[byte]);
            } else if let Some(c) = tail(6).and_then(escaped_char) {
                replace_tail(done, 6, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                return false;
            }
        }
        None | Some(b'!'..=b'*' | b','..=b'~') => return false,
        Some(_) => {
            // A character ends with its last byte.
            let last = (1..=4).find_map(|length| match tail(length).map(next_char)? {
                (Some(code), is_long) if is_long == length => Some((code, length)),
                _ => None,
            });
            match last {
                Some((code, length)) if is_blank(code) || code == u32::from(b'+') => replace_tail(done, length, &[]),
                Some((code, length)) if length > 1 => match ascii_of(code) {
                    Some(byte) => replace_tail(done, length, &[byte]),
                    None => return false,
                },
                _ => return false,
            }
        }
    }
    true
}

fn replace_tail(done: &mut Vec<u8>, length: usize, by: &[u8]) {
    done.truncate(done.len() - length);
    done.extend_from_slice(by);
}

/// The ASCII character that a longer sequence stands for: an overlong form (`C0 AF`), which no decoder should take and
/// some do, or a full-width one (`／`, `４`).
fn ascii_of(code: u32) -> Option<u8> {
    overlong_ascii(code).or_else(|| full_width_ascii(code))
}

/// Of a sequence of more than one byte.
pub(super) fn overlong_ascii(code: u32) -> Option<u8> {
    u8::try_from(code).ok().filter(u8::is_ascii)
}

pub(super) fn full_width_ascii(code: u32) -> Option<u8> {
    (0xff01..=0xff5e).contains(&code).then(|| (code - 0xff01 + 0x21) as u8)
}

/// Whether nobody sees it: control characters, spaces, marks without width.
pub(super) fn is_blank(code: u32) -> bool {
    char::from_u32(code).is_some_and(|c| {
        c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | char::REPLACEMENT_CHARACTER)
    })
}

/// The code of the character that `bytes` start with, overlong forms taken for what they stand for, and its length;
/// no code for a byte that starts none.
pub(super) fn next_char(bytes: &[u8]) -> (Option<u32>, usize) {
    let Some(&lead) = bytes.first() else { return (None, 0) };
    let (length, bits) = match lead {
        0..0x80 => return (Some(lead.into()), 1),
        0xc0..0xe0 => (2, lead & 0x1f),
        0xe0..0xf0 => (3, lead & 0x0f),
        0xf0..0xf8 => (4, lead & 0x07),
        _ => return (None, 1),
    };
    let Some(rest) = bytes.get(1..length) else { return (None, 1) };
    let code = rest
        .iter()
        .try_fold(u32::from(bits), |code, byte| (byte & 0xc0 == 0x80).then(|| code << 6 | u32::from(byte & 0x3f)));
    if code.is_some() { (code, length) } else { (None, 1) }
}

/// `%2F` at the start of `bytes`.
pub(super) fn escaped_byte(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(hex(*high)? * 16 + hex(*low)?),
        _ => None,
    }
}

/// `%u002F`, as some servers know it, at the start of `bytes`.
pub(super) fn escaped_char(bytes: &[u8]) -> Option<char> {
    match bytes {
        [b'%', b'u' | b'U', a, b, c, d, ..] => {
            let code = [a, b, c, d].into_iter().try_fold(0, |code, digit| Some(code * 16 + u32::from(hex(*digit)?)))?;
            char::from_u32(code)
        }
        _ => None,
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_to_the_end_leaves_nothing_to_decode() {
        for (raw, plain) in [
            ("%2F", "/"),
            ("%252f", "/"),
            ("%25%32%46", "/"),
            ("%2%35%32%46", "/"),
            ("%2525252F", "/"),
            ("%u002F", "/"),
            ("%25u002f", "/"),
            ("%u0025%u0032%u0046", "/"),
            ("%c0%af", "/"),
            ("%e0%80%af", "/"),
            ("%f0%80%80%af", "/"),
            ("%EF%BC%8F", "/"),
            ("%EF%BC%852F", "/"),
            ("%2%00F", "/"),
            ("%2%E2%80%8BF", "/"),
            ("a%20+%09b", "ab"),
            ("100%", "100%"),
            ("%zz%2", "%zz%2"),
            ("%EA%B9%80", "김"),
        ] {
            assert_eq!(String::from_utf8_lossy(&decoded(raw.as_bytes())), plain, "{raw}");
        }
    }

    #[test]
    fn letters_that_some_comparison_takes_for_the_same_have_the_same_key() {
        for text in [
            "limited",
            "LIMITED",
            "lİmited",
            "lımited",
            "LıMİTED",
            "ｌｉｍｉｔｅｄ",
            "limi\u{200b}ted",
            "%6Cimited",
            "%256Cimited",
            " limited\t",
            "limi%00ted",
            "limited+",
            "%C4%B0",
            "li%ffmited",
        ] {
            let expected = if text == "%C4%B0" { "i" } else { "limited" };
            assert_eq!(key(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(key("orderſ".as_bytes()), "orders");
        assert_eq!(key("ﬁrﬆ-\u{212a}eyß".as_bytes()), "first-keyss");
        assert_eq!(key("주문/é".as_bytes()), "주문/é");
    }

    #[test]
    fn the_time_it_takes_grows_with_the_length_alone() {
        // Each is decoded where the one before it ended.
        for nested in ["%25", "%EF%BC%85", "%u0025", "%2", "%c0%a5"] {
            let long = format!("%{}2F", nested.trim_start_matches('%').repeat(40_000));
            assert!(decoded(long.as_bytes()).len() <= long.len());
        }
    }
}
