//! The scripts of `redis-scripts/`, put together with what they include.

use std::sync::LazyLock;

/// How many arguments a script takes after the eight that all scripts of a target take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnArgs {
    /// Exactly so many.
    Exactly(usize),
    /// So many or more.
    AtLeast(usize),
}

/// A script, ready to run.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    source: &'static str,
    own_args: OwnArgs,
    script: ::redis::Script,
}

/// Arguments that every script of a target takes (`includes/target.lua`).
pub const SHARED_ARGS: usize = 8;

impl Script {
    fn new(name: &'static str, own_args: OwnArgs, source: &'static str) -> Self {
        Self { name, source, own_args, script: ::redis::Script::new(source) }
    }

    /// Its file's name without the ending; also the `script` label of the metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole text as Redis gets it.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// How many arguments of its own it takes.
    pub fn own_args(&self) -> OwnArgs {
        self.own_args
    }

    /// An invocation to fill.
    pub(super) fn prepare(&self) -> ::redis::ScriptInvocation<'_> {
        self.script.prepare_invoke()
    }
}

macro_rules! source {
    ($first:literal $(, $more:literal)*) => {
        concat!(
            include_str!(concat!("../../redis-scripts/", $first))
            $(, "\n", include_str!(concat!("../../redis-scripts/", $more)))*
        )
    };
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $static:ident = $name:literal, $own:expr, [$($file:literal),+];)+) => {
        $($(#[$doc])* pub static $static: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, $own, source!($($file),+)));)+

        /// Every script there is.
        pub fn all() -> Vec<&'static Script> {
            vec![$(&*$static),+]
        }
    };
}

scripts! {
    /// People come.
    ENTER = "enter", OwnArgs::AtLeast(1), ["includes/target.lua", "includes/visit.lua", "enter.lua"];
    /// People poll.
    STATUS = "status", OwnArgs::AtLeast(1), ["includes/target.lua", "includes/visit.lua", "status.lua"];
    /// Somebody gives up.
    LEAVE = "leave", OwnArgs::Exactly(1), ["includes/target.lua", "leave.lua"];
    /// A purchase begins.
    CLAIM = "claim", OwnArgs::Exactly(4), ["includes/target.lua", "claim.lua"];
    /// A purchase ended.
    SETTLE = "settle", OwnArgs::Exactly(4), ["includes/target.lua", "settle.lua"];
    /// The silent go.
    EVICT = "evict", OwnArgs::Exactly(0), ["includes/target.lua", "includes/silence.lua", "evict.lua"];
    /// One tick.
    ADMIT = "admit", OwnArgs::Exactly(0), ["includes/target.lua", "includes/silence.lua", "admit.lua"];
    /// The books.
    STATS = "stats", OwnArgs::Exactly(0), ["includes/target.lua", "stats.lua"];
    /// Direct passes go into the books.
    DIRECT = "direct", OwnArgs::Exactly(1), ["includes/target.lua", "direct.lua"];
    /// Room among the active targets. Not a script of a target: its key is `queue:active`.
    REGISTER = "register", OwnArgs::Exactly(2), ["register.lua"];
}
