//! Forward auth with the real proxies: each is set up as its page in `docs/integrations` says, before a small shop.
//! (nginx has a file of its own.)

mod closed;
mod open;
mod page;
mod process;
mod shop;
mod wire;

use self::process::Kind;

const ORDERS: &str = "/limited-drops/42/orders";
const DENIED: &str = "QUEUE_BYPASS_DENIED";

#[tokio::test]
async fn envoy_as_its_page_sets_it_up() {
    closed::all(Kind::Envoy).await;
}

#[tokio::test]
async fn traefik_as_its_page_sets_it_up() {
    closed::all(Kind::Traefik).await;
}

#[tokio::test]
async fn caddy_as_its_page_sets_it_up() {
    closed::all(Kind::Caddy).await;
}

#[tokio::test]
async fn haproxy_as_its_page_sets_it_up() {
    closed::all(Kind::Haproxy).await;
}

#[tokio::test]
async fn envoy_opens_only_while_no_replica_answers() {
    open::all(Kind::Envoy).await;
}

#[tokio::test]
async fn traefik_opens_only_while_no_replica_answers() {
    open::all(Kind::Traefik).await;
}

#[tokio::test]
async fn caddy_opens_only_while_no_replica_answers() {
    open::all(Kind::Caddy).await;
}

#[tokio::test]
async fn haproxy_opens_only_while_no_replica_answers() {
    open::all(Kind::Haproxy).await;
}
