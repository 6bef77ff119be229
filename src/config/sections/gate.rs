use secrecy::{ExposeSecret, SecretString};

use crate::{
    config::{
        error::Problems,
        layers::{Mistake, SectionReader},
    },
    domain::{GatedRoute, PassRule, QueueTargetType, RouteSegment},
};

/// The fewest bytes the settle token may have.
const MIN_TOKEN_BYTES: usize = 16;

/// What buys: a method that only looks has no purchase behind it, and `HEAD` and `OPTIONS` would be ways round.
const METHODS: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// What the keys of a route are.
const KEYS: [&str; 5] = ["method", "path", "target", "needs_pass", "spends"];

/// The gate before the purchase routes.
#[derive(Debug, Clone)]
pub struct GateConfig {
    /// The purchase routes; at least one.
    pub routes: Vec<GatedRoute>,
    /// Opens `POST /gate/settle` to the shop. None: there is none, and forward auth spends a pass by asking.
    pub settle_token: Option<SecretString>,
}

impl GateConfig {
    /// What our own paths start with, whatever is configured; no route's word can be `openapi.json`.
    pub const OURS: [&str; 2] = ["virtual-queues", "gate"];

    /// And what those of the management port do, where there is none.
    pub const MANAGED: [&str; 3] = ["metrics", "health", "admin"];

    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            routes: section.tables("routes", read_route, |route| {
                let rule = match route.rule() {
                    PassRule::NeedsAndSpends => "",
                    PassRule::Needs => " spends=false",
                    PassRule::Spends => " needs_pass=false",
                };
                format!("{} {} {}{rule}", route.method(), route.pattern(), route.kind().slug())
            }),
            settle_token: section.optional("settle_token"),
        }
    }

    /// No purchase is ever asked of the shop at a path that is ours. `managed_elsewhere`: with a management port its
    /// paths are the shop's.
    pub(in crate::config) fn validate_places(&self, managed_elsewhere: bool, problems: &mut Problems) {
        let managed: &[&str] = if managed_elsewhere { &[] } else { &Self::MANAGED };
        let is_ours = |word: &String| Self::OURS.iter().chain(managed).any(|ours| ours == word);
        for (at, route) in self.routes.iter().enumerate() {
            if let Some(RouteSegment::Literal(word)) = route.segments().first()
                && is_ours(word)
            {
                let what = format!("must not be under /{word}, which is a path of our own: the shop never sees it");
                problems.add(&format!("gate.routes[{at}].path"), what);
            }
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        if self.routes.is_empty() {
            problems.add("gate.routes", "must name at least one purchase route: nothing would be guarded");
        }
        for (at, route) in self.routes.iter().enumerate() {
            if let Some(first) = self.routes[..at].iter().position(|other| other.is_same_place(route)) {
                problems.add(&format!("gate.routes[{at}].path"), format!("is the same place as gate.routes[{first}]"));
            } else if let Some(first) = self.routes[..at].iter().position(|other| other.clashes_with(route)) {
                problems.add(
                    &format!("gate.routes[{at}].path"),
                    format!(
                        "can be the same path as gate.routes[{first}], {}, with another target: nobody could say which \
                         is bought",
                        self.routes[first].pattern()
                    ),
                );
            }
        }
        let Some(token) = self.settle_token.as_ref().map(ExposeSecret::expose_secret) else { return };
        if token.len() < MIN_TOKEN_BYTES {
            let bytes = token.len();
            problems
                .add("gate.settle_token", format!("must have at least {MIN_TOKEN_BYTES} bytes, this one has {bytes}"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            problems.add("gate.settle_token", "must be visible ASCII without spaces: it travels in a header");
        }
    }
}

fn read_route(table: &toml::Table) -> Result<GatedRoute, Mistake> {
    if let Some(odd) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(Mistake::new(odd, format!("is not a setting: the keys of a route are {}", KEYS.join(", "))));
    }
    let text = |key: &'static str| {
        let text = table.get(key).ok_or_else(|| Mistake::new(key, "must be set"))?;
        text.as_str().ok_or_else(|| Mistake::new(key, "must be a text, in quotes"))
    };
    let method = text("method")?;
    if !METHODS.contains(&method) {
        return Err(Mistake::new("method", format!("must be {}, not {method:?}", METHODS.join(" or "))));
    }
    let kinds = QueueTargetType::ALL;
    let target = text("target")?;
    let Some(kind) = kinds.into_iter().find(|kind| kind.slug() == target) else {
        let known = kinds.map(|kind| format!("{:?}", kind.slug())).join(" or ");
        return Err(Mistake::new("target", format!("must be {known}, not {target:?}")));
    };
    let path = text("path")?;
    let route = GatedRoute::new(method, path, kind);
    let route = route.map_err(|invalid| Mistake::new("path", format!("{invalid}, not {path:?}")))?;
    let says = |key: &'static str| match table.get(key) {
        None => Ok(true),
        Some(value) => value.as_bool().ok_or_else(|| Mistake::new(key, "must be true or false")),
    };
    let rule = PassRule::new(says("needs_pass")?, says("spends")?).ok_or_else(|| {
        Mistake::new("spends", "must not be false where needs_pass is: such a route is no purchase route, leave it out")
    })?;
    Ok(route.with_rule(rule))
}
