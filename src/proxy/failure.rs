//! Why there is no answer from the shop, and what the client gets instead.

use std::{error::Error, iter::successors};

use actix_web::{HttpResponse, http::StatusCode};

use crate::{
    gate::{NoAnswerFromShop, ShopsStatus},
    problem::{Detail, Language, Problem},
};

/// An error and all its causes, for the log: the outermost of hyper's errors says very little.
pub(super) fn causes(error: &dyn Error) -> String {
    let causes: Vec<String> = successors(Some(error), |&error| error.source()).map(ToString::to_string).collect();
    causes.join(": ")
}

/// Every reason why a request ends without the shop's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection to the shop: nothing was sent.
    Unreachable,
    /// The connection ended.
    Broken,
    /// The shop's answer is not readable HTTP.
    NoHttp,
    /// The shop took too long.
    TooLate,
    /// The client's body ended early, or is malformed.
    BodyCutShort,
    /// The client's body did not come in time.
    BodyTooSlow,
    /// The client's body is longer than `upstream.max_body_bytes`.
    BodyTooLong {
        /// The shop may have received the beginning.
        sent: bool,
    },
    /// The client asks for another protocol.
    Upgrade,
    /// The request has passed this gateway before.
    Loop,
    /// The request can be read in two ways.
    Ambiguous(&'static str),
}

impl Failure {
    const fn problem(self) -> Problem {
        match self {
            Self::Unreachable => Problem::new(
                StatusCode::BAD_GATEWAY,
                "UPSTREAM_UNREACHABLE",
                "The shop cannot be reached",
                "no connection to the shop could be made; nothing was sent",
            ),
            Self::Broken => Problem::new(
                StatusCode::BAD_GATEWAY,
                "UPSTREAM_FAILED",
                "The shop gave no answer",
                "the shop ended the connection before its answer was complete; whether it acted is unknown",
            ),
            Self::NoHttp => Problem::new(
                StatusCode::BAD_GATEWAY,
                "UPSTREAM_FAILED",
                "The shop's answer cannot be read",
                "what the shop answered is no HTTP, has more header lines than are taken, or a transfer coding that nobody \
                 asked for; whether it acted is unknown",
            ),
            Self::TooLate => Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "UPSTREAM_TIMEOUT",
                "The shop took too long",
                "the shop did not answer in time; whether it acted is unknown",
            ),
            Self::BodyCutShort => Problem::new(
                StatusCode::BAD_REQUEST,
                "BAD_REQUEST",
                "The request is malformed",
                "the body ended early or is malformed",
            ),
            Self::BodyTooSlow => Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "REQUEST_TIMEOUT",
                "The request took too long",
                "the body did not arrive in time",
            ),
            Self::BodyTooLong { .. } => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "PAYLOAD_TOO_LARGE",
                "The request is too large",
                "the body is longer than this service passes on",
            ),
            Self::Upgrade => Problem::new(
                StatusCode::NOT_IMPLEMENTED,
                "UPGRADE_UNSUPPORTED",
                "No other protocols",
                "upgrades to other protocols, WebSocket among them, do not pass through here",
            ),
            Self::Loop => Problem::new(
                StatusCode::LOOP_DETECTED,
                "GATEWAY_LOOP",
                "The request goes in circles",
                "the request has passed a gateway like this one before: upstream.url must be the shop's own address",
            ),
            Self::Ambiguous(detail) => {
                Problem::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", "The request is malformed", detail)
            }
        }
    }

    /// Whether the shop may have received all or a part of the request.
    const fn may_have_been_sent(self) -> bool {
        match self {
            Self::Broken | Self::NoHttp | Self::TooLate | Self::BodyCutShort | Self::BodyTooSlow => true,
            Self::BodyTooLong { sent } => sent,
            Self::Unreachable | Self::Upgrade | Self::Loop | Self::Ambiguous(_) => false,
        }
    }

    /// Whether it is unclear where the client's next request begins.
    const fn ends_connection(self) -> bool {
        match self {
            Self::BodyCutShort | Self::BodyTooSlow | Self::BodyTooLong { .. } | Self::Upgrade | Self::Ambiguous(_) => {
                true
            }
            Self::Broken | Self::NoHttp | Self::TooLate | Self::Unreachable | Self::Loop => false,
        }
    }

    /// The answer, if the shop's status has not been read.
    pub(super) fn into_response(self) -> HttpResponse {
        Failed::from(self).into_response()
    }
}

/// How a request ended if there is no answer to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    /// What went wrong.
    pub(super) failure: Failure,
    /// The shop's status, if the status line was read.
    pub(super) shops_status: Option<StatusCode>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, shops_status: None }
    }
}

impl Failed {
    /// The answer. It tells the gate the shop's status, or that the result is unknown if the request may have been
    /// sent.
    pub(super) fn into_response(self) -> HttpResponse {
        let Self { failure, shops_status } = self;
        let mut problem = failure.problem();
        if let Some(status) = shops_status {
            let known = format!("the status of its answer was {}", status.as_u16());
            let (_, detail) = problem.detail.text(Language::English);
            problem.detail = Detail::Plain(detail.replace("whether it acted is unknown", &known).into());
        }
        let mut response = problem.into_response();
        if let Some(status) = shops_status {
            response.extensions_mut().insert(ShopsStatus(status));
        } else if failure.may_have_been_sent() {
            response.extensions_mut().insert(NoAnswerFromShop);
        }
        if failure.ends_connection() {
            response.head_mut().set_connection_type(actix_web::http::ConnectionType::Close);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_failures() {
        for (failure, status, code, unknown) in [
            (Failure::Unreachable, 502, "UPSTREAM_UNREACHABLE", false),
            (Failure::Broken, 502, "UPSTREAM_FAILED", true),
            (Failure::NoHttp, 502, "UPSTREAM_FAILED", true),
            (Failure::TooLate, 504, "UPSTREAM_TIMEOUT", true),
            (Failure::BodyCutShort, 400, "BAD_REQUEST", true),
            (Failure::BodyTooSlow, 408, "REQUEST_TIMEOUT", true),
            (Failure::BodyTooLong { sent: false }, 413, "PAYLOAD_TOO_LARGE", false),
            (Failure::BodyTooLong { sent: true }, 413, "PAYLOAD_TOO_LARGE", true),
            (Failure::Upgrade, 501, "UPGRADE_UNSUPPORTED", false),
            (Failure::Loop, 508, "GATEWAY_LOOP", false),
            (Failure::Ambiguous("x"), 400, "BAD_REQUEST", false),
        ] {
            let problem = failure.problem();
            assert_eq!((problem.status.as_u16(), problem.code), (status, code), "{failure:?}");
            let response = failure.into_response();
            assert_eq!(response.extensions().get::<NoAnswerFromShop>().is_some(), unknown, "{failure:?}");
        }
    }

    #[test]
    fn a_status_that_was_read_is_told_whatever_went_wrong_then() {
        for failure in [Failure::Broken, Failure::NoHttp, Failure::TooLate, Failure::BodyTooSlow] {
            let response = Failed { failure, shops_status: Some(StatusCode::CREATED) }.into_response();
            assert_eq!(response.status(), failure.problem().status, "{failure:?}");
            assert_eq!(response.extensions().get(), Some(&ShopsStatus(StatusCode::CREATED)), "{failure:?}");
            assert!(response.extensions().get::<NoAnswerFromShop>().is_none(), "{failure:?}");
        }
    }
}
