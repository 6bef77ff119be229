//! What the labels of metrics may be: never more values than are listed here.

use crate::token::PassRefusal;

/// What happens to passes: the `event` label of `virtual_queue_tokens_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenEvent {
    /// The queue gave one.
    Issued,
    /// One bought.
    Consumed,
    /// One ended unused.
    Expired,
    /// One was given up.
    Revoked,
    /// One was given without queueing.
    Direct,
}

impl TokenEvent {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Issued => "issued",
            Self::Consumed => "consumed",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Direct => "direct",
        }
    }
}

/// Why a purchase without a right to it was refused: the `reason` label of `virtual_queue_bypass_attempts_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BypassReason {
    /// No pass at all.
    NoPass,
    /// No, a malformed, or a doubled user id.
    NoUser,
    /// Another spelling of a gated path.
    OddPath,
    /// A header that the shop may take for one of ours, in what a proxy asks about.
    LookAlikeHeader,
    /// A pass, and not a good one.
    Refused(PassRefusal),
}

impl BypassReason {
    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoPass => "no_pass",
            Self::NoUser => "no_user",
            Self::OddPath => "odd_path",
            Self::LookAlikeHeader => "look_alike_header",
            Self::Refused(refusal) => refusal.label(),
        }
    }
}

/// A call of the queue API: the `operation` label of `virtual_queue_redis_degraded_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `POST …/entries`.
    Enter,
    /// `GET …/entries/me`.
    Status,
    /// `DELETE …/entries/me`.
    Leave,
    /// `GET …/stats`.
    Stats,
    /// A purchase at the gate.
    Gate,
}

impl Operation {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Status => "status",
            Self::Leave => "leave",
            Self::Stats => "stats",
            Self::Gate => "gate",
        }
    }
}

/// Why an admission actor was started again: the `cause` label of `virtual_queue_pump_restarts_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartCause {
    /// It was gone: a panic, or stopped.
    Gone,
    /// None of its calls has been answered for too long.
    Frozen,
    /// The directory was gone, and all actors were started again.
    Directory,
    /// The metrics actor was gone or took no more reports, and all were started again.
    Metrics,
}

impl RestartCause {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Frozen => "frozen",
            Self::Directory => "directory",
            Self::Metrics => "metrics",
        }
    }
}

/// How a tick failed: the `how` label of `virtual_queue_tick_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickFailure {
    /// The store did not answer, or said no.
    Error,
    /// It panicked.
    Panic,
}

impl TickFailure {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Panic => "panic",
        }
    }
}
