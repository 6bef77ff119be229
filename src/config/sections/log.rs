use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::config::{
    error::Problems,
    layers::SectionReader,
    value::{Raw, Value, one_of},
};

/// The log.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// `text` or `json`.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,virtual_queue=debug`.
    pub level: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For collectors.
    Json,
}

impl LogConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { format: section.get("format"), level: section.get("level") }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        if self.filter().is_none() {
            problems.add(
                "log.level",
                format!(
                    "must be off, error, warn, info, debug, trace, or a filter such as info,virtual_queue=debug, not \
                     {:?}",
                    self.level
                ),
            );
        }
    }

    /// The filter, if `level` is one. A lone word must be a level: the library would take a misspelt one for the name
    /// of a crate, and log nothing else. So must what follows a `=`, which it would do without.
    pub(crate) fn filter(&self) -> Option<EnvFilter> {
        let levels_are_there = !self.level.split(',').any(|part| part.trim_end().ends_with('='));
        let lone_words_are_levels = self
            .level
            .split(',')
            .filter(|part| !part.contains(['=', '[']))
            .all(|word| word.trim().parse::<LevelFilter>().is_ok() && !word.trim().is_empty());
        // actix reports each request that is no HTTP as an error of its own: anybody could fill the log. What the
        // level says of it comes later, and wins.
        let all = format!("actix_http=off,{}", self.level);
        EnvFilter::builder().parse(all).ok().filter(|_| lone_words_are_levels && levels_are_there)
    }
}

impl Value for LogFormat {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("text", Self::Text), ("json", Self::Json)])
    }

    fn shown(&self) -> String {
        match self {
            Self::Text => "\"text\"".to_owned(),
            Self::Json => "\"json\"".to_owned(),
        }
    }
}
