//! What happened, for Prometheus. Here: the registry, and one method for each event. Not here: deciding that an event
//! happened. Names, help texts and labels are in `families`.
//!
//! Counters are each replica's own (aggregate with sum); the gauges of a target are read from the store and the same
//! everywhere (aggregate with max).

mod families;
mod labels;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use prometheus::{Registry, TextEncoder};

use self::families::Families;
pub use self::labels::{BypassReason, Operation, RestartCause, TickFailure, TokenEvent};
use crate::{domain::QueueTarget, token::KeyFingerprints};

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    all: Families,
    /// How many circuit breakers are open: in a Cluster each master has one.
    breakers_open: Mutex<i64>,
    /// Held while the counter is brought up to date.
    lines_kept_back: Mutex<()>,
}

impl Metrics {
    /// A registry of its own with every metric in it.
    pub fn new() -> Self {
        let registry = Registry::new();
        let all = Families::register(&registry).expect("metric names are distinct and well formed");
        Self { registry, all, breakers_open: Mutex::default(), lines_kept_back: Mutex::default() }
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }

    /// The gauges of a target, as the store has them now.
    pub fn target_seen(&self, target: QueueTarget, waiting: u64, admission_rate_per_sec: f64) {
        let label = target.to_string();
        self.all.length.with_label_values(&[&label]).set(waiting as f64);
        self.all.admission_rate.with_label_values(&[&label]).set(admission_rate_per_sec);
    }

    /// Ends every series of a target that is over.
    pub fn target_ended(&self, target: QueueTarget) {
        let label = target.to_string();
        // Removing a series that was never there is no fault.
        let _ = self.all.length.remove_label_values(&[&label]);
        let _ = self.all.admission_rate.remove_label_values(&[&label]);
        let _ = self.all.wait_seconds.remove_label_values(&[&label]);
        for event in
            [TokenEvent::Issued, TokenEvent::Consumed, TokenEvent::Expired, TokenEvent::Revoked, TokenEvent::Direct]
        {
            let _ = self.all.tokens.remove_label_values(&[&label, event.label()]);
        }
    }

    /// Something happened to `count` passes of a target.
    pub fn tokens(&self, target: QueueTarget, event: TokenEvent, count: u64) {
        if count > 0 {
            self.all.tokens.with_label_values(&[&target.to_string(), event.label()]).inc_by(count);
        }
    }

    /// A direct pass for a target that has no queue: `target="other"`, since anybody can ask for any id.
    pub fn direct_without_queue(&self) {
        self.all.tokens.with_label_values(&["other", TokenEvent::Direct.label()]).inc();
    }

    /// Somebody waited this long from entering to the pass.
    pub fn waited(&self, target: QueueTarget, wait: Duration) {
        self.all.wait_seconds.with_label_values(&[&target.to_string()]).observe(wait.as_secs_f64());
    }

    /// A purchase call was refused for want of a valid pass.
    pub fn bypass_attempt(&self, reason: BypassReason) {
        self.all.bypass_attempts.with_label_values(&[reason.label()]).inc();
    }

    /// An answer was given without the store.
    pub fn degraded(&self, operation: Operation) {
        self.all.redis_degraded.with_label_values(&[operation.label()]).inc();
    }

    /// A direct pass was given in an outage, and there was no room to remember to whom.
    pub fn direct_not_remembered(&self) {
        self.all.direct_not_remembered.inc();
    }

    /// Whether the flag's rule was read, or that none is set.
    pub fn flag_known(&self, known: bool) {
        self.all.flag_known.set(i64::from(known));
    }

    /// So many log lines of this process were kept back so far.
    pub fn log_lines_kept_back(&self, lines: u64) {
        let _one_at_a_time = self.lines_kept_back.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = &self.all.log_lines_kept_back;
        counter.inc_by(lines.saturating_sub(counter.get()));
    }

    /// An HTTP answer: `route` is the template, never the path.
    pub fn http_answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        self.all.http_requests.with_label_values(&[method, route, &status.to_string()]).inc();
        self.all.http_seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    /// A script call ended, for this many people together.
    pub fn script_ran(&self, script: &str, people: usize, took: Duration) {
        self.all.script_seconds.with_label_values(&[script]).observe(took.as_secs_f64());
        self.all.batch_people.with_label_values(&[script]).observe(people as f64);
    }

    /// The breaker of a master opened.
    pub fn breaker_opened(&self) {
        self.breakers_changed(1);
    }

    /// The breaker of a master closed.
    pub fn breaker_closed(&self) {
        self.breakers_changed(-1);
    }

    fn breakers_changed(&self, by: i64) {
        let mut open = self.breakers_open.lock().unwrap_or_else(PoisonError::into_inner);
        *open += by;
        self.all.breaker_open.set(i64::from(*open > 0));
    }

    /// A batch went this much after its earliest moment.
    pub fn tick_late(&self, late: Duration) {
        self.all.tick_late_seconds.observe(late.as_secs_f64());
    }

    /// A tick failed.
    pub fn tick_failed(&self, how: TickFailure) {
        self.all.tick_errors.with_label_values(&[how.label()]).inc();
    }

    /// An admission actor was started again.
    pub fn pump_restarted(&self, cause: RestartCause) {
        self.all.pump_restarts.with_label_values(&[cause.label()]).inc();
    }

    /// The store's clock stepped.
    pub fn clock_stepped(&self, forward: bool) {
        self.all.clock_steps.with_label_values(&[if forward { "forward" } else { "back" }]).inc();
    }

    /// A purchase call was refused because too many were under way.
    pub fn gate_shed(&self) {
        self.all.gate_shed.inc();
    }

    /// Purchase calls under way now.
    pub fn gate_under_way(&self, calls: usize) {
        self.all.gate_under_way.set(calls as i64);
    }

    /// What the secrets of this process are known by.
    pub fn token_keys(&self, keys: &KeyFingerprints) {
        self.all.token_key_info.with_label_values(&[keys.current.to_string().as_str(), "current"]).set(1.0);
        for key in &keys.also_accepted {
            self.all.token_key_info.with_label_values(&[key.to_string().as_str(), "also_accepted"]).set(1.0);
        }
    }

    /// Whether this and another replica refuse each other's passes.
    pub fn token_keys_disagree(&self, disagree: bool) {
        self.all.token_keys_disagree.set(i64::from(disagree));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::QueueTargetType;

    #[test]
    fn an_ended_targets_series_go_and_the_others_stay() {
        let metrics = Metrics::new();
        let [ended, other] = [1, 2].map(|id| QueueTarget::new(QueueTargetType::LimitedDrop, id).expect("an id"));
        for target in [ended, other] {
            metrics.target_seen(target, 7, 50.0);
            for event in
                [TokenEvent::Issued, TokenEvent::Consumed, TokenEvent::Expired, TokenEvent::Revoked, TokenEvent::Direct]
            {
                metrics.tokens(target, event, 3);
            }
            metrics.waited(target, Duration::from_secs(4));
        }
        metrics.target_ended(ended);
        let text = metrics.render();
        assert!(!text.contains(r#"target="LIMITED_DROP:1""#), "{text}");
        for stays in [
            r#"virtual_queue_length{target="LIMITED_DROP:2"} 7"#,
            r#"virtual_queue_admission_rate{target="LIMITED_DROP:2"} 50"#,
            r#"virtual_queue_tokens_total{event="issued",target="LIMITED_DROP:2"} 3"#,
            r#"virtual_queue_tokens_total{event="direct",target="LIMITED_DROP:2"} 3"#,
            r#"virtual_queue_wait_seconds_count{target="LIMITED_DROP:2"} 1"#,
        ] {
            assert!(text.lines().any(|line| line == stays), "{stays}\n{text}");
        }
    }

    #[test]
    fn lines_kept_back_are_counted_once_however_often_they_are_reported() {
        let metrics = Metrics::new();
        for so_far in [3, 3, 5] {
            metrics.log_lines_kept_back(so_far);
        }
        assert!(metrics.render().contains("\nvirtual_queue_log_lines_kept_back_total 5\n"));
    }
}
