//! What a purchase route is: `POST /limited-drops/{dropId}/orders`. Which requests are one, under whatever spelling, is
//! the gate's to say.

use super::target::QueueTargetType;

/// One purchase route: `POST /limited-drops/{dropId}/orders`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatedRoute {
    method: String,
    pattern: String,
    segments: Vec<RouteSegment>,
    parameter: String,
    kind: QueueTargetType,
    rule: PassRule,
}

/// What a purchase route asks for, and what its success does. A route that neither needs nor spends a pass is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassRule {
    /// It needs a pass, and success spends that.
    NeedsAndSpends,
    /// It needs a pass, which works on after success.
    Needs,
    /// It needs no pass, and success spends every pass that its user has been given for the target.
    Spends,
}

impl PassRule {
    /// The rule of a route that says these two things of itself; `None`: there is no such route.
    pub const fn new(needs_pass: bool, spends: bool) -> Option<Self> {
        match (needs_pass, spends) {
            (true, true) => Some(Self::NeedsAndSpends),
            (true, false) => Some(Self::Needs),
            (false, true) => Some(Self::Spends),
            (false, false) => None,
        }
    }

    /// Whether a call needs a pass.
    pub const fn needs_pass(self) -> bool {
        matches!(self, Self::NeedsAndSpends | Self::Needs)
    }

    /// Whether success spends.
    pub const fn spends(self) -> bool {
        matches!(self, Self::NeedsAndSpends | Self::Spends)
    }

    /// What holds for a call that may be of either route.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Needs, Self::Needs) => Self::Needs,
            (Self::Spends, Self::Spends) => Self::Spends,
            _ => Self::NeedsAndSpends,
        }
    }
}

/// A part of a [`GatedRoute`]'s path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteSegment {
    /// A lower-case word.
    Literal(String),
    /// Where the id stands.
    Id,
}

/// Why a text is no pattern of a purchase route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a purchase route is written like /events/{{id}}/seats/select: lower-case words and exactly one {{id}}")]
pub struct InvalidPattern;

impl GatedRoute {
    /// A route from its method, its pattern with exactly one `{parameter}` for the id, and the kind the id is of. It needs
    /// a pass and spends it, unless [`Self::with_rule`] says otherwise.
    ///
    /// # Errors
    /// [`InvalidPattern`] unless the pattern has one parameter, at least one word, and only canonical words.
    pub fn new(method: &str, pattern: &str, kind: QueueTargetType) -> Result<Self, InvalidPattern> {
        let segments = pattern.strip_prefix('/').ok_or(InvalidPattern)?.split('/').map(RouteSegment::parse);
        let segments = segments.collect::<Option<Vec<_>>>().ok_or(InvalidPattern)?;
        let ids = segments.iter().filter(|segment| **segment == RouteSegment::Id).count();
        if ids != 1 || segments.len() < 2 || method.is_empty() {
            return Err(InvalidPattern);
        }
        let parameter = pattern.split(['{', '}']).nth(1).ok_or(InvalidPattern)?.to_owned();
        Ok(Self {
            method: method.to_ascii_uppercase(),
            pattern: pattern.to_owned(),
            segments,
            parameter,
            kind,
            rule: PassRule::NeedsAndSpends,
        })
    }

    /// The PRD's: orders of limited drops; seat selection of events, which keeps the pass, so that a buyer may change or
    /// add seats; and buying the tickets, which needs no pass, since the lock on the seats is the right to go on (TDD
    /// OQ3), and spends it.
    pub fn of_the_prd() -> Vec<Self> {
        use QueueTargetType::{LimitedDrop, TicketingEvent};
        let routes = [
            ("/limited-drops/{dropId}/orders", LimitedDrop, PassRule::NeedsAndSpends),
            ("/events/{id}/seats/select", TicketingEvent, PassRule::Needs),
            ("/events/{id}/tickets", TicketingEvent, PassRule::Spends),
        ];
        let route = |(pattern, kind, rule)| Self::new("POST", pattern, kind).map(|route| route.with_rule(rule));
        routes.into_iter().map(|route_of| route(route_of).expect("the patterns are well formed")).collect()
    }

    /// The same route with another rule.
    #[must_use]
    pub fn with_rule(mut self, rule: PassRule) -> Self {
        self.rule = rule;
        self
    }

    /// What it asks for, and what its success does.
    pub fn rule(&self) -> PassRule {
        self.rule
    }

    /// The method, in capitals.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The pattern, as it was written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The parts of the path, one of them the id.
    pub fn segments(&self) -> &[RouteSegment] {
        &self.segments
    }

    /// The name of the id: `dropId`.
    pub fn parameter(&self) -> &str {
        &self.parameter
    }

    /// What the id is an id of.
    pub fn kind(&self) -> QueueTargetType {
        self.kind
    }

    /// Whether one request can be a purchase of two targets, one by each route: `/a/{id}/5` and `/a/7/{id}` both take
    /// `/a/7/5`. Where one has an id the other may have a word that no id is.
    pub fn clashes_with(&self, other: &Self) -> bool {
        let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
        let one_path = self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(|pair| match pair {
                (RouteSegment::Id, RouteSegment::Id) => true,
                (RouteSegment::Id, RouteSegment::Literal(word)) | (RouteSegment::Literal(word), RouteSegment::Id) => {
                    is_number(word)
                }
                (RouteSegment::Literal(one), RouteSegment::Literal(other)) => one == other,
            });
        let one_target = self.segments == other.segments && self.kind == other.kind;
        self.method == other.method && one_path && !one_target
    }

    /// Whether both take the same requests: names of parameters make no difference.
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.method == other.method && self.segments == other.segments
    }
}

impl RouteSegment {
    fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            return (!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
                .then_some(Self::Id);
        }
        let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        (!text.is_empty() && text.bytes().all(is_word)).then(|| Self::Literal(text.to_owned()))
    }
}
