//! What becomes of files, variables and commands.

mod defaults;
mod purchase_routes;
mod secrets;
mod sense;
mod sources;

use secrecy::ExposeSecret;

use super::*;

const SECRET: &str = "0123456789012345678901234567890123456789";

fn env(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Loads for `serve` with a good secret, a file with `toml` in it, and `variables`.
fn load(toml: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), toml).expect("a writable file");
    let mut variables = env(variables);
    variables.insert(0, ("VQ_TOKEN__SECRET".to_owned(), SECRET.to_owned()));
    Config::load(Some(file.path()), variables, Mode::Serve)
}

/// The mistakes as `key: what` lines.
fn mistakes(toml: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let errors = load(toml, variables).expect_err("a mistake");
    errors.problems().iter().map(|problem| format!("{}: {}", problem.key, problem.what)).collect()
}
