//! A reverse proxy as one writes it with actix and its own client in an hour: no gate, no limits, streaming both ways.
//! Benchmarks hold the gateway against it: `cargo run --example bare_proxy -- http://127.0.0.1:3000 8081`.

use std::io;

use actix_web::{
    App, Error, HttpRequest, HttpResponse, HttpServer,
    error::ErrorBadGateway,
    http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
    web::{self, Data},
};
use awc::Client;

const HOP_BY_HOP: [HeaderName; 6] =
    [CONNECTION, HeaderName::from_static("keep-alive"), TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

async fn forward(
    request: HttpRequest,
    payload: web::Payload,
    client: Data<Client>,
    upstream: Data<String>,
) -> Result<HttpResponse, Error> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let mut call = client.request_from(format!("{}{target}", upstream.as_str()), request.head()).no_decompress();
    for name in HOP_BY_HOP {
        call.headers_mut().remove(name);
    }
    if let Some(peer) = request.peer_addr() {
        call = call.append_header(("X-Forwarded-For", peer.ip().to_string()));
    }
    call = call.append_header(("Via", "1.1 bare"));
    let has_body = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| request.headers().contains_key(name));
    let sent = if has_body { call.send_stream(payload) } else { call.send() };
    let shops = sent.await.map_err(|error| ErrorBadGateway(error.to_string()))?;
    let mut answer = HttpResponse::build(shops.status());
    for (name, value) in shops.headers() {
        if !HOP_BY_HOP.contains(name) {
            answer.append_header((name.clone(), value.clone()));
        }
    }
    let length = shops.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if let Some(length) = length {
        answer.no_chunking(length);
    }
    Ok(answer.streaming(shops))
}

#[actix_web::main]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let upstream = arguments.next().unwrap_or_else(|| "http://127.0.0.1:3000".to_owned());
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(8081);
    HttpServer::new(move || {
        App::new()
            .app_data(Data::new(Client::builder().disable_redirects().no_default_headers().finish()))
            .app_data(Data::new(upstream.clone()))
            .default_service(web::to(forward))
    })
    .bind(("127.0.0.1", port))?
    .run()
    .await
}
