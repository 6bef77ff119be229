//! `EntryTokenGate`, the middleware in front of the purchase routes (TDD: `EntryTokenGateInterceptor`;
//! `docs/design.md`).
//!
//! Here: which requests are purchases, whether they are allowed, and whether the pass is spent. Not here: what a pass
//! is ([`crate::token`]), who must have one ([`crate::flags`]), the shop.
//!
//! Any actix-web application can wrap its own scopes with it; it needs neither Redis nor the rest of this crate:
//!
//! ```
//! use std::sync::Arc;
//!
//! use actix_web::{App, HttpResponse, web};
//! use virtual_queue::{
//!     clock::StoreClock,
//!     gate::{AlwaysOn, EntryTokenGate},
//!     token::Keyring,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keyring = Keyring::new(&"a secret of at least 32 bytes, shared".into(), &[])?;
//! // Outside the factory: all workers share what the gate counts.
//! let gate = EntryTokenGate::new(Arc::new(keyring), Arc::new(AlwaysOn), StoreClock::system());
//! let app = move || {
//!     App::new().service(
//!         web::scope("/limited-drops")
//!             .wrap(gate.clone())
//!             .route("/{dropId}/orders", web::post().to(HttpResponse::Created)),
//!     )
//! };
//! # let _ = app;
//! # Ok(())
//! # }
//! ```

mod body;
mod decision;
#[cfg(test)]
mod fake_store;
mod forward_auth;
mod look_alike;
mod method;
mod middleware;
mod path;
mod query;
mod refusal;
mod request;
mod route_table;
mod shedding;
mod single_use;

pub use forward_auth::{ClaimHandle, GrantedPurchase, Verdict};
pub use method::Body;
pub use middleware::{EntryTokenGate, EntryTokenGateMiddleware};
pub use request::{ENTRY_TOKEN_HEADER, USER_ID_HEADER, pass_cookie_name};
pub(crate) use request::{is_pass_header, without_passes};
pub use route_table::{GatedRoutes, RouteMatch, Suspect};
pub use single_use::{NoAnswerFromShop, Purchase, ShopsStatus};

pub use crate::domain::{GatedRoute, InvalidPattern, PassRule, PathHeader};
use crate::{
    domain::{MAX_ID, QueueTarget, QueueTargetType, UserId},
    flags::{FeatureFlagEvaluator, Reach},
};

/// Compiles the code of the page about the library.
#[cfg(doctest)]
#[doc = include_str!("../../docs/integrations/library.md")]
struct LibraryPage;

/// A flag that is on for everybody, for applications that have no flag.
#[derive(Debug, Clone, Copy)]
pub struct AlwaysOn;

impl FeatureFlagEvaluator for AlwaysOn {
    fn is_enabled(&self, _target: QueueTarget, _user: UserId) -> bool {
        true
    }

    fn reach(&self, _target: QueueTarget) -> Reach {
        Reach::Everybody
    }

    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget> {
        QueueTarget::new(kind, MAX_ID).ok()
    }

    fn names(&self, _target: QueueTarget) -> bool {
        false
    }
}
