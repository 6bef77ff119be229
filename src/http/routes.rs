//! The routes: one table says what is where and which methods it takes.

use actix_web::{HttpRequest, HttpResponse, Resource, Route, guard, web};

use super::{admin, error::ApiError, health, openapi, queue, verify};

/// A path with its parameters as names, and the methods it takes. Carried by each resource as application data, so
/// that metrics, spans and `Allow` find it without looking anything up or building a string.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteTemplate {
    /// `/virtual-queues/{type}/{targetId}/stats`.
    pub path: &'static str,
    /// As `Allow` lists them; `HEAD` stands where `GET` does.
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

/// Everything else under our own prefix: nothing of it is the shop's.
const ELSE_OF_QUEUES: &str = "/virtual-queues{path:(/.*)?}";

/// What is no route of ours: a path is never a label.
pub static UNMATCHED: RouteTemplate = RouteTemplate { path: "unmatched", allow: "" };

pub(super) static VERIFY: RouteTemplate = RouteTemplate { path: "/gate/verify", allow: "GET, HEAD" };
/// Takes every method: it is the original one. Not described for machines: only Envoy calls it.
static VERIFY_PATH: RouteTemplate = RouteTemplate { path: "/gate/verify{path:.*}", allow: "" };
pub(super) static SETTLE: RouteTemplate = RouteTemplate { path: "/gate/settle", allow: "POST" };

/// Every route, for the tests that hold the description and the methods to them.
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

/// What buyers and their apps call, and its description.
pub fn queue_routes(cfg: &mut web::ServiceConfig) {
    cfg.service(at(&ENTRIES).route(web::post().to(queue::enter)))
        .service(at(&ENTRY).route(read().to(queue::poll)).route(web::delete().to(queue::leave)))
        .service(at(&STATS).route(read().to(queue::stats)))
        .service(at(&OPENAPI).route(read().to(openapi::serve)))
        .service(web::resource(ELSE_OF_QUEUES).app_data(&UNMATCHED).to(not_found));
}

/// What a proxy before the shop, and the shop, call. Without `gate.settle_token` there is nothing to settle.
pub fn forward_auth_routes(cfg: &mut web::ServiceConfig) {
    cfg.service(at(&VERIFY).route(read().to(verify::verify)))
        .service(web::resource(VERIFY_PATH.path).app_data(&VERIFY_PATH).to(verify::verify_path))
        .service(at(&SETTLE).guard(guard::fn_guard(verify::shop_settles)).route(web::post().to(verify::settle)));
}

/// What operators and their machines call; on `server.management_port` if that is set, else beside the queue.
/// Without `admin.token` the admin routes are as if they were not there.
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

/// The answer where nothing is: for `App::default_service`.
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

/// `HEAD` works where `GET` does; the server leaves out the body.
fn read() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}
