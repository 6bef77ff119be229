//! The operator's API: the flag, and who changed it when and why (`docs/design.md`).

use std::future::{Ready, ready};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    guard::GuardContext,
    http::header::{CACHE_CONTROL, HeaderValue},
    web,
};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{
    error::ApiError,
    extract::read_body,
    openapi::{AuditEntryBody, FlagChangeBody, FlagRuleBody, OperatorHeader},
    state::HttpState,
};
use crate::flags::FlagChange;

/// Who changes the flag, for the audit.
const OPERATOR: &str = "x-operator";

/// Who it is where nobody says.
const DEFAULT_OPERATOR: &str = "admin";

const MAX_OPERATOR_CHARS: usize = 100;

/// Room for as many people and targets as a rule may name.
const MAX_RULE_BYTES: usize = 4 * 1024 * 1024;

/// Changes shown where nobody says how many.
const DEFAULT_AUDIT_PAGE: usize = 100;

/// The most changes shown at a time.
const MAX_AUDIT_PAGE: usize = 1000;

/// Whether there is an admin API at all: without a token its routes are as if they were not there.
pub(super) fn exists(context: &GuardContext<'_>) -> bool {
    context.app_data::<web::Data<HttpState>>().is_some_and(|state| state.options.admin.is_some())
}

/// Proof that the request carries the admin token.
pub(super) struct Admin;

impl FromRequest for Admin {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(if carries_token(request) { Ok(Self) } else { Err(ApiError::Unauthorized) })
    }
}

fn carries_token(request: &HttpRequest) -> bool {
    let state = request.app_data::<web::Data<HttpState>>();
    let key = state.and_then(|state| state.options.admin.as_ref());
    key.is_some_and(|key| key.is_carried_by(request.headers()))
}

/// Who changes the flag. Asked only of who carries the token.
pub(super) struct Operator(String);

impl FromRequest for Operator {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(if carries_token(request) { read_operator(request) } else { Err(ApiError::Unauthorized) })
    }
}

fn read_operator(request: &HttpRequest) -> Result<Operator, ApiError> {
    let mut values = request.headers().get_all(OPERATOR);
    let name = match (values.next(), values.next()) {
        (None, _) => DEFAULT_OPERATOR,
        (Some(value), None) => std::str::from_utf8(value.as_bytes()).map_err(|_| ApiError::InvalidOperator)?.trim(),
        (Some(_), Some(_)) => return Err(ApiError::InvalidOperator),
    };
    // Names are shown in logs and audits: nothing that hides or turns text around.
    let visible = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    if (1..=MAX_OPERATOR_CHARS).contains(&name.chars().count()) && name.chars().all(visible) {
        Ok(Operator(name.to_owned()))
    } else {
        Err(ApiError::InvalidOperator)
    }
}

/// The rule in force in this process.
#[utoipa::path(
    get, path = "/admin/flags/virtual-queue.enabled", operation_id = "flag", tag = "admin",
    security(("adminToken" = [])),
    responses(
        (status = 200, description = "The rule; version 0 before any was set.", body = FlagRuleBody),
        (status = 401, description = "`UNAUTHORIZED`"),
    )
)]
pub(super) async fn flag(_: Admin, state: web::Data<HttpState>) -> HttpResponse {
    fresh(&*state.flags.current())
}

/// Sets the rule, for every replica within 3 s and here at once.
#[utoipa::path(
    put, path = "/admin/flags/virtual-queue.enabled", operation_id = "putFlag", tag = "admin",
    security(("adminToken" = [])),
    params(OperatorHeader),
    request_body = FlagChangeBody,
    responses(
        (status = 200, description = "The rule that is now in force.", body = FlagRuleBody),
        (status = 400, description = "`INVALID_FLAG`, `INVALID_OPERATOR`, `BAD_REQUEST`"),
        (status = 401, description = "`UNAUTHORIZED`"),
        (status = 413, description = "`PAYLOAD_TOO_LARGE`: over 4 MB."),
        (status = 503, description = "`STORE_UNAVAILABLE`: it may have been stored all the same."),
    )
)]
pub(super) async fn put_flag(
    operator: Operator,
    state: web::Data<HttpState>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let body = match read_body(&request, payload, MAX_RULE_BYTES).await {
        Ok(body) => body,
        Err(refusal) => return Ok(refusal),
    };
    let change = FlagChange::parse(&body, state.identity.form())?;
    let rule = state.flags.put(&change, &operator.0).await?;
    Ok(fresh(&*rule))
}

/// How many changes to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditPage {
    /// The newest so many, 1..=1000; 100 if not given.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<usize>,
}

/// Who changed the flag, when and why, newest first.
#[utoipa::path(
    get, path = "/admin/flags/virtual-queue.enabled/audit", operation_id = "flagAudit", tag = "admin",
    security(("adminToken" = [])),
    params(AuditPage),
    responses(
        (status = 200, description = "The changes.", body = Vec<AuditEntryBody>),
        (status = 400, description = "`BAD_REQUEST`: limit is not 1..=1000."),
        (status = 401, description = "`UNAUTHORIZED`"),
        (status = 503, description = "`STORE_UNAVAILABLE`"),
    )
)]
pub(super) async fn audit(
    _: Admin,
    state: web::Data<HttpState>,
    page: web::Query<AuditPage>,
) -> Result<HttpResponse, ApiError> {
    let limit = page.limit.unwrap_or(DEFAULT_AUDIT_PAGE);
    if !(1..=MAX_AUDIT_PAGE).contains(&limit) {
        return Err(ApiError::BadRequest);
    }
    Ok(fresh(&state.flags.audit(limit).await?))
}

/// An answer that is only true now.
fn fresh(body: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store"))).json(body)
}
