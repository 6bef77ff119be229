//! The routes: one table of paths and their methods.

use actix_web::{HttpRequest, HttpResponse, Resource, Route, guard, web};

use super::{admin, error::ApiError, health, openapi, queue, verify};

/// A path with named parameters, and its methods. Each resource carries it as application data, so that metrics, spans
/// and `Allow` need no lookup and build no string.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteTemplate {
    /// `/virtual-queues/{type}/{targetId}/stats`.
    pub path: &'static str,
    /// The methods as in `Allow`; every `GET` also allows `HEAD`.
    pub allow: &'static str,
}

pub(super) static ENTRIES: RouteTemplate =
    RouteTemplate { path: "/virtual-queues/{type}/{targetId}/entries", allow: "POST" };
pub(super) static ENTRY: RouteTemplate =
    RouteTemplate { path: "/virtual-queues/{type}/{targetId}/entries/me", allow: "GET, HEAD, DELETE" };
pub(super) static STATS: RouteTemplate =
    RouteTemplate { path: "/virtual-queues/{type}/{targetId}/stats", allow: "GET, HEAD" };
pub(super) static OPENAPI: RouteTemplate = RouteTemplate { path: "/openapi.json", allow: "GET, HEAD" };
pub(super) static METRICS: RouteTemplate = RouteTemplate { path: "/metrics", allow: "GET, HEAD" };
pub(super) static LIVE: RouteTemplate = RouteTemplate { path: "/health/live", allow: "GET, HEAD" };
pub(super) static READY: RouteTemplate = RouteTemplate { path: "/health/ready", allow: "GET, HEAD" };
pub(super) static FLAG: RouteTemplate =
    RouteTemplate { path: "/admin/flags/virtual-queue.enabled", allow: "GET, HEAD, PUT" };
pub(super) static FLAG_AUDIT: RouteTemplate =
    RouteTemplate { path: "/admin/flags/virtual-queue.enabled/audit", allow: "GET, HEAD" };
pub(super) static ORDERS: RouteTemplate = RouteTemplate { path: "/limited-drops/{dropId}/orders", allow: "POST" };
pub(super) static SEATS: RouteTemplate = RouteTemplate { path: "/events/{id}/seats/select", allow: "POST" };
pub(super) static TICKETS: RouteTemplate = RouteTemplate { path: "/events/{id}/tickets", allow: "POST" };

/// All other paths under our own prefix: none of them is the shop's.
const ELSE_OF_QUEUES: &str = "/virtual-queues{path:(/.*)?}";

/// For all other routes: a path is never a label.
pub static UNMATCHED: RouteTemplate = RouteTemplate { path: "unmatched", allow: "" };

pub(super) static VERIFY: RouteTemplate = RouteTemplate { path: "/gate/verify", allow: "GET, HEAD" };
/// Takes every method, because it is the original request's. Not in the description: only Envoy calls it.
static VERIFY_PATH: RouteTemplate = RouteTemplate { path: "/gate/verify{path:.*}", allow: "" };
pub(super) static SETTLE: RouteTemplate = RouteTemplate { path: "/gate/settle", allow: "POST" };

/// Every route, for the tests of the description and of the methods.
#[cfg(test)]
pub(super) static ALL: [&RouteTemplate; 14] = [
    &ENTRIES,
    &ENTRY,
    &STATS,
    &OPENAPI,
    &METRICS,
    &LIVE,
    &READY,
    &FLAG,
    &FLAG_AUDIT,
    &ORDERS,
    &SEATS,
    &TICKETS,
    &VERIFY,
    &SETTLE,
];

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
    cfg.service(at(&METRICS).route(read().to(health::metrics)))
        .service(at(&LIVE).route(read().to(health::live)))
        .service(at(&READY).route(read().to(health::ready)))
        .service(
            at(&FLAG)
                .guard(guard::fn_guard(admin::exists))
                .route(read().to(admin::flag))
                .route(web::put().to(admin::put_flag)),
        )
        .service(at(&FLAG_AUDIT).guard(guard::fn_guard(admin::exists)).route(read().to(admin::audit)));
}

/// The answer for unknown paths, for `App::default_service`.
///
/// # Errors
/// Always [`ApiError::NotFound`].
pub async fn not_found() -> Result<HttpResponse, ApiError> {
    Err(ApiError::NotFound)
}

async fn method_not_allowed(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let template = request.app_data::<&'static RouteTemplate>().ok_or(ApiError::NotFound)?;
    Err(ApiError::MethodNotAllowed { allow: template.allow })
}

pub(super) fn at(template: &'static RouteTemplate) -> Resource {
    web::resource(template.path).app_data(template).default_service(web::to(method_not_allowed))
}

/// `HEAD` works like `GET`; the server leaves out the body.
fn read() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}
