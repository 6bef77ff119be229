use std::path::PathBuf;

use crate::config::{error::Problems, layers::SectionReader};

/// The built-in shop.
#[derive(Debug, Clone)]
pub struct DemoShopConfig {
    /// None only before a command has set its own: on for `demo`, off for `serve`.
    pub enabled: Option<bool>,
    /// SQLite file, shared by replicas; none: a temporary one.
    pub database: Option<PathBuf>,
    /// Pieces of every drop.
    pub stock: u64,
}

impl DemoShopConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            enabled: section.optional("enabled"),
            database: section.optional("database"),
            stock: section.get("stock"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        problems.check_range("demo_shop.stock", self.stock, 1..=1_000_000_000);
    }
}
