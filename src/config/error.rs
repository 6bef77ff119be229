//! What is wrong with a configuration, in words for the person who wrote it.

use std::{fmt, path::PathBuf};

use super::Mode;

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// `config/default.toml`.
    Default,
    /// What the command changes of it.
    Command(Mode),
    /// What `identity.mode = "visitor"` changes of it.
    VisitorMode,
    /// The file given with `--config`.
    File(PathBuf),
    /// A variable, by its name.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Command(mode) => write!(f, "default of `{}`", mode.name()),
            Self::VisitorMode => f.write_str("default of identity.mode = \"visitor\""),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, `queue.tick_ms`; empty where a whole file is wrong.
    pub key: String,
    /// Where it was set; none if it was not.
    pub origin: Option<Origin>,
    /// What is wrong and what would be right. Never the value of a secret.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.key.as_str(), &self.origin) {
            ("", Some(origin)) => write!(f, "{origin}: {}", self.what),
            (key, Some(origin)) => write!(f, "{key} ({origin}): {}", self.what),
            (key, None) => write!(f, "{key} (not set): {}", self.what),
        }
    }
}

/// Every mistake found in a configuration; at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    problems: Vec<Problem>,
}

impl ConfigErrors {
    /// The mistakes, in the order they were found.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not usable:")?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// Collects mistakes.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    /// A mistake whose origin is looked up later.
    pub(super) fn add(&mut self, key: &str, what: impl Into<String>) {
        self.0.push(Problem { key: key.to_owned(), origin: None, what: what.into() });
    }

    /// A mistake whose origin is known.
    pub(super) fn add_from(&mut self, key: &str, origin: &Origin, what: impl Into<String>) {
        self.0.push(Problem { key: key.to_owned(), origin: Some(origin.clone()), what: what.into() });
    }

    /// A number outside its bounds is a mistake.
    pub(super) fn check_range(&mut self, key: &str, value: u64, allowed: std::ops::RangeInclusive<u64>) {
        if !allowed.contains(&value) {
            self.add(key, format!("must be from {} to {}, not {value}", allowed.start(), allowed.end()));
        }
    }

    /// No mistakes, or all of them, with the origins that `origin_of` knows filled in.
    pub(super) fn into_result(mut self, origin_of: impl Fn(&str) -> Option<Origin>) -> Result<(), ConfigErrors> {
        for problem in &mut self.0 {
            problem.origin = problem.origin.take().or_else(|| origin_of(&problem.key));
        }
        if self.0.is_empty() { Ok(()) } else { Err(ConfigErrors { problems: self.0 }) }
    }
}
