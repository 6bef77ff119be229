//! Routes that need a pass and do not spend it, and routes that need none and spend whatever there is.

use super::*;

const SELECT: &str = "/events/7/seats/select";
const TICKETS: &str = "/events/7/tickets";

impl Doors {
    fn event_pass(&self, user: u64) -> String {
        self.pass_until(target(QueueTargetType::TicketingEvent, 7), user, NOW + 300)
    }

    async fn select(&self, user: u64, pass: &str) -> Answered {
        self.send(SELECT, &[("X-User-Id", &user.to_string()), ("X-Entry-Token", pass)]).await
    }

    async fn buy_tickets(&self, user: u64) -> Answered {
        self.send(TICKETS, &[("X-User-Id", &user.to_string())]).await
    }

    /// Whether the store was told late, each time that it was told of tickets.
    fn told_of_tickets(&self) -> Vec<bool> {
        self.store.state.lock().unwrap().spent_all.iter().map(|(_, late)| *late).collect()
    }
}

#[actix_web::test]
async fn a_route_that_does_not_spend_gives_the_pass_back_whatever_the_shop_answers() {
    let doors = Doors::new();
    let pass = doors.event_pass(7);
    for status in [200, 201, 303, 409, 500] {
        doors.shop.answers.set(status);
        assert_eq!(doors.select(7, &pass).await.status, status);
        assert!(!doors.store.is_claimed(), "after {status}");
    }
    doors.shop.no_answer.set(true);
    assert_eq!(doors.select(7, &pass).await.status, 500);
    assert!(!doors.store.is_claimed(), "success would have spent nothing, so nobody need wait for the lease");
    assert_eq!(doors.store.settled(), [Settlement::GivenBack; 6]);
    assert_denied(&doors.send(SELECT, &[("X-User-Id", "7")]).await);
}

#[actix_web::test]
async fn two_calls_at_once_with_one_pass_are_one_and_a_refusal_also_where_it_is_not_spent() {
    let doors = Doors::new();
    let pass = doors.event_pass(7);
    let app = doors.open().await;
    let shop_answers = doors.shop.takes_its_time();
    let lines = [("X-User-Id", "7"), ("X-Entry-Token", pass.as_str())];
    let first = actix_rt::spawn(app.call(post(SELECT, &lines)));
    until("it is there", || doors.shop.visits() == 1).await;
    let second = answered(app.call(post(SELECT, &lines)).await).await;
    assert_eq!((second.status, second.code.as_deref()), (409, Some("PASS_IN_USE")));
    // The purchase itself needs no pass, and spends the one that is claimed.
    *doors.shop.wait.borrow_mut() = None;
    assert_eq!(doors.buy_tickets(7).await.status, 201);
    shop_answers.notify_one();
    assert_eq!(answered(first.await.unwrap()).await.status, 201);
    let third = doors.select(7, &pass).await;
    assert_denied(&third);
    assert_eq!(third.reason.as_deref(), Some("spent"));
}

#[actix_web::test]
async fn a_route_that_needs_no_pass_spends_what_its_user_has_when_the_shop_has_sold() {
    let doors = Doors::new();
    let pass = doors.event_pass(7);
    for status in [400, 409, 500] {
        doors.shop.answers.set(status);
        assert_eq!(doors.buy_tickets(7).await.status, status);
    }
    doors.shop.answers.set(504);
    doors.shop.no_answer.set(true);
    assert_eq!(doors.buy_tickets(7).await.status, 504, "nobody knows whether it was sold");
    doors.shop.no_answer.set(false);
    assert!(doors.told_of_tickets().is_empty());
    for status in [201, 303] {
        doors.shop.answers.set(status);
        assert_eq!(doors.buy_tickets(7).await.status, status);
    }
    assert_eq!(doors.told_of_tickets(), [false, false]);
    assert_denied(&doors.select(7, &pass).await);
    doors.shop.answers.set(201);
    assert_eq!(doors.select(8, &doors.event_pass(8)).await.status, 201, "nobody else's");
    let saw = doors.shop.saw.borrow();
    let tickets = saw.iter().find(|(_, path, _)| path == TICKETS).expect("it was there");
    assert_eq!(tickets.2, BODY);
}

#[actix_web::test]
async fn a_pass_that_is_shown_where_none_is_needed_is_not_looked_at_and_stays_here() {
    let doors = Doors::new();
    for pass in ["nonsense", &doors.event_pass(8)] {
        let lines = [("X-User-Id", "7"), ("X-Entry-Token", pass), ("X_User_Id", "8")];
        assert_eq!(doors.send(TICKETS, &lines).await.status, 201, "{pass}");
    }
    let saw = doors.shop.saw.borrow();
    assert!(
        saw.iter().all(|(lines, _, _)| lines.iter().all(|(name, _)| !name.contains("token") && name != "x_user_id"))
    );
}

#[actix_web::test]
async fn who_buys_must_be_known_also_where_no_pass_is_needed() {
    let doors = Doors::new();
    for lines in [&[][..], &[("X-User-Id", "007")], &[("X-User-Id", "7"), ("X-User-Id", "7")]] {
        let answer = doors.send(TICKETS, lines).await;
        assert_denied(&answer);
        assert_eq!(answer.reason.as_deref(), Some("no_user"), "{lines:?}");
    }
    let odd = doors.send("/events/7//tickets", &[("X-User-Id", "7")]).await;
    assert_denied(&odd);
    assert_eq!(odd.reason.as_deref(), Some("odd_path"), "under another spelling nothing would be spent");
    assert_eq!(doors.shop.visits(), 0);
    let off = Doors::with_flags(Arc::new(OnFor(HashSet::from([8]))));
    assert_eq!(off.buy_tickets(7).await.status, 201);
    assert!(off.told_of_tickets().is_empty(), "not in the roll-out: nothing is spent");
}

#[actix_web::test]
async fn tickets_are_sold_while_the_store_is_away_and_it_is_told_afterwards() {
    let doors = Doors::new();
    doors.store.state.lock().unwrap().settle_failures = 3;
    let answer = doors.buy_tickets(7).await;
    assert_eq!((answer.status, answer.degraded.as_deref()), (201, Some("redis")));
    assert!(doors.counted(r#"virtual_queue_redis_degraded_total{operation="gate"} 1"#));
    until("it is told", || !doors.told_of_tickets().is_empty()).await;
    assert_eq!(doors.told_of_tickets(), [true], "and told that it was before");
    assert_denied(&doors.select(7, &doors.event_pass(7)).await);

    let mut doors = Doors::new();
    doors.gate = doors.gate.passes_live(Duration::from_millis(4));
    doors.store.state.lock().unwrap().settle_failures = 100;
    assert_eq!(doors.buy_tickets(7).await.status, 201);
    until("nobody tries any more", || doors.gate.retrying.available_permits() == MAX_RETRYING).await;
    assert_eq!(doors.store.state.lock().unwrap().settle_failures, 95, "for as long as a pass lives");
}

#[actix_web::test]
async fn calls_that_need_no_pass_are_shed_as_all_purchases_are() {
    let mut doors = Doors::new();
    doors.gate = doors.gate.shed_beyond(1);
    let app = doors.open().await;
    let shop_answers = doors.shop.takes_its_time();
    let first = actix_rt::spawn(app.call(post(TICKETS, &[("X-User-Id", "1")])));
    until("it is there", || doors.shop.visits() == 1).await;
    let shed = answered(app.call(post(TICKETS, &[("X-User-Id", "2")])).await).await;
    assert_eq!((shed.status, shed.code.as_deref()), (503, Some("OVERLOADED")));
    shop_answers.notify_one();
    assert_eq!(answered(first.await.unwrap()).await.status, 201);
}

#[actix_web::test]
async fn without_single_use_nothing_is_spent() {
    let mut doors = Doors::new();
    doors.gate.store = None;
    assert_eq!(doors.buy_tickets(7).await.status, 201);
    for _ in 0..2 {
        assert_eq!(doors.select(7, &doors.event_pass(7)).await.status, 201);
    }
    assert!(doors.told_of_tickets().is_empty() && doors.store.settled().is_empty());
}

#[actix_web::test]
async fn refusals_say_why_in_the_language_of_the_buyer() {
    let doors = Doors::new();
    let foreign = Doors::new().event_pass(7);
    let of_the_drop = doors.pass(7);
    let over = doors.pass_until(target(QueueTargetType::TicketingEvent, 7), 7, NOW);
    let spent = doors.event_pass(9);
    assert_eq!(doors.buy_tickets(9).await.status, 201);
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
            let answer = doors.send(SELECT, &lines).await;
            assert_denied(&answer);
            assert_eq!(answer.reason.as_deref(), Some(reason), "{user} {pass:?}");
            told.push((answer.language.unwrap(), answer.detail.unwrap()));
        }
        assert_eq!([&told[0].0, &told[1].0], ["ko", "en"], "{reason}");
        assert!(told[0] == told[2] && told[1].1.is_ascii() && !told[0].1.is_ascii(), "{reason}: {told:?}");
    }
    doors.claim_answers(Ok(Claim::Expired));
    assert_eq!(doors.select(7, &doors.event_pass(7)).await.reason.as_deref(), Some("expired"), "on the store's time");
}
