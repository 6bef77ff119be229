//! One file a section: its settings, how they are read, and whether they make sense by themselves.

mod admin;
mod cors;
mod demo_shop;
mod flags;
mod gate;
mod identity;
mod limited_drop;
mod load_shedding;
mod log;
mod node_address;
mod queue;
mod rate_limit;
mod redis_server;
mod server;
mod store;
mod token;
mod upstream;

pub use admin::AdminConfig;
pub use cors::CorsConfig;
pub use demo_shop::DemoShopConfig;
pub use flags::FlagsConfig;
pub use gate::GateConfig;
pub use identity::{IdentityConfig, IdentityMode, JwtAlgorithm};
pub use limited_drop::LimitedDropConfig;
pub use load_shedding::LoadSheddingConfig;
pub use log::{LogConfig, LogFormat};
pub use node_address::{NoAddress, NodeAddress};
pub use queue::QueueConfig;
pub use rate_limit::RateLimitConfig;
pub use redis_server::{OnFailure, RedisConfig, RedisMode, RedisTls};
pub use server::ServerConfig;
pub use store::{StoreConfig, StoreKind};
pub use token::TokenConfig;
pub use upstream::{HostHeader, UpstreamConfig, UpstreamUrl};
