use crate::config::layers::SectionReader;

/// The feature flag before any rule is set.
#[derive(Debug, Clone)]
pub struct FlagsConfig {
    /// What `virtual-queue.enabled` is while nobody has set it.
    pub virtual_queue_enabled: bool,
}

impl FlagsConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { virtual_queue_enabled: section.get("virtual_queue_enabled") }
    }
}
