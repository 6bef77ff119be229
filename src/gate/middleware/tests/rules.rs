//! Routes that need a pass and do not spend it, and routes that need none and spend all the buyer has.

use super::*;

const SELECT: &str = "/events/7/seats/select";
const TICKETS: &str = "/events/7/tickets";

impl GateFixture {
    fn event_pass(&self, user: u64) -> String {
        self.pass_until(target(QueueTargetType::TicketingEvent, 7), user, NOW + 300)
    }

    async fn select(&self, user: u64, pass: &str) -> Answered {
        self.send(SELECT, &[("X-User-Id", &user.to_string()), ("X-Entry-Token", pass)]).await
    }

    async fn buy_tickets(&self, user: u64) -> Answered {
        self.send(TICKETS, &[("X-User-Id", &user.to_string())]).await
    }

    /// One entry for each time the store was told of tickets: whether it was told late.
    fn told_of_tickets(&self) -> Vec<bool> {
        self.store.state.lock().unwrap().spent_all.iter().map(|(_, late)| *late).collect()
    }
}

#[actix_web::test]
async fn a_route_that_does_not_spend_gives_the_pass_back_whatever_the_shop_answers() {
    let fixture = GateFixture::new();
    let pass = fixture.event_pass(7);
    for status in [200, 201, 303, 409, 500] {
        fixture.shop.answers.set(status);
        assert_eq!(fixture.select(7, &pass).await.status, status);
        assert!(!fixture.store.is_claimed(), "after {status}");
    }
    fixture.shop.no_answer.set(true);
    assert_eq!(fixture.select(7, &pass).await.status, 500);
    assert!(!fixture.store.is_claimed(), "success would have spent nothing, so nobody need wait for the lease");
    assert_eq!(fixture.store.settled(), [Settlement::GivenBack; 6]);
    assert_denied(&fixture.send(SELECT, &[("X-User-Id", "7")]).await);
}

#[actix_web::test]
async fn two_calls_at_once_with_one_pass_are_one_and_a_refusal_also_where_it_is_not_spent() {
    let fixture = GateFixture::new();
    let pass = fixture.event_pass(7);
    let app = fixture.open().await;
    let shop_answers = fixture.shop.takes_its_time();
    let lines = [("X-User-Id", "7"), ("X-Entry-Token", pass.as_str())];
    let first = actix_rt::spawn(app.call(post(SELECT, &lines)));
    until("it is there", || fixture.shop.visits() == 1).await;
    let second = answered(app.call(post(SELECT, &lines)).await).await;
    assert_eq!((second.status, second.code.as_deref()), (409, Some("PASS_IN_USE")));
    // Buying tickets needs no pass, and spends the claimed one.
    *fixture.shop.wait.borrow_mut() = None;
    assert_eq!(fixture.buy_tickets(7).await.status, 201);
    shop_answers.notify_one();
    assert_eq!(answered(first.await.unwrap()).await.status, 201);
    let third = fixture.select(7, &pass).await;
    assert_denied(&third);
    assert_eq!(third.reason.as_deref(), Some("spent"));
}

#[actix_web::test]
async fn a_route_that_needs_no_pass_spends_what_its_user_has_when_the_shop_has_sold() {
    let fixture = GateFixture::new();
    let pass = fixture.event_pass(7);
    for status in [400, 409, 500] {
        fixture.shop.answers.set(status);
        assert_eq!(fixture.buy_tickets(7).await.status, status);
    }
    fixture.shop.answers.set(504);
    fixture.shop.no_answer.set(true);
    assert_eq!(fixture.buy_tickets(7).await.status, 504, "nobody knows whether it was sold");
    fixture.shop.no_answer.set(false);
    assert!(fixture.told_of_tickets().is_empty());
    for status in [201, 303] {
        fixture.shop.answers.set(status);
        assert_eq!(fixture.buy_tickets(7).await.status, status);
    }
    assert_eq!(fixture.told_of_tickets(), [false, false]);
    assert_denied(&fixture.select(7, &pass).await);
    fixture.shop.answers.set(201);
    assert_eq!(fixture.select(8, &fixture.event_pass(8)).await.status, 201, "nobody else's");
    let saw = fixture.shop.saw.borrow();
    let tickets = saw.iter().find(|(_, path, _)| path == TICKETS).expect("it was there");
    assert_eq!(tickets.2, BODY);
}

#[actix_web::test]
async fn a_pass_that_is_shown_where_none_is_needed_is_not_looked_at_and_stays_here() {
    let fixture = GateFixture::new();
    for pass in ["nonsense", &fixture.event_pass(8)] {
        let lines = [("X-User-Id", "7"), ("X-Entry-Token", pass), ("X_User_Id", "8")];
        assert_eq!(fixture.send(TICKETS, &lines).await.status, 201, "{pass}");
    }
    let saw = fixture.shop.saw.borrow();
    assert!(
        saw.iter().all(|(lines, _, _)| lines.iter().all(|(name, _)| !name.contains("token") && name != "x_user_id"))
    );
}

#[actix_web::test]
async fn who_buys_must_be_known_also_where_no_pass_is_needed() {
    let fixture = GateFixture::new();
    for lines in [&[][..], &[("X-User-Id", "007")], &[("X-User-Id", "7"), ("X-User-Id", "7")]] {
        let answer = fixture.send(TICKETS, lines).await;
        assert_denied(&answer);
        assert_eq!(answer.reason.as_deref(), Some("no_user"), "{lines:?}");
    }
    let odd = fixture.send("/events/7//tickets", &[("X-User-Id", "7")]).await;
    assert_denied(&odd);
    assert_eq!(odd.reason.as_deref(), Some("odd_path"), "under another spelling nothing would be spent");
    assert_eq!(fixture.shop.visits(), 0);
    let off = GateFixture::with_flags(Arc::new(OnFor(HashSet::from([8]))));
    assert_eq!(off.buy_tickets(7).await.status, 201);
    assert!(off.told_of_tickets().is_empty(), "not in the roll-out: nothing is spent");
}

#[actix_web::test]
async fn tickets_are_sold_while_the_store_is_away_and_it_is_told_afterwards() {
    let fixture = GateFixture::new();
    fixture.store.state.lock().unwrap().settle_failures = 3;
    let answer = fixture.buy_tickets(7).await;
    assert_eq!((answer.status, answer.degraded.as_deref()), (201, Some("redis")));
    assert!(fixture.counted(r#"virtual_queue_redis_degraded_total{operation="gate"} 1"#));
    until("it is told", || !fixture.told_of_tickets().is_empty()).await;
    assert_eq!(fixture.told_of_tickets(), [true], "and told that it was before");
    assert_denied(&fixture.select(7, &fixture.event_pass(7)).await);

    let mut fixture = GateFixture::new();
    fixture.gate = fixture.gate.passes_live(Duration::from_millis(4));
    fixture.store.state.lock().unwrap().settle_failures = 100;
    assert_eq!(fixture.buy_tickets(7).await.status, 201);
    until("nobody tries any more", || fixture.gate.retrying.available_permits() == MAX_RETRYING).await;
    assert_eq!(fixture.store.state.lock().unwrap().settle_failures, 95, "for as long as a pass lives");
}

#[actix_web::test]
async fn calls_that_need_no_pass_are_shed_as_all_purchases_are() {
    let mut fixture = GateFixture::new();
    fixture.gate = fixture.gate.shed_beyond(1);
    let app = fixture.open().await;
    let shop_answers = fixture.shop.takes_its_time();
    let first = actix_rt::spawn(app.call(post(TICKETS, &[("X-User-Id", "1")])));
    until("it is there", || fixture.shop.visits() == 1).await;
    let shed = answered(app.call(post(TICKETS, &[("X-User-Id", "2")])).await).await;
    assert_eq!((shed.status, shed.code.as_deref()), (503, Some("OVERLOADED")));
    shop_answers.notify_one();
    assert_eq!(answered(first.await.unwrap()).await.status, 201);
}

#[actix_web::test]
async fn without_single_use_nothing_is_spent() {
    let mut fixture = GateFixture::new();
    fixture.gate.store = None;
    assert_eq!(fixture.buy_tickets(7).await.status, 201);
    for _ in 0..2 {
        assert_eq!(fixture.select(7, &fixture.event_pass(7)).await.status, 201);
    }
    assert!(fixture.told_of_tickets().is_empty() && fixture.store.settled().is_empty());
}

#[actix_web::test]
async fn refusals_say_why_in_the_language_of_the_buyer() {
    let fixture = GateFixture::new();
    let foreign = GateFixture::new().event_pass(7);
    let of_the_drop = fixture.pass(7);
    let over = fixture.pass_until(target(QueueTargetType::TicketingEvent, 7), 7, NOW);
    let spent = fixture.event_pass(9);
    assert_eq!(fixture.buy_tickets(9).await.status, 201);
    for (user, pass, reason) in [
        ("7", None, "no_pass"),
        ("7", Some("no pass"), "malformed"),
        ("7", Some(foreign.as_str()), "forged"),
        ("7", Some(over.as_str()), "expired"),
        ("8", Some(spent.as_str()), "other_user"),
        ("7", Some(of_the_drop.as_str()), "other_target"),
        ("9", Some(spent.as_str()), "spent"),
        ("x", Some(spent.as_str()), "no_user"),
    ] {
        let mut told = Vec::new();
        for language in [None, Some("en-GB, ko;q=0.5"), Some("ko, en;q=0.9")] {
            let mut lines = vec![("X-User-Id", user)];
            lines.extend(pass.map(|pass| ("X-Entry-Token", pass)));
            lines.extend(language.map(|language| ("Accept-Language", language)));
            let answer = fixture.send(SELECT, &lines).await;
            assert_denied(&answer);
            assert_eq!(answer.reason.as_deref(), Some(reason), "{user} {pass:?}");
            told.push((answer.language.unwrap(), answer.detail.unwrap()));
        }
        assert_eq!([&told[0].0, &told[1].0], ["ko", "en"], "{reason}");
        assert!(told[0] == told[2] && told[1].1.is_ascii() && !told[0].1.is_ascii(), "{reason}: {told:?}");
    }
    fixture.claim_answers(Ok(Claim::Expired));
    assert_eq!(
        fixture.select(7, &fixture.event_pass(7)).await.reason.as_deref(),
        Some("expired"),
        "on the store's time"
    );
}
