use crate::config::{
    layers::SectionReader,
    value::{Raw, Value, one_of},
};

/// Which store.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// None only before a command has set its own: `redis` for `serve`, `embedded` for `demo`.
    pub kind: Option<StoreKind>,
}

/// The two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Shared by all replicas.
    Redis,
    /// In memory: one process.
    Embedded,
}

impl StoreConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { kind: section.optional("kind") }
    }
}

impl Value for StoreKind {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("redis", Self::Redis), ("embedded", Self::Embedded)])
    }

    fn shown(&self) -> String {
        match self {
            Self::Redis => "\"redis\"".to_owned(),
            Self::Embedded => "\"embedded\"".to_owned(),
        }
    }
}
