//! Which requests are purchases, in any spelling (PRD FR-5).
//!
//! Only the canonical spelling may reach the shop. What may be taken for a purchase is refused:
//! `docs/adr/0019-paths-by-allow-list.md`.
//!
//! Here: a whole request, against all routes. Not here: how a path is compared ([`super::path`]), and where else a
//! request names a method ([`super::method`]) or an id ([`super::query`]).

use actix_web::http::{Method, Uri, header::HeaderMap};

use super::{
    method::{self, Body, GatedMethod},
    path::{Plain, Words, folded, for_each_decoding},
    query,
};
use crate::domain::{GatedRoute, PassRule, QueueTarget, QueueTargetType, RouteSegment, parse_canonical_id};

/// How the gate classifies a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteMatch {
    /// No purchase.
    NotGated,
    /// A purchase of this target, in the canonical spelling, on a route with this rule.
    Gated(QueueTarget, PassRule),
    /// Possibly a purchase of one of these, not in its canonical spelling.
    OddSpelling(Vec<Suspect>),
    /// A purchase of one of these, with an id that is not canonical.
    UnknownId(Vec<Suspect>),
}

/// What a request may be a purchase of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// This target.
    Target(QueueTarget),
    /// Any target of this kind. A shop may read a non-canonical id as any number: it may accept other bases, fractions
    /// or names.
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
    /// The stricter of two verdicts about one request. Two different purchases make an odd spelling.
    fn or(self, other: Self) -> Self {
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

    fn suspects(self) -> Vec<Suspect> {
        match self {
            Self::NotGated => Vec::new(),
            Self::Gated(target, _) => vec![Suspect::Target(target)],
            Self::OddSpelling(suspects) | Self::UnknownId(suspects) => suspects,
        }
    }
}

/// A purchase route, with the words that odd paths are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Guarded {
    route: GatedRoute,
    words: Words,
}

impl Guarded {
    fn new(route: GatedRoute) -> Self {
        Self { words: Words::of_route(route.segments()), route }
    }

    /// The target of a path in this route's canonical spelling.
    fn canonical_target(&self, raw_path: &str) -> Option<QueueTarget> {
        let mut path = raw_path.strip_prefix('/')?.split('/');
        let mut id = None;
        for segment in self.route.segments() {
            let there = path.next()?;
            match segment {
                RouteSegment::Id => id = Some(there),
                RouteSegment::Literal(word) if word == there => {}
                RouteSegment::Literal(_) => return None,
            }
        }
        if path.next().is_some() { None } else { self.target(id?) }
    }

    /// What a plain path in a non-canonical spelling may be a purchase of.
    fn suspect(&self, path: Plain<'_>) -> Option<Suspect> {
        let mut there = path.segments();
        let mut id = None;
        for segment in self.route.segments() {
            let there = there.next()?;
            match segment {
                RouteSegment::Id => id = Some(there),
                RouteSegment::Literal(word) if folded(word).eq(folded(there)) => {}
                RouteSegment::Literal(_) => return None,
            }
        }
        if there.next().is_some() {
            return None;
        }
        Some(self.target(id?).map_or(Suspect::AnyOf(self.route.kind()), Suspect::Target))
    }

    /// A canonical id means the same number to every server.
    fn target(&self, id: &str) -> Option<QueueTarget> {
        QueueTarget::new(self.route.kind(), parse_canonical_id(id).ok()?).ok()
    }
}

/// The purchase routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatedRoutes {
    routes: Vec<Guarded>,
    methods: Vec<GatedMethod>,
}

impl Default for GatedRoutes {
    /// The PRD's routes: orders of limited drops, seat selection of events, tickets of events.
    fn default() -> Self {
        Self::new(GatedRoute::of_the_prd())
    }
}

impl GatedRoutes {
    /// Other routes instead of the PRD's.
    ///
    /// # Panics
    /// If a request can be a purchase of two targets on two of the routes ([`GatedRoute::clashes_with`]).
    pub fn new(routes: Vec<GatedRoute>) -> Self {
        for (at, route) in routes.iter().enumerate() {
            if let Some(other) = routes[..at].iter().find(|other| other.clashes_with(route)) {
                let (other, route) = (other.pattern(), route.pattern());
                panic!("{other} and {route} can be one path with two targets: a mistake of who configured them");
            }
        }
        let methods = GatedMethod::of(&routes);
        Self { routes: routes.into_iter().map(Guarded::new).collect(), methods }
    }

    /// Classifies a request under its own method and under all others that it may ask for.
    pub fn classify_request(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Body) -> RouteMatch {
        let mut verdict = self.classify_target(method.as_str(), uri);
        for asked in method::asked_for(&self.methods, method, uri, headers, body) {
            verdict = verdict.or(self.classify_target(asked, uri));
        }
        match (&verdict, uri.query()) {
            (RouteMatch::Gated(target, _), Some(query)) if self.is_contradicted(*target, query) => {
                // The shop may sell the target that the query names.
                RouteMatch::OddSpelling(vec![Suspect::AnyOf(target.kind())])
            }
            _ => verdict,
        }
    }

    /// Classifies a raw path: not decoded, not normalised, without the query.
    pub fn classify(&self, method: &str, raw_path: &str) -> RouteMatch {
        for guarded in self.routes.iter().filter(|guarded| guarded.route.method() == method) {
            if let Some(target) = guarded.canonical_target(raw_path) {
                return RouteMatch::Gated(target, guarded.route.rule());
            }
        }
        match Plain::new(raw_path) {
            Some(path) => self.classify_plain(method, path),
            None => self.classify_odd(method, raw_path),
        }
    }

    /// Classifies a path and its query. Some front controllers read a query that begins with a slash as the path
    /// (`/?/limited-drops/42/orders`, CodeIgniter).
    fn classify_target(&self, method: &str, uri: &Uri) -> RouteMatch {
        let of_path = self.classify(method, uri.path());
        match uri.query() {
            Some(query) if query.starts_with(['/', '%', '\\']) => of_path.or(self.classify_odd(method, query)),
            _ => of_path,
        }
    }

    fn of_method(&self, method: &str) -> impl Iterator<Item = &Guarded> {
        self.routes.iter().filter(move |guarded| guarded.route.method().eq_ignore_ascii_case(method))
    }

    fn classify_plain(&self, method: &str, path: Plain<'_>) -> RouteMatch {
        let suspects: Vec<Suspect> = self.of_method(method).filter_map(|guarded| guarded.suspect(path)).collect();
        if suspects.iter().any(|suspect| matches!(suspect, Suspect::AnyOf(_))) {
            RouteMatch::UnknownId(suspects)
        } else if suspects.is_empty() {
            RouteMatch::NotGated
        } else {
            RouteMatch::OddSpelling(suspects)
        }
    }

    /// Servers read such a text in different ways, so it may be a purchase on each route whose words it contains.
    fn classify_odd(&self, method: &str, text: &str) -> RouteMatch {
        let mut left: Vec<&Guarded> = self.of_method(method).collect();
        let mut suspects = Vec::new();
        if left.is_empty() {
            return RouteMatch::NotGated;
        }
        for_each_decoding(text.as_bytes(), |text| {
            left.retain(|guarded| {
                let is_there = guarded.words.are_in(text);
                if is_there {
                    suspects.push(Suspect::AnyOf(guarded.route.kind()));
                }
                !is_there
            });
        });
        if suspects.is_empty() { RouteMatch::NotGated } else { RouteMatch::OddSpelling(suspects) }
    }

    /// Whether a query gives another id than the path.
    fn is_contradicted(&self, target: QueueTarget, query: &str) -> bool {
        let of_kind = self.routes.iter().filter(|guarded| guarded.route.kind() == target.kind());
        of_kind.map(|guarded| guarded.route.parameter()).any(|name| query::contradicts(query, target, name))
    }
}

#[cfg(test)]
mod tests;
