//! The rule in force: what an operator set, its version, and for whom it is on (`docs/design.md`, "Switch and flags").

use serde::Serialize;
use serde_json::Value;

use super::{FeatureFlagEvaluator, FlagChange, Reach, VIRTUAL_QUEUE_ENABLED, bucket::bucket, change::Problems};
use crate::domain::{MAX_ID, QueueTarget, QueueTargetType, UserId, UserIdForm};

/// A [`FlagChange`] that is in force, with its version. Its JSON is the stored form: `version`, `updatedAtMs`, then the fields of the change.
///
/// The JSON always starts with `{"version":`: the scripts read it there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlagRule {
    version: u64,
    updated_at_ms: Option<u64>,
    #[serde(flatten)]
    change: FlagChange,
    #[serde(skip)]
    known: bool,
}

/// Scripts count in floating point. A larger version was written by hand.
const MAX_VERSION: u64 = 1_000_000_000_000_000;

/// Why a stored text is not a rule: it was written by hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored flag rule is not readable: {0}")]
pub struct UnreadableRule(pub(super) String);

impl FlagRule {
    /// A rule set at `updated_at_ms` (the store's time, milliseconds since the epoch).
    pub(super) fn new(version: u64, updated_at_ms: u64, change: FlagChange) -> Self {
        Self { version, updated_at_ms: Some(updated_at_ms), change, known: true }
    }

    /// The rule before any is set: version 0, on for everybody or nobody. It is never stored.
    pub fn before_any(enabled: bool) -> Self {
        Self::unset(enabled, true, "no rule has been set: flags.virtual_queue_enabled decides")
    }

    /// The rule while it is unknown whether one is set, and which: version 0, on for everybody or nobody. It is never
    /// stored.
    pub fn while_unknown(enabled: bool) -> Self {
        Self::unset(enabled, false, "the rule has not been read yet: redis.on_failure decides until it is")
    }

    fn unset(enabled: bool, known: bool, reason: &str) -> Self {
        let change = FlagChange {
            enabled,
            rollout_percent: 100,
            targets: Default::default(),
            users: Default::default(),
            reason: reason.to_owned(),
        };
        Self { version: 0, updated_at_ms: None, change, known }
    }

    /// Reads the stored form. Unknown fields are ignored: a newer release may have written them.
    ///
    /// # Errors
    /// [`UnreadableRule`], naming what is wrong.
    pub(super) fn from_stored(text: &str, ids: UserIdForm) -> Result<Self, UnreadableRule> {
        let value: Value = serde_json::from_str(text).map_err(|error| UnreadableRule(error.to_string()))?;
        let object = value.as_object().ok_or_else(|| UnreadableRule("it is not a JSON object".to_owned()))?;
        let version =
            object.get("version").and_then(Value::as_u64).filter(|version| (1..=MAX_VERSION).contains(version));
        let mut problems = Problems::default();
        let version = version.unwrap_or_else(|| problems.add_and("version is not a whole number from 1 to 10^15"));
        let updated_at_ms = match object.get("updatedAtMs") {
            None | Some(Value::Null) => None,
            Some(value) => value.as_u64().or_else(|| problems.add_and("updatedAtMs is not a whole number")),
        };
        let change = FlagChange::read(object, ids, problems).map_err(|invalid| UnreadableRule(invalid.to_string()))?;
        Ok(Self { version, updated_at_ms, change, known: true })
    }

    /// The stored form.
    pub(super) fn to_stored(&self) -> String {
        serde_json::to_string(self).expect("a rule's keys are text and its values finite")
    }

    /// Larger with each change: usually the time of the change, in ms. 0: no change was ever made.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The time of the last change, milliseconds since the epoch; `None`: there was none.
    pub fn updated_at_ms(&self) -> Option<u64> {
        self.updated_at_ms
    }

    /// What was set.
    pub fn change(&self) -> &FlagChange {
        &self.change
    }

    fn concerns(&self, target: QueueTarget) -> bool {
        self.change.enabled && (self.change.targets.is_empty() || self.names(target))
    }
}

impl FeatureFlagEvaluator for FlagRule {
    fn is_enabled(&self, target: QueueTarget, user: UserId) -> bool {
        self.concerns(target)
            && match self.change.rollout_percent {
                100 => true,
                0 => self.change.users.contains_key(&user),
                percent => self.change.users.contains_key(&user) || bucket(VIRTUAL_QUEUE_ENABLED, user) < percent,
            }
    }

    fn reach(&self, target: QueueTarget) -> Reach {
        if !self.concerns(target) {
            return Reach::Nobody;
        }
        match self.change.rollout_percent {
            100 => Reach::Everybody,
            0 if self.change.users.is_empty() => Reach::Nobody,
            _ => Reach::SomePeople,
        }
    }

    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget> {
        let target = if self.change.targets.is_empty() {
            QueueTarget::new(kind, MAX_ID).ok()
        } else {
            self.change.targets.iter().find(|target| target.kind() == kind).copied()
        };
        target.filter(|target| self.reach(*target) != Reach::Nobody)
    }

    fn names(&self, target: QueueTarget) -> bool {
        self.change.targets.contains(&target)
    }

    fn is_known(&self) -> bool {
        self.known
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(body: Value) -> FlagRule {
        let change = FlagChange::parse(body.to_string().as_bytes(), UserIdForm::Decimal);
        FlagRule::new(3, 1_790_000_000_000, change.unwrap())
    }

    fn target(text: &str) -> QueueTarget {
        QueueTarget::from_rule(text).unwrap()
    }

    fn user(id: u64) -> UserId {
        UserId::try_from(id).unwrap()
    }

    #[test]
    fn the_rule_decides_by_switch_target_and_person() {
        use Reach::{Everybody, Nobody, SomePeople};
        // User 1 is in bucket 39, user 2 in bucket 79.
        let drop = json!(["limited-drop/42"]);
        for (enabled, percent, targets, users, at, reach, first, second) in [
            (true, 100, json!([]), json!([]), "limited-drop/42", Everybody, true, true),
            (false, 100, json!([]), json!([]), "limited-drop/42", Nobody, false, false),
            (false, 100, drop.clone(), json!([1]), "limited-drop/42", Nobody, false, false),
            (true, 100, drop.clone(), json!([]), "limited-drop/42", Everybody, true, true),
            (true, 100, drop.clone(), json!([1]), "ticketing-event/42", Nobody, false, false),
            (true, 100, drop.clone(), json!([]), "limited-drop/43", Nobody, false, false),
            (true, 0, json!([]), json!([]), "limited-drop/42", Nobody, false, false),
            (true, 0, json!([]), json!([2]), "limited-drop/42", SomePeople, false, true),
            (true, 39, json!([]), json!([]), "limited-drop/42", SomePeople, false, false),
            (true, 40, json!([]), json!([]), "limited-drop/42", SomePeople, true, false),
            (true, 40, drop.clone(), json!([2]), "limited-drop/42", SomePeople, true, true),
            (true, 79, json!([]), json!([]), "limited-drop/42", SomePeople, true, false),
            (true, 80, json!([]), json!([]), "limited-drop/42", SomePeople, true, true),
        ] {
            let body = json!({"enabled": enabled, "rolloutPercent": percent, "targets": targets, "users": users, "reason": "r"});
            let rule = rule(body.clone());
            assert_eq!(rule.reach(target(at)), reach, "{body} at {at}");
            assert_eq!(rule.is_enabled(target(at), user(1)), first, "{body} at {at}, user 1");
            assert_eq!(rule.is_enabled(target(at), user(2)), second, "{body} at {at}, user 2");
        }
    }

    #[test]
    fn a_rule_that_is_on_for_anything_of_a_kind_says_for_what() {
        use QueueTargetType::{LimitedDrop, TicketingEvent};
        for (body, drop, event) in [
            (json!({"enabled": true, "reason": "r"}), true, true),
            (json!({"enabled": false, "reason": "r"}), false, false),
            (json!({"enabled": true, "targets": ["limited-drop/42"], "reason": "r"}), true, false),
            (json!({"enabled": true, "targets": ["ticketing-event/7"], "reason": "r"}), false, true),
            (json!({"enabled": false, "targets": ["limited-drop/42"], "reason": "r"}), false, false),
            (json!({"enabled": true, "rolloutPercent": 0, "reason": "r"}), false, false),
            (json!({"enabled": true, "rolloutPercent": 0, "users": ["1"], "reason": "r"}), true, true),
        ] {
            let rule = rule(body.clone());
            for (kind, expected) in [(LimitedDrop, drop), (TicketingEvent, event)] {
                let found = rule.any_of(kind);
                assert_eq!(found.is_some(), expected, "{body}: {found:?}");
                assert!(found.is_none_or(|t| t.kind() == kind && rule.reach(t) != Reach::Nobody), "{body}: {found:?}");
            }
        }
    }

    #[test]
    fn raising_the_percentage_takes_nobody_out() {
        let rules: Vec<_> =
            (0..=100).map(|percent| rule(json!({"enabled": true, "rolloutPercent": percent, "reason": "r"}))).collect();
        for id in 1..=500 {
            let on: Vec<_> = rules.iter().map(|rule| rule.is_enabled(target("limited-drop/42"), user(id))).collect();
            assert!(on.is_sorted(), "user {id}: {on:?}");
            assert!(!on[0] && on[100]);
        }
    }

    #[test]
    fn the_percentage_is_the_share_of_people() {
        let rule = rule(json!({"enabled": true, "rolloutPercent": 25, "reason": "r"}));
        let on = (1..=20_000).filter(|id| rule.is_enabled(target("limited-drop/42"), user(*id))).count();
        assert!((4_700..5_300).contains(&on), "5000 expected: {on}");
    }

    #[test]
    fn only_listed_targets_are_named() {
        let listed = rule(json!({"enabled": false, "targets": ["limited-drop/42"], "reason": "r"}));
        assert!(listed.names(target("limited-drop/42")) && !listed.names(target("ticketing-event/42")));
        assert!(!FlagRule::before_any(true).names(target("limited-drop/42")));
    }

    #[test]
    fn a_rule_reads_back_as_it_was_stored() {
        let rule = rule(json!({
            "enabled": true, "rolloutPercent": 7, "targets": ["limited-drop/42"],
            "users": ["9223372036854775807"], "reason": "카나리 \"7 %\"\n",
        }));
        let stored = rule.to_stored();
        assert!(stored.starts_with(r#"{"version":3,"updatedAtMs":1790000000000,"enabled":true,"#), "{stored}");
        assert_eq!(FlagRule::from_stored(&stored, UserIdForm::Decimal), Ok(rule));
        let newer = stored.replacen('{', r#"{"newField":{"a":[]},"#, 1);
        assert!(FlagRule::from_stored(&newer, UserIdForm::Decimal).is_ok(), "what a newer release adds is no fault");
    }

    #[test]
    fn what_somebody_wrote_by_hand_is_refused_with_a_reason() {
        for (text, word) in [
            ("", "EOF"),
            ("on", "expected"),
            ("true", "object"),
            (r#"{"enabled":true,"reason":"r"}"#, "version"),
            (r#"{"version":0,"enabled":true,"reason":"r"}"#, "version"),
            (r#"{"version":1e30,"enabled":true,"reason":"r"}"#, "version"),
            (r#"{"version":1000000000000001,"enabled":true,"reason":"r"}"#, "version"),
            (r#"{"version":"1","enabled":true,"reason":"r"}"#, "version"),
            (r#"{"version":1,"reason":"r"}"#, "enabled"),
            (r#"{"version":1,"enabled":true,"reason":"r","updatedAtMs":"now"}"#, "updatedAtMs"),
        ] {
            let error = FlagRule::from_stored(text, UserIdForm::Decimal).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn before_any_rule_the_default_decides_for_everybody() {
        assert_eq!(FlagRule::before_any(true).reach(target("limited-drop/1")), Reach::Everybody);
        assert_eq!(FlagRule::before_any(false).reach(target("limited-drop/1")), Reach::Nobody);
        assert_eq!(FlagRule::before_any(false).version(), 0);
        assert!(FlagRule::before_any(false).is_known());
    }

    #[test]
    fn a_rule_that_was_never_read_is_not_one_that_is_not_set() {
        for enabled in [true, false] {
            let unknown = FlagRule::while_unknown(enabled);
            assert!(!unknown.is_known() && unknown.version() == 0);
            assert_eq!(unknown.is_enabled(target("limited-drop/1"), user(1)), enabled);
            assert_ne!(unknown, FlagRule::before_any(enabled));
        }
    }
}
