//! What a configuration serves, for the description.

use std::sync::OnceLock;

use actix_web::web::Bytes;

use crate::{
    config::{Config, IdentityMode},
    domain::{QueueTargetType, UserIdForm},
};

/// What a configuration serves.
#[derive(Debug)]
pub struct Served {
    pub(super) limited_drops: bool,
    pub(super) admin: bool,
    pub(super) settle: bool,
    /// Metrics, health and the admin API are also on this port.
    pub(super) management: bool,
    pub(super) identity: IdentityMode,
    pub(super) ids: UserIdForm,
    /// The purchase routes of an external shop, as (method in lower case, pattern, kind); `None`: those of the built-in
    /// shop.
    pub(super) purchases: Option<Vec<(String, String, QueueTargetType)>>,
    description: OnceLock<Bytes>,
}

impl Served {
    /// From the configuration.
    pub fn from_config(config: &Config) -> Self {
        let routes = config.gate.routes.iter();
        let purchases =
            routes.map(|route| (route.method().to_ascii_lowercase(), route.pattern().to_owned(), route.kind()));
        Self {
            limited_drops: config.limited_drop.enabled,
            admin: config.admin.token.is_some(),
            settle: config.gate.settle_token.is_some(),
            management: config.server.management_port.is_none(),
            identity: config.identity.mode,
            ids: config.identity.ids,
            purchases: config.upstream.url.is_some().then(|| purchases.collect()),
            description: OnceLock::new(),
        }
    }

    /// Its description, generated once.
    pub(super) fn description(&self, generate: impl FnOnce(&Self) -> String) -> Bytes {
        self.description.get_or_init(|| Bytes::from(generate(self))).clone()
    }
}
