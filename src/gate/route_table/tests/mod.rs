//! Which requests are purchases, and which are not.

mod disguises;
mod models;

use super::*;
use crate::domain::{InvalidPattern, QueueTargetType};

fn target(kind: QueueTargetType, id: u64) -> QueueTarget {
    QueueTarget::new(kind, id).unwrap()
}

fn drop_of(id: u64) -> QueueTarget {
    target(QueueTargetType::LimitedDrop, id)
}

fn event(id: u64) -> QueueTarget {
    target(QueueTargetType::TicketingEvent, id)
}

/// An odd spelling of the purchase of this target.
fn odd(target: QueueTarget) -> RouteMatch {
    RouteMatch::OddSpelling(vec![Suspect::Target(target)])
}

/// Whether the gate guards the purchase of this target.
fn is_guarded(seen: &RouteMatch, target: QueueTarget) -> bool {
    match seen {
        RouteMatch::NotGated => false,
        RouteMatch::Gated(gated, _) => *gated == target,
        RouteMatch::OddSpelling(suspects) | RouteMatch::UnknownId(suspects) => {
            suspects.contains(&Suspect::Target(target)) || suspects.contains(&Suspect::AnyOf(target.kind()))
        }
    }
}

fn classify(path: &str) -> RouteMatch {
    GatedRoutes::default().classify("POST", path)
}

#[test]
fn the_canonical_spelling_of_a_purchase_is_gated() {
    assert_eq!(classify("/limited-drops/42/orders"), RouteMatch::Gated(drop_of(42), PassRule::NeedsAndSpends));
    assert_eq!(
        classify("/limited-drops/9223372036854775807/orders"),
        RouteMatch::Gated(drop_of(i64::MAX as u64), PassRule::NeedsAndSpends)
    );
    assert_eq!(classify("/events/7/seats/select"), RouteMatch::Gated(event(7), PassRule::Needs));
    assert_eq!(classify("/events/7/tickets"), RouteMatch::Gated(event(7), PassRule::Spends));
}

#[test]
fn paths_that_are_no_purchase_under_any_reading_pass() {
    for path in [
        "/",
        "",
        "*",
        "/limited-drops",
        "/limited-drops/",
        "/limited-drops/42",
        "/limited-drops/42/",
        "/limited-drops/orders",
        "/limited-drops/42/order",
        "/limited-drops/42/orders1",
        "/limited-drops/42/orders-history",
        "/limited-drops/42/orders/9",
        "/limited-drops/42/orders/9/cancel",
        "/limited-drops/42/preorders",
        "/limited-drops/42/x/orders",
        "/limited-drop/42/orders",
        "/unlimited-drops/42/orders",
        "/v1/limited-drops/42/orders",
        "/shop/limited-drops/42/orders",
        "/orders/42/limited-drops",
        "/orders",
        "/orders/42",
        "/events",
        "/events/7",
        "/events/7/seats",
        "/events/7/seats/A1",
        "/events/7/seats/selected",
        "/events/7/seats/select/A1",
        "/events/7/seats/deselect",
        "/events/7/tickets/9",
        "/events/7/select/seats",
        "/seats/select",
        "/virtual-queues/limited-drop/42/entries",
        "/virtual-queues/limited-drop/42/entries/me",
        "/files/a%2Fb",
        "/files/a%252Fb",
        "/files/%2e%2e/x",
        "/files/../x",
        "/files//x/",
        "/files/a;b=c/d",
        "/files/%00",
        "/files/a%5Cb.json",
        "/files/50%",
        "/articles/how-limited-drops-and-orders-work",
        "/products/042",
        "/cart/+42/checkout",
        "/%F0%9F%8E%9F",
        "/a/b/c/d/e/f",
        "/x/limited-drops/42/orders",
        "/api/limited-drops/42/orders/1",
        "/api/limited_drops/42/orders",
        "/limited-drops/42/orders/1/",
        "/limited/drops/42/orders",
        "/files/a%2Fb/limited-drops/42",
        "/orders/42/a%2Fb/limited-drops",
        "/%ED%95%9C%EC%A0%95%ED%8C%90/42/%EC%A3%BC%EB%AC%B8",
        "/%D0%BB%D0%B8%D0%BC%D0%B8%D1%82/42/%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7",
        "/%C4%91%E1%BA%B7t-v%C3%A9/42/%C4%91%C6%A1n-h%C3%A0ng",
    ] {
        assert_eq!(classify(path), RouteMatch::NotGated, "{path}");
    }
}

/// The cost of the rule (`docs/adr/0019-paths-by-allow-list.md`): no server sells at these paths, but the gate cannot
/// know.
#[test]
fn some_odd_paths_are_refused_that_no_server_would_sell_at() {
    for path in [
        "/limited-drops/42/orders/..",
        "/limited-drops/42/../orders",
        "/limited-drops/42/orders/a%2Fb",
        "/limited-drops/42/preorders.json",
        "/unlimited-drops/42/orders.json",
        "/search/limited-drops%2F42%2Forders%2Fhelp",
        "/search/limited-drops%20orders",
        "/files/limited-drops/42/list-of-orders.pdf",
        "/limited-drops//orders",
    ] {
        let any = RouteMatch::OddSpelling(vec![Suspect::AnyOf(QueueTargetType::LimitedDrop)]);
        assert_eq!(classify(path), any, "{path}");
    }
    let any = RouteMatch::OddSpelling(vec![Suspect::AnyOf(QueueTargetType::TicketingEvent)]);
    assert_eq!(classify("/users/%EA%B9%80/events/seats/select"), any);
}

#[test]
fn a_query_that_begins_with_a_slash_is_a_path_to_some_front_controllers() {
    let classify = |target: &str| {
        let uri: Uri = target.parse().unwrap();
        GatedRoutes::default().classify_request(&Method::POST, &uri, &HeaderMap::new(), Body::Declared)
    };
    let any = RouteMatch::OddSpelling(vec![Suspect::AnyOf(QueueTargetType::LimitedDrop)]);
    for target in
        ["/?/limited-drops/42/orders", "/index.php?/limited-drops/42/orders&a=b", "/x?%2Flimited-drops/42/orders"]
    {
        assert_eq!(classify(target), any, "{target}");
    }
    for target in ["/?next=/limited-drops/42/orders", "/?/limited-drops/42", "/x?/orders"] {
        assert_eq!(classify(target), RouteMatch::NotGated, "{target}");
    }
}

#[test]
fn a_query_that_says_another_id_than_the_path_makes_an_odd_spelling() {
    let classify = |target: &str| {
        let uri: Uri = target.parse().unwrap();
        GatedRoutes::default().classify_request(&Method::POST, &uri, &HeaderMap::new(), Body::Declared)
    };
    let any = RouteMatch::OddSpelling(vec![Suspect::AnyOf(QueueTargetType::LimitedDrop)]);
    for query in ["id=42", "dropId=42", "id=43&id=42", "%69d[]=42"] {
        assert_eq!(classify(&format!("/limited-drops/43/orders?{query}")), any, "{query}");
    }
    for query in ["id=43", "dropId=43", "eventId=42", "a=42", ""] {
        let seen = classify(&format!("/limited-drops/43/orders?{query}"));
        assert_eq!(seen, RouteMatch::Gated(drop_of(43), PassRule::NeedsAndSpends), "{query}");
    }
    assert_eq!(classify("/cart?id=42"), RouteMatch::NotGated);
}

#[test]
fn other_methods_pass_and_other_spellings_of_the_method_do_not() {
    let routes = GatedRoutes::default();
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "POSTS", ""] {
        assert_eq!(routes.classify(method, "/limited-drops/42/orders"), RouteMatch::NotGated, "{method}");
        assert_eq!(routes.classify(method, "/limited-drops/42//orders"), RouteMatch::NotGated, "{method}");
    }
    for method in ["post", "Post"] {
        let there = routes.classify(method, "/limited-drops/42/orders");
        assert_eq!(there, odd(drop_of(42)), "{method}");
    }
}

#[test]
fn other_routes_can_be_gated_instead() {
    let route = GatedRoute::new("put", "/api/v2/sales/{sale_id}/claim", QueueTargetType::LimitedDrop).unwrap();
    let routes = GatedRoutes::new(vec![route]);
    assert_eq!(
        routes.classify("PUT", "/api/v2/sales/9/claim"),
        RouteMatch::Gated(drop_of(9), PassRule::NeedsAndSpends)
    );
    assert_eq!(routes.classify("PUT", "/api/v2/sales/9/Claim"), odd(drop_of(9)));
    assert_eq!(routes.classify("POST", "/limited-drops/42/orders"), RouteMatch::NotGated);
}

#[test]
fn two_routes_must_not_make_two_purchases_of_one_request() {
    use QueueTargetType::{LimitedDrop, TicketingEvent};
    let route = |(method, pattern, kind)| GatedRoute::new(method, pattern, kind).unwrap();
    let one = ("POST", "/a/{id}/5", LimitedDrop);
    for (other, clash) in [
        (("POST", "/a/7/{id}", LimitedDrop), true),
        (("POST", "/a/07/{id}", LimitedDrop), true),
        (("POST", "/a/{other}/5", TicketingEvent), true),
        (("POST", "/a/{other}/5", LimitedDrop), false),
        (("PUT", "/a/7/{id}", LimitedDrop), false),
        (("POST", "/a/b/{id}", LimitedDrop), false),
        (("POST", "/b/7/{id}", LimitedDrop), false),
        (("POST", "/a/{id}/6", LimitedDrop), false),
        (("POST", "/a/7/{id}/5", LimitedDrop), false),
    ] {
        let (one, other) = (route(one), route(other));
        assert_eq!(one.clashes_with(&other), clash, "{other:?}");
        assert_eq!(other.clashes_with(&one), clash, "{other:?}");
        let built = std::panic::catch_unwind(|| GatedRoutes::new(vec![one.clone(), other.clone()]));
        assert_eq!(built.is_err(), clash, "{other:?}");
    }
}

#[test]
fn a_pattern_has_words_and_one_parameter_each_in_its_right_spelling() {
    for good in ["/x/{id}", "/x/{sale_id}/y", "/api/v2/sales/{id}/claim"] {
        assert!(GatedRoute::new("POST", good, QueueTargetType::LimitedDrop).is_ok(), "{good}");
    }
    for bad in [
        "",
        "/",
        "x/{id}",
        "/{id}",
        "/x",
        "/x/{id}/{id}",
        "/x/{id}/{other}",
        "/X/{id}",
        "/x//{id}",
        "/x/{id}/",
        "/x/{}",
        "/x/y{id}",
        "/x/{id}/*",
        "/x/{id}%20",
        "/x%2F/{id}",
    ] {
        assert_eq!(GatedRoute::new("POST", bad, QueueTargetType::LimitedDrop), Err(InvalidPattern), "{bad}");
    }
}
