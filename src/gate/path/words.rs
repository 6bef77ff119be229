//! Whether a text contains some words in their order, in any spelling.

use super::decode::next_char;
use crate::domain::RouteSegment;

/// The most letters that are compared, over all words. Letters beyond count as found.
const MOST_LETTERS: usize = 126;

/// The words of a route in their order. Any text may stand between them: a shop may read it as any id.
///
/// A server may decode an odd path, cut it, and drop parts of it. It adds no letters and keeps the order. So in any
/// reading the letters of the words stand in the path in their order, and the letters of one word stand together,
/// except for characters that are not letters or digits.
///
/// Each bit is a place in the words: "this many letters were found". Reading a character moves all bits at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) struct Words {
    /// For each letter and digit: the places where it is the next one.
    next: [u128; 36],
    /// The places between words, where any text may follow. `all_found` is the last place.
    gaps: u128,
    all_found: u128,
}

/// The class of the character at one place of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// A letter or a digit, by its index.
    Letter(usize),
    /// Punctuation, spaces, invisible characters, letters of other scripts: part of no word. Some server drops them.
    Mark,
    /// A `%` that begins no escape. Some servers drop it, some also drop what follows, some turn it into a character.
    CutEscape,
    /// A character that some comparison or conversion takes for an ASCII letter: `ſ`, `ı`, `ö`, `ｏ`.
    Disguise,
    /// A character that becomes up to three letters: `ß`, `ﬁ`, `ﬃ`.
    Ligature,
}

impl Words {
    /// The words of a route.
    pub(in crate::gate) fn of_route(segments: &[RouteSegment]) -> Self {
        let mut words = Self { next: [0; 36], gaps: 0, all_found: 0 };
        let mut place = 0;
        for segment in segments {
            words.gaps |= 1 << place;
            let RouteSegment::Literal(word) = segment else { continue };
            for letter in word.bytes().filter_map(letter) {
                words.next[letter] |= 1 << place;
                place = (place + 1).min(MOST_LETTERS);
            }
        }
        words.all_found = 1 << place;
        words
    }

    /// A single word.
    pub(in crate::gate) fn of_word(word: &str) -> Self {
        Self::of_route(&[RouteSegment::Literal(word.to_owned())])
    }

    /// Whether a text contains the words. Nothing is decoded.
    pub(in crate::gate) fn are_in(&self, text: &[u8]) -> bool {
        // The places reached if reading continues here, or at one of the next four bytes; 0: none.
        let mut at_next = [0; 5];
        at_next[0] = 1;
        for at in 0..text.len() {
            let here = std::mem::take(&mut at_next[at % 5]);
            if here & self.all_found != 0 {
                return true;
            }
            if here == 0 {
                continue;
            }
            let (sign, length) = first_sign(&text[at..]);
            at_next[(at + length) % 5] |= self.after(here, sign);
            if sign == Sign::CutEscape {
                let length = (text.len() - at).min(3);
                at_next[(at + length) % 5] |= self.after(here, Sign::Disguise);
            }
        }
        at_next[text.len() % 5] & self.all_found != 0
    }

    fn after(&self, here: u128, sign: Sign) -> u128 {
        let gone_on = match sign {
            Sign::Letter(letter) => ((here & self.next[letter]) << 1) | (here & self.gaps),
            Sign::Mark | Sign::CutEscape => here,
            Sign::Disguise => here | (here << 1),
            Sign::Ligature => here | (here << 1) | (here << 2) | (here << 3),
        };
        // The words may begin anywhere in the text.
        (gone_on | 1) & (self.all_found | (self.all_found - 1))
    }
}

fn first_sign(text: &[u8]) -> (Sign, usize) {
    let of_ascii = |byte: u8| letter(byte).map_or(Sign::Mark, Sign::Letter);
    match text {
        [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => (Sign::Mark, 1),
        [b'%', ..] => (Sign::CutEscape, 1),
        [byte, ..] if byte.is_ascii() => (of_ascii(*byte), 1),
        _ => match next_char(text) {
            // A byte that is not UTF-8: possibly a Latin-1 letter.
            (None, _) => (Sign::Disguise, 1),
            (Some(code), length) => match u8::try_from(code) {
                // Overlong form.
                Ok(byte) if byte.is_ascii() => (of_ascii(byte), length),
                _ if matches!(code, 0xdf | 0xfb00..=0xfb06) => (Sign::Ligature, length),
                _ if is_like_ascii(code) => (Sign::Disguise, length),
                _ => (Sign::Mark, length),
            },
        },
    }
}

/// The blocks with ASCII letters and digits in other shapes (accented, superscript, circled, mathematical, wide), and
/// digits of any script.
fn is_like_ascii(code: u32) -> bool {
    matches!(
        code,
        0x80..=0x2ff
            | 0x1d00..=0x1dbf
            | 0x1e00..=0x1eff
            | 0x2070..=0x209f
            | 0x2100..=0x218f
            | 0x2460..=0x24ff
            | 0x2c60..=0x2c7f
            | 0xa720..=0xa7ff
            | 0xab30..=0xab6f
            | 0xff00..=0xff5e
            | 0x1d400..=0x1d7ff
            | 0x1f100..=0x1f1ff
    ) || char::from_u32(code).is_some_and(char::is_numeric)
}

/// The index of an ASCII letter or digit.
fn letter(byte: u8) -> Option<usize> {
    match byte {
        b'a'..=b'z' => Some(usize::from(byte - b'a')),
        b'A'..=b'Z' => Some(usize::from(byte - b'A')),
        b'0'..=b'9' => Some(usize::from(byte - b'0') + 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{GatedRoute, QueueTargetType};

    fn spells(pattern: &str, text: &str) -> bool {
        let route = GatedRoute::new("POST", pattern, QueueTargetType::LimitedDrop).unwrap();
        Words::of_route(route.segments()).are_in(text.as_bytes())
    }

    #[test]
    fn words_are_found_in_their_order() {
        for text in [
            "limited-drops/42/orders",
            "limiteddrops42orders",
            "xxlimited-dropsxxordersxx",
            "limited-limited-drops/42/orders",
            "limited-drops/orders/orders",
            "orders/limited-drops/x/orders",
            "l-i-m-i-t-e-d--drops/42/o/r/d/e/r/s",
            "LIMITED_DROPS 42 ORDERS",
            "limited-drops/\u{664}\u{662}/orders",
            "limited-drops//orders",
            "l\u{131}m\u{131}ted-drops/42/order\u{17f}",
            "lim\u{200b}ited-drops/42/orders",
            "limited-drops/42/orders%",
            "limited-drops/42/orde%rs",
            "limited-drops/42/orde%zzs",
            "limited-drops/42/order%7",
        ] {
            assert!(spells("/limited-drops/{id}/orders", text), "{text}");
        }
        for text in [
            "",
            "limited-drops/42",
            "limited-drops/42/order",
            "orders/42/limited-drops",
            "limited/x/drops/42/orders",
            "limited-drops/42/or1ders",
            "limited-dro\u{43f}s/42/orders",
            "\u{d55c}\u{c815}\u{d310}/42/\u{c8fc}\u{bb38}",
        ] {
            assert!(!spells("/limited-drops/{id}/orders", text), "{text}");
        }
    }

    #[test]
    fn ligatures_stand_for_all_their_letters() {
        assert!(spells("/first/{id}/offices", "\u{fb01}rst/1/o\u{fb03}ces"));
        assert!(spells("/streets/{id}", "\u{fb06}reets/1") && spells("/classes/{id}", "cla\u{df}es/1"));
    }

    #[test]
    fn digits_are_letters_of_a_word() {
        assert!(
            spells("/api/v2/drops/{id}", "//API/v2/drops/7") && spells("/api/v2/drops/{id}", "//api/v\u{b2}/drops/7")
        );
        assert!(!spells("/api/v2/drops/{id}", "//api/v1/drops/7"));
    }

    #[test]
    fn of_very_many_letters_the_first_are_looked_for() {
        let long = "a".repeat(200);
        assert!(spells(&format!("/{long}/{{id}}"), &format!("//{long}/7")));
        assert!(!spells(&format!("/{long}/{{id}}"), &"a".repeat(100)));
    }
}
