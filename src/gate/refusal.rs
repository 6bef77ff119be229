//! Why the gate refuses a request, and what the client is told. A malformed and a forged pass get the same text.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderValue},
    },
};

use crate::{
    identity,
    metrics::BypassReason,
    problem::{Problem, Reason, Words, words},
    token::PassRefusal,
};

/// Every reason for a refusal at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The user id is missing, malformed, or given twice.
    NoUser,
    /// Buyers are identified by a token, and there is no valid one.
    NoToken,
    /// Buyers are identified by a token, and the keys to check it are missing.
    NoKeys,
    /// No pass.
    NoPass,
    /// The pass is not valid, or there are two.
    BadPass(PassRefusal),
    /// Another spelling of a gated path.
    OddPath,
    /// A header that the shop may take for one of ours.
    LookAlikeHeader,
    /// The id is not canonical.
    UnknownId,
    /// There are no targets of this kind.
    Closed,
    /// The pass is spent or revoked.
    Spent,
    /// The pass has expired on the store's time.
    Over,
    /// Another purchase with this pass is under way.
    InUse,
    /// Too many purchases are under way.
    Overloaded,
}

impl Refusal {
    /// The reason in the metrics; `None`: it is no bypass attempt.
    pub(super) const fn bypass_reason(self) -> Option<BypassReason> {
        match self {
            Self::NoUser | Self::NoToken => Some(BypassReason::NoUser),
            Self::NoPass => Some(BypassReason::NoPass),
            Self::BadPass(refusal) => Some(BypassReason::Refused(refusal)),
            Self::OddPath | Self::UnknownId => Some(BypassReason::OddPath),
            Self::LookAlikeHeader => Some(BypassReason::LookAlikeHeader),
            Self::NoKeys | Self::Closed | Self::Spent | Self::Over | Self::InUse | Self::Overloaded => None,
        }
    }

    /// The answer's `reason`, where the code alone does not tell it.
    const fn reason(self) -> Option<Reason> {
        match self {
            Self::NoUser => Some(Reason::NoUser),
            Self::NoPass => Some(Reason::NoPass),
            Self::BadPass(PassRefusal::Malformed) => Some(Reason::Malformed),
            Self::BadPass(PassRefusal::Forged) => Some(Reason::Forged),
            Self::BadPass(PassRefusal::OtherTarget) => Some(Reason::OtherTarget),
            Self::BadPass(PassRefusal::OtherUser) => Some(Reason::OtherUser),
            Self::BadPass(PassRefusal::Expired) | Self::Over => Some(Reason::Expired),
            Self::OddPath => Some(Reason::OddPath),
            Self::Spent => Some(Reason::Spent),
            Self::NoToken
            | Self::NoKeys
            | Self::UnknownId
            | Self::LookAlikeHeader
            | Self::Closed
            | Self::InUse
            | Self::Overloaded => None,
        }
    }

    /// What the client is told.
    pub(super) const fn problem(self) -> Problem {
        let problem = match self {
            Self::NoUser => denied(words::NO_USER),
            Self::NoPass => denied(words::NO_PASS),
            Self::BadPass(PassRefusal::Malformed | PassRefusal::Forged) => denied(words::BAD_PASS),
            Self::BadPass(PassRefusal::OtherUser) => denied(words::OTHER_USER),
            Self::BadPass(PassRefusal::OtherTarget) => denied(words::OTHER_TARGET),
            Self::BadPass(PassRefusal::Expired) | Self::Over => denied(words::EXPIRED),
            Self::OddPath => denied(words::ODD_PATH),
            Self::Spent => denied(words::SPENT),
            Self::LookAlikeHeader => Problem::new(
                StatusCode::FORBIDDEN,
                "UNCLEAR_REQUEST",
                "Unclear which request is meant",
                "a header may be taken for X-User-Id, X-Entry-Token or X-Virtual-Queue-*: leave it out",
            ),
            Self::NoToken => identity::INVALID,
            Self::NoKeys => identity::UNAVAILABLE,
            Self::UnknownId | Self::Closed => {
                Problem::for_buyers(StatusCode::NOT_FOUND, "UNKNOWN_TARGET", "Unknown target", words::UNKNOWN_TARGET)
            }
            Self::InUse => Problem::for_buyers(StatusCode::CONFLICT, "PASS_IN_USE", "Pass in use", words::PASS_IN_USE)
                .retry_after(1),
            Self::Overloaded => Problem::for_buyers(
                StatusCode::SERVICE_UNAVAILABLE,
                "OVERLOADED",
                "Too many purchases",
                words::OVERLOADED,
            )
            .retry_after(1),
        };
        match self.reason() {
            Some(reason) => problem.because(reason),
            None => problem,
        }
    }

    /// The answer to a request with these headers.
    pub(super) fn answer(self, asked: &HeaderMap) -> HttpResponse {
        let mut response = self.problem().answer(asked);
        if self == Self::NoToken {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The TDD's refusal.
const fn denied(words: Words) -> Problem {
    Problem::for_buyers(StatusCode::FORBIDDEN, "QUEUE_BYPASS_DENIED", "No valid pass", words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Detail;

    #[test]
    fn the_table_of_refusals() {
        use PassRefusal::{Expired, Forged, Malformed, OtherTarget, OtherUser};
        const DENIED: &str = "QUEUE_BYPASS_DENIED";
        let page = include_str!("../../docs/integrations/routes.md");
        for (refusal, status, code, reason, counted) in [
            (Refusal::NoUser, 403, DENIED, Some("no_user"), Some("no_user")),
            (Refusal::NoToken, 401, "INVALID_IDENTITY", None, Some("no_user")),
            (Refusal::NoKeys, 503, "IDENTITY_UNAVAILABLE", None, None),
            (Refusal::NoPass, 403, DENIED, Some("no_pass"), Some("no_pass")),
            (Refusal::BadPass(Malformed), 403, DENIED, Some("malformed"), Some("malformed")),
            (Refusal::BadPass(Forged), 403, DENIED, Some("forged"), Some("forged")),
            (Refusal::BadPass(Expired), 403, DENIED, Some("expired"), Some("expired")),
            (Refusal::BadPass(OtherTarget), 403, DENIED, Some("other_target"), Some("other_target")),
            (Refusal::BadPass(OtherUser), 403, DENIED, Some("other_user"), Some("other_user")),
            (Refusal::OddPath, 403, DENIED, Some("odd_path"), Some("odd_path")),
            (Refusal::UnknownId, 404, "UNKNOWN_TARGET", None, Some("odd_path")),
            (Refusal::LookAlikeHeader, 403, "UNCLEAR_REQUEST", None, Some("look_alike_header")),
            (Refusal::Closed, 404, "UNKNOWN_TARGET", None, None),
            (Refusal::Spent, 403, DENIED, Some("spent"), None),
            (Refusal::Over, 403, DENIED, Some("expired"), None),
            (Refusal::InUse, 409, "PASS_IN_USE", None, None),
            (Refusal::Overloaded, 503, "OVERLOADED", None, None),
        ] {
            let problem = refusal.problem();
            assert_eq!((problem.status.as_u16(), problem.code), (status, code), "{refusal:?}");
            assert_eq!(problem.reason.map(Reason::name), reason, "{refusal:?}");
            assert_eq!(serde_json::to_value(problem.reason).unwrap(), serde_json::json!(reason), "{refusal:?}");
            assert_eq!(reason.is_some(), code == DENIED, "the other codes tell it alone: {refusal:?}");
            assert!(
                reason.is_none_or(|reason| page.contains(&format!("\n| `{reason}` | "))),
                "{reason:?} is not on the page"
            );
            let for_buyers = matches!(problem.detail, Detail::ForBuyers(_));
            assert_eq!(for_buyers, refusal != Refusal::LookAlikeHeader, "no browser sends that: {refusal:?}");
            assert_eq!(refusal.bypass_reason().map(BypassReason::label), counted, "{refusal:?}");
            assert_eq!(problem.retry_after.is_some(), matches!(status, 409 | 503), "{refusal:?}");
            let answer = refusal.answer(&HeaderMap::new());
            assert_eq!(answer.headers().contains_key(header::WWW_AUTHENTICATE), status == 401, "{refusal:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_pass_that_is_not_ours_is_not_told() {
        let forged = Refusal::BadPass(PassRefusal::Forged).problem();
        assert_eq!(Refusal::BadPass(PassRefusal::Malformed).problem().detail, forged.detail);
    }
}
