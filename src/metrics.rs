//! Every metric there is: its name, its help text, its labels (DESIGN 4 "Metrics").
//!
//! What belongs here: the registry, and one method an event. What must not: deciding that an event happened.
//! Counters are each replica's own (aggregate with sum); the gauges of a target are read from the store and the same
//! everywhere (aggregate with max).

mod labels;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

pub use self::labels::{BypassReason, Operation, RestartCause, TickFailure, TokenEvent};
use crate::{domain::QueueTarget, token::KeyFingerprints};

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    length: GaugeVec,
    admission_rate: GaugeVec,
    tokens: IntCounterVec,
    wait_seconds: HistogramVec,
    bypass_attempts: IntCounterVec,
    redis_degraded: IntCounterVec,
    direct_not_remembered: IntCounter,
    flag_known: IntGauge,
    log_lines_kept_back: IntGauge,
    http_requests: IntCounterVec,
    http_seconds: HistogramVec,
    script_seconds: HistogramVec,
    batch_people: HistogramVec,
    breaker_open: IntGauge,
    /// How many are: in a Cluster each master has one.
    breakers_open: Mutex<i64>,
    tick_late_seconds: Histogram,
    tick_errors: IntCounterVec,
    pump_restarts: IntCounterVec,
    clock_steps: IntCounterVec,
    gate_shed: IntCounter,
    gate_under_way: IntGauge,
    token_key_info: GaugeVec,
    token_keys_disagree: IntGauge,
}

impl Metrics {
    /// A registry of its own with every metric in it.
    pub fn new() -> Self {
        let registry = Registry::new();
        let made = Self::build(&registry);
        made.expect("metric names are distinct and well formed")
    }

    fn build(registry: &Registry) -> prometheus::Result<Self> {
        fn add<C: prometheus::core::Collector + Clone + 'static>(
            registry: &Registry,
            metric: C,
        ) -> prometheus::Result<C> {
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        }
        let counters = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).and_then(|metric| add(registry, metric))
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            GaugeVec::new(Opts::new(name, help), labels).and_then(|metric| add(registry, metric))
        };
        let histograms = |name: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
                .and_then(|metric| add(registry, metric))
        };
        let fast = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5];
        let waits =
            [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0];
        Ok(Self {
            length: gauges("virtual_queue_length", "People waiting, from the store: aggregate with max.", &["target"])?,
            admission_rate: gauges(
                "virtual_queue_admission_rate",
                "People admitted a second over the last 60 s, from the store: aggregate with max.",
                &["target"],
            )?,
            tokens: counters("virtual_queue_tokens_total", "Passes by what happened to them.", &["target", "event"])?,
            wait_seconds: histograms(
                "virtual_queue_wait_seconds",
                "Seconds from entering to the pass, known to half a second.",
                &["target"],
                &waits,
            )?,
            bypass_attempts: counters(
                "virtual_queue_bypass_attempts_total",
                "Purchase calls refused for want of a valid pass, by the reason in the answer.",
                &["reason"],
            )?,
            redis_degraded: counters(
                "virtual_queue_redis_degraded_total",
                "Answers given without the store, one an answer.",
                &["operation"],
            )?,
            flag_known: add(
                registry,
                IntGauge::new(
                    "virtual_queue_flag_known",
                    "0 while the flag's rule has not been read since the start, and redis.on_failure decides; else 1.",
                )?,
            )?,
            log_lines_kept_back: add(
                registry,
                IntGauge::new(
                    "virtual_queue_log_lines_kept_back",
                    "Warnings and errors not written so far: one place in the code had more than ten in a second.",
                )?,
            )?,
            direct_not_remembered: add(
                registry,
                IntCounter::new(
                    "virtual_queue_direct_not_remembered_total",
                    "Direct passes given in an outage beyond what a replica remembers: their holders keep their places.",
                )?,
            )?,
            http_requests: counters(
                "virtual_queue_http_requests_total",
                "HTTP answers by route template.",
                &["method", "route", "status"],
            )?,
            http_seconds: histograms(
                "virtual_queue_http_request_seconds",
                "Seconds from a request's arrival to its answer's head.",
                &["route"],
                &fast,
            )?,
            script_seconds: histograms(
                "virtual_queue_script_seconds",
                "Seconds a script call took, the way there and back included.",
                &["script"],
                &fast,
            )?,
            batch_people: histograms(
                "virtual_queue_batch_people",
                "People who shared one script call.",
                &["script"],
                &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0],
            )?,
            breaker_open: add(
                registry,
                IntGauge::new(
                    "virtual_queue_redis_breaker_open",
                    "Whether a master of the store is unavailable: 1 or 0.",
                )?,
            )?,
            breakers_open: Mutex::default(),
            tick_late_seconds: add(
                registry,
                Histogram::with_opts(
                    HistogramOpts::new(
                        "virtual_queue_tick_late_seconds",
                        "Seconds by which a batch went after the earliest moment.",
                    )
                    .buckets(fast.to_vec()),
                )?,
            )?,
            tick_errors: counters(
                "virtual_queue_tick_errors_total",
                "Ticks that failed, by how: error or panic.",
                &["how"],
            )?,
            pump_restarts: counters(
                "virtual_queue_pump_restarts_total",
                "Admission actors started again.",
                &["cause"],
            )?,
            clock_steps: counters(
                "virtual_queue_store_clock_steps_total",
                "Steps of the store's clock seen: a forward one can let a batch in early.",
                &["direction"],
            )?,
            gate_shed: add(
                registry,
                IntCounter::new(
                    "virtual_queue_gate_shed_total",
                    "Purchase calls refused because too many were under way.",
                )?,
            )?,
            gate_under_way: add(registry, IntGauge::new("virtual_queue_gate_under_way", "Purchase calls under way.")?)?,
            token_key_info: gauges(
                "virtual_queue_token_key_info",
                "1 for each secret, by fingerprint: current signs passes, also_accepted are only accepted.",
                &["fingerprint", "role"],
            )?,
            token_keys_disagree: add(
                registry,
                IntGauge::new(
                    "virtual_queue_token_keys_disagree",
                    "1 while another replica refuses this one's passes, or this one the other's; else 0.",
                )?,
            )?,
            registry: registry.clone(),
        })
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }

    /// The gauges of a target, as the store has them now.
    pub fn target_seen(&self, target: QueueTarget, waiting: u64, admission_rate_per_sec: f64) {
        let label = target.to_string();
        self.length.with_label_values(&[&label]).set(waiting as f64);
        self.admission_rate.with_label_values(&[&label]).set(admission_rate_per_sec);
    }

    /// Ends every series of a target that is over.
    pub fn target_ended(&self, target: QueueTarget) {
        let label = target.to_string();
        // Removing a series that was never there is no fault.
        let _ = self.length.remove_label_values(&[&label]);
        let _ = self.admission_rate.remove_label_values(&[&label]);
        let _ = self.wait_seconds.remove_label_values(&[&label]);
        for event in
            [TokenEvent::Issued, TokenEvent::Consumed, TokenEvent::Expired, TokenEvent::Revoked, TokenEvent::Direct]
        {
            let _ = self.tokens.remove_label_values(&[&label, event.label()]);
        }
    }

    /// Something happened to `count` passes of a target.
    pub fn tokens(&self, target: QueueTarget, event: TokenEvent, count: u64) {
        if count > 0 {
            self.tokens.with_label_values(&[&target.to_string(), event.label()]).inc_by(count);
        }
    }

    /// A direct pass for a target that has no queue: `target="other"`, since anybody can ask for any id.
    pub fn direct_without_queue(&self) {
        self.tokens.with_label_values(&["other", TokenEvent::Direct.label()]).inc();
    }

    /// Somebody waited this long from entering to the pass.
    pub fn waited(&self, target: QueueTarget, wait: Duration) {
        self.wait_seconds.with_label_values(&[&target.to_string()]).observe(wait.as_secs_f64());
    }

    /// A purchase call was refused for want of a valid pass.
    pub fn bypass_attempt(&self, reason: BypassReason) {
        self.bypass_attempts.with_label_values(&[reason.label()]).inc();
    }

    /// An answer was given without the store.
    pub fn degraded(&self, operation: Operation) {
        self.redis_degraded.with_label_values(&[operation.label()]).inc();
    }

    /// A direct pass was given in an outage, and there was no room to remember to whom.
    pub fn direct_not_remembered(&self) {
        self.direct_not_remembered.inc();
    }

    /// Whether the flag's rule was read, or that none is set.
    pub fn flag_known(&self, known: bool) {
        self.flag_known.set(i64::from(known));
    }

    /// So many log lines of this process were kept back so far.
    pub fn log_lines_kept_back(&self, lines: u64) {
        self.log_lines_kept_back.set(i64::try_from(lines).unwrap_or(i64::MAX));
    }

    /// An HTTP answer: `route` is the template, never the path.
    pub fn http_answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        self.http_requests.with_label_values(&[method, route, &status.to_string()]).inc();
        self.http_seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    /// A script call ended, for this many people together.
    pub fn script_ran(&self, script: &str, people: usize, took: Duration) {
        self.script_seconds.with_label_values(&[script]).observe(took.as_secs_f64());
        self.batch_people.with_label_values(&[script]).observe(people as f64);
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
        self.breaker_open.set(i64::from(*open > 0));
    }

    /// A batch went this much after its earliest moment.
    pub fn tick_late(&self, late: Duration) {
        self.tick_late_seconds.observe(late.as_secs_f64());
    }

    /// A tick failed.
    pub fn tick_failed(&self, how: TickFailure) {
        self.tick_errors.with_label_values(&[how.label()]).inc();
    }

    /// An admission actor was started again.
    pub fn pump_restarted(&self, cause: RestartCause) {
        self.pump_restarts.with_label_values(&[cause.label()]).inc();
    }

    /// The store's clock stepped.
    pub fn clock_stepped(&self, forward: bool) {
        self.clock_steps.with_label_values(&[if forward { "forward" } else { "back" }]).inc();
    }

    /// A purchase call was refused because too many were under way.
    pub fn gate_shed(&self) {
        self.gate_shed.inc();
    }

    /// Purchase calls under way now.
    pub fn gate_under_way(&self, calls: usize) {
        self.gate_under_way.set(calls as i64);
    }

    /// What the secrets of this process are known by.
    pub fn token_keys(&self, keys: &KeyFingerprints) {
        self.token_key_info.with_label_values(&[keys.current.to_string().as_str(), "current"]).set(1.0);
        for key in &keys.also_accepted {
            self.token_key_info.with_label_values(&[key.to_string().as_str(), "also_accepted"]).set(1.0);
        }
    }

    /// Whether this and another replica refuse each other's passes.
    pub fn token_keys_disagree(&self, disagree: bool) {
        self.token_keys_disagree.set(i64::from(disagree));
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
}
