//! What becomes of a pass when the shop answers, fails, is slow, or nobody waits for its answer: the gate as a library, in
//! an application of the test's own, on a real Redis. The shop behind it answers when and what the test says.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use actix_web::{
    App, HttpResponse, HttpServer,
    dev::Service,
    http::StatusCode,
    web::{self, Data},
};
use futures_util::future::join_all;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};
use virtual_queue::{
    clock::StoreClock,
    domain::QueueStats,
    gate::{AlwaysOn, EntryTokenGate, NoAnswerFromShop},
    store::Place,
    token::{EntryTokenIssuer, Keyring},
};

use crate::{
    redis_server::RedisServer,
    server::{Reply, SECRET},
    store_fixture::{StoreFixture, default_rules, user},
};

const BUYER: u64 = 7;
const BOUGHT: Answer = Answer::Status(201);
const DECLINED: Answer = Answer::Status(409);
const DENIED: (u16, &str) = (403, "QUEUE_BYPASS_DENIED");
const IN_USE: (u16, &str) = (409, "PASS_IN_USE");
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// What the shop says.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Status(u16),
    /// As who calls a shop over the network says that it gave none.
    Nothing,
}

/// A purchase that reached the shop and waits for its answer.
struct Visit {
    answer: oneshot::Sender<Answer>,
}

impl Visit {
    fn answer(self, answer: Answer) {
        self.answer.send(answer).expect("the shop waits for it, whoever has gone");
    }
}

async fn orders(arrivals: Data<mpsc::UnboundedSender<Visit>>) -> HttpResponse {
    let (answer, said) = oneshot::channel();
    arrivals.send(Visit { answer }).expect("the test watches");
    match said.await.expect("the test answers every visit") {
        Answer::Status(status) => HttpResponse::build(StatusCode::from_u16(status).unwrap()).body("from the shop"),
        Answer::Nothing => {
            let mut response = HttpResponse::GatewayTimeout().finish();
            response.extensions_mut().insert(NoAnswerFromShop);
            response
        }
    }
}

/// Tells when a request's future is dropped before its end: the client has gone, and the server has seen it.
struct Watched(Option<mpsc::UnboundedSender<()>>);

impl Watched {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(gone) = self.0.take() {
            // At the end of a test nobody listens.
            let _ = gone.send(());
        }
    }
}

/// An application with a gate, and somebody with a pass from the queue.
struct Sale {
    fixture: StoreFixture,
    address: SocketAddr,
    pass: String,
    http: reqwest::Client,
    shop: mpsc::UnboundedReceiver<Visit>,
    gone: mpsc::UnboundedReceiver<()>,
}

impl Sale {
    async fn open() -> Self {
        let fixture = StoreFixture::on_redis(Arc::new(RedisServer::start()), default_rules()).await;
        let keyring = Arc::new(Keyring::new(&SECRET.into(), &[]).unwrap());
        fixture.waits(BUYER).await;
        assert_eq!(fixture.batch().await, (1, 0));
        let expires_at = fixture.pass(BUYER).await;
        let pass = keyring.mint(fixture.target, user(BUYER), expires_at).raw().to_owned();

        let gate = EntryTokenGate::new(keyring, Arc::new(AlwaysOn), StoreClock::new(fixture.clock.clone()))
            .single_use(fixture.store.clone())
            .lease(Duration::from_millis(default_rules().lease_ms));
        let (arrivals, shop) = mpsc::unbounded_channel();
        let (tell_gone, gone) = mpsc::unbounded_channel();
        let server = HttpServer::new(move || {
            let tell_gone = tell_gone.clone();
            App::new()
                .app_data(Data::new(arrivals.clone()))
                .route("/limited-drops/{id}/orders", web::post().to(orders))
                .wrap(gate.clone())
                .wrap_fn(move |req, next| {
                    let watched = Watched(Some(tell_gone.clone()));
                    let call = next.call(req);
                    async move {
                        let answer = call.await;
                        watched.answered();
                        answer
                    }
                })
        });
        let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
        let address = server.addrs()[0];
        actix_rt::spawn(server.run());
        Self { fixture, address, pass, http: reqwest::Client::new(), shop, gone }
    }

    /// The buyer sends a purchase.
    fn buy(&self) -> JoinHandle<Reply> {
        let request = self.http.post(format!("http://{}/limited-drops/42/orders", self.address));
        let request = request.header("X-User-Id", BUYER.to_string()).header("X-Entry-Token", &self.pass);
        tokio::spawn(Reply::of(request))
    }

    /// The next purchase that reaches the shop.
    async fn visit(&mut self) -> Visit {
        timeout(LIMIT, self.shop.recv()).await.expect("a purchase reaches the shop").expect("the shop is open")
    }

    /// A purchase that reaches the shop, gets this answer there, and what the buyer gets.
    async fn buy_and_get(&mut self, answer: Answer) -> Reply {
        let buying = self.buy();
        self.visit().await.answer(answer);
        buying.await.unwrap()
    }

    /// A purchase that does not reach the shop.
    async fn refused(&mut self) -> (u16, String) {
        let reply = timeout(LIMIT, self.buy()).await.expect("refused without the shop").unwrap();
        assert!(self.shop.try_recv().is_err(), "a purchase reached the shop and was refused then");
        let (status, code) = reply.refusal();
        (status, code.to_owned())
    }

    async fn assert_refused(&mut self, refusal: (u16, &str)) {
        let (status, code) = self.refused().await;
        assert_eq!((status, code.as_str()), refusal);
    }

    /// A purchase under way, whose buyer's connection is cut, as the server has noticed.
    async fn buy_and_go_away(&mut self) -> Visit {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let lines = format!(
            "POST /limited-drops/42/orders HTTP/1.1\r\nHost: shop\r\nX-User-Id: {BUYER}\r\nX-Entry-Token: {}\r\n\
             Content-Length: 0\r\n\r\n",
            self.pass
        );
        connection.write_all(lines.as_bytes()).await.unwrap();
        let visit = self.visit().await;
        // Reset rather than closed: after a mere end of what the client sends, the server would wait for the answer.
        connection.set_zero_linger().unwrap();
        drop(connection);
        timeout(LIMIT, self.gone.recv()).await.expect("the server sees who goes away").expect("the server runs");
        visit
    }

    /// Waits until the books are as wanted: nobody is told when a purchase without a client is settled.
    async fn until(&self, wanted: impl Fn(&QueueStats) -> bool) {
        let reached = timeout(LIMIT, async {
            while !wanted(&self.fixture.stats().await) {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(reached.await.is_ok(), "{:?}", self.fixture.stats().await);
    }

    fn lease_ends(&self) {
        self.fixture.advance(default_rules().lease_ms + 1);
    }
}

#[actix_web::test]
async fn success_and_redirects_spend_the_pass() {
    for status in [200, 201, 202, 204, 302, 303, 307] {
        let mut sale = Sale::open().await;
        let reply = sale.buy_and_get(Answer::Status(status)).await;
        assert_eq!(reply.status, status, "the shop's own answer");
        sale.assert_refused(DENIED).await;
        let stats = sale.fixture.stats().await;
        assert_eq!((stats.consumed, stats.live), (1, 0), "after {status}");
    }
}

#[actix_web::test]
async fn a_shop_that_declines_or_fails_gives_the_pass_back() {
    let mut sale = Sale::open().await;
    for status in [400, 402, 404, 409, 422, 429, 500, 502, 503, 504] {
        let reply = sale.buy_and_get(Answer::Status(status)).await;
        assert_eq!((reply.status, reply.text.as_str()), (status, "from the shop"));
        assert_eq!(sale.fixture.stats().await.live, 1, "after {status}");
        assert_eq!(sale.fixture.poll(BUYER).await, Some(Place::Admitted { expires_at: sale.fixture.now_s() + 300 }));
    }
    assert_eq!(sale.buy_and_get(BOUGHT).await.status, 201, "the pass works again");
    sale.assert_refused(DENIED).await;
}

#[actix_web::test]
async fn of_fifty_purchases_at_once_with_one_pass_one_reaches_the_shop() {
    let mut sale = Sale::open().await;
    let mut buying: Vec<_> = (0..50).map(|_| sale.buy()).collect();
    let visit = sale.visit().await;
    // The shop has not answered: whoever is answered was refused.
    for _ in 0..49 {
        let next = timeout(LIMIT, futures_util::future::select_all(&mut buying)).await;
        let (reply, at, _) = next.expect("all but one are refused while the shop is at work");
        drop(buying.swap_remove(at));
        assert_eq!(reply.unwrap().refusal(), IN_USE);
    }
    visit.answer(BOUGHT);
    let replies = join_all(buying).await;
    assert_eq!(replies.into_iter().map(|reply| reply.unwrap().status).collect::<Vec<_>>(), [201]);
    assert!(sale.shop.try_recv().is_err(), "one reached the shop");
    sale.assert_refused(DENIED).await;
}

#[actix_web::test]
async fn a_purchase_whose_buyer_goes_away_is_settled_all_the_same() {
    let mut sale = Sale::open().await;
    sale.buy_and_go_away().await.answer(DECLINED);
    // The claim is gone with the answer; till then the pass is in use.
    let again = timeout(LIMIT, async {
        loop {
            let mut buying = sale.buy();
            tokio::select! {
                visit = sale.shop.recv() => break (visit.unwrap(), buying),
                reply = &mut buying => assert_eq!(reply.unwrap().refusal(), IN_USE),
            }
        }
    });
    let (visit, buying) = again.await.expect("the pass works again");
    visit.answer(DECLINED);
    assert_eq!(buying.await.unwrap().status, 409);

    sale.buy_and_go_away().await.answer(BOUGHT);
    sale.until(|stats| stats.consumed == 1).await;
    sale.assert_refused(DENIED).await;
}

#[actix_web::test]
async fn a_shop_that_takes_too_long_holds_the_pass_until_the_lease_ends_and_a_late_success_still_spends() {
    let mut sale = Sale::open().await;
    let slow = sale.buy();
    let slow_visit = sale.visit().await;
    sale.assert_refused(IN_USE).await;
    sale.fixture.advance(default_rules().lease_ms - 1);
    sale.assert_refused(IN_USE).await;
    sale.lease_ends();
    assert_eq!(sale.buy_and_get(DECLINED).await.status, 409, "the pass works again, and is given back");
    slow_visit.answer(BOUGHT);
    assert_eq!(slow.await.unwrap().status, 201);
    sale.assert_refused(DENIED).await;
    assert_eq!(sale.fixture.stats().await.consumed, 1);
}

#[actix_web::test]
async fn a_late_refusal_does_not_give_back_what_another_purchase_holds() {
    let mut sale = Sale::open().await;
    let slow = sale.buy();
    let slow_visit = sale.visit().await;
    sale.lease_ends();
    let second = sale.buy();
    let second_visit = sale.visit().await;
    slow_visit.answer(DECLINED);
    assert_eq!(slow.await.unwrap().status, 409);
    sale.assert_refused(IN_USE).await;
    second_visit.answer(BOUGHT);
    assert_eq!(second.await.unwrap().status, 201);
    sale.assert_refused(DENIED).await;
}

#[actix_web::test]
async fn where_the_shop_gave_no_answer_the_pass_is_held_until_the_lease_ends() {
    let mut sale = Sale::open().await;
    assert_eq!(sale.buy_and_get(Answer::Nothing).await.status, 504);
    sale.assert_refused(IN_USE).await;
    assert_eq!(sale.fixture.stats().await.live, 1);
    sale.lease_ends();
    assert_eq!(sale.buy_and_get(BOUGHT).await.status, 201);
    sale.assert_refused(DENIED).await;
}
