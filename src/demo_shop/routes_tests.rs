use std::sync::Arc;

use actix_web::{App, body::to_bytes, dev::ServiceResponse, test};

use super::*;
use crate::{
    clock::{FakeClock, StoreClock},
    demo_shop::{Database, EmbeddedStockGate},
};

const ORDERS: &str = "/limited-drops/42/orders";
const SELECT: &str = "/events/7/seats/select";
const TICKETS: &str = "/events/7/tickets";

/// A shop with one piece a drop, at a time that stands still.
fn shop() -> Data<ShopService> {
    let clock = StoreClock::new(FakeClock::at(1_790_000_000_000));
    let gate = Arc::new(EmbeddedStockGate::new(clock.clone()));
    Data::new(ShopService::new(Database::open(None).unwrap(), gate, clock, 1))
}

async fn send(shop: &Data<ShopService>, path: &str, users: &[&str], body: &str) -> (u16, Value) {
    let mut req = test::TestRequest::post().uri(path).set_payload(body.to_owned());
    for user in users {
        req = req.append_header(("X-User-Id", *user));
    }
    respond(shop, req).await
}

async fn respond(shop: &Data<ShopService>, req: test::TestRequest) -> (u16, Value) {
    let app = test::init_service(App::new().app_data(shop.clone()).configure(configure)).await;
    let response: ServiceResponse = test::call_service(&app, req.to_request()).await;
    let (status, headers) = (response.status(), response.headers().clone());
    let kind = headers.get(header::CONTENT_TYPE).unwrap().to_str().unwrap().to_owned();
    assert_eq!(kind, if status.is_success() { "application/json" } else { "application/problem+json" });
    assert_eq!(headers.contains_key(header::ALLOW), status == StatusCode::METHOD_NOT_ALLOWED);
    let body = to_bytes(response.into_body()).await.unwrap();
    (status.as_u16(), serde_json::from_slice(&body).unwrap())
}

#[track_caller]
fn assert_refused((status, body): &(u16, Value), expected: u16, code: &str) {
    assert_eq!((*status, body["code"].as_str(), &body["status"]), (expected, Some(code), &json!(expected)), "{body}");
    for field in ["type", "title", "detail"] {
        assert!(body[field].is_string(), "{field}: {body}");
    }
}

#[actix_web::test]
async fn a_piece_is_sold_once() {
    let shop = shop();
    let (status, body) = send(&shop, ORDERS, &["7"], "").await;
    assert_eq!(status, 201);
    assert!(body["orderId"].is_string(), "{body}");
    assert_refused(&send(&shop, ORDERS, &["8"], "{\"quantity\":1}").await, 409, "SOLD_OUT");
    assert_eq!(send(&shop, "/limited-drops/43/orders", &["8"], "").await.0, 201);
}

#[actix_web::test]
async fn seats_are_selected_and_then_bought() {
    let shop = shop();
    let wanted = r#"{"seatIds":["A1","A2"]}"#;
    assert_refused(&send(&shop, TICKETS, &["7"], wanted).await, 409, "SEAT_NOT_LOCKED");
    let selected = send(&shop, SELECT, &["7"], wanted).await;
    assert_eq!(selected, (200, json!({"seatIds": ["A1", "A2"], "lockedUntil": "2026-09-21T14:18:20Z"})));
    assert_refused(&send(&shop, SELECT, &["8"], wanted).await, 409, "SEAT_TAKEN");
    assert_refused(&send(&shop, TICKETS, &["8"], wanted).await, 409, "SEAT_NOT_LOCKED");
    let (status, body) = send(&shop, TICKETS, &["7"], wanted).await;
    assert_eq!((status, body["ticketIds"].as_array().map(Vec::len)), (201, Some(2)), "{body}");
}

#[actix_web::test]
async fn a_buyer_is_one_canonical_id() {
    let shop = shop();
    for users in [&[][..], &[""], &["007"], &["x"], &["7", "7"]] {
        for path in [ORDERS, SELECT, TICKETS] {
            assert_refused(&send(&shop, path, users, r#"{"seatIds":["A1"]}"#).await, 400, "INVALID_USER_ID");
        }
    }
    for path in ["/limited-drops/042/orders", "/events/0/seats/select", "/events/x/tickets"] {
        assert_refused(&send(&shop, path, &["7"], r#"{"seatIds":["A1"]}"#).await, 404, "UNKNOWN_TARGET");
    }
}

#[actix_web::test]
async fn what_names_no_seats_is_refused() {
    let shop = shop();
    let eleven = json!({ "seatIds": (0..11).map(|n| format!("A{n}")).collect::<Vec<_>>() }).to_string();
    for body in [
        "",
        "A1",
        "[]",
        "{}",
        r#"{"seatIds":"A1"}"#,
        r#"{"seatIds":[]}"#,
        r#"{"seatIds":[1]}"#,
        r#"{"seatIds":[""]}"#,
        r#"{"seatIds":["A 1"]}"#,
        r#"{"seatIds":["좌석"]}"#,
        r#"{"seatIds":["ABCDEFGHIJKLMNOPQ"]}"#,
        r#"{"seatIds":["A1","A1"]}"#,
        &eleven,
    ] {
        assert_refused(&send(&shop, SELECT, &["7"], body).await, 400, "INVALID_SEATS");
        assert_refused(&send(&shop, TICKETS, &["7"], body).await, 400, "INVALID_SEATS");
    }
}

#[actix_web::test]
async fn long_bodies_and_other_methods_are_refused() {
    let shop = shop();
    let long = "x".repeat(LONGEST_BODY + 1);
    for path in [ORDERS, SELECT, TICKETS] {
        assert_refused(&send(&shop, path, &["7"], &long).await, 413, "BODY_TOO_LARGE");
        assert_refused(&respond(&shop, test::TestRequest::get().uri(path)).await, 405, "METHOD_NOT_ALLOWED");
    }
    assert_eq!(send(&shop, ORDERS, &["7"], &long[1..]).await.0, 201, "8 KB are allowed");
}
