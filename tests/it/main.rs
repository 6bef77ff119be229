//! The integration tests, one binary: real Redis, real processes, real faults.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells what it measured")]

mod away;
mod bad_input;
mod browser;
mod cluster;
mod docker;
mod documents;
mod failover;
mod fingerprints;
mod flag_unread;
mod forward_auth;
mod forward_shop;
mod gateway;
mod gateway_answers;
mod identity;
mod invariants;
mod layers;
mod life;
mod load_shedding;
mod many_targets;
mod nginx;
mod outage_modes;
mod outages;
mod overselling;
mod own_shop;
mod pass_vectors;
mod pipelining;
mod proxies;
mod proxy;
mod purchases;
mod queueing;
mod redis_group;
#[path = "../support/redis_process.rs"]
mod redis_process;
mod redis_server;
mod redis_tls;
mod replica_faults;
mod rolling_restart;
mod sentinel;
mod server;
mod settings;
mod settling;
mod shop_connections;
mod shops;
mod slow_clients;
mod smuggling;
mod stand;
mod store_contract;
mod store_model;
mod switching;
mod text_ids;
mod upstream;
mod visitors;
mod wire;
