//! HTTP: the routes, who may call them, and the answers.
//!
//! Here: routes, reading requests, writing responses, the middleware around them, the OpenAPI description. Not here:
//! decisions about a queue ([`crate::service`]), the purchase routes ([`crate::gate`]), the server itself
//! ([`crate::app`]).

mod admin;
mod bearer;
mod connection;
mod cors;
mod entry;
mod error;
mod extract;
mod framing;
mod health;
mod limit;
mod no_shop;
mod openapi;
mod paths;
mod queue;
mod routes;
mod served;
mod stack;
mod state;
#[cfg(test)]
mod tests;
mod uncached;
mod verify;

pub use bearer::BearerKey;
pub use connection::{ClientLimits, ClientStream, UnderWay};
pub use cors::Cors;
pub use error::ApiError;
pub use limit::EnterLimit;
pub use no_shop::no_shop_routes;
pub use openapi::openapi_json;
pub use paths::{RouteTemplate, UNMATCHED};
pub use routes::{forward_auth_routes, management_routes, not_found, queue_routes};
pub use served::Served;
pub use stack::with_middleware;
pub use state::{HttpOptions, HttpState, Lifecycle};
