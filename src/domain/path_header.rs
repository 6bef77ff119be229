//! The headers that move a request to another path: the one list of them (`docs/design.md`).
//!
//! A server or framework that honours one routes by what it says, and not by the path that the gate has judged. So none
//! of them reaches the shop, unless the operator keeps it for a front of its own (`upstream.keep_headers`).

/// A header that names another path, the part of it that counts, or the site it is looked up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathHeader(&'static str);

/// Each with who goes by it.
const NAMES: [&str; 39] = [
    // CGI's own variables, as headers. gunicorn takes the first two from whom it trusts (by default 127.0.0.1).
    "SCRIPT_NAME",
    "PATH_INFO",
    "REQUEST_URI",
    // The whole target. IIS URL Rewrite and ISAPI Rewrite; and who followed them: Zend, Laminas, Symfony and Laravel
    // before 2018, Yii, Drupal, CFML.
    "X-Original-URL",
    "X-Rewrite-URL",
    // Azure: App Service, Static Web Apps and the adapters for them.
    "X-WAWS-Unencoded-URL",
    "X-MS-Original-URL",
    // What proxies call the target they were asked for; front controllers and functions behind them route by it.
    "X-Original-URI",
    "X-Original-Path",
    "X-Forwarded-Uri",
    "X-Forwarded-Url",
    "X-Request-Uri",
    "X-Real-Path",
    "X-Envoy-Original-Path",
    "X-Replaced-Path",
    // Vercel and Next.js, Astro on Vercel.
    "X-Matched-Path",
    "X-Invoke-Path",
    "X-Now-Route-Matches",
    "X-Astro-Path",
    // The part of the path that an application is mounted at. Werkzeug's ProxyFix, Spring's ForwardedHeaderFilter,
    // Vert.x and Quarkus, ASP.NET Core, Symfony.
    "X-Forwarded-Prefix",
    // Catalyst, Flask and Laravel applications.
    "X-Forwarded-Path",
    // The prefix middlewares of WSGI, Plack::Middleware::ReverseProxyPath.
    "X-Script-Name",
    "X-Forwarded-Script-Name",
    "X-Traversal-Path",
    // Catalyst's ProxyBase, Dancer.
    "X-Request-Base",
    "Request-Base",
    // Apache Knox, NiFi, Spark, Impala.
    "X-Forwarded-Context",
    "X-ProxyContextPath",
    "X-ProxyPath",
    // ASGI's root path: Daphne, and middlewares.
    "Daphne-Root-Path",
    "X-Root-Path",
    "Root-Path",
    // Zope and Pyramid (repoze.vhm): virtual hosts that begin deep in the tree.
    "X-VHM-Host",
    "X-VHM-Root",
    // Lucee and mod_cfml.
    "xajp-path-info",
    "X-Tomcat-DocRoot",
    // Another site. Paste's PrefixMiddleware takes the server's name for the host.
    "X-Forwarded-Server",
    "X-HTTP-Host-Override",
    "X-Host",
];

/// Which lengths there are: bit by bit. Most headers have another, and are told by that alone.
const LENGTHS: u64 = {
    let mut lengths = 0;
    let mut at = 0;
    while at < NAMES.len() {
        lengths |= 1 << NAMES[at].len();
        at += 1;
    }
    lengths
};

impl PathHeader {
    /// The header of this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|listed| listed.eq_ignore_ascii_case(name)).map(Self)
    }

    /// All names, as they are usually written.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }

    /// Its name, as it is usually written.
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Whether a header has the name of one, or one that servers fold to it: `Script.Name` is `SCRIPT_NAME` to CGI, WSGI
    /// and PHP.
    pub fn is_like_one(name: &str) -> bool {
        let is_possible = name.len() < 64 && LENGTHS & (1 << name.len()) != 0;
        is_possible && NAMES.iter().any(|listed| folds_to(name, listed))
    }
}

/// All that is no letter or digit is one character to who folds.
fn folds_to(name: &str, listed: &str) -> bool {
    name.len() == listed.len()
        && name.bytes().zip(listed.bytes()).all(|(one, other)| {
            one.eq_ignore_ascii_case(&other) || !(one.is_ascii_alphanumeric() || other.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_told_by_its_letters_whatever_stands_between_them() {
        for name in PathHeader::names() {
            assert!(PathHeader::is_like_one(name), "{name}");
            assert!(PathHeader::is_like_one(&name.to_ascii_lowercase()), "{name}");
            for mark in ["-", "_", ".", "!", "~"] {
                assert!(PathHeader::is_like_one(&name.replace(['-', '_'], mark)), "{name}, {mark}");
            }
            assert!(!PathHeader::is_like_one(&format!("{name}s")), "{name}");
            assert!(!PathHeader::is_like_one(&name[1..]), "{name}");
        }
    }

    #[test]
    fn the_page_about_the_gateway_names_them_all() {
        let page = include_str!("../../docs/integrations/gateway.md");
        for name in PathHeader::names() {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn headers_of_everyday_are_none() {
        for name in [
            "Host",
            "Accept",
            "Cookie",
            "Referer",
            "Origin",
            "User-Agent",
            "Content-Type",
            "Authorization",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Forwarded-Port",
            "X-Real-IP",
            "X-Request-Id",
            "X-User-Id",
            "X-Entry-Token",
            "X-HTTP-Method-Override",
            "X-CSRF-Token",
            "traceparent",
            "",
        ] {
            assert!(!PathHeader::is_like_one(name), "{name}");
        }
        assert!(!PathHeader::is_like_one(&"x".repeat(200)));
    }

    #[test]
    fn a_header_is_named_without_folding() {
        assert_eq!(PathHeader::named("x-forwarded-PREFIX").map(PathHeader::name), Some("X-Forwarded-Prefix"));
        assert_eq!(PathHeader::named("X_Forwarded_Prefix"), None);
        assert_eq!(PathHeader::named("X-User-Id"), None);
    }
}
