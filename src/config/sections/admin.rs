use secrecy::{ExposeSecret, SecretString};

use crate::config::{error::Problems, layers::SectionReader};

/// The fewest bytes the admin token may have.
const MIN_TOKEN_BYTES: usize = 16;

/// The admin API.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// None: the admin API does not exist.
    pub token: Option<SecretString>,
}

impl AdminConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { token: section.optional("token") }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        let Some(token) = self.token.as_ref().map(ExposeSecret::expose_secret) else { return };
        if token.len() < MIN_TOKEN_BYTES {
            let bytes = token.len();
            problems.add("admin.token", format!("must have at least {MIN_TOKEN_BYTES} bytes, this one has {bytes}"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            problems.add("admin.token", "must be visible ASCII without spaces: it travels in a header");
        }
    }
}
