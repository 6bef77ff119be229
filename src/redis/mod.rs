//! Access to Redis: keys, scripts, masters and how they are found, connections, the circuit breaker.
//!
//! Here: everything that would be the same for any use of Redis by a waiting room. Not here: what a reply means (see
//! [`crate::store::redis`]), and what people get while Redis is unavailable (see [`crate::service`]).

pub mod breaker;
mod call;
mod cluster;
pub mod connection;
mod failure;
pub mod keys;
mod master;
mod masters;
mod probe;
pub mod scripts;
mod sentinel;
mod slots;
#[cfg(test)]
#[path = "../../tests/support/redis_process.rs"]
mod test_process;
#[cfg(test)]
pub(crate) mod test_server;
mod tls;

pub use call::{Call, Lane};
pub use failure::{Failure, Moving};
pub use master::Master;
pub use masters::Masters;
pub use tls::BadTls;
