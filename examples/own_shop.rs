//! Somebody's own shop, an actix-web application, with the waiting room's gate before its purchases.
//!
//! The waiting room runs apart (`virtual-queue serve`) and hands out passes; this shop checks them. They share a secret:
//!
//! ```text
//! export VQ_TOKEN__SECRET="$(openssl rand -base64 48)"
//! cargo run --example own_shop
//! ```
//!
//! That is all it takes to check signature, holder, sale and expiry. That a pass buys only once is known to the waiting
//! room's Redis alone; with `VQ_REDIS__URL` set, this shop asks it.

#![expect(clippy::print_stdout, reason = "it says where it listens")]

use std::{env, error::Error, sync::Arc, time::Duration};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::{Service, ServiceRequest},
    http::header::HeaderValue,
    web,
};
use virtual_queue::{
    clock::StoreClock,
    config::{Config, Mode},
    domain::QueueTargetType,
    gate::{AlwaysOn, EntryTokenGate, GatedRoute, GatedRoutes, USER_ID_HEADER},
    metrics::Metrics,
    store::{QueueRules, redis::RedisStore},
    token::Keyring,
};

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = env::var("SHOP_PORT").map_or(Ok(8000), |port| port.parse())?;
    // Built once, outside the factory, and cloned into each worker: the workers share what it counts.
    let clock = StoreClock::system();
    let mut gate = gate(clock.clone())?;
    if env::var_os("VQ_REDIS__URL").is_some() {
        gate = buying_once(gate, clock).await?;
    }
    let server = HttpServer::new(move || {
        App::new().route("/", web::get().to(front_page)).service(
            // Everything below /shop passes the gate, which touches nothing but the purchases.
            web::scope("/shop")
                .route("/drops/{drop}", web::get().to(product))
                .route("/drops/{drop}/buy", web::post().to(buy))
                .wrap(gate.clone())
                // The last `wrap` runs first: whoever buys is known before the gate asks.
                .wrap_fn(|mut req, next| {
                    log_in(&mut req);
                    next.call(req)
                }),
        )
    });
    let server = server.workers(2).bind(("127.0.0.1", port))?;
    println!("listening on http://{}", server.addrs()[0]);
    server.run().await?;
    Ok(())
}

/// The verifying half: a secret and a clock, no Redis.
fn gate(clock: StoreClock) -> Result<EntryTokenGate, Box<dyn Error>> {
    let secret = env::var("VQ_TOKEN__SECRET").map_err(|_| "VQ_TOKEN__SECRET must be set, as in the waiting room")?;
    // While the secret is being changed, the second list names what the waiting room's `token.also_accepted` does.
    let keyring = Keyring::new(&secret.into(), &[])?;
    // This shop names its purchase its own way. A pattern is of the whole path, whatever scope the gate is wrapped round.
    let routes =
        GatedRoutes::new(vec![GatedRoute::new("POST", "/shop/drops/{drop}/buy", QueueTargetType::LimitedDrop)?]);
    // `AlwaysOn`: a purchase needs a pass, always. Where the waiting room's flag is off it hands a pass to everybody
    // who asks, so nothing changes for this shop.
    Ok(EntryTokenGate::new(Arc::new(keyring), Arc::new(AlwaysOn), clock).routes(routes))
}

/// Single use: the gate claims a pass in the waiting room's Redis, calls the shop, and settles by its answer. Below 400
/// the pass is spent; from 400 on it is given back, so `buy` must answer 4xx or 5xx exactly when it did not sell.
///
/// The store gets the gate's clock, which learns Redis's time from it: when passes end is decided on that.
async fn buying_once(gate: EntryTokenGate, clock: StoreClock) -> Result<EntryTokenGate, Box<dyn Error>> {
    // The variables the waiting room reads, with the same values, so that both keep the same rules.
    let config = Config::load(None, env::vars(), Mode::Serve)?;
    let rules = QueueRules::from_config(&config);
    let metrics = Arc::new(Metrics::new());
    let store = RedisStore::connect(&config.redis, rules, clock, metrics.clone()).await?;
    Ok(gate.single_use(store).lease(Duration::from_millis(config.upstream.lease_ms())).metrics(metrics))
}

/// Stands for the shop's own login, here a cookie that simply is the buyer's id. What matters: the header the gate reads
/// comes from the login, and never from outside.
fn log_in(req: &mut ServiceRequest) {
    let buyer = req.cookie("session").and_then(|session| HeaderValue::from_str(session.value()).ok());
    req.headers_mut().remove(USER_ID_HEADER);
    if let Some(buyer) = buyer {
        req.headers_mut().insert(USER_ID_HEADER, buyer);
    }
}

async fn front_page() -> &'static str {
    "a shop\n"
}

async fn product(drop: web::Path<u64>) -> String {
    format!("drop {drop}\n")
}

/// Only ever called for somebody with a pass for this drop. The stock must hold by itself all the same.
async fn buy(req: HttpRequest, drop: web::Path<u64>) -> HttpResponse {
    let buyer = req.headers().get(USER_ID_HEADER).and_then(|id| id.to_str().ok()).unwrap_or_default();
    HttpResponse::Created().body(format!("drop {drop} is yours, {buyer}\n"))
}
