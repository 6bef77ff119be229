//! An operator's settings survive a Redis that loses its data (`docs/operations/failure-modes.md`).
//!
//! Each look at a target reads its settings with the lock, and the replica remembers the newest. If the store has none,
//! or older ones, the replica writes them back before anything else is done with the target. Only a higher version
//! removes settings; deleted settings count as lost.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{domain::QueueTarget, store::Overrides};

/// A hash as Redis returns it.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The field that counts the changes.
const VERSION: &str = "version";
const TICK_MS: &str = "tick_ms";
/// A hash with more fields is not ours and is not kept.
const MOST_FIELDS: usize = 64;
/// The log shows a setting up to this length.
const MOST_SHOWN: usize = 40;

/// Settings of one target, with every field as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    version: u64,
    fields: Vec<(String, String)>,
}

impl Settings {
    /// `None`: nothing is stored, or nothing that could be written back.
    fn read(stored: Fields) -> Option<Self> {
        if stored.is_empty() || stored.len() > MOST_FIELDS {
            return None;
        }
        let text = |bytes| String::from_utf8(bytes).ok();
        let fields: Vec<(String, String)> =
            stored.into_iter().map(|(field, value)| Some((text(field)?, text(value)?))).collect::<Option<_>>()?;
        let version = fields.iter().find(|(field, _)| field == VERSION).map_or(0, |(_, value)| version_of(value));
        Some(Self { version, fields })
    }

    /// Counts the changes. 0: someone wrote the settings by hand, without a version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The arguments of `settings_restore.lua`.
    pub(super) fn into_args(self) -> Vec<String> {
        let fields = self.fields.into_iter().flat_map(|(field, value)| [field, value]);
        std::iter::once(self.version.to_string()).chain(fields).collect()
    }

    /// The settings without effect, for the operator: name, value and reason.
    fn ignored(&self) -> Vec<String> {
        let why = |field: &str, value: &str| match NUMBERS.iter().find(|(number, _)| *number == field) {
            Some((_, range)) if whole_number(value).is_some_and(|number| range.contains(&number)) => None,
            Some((_, range)) => Some(format!("is not a whole number from {} to {}", range.start(), range.end())),
            None if field == VERSION && value != "0" && version_of(value) == 0 => {
                Some(format!("is not a whole number below {}, and counts as 0", 1_u64 << 53))
            }
            None if [VERSION, "paused"].contains(&field) => None,
            None => Some("is not a setting".to_owned()),
        };
        let shown = |text: &str| text.chars().take(MOST_SHOWN).collect::<String>();
        let ignored = |(field, value): &(String, String)| {
            why(field, value).map(|why| format!("{:?} = {:?} {why}", shown(field), shown(value)))
        };
        self.fields.iter().filter_map(ignored).collect()
    }

    /// Whether anything is set: after a removal only the version is left.
    fn set_anything(&self) -> bool {
        self.fields.iter().any(|(field, _)| field != VERSION)
    }
}

/// As `settings_restore.lua` reads it: only digits, and below 2^53, where Lua numbers are exact.
fn version_of(text: &str) -> u64 {
    whole_number(text).filter(|version| *version < 1 << 53).unwrap_or(0)
}

/// A number of digits only, as the scripts read it.
fn whole_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The numbers that an operator may set, with their ranges, as in `includes/pace.lua`.
const NUMBERS: [(&str, RangeInclusive<u64>); 4] = [
    ("batch_size", Overrides::BATCH),
    (TICK_MS, Overrides::TICK_MS),
    ("capacity", Overrides::CAPACITY),
    ("max_active", Overrides::MAX_ACTIVE),
];

/// Whether a stored hash sets anything.
pub(super) fn set_anything(stored: &Fields) -> bool {
    stored.iter().any(|(field, _)| field != VERSION.as_bytes())
}

/// The newest settings this replica has seen, by target.
#[derive(Debug, Default)]
pub(super) struct KnownSettings(Mutex<HashMap<QueueTarget, Settings>>);

impl KnownSettings {
    /// Notes what is stored. Returns the settings to write back, if they were lost.
    pub(super) fn note_stored(&self, target: QueueTarget, stored: Fields) -> Option<Settings> {
        let is_stored = !stored.is_empty();
        let stored = Settings::read(stored);
        let mut known = self.known();
        match (known.get(&target), stored) {
            (Some(known), Some(stored)) if known.version > stored.version => Some(known.clone()),
            (before, Some(stored)) => {
                // Warn once, and again when the settings change.
                if before != Some(&stored) {
                    for setting in stored.ignored() {
                        tracing::warn!(%target, setting, "a setting of this target is ignored");
                    }
                }
                known.insert(target, stored);
                None
            }
            (Some(known), None) if !is_stored => Some(known.clone()),
            (_, None) => None,
        }
    }

    /// The operator's tick for this target, ms.
    pub(super) fn tick_ms(&self, target: QueueTarget) -> Option<u64> {
        let known = self.known();
        let (_, tick_ms) = known.get(&target)?.fields.iter().find(|(field, _)| field == TICK_MS)?;
        whole_number(tick_ms).filter(|tick_ms| Overrides::TICK_MS.contains(tick_ms))
    }

    /// Whether this target is known to have settings.
    pub(super) fn has(&self, target: QueueTarget) -> bool {
        self.known().get(&target).is_some_and(Settings::set_anything)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<QueueTarget, Settings>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::QueueTargetType;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(field, value)| (field.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    fn target() -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap()
    }

    #[test]
    fn what_is_lost_or_older_is_wanted_back_and_what_is_newer_or_as_new_is_taken() {
        let (known, target) = (KnownSettings::default(), target());
        assert_eq!(known.note_stored(target, vec![]), None);
        assert_eq!(known.note_stored(target, fields(&[("batch_size", "5")])), None, "by hand");
        assert_eq!(known.note_stored(target, vec![]).unwrap().into_args(), ["0", "batch_size", "5"]);
        assert_eq!(known.note_stored(target, fields(&[("batch_size", "6")])), None, "by hand, again");
        assert_eq!(known.note_stored(target, vec![]).unwrap().into_args(), ["0", "batch_size", "6"]);

        assert_eq!(known.note_stored(target, fields(&[("version", "3"), ("paused", "1")])), None);
        for older in [vec![], fields(&[("paused", "0")]), fields(&[("version", "2")]), fields(&[("version", "1e9")])] {
            assert_eq!(known.note_stored(target, older).unwrap().into_args(), ["3", "version", "3", "paused", "1"]);
        }
        assert_eq!(known.note_stored(target, fields(&[("version", "3"), ("paused", "0")])), None, "as new");
        assert!(known.has(target));
        assert_eq!(known.tick_ms(target), None);
        known.note_stored(target, fields(&[("version", "3"), ("tick_ms", "8000")]));
        assert_eq!(known.tick_ms(target), Some(8000));
        assert_eq!(known.note_stored(target, fields(&[("version", "4")])), None, "removed");
        assert_eq!(known.tick_ms(target), None);
        assert!(!known.has(target));
        assert_eq!(known.note_stored(target, vec![]).unwrap().into_args(), ["4", "version", "4"]);
    }

    #[test]
    fn what_has_no_effect_is_told_with_its_reason() {
        let ignored = |field: &str, value: &str| Settings::read(fields(&[(field, value)])).unwrap().ignored();
        for (field, value) in [
            ("version", "0"),
            ("version", "1790000000000000"),
            ("batch_size", "0"),
            ("batch_size", "10000"),
            ("tick_ms", "500"),
            ("tick_ms", "60000"),
            ("capacity", "0"),
            ("max_active", "1000000000"),
            ("paused", "perhaps"),
        ] {
            assert_eq!(ignored(field, value), Vec::<String>::new(), "{field} {value}");
        }
        for (field, value, told) in [
            ("batch_size", "-1", r#""batch_size" = "-1" is not a whole number from 0 to 10000"#),
            ("tick_ms", "0", r#""tick_ms" = "0" is not a whole number from 500 to 60000"#),
            ("capacity", "nan", r#""capacity" = "nan" is not a whole number from 0 to 1000000000"#),
            ("max_active", "+5", r#""max_active" = "+5" is not a whole number from 0 to 1000000000"#),
            ("batchsize", "5", r#""batchsize" = "5" is not a setting"#),
            (
                "version",
                "9007199254740992",
                r#""version" = "9007199254740992" is not a whole number below 9007199254740992, and counts as 0"#,
            ),
        ] {
            assert_eq!(ignored(field, value), [told]);
        }
        assert!(ignored("paused\n", &"x".repeat(1000))[0].len() < 100, "however long");
        let known = KnownSettings::default();
        known.note_stored(target(), fields(&[("tick_ms", "8")]));
        assert_eq!(known.tick_ms(target()), None);
    }

    #[test]
    fn what_cannot_be_settings_is_left_alone_and_not_kept() {
        let (known, target) = (KnownSettings::default(), target());
        known.note_stored(target, fields(&[("version", "3"), ("paused", "1")]));
        let many: Vec<(String, String)> = (0..65).map(|n| (n.to_string(), String::new())).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(field, value)| (field.as_str(), value.as_str())).collect();
        for odd in [fields(&many), vec![(b"paused".to_vec(), vec![0xff])]] {
            assert_eq!(known.note_stored(target, odd), None);
        }
        assert_eq!(known.note_stored(target, vec![]).unwrap().version(), 3);
    }
}
