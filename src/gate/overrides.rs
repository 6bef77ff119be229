//! What a request asks for beside its request line: another method, another path (DESIGN 8).
//!
//! Many frameworks take the method from a header or a parameter, and some the path. The gate cannot know what the shop's
//! does, so a request counts as a purchase when it is one under its own method and path or under any it asks for.

use actix_web::http::{
    Method, Uri,
    header::{CONTENT_TYPE, HeaderMap},
};

use super::{
    letters::key,
    routes::{GatedRoutes, RouteMatch},
};
use crate::identity::folded;

/// Headers that name another method: Rails, Laravel, Symfony, Express, ASP.NET, Google's and Microsoft's APIs.
const METHOD_HEADERS: [&str; 3] = ["x-http-method-override", "x-method-override", "x-http-method"];

/// Headers that name another path: IIS, and the frameworks that followed it.
const PATH_HEADERS: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// Parameters that name another method, in a query or in a form: the frameworks' own, and the headers' names.
const METHOD_PARAMETERS: [&str; 4] = ["_method", "x_http_method_override", "x_method_override", "x_http_method"];

impl GatedRoutes {
    /// What a request is, under its own method and path and under all others it asks for.
    ///
    /// A form sent with POST may name any method in its body, which nobody here reads: it counts as each method that
    /// has a gated route.
    pub fn classify_request(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> RouteMatch {
        let own = self.classify(method.as_str(), uri.path());
        let asked = Asked::read(uri, headers);
        let is_form = *method == Method::POST && is_form(headers);
        if asked.methods.is_empty() && asked.paths.is_empty() && !is_form {
            return own;
        }
        let mut methods = vec![method.as_str().to_owned()];
        methods.extend(asked.methods);
        if is_form {
            methods.extend(self.methods().map(str::to_owned));
        }
        methods.sort_unstable();
        methods.dedup();
        let mut verdict = own;
        for method in &methods {
            verdict = verdict.or(self.classify(method, uri.path()));
            for path in &asked.paths {
                // Never the canonical spelling, whatever it is.
                verdict = verdict.or(self.classify(method, path).odd());
            }
        }
        verdict
    }
}

#[derive(Default)]
struct Asked {
    methods: Vec<String>,
    paths: Vec<String>,
}

impl Asked {
    fn read(uri: &Uri, headers: &HeaderMap) -> Self {
        let mut asked = Self::default();
        for (name, value) in headers {
            // Cheap for almost every header of almost every request: folding keeps the length.
            let length = name.as_str().len();
            let is_as_long = |known: &&str| known.len() == length;
            if !name.as_str().starts_with('x') || !METHOD_HEADERS.iter().chain(&PATH_HEADERS).any(is_as_long) {
                continue;
            }
            let name = folded(name);
            let text = || String::from_utf8_lossy(value.as_bytes()).into_owned();
            if METHOD_HEADERS.contains(&name.as_str()) {
                text().split([',', ';']).for_each(|word| asked.method(word));
            } else if PATH_HEADERS.contains(&name.as_str()) {
                asked.path(&text());
            }
        }
        asked.query(uri.query().unwrap_or_default());
        asked
    }

    /// A method in a query.
    fn query(&mut self, query: &str) {
        for pair in query.split(['&', ';']) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if is_method_parameter(name) {
                self.method(&key(value.as_bytes()));
            }
        }
    }

    fn method(&mut self, text: &str) {
        let word: String = text.chars().filter(char::is_ascii_alphabetic).collect();
        if !word.is_empty() {
            self.methods.push(word.to_ascii_uppercase());
        }
    }

    /// The path of a URL or of a bare path. Of a URL the host stays: a path may start with one, too, so that
    /// classifying drops it.
    fn path(&mut self, text: &str) {
        let text = text.trim();
        let path = match text.find([':', '/', '?', '#', '\\']) {
            Some(end) if text[end..].starts_with("://") => &text[end + 1..],
            _ => text,
        };
        let (path, query) = path.split_once(['?', '#']).unwrap_or((path, ""));
        self.query(query);
        self.paths.push(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") });
    }
}

/// PHP turns what may not stand in its names into `_`; others take a name with brackets, before it or after it, for a list.
fn is_method_parameter(name: &str) -> bool {
    let is_as_long = |known: &&str| name.len() >= known.len();
    if !METHOD_PARAMETERS.iter().any(is_as_long) {
        return false;
    }
    let key = key(name.as_bytes());
    let name = key.trim_start_matches(|c: char| !c.is_alphanumeric());
    let begins_oddly = name.len() < key.len();
    let name = name.split('[').next().unwrap_or_default().replace(|c: char| !c.is_alphanumeric(), "_");
    let name = name.trim_end_matches('_');
    METHOD_PARAMETERS.iter().any(|known| match known.strip_prefix('_') {
        Some(known) => begins_oddly && name == known,
        None => name == *known,
    })
}

/// Whether a POST may be a form: it says so, or it says nothing (Rack takes that for one).
fn is_form(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(CONTENT_TYPE).map(|kind| kind.as_bytes().trim_ascii()).peekable();
    kinds.peek().is_none()
        || kinds.any(|kind| {
            let kind = String::from_utf8_lossy(kind).to_ascii_lowercase();
            kind.is_empty() || kind.contains("x-www-form-urlencoded") || kind.contains("multipart/")
        })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::{
        domain::{PassRule, QueueTarget, QueueTargetType},
        gate::{GatedRoute, Suspect},
    };

    const ORDERS: &str = "/limited-drops/42/orders";

    fn classify(routes: &GatedRoutes, method: &str, target: &str, headers: &[(&str, &str)]) -> RouteMatch {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        routes.classify_request(&Method::from_bytes(method.as_bytes()).unwrap(), &target.parse().unwrap(), &map)
    }

    fn drop_of(id: u64) -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, id).unwrap()
    }

    fn suspect(id: u64) -> Suspect {
        Suspect::Target(drop_of(id))
    }

    #[test]
    fn a_method_asked_for_makes_a_purchase_of_a_request() {
        let routes = GatedRoutes::default();
        assert_eq!(classify(&routes, "GET", ORDERS, &[]), RouteMatch::NotGated);
        for headers in [
            &[("X-HTTP-Method-Override", "POST")][..],
            &[("X-HTTP-Method-Override", " post ")],
            &[("X-HTTP-Method-Override", "GET, POST")],
            &[("X-HTTP-Method-Override", "GET"), ("X-HTTP-Method-Override", "POST")],
            &[("X-Method-Override", "POST")],
            &[("X-HTTP-Method", "POST")],
            &[("X_HTTP_Method_Override", "POST")],
        ] {
            assert_eq!(
                classify(&routes, "GET", ORDERS, headers),
                RouteMatch::Gated(drop_of(42), PassRule::NeedsAndSpends),
                "{headers:?}"
            );
        }
        for query in [
            "_method=POST",
            "a=b&_method=post",
            "a=b;_method=post",
            "_METHOD=post",
            "%5Fmethod=%50OST",
            "_method[]=POST",
            ".method=POST",
            "[method=POST",
            "%2Emethod=POST",
            "%20_method=POST",
            "+_method=POST",
            "_method%00=POST",
            "X-HTTP-Method-Override=POST",
            "x_http_method_override=POST",
            "X-Method-Override=POST",
            "X-HTTP-Method=POST",
        ] {
            let target = format!("{ORDERS}?{query}");
            assert_eq!(
                classify(&routes, "GET", &target, &[]),
                RouteMatch::Gated(drop_of(42), PassRule::NeedsAndSpends),
                "{query}"
            );
        }
        for query in ["method=POST", "a_method=POST", "_methods=POST", "a=_method=POST", "_method", "_method="] {
            assert_eq!(classify(&routes, "GET", &format!("{ORDERS}?{query}"), &[]), RouteMatch::NotGated, "{query}");
        }
        let get = [("X-HTTP-Method-Override", "GET")];
        assert_eq!(
            classify(&routes, "POST", ORDERS, &get),
            RouteMatch::Gated(drop_of(42), PassRule::NeedsAndSpends),
            "it stays what it was"
        );
    }

    #[test]
    fn a_path_asked_for_is_never_the_right_spelling() {
        let routes = GatedRoutes::default();
        for value in [
            ORDERS,
            "limited-drops/42/orders",
            "http://shop/limited-drops/42/orders?x",
            "//shop/limited-drops/42/orders",
            "//limited-drops//42/orders",
            "/limited-drops/42/orders?x=a://b",
            "/limited-drops/42/orders#a://b",
            "/limited-drops/42/orders?x=http://a/b",
            "limited-drops/42/orders?x=a://b",
            "/limited-drops/42/orders;a://b",
            "shop://x/limited-drops/42/orders?x=a://b",
        ] {
            for name in ["X-Original-URL", "X-Rewrite-URL", "X_Original_Url"] {
                let found = classify(&routes, "POST", "/", &[(name, value)]);
                assert_eq!(found, RouteMatch::OddSpelling(vec![suspect(42)]), "{name}: {value}");
                if value.contains('#') {
                    continue;
                }
                let in_it = format!("{value}{}_method=POST", if value.contains('?') { '&' } else { '?' });
                assert_eq!(classify(&routes, "GET", "/", &[(name, &in_it)]), found, "{name}: {in_it}");
            }
        }
        assert_eq!(classify(&routes, "POST", "/", &[("X-Original-URL", "/cart")]), RouteMatch::NotGated);
        let elsewhere = classify(&routes, "POST", ORDERS, &[("X-Original-URL", "/limited-drops/43/orders")]);
        assert_eq!(elsewhere, RouteMatch::OddSpelling(vec![suspect(42), suspect(43)]));
    }

    #[test]
    fn a_form_may_name_any_method() {
        let routes =
            GatedRoutes::new(vec![GatedRoute::new("PUT", "/drops/{id}", QueueTargetType::LimitedDrop).unwrap()]);
        let gated = drop_of(42);
        for kind in [
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "Application/X-WWW-Form-Urlencoded",
        ] {
            let found = classify(&routes, "POST", "/drops/42", &[("Content-Type", kind)]);
            assert_eq!(found, RouteMatch::Gated(gated, PassRule::NeedsAndSpends), "{kind}");
        }
        for unsaid in
            [&[][..], &[("Content-Type", "")], &[("Content-Type", "text/plain"), ("Content-Type", "multipart/x")]]
        {
            assert_eq!(
                classify(&routes, "POST", "/drops/42", unsaid),
                RouteMatch::Gated(gated, PassRule::NeedsAndSpends),
                "{unsaid:?}"
            );
        }
        for kind in ["application/json", "text/plain", "application/octet-stream"] {
            assert_eq!(
                classify(&routes, "POST", "/drops/42", &[("Content-Type", kind)]),
                RouteMatch::NotGated,
                "{kind}"
            );
        }
    }
}
