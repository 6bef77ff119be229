//! What the handlers share, and whether the process takes requests.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use super::{bearer::BearerKey, cors::Cors, limit::EnterLimit, served::Served};
use crate::{
    clock::StoreClock, config::Config, flags::FeatureFlags, gate::EntryTokenGate, identity::Identify, metrics::Metrics,
    service::VirtualQueueService,
};

/// What the handlers share: one for each process, in `web::Data`.
pub struct HttpState {
    /// Enter, status, leave, stats.
    pub service: Arc<VirtualQueueService>,
    /// Decides for proxies as for the purchase routes.
    pub gate: EntryTokenGate,
    /// The rule in force, for the operator's API.
    pub flags: Arc<FeatureFlags>,
    /// How buyers are identified.
    pub identity: Identify,
    /// How often one address may enter (`rate_limit`); `None`: no limit.
    pub enter_limit: Option<EnterLimit>,
    /// Where answers are counted.
    pub metrics: Arc<Metrics>,
    /// The store's time.
    pub clock: StoreClock,
    /// Whether the process takes requests.
    pub lifecycle: Arc<Lifecycle>,
    /// The HTTP part of the configuration.
    pub options: HttpOptions,
}

/// The HTTP part of the configuration.
#[derive(Debug)]
pub struct HttpOptions {
    /// False: limited drops answer 404 (`limited_drop.enabled`).
    pub limited_drops: bool,
    /// The pass also comes in a cookie (`token.cookie`).
    pub cookie: bool,
    /// `None`: the admin API does not exist (`admin.token`).
    pub admin: Option<BearerKey>,
    /// `None`: shops do not settle (`gate.settle_token`).
    pub settle: Option<BearerKey>,
    /// Which pages may call from a browser; `None`: only pages of the same origin (`cors.allowed_origins`).
    pub cors: Option<Cors>,
    /// Which routes exist, for the description.
    pub served: Served,
}

impl HttpOptions {
    /// From the configuration.
    pub fn from_config(config: &Config) -> Self {
        Self {
            limited_drops: config.limited_drop.enabled,
            cookie: config.token.cookie,
            admin: config.admin.token.as_ref().map(BearerKey::new),
            settle: config.gate.settle_token.as_ref().map(BearerKey::new),
            cors: Cors::from_config(config),
            served: Served::from_config(config),
        }
    }
}

/// Whether the process takes requests: first starting, then serving, then draining. It never goes back.
#[derive(Debug, Default)]
pub struct Lifecycle(AtomicU8);

const SERVING: u8 = 1;
const DRAINING: u8 = 2;

impl Lifecycle {
    /// In the state starting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starting is over. No effect once draining has begun.
    pub fn serving(&self) {
        self.0.fetch_max(SERVING, Ordering::Release);
    }

    /// Shutdown has begun: load balancers should send no more requests.
    pub fn draining(&self) {
        self.0.fetch_max(DRAINING, Ordering::Release);
    }

    /// Whether the process takes requests.
    pub fn is_serving(&self) -> bool {
        self.0.load(Ordering::Acquire) == SERVING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draining_process_never_serves_again() {
        let life = Lifecycle::new();
        assert!(!life.is_serving());
        life.serving();
        assert!(life.is_serving());
        life.draining();
        life.serving();
        assert!(!life.is_serving());
    }
}
