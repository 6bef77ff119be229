//! Answers that must not be cached, and the header that marks those given without the store.

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, HeaderName, HeaderValue},
    },
};

/// Says that an answer was given without the store.
pub(super) const DEGRADED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-virtual-queue-degraded"), HeaderValue::from_static("redis"));

/// An answer that must not be cached.
pub(super) fn uncached(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store")));
    response
}
