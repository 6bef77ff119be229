use crate::config::{error::Problems, layers::SectionReader};

/// The shop behind us.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// Milliseconds a purchase call may take.
    pub timeout_ms: u64,
}

impl UpstreamConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { timeout_ms: section.get("timeout_ms") }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        problems.check_range("upstream.timeout_ms", self.timeout_ms, 1..=600_000);
    }

    /// Milliseconds a claim holds without being settled: the longest call, and 5 s.
    pub fn lease_ms(&self) -> u64 {
        self.timeout_ms.saturating_add(5000)
    }
}
