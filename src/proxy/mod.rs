//! The gateway: everything that is no route of ours streams through to the shop and back (DESIGN 1 and 8).
//!
//! Here: what of a request and of an answer goes on, byte for byte, and how long the shop may take. Not here: who may
//! buy ([`crate::gate`], which stands before this), where it is mounted ([`crate::app`]).
//!
//! HTTP towards the shop is hyper's and not the one of actix's own client: that one takes an answer cut short for a whole
//! one, an interim answer (103) for the final one, adds a `Date` to requests, and reads no answer before a body is sent.
//! Which connection a request uses is decided here.

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
