//! What a request asks for beside its request line: another method, another path (DESIGN 8).
//!
//! Many frameworks take the method from a header or a parameter, and some the path. The gate cannot know what the shop's
//! does, so a request counts as a purchase when it is one under its own method and path or under any it asks for.

use actix_web::http::{
    Method, Uri,
    header::{CONTENT_TYPE, HeaderMap},
};

use super::{
    readings::decoded,
    routes::{GatedRoutes, RouteMatch},
};
use crate::identity::folded;

/// Headers that name another method: Rails, Laravel, Symfony, Express, ASP.NET, Google's and Microsoft's APIs.
const METHOD_HEADERS: [&str; 3] = ["x-http-method-override", "x-method-override", "x-http-method"];

/// Headers that name another path: IIS, and the frameworks that followed it.
const PATH_HEADERS: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// The parameter that names another method, in a query or in a form.
const METHOD_PARAMETER: &str = "_method";

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
        for pair in uri.query().into_iter().flat_map(|query| query.split(['&', ';'])) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name);
            if name.trim_matches(|c: char| !c.is_alphanumeric() && c != '_').eq_ignore_ascii_case(METHOD_PARAMETER) {
                asked.method(&decoded(value));
            }
        }
        asked
    }

    fn method(&mut self, text: &str) {
        let word: String = text.chars().filter(char::is_ascii_alphabetic).collect();
        if !word.is_empty() {
            self.methods.push(word.to_ascii_uppercase());
        }
    }

    /// The path of a URL or of a bare path.
    fn path(&mut self, text: &str) {
        let text = text.trim();
        let path = match text.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
            None => text,
        };
        let path = path.split(['?', '#']).next().unwrap_or_default();
        self.paths.push(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") });
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).any(|kind| {
        let kind = kind.as_bytes().to_ascii_lowercase();
        kind.starts_with(b"application/x-www-form-urlencoded") || kind.starts_with(b"multipart/")
    })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::{
        domain::{QueueTarget, QueueTargetType},
        gate::GatedRoute,
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

    fn drop(id: u64) -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, id).unwrap()
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
            assert_eq!(classify(&routes, "GET", ORDERS, headers), RouteMatch::Gated(drop(42)), "{headers:?}");
        }
        for query in ["_method=POST", "a=b&_method=post", "_METHOD=post", "%5Fmethod=%50OST", "_method[]=POST"] {
            let target = format!("{ORDERS}?{query}");
            assert_eq!(classify(&routes, "GET", &target, &[]), RouteMatch::Gated(drop(42)), "{query}");
        }
        let get = [("X-HTTP-Method-Override", "GET")];
        assert_eq!(classify(&routes, "POST", ORDERS, &get), RouteMatch::Gated(drop(42)), "it stays what it was");
    }

    #[test]
    fn a_path_asked_for_is_never_the_right_spelling() {
        let routes = GatedRoutes::default();
        for value in
            [ORDERS, "limited-drops/42/orders", "http://shop/limited-drops/42/orders?x", "//limited-drops//42/orders"]
        {
            for name in ["X-Original-URL", "X-Rewrite-URL", "X_Original_Url"] {
                let found = classify(&routes, "POST", "/", &[(name, value)]);
                assert_eq!(found, RouteMatch::OddSpelling(vec![drop(42)]), "{name}: {value}");
            }
        }
        assert_eq!(classify(&routes, "POST", "/", &[("X-Original-URL", "/cart")]), RouteMatch::NotGated);
        let elsewhere = classify(&routes, "POST", ORDERS, &[("X-Original-URL", "/limited-drops/43/orders")]);
        assert_eq!(elsewhere, RouteMatch::OddSpelling(vec![drop(42), drop(43)]));
    }

    #[test]
    fn a_form_may_name_any_method() {
        let routes =
            GatedRoutes::new(vec![GatedRoute::new("PUT", "/drops/{id}", QueueTargetType::LimitedDrop).unwrap()]);
        for kind in [
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "Application/X-WWW-Form-Urlencoded",
        ] {
            let found = classify(&routes, "POST", "/drops/42", &[("Content-Type", kind)]);
            assert_eq!(found, RouteMatch::Gated(drop(42)), "{kind}");
        }
        let json = [("Content-Type", "application/json")];
        assert_eq!(classify(&routes, "POST", "/drops/42", &json), RouteMatch::NotGated);
    }
}
