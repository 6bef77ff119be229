//! The words of a waiting room, and the arithmetic that needs nothing but them.
//!
//! Here: targets, people, places, passes, purchase routes, headers that lead to one, books. Not here: time (see [`crate::clock`]), signatures
//! (see [`crate::token`]), anything that waits or fails.

mod gated_route;
mod id;
mod path_header;
mod position;
mod stats;
mod status;
mod target;
mod user_id_form;

pub use gated_route::{GatedRoute, InvalidPattern, PassRule, RouteSegment};
pub use id::{InvalidId, MAX_ID, UserId, parse_canonical_id};
pub use path_header::PathHeader;
pub use position::{Pacing, QueuePosition};
pub use stats::{QueueStats, WAIT_UNIT_MS, WaitHistogram};
pub use status::{EntryToken, PassClaims, QueueStatus};
pub use target::{InvalidTarget, QueueTarget, QueueTargetType};
pub use user_id_form::{InvalidUserId, UserIdForm};
