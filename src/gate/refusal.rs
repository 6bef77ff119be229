//! Why the gate sends somebody away, and what they are told: never what exactly is wrong with a pass.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
};

use crate::{identity, metrics::BypassReason, problem::Problem, token::PassRefusal};

/// Every way to be refused at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No, a malformed, or a doubled user id.
    NoUser,
    /// Buyers are known by a token, and there is no valid one.
    NoToken,
    /// Buyers are known by a token, and the keys to check it with are not there.
    NoKeys,
    /// No pass.
    NoPass,
    /// A pass, and not a good one; or two.
    BadPass(PassRefusal),
    /// Another spelling of a gated path.
    OddPath,
    /// A header that the shop may take for one of ours.
    LookAlikeHeader,
    /// An id that is none.
    UnknownId,
    /// A kind of target that there is none of.
    Closed,
    /// The pass has bought, was given up, or is over on the store's time.
    Spent,
    /// Another purchase with this pass is under way.
    InUse,
    /// Too many purchases are under way.
    Overloaded,
}

impl Refusal {
    /// What the metrics count it as; `None`: it is no attempt to get round the queue.
    pub(super) const fn bypass_reason(self) -> Option<BypassReason> {
        match self {
            Self::NoUser | Self::NoToken => Some(BypassReason::NoUser),
            Self::NoPass => Some(BypassReason::NoPass),
            Self::BadPass(refusal) => Some(BypassReason::Refused(refusal)),
            Self::OddPath | Self::UnknownId => Some(BypassReason::OddPath),
            Self::LookAlikeHeader => Some(BypassReason::LookAlikeHeader),
            Self::NoKeys | Self::Closed | Self::Spent | Self::InUse | Self::Overloaded => None,
        }
    }

    /// What the client is told.
    pub(super) const fn problem(self) -> Problem {
        match self {
            Self::NoUser | Self::NoPass | Self::BadPass(_) | Self::OddPath | Self::Spent => Problem::new(
                StatusCode::FORBIDDEN,
                "QUEUE_BYPASS_DENIED",
                "No valid pass",
                "this purchase needs a valid entry pass from the virtual queue",
            ),
            Self::LookAlikeHeader => Problem::new(
                StatusCode::FORBIDDEN,
                "UNCLEAR_REQUEST",
                "Unclear which request is meant",
                "a header may be taken for X-User-Id, X-Entry-Token or X-Virtual-Queue-*: leave it out",
            ),
            Self::NoToken => identity::INVALID,
            Self::NoKeys => identity::UNAVAILABLE,
            Self::UnknownId | Self::Closed => Problem::new(
                StatusCode::NOT_FOUND,
                "UNKNOWN_TARGET",
                "Unknown target",
                "there is no such drop or event",
            ),
            Self::InUse => Problem::new(
                StatusCode::CONFLICT,
                "PASS_IN_USE",
                "Pass in use",
                "another purchase with this pass is under way",
            )
            .retry_after(1),
            Self::Overloaded => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "OVERLOADED",
                "Too many purchases",
                "too many purchases are under way; the pass stays valid",
            )
            .retry_after(1),
        }
    }

    /// The answer.
    pub(super) fn into_response(self) -> HttpResponse {
        let mut response = self.problem().into_response();
        if self == Self::NoToken {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_refusals() {
        use PassRefusal::{Expired, Forged, OtherTarget, OtherUser};
        for (refusal, status, code, counted) in [
            (Refusal::NoUser, 403, "QUEUE_BYPASS_DENIED", Some("no_user")),
            (Refusal::NoToken, 401, "INVALID_IDENTITY", Some("no_user")),
            (Refusal::NoKeys, 503, "IDENTITY_UNAVAILABLE", None),
            (Refusal::NoPass, 403, "QUEUE_BYPASS_DENIED", Some("no_pass")),
            (Refusal::BadPass(Forged), 403, "QUEUE_BYPASS_DENIED", Some("forged")),
            (Refusal::BadPass(Expired), 403, "QUEUE_BYPASS_DENIED", Some("expired")),
            (Refusal::BadPass(OtherTarget), 403, "QUEUE_BYPASS_DENIED", Some("other_target")),
            (Refusal::BadPass(OtherUser), 403, "QUEUE_BYPASS_DENIED", Some("other_user")),
            (Refusal::OddPath, 403, "QUEUE_BYPASS_DENIED", Some("odd_path")),
            (Refusal::LookAlikeHeader, 403, "UNCLEAR_REQUEST", Some("look_alike_header")),
            (Refusal::UnknownId, 404, "UNKNOWN_TARGET", Some("odd_path")),
            (Refusal::Closed, 404, "UNKNOWN_TARGET", None),
            (Refusal::Spent, 403, "QUEUE_BYPASS_DENIED", None),
            (Refusal::InUse, 409, "PASS_IN_USE", None),
            (Refusal::Overloaded, 503, "OVERLOADED", None),
        ] {
            let problem = refusal.problem();
            assert_eq!((problem.status.as_u16(), problem.code), (status, code), "{refusal:?}");
            assert_eq!(refusal.bypass_reason().map(BypassReason::label), counted, "{refusal:?}");
            assert_eq!(problem.retry_after.is_some(), matches!(status, 409 | 503), "{refusal:?}");
            let asks_for_a_token = refusal.into_response().headers().contains_key(header::WWW_AUTHENTICATE);
            assert_eq!(asks_for_a_token, status == 401, "{refusal:?}");
        }
    }

    #[test]
    fn a_refused_pass_looks_the_same_whatever_was_wrong_with_it() {
        let spent = Refusal::Spent.problem();
        for refusal in [Refusal::NoPass, Refusal::BadPass(PassRefusal::Forged), Refusal::BadPass(PassRefusal::Expired)]
        {
            assert_eq!(refusal.problem(), spent);
        }
    }
}
