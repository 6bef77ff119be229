//! The gateway: every request that is not for our own routes streams to the shop and back (`docs/design.md`).
//!
//! Here: what of a request and an answer is forwarded, byte for byte, and how long the shop may take. Not here: who may
//! buy ([`crate::gate`], which runs before this), where it is mounted ([`crate::app`]).
//!
//! The HTTP client for the shop is hyper, not actix's own client, which treats an answer cut short as complete and an
//! interim answer (103) as the final one, adds a `Date` to requests, and reads no answer before the body is sent. This
//! module chooses the connection for each request.

mod answer;
mod connect;
mod failure;
mod forward;
mod head;
mod headers;
mod pool;
mod stream;
mod strict;
mod upload;

pub use answer::FromShop;
pub use forward::{Proxy, ProxySettings, forward};
pub use strict::refuse_ambiguous;
