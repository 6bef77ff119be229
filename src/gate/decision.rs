//! The decision about a request, for the middleware and for forward auth. Each of them handles the request and the pass
//! afterwards.

use actix_web::http::{Method, Uri, header::HeaderMap};

use super::{
    method::Body,
    middleware::EntryTokenGate,
    refusal::Refusal,
    request,
    route_table::{RouteMatch, Suspect},
    single_use::Purchase,
};
use crate::{
    domain::{PassClaims, PassRule, QueueTarget, UserId},
    flags::Reach,
    metrics::Operation,
    token::PassRefusal,
};

/// What to do with a request.
pub(super) enum Decision {
    /// Send it to the shop unchanged; where tokens are checked, with the user id from the token.
    Untouched,
    /// As `Untouched`, but it may need a pass: the flag was never read, and then requests pass.
    Unchecked,
    Refused(Refusal),
    /// A purchase, with a valid pass if it needs one.
    Purchase(Purchase),
}

impl EntryTokenGate {
    /// What to do with a request. The flag comes first: if it is off, nothing else is checked. If the flag was never
    /// read, the answer counts as degraded (given without the store).
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

    /// Another spelling is refused if a target kind that it may mean does not exist, or the flag is on for a target
    /// that it may mean.
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

    /// The user must be known even if no pass is needed: success spends this user's passes.
    fn purchase(&self, headers: &HeaderMap, target: QueueTarget, user: UserId, rule: PassRule) -> Decision {
        if !rule.needs_pass() {
            return Decision::Purchase(Purchase { target, user, rule, pass: None });
        }
        let passes = match request::passes(headers, target, self.cookie) {
            Ok(passes) => passes,
            Err(refusal) => return Decision::Refused(refusal),
        };
        let now = self.clock.now_seconds();
        let verified = passes.into_iter().map(|raw| self.guard.verify(target, user, raw, now));
        match verified.max_by_key(worth) {
            Some(Ok(pass)) => Decision::Purchase(Purchase { target, user, rule, pass: Some(pass) }),
            Some(Err(refusal)) => Decision::Refused(Refusal::BadPass(refusal)),
            None => Decision::Refused(Refusal::NoPass),
        }
    }
}

/// Which of several passes counts: a valid one; of several, the one that expires last (an earlier one may be spent). If
/// none is valid, the most nearly valid one gives the reason for the refusal.
fn worth(verified: &Result<PassClaims, PassRefusal>) -> (u8, u64) {
    match verified {
        Ok(pass) => (5, pass.expires_at),
        Err(PassRefusal::Expired) => (4, 0),
        Err(PassRefusal::OtherUser) => (3, 0),
        Err(PassRefusal::OtherTarget) => (2, 0),
        Err(PassRefusal::Forged) => (1, 0),
        Err(PassRefusal::Malformed) => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::QueueTargetType;

    #[test]
    fn of_two_good_passes_the_later_counts_since_the_earlier_may_be_spent() {
        let target = QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap();
        let until = |expires_at| Ok(PassClaims { target, user: UserId::try_from(7).unwrap(), expires_at });
        for passes in [[until(200), until(300)], [until(300), until(200)]] {
            assert_eq!(passes.into_iter().max_by_key(worth), Some(until(300)));
        }
    }
}
