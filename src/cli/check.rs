//! `config check`: what would be in force, or what is wrong.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::{app, config::Config};

/// Prints every setting with its origin to `out` and succeeds, or every mistake to `err` and fails. What works but is
/// unwise is a warning on `err`.
pub(super) fn run(config: Result<Config, String>, out: &mut impl Write, err: &mut impl Write) -> io::Result<ExitCode> {
    let config = match config {
        Ok(config) => config,
        Err(mistakes) => {
            writeln!(err, "{mistakes}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    for setting in config.settings() {
        let value = setting.shown.as_deref().unwrap_or("(not set)");
        let value = if setting.key == "redis.url" { &config.redis.address() } else { value };
        let origin = setting.origin.as_ref().map(ToString::to_string).unwrap_or_default();
        writeln!(out, "{:<40} {value:<28} {origin}", setting.key)?;
    }
    let warnings = match app::check(&config) {
        Ok(warnings) => warnings,
        Err(mistake) => {
            writeln!(err, "{mistake}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    for warning in warnings {
        writeln!(err, "warning: {warning}")?;
    }
    writeln!(out, "the configuration is usable")?;
    Ok(ExitCode::SUCCESS)
}
