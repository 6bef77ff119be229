//! What the gate leaves unchanged: requests while the flag is off, and requests that are no purchases.

use super::*;

/// The flag, on for one target.
struct OnAt(QueueTarget);

impl FeatureFlagEvaluator for OnAt {
    fn is_enabled(&self, target: QueueTarget, _: UserId) -> bool {
        target == self.0
    }
    fn reach(&self, target: QueueTarget) -> Reach {
        if target == self.0 { Reach::Everybody } else { Reach::Nobody }
    }
    fn any_of(&self, kind: QueueTargetType) -> Option<QueueTarget> {
        (kind == self.0.kind()).then_some(self.0)
    }
    fn names(&self, target: QueueTarget) -> bool {
        target == self.0
    }
}

/// The shop sees exactly what was sent, and no pass is claimed.
async fn assert_untouched(fixture: &GateFixture, path: &str, lines: &[(&str, &str)]) {
    assert_eq!(fixture.send(path, lines).await.status, 201, "{path}");
    let mut sent: Vec<_> = lines.iter().map(|(name, value)| (name.to_ascii_lowercase(), (*value).to_owned())).collect();
    sent.push(("content-length".to_owned(), BODY.len().to_string()));
    sent.sort_unstable();
    let saw = fixture.shop.saw.borrow();
    let (headers, uri, body) = saw.last().unwrap();
    assert_eq!((headers, uri.as_str(), body.as_ref()), (&sent, path, BODY));
    assert!(!fixture.store.is_claimed() && fixture.store.settled().is_empty(), "{path}");
}

#[actix_web::test]
async fn with_the_flag_off_a_request_passes_byte_for_byte() {
    let fixture = GateFixture::with_flags(Arc::new(OnFor(HashSet::new())));
    let lines =
        [("X-User-Id", "not a number"), ("X-Entry-Token", "x"), ("X_User_Id", "8"), ("Cookie", "vq_limited-drop_42=x")];
    for path in [ORDERS, "/limited-drops/42//orders", "/limited-drops/%34%32/orders?a=%2F", "/limited-drops/x/orders"] {
        assert_untouched(&fixture, path, &lines).await;
    }
    assert_untouched(&fixture, ORDERS, &[("X-User-Id", "7"), ("X-Entry-Token", &fixture.pass(7))]).await;
}

#[actix_web::test]
async fn what_is_no_purchase_passes_untouched() {
    let fixture = GateFixture::new();
    for path in ["/", "/limited-drops/42", "/events/7/tickets/9", "/files/a%2Fb//../c"] {
        assert_untouched(&fixture, path, &[("X-Entry-Token", "mine"), ("X_User_Id", "8")]).await;
    }
}

#[actix_web::test]
async fn in_a_roll_out_only_the_people_in_it_need_a_pass() {
    let fixture = GateFixture::with_flags(Arc::new(OnFor(HashSet::from([7]))));
    assert_eq!(fixture.send(ORDERS, &[("X-User-Id", "8")]).await.status, 201);
    assert_eq!(fixture.send("/limited-drops/42/orders/", &[("X-User-Id", "8")]).await.status, 201);
    assert_denied(&fixture.send(ORDERS, &[("X-User-Id", "7")]).await);
    assert_denied(&fixture.send("/limited-drops/42/orders/", &[("X-User-Id", "7")]).await);
    assert_denied(&fixture.send(ORDERS, &[]).await);
    assert_denied(&fixture.send(ORDERS, &[("X-User-Id", "8"), ("X-User-Id", "8")]).await);
    assert_denied(&fixture.send("/limited-drops/42/orders/", &[]).await);
}

#[actix_web::test]
async fn a_rule_for_one_target_leaves_the_others_alone_under_every_spelling() {
    let fixture = GateFixture::with_flags(Arc::new(OnAt(target(QueueTargetType::LimitedDrop, 42))));
    for path in [
        "/limited-drops/43/orders",
        "/limited-drops/43/orders/",
        "/Limited_Drops/43/orders",
        "/limited-drops/4294967338/orders",
        "/events/042/seats/select",
        "/events/sale/seats/select",
    ] {
        assert_eq!(fixture.send(path, &[]).await.status, 201, "{path}");
    }
    // Another spelling may mean any target.
    for path in [ORDERS, "/limited-drops/42/orders/", "//x/limited-drops/42/orders", "//x/limited-drops/43/orders"] {
        assert_denied(&fixture.send(path, &[]).await);
    }
}

/// The shop may accept more spellings of numbers than we do.
#[actix_web::test]
async fn while_one_target_has_a_queue_no_id_of_its_kind_is_left_to_the_shop_to_make_out() {
    let fixture = GateFixture::with_flags(Arc::new(OnAt(target(QueueTargetType::LimitedDrop, 42))));
    for id in ["042", "043", "sale", "4294967338x", "0x2a", "4_2", "-"] {
        assert_eq!(fixture.send(&format!("/limited-drops/{id}/orders"), &[]).await.status, 404, "{id}");
        assert_denied(&fixture.send(&format!("/limited-drops/{id}/orders;{}", "a".repeat(600)), &[]).await);
    }
    for id in ["%D9%A4%D9%A2", "%E1%A5%8A%E1%A5%88", "%34%32", "42.0", "+42"] {
        assert_denied(&fixture.send(&format!("/limited-drops/{id}/orders"), &[]).await);
    }
    let off = GateFixture::with_flags(Arc::new(OnAt(target(QueueTargetType::TicketingEvent, 42))));
    for path in ["/limited-drops/042/orders".to_owned(), format!("/limited-drops/42/orders;{}", "a".repeat(600))] {
        assert_eq!(off.send(&path, &[]).await.status, 201, "{path}");
    }
}

/// A shop that reads the id from the query sells that target.
#[actix_web::test]
async fn a_query_cannot_say_another_target_than_the_path() {
    let fixture = GateFixture::with_flags(Arc::new(OnAt(target(QueueTargetType::LimitedDrop, 42))));
    for query in ["id=42", "dropId=42", "drop_id[]=42", "a=b&%69d=42"] {
        assert_denied(&fixture.send(&format!("/limited-drops/43/orders?{query}"), &[]).await);
    }
    for path in ["/limited-drops/43/orders?id=43", "/limited-drops/43/orders?a=42", "/limited-drops/43?id=42"] {
        assert_eq!(fixture.send(path, &[]).await.status, 201, "{path}");
    }
}

#[actix_web::test]
async fn a_header_that_moves_the_path_reaches_no_shop_even_with_the_flag_off() {
    let kept = PathHeader::named("X-Forwarded-Prefix").unwrap();
    for flags in [Arc::new(OnFor(HashSet::new())), Arc::new(OnFor(HashSet::from([8])))] {
        let mut fixture = GateFixture::with_flags(flags);
        fixture.gate = fixture.gate.keep_headers(vec![kept]);
        for path in ["/x/limited-drops/42/orders", "/cart", ORDERS] {
            let moving = [("SCRIPT_NAME", "/x"), ("X-Original-URL", "/x"), ("X.Forwarded.Prefix", "/x")];
            let lines = [&moving[..], &[("X-User-Id", "7"), ("X-Forwarded-Prefix", "/shop")]].concat();
            assert_eq!(fixture.send(path, &lines).await.status, 201, "{path}");
            let saw = fixture.shop.saw.borrow();
            let names: Vec<&str> = saw.last().unwrap().0.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["content-length", "x-forwarded-prefix", "x-user-id"], "{path}");
        }
    }
}
