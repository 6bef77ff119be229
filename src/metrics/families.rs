//! Every metric: its name, its help text, its labels and its buckets, once each. To add one, add a line here and a method to
//! [`super::Metrics`].

use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, Result,
};

/// Seconds: calls to Redis, answers.
const FAST: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5];

/// Seconds: waiting in the queue.
const WAITS: [f64; 16] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0];

/// People in one script call.
const PEOPLE: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

macro_rules! declare {
    ($($field:ident: $kind:ty = $new:expr;)*) => {
        /// All metrics of one process.
        #[derive(Debug)]
        pub(super) struct Families {
            $(pub(super) $field: $kind,)*
        }

        impl Families {
            /// Makes them all and registers them.
            pub(super) fn register(registry: &Registry) -> Result<Self> {
                $(
                    let $field = $new?;
                    registry.register(Box::new($field.clone()))?;
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

declare! {
    length: GaugeVec = gauges(
        "virtual_queue_length",
        "People waiting, from the store: aggregate with max.",
        &["target"],
    );
    admission_rate: GaugeVec = gauges(
        "virtual_queue_admission_rate",
        "People admitted a second over the last 60 s, from the store: aggregate with max.",
        &["target"],
    );
    tokens: IntCounterVec = counters(
        "virtual_queue_tokens_total",
        "Passes by what happened to them.",
        &["target", "event"],
    );
    wait_seconds: HistogramVec = histograms(
        "virtual_queue_wait_seconds",
        "Seconds from entering to the pass, known to half a second.",
        &["target"],
        &WAITS,
    );
    bypass_attempts: IntCounterVec = counters(
        "virtual_queue_bypass_attempts_total",
        "Purchase calls refused for want of a valid pass, by the reason in the answer.",
        &["reason"],
    );
    redis_degraded: IntCounterVec = counters(
        "virtual_queue_redis_degraded_total",
        "Answers given without the store, one an answer.",
        &["operation"],
    );
    flag_known: IntGauge = IntGauge::new(
        "virtual_queue_flag_known",
        "0 while the flag's rule has not been read since the start, and redis.on_failure decides; else 1.",
    );
    log_lines_kept_back: IntCounter = IntCounter::new(
        "virtual_queue_log_lines_kept_back_total",
        "Warnings and errors not written so far: one place in the code had more than ten in a second.",
    );
    direct_not_remembered: IntCounter = IntCounter::new(
        "virtual_queue_direct_not_remembered_total",
        "Direct passes given in an outage beyond what a replica remembers: their holders keep their places.",
    );
    http_requests: IntCounterVec = counters(
        "virtual_queue_http_requests_total",
        "HTTP answers by route template.",
        &["method", "route", "status"],
    );
    http_seconds: HistogramVec = histograms(
        "virtual_queue_http_request_seconds",
        "Seconds from a request's arrival to its answer's head.",
        &["route"],
        &FAST,
    );
    script_seconds: HistogramVec = histograms(
        "virtual_queue_script_seconds",
        "Seconds a script call took, the way there and back included.",
        &["script"],
        &FAST,
    );
    batch_people: HistogramVec = histograms(
        "virtual_queue_batch_people",
        "People who shared one script call.",
        &["script"],
        &PEOPLE,
    );
    breaker_open: IntGauge = IntGauge::new(
        "virtual_queue_redis_breaker_open",
        "Whether a master of the store is unavailable: 1 or 0.",
    );
    tick_late_seconds: Histogram = histogram(
        "virtual_queue_tick_late_seconds",
        "Seconds by which a batch went after the earliest moment.",
        &FAST,
    );
    tick_errors: IntCounterVec = counters(
        "virtual_queue_tick_errors_total",
        "Ticks that failed, by how: error or panic.",
        &["how"],
    );
    pump_restarts: IntCounterVec = counters(
        "virtual_queue_pump_restarts_total",
        "Admission actors started again.",
        &["cause"],
    );
    clock_steps: IntCounterVec = counters(
        "virtual_queue_store_clock_steps_total",
        "Steps of the store's clock seen: a forward one can let a batch in early.",
        &["direction"],
    );
    gate_shed: IntCounter = IntCounter::new(
        "virtual_queue_gate_shed_total",
        "Purchase calls refused because too many were under way.",
    );
    gate_under_way: IntGauge = IntGauge::new("virtual_queue_gate_under_way", "Purchase calls under way.");
    token_key_info: GaugeVec = gauges(
        "virtual_queue_token_key_info",
        "1 for each secret, by fingerprint: current signs passes, also_accepted are only accepted.",
        &["fingerprint", "role"],
    );
    token_keys_disagree: IntGauge = IntGauge::new(
        "virtual_queue_token_keys_disagree",
        "1 while another replica refuses this one's passes, or this one the other's; else 0.",
    );
}

fn counters(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
    GaugeVec::new(Opts::new(name, help), labels)
}

fn histogram(name: &str, help: &str, buckets: &[f64]) -> Result<Histogram> {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))
}

fn histograms(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Result<HistogramVec> {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
}
