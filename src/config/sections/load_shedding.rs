use crate::config::{error::Problems, layers::SectionReader};

/// How many purchases at a time.
#[derive(Debug, Clone)]
pub struct LoadSheddingConfig {
    /// Purchase calls under way at a time; beyond: 503.
    pub max_concurrent_requests: usize,
}

impl LoadSheddingConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { max_concurrent_requests: section.get("max_concurrent_requests") }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        let calls = self.max_concurrent_requests as u64;
        problems.check_range("load_shedding.max_concurrent_requests", calls, 1..=1_000_000);
    }
}
