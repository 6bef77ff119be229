//! Virtual Queue: a waiting room that stands in front of scarce things.
//!
//! Everybody who arrives gets a fixed number, sees how many are ahead and how long it takes, and is let through in
//! exact batches with a signed pass. The purchase API behind it only ever sees people with a valid pass.
//!
//! # The map
//!
//! A module imports only modules above it in this table; a test (`tests/it/layers.rs`) holds the sources to it.
//!
//! | module | what it is |
//! |---|---|
//! | [`domain`] | targets, people, places, passes, books: pure |
//! | [`clock`] | the queue's time, which is the store's |
//! | [`token`] | the pass: signing, verifying, rotating secrets |
//! | [`config`] | what can be set, from where, and whether it makes sense |
//! | [`metrics`] | every metric, its help text and labels |
//! | [`problem`] | the one form of an error answer |
//! | [`telemetry`] | the log: its form, and how many lines one place in the code may write |
//! | [`identity`] | who asks: a header that is believed, or a token that is checked |
//! | [`redis`] | keys, scripts, connections, circuit breakers, Sentinel and Cluster |
//! | [`store`] | the queue itself: traits, in memory and on Redis (with group commit) |
//! | [`flags`] | the switch: rule, rollout, snapshot, audit |
//! | [`demo_shop`] | the built-in shop for the demo and the end-to-end tests |
//! | [`service`] | enter, status, leave, stats; the flag branch and failing open live here and only here |
//! | [`actors`] | the pump: one admission actor a target, the directory that keeps them, the metrics actor |
//! | [`gate`] | `EntryTokenGate`, the middleware before the purchase routes |
//! | [`proxy`] | the gateway: everything that is no route of ours, to the shop and back |
//! | [`http`] | routes, handlers, errors, OpenAPI |
//! | [`app`] | the composition root |
//! | [`cli`] | the commands |

pub mod actors;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
#[cfg(feature = "demo-shop")]
pub mod demo_shop;
pub mod domain;
pub mod flags;
pub mod gate;
pub mod http;
pub mod identity;
pub mod metrics;
pub mod problem;
pub mod proxy;
pub mod redis;
pub mod service;
pub mod store;
pub mod telemetry;
pub mod token;
