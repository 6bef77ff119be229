//! Which pages of other origins may call from a browser, and what their scripts may read (CORS, the Fetch standard).
//!
//! Here: the queue's API, and the purchase routes of the built-in shop. A shop behind the gateway keeps its own rules:
//! its preflights are forwarded and its headers stay unchanged; only our own refusals get our headers.

use actix_web::{
    Error, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{
            ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
            ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN, VARY,
        },
    },
    middleware::Next,
};

use crate::{config::Config, problem::PROBLEM_JSON, proxy::FromShop};

/// The methods that a page may use.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");

/// The headers that a page may send, besides those always allowed and those in `cors.allowed_headers`.
const HEADERS: [&str; 4] = ["X-User-Id", "X-Entry-Token", "Authorization", "Content-Type"];

/// The headers that a script may read.
const EXPOSED: HeaderValue = HeaderValue::from_static("Retry-After, X-Virtual-Queue-Degraded, X-Request-Id");

/// How long a browser may cache a preflight, in seconds.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

/// The origins that may call.
#[derive(Debug)]
pub struct Cors {
    allowed: Vec<HeaderValue>,
    /// The headers that a page may send.
    headers: HeaderValue,
    /// The purchase routes are ours: the shop is the built-in one.
    shop_is_ours: bool,
}

/// Who owns a route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Queue,
    Shop,
    /// For machines and operators, including proxies. Pages must not call these.
    Management,
}

impl Cors {
    /// From the configuration; `None`: no other origin may call.
    pub fn from_config(config: &Config) -> Option<Self> {
        let allowed: Vec<HeaderValue> =
            config.cors.allowed_origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
        let more = config.cors.allowed_headers.iter().map(String::as_str);
        let headers = HEADERS.into_iter().chain(more).collect::<Vec<_>>().join(", ");
        // The configuration accepts only header names.
        let headers = HeaderValue::from_str(&headers).unwrap_or_else(|_| HeaderValue::from_static(""));
        let shop_is_ours = config.demo_shop.enabled == Some(true);
        (!allowed.is_empty()).then_some(Self { allowed, headers, shop_is_ours })
    }

    /// The origin of a request, if it may call: exactly one `Origin` header, with a configured origin.
    fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut origins = headers.get_all(ORIGIN);
        let (Some(origin), None) = (origins.next(), origins.next()) else { return None };
        self.allowed.contains(origin).then(|| origin.clone())
    }

    fn preflight(&self, origin: &HeaderValue) -> HttpResponse {
        let mut response = HttpResponse::NoContent().finish();
        let headers = response.headers_mut();
        allow(headers, origin.clone());
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.headers.clone());
        headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED);
        headers.append(VARY, HeaderValue::from_static("Origin"));
        response
    }

    fn is_ours(&self, owner: Owner) -> bool {
        owner == Owner::Queue || (owner == Owner::Shop && self.shop_is_ours)
    }

    /// Answers a preflight, or adds the headers to the answer of the next service.
    pub(super) async fn around<B: MessageBody + 'static>(
        &self,
        request: ServiceRequest,
        next: Next<B>,
    ) -> Result<ServiceResponse<EitherBody<B>>, Error> {
        let owner = owner_of(request.path());
        let origin = self.allowed(request.headers());
        if let Some(origin) = &origin
            && self.is_ours(owner)
            && request.method() == Method::OPTIONS
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        {
            return Ok(request.into_response(self.preflight(origin)).map_into_right_body());
        }
        let mut response = next.call(request).await?;
        let ours = self.is_ours(owner) || (owner == Owner::Shop && is_refusal_of_ours(&response));
        if ours {
            let headers = response.headers_mut();
            // Also without an origin: a cache must not give one page's answer to another.
            headers.append(VARY, HeaderValue::from_static("Origin"));
            if let Some(origin) = origin {
                allow(headers, origin);
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            }
        }
        Ok(response.map_into_left_body())
    }
}

fn owner_of(path: &str) -> Owner {
    const MANAGEMENT: [&str; 5] = ["/metrics", "/health/", "/admin/", "/openapi.json", "/gate/"];
    if path.starts_with("/virtual-queues/") {
        Owner::Queue
    } else if MANAGEMENT.iter().any(|start| path.starts_with(start)) {
        Owner::Management
    } else {
        Owner::Shop
    }
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
}

/// For a shop with rules of its own: a problem that is not the shop's is the gate's or the gateway's.
fn is_refusal_of_ours(response: &ServiceResponse<impl MessageBody>) -> bool {
    response.response().extensions().get::<FromShop>().is_none()
        && response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == PROBLEM_JSON)
}
