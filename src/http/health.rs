//! For orchestrators and collectors: health and metrics.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HeaderValue},
    },
    web,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    error::ApiError,
    paths::{LIVE, METRICS, READY},
    state::HttpState,
    uncached::uncached,
};
use crate::{flags::FeatureFlagEvaluator, telemetry};

/// The process runs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Live)]
pub(super) struct LiveBody {
    /// `live`.
    status: &'static str,
}

/// The process takes requests.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ready)]
pub(super) struct ReadyBody {
    /// `ready`.
    status: &'static str,
    /// `ok`, or `degraded` while Redis is unavailable.
    redis: &'static str,
    /// `known`, or `unknown` if the flag's rule has not been read since the start: then `redis.on_failure` decides.
    flag: &'static str,
}

/// Whether the process runs.
#[utoipa::path(get, path = LIVE.path, operation_id = "live", tag = "management",
    responses((status = 200, description = "It runs.", body = LiveBody)))]
pub(super) async fn live() -> HttpResponse {
    uncached(StatusCode::OK).json(LiveBody { status: "live" })
}

/// Whether the process takes requests. Also if Redis is unavailable: else a load balancer would remove all replicas at
/// once.
#[utoipa::path(get, path = READY.path, operation_id = "ready", tag = "management",
    responses(
        (status = 200, description = "It takes requests.", body = ReadyBody),
        (status = 503, description = "`NOT_READY`: starting or draining."),
    ))]
pub(super) async fn ready(state: web::Data<HttpState>) -> Result<HttpResponse, ApiError> {
    if !state.lifecycle.is_serving() {
        return Err(ApiError::NotReady);
    }
    let redis = if state.service.is_degraded() { "degraded" } else { "ok" };
    let flag = if state.flags.is_known() { "known" } else { "unknown" };
    Ok(uncached(StatusCode::OK).json(ReadyBody { status: "ready", redis, flag }))
}

/// All metrics in the Prometheus text format.
#[utoipa::path(get, path = METRICS.path, operation_id = "metrics", tag = "management",
    responses((status = 200, description = "Prometheus text format 0.0.4.", body = String, content_type = "text/plain")))]
pub(super) async fn metrics(state: web::Data<HttpState>) -> HttpResponse {
    state.metrics.log_lines_kept_back(telemetry::lines_kept_back());
    state.metrics.flag_known(state.flags.is_known());
    let mut response = uncached(StatusCode::OK);
    response.insert_header((CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8")));
    response.body(state.metrics.render())
}
