//! The operator's API (`docs/design.md`).
//!
//! Here: what its calls share: who may call, who calls, how much of a history they show. Each thing that operators
//! change has a file: `flag.rs`.

pub(super) mod flag;

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpRequest, HttpResponse, dev::Payload, guard::GuardContext, http::StatusCode, web};
use serde::{Deserialize, Serialize};
use utoipa::{
    IntoParams,
    openapi::{
        ObjectBuilder,
        path::{Parameter, ParameterIn},
        schema::Type,
    },
};

use super::{error::ApiError, extract::header, state::HttpState, uncached::uncached};

/// Who makes a change, for the audit.
const OPERATOR: &str = "X-Operator";

/// Who it is where nobody says.
const DEFAULT_OPERATOR: &str = "admin";

const MAX_OPERATOR_CHARS: usize = 100;

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

/// Who makes a change. Asked only of who carries the token.
pub(super) struct Operator(String);

impl FromRequest for Operator {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(if carries_token(request) { read_operator(request) } else { Err(ApiError::Unauthorized) })
    }
}

impl IntoParams for Operator {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let name = ObjectBuilder::new().schema_type(Type::String).max_length(Some(MAX_OPERATOR_CHARS));
        let name = name.pattern(Some("^[ -~]*[!-~][ -~]*$")).build();
        let description = "Who makes the change, for the audit: 1 to 100 visible characters; default `admin`.";
        vec![header(OPERATOR, name, description)]
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

/// How many changes to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditPage {
    /// The newest so many, 1..=1000; 100 if not given.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<usize>,
}

impl AuditPage {
    fn limit(&self) -> Result<usize, ApiError> {
        let limit = self.limit.unwrap_or(DEFAULT_AUDIT_PAGE);
        if (1..=MAX_AUDIT_PAGE).contains(&limit) { Ok(limit) } else { Err(ApiError::BadRequest) }
    }
}

/// An answer that is only true now.
fn fresh(body: &impl Serialize) -> HttpResponse {
    uncached(StatusCode::OK).json(body)
}
