//! Which passes are accepted, and what the shop sees of the request.

use super::*;

#[actix_web::test]
async fn a_valid_pass_reaches_the_shop_once() {
    let fixture = GateFixture::new();
    let pass = fixture.pass(7);
    assert_eq!(fixture.buy(7, &pass).await.status, 201);
    assert_eq!(fixture.store.settled(), [Settlement::Spent]);
    assert_denied(&fixture.buy(7, &pass).await);
    assert_eq!(fixture.shop.visits(), 1);
    assert_eq!(fixture.attempts(None), 0, "a spent pass is no attempt to get round");
}

#[actix_web::test]
async fn whatever_is_wrong_with_a_pass_it_is_denied_and_counted() {
    let drop_42 = target(QueueTargetType::LimitedDrop, 42);
    let event_42 = target(QueueTargetType::TicketingEvent, 42);
    let drop_43 = target(QueueTargetType::LimitedDrop, 43);
    let fixture = GateFixture::new();
    let good = fixture.pass(7);
    let forged = GateFixture::new().pass(7);
    let (ends_now, ended) = (fixture.pass_until(drop_42, 7, NOW), fixture.pass_until(drop_42, 7, NOW - 1));
    let (of_drop, of_event) = (fixture.pass_until(drop_43, 7, NOW + 300), fixture.pass_until(event_42, 7, NOW + 300));
    let (id, pass) = (("X-User-Id", "7"), ("X-Entry-Token", &*good));
    let (denied, unknown) = ((403, Some("QUEUE_BYPASS_DENIED")), (404, Some("UNKNOWN_TARGET")));
    let cases = [
        ("no_pass", denied, ORDERS, vec![id]),
        ("no_user", denied, ORDERS, vec![pass]),
        ("no_user", denied, ORDERS, vec![("X-User-Id", "007"), pass]),
        ("no_user", denied, ORDERS, vec![id, id, pass]),
        ("forged", denied, ORDERS, vec![id, ("X-Entry-Token", &forged)]),
        ("malformed", denied, ORDERS, vec![id, ("X-Entry-Token", "")]),
        ("malformed", denied, ORDERS, vec![id, pass, pass]),
        ("expired", denied, ORDERS, vec![id, ("X-Entry-Token", &ends_now)]),
        ("expired", denied, ORDERS, vec![id, ("X-Entry-Token", &ended)]),
        ("other_user", denied, ORDERS, vec![("X-User-Id", "8"), pass]),
        ("other_target", denied, ORDERS, vec![id, ("X-Entry-Token", &of_drop)]),
        ("other_target", denied, ORDERS, vec![id, ("X-Entry-Token", &of_event)]),
        ("odd_path", denied, "/limited-drops/42//orders", vec![id, pass]),
        ("odd_path", denied, "/limited-drops/42/Orders", vec![id, pass]),
        ("odd_path", unknown, "/limited-drops/042/orders", vec![id, pass]),
    ];
    for (reason, expected, path, lines) in &cases {
        let before = (fixture.attempts(Some(reason)), fixture.attempts(None));
        let answer = fixture.send(path, lines).await;
        assert_eq!((answer.status, answer.code.as_deref()), *expected, "{reason}: {path} {lines:?}");
        let after = (fixture.attempts(Some(reason)), fixture.attempts(None));
        assert_eq!(after, (before.0 + 1, before.1 + 1), "{reason}: {path} {lines:?}");
    }
    assert_eq!(fixture.shop.visits(), 0);
    assert_eq!(fixture.buy(7, &good).await.status, 201, "and none of that harmed the pass");
}

#[actix_web::test]
async fn the_shop_never_sees_a_pass_or_a_second_user_id() {
    let mut fixture = GateFixture::new();
    fixture.gate = fixture.gate.cookie(true);
    let pass = fixture.pass(7);
    let cookie = format!("session=s; vq_limited-drop_42={pass}");
    let lines = [("X-User-Id", "7"), ("X_User_Id", "8"), ("X_Entry_Token", "x"), ("Cookie", cookie.as_str())];
    assert_eq!(fixture.send(ORDERS, &lines).await.status, 201, "the cookie is a pass, too");
    let saw = fixture.shop.saw.borrow();
    let (headers, uri, body) = &saw[0];
    assert!(headers.contains(&("x-user-id".to_owned(), "7".to_owned())));
    assert!(headers.contains(&("cookie".to_owned(), "session=s".to_owned())));
    assert!(
        !headers.iter().any(|(name, value)| name.contains('_') || name == "x-entry-token" || value.contains(&pass))
    );
    assert_eq!((uri.as_str(), body.as_ref()), (ORDERS, BODY));
}

#[actix_web::test]
async fn of_several_cookies_the_good_pass_counts_and_else_the_one_that_is_most_nearly_good() {
    let drop_42 = target(QueueTargetType::LimitedDrop, 42);
    let of_drop_43 = target(QueueTargetType::LimitedDrop, 43);
    let mut fixture = GateFixture::new();
    fixture.gate = fixture.gate.cookie(true);
    let (good, earlier) = (fixture.pass_until(drop_42, 7, NOW + 300), fixture.pass_until(drop_42, 7, NOW + 200));
    let (ended, of_another) = (fixture.pass_until(drop_42, 7, NOW), fixture.pass_until(drop_42, 8, NOW + 300));
    let elsewhere = fixture.pass_until(of_drop_43, 7, NOW + 300);
    let send = async |lines: &[(&'static str, String)]| {
        let id = [("X-User-Id", "7")];
        let lines: Vec<_> = id.into_iter().chain(lines.iter().map(|(name, value)| (*name, value.as_str()))).collect();
        fixture.send(ORDERS, &lines).await.status
    };
    let cookies =
        |passes: &[&str]| passes.iter().map(|pass| format!("vq_limited-drop_42={pass}")).collect::<Vec<_>>().join("; ");
    let forged = &*GateFixture::new().pass(7);
    for (reason, passes) in [
        ("malformed", &["no pass", "nor this"][..]),
        ("forged", &["no pass", forged]),
        ("other_target", &[forged, &elsewhere, forged]),
        ("other_user", &[&elsewhere, &of_another, forged]),
        ("expired", &[&ended, &of_another, &elsewhere, forged]),
        ("expired", &[forged, &elsewhere, &of_another, &ended]),
        // The fifth cookie is not checked.
        ("expired", &[&ended, &ended, &ended, &ended, &good]),
    ] {
        let before = fixture.attempts(Some(reason));
        assert_eq!(send(&[("Cookie", cookies(passes))]).await, 403, "{passes:?}");
        assert_eq!(fixture.attempts(Some(reason)), before + 1, "{passes:?}");
    }
    // A valid cookie does not help if the header is invalid.
    assert_eq!(send(&[("X-Entry-Token", forged.to_owned()), ("Cookie", cookies(&[&good]))]).await, 403);
    let two_headers = [("X-Entry-Token", good.clone()), ("X-Entry-Token", good.clone())];
    assert_eq!(send(&two_headers).await, 403);
    assert_eq!(fixture.shop.visits(), 0);

    let two_lines = [("Cookie", cookies(&[&ended, &earlier])), ("Cookie", cookies(&[forged, &good]))];
    assert_eq!(send(&two_lines).await, 201);
    assert_eq!(send(&[("Cookie", cookies(&[&earlier, &good]))]).await, 403, "once");
}

#[actix_web::test]
async fn a_gate_without_a_store_checks_the_pass_alone() {
    let fixture = GateFixture::new();
    let gate =
        EntryTokenGate::new(fixture.keys.clone(), Arc::new(AlwaysOn), StoreClock::new(FakeClock::at(NOW * 1000)));
    let fixture = GateFixture { gate, ..fixture };
    let pass = fixture.pass(7);
    assert_eq!(fixture.buy(7, &pass).await.status, 201);
    assert_eq!(fixture.buy(7, &pass).await.status, 201);
    assert_denied(&fixture.buy(8, &pass).await);
}
