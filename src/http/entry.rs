//! The answers of the queue's API as JSON, headers and cookie (TDD: QueueEntryResponse, QueueStatsResponse).

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    http::{StatusCode, header::SET_COOKIE},
};
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use utoipa::ToSchema;

use super::uncached::{DEGRADED, uncached};
use crate::{
    domain::{EntryToken, QueueStats, QueueStatus, QueueTarget},
    service::Answer,
};

/// Where a person stands. Every field is always there, null where it does not apply.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QueueEntry)]
pub(super) struct EntryBody<'a> {
    /// `WAITING`, `ADMITTED` or `DIRECT_ADMITTED`.
    status: EntryStatus,
    /// The fixed number, from 1, while waiting.
    #[schema(required, minimum = 1)]
    position: Option<u64>,
    /// People in front who have not been admitted yet, while waiting.
    #[schema(required)]
    ahead_count: Option<u64>,
    /// Seconds until the turn comes, at least 1, while waiting; null while nothing moves.
    #[schema(required, minimum = 1)]
    eta_seconds: Option<u64>,
    /// The pass, once admitted. Send it as `X-Entry-Token` with the purchase.
    #[schema(required)]
    entry_token: Option<&'a str>,
    /// When the pass ends: UTC, whole seconds.
    #[schema(required, format = DateTime)]
    token_expires_at: Option<String>,
    /// Seconds until the next poll is worth making, while waiting.
    #[schema(required, minimum = 1)]
    poll_after_seconds: Option<u64>,
    /// The operator has stopped admission.
    paused: bool,
}

/// The three states of an entry.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = QueueEntryStatus)]
pub(super) enum EntryStatus {
    Waiting,
    Admitted,
    DirectAdmitted,
}

/// The books of a target, read in one moment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QueueStats)]
pub(super) struct StatsBody {
    /// People in the queue, those admitted who have not polled yet included.
    waiting_count: u64,
    /// People the ticks have admitted.
    admitted_count: u64,
    /// People admitted a second, over the last 60 s.
    admission_rate_per_sec: f64,
    /// Mean wait from entry to pass over the target's life; 0.0 if nobody has waited yet.
    avg_wait_seconds: f64,
    /// What 95 % of the people did not wait longer than.
    p95_wait_seconds: f64,
    /// The mark: everybody with a number up to here is admitted.
    admitted_through: u64,
    /// The last number given.
    last_number: u64,
    /// People given a number: `waitingCount + issued + left + evicted`.
    entered: u64,
    /// Passes issued: `live + consumed + expired + revoked`.
    issued: u64,
    /// People who left while waiting.
    left: u64,
    /// People who lost their place by not polling.
    evicted: u64,
    /// Passes that are valid now.
    live: u64,
    /// Passes that bought.
    consumed: u64,
    /// Passes that ended unused.
    expired: u64,
    /// Passes given up by leaving.
    revoked: u64,
    /// Direct passes given while this target had a queue.
    direct: u64,
    /// Direct passes that bought.
    direct_consumed: u64,
    /// The median wait.
    p50_wait_seconds: f64,
    /// What 99 % of the people did not wait longer than.
    p99_wait_seconds: f64,
    /// How many may wait.
    capacity: u64,
    /// The pace in force, as people a second.
    target_rate_per_sec: f64,
    /// The operator has stopped admission.
    paused: bool,
}

impl<'a> EntryBody<'a> {
    fn of(answer: &'a Answer) -> Self {
        let (status, position, token) = match &answer.status {
            QueueStatus::Waiting(position) => (EntryStatus::Waiting, Some(position), None),
            QueueStatus::WaitingUnknown => (EntryStatus::Waiting, None, None),
            QueueStatus::Admitted(token) => (EntryStatus::Admitted, None, Some(token)),
            QueueStatus::DirectAdmitted(token) => (EntryStatus::DirectAdmitted, None, Some(token)),
        };
        Self {
            status,
            position: position.map(|place| place.seq),
            ahead_count: position.map(|place| place.ahead),
            eta_seconds: position.and_then(|place| place.eta_seconds()),
            entry_token: token.map(EntryToken::raw),
            token_expires_at: token.and_then(|token| utc(token.expires_at())),
            poll_after_seconds: answer.poll_after_seconds,
            paused: answer.paused,
        }
    }
}

impl From<&QueueStats> for StatsBody {
    fn from(stats: &QueueStats) -> Self {
        Self {
            waiting_count: stats.waiting,
            admitted_count: stats.admitted,
            admission_rate_per_sec: stats.admission_rate_per_sec,
            avg_wait_seconds: stats.waits.mean_seconds(),
            p95_wait_seconds: stats.waits.quantile_seconds(0.95),
            admitted_through: stats.admitted_through,
            last_number: stats.last_number,
            entered: stats.entered,
            issued: stats.issued,
            left: stats.left,
            evicted: stats.evicted,
            live: stats.live,
            consumed: stats.consumed,
            expired: stats.expired,
            revoked: stats.revoked,
            direct: stats.direct,
            direct_consumed: stats.direct_consumed,
            p50_wait_seconds: stats.waits.quantile_seconds(0.5),
            p99_wait_seconds: stats.waits.quantile_seconds(0.99),
            capacity: stats.capacity,
            target_rate_per_sec: stats.target_rate_per_sec(),
            paused: stats.paused,
        }
    }
}

/// The answer to enter and poll. `cookie_at`: the pass also goes into a cookie, and now is this second.
pub(super) fn entry(target: QueueTarget, answer: &Answer, cookie_at: Option<u64>) -> HttpResponse {
    let mut response = queue_answer(StatusCode::OK, answer.degraded);
    if let Some(now_seconds) = cookie_at
        && let QueueStatus::Admitted(token) | QueueStatus::DirectAdmitted(token) = &answer.status
    {
        response.append_header((SET_COOKIE, pass_cookie(target, token, now_seconds)));
    }
    response.json(EntryBody::of(answer))
}

/// The answer to leave. `cookie`: passes travel in cookies, and this one's is taken back.
pub(super) fn left(target: QueueTarget, degraded: bool, cookie: bool) -> HttpResponse {
    let mut response = queue_answer(StatusCode::NO_CONTENT, degraded);
    if cookie {
        response.append_header((SET_COOKIE, cookie_of(target, "", 0)));
    }
    response.finish()
}

/// The answer to stats.
pub(super) fn stats(stats: &QueueStats) -> HttpResponse {
    queue_answer(StatusCode::OK, false).json(StatsBody::from(stats))
}

fn queue_answer(status: StatusCode, degraded: bool) -> HttpResponseBuilder {
    let mut response = uncached(status);
    if degraded {
        response.insert_header(DEGRADED);
    }
    response
}

fn pass_cookie(target: QueueTarget, token: &EntryToken, now_seconds: u64) -> String {
    cookie_of(target, token.raw(), token.expires_at().saturating_sub(now_seconds))
}

/// One cookie a target, so that a second queue does not overwrite the first one's pass.
fn cookie_of(target: QueueTarget, value: &str, max_age_seconds: u64) -> String {
    let (kind, id) = (target.kind().slug(), target.id());
    format!("vq_{kind}_{id}={value}; HttpOnly; Secure; SameSite=Lax; Path=/; Max-Age={max_age_seconds}")
}

/// `2026-09-21T14:13:20Z`; `None` beyond the year 9999.
fn utc(epoch_seconds: u64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(epoch_seconds).ok()?).ok()?.format(&Rfc3339).ok()
}
