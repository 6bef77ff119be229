//! The shop's HTTP side: any drop or event id.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web::{self, Data, Payload, ServiceConfig},
};
use serde::Deserialize;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    seat::SeatId,
    shop::{ShopError, ShopService},
};
use crate::{
    domain::{UserId, parse_canonical_id},
    problem::Problem,
};

/// Bytes of the longest body.
const LONGEST_BODY: usize = 8 * 1024;

/// Seats at a time.
const MOST_SEATS: usize = 10;

/// The shop's routes: `POST /limited-drops/{dropId}/orders`, `POST /events/{id}/seats/select`,
/// `POST /events/{id}/tickets`. The application gives the [`ShopService`] as `app_data`.
pub fn configure(cfg: &mut ServiceConfig) {
    let only_post = || web::to(method_not_allowed);
    cfg.service(web::resource("/limited-drops/{id}/orders").route(web::post().to(order)).default_service(only_post()))
        .service(
            web::resource("/events/{id}/seats/select").route(web::post().to(select_seats)).default_service(only_post()),
        )
        .service(web::resource("/events/{id}/tickets").route(web::post().to(buy_tickets)).default_service(only_post()));
}

async fn order(req: HttpRequest, body: Payload, shop: Data<ShopService>) -> Result<HttpResponse, Refused> {
    let (drop_id, user) = (id(&req)?, buyer(&req, &shop)?);
    // What is in it does not matter here.
    read(body).await?;
    let order_id = shop.order(drop_id, user).await?;
    Ok(answer(StatusCode::CREATED, &json!({ "orderId": order_id })))
}

async fn select_seats(req: HttpRequest, body: Payload, shop: Data<ShopService>) -> Result<HttpResponse, Refused> {
    let (event_id, user) = (id(&req)?, buyer(&req, &shop)?);
    let seats = seats(&read(body).await?)?;
    let until = shop.select_seats(event_id, user, seats.clone()).await?;
    let names: Vec<&str> = seats.iter().map(SeatId::as_str).collect();
    Ok(answer(StatusCode::OK, &json!({ "seatIds": names, "lockedUntil": utc(until) })))
}

async fn buy_tickets(req: HttpRequest, body: Payload, shop: Data<ShopService>) -> Result<HttpResponse, Refused> {
    let (event_id, user) = (id(&req)?, buyer(&req, &shop)?);
    let seats = seats(&read(body).await?)?;
    let tickets = shop.buy_tickets(event_id, user, seats).await?;
    Ok(answer(StatusCode::CREATED, &json!({ "ticketIds": tickets })))
}

async fn method_not_allowed() -> HttpResponse {
    let mut response =
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "Method not allowed", "this is a POST")
            .into_response();
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
    response
}

fn answer(status: StatusCode, body: &Value) -> HttpResponse {
    HttpResponse::build(status).insert_header((header::CACHE_CONTROL, "no-store")).json(body)
}

/// Seconds since the epoch as `2026-09-21T13:33:20Z`.
fn utc(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).expect("the clock stands in a year of four digits")
}

fn id(req: &HttpRequest) -> Result<u64, Refused> {
    parse_canonical_id(req.match_info().query("id")).map_err(|_| Refused::UnknownTarget)
}

fn buyer(req: &HttpRequest, shop: &ShopService) -> Result<UserId, Refused> {
    let mut ids = req.headers().get_all("x-user-id");
    match (ids.next(), ids.next()) {
        (Some(id), None) => id.to_str().ok().and_then(|id| shop.buyer(id)).ok_or(Refused::InvalidUser),
        _ => Err(Refused::InvalidUser),
    }
}

async fn read(body: Payload) -> Result<web::Bytes, Refused> {
    let body = body.to_bytes_limited(LONGEST_BODY).await.map_err(|_| Refused::TooLong)?;
    body.map_err(|_| Refused::BodyCut)
}

fn seats(body: &[u8]) -> Result<Vec<SeatId>, Refused> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wanted {
        seat_ids: Vec<String>,
    }
    let wanted: Wanted = serde_json::from_slice(body).map_err(|_| Refused::InvalidSeats)?;
    let seats: Result<Vec<_>, _> = wanted.seat_ids.iter().map(|id| SeatId::parse(id)).collect();
    let seats = seats.map_err(|_| Refused::InvalidSeats)?;
    let is_doubled = seats.iter().enumerate().any(|(at, seat)| seats[..at].contains(seat));
    if is_doubled || !(1..=MOST_SEATS).contains(&seats.len()) {
        return Err(Refused::InvalidSeats);
    }
    Ok(seats)
}

/// Why the shop says no.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("unknown drop or event")]
    UnknownTarget,
    #[error("no usable user id")]
    InvalidUser,
    #[error("the body is too long")]
    TooLong,
    #[error("the body was cut")]
    BodyCut,
    #[error("no usable seats")]
    InvalidSeats,
    #[error(transparent)]
    Shop(#[from] ShopError),
}

impl Refused {
    const fn problem(&self) -> Problem {
        match self {
            Self::UnknownTarget => Problem::new(
                StatusCode::NOT_FOUND,
                "UNKNOWN_TARGET",
                "Unknown target",
                "there is no such drop or event",
            ),
            Self::InvalidUser => Problem::new(
                StatusCode::BAD_REQUEST,
                "INVALID_USER_ID",
                "Invalid user id",
                "X-User-Id must be there once, an id as identity.ids says",
            ),
            Self::TooLong => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "BODY_TOO_LARGE",
                "Body too large",
                "a body has at most 8 KB",
            ),
            Self::BodyCut => {
                Problem::new(StatusCode::BAD_REQUEST, "INVALID_BODY", "Invalid body", "the body did not arrive in full")
            }
            Self::InvalidSeats => Problem::new(
                StatusCode::BAD_REQUEST,
                "INVALID_SEATS",
                "Invalid seats",
                "the body must be {\"seatIds\": [1 to 10 different ids of 1 to 16 letters, digits or hyphens]}",
            ),
            Self::Shop(ShopError::SoldOut) => {
                Problem::new(StatusCode::CONFLICT, "SOLD_OUT", "Sold out", "no piece is left")
            }
            Self::Shop(ShopError::SeatTaken) => {
                Problem::new(StatusCode::CONFLICT, "SEAT_TAKEN", "Seat taken", "somebody else has one of these seats")
            }
            Self::Shop(ShopError::SeatNotLocked) => Problem::new(
                StatusCode::CONFLICT,
                "SEAT_NOT_LOCKED",
                "Seat not locked",
                "select the seats first; a lock holds for five minutes",
            ),
            Self::Shop(ShopError::Busy) => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "SHOP_BUSY",
                "Shop busy",
                "nothing was sold; try again in a moment",
            )
            .retry_after(1),
            Self::Shop(ShopError::Failed(_)) => Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL_ERROR",
                "Internal error",
                "nothing was sold for a reason of ours",
            ),
        }
    }
}

impl actix_web::ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        self.problem().status
    }

    fn error_response(&self) -> HttpResponse {
        if let Self::Shop(ShopError::Failed(cause)) = self {
            tracing::error!(cause, "the shop failed");
        }
        self.problem().into_response()
    }
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
