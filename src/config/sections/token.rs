use secrecy::SecretString;

use crate::{
    config::{error::Problems, layers::SectionReader},
    token::Keyring,
};

/// The pass.
#[derive(Debug, Clone)]
pub struct TokenConfig {
    /// Signs and verifies.
    pub secret: Option<SecretString>,
    /// Verify too.
    pub also_accepted: Vec<SecretString>,
    /// Seconds a pass lives.
    pub ttl_seconds: u64,
    /// A pass buys once.
    pub single_use: bool,
    /// The pass also travels in a cookie.
    pub cookie: bool,
}

impl TokenConfig {
    /// No pass lives longer, however it is configured: a day, in seconds.
    pub const LONGEST_TTL_S: u64 = 86_400;

    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            secret: section.optional("secret"),
            also_accepted: section.get("also_accepted"),
            ttl_seconds: section.get("ttl_seconds"),
            single_use: section.get("single_use"),
            cookie: section.get("cookie"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        // The keyring knows how long a secret must be.
        if let Some(Err(weak)) = self.secret.as_ref().map(|secret| Keyring::new(secret, &[])) {
            problems.add("token.secret", weak.to_string());
        }
        for (place, secret) in self.also_accepted.iter().enumerate() {
            if let Err(weak) = Keyring::new(secret, &[]) {
                problems.add("token.also_accepted", format!("number {}: {weak}", place + 1));
            }
        }
        problems.check_range("token.ttl_seconds", self.ttl_seconds, 1..=Self::LONGEST_TTL_S);
    }
}
