//! The log: structured lines on standard error, as text for people or as JSON for collectors.
//!
//! Here: where lines go and how they look. Not here: what is logged; and no line anywhere holds a secret or a pass.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, util::SubscriberInitExt};

use crate::config::{LogConfig, LogFormat};

/// Starts the log for the whole process. Where one runs already, that one stays, so tests may call this as often as
/// they like.
pub fn init(config: &LogConfig) {
    // Only a configuration that was never validated has no filter.
    let filter = config.filter().unwrap_or_else(|| EnvFilter::new("info"));
    // Colours are for eyes: in a file or a collector they would stand between the words.
    let colours = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr);
    let started = match config.format {
        LogFormat::Text => lines.finish().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init(),
    };
    if started.is_err() {
        tracing::debug!("the log was running already");
    }
}
