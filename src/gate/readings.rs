//! The readings of a path: everything a server behind us might take it for.
//!
//! Here: undoing what servers undo (encodings, dot segments, parameters, cut-off tails). Not here: which of the
//! results is a gated route; that is [`super::routes`]'s to say. A reading too many refuses an odd request, a reading
//! too few sells without a pass: so in doubt there is one more.

/// Calls `each` with every plausible reading of a raw path, as segments without empty ones; some come twice.
pub(super) fn for_each_reading(raw: &str, mut each: impl FnMut(&[&str])) {
    let mut texts = vec![raw.to_owned()];
    also(&mut texts, decoded_once);
    also(&mut texts, decoded);
    also(&mut texts, cut_short);
    also(&mut texts, |text| text.replace('\\', "/"));
    also(&mut texts, without_parameters);
    for text in &texts {
        let as_written: Vec<&str> = text.split('/').collect();
        let merged: Vec<&str> = text.split('/').filter(|segment| !segment.is_empty()).collect();
        let visible: Vec<&str> = text.split('/').filter(|segment| !folded(segment).is_empty()).collect();
        for segments in [&as_written, &merged, &visible] {
            each(&without_dots(segments));
        }
    }
}

/// Adds what `undo` makes of each text, where that is something new.
fn also(texts: &mut Vec<String>, undo: impl Fn(&str) -> String) {
    for at in 0..texts.len() {
        let undone = undo(&texts[at]);
        if !texts.contains(&undone) {
            texts.push(undone);
        }
    }
}

/// Letters as a careless comparison sees them: no case, no control characters or spaces, full-width forms and the two
/// letters that fold to ASCII ones as those.
pub(super) fn folded(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() && !c.is_whitespace() && !is_invisible(*c))
        .map(narrow)
        .flat_map(char::to_lowercase)
        .map(|c| if c == 'ſ' { 's' } else { c })
        .collect()
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | char::REPLACEMENT_CHARACTER)
}

/// Full-width ASCII (`／`, `４`) as ASCII.
fn narrow(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xff01 + 0x21).unwrap_or(c),
        _ => c,
    }
}

/// Percent-decoded once, as most servers do.
fn decoded_once(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(byte) = escaped_byte(rest) {
            bytes.push(byte);
            rest = &rest[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    to_text(&bytes)
}

/// Percent-decoded until nothing is left to decode, in one pass: what a byte completes is decoded where it ends up.
/// Also `%uXXXX`, as some servers do.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        bytes.push(byte);
        loop {
            if let Some(byte) = bytes.len().checked_sub(3).and_then(|at| escaped_byte(&bytes[at..])) {
                bytes.truncate(bytes.len() - 3);
                bytes.push(byte);
            } else if let Some(c) = bytes.len().checked_sub(6).and_then(|at| escaped_char(&bytes[at..])) {
                bytes.truncate(bytes.len() - 6);
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                break;
            }
        }
    }
    to_text(&bytes).chars().map(narrow).collect()
}

/// `%2F` at the start of `bytes`.
fn escaped_byte(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(hex(*high)? * 16 + hex(*low)?),
        _ => None,
    }
}

/// `%u002F` at the start of `bytes`.
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

/// Bytes as text; two-byte forms of ASCII characters (`C0 AF` for `/`), which no decoder should take and some do, as
/// those characters.
fn to_text(bytes: &[u8]) -> String {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        if let [lead @ (0xc0 | 0xc1), follow @ 0x80..=0xbf, ..] = *rest {
            plain.push((lead & 0x1f) << 6 | follow & 0x3f);
            rest = &rest[2..];
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Up to what ends a path for who reads it again after decoding: a query, a fragment, a control character.
fn cut_short(text: &str) -> String {
    let end = text.find(|c: char| c == '?' || c == '#' || c.is_control()).unwrap_or(text.len());
    text[..end].to_owned()
}

/// Without `;parameters` of segments.
fn without_parameters(text: &str) -> String {
    let segments: Vec<&str> = text.split('/').map(|segment| segment.split(';').next().unwrap_or(segment)).collect();
    segments.join("/")
}

/// Dot segments resolved, then empty segments dropped. Segments that only look like dots count as such.
fn without_dots<'a>(segments: &[&'a str]) -> Vec<&'a str> {
    let mut kept: Vec<&str> = Vec::with_capacity(segments.len());
    for segment in segments {
        match folded(segment).as_str() {
            "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    kept.retain(|segment| !segment.is_empty());
    kept
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
            ("%2525252F", "/"),
            ("%u002F", "/"),
            ("%25u002f", "/"),
            ("%c0%af", "/"),
            ("%EF%BC%8F", "/"),
            ("100%", "100%"),
            ("%zz%2", "%zz%2"),
        ] {
            assert_eq!(decoded(raw), plain, "{raw}");
        }
    }

    #[test]
    fn however_hostile_a_path_its_readings_stay_few() {
        let mut readings = 0;
        for_each_reading(&"/%252e%252e;x%3F/\\".repeat(100), |_| readings += 1);
        assert!(readings <= 300, "{readings}");
    }
}
