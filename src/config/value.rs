//! What a setting can be, and how it is written in a file and in a variable.
//!
//! A variable is text: it is read as what the setting needs, so a secret made of digits stays a text, while a file says
//! itself what a value is and is taken at its word.

use std::{fmt, path::PathBuf};

use secrecy::SecretString;

/// A value as it was written.
#[derive(Debug)]
pub(super) enum Raw {
    /// In a file.
    Toml(toml::Value),
    /// In a variable.
    Text(String),
}

impl Raw {
    /// The text, where it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Toml(value) => value.as_str(),
            Self::Text(text) => Some(text),
        }
    }

    /// The items of a TOML array, which a variable may hold as well.
    pub(super) fn array(&self) -> Option<Vec<toml::Value>> {
        match self {
            Self::Toml(value) => value.as_array().cloned(),
            Self::Text(text) => {
                let mut table = format!("list = {text}").parse::<toml::Table>().ok()?;
                match table.remove("list") {
                    Some(toml::Value::Array(items)) if table.is_empty() => Some(items),
                    _ => None,
                }
            }
        }
    }

    /// An empty variable.
    pub(super) fn is_empty_text(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    /// A section with nothing in it.
    pub(super) fn is_empty_table(&self) -> bool {
        matches!(self, Self::Toml(toml::Value::Table(keys)) if keys.is_empty())
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toml(toml::Value::String(text)) | Self::Text(text) => write!(f, "{text:?}"),
            Self::Toml(toml::Value::Integer(number)) => number.fmt(f),
            Self::Toml(toml::Value::Float(number)) => number.fmt(f),
            Self::Toml(toml::Value::Boolean(value)) => value.fmt(f),
            Self::Toml(other) => write!(f, "of type {}", other.type_str()),
        }
    }
}

/// A type that settings can have.
pub(super) trait Value: Sized {
    /// Its values are never shown.
    const SECRET: bool = false;

    /// Reads it; the error says what it must be.
    fn parse(raw: &Raw) -> Result<Self, String>;

    /// The value as people may see it.
    fn shown(&self) -> String;
}

macro_rules! whole_numbers {
    ($($number:ty),*) => {$(
        impl Value for $number {
            fn parse(raw: &Raw) -> Result<Self, String> {
                let number = match raw {
                    Raw::Toml(value) => value.as_integer().and_then(|number| number.try_into().ok()),
                    Raw::Text(text) => text.trim().parse().ok(),
                };
                number.ok_or_else(|| format!("a whole number from 0 to {}", Self::MAX))
            }

            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_numbers!(u16, u32, u64, usize);

impl Value for bool {
    fn parse(raw: &Raw) -> Result<Self, String> {
        let value = match raw {
            Raw::Toml(value) => value.as_bool(),
            Raw::Text(text) => text.trim().parse().ok(),
        };
        value.ok_or_else(|| "true or false".to_owned())
    }

    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn parse(raw: &Raw) -> Result<Self, String> {
        raw.text().map(str::to_owned).ok_or_else(|| "a text, in quotes".to_owned())
    }

    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

impl Value for PathBuf {
    fn parse(raw: &Raw) -> Result<Self, String> {
        raw.text().map(Self::from).ok_or_else(|| "a path, in quotes".to_owned())
    }

    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

impl Value for SecretString {
    const SECRET: bool = true;

    fn parse(raw: &Raw) -> Result<Self, String> {
        raw.text().map(Self::from).ok_or_else(|| "a text, in quotes".to_owned())
    }

    fn shown(&self) -> String {
        "(secret)".to_owned()
    }
}

/// In a variable: a TOML array, or texts with commas between them.
impl<T: Value> Value for Vec<T> {
    const SECRET: bool = T::SECRET;

    fn parse(raw: &Raw) -> Result<Self, String> {
        let items: Option<Vec<Raw>> = match raw {
            Raw::Text(text) if !text.trim_start().starts_with('[') => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(items.map(|item| Raw::Text(item.to_owned())).collect())
            }
            _ => raw.array().map(|items| items.into_iter().map(Raw::Toml).collect()),
        };
        let items = items.ok_or_else(|| "a list, [\"one\", \"two\"]".to_owned())?;
        items.iter().map(|item| T::parse(item).map_err(|allowed| format!("a list, each item {allowed}"))).collect()
    }

    fn shown(&self) -> String {
        format!("[{}]", self.iter().map(T::shown).collect::<Vec<_>>().join(", "))
    }
}

/// Reads one of a few words.
pub(super) fn one_of<T: Copy>(raw: &Raw, words: &[(&str, T)]) -> Result<T, String> {
    let known = || words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
    let text = raw.text().unwrap_or_default();
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(known)
}
