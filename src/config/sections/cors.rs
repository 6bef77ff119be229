use actix_web::http::{Uri, header::HeaderName};

use crate::config::{error::Problems, layers::SectionReader};

/// Which pages may call from a browser.
#[derive(Debug, Clone)]
pub struct CorsConfig {
    /// Origins, exactly as browsers write them.
    pub allowed_origins: Vec<String>,
    /// Headers that they may send besides those of our own API.
    pub allowed_headers: Vec<String>,
}

impl CorsConfig {
    pub(in crate::config) fn read(section: &mut SectionReader<'_>) -> Self {
        Self { allowed_origins: section.get("allowed_origins"), allowed_headers: section.get("allowed_headers") }
    }

    pub(in crate::config) fn validate(&self, problems: &mut Problems) {
        for origin in self.allowed_origins.iter().filter(|origin| !is_origin(origin)) {
            problems.add(
                "cors.allowed_origins",
                format!(
                    "must be origins as browsers write them, such as \"https://shop.example.com\": small letters, no \
                     path, no \"/\" at the end, no default port, no *; not {origin:?}"
                ),
            );
        }
        for name in self.allowed_headers.iter().filter(|name| !is_header_name(name)) {
            problems.add(
                "cors.allowed_headers",
                format!(
                    "must be names of headers, such as \"traceparent\", and no *: browsers do not take it for any header \
                     where calls carry credentials; not {name:?}"
                ),
            );
        }
    }
}

fn is_header_name(text: &str) -> bool {
    text != "*" && HeaderName::from_bytes(text.as_bytes()).is_ok()
}

/// Whether a browser could send this in `Origin`: anything else would never match.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let spelt = authority.bytes().all(|byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
    });
    spelt
        && !authority.ends_with(default_port)
        && !authority.ends_with(':')
        && text.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for good in ["https://shop.example.com", "http://localhost:3000", "https://[::1]:8443", "http://127.0.0.1:1"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "",
            "*",
            "null",
            "shop.example.com",
            "https://",
            "https://*.example.com",
            "https://shop.example.com/",
            "https://shop.example.com/path",
            "https://Shop.example.com",
            "https://shop.example.com:443",
            "http://shop.example.com:80",
            "https://shop.example.com:",
            "https://user@shop.example.com",
            "https://shop.example.com, https://other.example.com",
            "ftp://shop.example.com",
            "https://상점.example.com",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
