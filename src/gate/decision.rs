//! The one decision about a request, whoever asks: the middleware, or a proxy by forward auth. Whatever happens to the
//! request and the pass afterwards is theirs.

use actix_web::http::{Method, Uri, header::HeaderMap};

use super::{
    method::Body,
    middleware::EntryTokenGate,
    purchase::Purchase,
    refusal::Refusal,
    request,
    routes::{RouteMatch, Suspect},
};
use crate::{
    domain::{PassRule, QueueTarget, UserId},
    flags::Reach,
    metrics::Operation,
};

/// What is to happen to a request.
pub(super) enum Decision {
    /// On to the shop as it came; where tokens are checked, with the user id they give.
    Untouched,
    /// The same, though it may need a pass: the flag was never read, and people are let through for that.
    Unchecked,
    Refused(Refusal),
    /// A purchase, with a good pass where it needs one.
    Purchase(Purchase),
}

impl EntryTokenGate {
    /// What happens to a request. The flag comes first: where it is off, nothing else is looked at; where
    /// nobody knows that, the answer counts as one without the store.
    pub(super) fn decide(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Body) -> Decision {
        let user = || request::user_id(&self.identity, headers);
        match self.routes.classify_request(method, uri, headers, body) {
            RouteMatch::NotGated => Decision::Untouched,
            RouteMatch::OddSpelling(suspects) => self.odd(&suspects, user, Refusal::OddPath),
            RouteMatch::UnknownId(suspects) => self.odd(&suspects, user, Refusal::UnknownId),
            RouteMatch::Gated(target, _) if self.closed.contains(&target.kind()) => Decision::Refused(Refusal::Closed),
            RouteMatch::Gated(target, rule) => match self.flags.reach(target) {
                Reach::Nobody => self.flag_is_off(),
                Reach::SomePeople | Reach::Everybody => match user() {
                    Err(refusal) => Decision::Refused(refusal),
                    Ok(user) if !self.flags.is_enabled(target, user) => self.flag_is_off(),
                    Ok(user) => self.purchase(headers, target, user, rule),
                },
            },
        }
    }

    /// Another spelling is refused if there are none of what it might mean, or the flag is on for any of it.
    fn odd(&self, suspects: &[Suspect], user: impl Fn() -> Result<UserId, Refusal>, refusal: Refusal) -> Decision {
        let target = |suspect: &Suspect| match suspect {
            Suspect::Target(target) => Some(*target),
            Suspect::AnyOf(kind) => self.flags.any_of(*kind),
        };
        let is_on = |target: QueueTarget| match self.flags.reach(target) {
            Reach::Nobody => false,
            Reach::SomePeople => user().map_or(true, |user| self.flags.is_enabled(target, user)),
            Reach::Everybody => true,
        };
        if suspects.iter().any(|suspect| self.closed.contains(&suspect.kind())) {
            Decision::Refused(Refusal::Closed)
        } else if suspects.iter().filter_map(target).any(is_on) {
            Decision::Refused(refusal)
        } else {
            self.flag_is_off()
        }
    }

    fn flag_is_off(&self) -> Decision {
        if self.flags.is_known() {
            return Decision::Untouched;
        }
        self.metrics.degraded(Operation::Gate);
        Decision::Unchecked
    }

    /// Who buys must be known also where no pass is needed: else nobody could say whose pass is spent.
    fn purchase(&self, headers: &HeaderMap, target: QueueTarget, user: UserId, rule: PassRule) -> Decision {
        if !rule.needs_pass() {
            return Decision::Purchase(Purchase { target, user, rule, pass: None });
        }
        let verified = request::pass(headers, target, self.cookie)
            .and_then(|raw| self.guard.verify(target, user, &raw, self.clock.now_seconds()).map_err(Refusal::BadPass));
        match verified {
            Ok(pass) => Decision::Purchase(Purchase { target, user, rule, pass: Some(pass) }),
            Err(refusal) => Decision::Refused(refusal),
        }
    }
}
