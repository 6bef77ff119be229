//! Which paths are purchases (`docs/adr/0019-paths-by-allow-list.md`).
//!
//! A plain path has one reading and is compared segment by segment ([`plain`]). Servers read any other path in
//! different ways, so it is refused if it contains the words of a route in their order ([`words`]).
//!
//! Here: paths only. Not here: methods ([`super::method`]), queries ([`super::query`]), and what is done with the
//! request.

mod decode;
mod plain;
mod words;

pub(super) use self::{
    decode::decoded_once,
    plain::{Plain, folded},
    words::Words,
};

/// A text is checked in this many stages: raw, decoded once, twice, and so on. It is also checked decoded to the end,
/// for servers that decode more often.
const DECODINGS: usize = 4;

/// Calls `each` with the raw text, the text decoded once, twice, and so on, and decoded to the end.
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
