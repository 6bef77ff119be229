//! Forward auth for proxies in front of the shop (`docs/integrations/forward-auth.md`).
//!
//! Here: which request a proxy asks about (`verify/original.rs`), the verdict in the form that proxies understand, and
//! how a shop settles. Not here: the verdict itself ([`crate::gate`]).

mod original;

use actix_web::{
    HttpRequest, HttpResponse,
    guard::GuardContext,
    http::{
        StatusCode,
        header::{HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE},
    },
    web,
};
use serde::Deserialize;
use utoipa::ToSchema;

use self::original::{Original, Unclear};
use super::{
    error::ApiError,
    extract::{PassHeader, UserHeader, read_json},
    paths::{SETTLE, VERIFY},
    state::HttpState,
    uncached::{DEGRADED, uncached},
};
use crate::{
    config::TokenConfig,
    domain::QueueTarget,
    gate::{ClaimHandle, Verdict},
    problem::Problem,
    store::Settlement,
};

const USER: HeaderName = HeaderName::from_static("x-virtual-queue-user");
const TARGET: HeaderName = HeaderName::from_static("x-virtual-queue-target");
const CLAIM: HeaderName = HeaderName::from_static("x-virtual-queue-claim");
const CODE: HeaderName = HeaderName::from_static("x-virtual-queue-code");
const REASON: HeaderName = HeaderName::from_static("x-virtual-queue-reason");

/// Several times the size of a settlement.
const MAX_SETTLEMENT_BYTES: usize = 4096;

/// Whether a request may go to the shop. A proxy asks, for the buyer. `X-Original-Method` and `X-Original-URI` (nginx)
/// or `X-Original-URL` (ingress-nginx), or `X-Forwarded-Method` and `X-Forwarded-Uri` (Traefik, Caddy), name the
/// request asked about.
#[utoipa::path(
    get, path = VERIFY.path, operation_id = "verify", tag = "gate",
    params(
        UserHeader,
        PassHeader,
        ("original" = Option<String>, Query, description = "The header that names the target: `x-original-uri`, \
            `x-original-url` or `x-forwarded-uri`. The others are not looked at then. Without it, those that are there \
            must not contradict each other."),
    ),
    responses(
        (status = 204, description = "On to the shop. Of a purchase while the queue is on: `X-Virtual-Queue-User`, \
            `X-Virtual-Queue-Target` and, where its route needs and spends a pass and the shop settles, \
            `X-Virtual-Queue-Claim`."),
        (status = 403, description = "Not to the shop; `X-Virtual-Queue-Code` repeats the code: \
            `QUEUE_BYPASS_DENIED`, `PASS_IN_USE`, `UNKNOWN_TARGET`, `UNCLEAR_REQUEST`, `IDENTITY_UNAVAILABLE`. \
            `X-Virtual-Queue-Reason` repeats the reason, where there is one."),
        (status = 401, description = "Not to the shop: buyers are known by tokens, and there is no valid one. \
            `X-Virtual-Queue-Code` is `INVALID_IDENTITY`."),
    )
)]
pub(super) async fn verify(state: web::Data<HttpState>, request: HttpRequest) -> HttpResponse {
    match Original::of_question(request.uri().query(), request.headers()) {
        Ok(original) => answer(&state, &original, request.headers(), StatusCode::NO_CONTENT).await,
        Err(Unclear) => denied(unclear()),
    }
}

/// The same for Envoy: it appends the original path to this one, asks with the original method, and accepts only 200 as
/// yes. No header names the request here.
pub(super) async fn verify_path(state: web::Data<HttpState>, request: HttpRequest) -> HttpResponse {
    // The raw path: actix decodes parameters.
    let tail = request.uri().path_and_query().and_then(|all| all.as_str().strip_prefix(VERIFY.path));
    match tail.ok_or(Unclear).and_then(|tail| Original::new(request.method().as_str().as_bytes(), tail.as_bytes())) {
        Ok(original) => answer(&state, &original, request.headers(), StatusCode::OK).await,
        Err(Unclear) => denied(unclear()),
    }
}

async fn answer(state: &HttpState, original: &Original, headers: &HeaderMap, yes: StatusCode) -> HttpResponse {
    let shop_settles = state.options.settle.is_some();
    let mut degraded = false;
    let granted = match state.gate.judge(&original.method, &original.uri, headers, shop_settles).await {
        Verdict::Denied(problem) => return denied(problem),
        Verdict::Free => None,
        Verdict::Unchecked => {
            degraded = true;
            None
        }
        Verdict::Granted(granted) => {
            degraded = granted.degraded;
            Some(granted)
        }
    };
    let mut response = uncached(yes);
    if let Some(granted) = granted {
        response.insert_header((USER, state.identity.name_for_shop(headers, granted.user)));
        response.insert_header((TARGET, granted.target.to_string()));
        if let Some(claim) = granted.claim {
            response.insert_header((CLAIM, claim.to_string()));
        }
    }
    if degraded {
        response.insert_header(DEGRADED);
    }
    response.finish()
}

fn denied(problem: Problem) -> HttpResponse {
    let (code, reason) = (problem.code, problem.reason);
    let mut response = problem.into_response();
    response.headers_mut().insert(CODE, HeaderValue::from_static(code));
    if let Some(reason) = reason {
        response.headers_mut().insert(REASON, HeaderValue::from_static(reason.name()));
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn unclear() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "UNCLEAR_REQUEST",
        "Unclear which request is meant",
        "the original method and path are missing, doubled or contradict each other",
    )
}

/// Whether settling exists: without a token the route answers as if it did not exist.
pub(super) fn shop_settles(context: &GuardContext<'_>) -> bool {
    context.app_data::<web::Data<HttpState>>().is_some_and(|state| state.options.settle.is_some())
}

/// How a purchase ended.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Settlement)]
pub(super) struct SettlementBody {
    /// As `X-Virtual-Queue-Target` gave it, `LIMITED_DROP:42`, or `limited-drop/42`.
    #[schema(pattern = "^(LIMITED_DROP:|TICKETING_EVENT:|limited-drop/|ticketing-event/)[1-9][0-9]{0,18}$")]
    target: String,
    /// Who bought, as `X-Virtual-Queue-User` gave it.
    #[schema(pattern = "^[1-9][0-9]{0,18}$")]
    user_id: String,
    /// As `X-Virtual-Queue-Claim` gave it. Null or missing if the route needs no pass.
    #[schema(pattern = "^[1-9][0-9]{0,10}-[0-9a-f]{32}$")]
    claim: Option<String>,
    /// `spent`: the pass has bought. `given_back`: the pass works again.
    outcome: Outcome,
}

/// What a purchase did with its pass.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Spent,
    GivenBack,
}

/// The shop reports how a granted purchase ended. May be repeated. `spent` also works late; `given_back` works while
/// the pass is claimed. If the route needs no pass, there is no claim: `spent` then spends every pass that this person
/// got for the target until now, and there is nothing to give back.
#[utoipa::path(
    post, path = SETTLE.path, operation_id = "settle", tag = "gate",
    security(("settleToken" = [])),
    request_body = SettlementBody,
    responses(
        (status = 204, description = "Settled, now or before."),
        (status = 400, description = "`BAD_REQUEST`"),
        (status = 401, description = "`UNAUTHORIZED`"),
        (status = 409, description = "`UNKNOWN_CLAIM`: it ends more than a day from now, which no pass does."),
        (status = 413, description = "`PAYLOAD_TOO_LARGE`"),
        (status = 503, description = "`STORE_UNAVAILABLE`: not settled; say it again."),
    )
)]
pub(super) async fn settle(
    state: web::Data<HttpState>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    if !state.options.settle.as_ref().is_some_and(|key| key.is_carried_by(request.headers())) {
        return Err(ApiError::Unauthorized);
    }
    let said: SettlementBody = match read_json(&request, payload, MAX_SETTLEMENT_BYTES).await {
        Ok(said) => said,
        Err(refusal) => return Ok(refusal),
    };
    let target = QueueTarget::from_label(&said.target).or_else(|_| QueueTarget::from_rule(&said.target));
    let target = target.map_err(|_| ApiError::BadRequest)?;
    let user = state.identity.form().parse(&said.user_id).map_err(|_| ApiError::BadRequest)?;
    let claim: Option<ClaimHandle> =
        said.claim.map(|claim| claim.parse()).transpose().map_err(|_| ApiError::BadRequest)?;
    // None of our passes expires later, whatever the lifetime was when it was given. A later expiry would be accepted,
    // and this person's next pass would have to expire after it.
    let latest = state.clock.now_seconds().saturating_add(TokenConfig::LONGEST_TTL_S);
    if claim.as_ref().is_some_and(|claim| claim.expires_at() > latest) {
        return Err(ApiError::UnknownClaim);
    }
    let how = match said.outcome {
        Outcome::Spent => Settlement::Spent,
        Outcome::GivenBack => Settlement::GivenBack,
    };
    state.gate.settle(target, user, claim.as_ref(), how).await.map_err(|error| {
        tracing::warn!(%target, %error, "a shop's settlement failed");
        ApiError::StoreUnavailable { retry_after: 1 }
    })?;
    Ok(uncached(StatusCode::NO_CONTENT).finish())
}
