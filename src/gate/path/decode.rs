//! Decoding of escapes: once, as one server does it, or to the end, as a chain of servers may do it.
//!
//! Here: bytes, characters, their escapes. Not here: which words a text contains ([`super::words`]).

/// Decodes `%2F` and `%u002F` once; `None`: there is nothing to decode.
pub(in crate::gate) fn decoded_once(text: &[u8]) -> Option<Vec<u8>> {
    let mut done = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = if let Some(byte) = escaped_byte(rest) {
            done.push(byte);
            &rest[3..]
        } else if let Some(c) = escaped_char(rest) {
            done.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            &rest[6..]
        } else {
            done.push(first);
            tail
        };
    }
    (done.len() < text.len()).then_some(done)
}

/// Decodes to the end in one pass: an escape completed by a decoded byte is decoded as well. Invisible characters are
/// removed.
pub(in crate::gate) fn decoded(raw: &[u8]) -> Vec<u8> {
    let mut done: Vec<u8> = Vec::with_capacity(raw.len());
    for byte in raw {
        done.push(*byte);
        while shorten(&mut done) {}
    }
    done
}

/// Decodes the escape at the end of a text, or removes an invisible character there. Returns whether it did.
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
        None | Some(b'!'..=b'~') => return false,
        Some(_) => {
            // A character is complete at its last byte.
            let last = (1..=4).find_map(|length| match tail(length).map(next_char)? {
                (Some(code), is_long) if is_long == length => Some((code, length)),
                _ => None,
            });
            match last {
                Some((code, length)) if is_blank(code) => replace_tail(done, length, &[]),
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

/// The ASCII character that a longer sequence stands for: an overlong form (`C0 AF`), which decoders should reject and
/// some accept, or a full-width one (`／`, `４`).
fn ascii_of(code: u32) -> Option<u8> {
    match code {
        0..0x80 => Some(code as u8),
        0xff01..=0xff5e => Some((code - 0xff01 + 0x21) as u8),
        _ => None,
    }
}

/// Whether a character is invisible: control characters, spaces, marks without width.
fn is_blank(code: u32) -> bool {
    char::from_u32(code).is_some_and(|c| {
        c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | char::REPLACEMENT_CHARACTER)
    })
}

/// The code and the length of the first character. Overlong forms count as what they stand for. A byte that starts no
/// character has no code.
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
fn escaped_byte(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(hex(*high)? * 16 + hex(*low)?),
        _ => None,
    }
}

/// `%u002F`, which some servers decode, at the start of `bytes`.
fn escaped_char(bytes: &[u8]) -> Option<char> {
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
            ("a%20%09b", "ab"),
            ("100%", "100%"),
            ("%zz%2", "%zz%2"),
            ("%EA%B9%80", "김"),
        ] {
            assert_eq!(String::from_utf8_lossy(&decoded(raw.as_bytes())), plain, "{raw}");
        }
    }

    #[test]
    fn decoding_once_undoes_what_one_server_would() {
        for (raw, once) in [
            ("%2F", Some("/")),
            ("%252f", Some("%2f")),
            ("%u002F%6f", Some("/o")),
            ("%2%35", Some("%25")),
            ("a%", None),
            ("%zz", None),
            ("%u00", None),
            ("", None),
        ] {
            let found = decoded_once(raw.as_bytes());
            assert_eq!(found.as_deref().map(String::from_utf8_lossy).as_deref(), once, "{raw}");
        }
    }

    #[test]
    fn the_time_it_takes_grows_with_the_length_alone() {
        // Each decoded escape completes the next one.
        for nested in ["%25", "%EF%BC%85", "%u0025", "%2", "%c0%a5"] {
            let long = format!("%{}2F", nested.trim_start_matches('%').repeat(40_000));
            assert!(decoded(long.as_bytes()).len() <= long.len());
        }
    }
}
