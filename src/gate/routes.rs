//! Which requests are purchases, under whatever spelling (DESIGN 8; PRD FR-5).
//!
//! The gate must see what the shop sees. It cannot know how the shop reads paths, so a request counts when any
//! plausible reading of its path is a purchase, and only the canonical spelling goes on.

use super::{
    ids::plausible_ids,
    readings::{decoded, folded, for_each_reading},
};
use crate::domain::{GatedRoute, QueueTarget, RouteSegment, parse_canonical_id};

/// Bytes of the longest path that is read in every way.
const LONGEST_READ: usize = 512;

/// What a request is to the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteMatch {
    /// A purchase under no reading.
    NotGated,
    /// A purchase of this target, in the one canonical spelling.
    Gated(QueueTarget),
    /// A purchase under some reading, spelled another way; of one of these targets.
    OddSpelling(Vec<QueueTarget>),
    /// A purchase under some reading, whose id is not canonical; a shop might read it as one of these.
    UnknownId(Vec<QueueTarget>),
}

impl RouteMatch {
    /// The stricter of two verdicts about one request: two different purchases are none in its right spelling.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::NotGated, verdict) | (verdict, Self::NotGated) => verdict,
            (one, other) if one == other => one,
            (one, other) => {
                let mut targets = one.targets();
                targets.extend(other.targets());
                targets.dedup();
                Self::OddSpelling(targets)
            }
        }
    }

    /// The same, where the spelling cannot be right.
    pub(super) fn odd(self) -> Self {
        match self {
            Self::Gated(target) => Self::OddSpelling(vec![target]),
            other => other,
        }
    }

    fn targets(self) -> Vec<QueueTarget> {
        match self {
            Self::NotGated => Vec::new(),
            Self::Gated(target) => vec![target],
            Self::OddSpelling(targets) | Self::UnknownId(targets) => targets,
        }
    }
}

impl GatedRoute {
    /// The id of a path in this route's canonical spelling, the id itself aside.
    fn canonical_id<'a>(&self, raw_path: &'a str) -> Option<&'a str> {
        let mut path = raw_path.strip_prefix('/')?.split('/');
        let mut id = None;
        for segment in self.segments() {
            let there = path.next()?;
            match segment {
                RouteSegment::Id => id = Some(there),
                RouteSegment::Literal(word) if word == there => {}
                RouteSegment::Literal(_) => return None,
            }
        }
        if path.next().is_some() { None } else { id }
    }

    /// The id of a reading that a lenient router would send to this route.
    fn lenient_id<'a>(&self, reading: &[&'a str]) -> Option<&'a str> {
        if reading.len() != self.segments().len() {
            return None;
        }
        let mut id = None;
        for (at, (segment, there)) in self.segments().iter().zip(reading).enumerate() {
            match segment {
                RouteSegment::Id => id = Some(*there),
                RouteSegment::Literal(word) => {
                    let is_last = at + 1 == self.segments().len();
                    if !is_word(word, &folded(there), is_last) {
                        return None;
                    }
                }
            }
        }
        id
    }

    fn targets(&self, ids: Vec<u64>) -> impl Iterator<Item = QueueTarget> {
        let kind = self.kind();
        ids.into_iter().map(move |id| QueueTarget::new(kind, id).expect("plausible ids are in range"))
    }

    /// Cheap: whether any reading of a path with this folded text can be this route.
    fn is_conceivable(&self, folded_path: &str) -> bool {
        self.segments().iter().all(|segment| match segment {
            RouteSegment::Literal(word) => folded_path.contains(word.as_str()),
            RouteSegment::Id => true,
        })
    }
}

/// A trailing dot is lost on some file systems; a format suffix (`orders.json`) is a router's.
fn is_word(word: &str, there: &str, suffix_allowed: bool) -> bool {
    match there.strip_prefix(word) {
        Some(rest) => rest.chars().all(|c| c == '.') || (suffix_allowed && rest.starts_with('.')),
        None => false,
    }
}

/// The purchase routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatedRoutes(Vec<GatedRoute>);

impl Default for GatedRoutes {
    /// The PRD's two: orders of limited drops, seat selection of events.
    fn default() -> Self {
        Self(GatedRoute::of_the_prd())
    }
}

impl GatedRoutes {
    /// Others instead of the PRD's two.
    pub fn new(routes: Vec<GatedRoute>) -> Self {
        Self(routes)
    }

    /// The methods of all routes.
    pub(super) fn methods(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|route| route.method())
    }

    /// What a request line is: `raw_path` is the path as it came, neither decoded nor normalised, without the query.
    pub fn classify(&self, method: &str, raw_path: &str) -> RouteMatch {
        for route in self.0.iter().filter(|route| route.method() == method) {
            if let Some(Ok(id)) = route.canonical_id(raw_path).map(parse_canonical_id) {
                let target = QueueTarget::new(route.kind(), id).expect("a canonical id is in range");
                return RouteMatch::Gated(target);
            }
        }
        let mut routes: Vec<&GatedRoute> =
            self.0.iter().filter(|route| route.method().eq_ignore_ascii_case(method)).collect();
        if routes.is_empty() {
            return RouteMatch::NotGated;
        }
        let folded_path = folded(&decoded(raw_path));
        routes.retain(|route| route.is_conceivable(&folded_path));
        if routes.is_empty() {
            RouteMatch::NotGated
        } else if raw_path.len() > LONGEST_READ {
            too_long_to_read(&routes, &folded_path)
        } else {
            read_leniently(&routes, raw_path)
        }
    }
}

fn read_leniently(routes: &[&GatedRoute], raw_path: &str) -> RouteMatch {
    let mut targets = Vec::new();
    let mut odd_id = false;
    for_each_reading(raw_path, |reading| {
        for route in routes {
            let Some(id) = route.lenient_id(reading) else { continue };
            odd_id |= parse_canonical_id(id).is_err();
            for target in route.targets(plausible_ids(id)) {
                if !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
    });
    match (targets.is_empty(), odd_id) {
        (true, _) => RouteMatch::NotGated,
        (false, true) => RouteMatch::UnknownId(targets),
        (false, false) => RouteMatch::OddSpelling(targets),
    }
}

/// No honest purchase has a path this long, and reading it in every way would cost more than it is worth: any number
/// in it may be the id.
fn too_long_to_read(routes: &[&GatedRoute], path: &str) -> RouteMatch {
    let mut numbers: Vec<&str> = path.split(|c: char| !c.is_ascii_digit()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let ids: Vec<u64> = numbers.into_iter().flat_map(plausible_ids).collect();
    RouteMatch::OddSpelling(routes.iter().flat_map(|route| route.targets(ids.clone())).collect())
}

#[cfg(test)]
mod tests;
