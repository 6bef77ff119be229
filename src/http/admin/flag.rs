//! The flag: the rule in force, and who changed it when and why.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Admin, AuditPage, Operator, fresh};
use crate::{
    domain::QueueTarget,
    flags::{AuditEntry, FlagChange, FlagRule},
    http::{
        error::ApiError,
        extract::read_body,
        paths::{FLAG, FLAG_AUDIT},
        state::HttpState,
    },
};

/// Room for as many people and targets as a rule may name.
const MAX_RULE_BYTES: usize = 4 * 1024 * 1024;

/// The rule in force.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FlagRule)]
pub(in crate::http) struct FlagRuleBody<'a> {
    /// The number of changes; 0: there was none.
    version: u64,
    /// The time of the last change, milliseconds since the epoch.
    #[schema(required)]
    updated_at_ms: Option<u64>,
    /// The switch.
    enabled: bool,
    /// The percentage of people for whom it is on, besides `users`.
    #[schema(minimum = 0, maximum = 100)]
    rollout_percent: u8,
    /// The targets for which it is on; none: all.
    targets: Vec<String>,
    /// The people for whom it is on, whatever the percentage.
    users: Vec<&'a str>,
    /// The reason of the last change.
    reason: &'a str,
}

impl<'a> From<&'a FlagRule> for FlagRuleBody<'a> {
    fn from(rule: &'a FlagRule) -> Self {
        let change = rule.change();
        Self {
            version: rule.version(),
            updated_at_ms: rule.updated_at_ms(),
            enabled: change.is_enabled(),
            rollout_percent: change.rollout_percent(),
            targets: change.targets().map(QueueTarget::to_rule).collect(),
            users: change.users().collect(),
            reason: change.reason(),
        }
    }
}

/// The rule in force in this process.
#[utoipa::path(
    get, path = FLAG.path, operation_id = "flag", tag = "admin",
    security(("adminToken" = [])),
    responses(
        (status = 200, description = "The rule; version 0 before any was set.", body = FlagRuleBody),
        (status = 401, description = "`UNAUTHORIZED`"),
    )
)]
pub(in crate::http) async fn get(_: Admin, state: web::Data<HttpState>) -> HttpResponse {
    fresh(&FlagRuleBody::from(&*state.flags.current()))
}

/// Sets the rule, for every replica within 3 s and here at once.
#[utoipa::path(
    put, path = FLAG.path, operation_id = "putFlag", tag = "admin",
    security(("adminToken" = [])),
    params(Operator),
    request_body = FlagChange,
    responses(
        (status = 200, description = "The rule that is now in force.", body = FlagRuleBody),
        (status = 400, description = "`INVALID_FLAG`, `INVALID_OPERATOR`, `BAD_REQUEST`"),
        (status = 401, description = "`UNAUTHORIZED`"),
        (status = 413, description = "`PAYLOAD_TOO_LARGE`: over 4 MB."),
        (status = 503, description = "`STORE_UNAVAILABLE`: it may have been stored all the same."),
    )
)]
pub(in crate::http) async fn put(
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
    Ok(fresh(&FlagRuleBody::from(&*rule)))
}

/// Who changed the flag, when and why, newest first.
#[utoipa::path(
    get, path = FLAG_AUDIT.path, operation_id = "flagAudit", tag = "admin",
    security(("adminToken" = [])),
    params(AuditPage),
    responses(
        (status = 200, description = "The changes.", body = Vec<AuditEntry>),
        (status = 400, description = "`BAD_REQUEST`: limit is not 1..=1000."),
        (status = 401, description = "`UNAUTHORIZED`"),
        (status = 503, description = "`STORE_UNAVAILABLE`"),
    )
)]
pub(in crate::http) async fn audit(
    _: Admin,
    state: web::Data<HttpState>,
    page: web::Query<AuditPage>,
) -> Result<HttpResponse, ApiError> {
    Ok(fresh(&state.flags.audit(page.limit()?).await?))
}
