//! What an operator sets: the body of `PUT /admin/flags/virtual-queue.enabled` (`docs/design.md`, "Switch and flags").

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::{
    ToSchema,
    openapi::{ArrayBuilder, ObjectBuilder, schema::Type},
};

use crate::domain::{QueueTarget, UserId, UserIdForm};

/// The most characters in a reason.
pub const MAX_REASON_CHARS: usize = 500;
/// The most targets in a rule.
pub const MAX_TARGETS: usize = 10_000;
/// The most people that a rule names.
pub const MAX_USERS: usize = 100_000;

/// The most problems named in one answer: of 100,000 wrong ids the first few are enough.
const MAX_PROBLEMS: usize = 20;
const FIELDS: [&str; 5] = ["enabled", "rolloutPercent", "targets", "users", "reason"];

/// What an operator sets. Its JSON is in camelCase: targets as `"limited-drop/42"`, users as strings as they were
/// given, both sorted and without duplicates. The schema is that of the PUT body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(description = "The rule that an operator sets.")]
pub struct FlagChange {
    /// The switch.
    pub(super) enabled: bool,
    /// The percentage of people for whom it is on, besides `users`.
    #[schema(minimum = 0, maximum = 100, default = 100, required = false)]
    pub(super) rollout_percent: u8,
    /// The targets for which it is on, `limited-drop/42`; none: all.
    #[serde(serialize_with = "targets_as_text")]
    #[schema(schema_with = targets_schema, required = false)]
    pub(super) targets: BTreeSet<QueueTarget>,
    /// The people for whom it is on, whatever the percentage.
    #[serde(serialize_with = "users_as_text")]
    #[schema(schema_with = users_schema, required = false)]
    pub(super) users: BTreeMap<UserId, String>,
    /// The reason, for the audit: not blank.
    #[schema(min_length = 1, max_length = 500, pattern = "\\S")]
    pub(super) reason: String,
}

/// Why a body is not a change: every problem, with its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("; "))]
pub struct InvalidChange {
    /// One sentence for each problem: at most 20, and a count of the rest.
    pub problems: Vec<String>,
}

impl FlagChange {
    /// Reads a PUT body. Required: `enabled` and `reason` (not blank, at most 500 characters). `rolloutPercent`
    /// (0..=100) defaults to 100, `targets` and `users` to empty lists. Users are ids of this form, as strings or as
    /// numbers; a number is read as its digits.
    ///
    /// # Errors
    /// [`InvalidChange`] with every problem; an unknown field is one.
    pub fn parse(body: &[u8], ids: UserIdForm) -> Result<Self, InvalidChange> {
        let mut problems = Problems::default();
        match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(object)) => {
                for field in object.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
                    let shown: String = field.chars().take(40).collect();
                    problems.add(format!("{shown:?} is not a field of a flag; {} are", FIELDS.join(", ")));
                }
                Self::read(&object, ids, problems)
            }
            Ok(_) => Err(InvalidChange { problems: vec!["the body is not a JSON object".to_owned()] }),
            Err(error) => Err(InvalidChange { problems: vec![format!("the body is not JSON: {error}")] }),
        }
    }

    /// Whether it is on for anybody.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The percentage of people for whom it is on, besides [`Self::users`].
    pub fn rollout_percent(&self) -> u8 {
        self.rollout_percent
    }

    /// The targets for which it is on; none: all.
    pub fn targets(&self) -> impl Iterator<Item = QueueTarget> {
        self.targets.iter().copied()
    }

    /// The people for whom it is on, whatever the percentage.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.values().map(String::as_str)
    }

    /// Why it was set.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Reads the known fields of an object. The caller decides about other fields.
    pub(super) fn read(
        object: &Map<String, Value>,
        ids: UserIdForm,
        mut problems: Problems,
    ) -> Result<Self, InvalidChange> {
        let enabled = match object.get("enabled") {
            Some(Value::Bool(enabled)) => *enabled,
            Some(_) => problems.add_and("enabled is neither true nor false"),
            None => problems.add_and("enabled is required"),
        };
        let rollout_percent = match object.get("rolloutPercent") {
            None => 100,
            // JSON has one kind of number: 50.0 is a whole number.
            Some(value) => {
                match value.as_f64().filter(|percent| (0.0..=100.0).contains(percent) && percent.fract() == 0.0) {
                    Some(percent) => percent as u8,
                    None => problems.add_and("rolloutPercent is not a whole number from 0 to 100"),
                }
            }
        };
        let targets = read_list(object, "targets", MAX_TARGETS, &mut problems, |item| {
            let text = item.as_str().ok_or("a target is written as text, such as \"limited-drop/42\"")?;
            QueueTarget::from_rule(text).map_err(|error| error.to_string())
        });
        let users = read_list(object, "users", MAX_USERS, &mut problems, |item| {
            let text = match (item.as_str(), item.as_u64()) {
                (Some(text), _) => text.to_owned(),
                (None, Some(number)) => number.to_string(),
                (None, None) => return Err("a user is an id, as text or as a number".to_owned()),
            };
            let user = ids.parse(&text).map_err(|error| error.to_string())?;
            Ok((user, text))
        });
        let users = users.into_iter().collect();
        let reason = match object.get("reason") {
            Some(Value::String(reason)) if reason.trim().is_empty() => problems.add_and("reason is blank"),
            Some(Value::String(reason)) if reason.trim().chars().count() > MAX_REASON_CHARS => {
                problems.add_and("reason is longer than 500 characters")
            }
            Some(Value::String(reason)) => reason.trim().to_owned(),
            Some(_) => problems.add_and("reason is not text"),
            None => problems.add_and("reason is required"),
        };
        problems.none()?;
        Ok(Self { enabled, rollout_percent, targets, users, reason })
    }
}

/// Reads an array of at most `most` items. A missing field is an empty array.
fn read_list<T: Ord>(
    object: &Map<String, Value>,
    field: &str,
    most: usize,
    problems: &mut Problems,
    read: impl Fn(&Value) -> Result<T, String>,
) -> BTreeSet<T> {
    let items = match object.get(field) {
        None => return BTreeSet::new(),
        Some(Value::Array(items)) if items.len() > most => {
            return problems.add_and(format!("{field} has {} items, at most {most} are allowed", items.len()));
        }
        Some(Value::Array(items)) => items,
        Some(_) => return problems.add_and(format!("{field} is not a list")),
    };
    let mut list = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        match read(item) {
            Ok(item) => {
                list.insert(item);
            }
            Err(problem) => problems.add(format!("{field}[{index}]: {problem}")),
        }
    }
    list
}

/// Collects problems.
#[derive(Debug, Default)]
pub(super) struct Problems {
    named: Vec<String>,
    unnamed: usize,
}

impl Problems {
    pub(super) fn add(&mut self, problem: impl Into<String>) {
        if self.named.len() < MAX_PROBLEMS {
            self.named.push(problem.into());
        } else {
            self.unnamed += 1;
        }
    }

    /// Adds a problem and returns a default value, so that the next problem is found too.
    pub(super) fn add_and<T: Default>(&mut self, problem: impl Into<String>) -> T {
        self.add(problem);
        T::default()
    }

    fn none(mut self) -> Result<(), InvalidChange> {
        if self.named.is_empty() {
            return Ok(());
        }
        if self.unnamed > 0 {
            self.named.push(format!("and {} problems more", self.unnamed));
        }
        Err(InvalidChange { problems: self.named })
    }
}

fn targets_schema() -> ArrayBuilder {
    list_of("^(limited-drop|ticketing-event)/[1-9][0-9]{0,18}$")
}

fn users_schema() -> ArrayBuilder {
    list_of("^[1-9][0-9]{0,18}$")
}

fn list_of(pattern: &str) -> ArrayBuilder {
    ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)))
}

fn targets_as_text<S: Serializer>(targets: &BTreeSet<QueueTarget>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(targets.iter().map(|target| target.to_rule()))
}

fn users_as_text<S: Serializer>(users: &BTreeMap<UserId, String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(users.values())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(body: Value) -> Result<FlagChange, Vec<String>> {
        FlagChange::parse(body.to_string().as_bytes(), UserIdForm::Decimal).map_err(|invalid| invalid.problems)
    }

    #[test]
    fn what_is_left_out_means_everybody_everywhere() {
        let change = parse(json!({"enabled": true, "reason": " the sale opens "})).unwrap();
        assert_eq!(
            serde_json::to_string(&change).unwrap(),
            r#"{"enabled":true,"rolloutPercent":100,"targets":[],"users":[],"reason":"the sale opens"}"#
        );
    }

    #[test]
    fn users_are_read_as_text_or_numbers_and_written_as_text() {
        let change = parse(json!({
            "enabled": true, "reason": "canary", "rolloutPercent": 5,
            "users": [7, "42", "7", 9_223_372_036_854_775_807_u64],
            "targets": ["ticketing-event/9", "limited-drop/42"],
        }));
        assert_eq!(
            serde_json::to_value(change.unwrap()).unwrap(),
            json!({
                "enabled": true, "reason": "canary", "rolloutPercent": 5,
                "users": ["7", "42", "9223372036854775807"],
                "targets": ["limited-drop/42", "ticketing-event/9"],
            })
        );
    }

    #[test]
    fn users_of_any_form_stay_as_they_were_given() {
        let uuid = "b6f0c1de-9d4c-4f0e-8a51-0c2b8a9f6f37";
        let body = json!({ "enabled": true, "reason": "canary", "users": [uuid, 7, "7", "007"] });
        let change = FlagChange::parse(body.to_string().as_bytes(), UserIdForm::Any).unwrap();
        for id in [uuid, "7", "007"] {
            assert!(change.users.contains_key(&UserIdForm::Any.parse(id).unwrap()), "{id}");
        }
        assert_eq!(change.users.len(), 3);
        let shown = serde_json::to_vec(&change).unwrap();
        assert_eq!(FlagChange::parse(&shown, UserIdForm::Any), Ok(change), "what is shown can be set again");
        assert!(FlagChange::parse(&shown, UserIdForm::Decimal).is_err());
    }

    #[test]
    fn each_wrong_field_is_named() {
        let good = json!({"enabled": true, "reason": "r"});
        for (field, bad, word) in [
            ("enabled", json!("true"), "enabled"),
            ("enabled", Value::Null, "enabled"),
            ("rolloutPercent", json!(101), "rolloutPercent"),
            ("rolloutPercent", json!(-1), "rolloutPercent"),
            ("rolloutPercent", json!(50.5), "rolloutPercent"),
            ("rolloutPercent", json!("50"), "rolloutPercent"),
            ("targets", json!("limited-drop/42"), "targets"),
            ("targets", json!(["limited-drop/1", "limited-drop/042"]), "targets[1]"),
            ("targets", json!([42]), "targets[0]"),
            ("users", json!({}), "users"),
            ("users", json!(["1", "007"]), "users[1]"),
            ("users", json!([0]), "users[0]"),
            ("users", json!([1.5]), "users[0]"),
            ("users", json!([-3]), "users[0]"),
            ("reason", json!(" \t "), "reason"),
            ("reason", json!(5), "reason"),
            ("reason", json!("x".repeat(501)), "reason"),
            ("percent", json!(5), "\"percent\""),
            ("version", json!(5), "\"version\""),
        ] {
            let mut body = good.clone();
            body[field] = bad.clone();
            let problems = parse(body).expect_err(&format!("{field}: {bad}"));
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(word), "{problems:?}");
        }
        assert!(parse(json!({"enabled": true, "reason": "가".repeat(500)})).is_ok(), "characters count, not bytes");
    }

    #[test]
    fn all_problems_are_named_at_once() {
        let problems = parse(json!({"rolloutPercent": 200, "users": ["a"], "extra": 1})).unwrap_err();
        for word in ["enabled", "reason", "rolloutPercent", "users[0]", "extra"] {
            assert!(problems.iter().any(|problem| problem.contains(word)), "{word}: {problems:?}");
        }
    }

    #[test]
    fn lists_are_bounded_and_so_is_the_answer() {
        let of = |users: usize, targets: usize| {
            let targets: Vec<_> = (1..=targets).map(|id| format!("limited-drop/{id}")).collect();
            parse(json!({"enabled": true, "reason": "r", "users": (1..=users).collect::<Vec<_>>(), "targets": targets}))
        };
        assert!(of(MAX_USERS, MAX_TARGETS).is_ok());
        assert_eq!(of(MAX_USERS + 1, MAX_TARGETS + 1).unwrap_err().len(), 2);
        let problems = parse(json!({"enabled": true, "reason": "r", "users": vec!["x"; 1000]})).unwrap_err();
        assert_eq!(problems.len(), 21);
        assert_eq!(problems[20], "and 980 problems more");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "null", "[]", "true", "{", "{\"enabled\":true,\"reason\":\"r\"} x", "\u{feff}{}"] {
            assert_eq!(
                FlagChange::parse(body.as_bytes(), UserIdForm::Decimal).unwrap_err().problems.len(),
                1,
                "{body:?}"
            );
        }
        assert!(FlagChange::parse(&[0xff, 0xfe], UserIdForm::Decimal).is_err());
        let deep = "[".repeat(100_000);
        assert!(FlagChange::parse(deep.as_bytes(), UserIdForm::Any).is_err(), "depth is bounded");
    }
}
