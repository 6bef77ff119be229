//! What HTTP answers if a request fails: status, code, text and headers, each defined in one place (RFC 9457).
//!
//! Here: errors of the queue's and the operator's API. Not here: the gate's answers ([`crate::gate`]).

use std::borrow::Cow;

use actix_web::{
    HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};

use super::uncached::DEGRADED;
use crate::{
    domain::{InvalidTarget, UserIdForm},
    flags::{FlagError, InvalidChange},
    identity::{self, Unidentified},
    problem::{Detail, Problem, words},
    service::QueueError,
};

/// Every error of the API. It never carries an inner cause: that belongs in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem().code)]
pub enum ApiError {
    /// No such target: unknown kind, non-canonical id, or a kind that is switched off.
    UnknownTarget,
    /// The user id is missing, given twice, or not of this form.
    InvalidUserId(UserIdForm),
    /// A page of another site calls, and people are identified only by a cookie.
    OtherSite,
    /// Buyers are identified by a token, and there is no valid one.
    InvalidIdentity,
    /// Buyers are identified by a token, and the keys to check it are missing.
    IdentityUnavailable,
    /// This address enters too often.
    RateLimited {
        /// Seconds.
        retry_after: u64,
    },
    /// The person is not in the queue.
    NotInQueue,
    /// The queue is full (PRD FR-7).
    QueueFull {
        /// Seconds.
        retry_after: u64,
    },
    /// Too many targets have a queue.
    TooManyTargets {
        /// Seconds.
        retry_after: u64,
    },
    /// Redis is unavailable, and this call has no answer without it.
    StoreUnavailable {
        /// Seconds.
        retry_after: u64,
    },
    /// There is no route at this path.
    NotFound,
    /// The path exists but does not allow this method.
    MethodNotAllowed {
        /// The allowed methods, as in `Allow`.
        allow: &'static str,
    },
    /// The body is too large.
    PayloadTooLarge,
    /// The body did not arrive in time.
    RequestTimeout,
    /// Something else about the request is malformed.
    BadRequest,
    /// No pass can have this claim: it ends later than any pass does.
    UnknownClaim,
    /// The token for this call is missing or wrong.
    Unauthorized,
    /// The operator's name is malformed or given twice.
    InvalidOperator,
    /// The flag rule is invalid, and why.
    InvalidFlag(String),
    /// The service is starting or draining.
    NotReady,
    /// A purchase is requested, and no shop is configured.
    NoShop,
    /// A fault of this service.
    Internal,
}

impl ApiError {
    /// The contract: status, code and text of each error.
    fn problem(&self) -> Problem {
        match self {
            Self::UnknownTarget => Problem::new(
                StatusCode::NOT_FOUND,
                "UNKNOWN_TARGET",
                "No such target",
                "the type is limited-drop or ticketing-event, the id a decimal number from 1 to 9223372036854775807 \
                 without sign or leading zeros",
            ),
            Self::InvalidUserId(form) => Problem {
                status: StatusCode::BAD_REQUEST,
                code: "INVALID_USER_ID",
                title: "No valid user id",
                reason: None,
                detail: Detail::Plain(Cow::Owned(format!("exactly one X-User-Id header is needed, {}", form.words()))),
                retry_after: None,
            },
            Self::OtherSite => Problem::new(
                StatusCode::FORBIDDEN,
                "OTHER_SITE",
                "Not from a page of another site",
                "visitors are known by a cookie, which a page of another site cannot keep",
            ),
            Self::InvalidIdentity => identity::INVALID,
            Self::IdentityUnavailable => identity::UNAVAILABLE,
            Self::RateLimited { retry_after } => Problem::for_buyers(
                StatusCode::TOO_MANY_REQUESTS,
                "RATE_LIMITED",
                "Too many at once",
                words::RATE_LIMITED,
            )
            .retry_after(*retry_after),
            Self::NotInQueue => {
                Problem::for_buyers(StatusCode::NOT_FOUND, "NOT_IN_QUEUE", "Not in the queue", words::NOT_IN_QUEUE)
            }
            // TDD: QueueFullResponse; the detail is quoted exactly.
            Self::QueueFull { retry_after } => {
                Problem::for_buyers(StatusCode::TOO_MANY_REQUESTS, "QUEUE_FULL", "The queue is full", words::QUEUE_FULL)
                    .retry_after(*retry_after)
            }
            Self::TooManyTargets { retry_after } => Problem::for_buyers(
                StatusCode::TOO_MANY_REQUESTS,
                "TOO_MANY_TARGETS",
                "Too many targets",
                words::TOO_MANY_TARGETS,
            )
            .retry_after(*retry_after),
            Self::StoreUnavailable { retry_after } => Problem::for_buyers(
                StatusCode::SERVICE_UNAVAILABLE,
                "STORE_UNAVAILABLE",
                "The store is away",
                words::STORE_UNAVAILABLE,
            )
            .retry_after(*retry_after),
            Self::NotFound => {
                Problem::new(StatusCode::NOT_FOUND, "NOT_FOUND", "Nothing here", "nothing is at this path")
            }
            Self::MethodNotAllowed { .. } => Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                "Not with this method",
                "the Allow header lists the methods this path takes",
            ),
            Self::PayloadTooLarge => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "PAYLOAD_TOO_LARGE",
                "The body is too large",
                "the body is larger than this path takes",
            ),
            Self::RequestTimeout => Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "REQUEST_TIMEOUT",
                "The request took too long",
                "the body did not arrive in time",
            ),
            Self::BadRequest => Problem::new(
                StatusCode::BAD_REQUEST,
                "BAD_REQUEST",
                "The request is malformed",
                "the query or the body cannot be read",
            ),
            Self::UnknownClaim => Problem::new(
                StatusCode::CONFLICT,
                "UNKNOWN_CLAIM",
                "No such claim",
                "the claim ends later than any pass does: it was not given out here",
            ),
            Self::Unauthorized => Problem::new(
                StatusCode::UNAUTHORIZED,
                "UNAUTHORIZED",
                "No valid token",
                "the token for this call is needed, as Authorization: Bearer",
            ),
            Self::InvalidOperator => Problem::new(
                StatusCode::BAD_REQUEST,
                "INVALID_OPERATOR",
                "No valid operator",
                "X-Operator is at most one header of 1 to 100 visible characters",
            ),
            Self::InvalidFlag(why) => Problem {
                status: StatusCode::BAD_REQUEST,
                code: "INVALID_FLAG",
                title: "Not a flag rule",
                reason: None,
                detail: Detail::Plain(Cow::Owned(why.clone())),
                retry_after: None,
            },
            Self::NotReady => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "NOT_READY",
                "Not ready",
                "the service is starting or draining",
            )
            .retry_after(1),
            Self::NoShop => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "NO_SHOP",
                "No shop",
                "no shop is configured behind this waiting room: set upstream.url, or demo_shop.enabled",
            )
            .retry_after(60),
            Self::Internal => Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL_ERROR",
                "A fault of ours",
                "something went wrong on our side",
            ),
        }
    }

    /// The header that only this error has.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::MethodNotAllowed { allow } => Some((header::ALLOW, HeaderValue::from_static(allow))),
            Self::StoreUnavailable { .. } => Some(DEGRADED),
            Self::Unauthorized | Self::InvalidIdentity => {
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            Self::UnknownTarget
            | Self::InvalidUserId(_)
            | Self::OtherSite
            | Self::IdentityUnavailable
            | Self::RateLimited { .. }
            | Self::NotInQueue
            | Self::QueueFull { .. }
            | Self::TooManyTargets { .. }
            | Self::NotFound
            | Self::PayloadTooLarge
            | Self::RequestTimeout
            | Self::BadRequest
            | Self::UnknownClaim
            | Self::InvalidOperator
            | Self::InvalidFlag(_)
            | Self::NotReady
            | Self::NoShop
            | Self::Internal => None,
        }
    }

    /// The answer if actix itself refused a request with `status`.
    pub(super) fn from_foreign(status: StatusCode) -> Self {
        match status {
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::PAYLOAD_TOO_LARGE => Self::PayloadTooLarge,
            StatusCode::REQUEST_TIMEOUT => Self::RequestTimeout,
            refused if refused.is_client_error() => Self::BadRequest,
            _ => Self::Internal,
        }
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.problem().status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = self.problem().into_response();
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<QueueError> for ApiError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Full { retry_after_seconds } => Self::QueueFull { retry_after: retry_after_seconds.max(1) },
            QueueError::NotInQueue => Self::NotInQueue,
            QueueError::TooManyTargets { retry_after_seconds } => {
                Self::TooManyTargets { retry_after: retry_after_seconds.max(1) }
            }
            QueueError::StoreUnavailable { retry_after_seconds } => {
                Self::StoreUnavailable { retry_after: retry_after_seconds.max(1) }
            }
        }
    }
}

impl From<InvalidTarget> for ApiError {
    fn from(_: InvalidTarget) -> Self {
        Self::UnknownTarget
    }
}

impl From<Unidentified> for ApiError {
    fn from(unidentified: Unidentified) -> Self {
        match unidentified {
            Unidentified::NoUserId(form) => Self::InvalidUserId(form),
            Unidentified::NoToken => Self::InvalidIdentity,
            Unidentified::NoKeys => Self::IdentityUnavailable,
            // An unknown visitor has neither a place nor a pass: the page enters again.
            Unidentified::NoVisitor => Self::NotInQueue,
            Unidentified::OtherSite => Self::OtherSite,
        }
    }
}

impl From<FlagError> for ApiError {
    fn from(error: FlagError) -> Self {
        match error {
            FlagError::Unavailable { cause } => {
                tracing::warn!(%cause, "the flag store does not answer an operator");
                Self::StoreUnavailable { retry_after: 1 }
            }
            FlagError::TimedOut => {
                tracing::warn!("the flag store does not answer an operator in time");
                Self::StoreUnavailable { retry_after: 1 }
            }
            FlagError::Unreadable(rule) => {
                tracing::error!(error = %rule, "the flag store's answer to an operator cannot be read");
                Self::Internal
            }
        }
    }
}

impl From<InvalidChange> for ApiError {
    fn from(invalid: InvalidChange) -> Self {
        Self::InvalidFlag(invalid.to_string())
    }
}

#[cfg(test)]
mod tests;
