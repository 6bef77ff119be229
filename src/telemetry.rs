//! The log: structured lines on standard error, as text for people or as JSON for collectors.
//!
//! Here: where lines go and how they look. Not here: what is logged; and no line anywhere holds a secret or a pass.

mod flood;
#[cfg(test)]
pub(crate) mod lines;

use std::{
    io::{self, IsTerminal},
    sync::Arc,
};

use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use self::flood::Flood;
pub use self::flood::lines_kept_back;
use crate::{
    clock::SystemClock,
    config::{LogConfig, LogFormat},
};

/// Starts the log for the whole process. Where one runs already, that one stays, so tests may call this as often as
/// they like.
pub fn init(config: &LogConfig) {
    // Only a configuration that was never validated has no filter.
    let filter = config.filter().unwrap_or_else(|| EnvFilter::new("info"));
    // Colours are for eyes: in a file or a collector they would stand between the words.
    let colours = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Outermost the level: what nobody wants to see takes no room from the rest.
    let started = tracing_subscriber::registry()
        .with(Flood::new(Arc::new(SystemClock::new())))
        .with(lines)
        .with(filter)
        .try_init();
    if started.is_err() {
        tracing::debug!("the log was running already");
    }
}
