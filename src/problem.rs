//! The one form of an error answer: `application/problem+json` (RFC 9457) with the TDD's `code` and `detail`.
//!
//! Here: the body and its headers. Not here: which error is which answer; that is decided where it arises.

use std::borrow::Cow;

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
};
use serde_json::json;

/// The media type of every error answer.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An error as the client sees it: nothing of its inner cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status, repeated in the body.
    pub status: StatusCode,
    /// What a program goes by: `QUEUE_BYPASS_DENIED`.
    pub code: &'static str,
    /// What the code means, in a few words that never change.
    pub title: &'static str,
    /// What happened here, for people.
    pub detail: Cow<'static, str>,
    /// Seconds after which asking again makes sense; 429 and 503 always have them.
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem whose detail is fixed, with nothing to wait for.
    pub const fn new(status: StatusCode, code: &'static str, title: &'static str, detail: &'static str) -> Self {
        Self { status, code, title, detail: Cow::Borrowed(detail), retry_after: None }
    }

    /// Asking again makes sense after this many seconds.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The answer: never cached.
    pub fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        response.insert_header((header::CACHE_CONTROL, "no-store"));
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        let body = json!({
            "type": "about:blank",
            "title": self.title,
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        response.content_type(PROBLEM_JSON).body(body.to_string())
    }
}

#[cfg(test)]
mod tests {
    use actix_web::{body::to_bytes, http::header};

    use super::*;

    #[actix_web::test]
    async fn a_problem_is_a_json_document_that_nobody_caches() {
        let problem =
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED", "Too busy", "come back").retry_after(1);
        let response = problem.into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers().get(header::CONTENT_TYPE).unwrap(), "application/problem+json");
        assert_eq!(response.headers().get(header::CACHE_CONTROL).unwrap(), "no-store");
        assert_eq!(response.headers().get(header::RETRY_AFTER).unwrap(), "1");
        let body = to_bytes(response.into_body()).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            body,
            json!({"type": "about:blank", "title": "Too busy", "status": 503, "code": "OVERLOADED", "detail": "come back"})
        );
    }
}
