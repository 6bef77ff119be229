//! Which paths are purchases (DESIGN 8; `docs/adr/0019-paths-by-allow-list.md`).
//!
//! A plain path has one reading, and is compared whole ([`plain`]). Any other path is read differently by every server,
//! so nobody here reads it: it is refused if it spells the words of a route in their order ([`words`]).
//!
//! Here: paths alone. Not here: methods ([`super::method`]), queries ([`super::query`]), and what becomes of the request.

mod decode;
mod plain;
mod words;

pub(super) use self::{
    decode::decoded_once,
    plain::{Plain, folded},
    words::Words,
};

/// Decodings after which a text is tried as it then stands. Whoever decodes more often decodes to the end.
const DECODINGS: usize = 4;

/// Calls `each` with a text as it came, decoded once, twice, and so on, and decoded to the end.
pub(super) fn for_each_decoding(raw: &[u8], mut each: impl FnMut(&[u8])) {
    each(raw);
    let mut text = decoded_once(raw);
    for _ in 1..DECODINGS {
        let Some(once_more) = text else { break };
        each(&once_more);
        text = decoded_once(&once_more);
    }
    if !raw.is_ascii() || raw.contains(&b'%') {
        each(&decode::decoded(raw));
    }
}
