//! The queue's API: enter, poll, leave, stats (TDD: FE/외부 계약; `docs/design.md`).
//!
//! Here: from a request to the service and from its answer to a response. Not here: any decision about a queue.

use actix_web::{
    HttpRequest, HttpResponse, ResponseError,
    http::header::{HeaderValue, SET_COOKIE},
    web,
};

use super::{
    entry,
    error::ApiError,
    extract::{Caller, Target, UserHeader, read_body},
    paths::{ENTRIES, ENTRY, STATS},
    state::HttpState,
};
use crate::{
    domain::QueueTarget,
    identity::Unidentified,
    service::{Answer, QueueError},
};

/// A body on enter is ignored up to here.
const MAX_IGNORED_BYTES: usize = 8 * 1024;

/// Enter the queue. Entering again gives the same number, or the same pass, and counts as a poll.
#[utoipa::path(
    post, path = ENTRIES.path, operation_id = "enter", tag = "queue",
    params(Target, UserHeader),
    responses(
        (status = 200, description = "Where the person stands.", body = entry::EntryBody,
            headers(("X-Virtual-Queue-Degraded" = Option<String>, description = "`redis`: answered without the store."))),
        (status = 400, description = "`INVALID_USER_ID`, `BAD_REQUEST`"),
        (status = 401, description = "`INVALID_IDENTITY`: where buyers are known by tokens."),
        (status = 403, description = "`OTHER_SITE`: where visitors are known by a cookie, from a page of another site."),
        (status = 404, description = "`UNKNOWN_TARGET`"),
        (status = 413, description = "`PAYLOAD_TOO_LARGE`: a body is ignored, up to 8 KB."),
        (status = 429, description = "`QUEUE_FULL`, `TOO_MANY_TARGETS`, `RATE_LIMITED`"),
        (status = 503, description = "`STORE_UNAVAILABLE`, `IDENTITY_UNAVAILABLE`"),
    )
)]
pub(super) async fn enter(
    state: web::Data<HttpState>,
    target: Target,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    // Before anybody's token costs anything.
    if let Some(limit) = &state.enter_limit {
        limit.check(&request)?;
    }
    let asker = state.identity.entering(request.headers())?;
    // Nothing in a body matters, but unread it would end the connection after every answer.
    if let Err(refusal) = read_body(&request, payload, MAX_IGNORED_BYTES).await {
        return Ok(refusal);
    }
    let answer = respond(&state, target.0, state.service.enter(target.0, asker.user).await);
    // A refusal, too, may come to somebody whom the store has taken in.
    Ok(remembered(answer.unwrap_or_else(|error| error.error_response()), asker.cookie))
}

/// Poll: where the person stands now. Keeps the place alive, and collects the pass once the turn has come.
#[utoipa::path(
    get, path = ENTRY.path, operation_id = "poll", tag = "queue",
    params(Target, UserHeader),
    responses(
        (status = 200, description = "Where the person stands.", body = entry::EntryBody,
            headers(("X-Virtual-Queue-Degraded" = Option<String>, description = "`redis`: answered without the store."))),
        (status = 400, description = "`INVALID_USER_ID`"),
        (status = 401, description = "`INVALID_IDENTITY`: where buyers are known by tokens."),
        (status = 404, description = "`NOT_IN_QUEUE`: enter again; `UNKNOWN_TARGET`"),
        (status = 503, description = "`STORE_UNAVAILABLE`, `IDENTITY_UNAVAILABLE`"),
    )
)]
pub(super) async fn poll(state: web::Data<HttpState>, caller: Caller) -> Result<HttpResponse, ApiError> {
    let answer = state.service.status(caller.target, caller.asker.user).await;
    Ok(remembered(respond(&state, caller.target, answer)?, caller.asker.cookie))
}

/// Leave: gives up the place, or the live pass, which buys nothing from then on.
#[utoipa::path(
    delete, path = ENTRY.path, operation_id = "leave", tag = "queue",
    params(Target, UserHeader),
    responses(
        (status = 204, description = "Not in the queue any more, whether or not before.",
            headers(("X-Virtual-Queue-Degraded" = Option<String>, description = "`redis`: answered without the store."))),
        (status = 400, description = "`INVALID_USER_ID`"),
        (status = 401, description = "`INVALID_IDENTITY`: where buyers are known by tokens."),
        (status = 404, description = "`UNKNOWN_TARGET`"),
        (status = 503, description = "`STORE_UNAVAILABLE`, `IDENTITY_UNAVAILABLE`"),
    )
)]
pub(super) async fn leave(
    state: web::Data<HttpState>,
    target: Target,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let degraded = match state.identity.user(request.headers()) {
        Ok(user) => state.service.leave(target.0, user).await?.degraded,
        // Who is not known is not in the queue.
        Err(Unidentified::NoVisitor) => false,
        Err(unidentified) => return Err(unidentified.into()),
    };
    Ok(entry::left(target.0, degraded, state.options.cookie))
}

/// The books of a target, the same on every replica. Zeros for a target nobody uses.
#[utoipa::path(
    get, path = STATS.path, operation_id = "stats", tag = "queue",
    params(Target),
    responses(
        (status = 200, description = "The books.", body = entry::StatsBody),
        (status = 404, description = "`UNKNOWN_TARGET`"),
        (status = 503, description = "`STORE_UNAVAILABLE`"),
    )
)]
pub(super) async fn stats(state: web::Data<HttpState>, target: Target) -> Result<HttpResponse, ApiError> {
    let stats = state.service.stats(target.0).await?;
    Ok(entry::stats(&stats))
}

/// An answer that its browser is to remember something of.
fn remembered(mut response: HttpResponse, cookie: Option<HeaderValue>) -> HttpResponse {
    if let Some(cookie) = cookie {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn respond(
    state: &HttpState,
    target: QueueTarget,
    answer: Result<Answer, QueueError>,
) -> Result<HttpResponse, ApiError> {
    let cookie_at = state.options.cookie.then(|| state.clock.now_seconds());
    Ok(entry::entry(target, &answer?, cookie_at))
}
