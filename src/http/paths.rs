//! The path of each route, and its methods.

use actix_web::{HttpRequest, HttpResponse, Resource, web};

use super::error::ApiError;

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
pub(super) static VERIFY: RouteTemplate = RouteTemplate { path: "/gate/verify", allow: "GET, HEAD" };
/// Takes every method, because it is the original request's. Not in the description: only Envoy calls it.
pub(super) static VERIFY_PATH: RouteTemplate = RouteTemplate { path: "/gate/verify{path:.*}", allow: "" };
pub(super) static SETTLE: RouteTemplate = RouteTemplate { path: "/gate/settle", allow: "POST" };

/// All other paths under our own prefix: none of them is the shop's.
pub(super) const ELSE_OF_QUEUES: &str = "/virtual-queues{path:(/.*)?}";

/// For all other routes: a path is never a label.
pub static UNMATCHED: RouteTemplate = RouteTemplate { path: "unmatched", allow: "" };

/// Every route that is described, for the tests of the description and of the methods.
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

/// The resource at this path. It answers 405 to the methods that it has no handler for.
pub(super) fn at(template: &'static RouteTemplate) -> Resource {
    web::resource(template.path).app_data(template).default_service(web::to(method_not_allowed))
}

async fn method_not_allowed(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let template = request.app_data::<&'static RouteTemplate>().ok_or(ApiError::NotFound)?;
    Err(ApiError::MethodNotAllowed { allow: template.allow })
}
