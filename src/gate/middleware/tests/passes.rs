//! Who gets through with what pass, and what the shop sees of it.

use super::*;

#[actix_web::test]
async fn a_valid_pass_reaches_the_shop_once() {
    let doors = Doors::new();
    let pass = doors.pass(7);
    assert_eq!(doors.buy(7, &pass).await.status, 201);
    assert_eq!(doors.store.settled(), [Settlement::Spent]);
    assert_denied(&doors.buy(7, &pass).await);
    assert_eq!(doors.shop.visits(), 1);
    assert!(!doors.metrics.render().contains("bypass_attempts_total{"), "a spent pass is no attempt to get round");
}

#[actix_web::test]
async fn whatever_is_wrong_with_a_pass_it_is_denied_and_counted() {
    let drop_42 = target(QueueTargetType::LimitedDrop, 42);
    let event_42 = target(QueueTargetType::TicketingEvent, 42);
    let drop_43 = target(QueueTargetType::LimitedDrop, 43);
    let doors = Doors::new();
    let good = doors.pass(7);
    for (reason, lines) in [
        ("no_pass", vec![("X-User-Id", "7".to_owned())]),
        ("no_user", vec![("X-Entry-Token", good.clone())]),
        ("no_user", vec![("X-User-Id", "007".to_owned()), ("X-Entry-Token", good.clone())]),
        ("no_user", vec![("X-User-Id", "7".into()), ("X-User-Id", "7".into()), ("X-Entry-Token", good.clone())]),
        (
            "forged",
            vec![
                ("X-User-Id", "7".into()),
                (
                    "X-Entry-Token",
                    Keyring::random().mint(drop_42, UserId::try_from(7).unwrap(), NOW + 300).raw().to_owned(),
                ),
            ],
        ),
        ("forged", vec![("X-User-Id", "7".into()), ("X-Entry-Token", String::new())]),
        ("forged", vec![("X-User-Id", "7".into()), ("X-Entry-Token", good.clone()), ("X-Entry-Token", good.clone())]),
        ("expired", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(drop_42, 7, NOW))]),
        ("expired", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(drop_42, 7, NOW - 1))]),
        ("other_user", vec![("X-User-Id", "8".into()), ("X-Entry-Token", good.clone())]),
        ("other_target", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(drop_43, 7, NOW + 300))]),
        ("other_target", vec![("X-User-Id", "7".into()), ("X-Entry-Token", doors.pass_until(event_42, 7, NOW + 300))]),
    ] {
        let lines: Vec<(&str, &str)> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_denied(&doors.send(ORDERS, &lines).await);
        assert!(doors.metrics.render().contains(&format!("attempts_total{{reason=\"{reason}\"}}")), "{reason}");
    }
    for path in ["/limited-drops/42//orders", "/limited-drops/42/Orders"] {
        assert_denied(&doors.send(path, &[("X-User-Id", "7"), ("X-Entry-Token", &good)]).await);
    }
    let odd_id = doors.send("/limited-drops/042/orders", &[("X-User-Id", "7"), ("X-Entry-Token", &good)]).await;
    assert_eq!((odd_id.status, odd_id.code.as_deref()), (404, Some("UNKNOWN_TARGET")));
    assert_eq!(doors.shop.visits(), 0);
    for series in [
        r#"virtual_queue_bypass_attempts_total{reason="no_user"} 3"#,
        r#"virtual_queue_bypass_attempts_total{reason="forged"} 3"#,
        r#"virtual_queue_bypass_attempts_total{reason="odd_path"} 3"#,
    ] {
        assert!(doors.counted(series), "{series}\n{}", doors.metrics.render());
    }
    assert_eq!(doors.buy(7, &good).await.status, 201, "and none of that harmed the pass");
}

#[actix_web::test]
async fn the_shop_never_sees_a_pass_or_a_second_user_id() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.cookie(true);
    let pass = doors.pass(7);
    let cookie = format!("session=s; vq_limited-drop_42={pass}");
    let lines = [("X-User-Id", "7"), ("X_User_Id", "8"), ("X_Entry_Token", "x"), ("Cookie", cookie.as_str())];
    assert_eq!(doors.send(ORDERS, &lines).await.status, 201, "the cookie is a pass, too");
    let saw = doors.shop.saw.borrow();
    let (headers, uri, body) = &saw[0];
    assert!(headers.contains(&("x-user-id".to_owned(), "7".to_owned())));
    assert!(headers.contains(&("cookie".to_owned(), "session=s".to_owned())));
    assert!(
        !headers.iter().any(|(name, value)| name.contains('_') || name == "x-entry-token" || value.contains(&pass))
    );
    assert_eq!((uri.as_str(), body.as_ref()), (ORDERS, &b"{\"quantity\":1}"[..]));
}

#[actix_web::test]
async fn a_gate_without_a_store_checks_the_pass_alone() {
    let doors = Doors::new();
    let gate = EntryTokenGate::new(doors.keys.clone(), Arc::new(AlwaysOn), StoreClock::new(FakeClock::at(NOW * 1000)));
    let doors = Doors { gate, ..doors };
    let pass = doors.pass(7);
    assert_eq!(doors.buy(7, &pass).await.status, 201);
    assert_eq!(doors.buy(7, &pass).await.status, 201);
    assert_denied(&doors.buy(8, &pass).await);
}
