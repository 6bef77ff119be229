use crate::config::layers::SectionReader;

/// Limited drops.
#[derive(Debug, Clone)]
pub struct LimitedDropConfig {
    /// False: the purchase route of limited drops and their queue are 404.
    pub enabled: bool,
}

impl LimitedDropConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { enabled: section.get("enabled") }
    }
}
