//! One request to the shop, and its answer back.

use std::{rc::Rc, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::{Method, StatusCode, header},
    web::{self, Data},
};
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    header::{CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING},
    http::uri::{Authority, PathAndQuery},
};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    answer::{Afterwards, answer},
    connect::Connector,
    failure::{Failed, Failure, causes},
    headers,
    pool::{Connection, Pool},
    upload::{RequestBody, Stage, Upload},
};
use crate::{
    config::{HostHeader, UpstreamConfig, UpstreamUrl},
    gate::Purchase,
};

/// How long a shop may send nothing in the middle of an answer.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// The gateway's settings, the same for all workers.
#[derive(Debug, Clone)]
pub struct ProxySettings {
    shop: Authority,
    host: Option<HeaderValue>,
    connect: Duration,
    first_byte: Duration,
    whole: Duration,
    max_body: u64,
    pass_cookies: bool,
}

impl ProxySettings {
    /// The gateway to the shop at `url`. `pass_cookies`: passes may come in cookies; they are removed before the shop.
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
            max_body: upstream.max_body_bytes,
            pass_cookies,
        }
    }
}

/// The gateway of one worker, with its connections to the shop.
pub struct Proxy {
    settings: ProxySettings,
    pool: Rc<Pool>,
}

/// One request in the form the shop gets; it may be sent more than once.
struct Call<'a> {
    proxy: &'a Proxy,
    request: &'a HttpRequest,
    target: Uri,
    chunked: bool,
    /// The answer must have begun by then; `None`: no limit while the body moves.
    until: Option<Instant>,
}

impl Proxy {
    /// A gateway that has no connections yet.
    pub fn new(settings: ProxySettings) -> Self {
        let pool = Rc::new(Pool::new(Connector::new(&settings.shop, settings.connect)));
        Self { settings, pool }
    }

    async fn call(&self, request: &HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failed> {
        let asked = request.headers();
        if headers::was_here(asked) {
            return Err(Failure::Loop.into());
        }
        if asks_for_upgrade(request) {
            return Err(Failure::Upgrade.into());
        }
        let length = asked.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.trim().parse().ok());
        if length.is_some_and(|length: u64| length > self.settings.max_body) {
            return Err(Failure::BodyTooLong { sent: false }.into());
        }
        let chunked = asked.contains_key(header::TRANSFER_ENCODING);
        let has_body = chunked || length.is_some_and(|length| length > 0);
        let purchase = request.extensions().get::<Purchase>().is_some();
        let whole = self.settings.whole;
        // The claim holds no longer: the purchase must have ended by then, whatever the client does.
        let until = purchase.then(|| Instant::now() + whole);
        let call = Call { proxy: self, request, target: self.target(request)?, chunked, until };
        if !purchase && !has_body && is_safe(request.method()) {
            let (shops, connection) = call.repeatable().await?;
            let afterwards = Afterwards::Keep(self.pool.clone(), connection);
            return Ok(answer(shops, request.method(), request.version(), LONGEST_SILENCE, async {}, afterwards).await);
        }
        let (body, upload) = if has_body {
            RequestBody::streamed(payload.into_inner(), self.settings.max_body)
        } else {
            RequestBody::none()
        };
        let (shops, connection) = call.once(body, &upload, has_body).await?;
        // A purchase is settled when the shop has answered. An upload must not delay that beyond the claim.
        let rest = async move {
            if !purchase {
                upload.ended(whole).await;
            }
        };
        let afterwards = if has_body {
            Afterwards::Finish(connection, whole)
        } else {
            Afterwards::Keep(self.pool.clone(), connection)
        };
        Ok(answer(shops, request.method(), request.version(), LONGEST_SILENCE, rest, afterwards).await)
    }

    /// The target for the shop: path and query exactly as received.
    fn target(&self, request: &HttpRequest) -> Result<Uri, Failure> {
        const ODD: Failure = Failure::Ambiguous("the target of the request is no path");
        let asked = request.uri().path_and_query().ok_or(ODD)?.as_str();
        let same: PathAndQuery = asked.parse().map_err(|_| ODD)?;
        if !asked.starts_with('/') || same.as_str() != asked {
            return Err(ODD);
        }
        Ok(Uri::from(same))
    }
}

impl Call<'_> {
    /// Sends the request on a kept connection, if there is one. If the shop ends it without an answer, sends it again
    /// on a new one: that is safe for these requests.
    async fn repeatable(&self) -> Result<(Response<Incoming>, Connection), Failed> {
        let (body, upload) = RequestBody::none();
        let connection = match self.proxy.pool.take() {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        match self.exchange(connection, self.request(body, false)?, &upload).await {
            Err(Failed { failure: Failure::Broken, .. }) => {
                let connection = self.connect().await?;
                self.exchange(connection, self.request(RequestBody::Empty, false)?, &upload).await
            }
            answered => answered,
        }
    }

    /// Sends the request once, on a connection that the shop is not about to close: one used a moment ago, or a new
    /// one.
    async fn once(
        &self,
        body: RequestBody,
        upload: &Upload,
        ends_connection: bool,
    ) -> Result<(Response<Incoming>, Connection), Failed> {
        let request = self.request(body, ends_connection)?;
        let connection = match self.proxy.pool.take_just_used() {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        self.exchange(connection, request, upload).await
    }

    async fn connect(&self) -> Result<Connection, Failed> {
        let connecting = self.proxy.pool.fresh();
        let connected = match self.until {
            Some(until) => timeout_at(until, connecting).await.unwrap_or_else(|over| Err(over.into())),
            None => connecting.await,
        };
        connected.map_err(|error| {
            tracing::warn!(error = causes(&error), "the shop cannot be reached");
            Failure::Unreachable.into()
        })
    }

    fn request(&self, body: RequestBody, ends_connection: bool) -> Result<Request<RequestBody>, Failed> {
        let settings = &self.proxy.settings;
        let method = hyper::Method::from_bytes(self.request.method().as_str().as_bytes());
        let mut shops = Request::new(body);
        *shops.method_mut() = method.map_err(|_| Failure::Ambiguous("the method is none"))?;
        *shops.uri_mut() = self.target.clone();
        *shops.headers_mut() = headers::to_shop(self.request, settings.pass_cookies, self.chunked);
        let headers = shops.headers_mut();
        if let Some(host) = &settings.host {
            headers.insert(HOST, host.clone());
        } else if !headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(settings.shop.as_str())
        {
            // HTTP/1.1 needs a Host; HTTP/1.0 does not.
            headers.insert(HOST, host);
        }
        if ends_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(shops)
    }

    /// Sends the request and waits for the head of the answer: while the body moves, then for the time limit of the
    /// shop. A failure carries the shop's status if it was read.
    async fn exchange(
        &self,
        mut connection: Connection,
        request: Request<RequestBody>,
        upload: &Upload,
    ) -> Result<(Response<Incoming>, Connection), Failed> {
        let answered = self.answer_to(connection.send(request), upload).await;
        let failure = match answered {
            Ok(shops) => match unreadable(&shops) {
                None => return Ok((shops, connection)),
                Some(why) => {
                    tracing::warn!("{why}");
                    Failure::NoHttp
                }
            },
            Err(failure) => failure,
        };
        let shops_status = connection.seen().status().and_then(|status| StatusCode::from_u16(status).ok());
        Err(Failed { failure, shops_status })
    }

    async fn answer_to(
        &self,
        answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
        upload: &Upload,
    ) -> Result<Response<Incoming>, Failure> {
        let settings = &self.proxy.settings;
        let mut answer = std::pin::pin!(answer);
        loop {
            let stage = upload.stage();
            let limit = if stage == Stage::Done { settings.first_byte } else { settings.whole };
            let stands_still = Instant::now() + limit;
            let over = self.until.map_or(stands_still, |until| until.min(stands_still));
            tokio::select! {
                biased;
                answered = &mut answer => return answered.map_err(|error| failure_of(&error, upload)),
                () = upload.moved() => {}
                () = sleep_until(over) => {
                    if stage == Stage::FromClient && over == stands_still {
                        return Err(Failure::BodyTooSlow);
                    }
                    tracing::warn!("the shop did not answer in time");
                    return Err(Failure::TooLate);
                }
            }
        }
    }
}

/// Why a valid HTTP answer cannot be forwarded; `None`: it can.
fn unreadable(shops: &Response<Incoming>) -> Option<&'static str> {
    // The request asked for no other protocol.
    if shops.status() == hyper::StatusCode::SWITCHING_PROTOCOLS {
        return Some("the shop switched to another protocol unasked");
    }
    let mut codings = shops.headers().get_all(TRANSFER_ENCODING).iter();
    let plain = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        value.eq_ignore_ascii_case(b"chunked") || value.eq_ignore_ascii_case(b"identity")
    };
    // The gateway would have to decode any other coding; the request asked for none.
    (!codings.by_ref().take(1).all(plain) || codings.next().is_some())
        .then_some("the shop's answer has a transfer coding that nobody asked for")
}

fn failure_of(error: &hyper::Error, upload: &Upload) -> Failure {
    match upload.stage() {
        Stage::CutShort => Failure::BodyCutShort,
        Stage::TooSlow => Failure::BodyTooSlow,
        Stage::TooLong => Failure::BodyTooLong { sent: true },
        Stage::FromClient | Stage::ToShop | Stage::Done => {
            if error.is_parse() {
                tracing::warn!(error = causes(error), "the shop's answer cannot be read");
                Failure::NoHttp
            } else {
                tracing::warn!(error = causes(error), "the shop gave no answer");
                Failure::Broken
            }
        }
    }
}

/// Methods that change nothing (RFC 9110, section 9.2.1).
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// WebSocket and tunnels are not supported. Other upgrades are only offers, which a server may ignore (RFC 9110,
/// section 7.8).
fn asks_for_upgrade(request: &HttpRequest) -> bool {
    let is_websocket = |value: &header::HeaderValue| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().to_ascii_lowercase().starts_with(b"websocket"))
    };
    *request.method() == Method::CONNECT || request.headers().get_all(header::UPGRADE).any(is_websocket)
}

/// The handler for the default service of the scope that the gate wraps.
pub async fn forward(request: HttpRequest, payload: web::Payload, proxy: Data<Proxy>) -> HttpResponse {
    proxy.call(&request, payload).await.unwrap_or_else(Failed::into_response)
}
