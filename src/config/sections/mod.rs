//! One file a section: its settings, how they are read, and whether they make sense by themselves.

mod admin;
mod demo_shop;
mod flags;
mod gate;
mod limited_drop;
mod load_shedding;
mod log;
mod queue;
mod redis_server;
mod server;
mod store;
mod token;
mod upstream;

pub use admin::AdminConfig;
pub use demo_shop::DemoShopConfig;
pub use flags::FlagsConfig;
pub use gate::GateConfig;
pub use limited_drop::LimitedDropConfig;
pub use load_shedding::LoadSheddingConfig;
pub use log::{LogConfig, LogFormat};
pub use queue::QueueConfig;
pub use redis_server::{OnFailure, RedisConfig, RedisMode};
pub use server::ServerConfig;
pub use store::{StoreConfig, StoreKind};
pub use token::TokenConfig;
pub use upstream::{HostHeader, UpstreamConfig, UpstreamUrl};
