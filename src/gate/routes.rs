//! Which requests are purchases, under whatever spelling (DESIGN 8; PRD FR-5).
//!
//! The gate must see what the shop sees. It cannot know how the shop reads paths, so a request counts when any
//! plausible reading of its path is a purchase, and only the canonical spelling goes on.

use super::{
    letters::key,
    readings::{TooMany, for_each_reading},
};
use crate::domain::{GatedRoute, PassRule, QueueTarget, QueueTargetType, RouteSegment, parse_canonical_id};

/// Bytes of the longest path that is read in every way: no honest purchase has a longer one.
const LONGEST_READ: usize = 512;

/// What a request is to the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteMatch {
    /// A purchase under no reading.
    NotGated,
    /// A purchase of this target, in the one canonical spelling, by a route with this rule.
    Gated(QueueTarget, PassRule),
    /// A purchase under some reading, spelled another way; of one of these.
    OddSpelling(Vec<Suspect>),
    /// A purchase under some reading, whose id is not canonical; of one of these.
    UnknownId(Vec<Suspect>),
}

/// What a request may be a purchase of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// This target.
    Target(QueueTarget),
    /// Nobody knows which of this kind: a shop may read an id that is not canonical as any. It may know digits of
    /// sixty scripts, other bases, fractions, names.
    AnyOf(QueueTargetType),
}

impl Suspect {
    /// The kind.
    pub fn kind(self) -> QueueTargetType {
        match self {
            Self::Target(target) => target.kind(),
            Self::AnyOf(kind) => kind,
        }
    }
}

impl RouteMatch {
    /// The stricter of two verdicts about one request: two different purchases are none in its right spelling.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::NotGated, verdict) | (verdict, Self::NotGated) => verdict,
            (one, other) if one == other => one,
            (Self::Gated(target, one), Self::Gated(same, other)) if target == same => {
                Self::Gated(target, one.and(other))
            }
            (one, other) => {
                let mut suspects = one.suspects();
                suspects.extend(other.suspects());
                suspects.dedup();
                Self::OddSpelling(suspects)
            }
        }
    }

    /// The same, where the spelling cannot be right.
    pub(super) fn odd(self) -> Self {
        match self {
            Self::Gated(target, _) => Self::OddSpelling(vec![Suspect::Target(target)]),
            other => other,
        }
    }

    fn suspects(self) -> Vec<Suspect> {
        match self {
            Self::NotGated => Vec::new(),
            Self::Gated(target, _) => vec![Suspect::Target(target)],
            Self::OddSpelling(suspects) | Self::UnknownId(suspects) => suspects,
        }
    }
}

impl GatedRoute {
    /// The target of a path in this route's canonical spelling.
    fn canonical_target(&self, raw_path: &str) -> Option<QueueTarget> {
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
        if path.next().is_some() { None } else { self.target(id?) }
    }

    /// The id of a reading that a lenient router would send to this route.
    fn lenient_id<'a>(&self, reading: &[&'a [u8]]) -> Option<&'a [u8]> {
        if reading.len() != self.segments().len() {
            return None;
        }
        let mut id = None;
        for (at, (segment, there)) in self.segments().iter().zip(reading).enumerate() {
            match segment {
                RouteSegment::Id => id = Some(*there),
                RouteSegment::Literal(word) => {
                    let is_last = at + 1 == self.segments().len();
                    if !is_word(word, &key(there), is_last) {
                        return None;
                    }
                }
            }
        }
        id
    }

    /// A canonical id is nothing but itself, to whomever.
    fn target(&self, id: &str) -> Option<QueueTarget> {
        QueueTarget::new(self.kind(), parse_canonical_id(id).ok()?).ok()
    }

    /// Cheap: whether any reading of a path with this key can be this route.
    fn is_conceivable(&self, key: &str) -> bool {
        self.segments().iter().all(|segment| match segment {
            RouteSegment::Literal(word) => key.contains(word.as_str()),
            RouteSegment::Id => true,
        })
    }
}

/// Who decodes segments by themselves may still find parameters there. A trailing dot is lost on some file systems; a
/// format suffix (`orders.json`) is a router's.
fn is_word(word: &str, there: &str, suffix_allowed: bool) -> bool {
    match there.strip_prefix(word) {
        Some(rest) => {
            rest.chars().all(|c| c == '.')
                || rest.starts_with([';', '?', '#'])
                || (suffix_allowed && rest.starts_with('.'))
        }
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
    ///
    /// # Panics
    /// If a request can be a purchase of two targets by two of them ([`GatedRoute::clashes_with`]).
    pub fn new(routes: Vec<GatedRoute>) -> Self {
        for (at, route) in routes.iter().enumerate() {
            if let Some(other) = routes[..at].iter().find(|other| other.clashes_with(route)) {
                let (other, route) = (other.pattern(), route.pattern());
                panic!("{other} and {route} can be one path with two targets: a mistake of who configured them");
            }
        }
        Self(routes)
    }

    /// The methods of all routes.
    pub(super) fn methods(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|route| route.method())
    }

    /// What a request line is: `raw_path` is the path as it came, neither decoded nor normalised, without the query.
    pub fn classify(&self, method: &str, raw_path: &str) -> RouteMatch {
        for route in self.0.iter().filter(|route| route.method() == method) {
            if let Some(target) = route.canonical_target(raw_path) {
                return RouteMatch::Gated(target, route.rule());
            }
        }
        let mut routes: Vec<&GatedRoute> =
            self.0.iter().filter(|route| route.method().eq_ignore_ascii_case(method)).collect();
        if routes.is_empty() {
            return RouteMatch::NotGated;
        }
        let raw_path = raw_path.as_bytes();
        let path_key = key(raw_path);
        routes.retain(|route| route.is_conceivable(&path_key));
        if routes.is_empty() {
            return RouteMatch::NotGated;
        }
        let read = if raw_path.len() > LONGEST_READ { Err(TooMany) } else { read_leniently(&routes, raw_path) };
        // Reading it in every way would cost more than it is worth.
        read.unwrap_or_else(|TooMany| {
            RouteMatch::OddSpelling(routes.iter().map(|route| Suspect::AnyOf(route.kind())).collect())
        })
    }
}

fn read_leniently(routes: &[&GatedRoute], raw_path: &[u8]) -> Result<RouteMatch, TooMany> {
    let is_of_interest = |text: &[u8]| {
        let key = key(text);
        routes.iter().any(|route| route.is_conceivable(&key))
    };
    let mut suspects = Vec::new();
    let mut odd_id = false;
    for_each_reading(raw_path, is_of_interest, |reading| {
        for route in routes {
            let Some(id) = route.lenient_id(reading) else { continue };
            let target = str::from_utf8(id).ok().and_then(|id| route.target(id));
            odd_id |= target.is_none();
            let suspect = target.map_or(Suspect::AnyOf(route.kind()), Suspect::Target);
            if !suspects.contains(&suspect) {
                suspects.push(suspect);
            }
        }
    })?;
    Ok(match (suspects.is_empty(), odd_id) {
        (true, _) => RouteMatch::NotGated,
        (false, true) => RouteMatch::UnknownId(suspects),
        (false, false) => RouteMatch::OddSpelling(suspects),
    })
}

#[cfg(test)]
mod tests;
