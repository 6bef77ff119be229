//! Replaces the pattern of an id by an exact one.

use std::fmt::Write as _;

use serde_json::Value;

use crate::domain::MAX_ID;

/// The pattern for an id in the handlers' descriptions. It also accepts numbers above [`MAX_ID`].
const ABOUT: &str = "[1-9][0-9]{0,18}";

/// Replaces the pattern of every id by the exact one.
pub(super) fn with_exact_ids(description: &mut Value) {
    replace(description, &pattern_up_to(&MAX_ID.to_string()));
}

fn replace(value: &mut Value, exact: &str) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(pattern) if name == "pattern" => *pattern = pattern.replace(ABOUT, exact),
                    member => replace(member, exact),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, exact)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A pattern for the canonical decimal numbers from 1 to `max`: those with fewer digits, those that are smaller from
/// some digit on, and `max` itself.
fn pattern_up_to(max: &str) -> String {
    let mut pattern = format!("([1-9][0-9]{{0,{}}}", max.len() - 2);
    for (at, digit) in max.bytes().enumerate() {
        let least = if at == 0 { b'1' } else { b'0' };
        if digit > least {
            let (same, rest) = (&max[..at], max.len() - at - 1);
            let below = char::from(digit - 1);
            write!(pattern, "|{same}[{}-{below}][0-9]{{{rest}}}", char::from(least))
                .expect("a string takes everything");
        }
    }
    pattern + "|" + max + ")"
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, string::string_regex};

    use super::*;

    #[test]
    fn a_small_pattern_takes_each_number_up_to_the_last_and_no_other() {
        assert_eq!(pattern_up_to("307"), "([1-9][0-9]{0,1}|[1-2][0-9]{2}|30[0-6][0-9]{0}|307)");
    }

    proptest! {
        #[test]
        fn what_the_exact_pattern_takes_is_an_id(id in string_regex(&pattern_up_to(&MAX_ID.to_string())).unwrap()) {
            prop_assert!(crate::domain::parse_canonical_id(&id).is_ok(), "{}", id);
        }
    }
}
