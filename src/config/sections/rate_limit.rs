use ipnet::IpNet;

use crate::config::{
    error::Problems,
    layers::SectionReader,
    value::{Raw, Value},
};

/// How often one address may enter.
#[derive(Debug, Clone)]
pub struct RateLimitConfig {
    /// Enters a second; none and 0: no limit.
    pub enter_per_second: Option<u32>,
    /// Enters at once; none: as many as in a second.
    pub enter_burst: Option<u32>,
    /// Who is believed about `X-Forwarded-For`.
    pub trusted_proxies: Vec<IpNet>,
}

impl RateLimitConfig {
    /// What is set while buyers are anonymous visitors and nobody sets it: a new cookie is a new person, so something must
    /// count, and the address is all there is.
    pub(in crate::config) const FOR_VISITORS: &str = "rate_limit.enter_per_second = 20\nrate_limit.enter_burst = 200";

    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            enter_per_second: section.optional("enter_per_second"),
            enter_burst: section.optional("enter_burst"),
            trusted_proxies: section.get("trusted_proxies"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        if let Some(rate) = self.enter_per_second {
            problems.check_range("rate_limit.enter_per_second", rate.into(), 0..=1_000_000);
        }
        if let Some(burst) = self.enter_burst {
            problems.check_range("rate_limit.enter_burst", burst.into(), 1..=1_000_000);
            if matches!(self.enter_per_second, None | Some(0)) {
                problems.add("rate_limit.enter_burst", "means nothing without rate_limit.enter_per_second");
            }
        }
    }
}

impl Value for IpNet {
    fn parse(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().unwrap_or_default().trim();
        let single = || text.parse::<std::net::IpAddr>().map(Self::from);
        text.parse().or_else(|_| single()).map_err(|_| "a network, \"10.0.0.0/8\", or an address".to_owned())
    }

    fn shown(&self) -> String {
        format!("\"{self}\"")
    }
}
