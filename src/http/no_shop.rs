//! The purchase routes as buyers' apps see them, and the answer if there is no shop.
//!
//! Here: their description, and that answer. Not here: the gate in front of them ([`crate::gate`]).

use actix_web::{HttpResponse, web};

use super::{
    error::ApiError,
    extract::{PassHeader, UserHeader},
    paths::{ORDERS, SEATS, TICKETS, at},
};

/// The purchase routes without an upstream and without the demo shop: 503.
pub fn no_shop_routes(cfg: &mut web::ServiceConfig) {
    cfg.service(at(&ORDERS).route(web::post().to(order)))
        .service(at(&SEATS).route(web::post().to(select_seats)))
        .service(at(&TICKETS).route(web::post().to(buy_tickets)));
}

/// Buy from a limited drop. Needs the pass while the queue is on for this person; otherwise the shop decides alone.
#[utoipa::path(
    post, path = ORDERS.path, operation_id = "order", tag = "purchase",
    params(("dropId" = String, Path, description = "The drop."), UserHeader, PassHeader),
    responses(
        (status = "default", description = "What the shop answers. 2xx and 3xx use the pass up."),
        (status = 401, description = "`INVALID_IDENTITY`: where buyers are known by tokens."),
        (status = 403, description = "`QUEUE_BYPASS_DENIED`: no valid pass; `reason` says why. Enter the queue."),
        (status = 404, description = "`UNKNOWN_TARGET`"),
        (status = 409, description = "`PASS_IN_USE`: another purchase with this pass is under way."),
        (status = 502, description = "`UPSTREAM_UNREACHABLE`, `UPSTREAM_FAILED`: the shop gave no answer."),
        (status = 503, description = "`OVERLOADED`, `IDENTITY_UNAVAILABLE`, `NO_SHOP`"),
        (status = 504, description = "`UPSTREAM_TIMEOUT`: the shop took too long; the pass stays claimed."),
    )
)]
async fn order() -> Result<HttpResponse, ApiError> {
    Err(ApiError::NoShop)
}

/// Select seats of an event. Needs the pass while the queue is on for this person; otherwise the shop decides alone.
/// The pass may be used again, to change or add seats, until it expires or tickets are bought.
#[utoipa::path(
    post, path = SEATS.path, operation_id = "selectSeats", tag = "purchase",
    params(("id" = String, Path, description = "The event."), UserHeader, PassHeader),
    responses(
        (status = "default", description = "What the shop answers. The pass works on, whatever that is."),
        (status = 401, description = "`INVALID_IDENTITY`: where buyers are known by tokens."),
        (status = 403, description = "`QUEUE_BYPASS_DENIED`: no valid pass; `reason` says why. Enter the queue."),
        (status = 404, description = "`UNKNOWN_TARGET`"),
        (status = 409, description = "`PASS_IN_USE`: another purchase with this pass is under way."),
        (status = 502, description = "`UPSTREAM_UNREACHABLE`, `UPSTREAM_FAILED`: the shop gave no answer."),
        (status = 503, description = "`OVERLOADED`, `IDENTITY_UNAVAILABLE`, `NO_SHOP`"),
        (status = 504, description = "`UPSTREAM_TIMEOUT`: the shop took too long; the pass may be used again."),
    )
)]
async fn select_seats() -> Result<HttpResponse, ApiError> {
    Err(ApiError::NoShop)
}

/// Buy the seats that one holds. Needs no pass: the lock on the seats permits it (TDD OQ3). Spends this person's pass
/// for this event while the queue is on for them.
#[utoipa::path(
    post, path = TICKETS.path, operation_id = "buyTickets", tag = "purchase",
    params(("id" = String, Path, description = "The event."), UserHeader),
    responses(
        (status = "default", description = "What the shop answers. 2xx and 3xx use up any pass of this person."),
        (status = 401, description = "`INVALID_IDENTITY`: where buyers are known by tokens."),
        (status = 403, description = "`QUEUE_BYPASS_DENIED`: it is not known who buys, or the path is spelled oddly."),
        (status = 404, description = "`UNKNOWN_TARGET`"),
        (status = 502, description = "`UPSTREAM_UNREACHABLE`, `UPSTREAM_FAILED`: the shop gave no answer."),
        (status = 503, description = "`OVERLOADED`, `IDENTITY_UNAVAILABLE`, `NO_SHOP`"),
        (status = 504, description = "`UPSTREAM_TIMEOUT`: the shop took too long."),
    )
)]
async fn buy_tickets() -> Result<HttpResponse, ApiError> {
    Err(ApiError::NoShop)
}
