//! Which handler takes which call, in three groups that the server puts where they belong.

use actix_web::{HttpResponse, Route, guard, web};

use super::{
    admin::{self, flag},
    error::ApiError,
    health, openapi,
    paths::{
        ELSE_OF_QUEUES, ENTRIES, ENTRY, FLAG, FLAG_AUDIT, LIVE, METRICS, OPENAPI, READY, SETTLE, STATS, UNMATCHED,
        VERIFY, VERIFY_PATH, at,
    },
    queue, verify,
};

/// For buyers and their apps, with the description.
pub fn queue_routes(cfg: &mut web::ServiceConfig) {
    cfg.service(at(&ENTRIES).route(web::post().to(queue::enter)))
        .service(at(&ENTRY).route(read().to(queue::poll)).route(web::delete().to(queue::leave)))
        .service(at(&STATS).route(read().to(queue::stats)))
        .service(at(&OPENAPI).route(read().to(openapi::serve)))
        .service(web::resource(ELSE_OF_QUEUES).app_data(&UNMATCHED).to(not_found));
}

/// For the proxy in front of the shop, and for the shop. Without `gate.settle_token` settling does not exist.
pub fn forward_auth_routes(cfg: &mut web::ServiceConfig) {
    cfg.service(at(&VERIFY).route(read().to(verify::verify)))
        .service(web::resource(VERIFY_PATH.path).app_data(&VERIFY_PATH).to(verify::verify_path))
        .service(at(&SETTLE).guard(guard::fn_guard(verify::shop_settles)).route(web::post().to(verify::settle)));
}

/// For operators and their machines; on `server.management_port` if set, else on the queue's port. Without
/// `admin.token` the admin routes do not exist.
pub fn management_routes(cfg: &mut web::ServiceConfig) {
    let admin = || guard::fn_guard(admin::exists);
    cfg.service(at(&METRICS).route(read().to(health::metrics)))
        .service(at(&LIVE).route(read().to(health::live)))
        .service(at(&READY).route(read().to(health::ready)))
        .service(at(&FLAG).guard(admin()).route(read().to(flag::get)).route(web::put().to(flag::put)))
        .service(at(&FLAG_AUDIT).guard(admin()).route(read().to(flag::audit)));
}

/// The answer for unknown paths, for `App::default_service`.
///
/// # Errors
/// Always [`ApiError::NotFound`].
pub async fn not_found() -> Result<HttpResponse, ApiError> {
    Err(ApiError::NotFound)
}

/// `HEAD` works like `GET`; the server leaves out the body.
fn read() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}
