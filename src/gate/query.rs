//! The parameters of a query, by the names that servers give them.
//!
//! Here: names, values, and ids that differ from the path's id. Not here: methods ([`super::method`]).

use super::path::{decoded_once, folded};
use crate::domain::QueueTarget;

/// Many shops use this parameter, whatever the route calls it.
const ID: &str = "id";

/// Raw names and values. Some servers also separate them with `;`.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split(['&', ';']).filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// A name in lower case, decoded, without list or map brackets: `id[]`, `id[$ne]`. A NUL ends it, as in C.
pub(super) fn name(raw: &str) -> String {
    let decoded = decoded_once(raw.as_bytes());
    let text = String::from_utf8_lossy(decoded.as_deref().unwrap_or(raw.as_bytes())).to_ascii_lowercase();
    let text = text.split('\0').next().unwrap_or_default();
    let begins = text.find(char::is_alphanumeric).unwrap_or(text.len());
    let ends = text[begins..].find('[').map_or(text.len(), |bracket| begins + bracket);
    text[..ends].to_owned()
}

/// Whether a query gives another id than the path, in `id` or in a parameter with the route's own name. If a front end
/// turns `/limited-drops/43/orders?id=42` into `?id=43&id=42`, the shop sells 42.
pub(super) fn contradicts(query: &str, target: QueueTarget, parameter: &str) -> bool {
    parameters(query).any(|(raw, value)| {
        let name = name(raw);
        let is_it = |known: &str| folded(&name).eq(folded(known));
        (is_it(parameter) || is_it(ID)) && !says(value, target)
    })
}

/// Whether a value is this id, spelled as in the path. Percent-encoding does not matter.
fn says(value: &str, target: QueueTarget) -> bool {
    let decoded = decoded_once(value.as_bytes());
    decoded.as_deref().unwrap_or(value.as_bytes()) == target.id().to_string().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::QueueTargetType;

    #[test]
    fn a_parameter_with_the_name_of_the_routes_or_id_says_the_same_id_or_contradicts() {
        let target = QueueTarget::new(QueueTargetType::LimitedDrop, 43).unwrap();
        for query in [
            "",
            "a=42",
            "id=43",
            "dropId=43&id=43",
            "id=%34%33",
            "ID=43",
            "id[]=43",
            "idx=42",
            "paid=42",
            "userId=42",
            "a[id]=42",
            "x=id=42",
        ] {
            assert!(!contradicts(query, target, "dropId"), "{query}");
        }
        for query in [
            "id=42",
            "dropId=42",
            "dropid=42",
            "drop_id=42",
            "DROP-ID=42",
            "a=b&id=42",
            "a=b;id=42",
            "id=43&id=42",
            "id=43;id=42",
            "%69d=42",
            "i%64=42",
            "id%00x=42",
            "id[]=42",
            "id[0]=42",
            "id%5B%5D=42",
            "id[$ne]=43x",
            "[id=42",
            "%20id=42",
            "+id=42",
            "id=",
            "id",
            "id=043",
            "id=+43",
            "id=43%00",
            "id=4%003",
            "id=%2534%2533",
            "id=%D9%A4%D9%A3",
        ] {
            assert!(contradicts(query, target, "dropId"), "{query}");
        }
    }
}
