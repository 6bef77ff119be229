use actix_web::http::header::{HeaderName, HeaderValue};

use super::*;
use crate::{
    domain::{QueueTarget, QueueTargetType},
    gate::{GatedRoutes, RouteMatch, Suspect},
};

const ORDERS: &str = "/limited-drops/42/orders";
const FORM: &str = "application/x-www-form-urlencoded";

type Lines<'a> = &'a [(&'a str, &'a [u8])];

fn verdict(routes: &GatedRoutes, line: &str, headers: Lines<'_>, body: Body) -> RouteMatch {
    let (method, target) = line.split_once(' ').expect("a method and a target");
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
    }
    routes.classify_request(&method.parse().unwrap(), &target.parse().unwrap(), &map, body)
}

fn drop_42() -> QueueTarget {
    QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap()
}

#[track_caller]
fn assert_gated(routes: &GatedRoutes, line: &str, headers: Lines<'_>, body: Body) {
    let found = verdict(routes, line, headers, body);
    assert!(matches!(found, RouteMatch::Gated(target, _) if target == drop_42()), "{line} {headers:?}: {found:?}");
}

#[track_caller]
fn assert_free(routes: &GatedRoutes, line: &str, headers: Lines<'_>, body: Body) {
    assert_eq!(verdict(routes, line, headers, body), RouteMatch::NotGated, "{line} {headers:?}");
}

#[test]
fn a_header_that_asks_for_the_method_makes_a_purchase_of_a_request() {
    let routes = GatedRoutes::default();
    for method in ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"] {
        let line = format!("{method} {ORDERS}");
        assert_free(&routes, &line, &[], Body::Declared);
        for name in [
            "X-HTTP-Method-Override",
            "X-Method-Override",
            "X-HTTP-Method",
            "X_HTTP_Method_Override",
            "X.HTTP.Method.Override",
            "X-HTTP_Method.Override",
            "x!http#method$override",
        ] {
            assert_gated(&routes, &line, &[(name, b"POST")], Body::Declared);
            assert_gated(&routes, &line, &[(name, b"GET"), (name, b"POST")], Body::Declared);
            assert_free(&routes, &line, &[(name, b"DELETE")], Body::Declared);
        }
    }
    assert_gated(&routes, &format!("POST {ORDERS}"), &[("X-HTTP-Method-Override", b"GET")], Body::Declared);
    for name in ["HTTP-Method-Override", "X-HTTP-Method-Overrides", "XX-HTTP-Method-Override"] {
        assert_free(&routes, &format!("GET {ORDERS}"), &[(name, b"POST")], Body::Declared);
    }
}

#[test]
fn a_header_may_write_the_method_in_any_letters_that_become_it() {
    let routes = GatedRoutes::default();
    for value in [
        &b"post"[..],
        b" post ",
        b"\"POST\"",
        b"GET, POST",
        b"GET;POST",
        b"%50OST",
        b"%2550OST",
        "po\u{17f}t".as_bytes(),
        "PO\u{17f}T".as_bytes(),
        "po%C5%BFt".as_bytes(),
        "ｐｏｓｔ".as_bytes(),
        "p\u{f6}st".as_bytes(),
        "po\u{fb06}".as_bytes(),
        "po\u{200b}st".as_bytes(),
        // Latin-1: some servers read headers so.
        b"p\xf6st",
    ] {
        assert_gated(&routes, &format!("GET {ORDERS}"), &[("X-HTTP-Method-Override", value)], Body::Declared);
    }
    let of = |method| GatedRoute::new(method, "/limited-drops/{id}/orders", QueueTargetType::LimitedDrop).unwrap();
    let routes = GatedRoutes::new(vec![of("LINK")]);
    for value in ["l\u{131}nk", "L\u{130}NK", "lin\u{212a}"] {
        assert_gated(&routes, &format!("GET {ORDERS}"), &[("X-Method-Override", value.as_bytes())], Body::Declared);
    }
    for value in ["PATCH", "", "P-A-T-C-H", "\u{440}\u{43e}st", "김치"] {
        let routes = GatedRoutes::default();
        assert_free(&routes, &format!("GET {ORDERS}"), &[("X-HTTP-Method", value.as_bytes())], Body::Declared);
    }
}

#[test]
fn a_parameter_that_asks_for_the_method_makes_a_purchase_of_a_request() {
    let routes = GatedRoutes::default();
    for query in [
        "_method=POST",
        "a=b&_method=post",
        "a=b;_method=post",
        "_METHOD=post",
        "%5Fmethod=%50OST",
        "_method[]=POST",
        ".method=POST",
        "[method=POST",
        "[_method]=POST",
        "%2Emethod=POST",
        "%20_method=POST",
        "+_method=POST",
        "_method%00=POST",
        "_method%00x=POST",
        "_method=po%C5%BFt",
        "X-HTTP-Method-Override=POST",
        "x_http_method_override=POST",
        "X-Method-Override=POST",
        "X-HTTP-Method=POST",
    ] {
        assert_gated(&routes, &format!("GET {ORDERS}?{query}"), &[], Body::Declared);
    }
    for query in
        ["method=POST", "a_method=POST", "_methods=POST", "a=_method=POST", "_method", "_method=", "_method=GET"]
    {
        assert_free(&routes, &format!("GET {ORDERS}?{query}"), &[], Body::Declared);
    }
}

/// A framework that takes methods from a form may do so for any request.
#[test]
fn a_form_may_name_any_method_whatever_its_own() {
    let routes = GatedRoutes::default();
    let length: (&str, &[u8]) = ("Content-Length", b"12");
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
        let line = format!("{method} {ORDERS}");
        for kind in [
            FORM,
            "Application/X-WWW-Form-Urlencoded; charset=utf-8",
            "multipart/form-data; boundary=x",
            "multipart/mixed",
            "application/x-url-encoded",
            "text/plain, application/x-www-form-urlencoded",
            "application/json; multipart/form-data",
            "form",
            "",
            ";",
        ] {
            let kind = ("Content-Type", kind.as_bytes());
            assert_gated(&routes, &line, &[length, kind], Body::Declared);
            assert_gated(&routes, &line, &[("Transfer-Encoding", b"chunked"), kind], Body::Declared);
            assert_gated(&routes, &line, &[kind], Body::Unknown);
            // There is no body that could name a method.
            assert_free(&routes, &line, &[kind], Body::Declared);
            assert_free(&routes, &line, &[("Content-Length", b"0"), kind], Body::Declared);
        }
        assert_gated(&routes, &line, &[length], Body::Declared);
        let two: Lines<'_> = &[length, ("Content-Type", b"text/plain"), ("Content-Type", b"multipart/x")];
        assert_gated(&routes, &line, two, Body::Declared);
        for kind in [
            "application/json",
            "application/json; charset=utf-8",
            "application/merge-patch+json",
            "Application/JSON",
            "text/plain",
            "text/xml",
            "application/octet-stream",
            "image/png",
        ] {
            assert_free(&routes, &line, &[length, ("Content-Type", kind.as_bytes())], Body::Declared);
        }
    }
}

/// A forward-auth question has no body, even if the request it is about has one.
#[test]
fn a_question_without_a_content_type_may_be_about_a_form_only_where_bodies_are_usual() {
    let routes = GatedRoutes::default();
    for (method, is_gated) in [("PUT", true), ("PATCH", true), ("GET", false), ("HEAD", false), ("DELETE", false)] {
        let line = format!("{method} {ORDERS}");
        for headers in [&[][..], &[("Content-Length", &b"0"[..])]] {
            let found = verdict(&routes, &line, headers, Body::Unknown);
            assert_eq!(found != RouteMatch::NotGated, is_gated, "{line}: {found:?}");
        }
    }
    assert_gated(&routes, &format!("DELETE {ORDERS}"), &[("Content-Length", b"9")], Body::Unknown);
}

#[test]
fn a_form_counts_as_every_method_that_buys_at_its_path() {
    let put = GatedRoute::new("PUT", "/drops/{id}", QueueTargetType::LimitedDrop).unwrap();
    let delete = GatedRoute::new("DELETE", "/drops/{id}", QueueTargetType::TicketingEvent).unwrap();
    let form: Lines<'_> = &[("Content-Length", b"11"), ("Content-Type", FORM.as_bytes())];
    assert_gated(&GatedRoutes::new(vec![put.clone()]), "POST /drops/42", form, Body::Declared);
    let both = verdict(&GatedRoutes::new(vec![put, delete]), "POST /drops/42", form, Body::Declared);
    assert!(matches!(&both, RouteMatch::OddSpelling(suspects) if suspects.len() == 2), "{both:?}");
    assert!(matches!(&both, RouteMatch::OddSpelling(suspects) if suspects.contains(&Suspect::Target(drop_42()))));
}
