//! What HTTP answers when it does not do what it was asked: status, code, words and headers, each decided in one
//! place (RFC 9457; DESIGN 4 "Errors").
//!
//! Here: errors of the queue's and the operator's API. Not here: what the gate answers, that is [`crate::gate`]'s.

use std::borrow::Cow;

use actix_web::{
    HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};

use super::entry::DEGRADED;
use crate::{
    domain::InvalidTarget,
    flags::{FlagError, InvalidChange},
    identity::{self, Unidentified},
    problem::Problem,
    service::QueueError,
};

/// Everything that can be refused here. Never carries an inner cause: that belongs in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem().code)]
pub enum ApiError {
    /// No such target: unknown kind, an id in another spelling, or a kind that is switched off.
    UnknownTarget,
    /// The buyer's id is missing, malformed or doubled.
    InvalidUserId,
    /// Buyers are known by a token, and there is no valid one.
    InvalidIdentity,
    /// Buyers are known by a token, and the keys to check it with are not there.
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
    /// The store is away, and without it nothing may be said.
    StoreUnavailable {
        /// Seconds.
        retry_after: u64,
    },
    /// Nothing is at this path.
    NotFound,
    /// Something is at this path, and it does not take this method.
    MethodNotAllowed {
        /// What it takes, as `Allow` lists it.
        allow: &'static str,
    },
    /// The body is too large.
    PayloadTooLarge,
    /// The body did not arrive in time.
    RequestTimeout,
    /// Something else about the request is malformed.
    BadRequest,
    /// No, or another, token than this call needs.
    Unauthorized,
    /// The operator's name is malformed or doubled.
    InvalidOperator,
    /// The flag rule makes no sense, and why.
    InvalidFlag(String),
    /// Starting or draining.
    NotReady,
    /// Purchases are asked for, and there is no shop behind us.
    NoShop,
    /// A fault of ours.
    Internal,
}

impl ApiError {
    /// The contract: what each error is on the wire.
    fn problem(&self) -> Problem {
        match self {
            Self::UnknownTarget => Problem::new(
                StatusCode::NOT_FOUND,
                "UNKNOWN_TARGET",
                "No such target",
                "the type is limited-drop or ticketing-event, the id a decimal number from 1 to 9223372036854775807 \
                 without sign or leading zeros",
            ),
            Self::InvalidUserId => Problem::new(
                StatusCode::BAD_REQUEST,
                "INVALID_USER_ID",
                "No valid user id",
                "exactly one X-User-Id header is needed, a decimal number from 1 to 9223372036854775807 without sign \
                 or leading zeros",
            ),
            Self::InvalidIdentity => identity::INVALID,
            Self::IdentityUnavailable => identity::UNAVAILABLE,
            Self::RateLimited { retry_after } => Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "RATE_LIMITED",
                "Too many at once",
                "too many people enter from this address at once; a place in the queue is kept",
            )
            .retry_after(*retry_after),
            Self::NotInQueue => Problem::new(
                StatusCode::NOT_FOUND,
                "NOT_IN_QUEUE",
                "Not in the queue",
                "there is neither a place nor a live pass: enter the queue",
            ),
            // TDD: QueueFullResponse, the detail word for word.
            Self::QueueFull { retry_after } => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "QUEUE_FULL", "The queue is full", "잠시 후 다시 시도")
                    .retry_after(*retry_after)
            }
            Self::TooManyTargets { retry_after } => Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "TOO_MANY_TARGETS",
                "Too many targets",
                "as many targets as allowed have a queue already",
            )
            .retry_after(*retry_after),
            Self::StoreUnavailable { retry_after } => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "STORE_UNAVAILABLE",
                "The store is away",
                "the store cannot be reached at present",
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
                detail: Cow::Owned(why.clone()),
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
                "no shop is configured behind this waiting room: set demo_shop.enabled",
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

    /// A header that only this error has.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::MethodNotAllowed { allow } => Some((header::ALLOW, HeaderValue::from_static(allow))),
            Self::StoreUnavailable { .. } => Some((DEGRADED, HeaderValue::from_static("redis"))),
            Self::Unauthorized | Self::InvalidIdentity => {
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            Self::UnknownTarget
            | Self::InvalidUserId
            | Self::IdentityUnavailable
            | Self::RateLimited { .. }
            | Self::NotInQueue
            | Self::QueueFull { .. }
            | Self::TooManyTargets { .. }
            | Self::NotFound
            | Self::PayloadTooLarge
            | Self::RequestTimeout
            | Self::BadRequest
            | Self::InvalidOperator
            | Self::InvalidFlag(_)
            | Self::NotReady
            | Self::NoShop
            | Self::Internal => None,
        }
    }

    /// What to answer where actix refused a request by itself with `status`.
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
            Unidentified::NoUserId => Self::InvalidUserId,
            Unidentified::NoToken => Self::InvalidIdentity,
            Unidentified::NoKeys => Self::IdentityUnavailable,
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
            FlagError::Unreadable(rule) => {
                tracing::error!(error = %rule, "the flag store answered an operator with rubbish");
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
mod tests {
    use actix_web::body::to_bytes;

    use super::*;

    /// (error, status, code, `Retry-After`): the contract.
    fn table() -> Vec<(ApiError, u16, &'static str, Option<&'static str>)> {
        vec![
            (ApiError::UnknownTarget, 404, "UNKNOWN_TARGET", None),
            (ApiError::InvalidUserId, 400, "INVALID_USER_ID", None),
            (Unidentified::NoUserId.into(), 400, "INVALID_USER_ID", None),
            (Unidentified::NoToken.into(), 401, "INVALID_IDENTITY", None),
            (Unidentified::NoKeys.into(), 503, "IDENTITY_UNAVAILABLE", Some("1")),
            (ApiError::RateLimited { retry_after: 3 }, 429, "RATE_LIMITED", Some("3")),
            (ApiError::NotInQueue, 404, "NOT_IN_QUEUE", None),
            (ApiError::QueueFull { retry_after: 7 }, 429, "QUEUE_FULL", Some("7")),
            (QueueError::Full { retry_after_seconds: 0 }.into(), 429, "QUEUE_FULL", Some("1")),
            (QueueError::NotInQueue.into(), 404, "NOT_IN_QUEUE", None),
            (QueueError::TooManyTargets { retry_after_seconds: 9 }.into(), 429, "TOO_MANY_TARGETS", Some("9")),
            (QueueError::StoreUnavailable { retry_after_seconds: 2 }.into(), 503, "STORE_UNAVAILABLE", Some("2")),
            (FlagError::Unavailable { cause: "secret".to_owned() }.into(), 503, "STORE_UNAVAILABLE", Some("1")),
            (ApiError::TooManyTargets { retry_after: 30 }, 429, "TOO_MANY_TARGETS", Some("30")),
            (ApiError::StoreUnavailable { retry_after: 2 }, 503, "STORE_UNAVAILABLE", Some("2")),
            (ApiError::NotFound, 404, "NOT_FOUND", None),
            (ApiError::MethodNotAllowed { allow: "POST" }, 405, "METHOD_NOT_ALLOWED", None),
            (ApiError::PayloadTooLarge, 413, "PAYLOAD_TOO_LARGE", None),
            (ApiError::RequestTimeout, 408, "REQUEST_TIMEOUT", None),
            (ApiError::BadRequest, 400, "BAD_REQUEST", None),
            (ApiError::Unauthorized, 401, "UNAUTHORIZED", None),
            (ApiError::InvalidOperator, 400, "INVALID_OPERATOR", None),
            (ApiError::InvalidFlag("why".to_owned()), 400, "INVALID_FLAG", None),
            (ApiError::NotReady, 503, "NOT_READY", Some("1")),
            (ApiError::NoShop, 503, "NO_SHOP", Some("60")),
            (ApiError::Internal, 500, "INTERNAL_ERROR", None),
        ]
    }

    #[actix_web::test]
    async fn every_error_has_its_status_code_and_retry_after() {
        for (error, status, code, retry_after) in table() {
            let response = error.error_response();
            let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(response.status().as_u16(), status, "{code}");
            assert_eq!(header(header::CONTENT_TYPE).as_deref(), Some("application/problem+json"), "{code}");
            assert_eq!(header(header::CACHE_CONTROL).as_deref(), Some("no-store"), "{code}");
            assert_eq!(header(header::RETRY_AFTER).as_deref(), retry_after, "{code}");
            assert_eq!(retry_after.is_some(), matches!(status, 429 | 503), "{code}");
            assert_eq!(header(header::ALLOW).is_some(), status == 405, "{code}");
            assert_eq!(header(header::WWW_AUTHENTICATE).is_some(), status == 401, "{code}");
            let body = to_bytes(response.into_body()).await.unwrap();
            assert!(!String::from_utf8_lossy(&body).contains("secret"), "an inner cause got out");
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let mut fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
            fields.sort_unstable();
            assert_eq!(fields, ["code", "detail", "status", "title", "type"]);
            assert_eq!((&body["code"], &body["status"]), (&code.into(), &status.into()));
        }
    }

    #[test]
    fn a_full_queue_says_it_in_the_words_of_the_contract() {
        assert_eq!(ApiError::QueueFull { retry_after: 1 }.problem().detail, "잠시 후 다시 시도");
    }

    #[test]
    fn what_actix_refuses_by_itself_becomes_one_of_ours() {
        for (status, expected) in [
            (StatusCode::BAD_REQUEST, ApiError::BadRequest),
            (StatusCode::NOT_FOUND, ApiError::NotFound),
            (StatusCode::PAYLOAD_TOO_LARGE, ApiError::PayloadTooLarge),
            (StatusCode::REQUEST_TIMEOUT, ApiError::RequestTimeout),
            (StatusCode::EXPECTATION_FAILED, ApiError::BadRequest),
            (StatusCode::INTERNAL_SERVER_ERROR, ApiError::Internal),
            (StatusCode::BAD_GATEWAY, ApiError::Internal),
        ] {
            assert_eq!(ApiError::from_foreign(status), expected);
        }
    }
}
