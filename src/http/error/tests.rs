use actix_web::body::to_bytes;

use super::*;
use crate::problem::Language;

/// (error, status, code, `Retry-After`): the contract.
fn table() -> Vec<(ApiError, u16, &'static str, Option<&'static str>)> {
    vec![
        (ApiError::UnknownTarget, 404, "UNKNOWN_TARGET", None),
        (ApiError::InvalidUserId(UserIdForm::Decimal), 400, "INVALID_USER_ID", None),
        (Unidentified::NoUserId(UserIdForm::Any).into(), 400, "INVALID_USER_ID", None),
        (Unidentified::NoVisitor.into(), 404, "NOT_IN_QUEUE", None),
        (Unidentified::OtherSite.into(), 403, "OTHER_SITE", None),
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
        (FlagError::TimedOut.into(), 503, "STORE_UNAVAILABLE", Some("1")),
        (ApiError::TooManyTargets { retry_after: 30 }, 429, "TOO_MANY_TARGETS", Some("30")),
        (ApiError::StoreUnavailable { retry_after: 2 }, 503, "STORE_UNAVAILABLE", Some("2")),
        (ApiError::NotFound, 404, "NOT_FOUND", None),
        (ApiError::MethodNotAllowed { allow: "POST" }, 405, "METHOD_NOT_ALLOWED", None),
        (ApiError::PayloadTooLarge, 413, "PAYLOAD_TOO_LARGE", None),
        (ApiError::RequestTimeout, 408, "REQUEST_TIMEOUT", None),
        (ApiError::BadRequest, 400, "BAD_REQUEST", None),
        (ApiError::UnknownClaim, 409, "UNKNOWN_CLAIM", None),
        (ApiError::Unauthorized, 401, "UNAUTHORIZED", None),
        (ApiError::InvalidOperator, 400, "INVALID_OPERATOR", None),
        (ApiError::InvalidFlag("why".to_owned()), 400, "INVALID_FLAG", None),
        (ApiError::NotReady, 503, "NOT_READY", Some("1")),
        (ApiError::NoShop, 503, "NO_SHOP", Some("60")),
        (ApiError::Internal, 500, "INTERNAL_ERROR", None),
    ]
}

#[actix_web::test]
async fn every_error_has_its_status_code_and_headers() {
    for (error, status, code, retry_after) in table() {
        let response = error.error_response();
        let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(response.status().as_u16(), status, "{code}");
        assert_eq!(header(header::CONTENT_TYPE).as_deref(), Some("application/problem+json"), "{code}");
        assert_eq!(header(header::CACHE_CONTROL).as_deref(), Some("no-store"), "{code}");
        assert_eq!(header(header::RETRY_AFTER).as_deref(), retry_after, "{code}");
        assert_eq!(retry_after.is_some(), matches!(status, 429 | 503), "{code}");
        assert_eq!(header(header::ALLOW).as_deref(), (status == 405).then_some("POST"), "{code}");
        assert_eq!(header(header::WWW_AUTHENTICATE).as_deref(), (status == 401).then_some("Bearer"), "{code}");
        assert_eq!(header(DEGRADED.0).as_deref(), (code == "STORE_UNAVAILABLE").then_some("redis"), "{code}");
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
    let problem = ApiError::QueueFull { retry_after: 1 }.problem();
    for language in [Language::Korean, Language::English] {
        assert_eq!(problem.detail.text(language), (Language::Korean, "잠시 후 다시 시도"));
    }
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
