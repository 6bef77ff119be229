//! The one form of an error answer: `application/problem+json` (RFC 9457) with the TDD's `code` and `detail`.
//!
//! Here: the body and its headers, what buyers read in both their languages (`problem/words.rs`), and which of them
//! somebody gets (`problem/language.rs`). Not here: which error is which answer; that is decided where it arises.

mod language;
pub mod words;

use std::borrow::Cow;

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
};
use serde::Serialize;
use utoipa::ToSchema;

pub use self::{language::Language, words::Words};

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
    /// Which of several reasons it was, where the code alone does not tell: `expired`.
    pub reason: Option<Reason>,
    /// What happened here, for people.
    pub detail: Detail,
    /// Seconds after which asking again makes sense; 429 and 503 always have them.
    pub retry_after: Option<u64>,
}

/// Why a purchase is refused, where the code alone does not tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RefusalReason, description = "Why a purchase is refused.")]
pub enum Reason {
    /// There is no pass.
    NoPass,
    /// The user is unknown.
    NoUser,
    /// Not in the form of a pass, or two passes.
    Malformed,
    /// Signed with none of the secrets.
    Forged,
    /// The pass has expired.
    Expired,
    /// The pass of another person.
    OtherUser,
    /// A pass for another target.
    OtherTarget,
    /// The pass is spent or revoked.
    Spent,
    /// Not the canonical spelling of the purchase's path.
    OddPath,
}

impl Reason {
    /// The name in the body and in the header that repeats it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoPass => "no_pass",
            Self::NoUser => "no_user",
            Self::Malformed => "malformed",
            Self::Forged => "forged",
            Self::Expired => "expired",
            Self::OtherUser => "other_user",
            Self::OtherTarget => "other_target",
            Self::Spent => "spent",
            Self::OddPath => "odd_path",
        }
    }
}

/// An error (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// The problem, for programs: `QUEUE_FULL`.
    code: &'a str,
    /// The problem, for people. Texts for buyers are Korean, or English if `Accept-Language` prefers it;
    /// `Content-Language` says which.
    detail: &'a str,
    /// The reason, with `QUEUE_BYPASS_DENIED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<Reason>,
    /// The HTTP status.
    status: u16,
    /// The status in words.
    title: &'a str,
    /// `about:blank`: the status says the kind of problem, the code says which one.
    r#type: &'static str,
}

/// What happened, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// For developers and operators, in English.
    Plain(Cow<'static, str>),
    /// For buyers, in the language they read.
    ForBuyers(Words),
}

impl Detail {
    /// The text for who reads this language, and the one it is in.
    pub fn text(&self, language: Language) -> (Language, &str) {
        match self {
            Self::Plain(text) => (Language::English, text),
            Self::ForBuyers(words) => words.text(language),
        }
    }
}

impl Problem {
    /// A problem that only developers and operators see, with nothing to wait for.
    pub const fn new(status: StatusCode, code: &'static str, title: &'static str, detail: &'static str) -> Self {
        Self { status, code, title, reason: None, detail: Detail::Plain(Cow::Borrowed(detail)), retry_after: None }
    }

    /// A problem that buyers see, with nothing to wait for.
    pub const fn for_buyers(status: StatusCode, code: &'static str, title: &'static str, words: Words) -> Self {
        Self { status, code, title, reason: None, detail: Detail::ForBuyers(words), retry_after: None }
    }

    /// It was for this reason.
    #[must_use]
    pub const fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Asking again makes sense after this many seconds.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The answer to who sent these headers, in their language: never cached.
    pub fn answer(&self, asked: &HeaderMap) -> HttpResponse {
        match self.detail {
            Detail::Plain(_) => self.in_language(Language::English),
            Detail::ForBuyers(_) => self.in_language(Language::asked_for(asked)),
        }
    }

    /// The answer where nobody's headers are at hand. Buyers' are in the first language, and have the problem in their
    /// extensions, so that [`Self::answer`] may take their place.
    pub fn into_response(self) -> HttpResponse {
        let mut response = self.in_language(Language::default());
        if matches!(self.detail, Detail::ForBuyers(_)) {
            response.extensions_mut().insert(self);
        }
        response
    }

    fn in_language(&self, language: Language) -> HttpResponse {
        let (language, detail) = self.detail.text(language);
        let mut response = HttpResponse::build(self.status);
        response.insert_header((header::CACHE_CONTROL, "no-store"));
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if let Detail::ForBuyers(_) = self.detail {
            response.insert_header((header::CONTENT_LANGUAGE, language.tag()));
            response.insert_header((header::VARY, "Accept-Language"));
        }
        response.content_type(PROBLEM_JSON).json(ProblemBody {
            code: self.code,
            detail,
            reason: self.reason,
            status: self.status.as_u16(),
            title: self.title,
            r#type: "about:blank",
        })
    }
}

#[cfg(test)]
mod tests {
    use actix_web::{body::to_bytes, http::header};

    use serde_json::json;

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
        let response_has_no_language =
            [header::CONTENT_LANGUAGE, header::VARY].iter().all(|name| !response.headers().contains_key(name));
        let body = to_bytes(response.into_body()).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            body,
            json!({"type": "about:blank", "title": "Too busy", "status": 503, "code": "OVERLOADED", "detail": "come back"})
        );
        assert!(response_has_no_language);
    }

    #[actix_web::test]
    async fn buyers_are_told_in_their_language_and_why() {
        let problem =
            Problem::for_buyers(StatusCode::FORBIDDEN, "DENIED", "Denied", words::SPENT).because(Reason::Spent);
        for (asked, language) in
            [(None, Language::Korean), (Some("ko"), Language::Korean), (Some("en"), Language::English)]
        {
            let mut headers = HeaderMap::new();
            if let Some(asked) = asked {
                headers.insert(header::ACCEPT_LANGUAGE, asked.parse().unwrap());
            }
            let response = problem.answer(&headers);
            assert_eq!(response.headers().get(header::CONTENT_LANGUAGE).unwrap(), language.tag());
            assert_eq!(response.headers().get(header::VARY).unwrap(), "Accept-Language");
            let body: serde_json::Value =
                serde_json::from_slice(&to_bytes(response.into_body()).await.unwrap()).unwrap();
            assert_eq!((&body["detail"], &body["reason"]), (&words::SPENT.text(language).1.into(), &"spent".into()));
        }
    }
}
