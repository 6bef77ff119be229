//! The one decision about a request, whoever asks: the middleware, or a proxy by forward auth. Whatever happens to the
//! request and the pass afterwards is theirs.

use actix_web::http::{Method, Uri, header::HeaderMap};

use super::{middleware::EntryTokenGate, refusal::Refusal, request, routes::RouteMatch};
use crate::{
    domain::{PassClaims, QueueTarget, UserId},
    flags::Reach,
};

/// What is to happen to a request.
pub(super) enum Decision {
    /// On to the shop as it came; where tokens are checked, with the user id they give.
    Untouched,
    Refused(Refusal),
    Verified(PassClaims),
}

impl EntryTokenGate {
    /// What happens to a request. The flag comes first: where it is off, nothing else is looked at.
    pub(super) fn decide(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Decision {
        let user = || request::user_id(&self.identity, headers);
        match self.routes.classify_request(method, uri, headers) {
            RouteMatch::NotGated => Decision::Untouched,
            RouteMatch::OddSpelling(targets) => self.odd(&targets, user, Refusal::OddPath),
            RouteMatch::UnknownId(targets) => self.odd(&targets, user, Refusal::UnknownId),
            RouteMatch::Gated(target) if self.is_closed(target) => Decision::Refused(Refusal::Closed),
            RouteMatch::Gated(target) => match self.flags.reach(target) {
                Reach::Nobody => Decision::Untouched,
                Reach::SomePeople | Reach::Everybody => match user() {
                    Err(refusal) => Decision::Refused(refusal),
                    Ok(user) if !self.flags.is_enabled(target, user) => Decision::Untouched,
                    Ok(user) => self.verify(headers, target, user),
                },
            },
        }
    }

    /// Another spelling is refused if there are none of what it might mean, or the flag is on for any of it.
    fn odd(&self, targets: &[QueueTarget], user: impl Fn() -> Result<UserId, Refusal>, refusal: Refusal) -> Decision {
        let is_on = |target: &QueueTarget| match self.flags.reach(*target) {
            Reach::Nobody => false,
            Reach::SomePeople => user().map_or(true, |user| self.flags.is_enabled(*target, user)),
            Reach::Everybody => true,
        };
        if targets.iter().any(|target| self.is_closed(*target)) {
            Decision::Refused(Refusal::Closed)
        } else if targets.iter().any(is_on) {
            Decision::Refused(refusal)
        } else {
            Decision::Untouched
        }
    }

    fn is_closed(&self, target: QueueTarget) -> bool {
        self.closed.contains(&target.kind())
    }

    fn verify(&self, headers: &HeaderMap, target: QueueTarget, user: UserId) -> Decision {
        let verified = request::pass(headers, target, self.cookie)
            .and_then(|raw| self.guard.verify(target, user, &raw, self.clock.now_seconds()).map_err(Refusal::BadPass));
        match verified {
            Ok(pass) => Decision::Verified(pass),
            Err(refusal) => Decision::Refused(refusal),
        }
    }
}
