use std::{net::IpAddr, path::PathBuf};

use actix_web::http::Uri;

use crate::{
    config::{
        error::Problems,
        layers::SectionReader,
        value::{Raw, Value, one_of},
    },
    domain::UserIdForm,
};

/// How buyers are known.
#[derive(Debug, Clone)]
pub struct IdentityConfig {
    /// By a header that is believed, by a token that is checked, or by a cookie of ours.
    pub mode: IdentityMode,
    /// What the ids in headers and tokens look like.
    pub ids: UserIdForm,
    /// How tokens may be signed.
    pub jwt_algorithms: Vec<JwtAlgorithm>,
    /// A public key in PEM, a JWKS document, or the secret for HS256.
    pub jwt_key_file: Option<PathBuf>,
    /// Where the keys are published.
    pub jwks_url: Option<String>,
    /// The claim that holds the buyer's id.
    pub jwt_claim: String,
    /// What `aud` must hold; none: it is not looked at.
    pub jwt_audience: Option<String>,
    /// What `iss` must be; none: it is not looked at.
    pub jwt_issuer: Option<String>,
    /// Seconds that the issuer's clock may differ from the store's.
    pub jwt_leeway_seconds: u64,
}

/// How buyers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdentityMode {
    /// By `X-User-Id`, believed as it stands.
    #[default]
    Header,
    /// By the token in `Authorization: Bearer`.
    Jwt,
    /// By a cookie that we set: nobody logs in before the queue.
    Visitor,
}

/// How a token may be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// With a shared secret.
    Hs256,
    /// With an RSA key.
    Rs256,
    /// With a key on the curve P-256.
    Es256,
}

impl JwtAlgorithm {
    /// As tokens write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

impl IdentityConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            mode: section.get("mode"),
            ids: section.get("ids"),
            jwt_algorithms: section.get("jwt_algorithms"),
            jwt_key_file: section.optional("jwt_key_file"),
            jwks_url: section.optional("jwks_url"),
            jwt_claim: section.get("jwt_claim"),
            jwt_audience: section.optional("jwt_audience"),
            jwt_issuer: section.optional("jwt_issuer"),
            jwt_leeway_seconds: section.get("jwt_leeway_seconds"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        match self.mode {
            IdentityMode::Header | IdentityMode::Visitor => {
                // Whoever sets these believes that tokens are checked.
                for (key, is_set) in [
                    ("identity.jwt_key_file", self.jwt_key_file.is_some()),
                    ("identity.jwks_url", self.jwks_url.is_some()),
                    ("identity.jwt_audience", self.jwt_audience.is_some()),
                    ("identity.jwt_issuer", self.jwt_issuer.is_some()),
                ] {
                    if is_set {
                        problems.add(key, "means nothing unless identity.mode is \"jwt\"");
                    }
                }
            }
            IdentityMode::Jwt => self.validate_jwt(problems),
        }
        if self.mode == IdentityMode::Visitor && self.ids != UserIdForm::Decimal {
            problems
                .add("identity.ids", "must be \"decimal\" while identity.mode is \"visitor\": visitors are numbers");
        }
    }

    fn validate_jwt(&self, problems: &mut Problems) {
        let symmetric = self.jwt_algorithms.contains(&JwtAlgorithm::Hs256);
        if self.jwt_algorithms.is_empty() {
            problems.add("identity.jwt_algorithms", "must name at least one of RS256, ES256, HS256");
        }
        if symmetric && self.jwt_algorithms.iter().any(|algorithm| *algorithm != JwtAlgorithm::Hs256) {
            problems.add(
                "identity.jwt_algorithms",
                "must not mix HS256 with others: a public key must never be taken for a secret",
            );
        }
        match (&self.jwt_key_file, &self.jwks_url) {
            (None, None) => problems.add("identity.jwt_key_file", "must be set with jwt, or identity.jwks_url"),
            (Some(_), Some(_)) => problems.add("identity.jwks_url", "must not be set beside identity.jwt_key_file"),
            (Some(_), None) => {}
            (None, Some(_)) if symmetric => {
                problems.add("identity.jwks_url", "cannot be used with HS256: a secret is not published");
            }
            (None, Some(url)) => {
                if let Err(what) = check_url(url) {
                    problems.add("identity.jwks_url", what);
                }
            }
        }
        for (key, text) in [
            ("identity.jwt_claim", Some(&self.jwt_claim)),
            ("identity.jwt_audience", self.jwt_audience.as_ref()),
            ("identity.jwt_issuer", self.jwt_issuer.as_ref()),
        ] {
            if text.is_some_and(String::is_empty) {
                problems.add(key, "must not be empty");
            }
        }
        problems.check_range("identity.jwt_leeway_seconds", self.jwt_leeway_seconds, 0..=300);
    }
}

/// Keys that arrive over an open network in the clear are anybody's keys.
fn check_url(url: &str) -> Result<(), &'static str> {
    const FORM: &str =
        "must be https://host[:port]/path, or http:// inside your own network, without user and password";
    let uri: Uri = url.parse().map_err(|_| FORM)?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or(FORM)?;
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err(FORM);
    }
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_inside(host) => Ok(()),
        Some("http") => Err("must be https: http is only for addresses and names inside your own network (127.0.0.1, \
                             10.…, names without a dot, .internal, .local, .svc)"),
        _ => Err(FORM),
    }
}

fn is_inside(host: &str) -> bool {
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        Err(_) => {
            let host = host.to_ascii_lowercase();
            !host.contains('.') || [".internal", ".local", ".svc"].iter().any(|end| host.ends_with(end))
        }
    }
}

impl Value for IdentityMode {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("header", Self::Header), ("jwt", Self::Jwt), ("visitor", Self::Visitor)])
    }

    fn shown(&self) -> String {
        match self {
            Self::Header => "\"header\"".to_owned(),
            Self::Jwt => "\"jwt\"".to_owned(),
            Self::Visitor => "\"visitor\"".to_owned(),
        }
    }
}

impl Value for UserIdForm {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("decimal", Self::Decimal), ("any", Self::Any)])
    }

    fn shown(&self) -> String {
        match self {
            Self::Decimal => "\"decimal\"".to_owned(),
            Self::Any => "\"any\"".to_owned(),
        }
    }
}

impl Value for JwtAlgorithm {
    fn parse(raw: &Raw) -> Result<Self, String> {
        let words = [Self::Rs256, Self::Es256, Self::Hs256].map(|algorithm| (algorithm.name(), algorithm));
        one_of(raw, &words)
    }

    fn shown(&self) -> String {
        format!("{:?}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fetched_over_tls_or_inside_ones_own_network() {
        for good in [
            "https://login.example.com/jwks.json",
            "https://login.example.com:8443/a?b=c",
            "http://127.0.0.1:9/jwks",
            "http://[::1]:9/jwks",
            "http://10.1.2.3/",
            "http://keycloak:8080/realms/shop/certs",
            "http://keycloak.login.svc/certs",
            "http://keys.internal/",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "/jwks.json",
            "login.example.com",
            "http://login.example.com/jwks.json",
            "http://8.8.8.8/",
            "http://internal.example.com/",
            "ftp://127.0.0.1/",
            "file:///etc/passwd",
            "https://user:hunter2@login.example.com/",
            "https://",
        ] {
            let what = check_url(bad).expect_err(bad);
            assert!(!what.contains("hunter2"));
        }
    }
}
