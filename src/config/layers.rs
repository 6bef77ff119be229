//! The sources of settings, laid over each other, and the reader that takes them out again, key by key.
//!
//! What no section has asked for in the end is a key that does not exist.

use std::{collections::BTreeMap, path::Path};

use super::{
    DEFAULT_TOML,
    error::{ConfigErrors, Origin, Problems},
    service_links,
    value::{Raw, Value},
};

/// What every variable of ours begins with.
const PREFIX: &str = "VQ_";

/// One setting as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// `queue.tick_ms`.
    pub key: String,
    /// The value as people may see it: of a secret only that it is set. None: not set.
    pub shown: Option<String>,
    /// Where it comes from; none where nothing sets it.
    pub origin: Option<Origin>,
}

/// All sources together: what was set last counts.
#[derive(Debug)]
pub(super) struct Layers {
    values: BTreeMap<String, (Raw, Origin)>,
    settings: Vec<Setting>,
    problems: Problems,
}

impl Layers {
    /// `config/default.toml` alone.
    pub(super) fn of_default() -> Self {
        let mut layers = Self { values: BTreeMap::new(), settings: Vec::new(), problems: Problems::default() };
        layers.add_toml(DEFAULT_TOML, &Origin::Default);
        layers
    }

    /// Whether anything, also an empty variable, is said about this setting.
    pub(super) fn says(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Lays a TOML text below: what is set already stays.
    pub(super) fn add_toml_below(&mut self, text: &str, origin: &Origin) {
        let set = std::mem::take(&mut self.values);
        self.add_toml(text, origin);
        self.values.extend(set);
    }

    /// Lays a file on top.
    pub(super) fn add_file(&mut self, path: &Path) {
        let origin = Origin::File(path.to_owned());
        match std::fs::read_to_string(path) {
            Ok(text) => self.add_toml(&text, &origin),
            Err(error) => self.problems.add_from("", &origin, format!("cannot be read: {error}")),
        }
    }

    /// Lays a TOML text on top.
    pub(super) fn add_toml(&mut self, text: &str, origin: &Origin) {
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                // Only the message and the place: the error's own text quotes the line, which may hold a secret.
                let line =
                    text.get(..error.span().map_or(0, |span| span.start)).unwrap_or(text).matches('\n').count() + 1;
                self.problems.add_from("", origin, format!("line {line} is not TOML: {}", error.message()));
                return;
            }
        };
        for (section, value) in table {
            match value {
                toml::Value::Table(keys) if !keys.is_empty() => {
                    for (key, value) in keys {
                        self.values.insert(format!("{section}.{key}"), (Raw::Toml(value), origin.clone()));
                    }
                }
                other => {
                    self.values.insert(section, (Raw::Toml(other), origin.clone()));
                }
            }
        }
    }

    /// Lays the variables on top, but for those that Kubernetes sets.
    pub(super) fn add_variables(&mut self, env: impl IntoIterator<Item = (String, String)>) {
        for (name, text) in env {
            let Some(rest) = name.strip_prefix(PREFIX).filter(|rest| !service_links::is_one(rest, &text)) else {
                continue;
            };
            let key = rest.replacen("__", ".", 1).to_ascii_lowercase();
            let origin = Origin::Variable(name);
            if origin != Origin::Variable(variable_of(&key)) {
                self.problems.add_from(&key, &origin, "is not a setting: variables are written VQ_SECTION__KEY");
                continue;
            }
            self.values.insert(key, (Raw::Text(text), origin));
        }
    }

    /// A reader of the section `name`.
    pub(super) fn section(&mut self, name: &'static str) -> SectionReader<'_> {
        SectionReader { layers: self, name }
    }

    /// What was read, unless there are mistakes or keys that nobody has asked for.
    pub(super) fn finish(mut self) -> Result<Vec<Setting>, ConfigErrors> {
        let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (section, key) in self.settings.iter().filter_map(|seen| seen.key.split_once('.')) {
            known.entry(section).or_default().push(key);
        }
        for (key, (raw, origin)) in &self.values {
            let section = key.split('.').next().unwrap_or_default();
            let what = match known.get(section) {
                None => {
                    let sections: Vec<&str> = known.keys().copied().collect();
                    format!("is not a setting: the sections are {}", sections.join(", "))
                }
                Some(_) if key == section && raw.is_empty_table() => continue,
                Some(keys) => format!("is not a setting: the keys of [{section}] are {}", keys.join(", ")),
            };
            self.problems.add_from(key, origin, what);
        }
        self.problems.into_result(|_| None)?;
        Ok(self.settings)
    }
}

/// The variable of a key: `queue.tick_ms` is `VQ_QUEUE__TICK_MS`.
fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replacen('.', "__", 1).to_ascii_uppercase())
}

/// A mistake in one table of a list.
#[derive(Debug)]
pub(super) struct Mistake {
    key: String,
    what: String,
}

impl Mistake {
    /// At this key of the table.
    pub(super) fn new(key: &str, what: impl Into<String>) -> Self {
        Self { key: key.to_owned(), what: what.into() }
    }
}

/// Takes one section's settings out.
pub(super) struct SectionReader<'a> {
    layers: &'a mut Layers,
    name: &'static str,
}

impl SectionReader<'_> {
    /// A setting that always has a value. After a mistake the returned one stands for nothing: [`Layers::finish`] fails.
    pub(super) fn get<T: Value + Default>(&mut self, key: &str) -> T {
        self.read(key, false).unwrap_or_default()
    }

    /// A setting that may be left out. An empty variable leaves it out, too.
    pub(super) fn optional<T: Value>(&mut self, key: &str) -> Option<T> {
        self.read(key, true)
    }

    /// A list of tables, in a variable as a TOML array. A mistake is named with the table's place, from 0, and its own
    /// key: `gate.routes[1].path`.
    pub(super) fn tables<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&toml::Table) -> Result<T, Mistake>,
        shown: impl Fn(&T) -> String,
    ) -> Vec<T> {
        let key = format!("{}.{key}", self.name);
        let Some((raw, origin)) = self.layers.values.remove(&key) else {
            self.layers.problems.add(&key, "has no default");
            return Vec::new();
        };
        let items = raw.array().unwrap_or_else(|| {
            self.layers.problems.add_from(&key, &origin, "must be a list of tables, [{ … }, { … }]");
            Vec::new()
        });
        let mut read = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let mistake = match item {
                toml::Value::Table(table) => match parse(table) {
                    Ok(value) => {
                        read.push(value);
                        continue;
                    }
                    Err(Mistake { key: inner, what }) => (format!("{key}[{at}].{inner}"), what),
                },
                _ => (format!("{key}[{at}]"), "must be a table, { … }".to_owned()),
            };
            self.layers.problems.add_from(&mistake.0, &origin, mistake.1);
        }
        let shown = read.iter().map(shown).collect::<Vec<_>>().join(", ");
        self.layers.settings.push(Setting { key, shown: Some(format!("[{shown}]")), origin: Some(origin) });
        read
    }

    fn read<T: Value>(&mut self, key: &str, may_be_missing: bool) -> Option<T> {
        let key = format!("{}.{key}", self.name);
        let found = self.layers.values.remove(&key);
        let (value, origin) = match found {
            Some((raw, origin)) if may_be_missing && raw.is_empty_text() => (None, Some(origin)),
            Some((raw, origin)) => match T::parse(&raw) {
                Ok(value) => (Some(value), Some(origin)),
                Err(allowed) => {
                    let value = if T::SECRET { String::new() } else { format!(", not {raw}") };
                    self.layers.problems.add_from(&key, &origin, format!("must be {allowed}{value}"));
                    (None, Some(origin))
                }
            },
            None => {
                if !may_be_missing {
                    self.layers.problems.add(&key, "has no default");
                }
                (None, None)
            }
        };
        self.layers.settings.push(Setting { key, shown: value.as_ref().map(T::shown), origin });
        value
    }
}
