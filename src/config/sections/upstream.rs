use hyper::http::uri::{Authority, Uri};

use crate::{
    config::{
        error::Problems,
        layers::SectionReader,
        value::{Raw, Value, one_of},
    },
    domain::PathHeader,
};

/// The shop behind us.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// Where it is; none: there is no gateway.
    pub url: Option<UpstreamUrl>,
    /// Which `Host` it sees.
    pub host_header: HostHeader,
    /// Headers that move a request to another path, and reach the shop nevertheless.
    pub keep_headers: Vec<PathHeader>,
    /// Milliseconds that connecting may take.
    pub connect_timeout_ms: u64,
    /// Milliseconds from the end of a request to the first byte of the answer; none: as `timeout_ms`.
    pub first_byte_timeout_ms: Option<u64>,
    /// Milliseconds a purchase call may take, and any other may stand still.
    pub timeout_ms: u64,
    /// Bytes that the body of a request may have.
    pub max_body_bytes: u64,
}

/// The address of a shop: `http://host[:port]`, and nothing after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamUrl(Authority);

impl UpstreamUrl {
    /// Host and port.
    pub const fn authority(&self) -> &Authority {
        &self.0
    }
}

/// Which `Host` header the shop sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostHeader {
    /// The client's.
    #[default]
    Preserve,
    /// The one of `upstream.url`.
    Upstream,
}

impl UpstreamConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self {
            url: section.optional("url"),
            host_header: section.get("host_header"),
            keep_headers: section.get("keep_headers"),
            connect_timeout_ms: section.get("connect_timeout_ms"),
            first_byte_timeout_ms: section.optional("first_byte_timeout_ms"),
            timeout_ms: section.get("timeout_ms"),
            max_body_bytes: section.get("max_body_bytes"),
        }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        problems.check_range("upstream.timeout_ms", self.timeout_ms, 1..=600_000);
        problems.check_range("upstream.connect_timeout_ms", self.connect_timeout_ms, 1..=600_000);
        problems.check_range("upstream.max_body_bytes", self.max_body_bytes, 1..=1 << 50);
        if let Some(first_byte) = self.first_byte_timeout_ms {
            problems.check_range("upstream.first_byte_timeout_ms", first_byte, 1..=self.timeout_ms.max(1));
        }
    }

    /// Milliseconds a claim holds without being settled: the longest call, and 5 s.
    pub fn lease_ms(&self) -> u64 {
        self.timeout_ms.saturating_add(5000)
    }
}

impl Value for UpstreamUrl {
    fn parse(raw: &Raw) -> Result<Self, String> {
        const ALLOWED: &str = "an address like http://host:port, without a path, a query or a user";
        let text = raw.text().ok_or(ALLOWED)?.trim();
        let uri: Uri = text.parse().map_err(|_| ALLOWED)?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or(ALLOWED)?;
        if scheme == "https" {
            return Err("http://…: https upstreams are not in this version".to_owned());
        }
        let bare = uri.path_and_query().is_none_or(|rest| rest.as_str() == "/") && !text.contains(['?', '#', '@']);
        let port_is_right = authority.as_str().rsplit_once(':').is_none_or(|(_, port)| {
            // The colons of an IPv6 address stand within brackets.
            port.ends_with(']') || port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if scheme == "http" && bare && port_is_right && !authority.host().is_empty() {
            Ok(Self(authority.clone()))
        } else {
            Err(ALLOWED.to_owned())
        }
    }

    fn shown(&self) -> String {
        format!("\"http://{}\"", self.0)
    }
}

impl Value for HostHeader {
    fn parse(raw: &Raw) -> Result<Self, String> {
        one_of(raw, &[("preserve", Self::Preserve), ("upstream", Self::Upstream)])
    }

    fn shown(&self) -> String {
        match self {
            Self::Preserve => "\"preserve\"".to_owned(),
            Self::Upstream => "\"upstream\"".to_owned(),
        }
    }
}

impl Value for PathHeader {
    fn parse(raw: &Raw) -> Result<Self, String> {
        let name = raw.text().unwrap_or_default().trim();
        Self::named(name).ok_or_else(|| {
            let names = Self::names().collect::<Vec<_>>().join(", ");
            format!("a header that moves a request to another path ({name:?} is none of them): {names}")
        })
    }

    fn shown(&self) -> String {
        format!("{:?}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        UpstreamUrl::parse(&Raw::Text(text.to_owned())).map(|url| url.authority().to_string())
    }

    #[test]
    fn only_headers_that_move_the_path_can_be_kept() {
        let kept = |names: &str| Vec::<PathHeader>::parse(&Raw::Text(names.to_owned()));
        let names = kept("x-forwarded-prefix, SCRIPT_NAME").map(|all| all.iter().map(|kept| kept.name()).collect());
        assert_eq!(names, Ok(vec!["X-Forwarded-Prefix", "SCRIPT_NAME"]));
        assert_eq!(kept("").map(|all| all.len()), Ok(0));
        for other in ["X-User-Id", "X-Entry-Token", "Host", "X_Forwarded_Prefix", "X-Forwarded-*"] {
            let refused = kept(other).expect_err(other);
            assert!(refused.contains(&format!("{other:?} is none of them): SCRIPT_NAME, ")), "{refused}");
        }
    }

    #[test]
    fn an_upstream_is_a_host_and_perhaps_a_port() {
        for (text, authority) in [
            ("http://shop", "shop"),
            ("http://shop/", "shop"),
            ("http://127.0.0.1:3000", "127.0.0.1:3000"),
            ("http://[::1]:3000", "[::1]:3000"),
            ("http://[::1]", "[::1]"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(authority), "{text}");
        }
        for text in [
            "",
            "shop",
            "shop:80",
            "/",
            "http://",
            "http://shop/base",
            "http://shop?x",
            "http://shop#x",
            "http://a:b@shop",
            "http://shop:0",
            "http://shop:x",
            "http://shop:99999",
            "ftp://shop",
            "http://a b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("https://shop").is_err_and(|what| what.contains("not in this version")));
    }
}
