//! One request to the shop and its answer back.

use std::{error::Error, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::{Method, header},
    web::{self, Data},
};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{HOST, HeaderValue},
    http::uri::{Authority, PathAndQuery, Scheme},
};
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;

use super::{
    answer::answer,
    connect::InTime,
    failure::{Failure, causes},
    headers,
    upload::{RequestBody, Stage, Upload},
};
use crate::{
    config::{HostHeader, UpstreamConfig, UpstreamUrl},
    domain::PassClaims,
};

/// How long an unused connection to the shop is kept: less than the 5 s after which many servers close theirs, so that
/// hardly ever a request meets a closing one.
const KEPT_IDLE: Duration = Duration::from_secs(4);

/// Header lines of an answer. The client's own limit is 100, which a shop with many cookies passes.
const MOST_HEADERS: usize = 256;

/// How long a shop may be silent in the middle of an answer.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// What the gateway needs to know. The same for all workers.
#[derive(Debug, Clone)]
pub struct ProxySettings {
    shop: Authority,
    host: Option<HeaderValue>,
    connect: Duration,
    first_byte: Duration,
    whole: Duration,
    pass_cookies: bool,
}

impl ProxySettings {
    /// The gateway to the shop at `url`. `pass_cookies`: passes may come in cookies, which the shop does not get.
    pub fn new(url: &UpstreamUrl, upstream: &UpstreamConfig, pass_cookies: bool) -> Self {
        let shop = url.authority().clone();
        let host = match upstream.host_header {
            HostHeader::Preserve => None,
            HostHeader::Upstream => HeaderValue::from_str(shop.as_str()).ok(),
        };
        Self {
            host,
            shop,
            connect: Duration::from_millis(upstream.connect_timeout_ms),
            first_byte: Duration::from_millis(upstream.first_byte_timeout_ms.unwrap_or(upstream.timeout_ms)),
            whole: Duration::from_millis(upstream.timeout_ms),
            pass_cookies,
        }
    }
}

/// The gateway of one worker, with its connections to the shop.
pub struct Proxy {
    settings: ProxySettings,
    client: Client<InTime<HttpConnector>, RequestBody>,
}

impl Proxy {
    /// A gateway without connections yet.
    pub fn new(settings: ProxySettings) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(settings.connect));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT_IDLE)
            .http1_title_case_headers(true)
            .http1_max_headers(MOST_HEADERS)
            // A gateway mends both in answers (RFC 9112, sections 5.1 and 5.2).
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .build(InTime::new(connector, settings.connect));
        Self { settings, client }
    }

    async fn call(&self, request: &HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
        let asked = request.headers();
        if headers::was_here(asked) {
            return Err(Failure::Loop);
        }
        if asks_for_upgrade(request) {
            return Err(Failure::Upgrade);
        }
        let target = self.target(request)?;
        let chunked = asked.contains_key(header::TRANSFER_ENCODING);
        let has_body = chunked || asked.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
        let (body, upload) =
            if has_body { Upload::start(payload.into_inner()) } else { (RequestBody::Empty, Upload::none()) };
        let purchase = request.extensions().get::<PassClaims>().is_some();
        let call = async {
            let answered = self.exchange(self.request(request, target.clone(), body, chunked)?, &upload).await;
            match answered {
                // A connection that the shop was closing: asking again can do no harm.
                Err(Failure::Broken) if !purchase && !has_body && is_safe(request.method()) => {
                    self.exchange(self.request(request, target, RequestBody::Empty, false)?, &upload).await
                }
                answered => answered,
            }
        };
        let shops = if purchase {
            // A claim holds no longer: whatever the client does, the purchase must have ended by then.
            timeout(self.settings.whole, call).await.unwrap_or_else(|_| {
                tracing::warn!("a purchase took too long");
                Err(Failure::TooLate)
            })?
        } else {
            call.await?
        };
        // A purchase is settled when the shop has answered, and no upload may put that off beyond its claim.
        let whole = self.settings.whole;
        let rest = async move {
            if !purchase {
                upload.ended(whole).await;
            }
        };
        Ok(answer(shops, request.method(), request.version(), LONGEST_SILENCE, rest).await)
    }

    /// Where the shop gets it: path and query exactly as they came.
    fn target(&self, request: &HttpRequest) -> Result<Uri, Failure> {
        const ODD: Failure = Failure::Ambiguous("the target of the request is no path");
        let asked = request.uri().path_and_query().ok_or(ODD)?.as_str();
        let same: PathAndQuery = asked.parse().map_err(|_| ODD)?;
        if !asked.starts_with('/') || same.as_str() != asked {
            return Err(ODD);
        }
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.settings.shop.clone()).path_and_query(same);
        uri.build().map_err(|_| ODD)
    }

    fn request(
        &self,
        request: &HttpRequest,
        target: Uri,
        body: RequestBody,
        chunked: bool,
    ) -> Result<Request<RequestBody>, Failure> {
        let method = hyper::Method::from_bytes(request.method().as_str().as_bytes());
        let mut shops = Request::new(body);
        *shops.method_mut() = method.map_err(|_| Failure::Ambiguous("the method is none"))?;
        *shops.uri_mut() = target;
        *shops.headers_mut() = headers::to_shop(request, self.settings.pass_cookies, chunked);
        if let Some(host) = &self.settings.host {
            shops.headers_mut().insert(HOST, host.clone());
        }
        Ok(shops)
    }

    /// Sends it and waits for the answer's head, as long as the body moves, and then as long as the shop may think.
    async fn exchange(&self, request: Request<RequestBody>, upload: &Upload) -> Result<Response<Incoming>, Failure> {
        let mut answer = std::pin::pin!(self.client.request(request));
        loop {
            let stage = upload.stage();
            let limit = if stage == Stage::Done { self.settings.first_byte } else { self.settings.whole };
            tokio::select! {
                biased;
                answered = &mut answer => {
                    return match answered {
                        // Nobody asked for another protocol.
                        Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                            tracing::warn!("the shop switched to another protocol unasked");
                            Err(Failure::NoHttp)
                        }
                        Ok(answer) => Ok(answer),
                        Err(error) => Err(failure_of(&error, upload)),
                    };
                }
                () = upload.moved() => {}
                () = tokio::time::sleep(limit) => {
                    if stage == Stage::FromClient {
                        return Err(Failure::BodyTooSlow);
                    }
                    tracing::warn!("the shop did not answer in time");
                    return Err(Failure::TooLate);
                }
            }
        }
    }
}

fn failure_of(error: &ClientError, upload: &Upload) -> Failure {
    if error.is_connect() {
        tracing::warn!(error = causes(error), "the shop cannot be reached");
        return Failure::Unreachable;
    }
    match upload.stage() {
        Stage::CutShort => Failure::BodyCutShort,
        Stage::TooSlow => Failure::BodyTooSlow,
        Stage::FromClient | Stage::ToShop | Stage::Done => {
            let of_http = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
            if of_http.is_some_and(hyper::Error::is_parse) {
                tracing::warn!(error = causes(error), "the shop's answer cannot be read");
                Failure::NoHttp
            } else {
                tracing::warn!(error = causes(error), "the shop gave no answer");
                Failure::Broken
            }
        }
    }
}

/// RFC 9110, section 9.2.1: methods that change nothing.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// WebSocket, whose bytes have no place here; and tunnels. Other protocols are merely offered, and an offer may be
/// declined in silence (RFC 9110, section 7.8).
fn asks_for_upgrade(request: &HttpRequest) -> bool {
    let is_websocket = |value: &header::HeaderValue| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().to_ascii_lowercase().starts_with(b"websocket"))
    };
    *request.method() == Method::CONNECT || request.headers().get_all(header::UPGRADE).any(is_websocket)
}

/// The handler: for the default service of the scope that the gate stands before.
pub async fn forward(request: HttpRequest, payload: web::Payload, proxy: Data<Proxy>) -> HttpResponse {
    proxy.call(&request, payload).await.unwrap_or_else(Failure::into_response)
}
