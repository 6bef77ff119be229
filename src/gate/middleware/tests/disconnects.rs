//! A buyer who disconnects ends the connection but not the purchase.

use actix_web::{App, HttpServer, web};
use tokio::{io::AsyncWriteExt, sync::mpsc};

use super::*;

/// Sends a message when the request it belongs to is dropped before its answer.
struct Abandoned(Option<mpsc::UnboundedSender<()>>);

impl Abandoned {
    fn answered(&mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            // The test may have ended.
            let _ = tell.send(());
        }
    }
}

#[actix_web::test]
async fn a_connection_cut_in_the_middle_of_a_purchase_leaves_a_settled_pass() {
    let fixture = GateFixture::new();
    let (abandoned, mut was_abandoned) = mpsc::unbounded_channel();
    let (arrived, mut has_arrived) = mpsc::unbounded_channel();
    let sells = Arc::new(Notify::new());
    let (gate, selling) = (fixture.gate.clone(), sells.clone());
    let server = HttpServer::new(move || {
        let (abandoned, arrived, selling) = (abandoned.clone(), arrived.clone(), selling.clone());
        let shop = move || {
            let (arrived, selling) = (arrived.clone(), selling.clone());
            async move {
                arrived.send(()).unwrap();
                selling.notified().await;
                HttpResponse::Created().finish()
            }
        };
        App::new().default_service(web::to(shop)).wrap(gate.clone()).wrap_fn(move |req, rest| {
            let mut request = Abandoned(Some(abandoned.clone()));
            let answer = rest.call(req);
            async move {
                let answer = answer.await;
                request.answered();
                answer
            }
        })
    });
    let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_rt::spawn(server);

    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {ORDERS} HTTP/1.1\r\nHost: shop\r\nX-User-Id: 7\r\nX-Entry-Token: {}\r\nContent-Length: 0\r\n\r\n",
        fixture.pass(7)
    );
    client.write_all(request.as_bytes()).await.unwrap();
    until("it is with the shop", || has_arrived.try_recv().is_ok()).await;
    client.set_zero_linger().unwrap();
    drop(client);
    until("the request is dropped", || was_abandoned.try_recv().is_ok()).await;
    assert!(fixture.store.is_claimed() && fixture.store.settled().is_empty());
    sells.notify_one();
    fixture.settles(Settlement::Spent).await;
    handle.stop(false).await;
}
