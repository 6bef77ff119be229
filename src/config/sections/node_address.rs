use std::{fmt, str::FromStr};

use crate::config::value::{Raw, Value};

/// Where a server listens: `host:port`, an IPv6 address in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A text that is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("host:port")]
pub struct NoAddress;

impl FromStr for NodeAddress {
    type Err = NoAddress;

    /// Also reads what Redis writes: an IPv6 address without brackets, or no host at all.
    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NoAddress)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let odd = |c: char| c.is_whitespace() || matches!(c, '/' | '@' | '[' | ']' | '?' | '#');
        let is_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
        if host.contains(odd) || host.contains(':') && !is_v6 {
            return Err(NoAddress);
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| NoAddress)? })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Value for NodeAddress {
    fn parse(raw: &Raw) -> Result<Self, String> {
        let address = raw.text().and_then(|text| text.trim().parse::<Self>().ok());
        let is_whole = |address: &Self| !address.host.is_empty() && address.port > 0;
        address.filter(is_whole).ok_or_else(|| "\"host:port\"".to_owned())
    }

    fn shown(&self) -> String {
        format!("\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_and_as_redis_write_them() {
        for (text, host, port, shown) in [
            ("redis-1.internal:6379", "redis-1.internal", 6379, "redis-1.internal:6379"),
            ("[::1]:26379", "::1", 26379, "[::1]:26379"),
            ("::1:26379", "::1", 26379, "[::1]:26379"),
            (":6379", "", 6379, ":6379"),
        ] {
            let address: NodeAddress = text.parse().unwrap();
            assert_eq!((address.host.as_str(), address.port, address.to_string().as_str()), (host, port, shown));
        }
        for text in ["", "host", "host:", "host:70000", "redis://host:6379", "a:b:6379", "user@host:6379", "[::1]"] {
            assert_eq!(text.parse::<NodeAddress>(), Err(NoAddress), "{text}");
        }
        for text in [":6379", "host:0"] {
            assert!(NodeAddress::parse(&Raw::Text(text.to_owned())).is_err(), "{text}");
        }
    }
}
