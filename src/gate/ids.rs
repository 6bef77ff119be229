//! What a shop might make of an id that is none to us.

use super::readings::{decoded, folded};
use crate::domain::{MAX_ID, parse_canonical_id};

/// Stands for an id that no reading makes anything of: only a rule for all targets can be on for it.
const NO_PARTICULAR_ID: u64 = MAX_ID;

/// Every id, 1..=[`MAX_ID`], that some parser reads from this text: one that takes signs, leading zeros, other bases,
/// fractions, exponents or foreign digits, stops at the first odd character, skips odd ones, or wraps around.
/// Never empty; a canonical id is nothing but itself.
pub(super) fn plausible_ids(text: &str) -> Vec<u64> {
    if let Ok(id) = parse_canonical_id(text) {
        return vec![id];
    }
    let text: String = folded(&decoded(text)).chars().map(ascii_digit).collect();
    let unsigned = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let mut ids = Vec::new();
    let mut read = |digits: &str, base: u32| {
        // What is left of the number in 64 bits, and in 32.
        if let Some(number) = wrapping(digits, base) {
            for id in [number, u64::from(number as u32)] {
                if (1..=MAX_ID).contains(&id) && !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
    };
    read(leading(unsigned, 10), 10);
    let all_digits: String = unsigned.chars().filter(char::is_ascii_digit).collect();
    read(&all_digits, 10);
    read(leading(unsigned, 16), 16);
    for (prefix, base) in [("0x", 16), ("0b", 2), ("0o", 8), ("0", 8)] {
        if let Some(digits) = unsigned.strip_prefix(prefix) {
            read(leading(digits, base), base);
        }
    }
    for number in unsigned.parse::<f64>().into_iter().chain(unsigned.replace(',', ".").parse()) {
        if (1.0..MAX_ID as f64).contains(&number) {
            for whole in [number.floor(), number.round(), number.ceil()] {
                read(&format!("{whole}"), 10);
            }
        }
    }
    if ids.is_empty() {
        ids.push(NO_PARTICULAR_ID);
    }
    ids
}

/// The digits of a base that a text starts with.
fn leading(text: &str, base: u32) -> &str {
    let end = text.find(|c: char| !c.is_digit(base)).unwrap_or(text.len());
    &text[..end]
}

/// A number modulo 2^64; `None` without digits.
fn wrapping(digits: &str, base: u32) -> Option<u64> {
    let mut values = digits.chars().map(|c| c.to_digit(base));
    let first = u64::from(values.next()??);
    values.try_fold(first, |number, value| Some(number.wrapping_mul(base.into()).wrapping_add(value?.into())))
}

/// Decimal digits of other scripts as ASCII ones: the blocks a number parser that knows Unicode takes.
fn ascii_digit(c: char) -> char {
    /// Code points of the zeros; nine more digits follow each.
    const ZEROS: [u32; 20] = [
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50, 0xed0, 0xf20,
        0x1040, 0x17e0, 0x1810, 0x1d7ce, 0x1d7d8,
    ];
    let digit = ZEROS.iter().find_map(|zero| (c as u32).checked_sub(*zero).filter(|value| *value < 10));
    digit.and_then(|value| char::from_digit(value, 10)).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_parser_takes_for_forty_two_is_forty_two() {
        for text in [
            "42",
            "042",
            "0042",
            "+42",
            "-42",
            " 42",
            "42 ",
            "42.0",
            "42.",
            "42,0",
            "4.2e1",
            "0x2a",
            "0X2A",
            "2a",
            "0b101010",
            "0o52",
            "052",
            "42abc",
            "42;v=1",
            "42%20",
            "%34%32",
            "4_2",
            "4,2e1",
            "\"42\"",
            "'42'",
            "(42)",
            "[42]",
            "{42}",
            "42L",
            "42n",
            "٤٢",
            "４２",
            "४२",
            "𝟜𝟚",
            "42\0",
            "42/",
            "42%00",
            "41.9",
            "18446744073709551658",
            "04294967338",
            "%2534%2532",
            "42-1",
            "$42",
            "=42",
            "~42",
        ] {
            assert!(plausible_ids(text).contains(&42), "{text:?}: {:?}", plausible_ids(text));
        }
    }

    #[test]
    fn what_nobody_reads_stands_for_no_particular_target() {
        for text in ["", "summer-sale", "%", "0", "-", "000"] {
            assert_eq!(plausible_ids(text), [NO_PARTICULAR_ID], "{text:?}");
        }
    }
}
