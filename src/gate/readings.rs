//! The readings of a path: everything a server behind us might take it for.
//!
//! Here: trying what servers undo ([`super::undoings`]), in every order and as often as there is something to undo. Not
//! here: which of the results is a gated route; that is [`super::routes`]'s to say. A reading too many refuses an odd
//! request, a reading too few sells without a pass: so in doubt there is one more.

use super::undoings;

/// Texts that a path is turned into, at most; none that is honest comes near.
const MOST_TEXTS: usize = 64;

/// Bytes of all these texts, at most: what bounds the time that a path costs.
const MOST_BYTES: usize = 6 * 1024;

/// A path has more readings than anybody looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany;

/// Calls `each` with every plausible reading of a raw path, as segments without empty ones; some come twice.
/// `is_of_interest` says, of a text, whether anything that it could be turned into matters: no undoing adds a word.
///
/// # Errors
/// [`TooMany`]: `each` has not seen them all.
pub(super) fn for_each_reading(
    raw: &[u8],
    is_of_interest: impl Fn(&[u8]) -> bool,
    mut each: impl FnMut(&[&[u8]]),
) -> Result<(), TooMany> {
    let mut texts = vec![raw.to_vec()];
    let mut bytes = raw.len();
    let mut at = 0;
    while at < texts.len() {
        for undo in undoings::ALL {
            let Some(undone) = undo(&texts[at]) else { continue };
            if texts.contains(&undone) || !is_of_interest(&undone) {
                continue;
            }
            bytes += undone.len();
            if texts.len() == MOST_TEXTS || bytes > MOST_BYTES {
                return Err(TooMany);
            }
            texts.push(undone);
        }
        at += 1;
    }
    for text in &texts {
        let segments: Vec<&[u8]> = text.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).collect();
        each(&segments);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(raw: &str) -> Result<Vec<String>, TooMany> {
        let mut all = Vec::new();
        let keep = |segments: &[&[u8]]| all.push(String::from_utf8_lossy(&segments.join(&b'/')).into_owned());
        for_each_reading(raw.as_bytes(), |_| true, keep).map(|()| all)
    }

    #[test]
    fn a_plain_path_has_one_reading() {
        assert_eq!(readings("/limited-drops/42/orders"), Ok(vec!["limited-drops/42/orders".to_owned()]));
    }

    #[test]
    fn what_is_undone_is_undone_in_every_order() {
        for (raw, reading) in [
            ("//x/a", "a"),
            ("///x/a", "a"),
            ("///x/a", "x/a"),
            ("/\\x/a", "a"),
            ("/%09/x/a", "a"),
            ("/.//x/a", "a"),
            ("/b%2Fc/%2e%2e/a", "a"),
            ("/b%2Fc/%2e%2e/a", "b/a"),
            ("/b%2Fc/..%3Bx/a", "a"),
            ("/a/b%2Fc%c0%afd/../../e", "a/e"),
            ("/a;%2Fx/b", "a/b"),
            ("/a;/x", "a"),
            ("/a/%2e%2e/../b", "a/b"),
            ("/.../a. ./b", "a/b"),
            ("/x/index.php/a", "a"),
            ("/x/index.php/a", "x/a"),
            ("/INDEX%2EPHP5/a", "a"),
        ] {
            let all = readings(raw).expect("few");
            assert!(all.iter().any(|found| found == reading), "{raw}: {reading} is not in {all:?}");
        }
    }

    #[test]
    fn more_readings_than_anybody_looks_at_are_said_to_be_so() {
        assert_eq!(readings(&"//x".repeat(100)), Err(TooMany));
    }
}
