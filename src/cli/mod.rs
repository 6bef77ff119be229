//! The commands: `demo`, `serve`, `config check`, `openapi`.
//!
//! Here: reading arguments, telling people what is wrong, exit codes. Not here: anything that serves, see
//! [`crate::app`]. What is written goes to the writers handed in, so that tests can read it.

mod check;
mod demo;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::{
    app::{self, Addresses},
    config::{Config, Mode},
    http, telemetry,
};

/// The exit code of wrong arguments and wrong configurations.
const MISUSE: u8 = 2;

/// A waiting room for limited drops and ticket sales.
#[derive(Debug, Parser)]
#[command(name = "virtual-queue", version)]
struct Arguments {
    /// A TOML file with the settings that differ from the default
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try it: the queue in memory, a built-in shop, the flag on, a secret made for this run
    Demo,
    /// Run it: the queue on Redis, any number of replicas
    Serve,
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the OpenAPI description of the HTTP interface
    Openapi,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print what `serve` would run with and where each setting comes from, or every mistake
    Check,
}

/// Runs the command in `arguments` (the program's name first) with these variables; gives the exit code.
///
/// # Errors
/// When `out` or `err` cannot be written.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<ExitCode> {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            write!(err, "{}", error.render())?;
            return Ok(MISUSE.into());
        }
        Err(help_or_version) => {
            write!(out, "{}", help_or_version.render())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let load = |mode| -> Result<Config, String> {
        let env = readable(env)?;
        Config::load(arguments.config.as_deref(), env, mode).map_err(|errors| errors.to_string())
    };
    let mode = match arguments.command {
        Command::Demo => Mode::Demo,
        Command::Serve => Mode::Serve,
        Command::Config(ConfigCommand::Check) => return check::run(load(Mode::Serve), out, err),
        Command::Openapi => {
            writeln!(out, "{}", http::openapi_json())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let config = match load(mode) {
        Ok(config) => config,
        Err(mistakes) => {
            writeln!(err, "virtual-queue: {mistakes}")?;
            return Ok(MISUSE.into());
        }
    };
    telemetry::init(&config.log);
    let started = |addresses: &Addresses| {
        for address in &addresses.public {
            writeln!(out, "listening on http://{address}")?;
        }
        for address in &addresses.management {
            writeln!(out, "management on http://{address}")?;
        }
        if mode == Mode::Demo {
            demo::say_what_to_type(&config, addresses, out)?;
        }
        out.flush()
    };
    match app::run(&config, started) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            writeln!(err, "virtual-queue: {error}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Our variables as text. One that is not text is a mistake: read with replacement characters, a secret of random
/// bytes would be a weak one.
fn readable(env: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Vec<(String, String)>, String> {
    let ours = env.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    ours.filter(|(name, _)| name.starts_with("VQ_"))
        .map(|(name, value)| match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(format!("variable {name}: is not UTF-8 text")),
        })
        .collect()
}
