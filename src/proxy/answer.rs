//! The shop's answer on its way to the client.

use std::{
    future::ready,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    http::{ConnectionType, Method, StatusCode, Version},
    web::Bytes,
};
use futures_util::future::LocalBoxFuture;
use hyper::{
    Response,
    body::{Body, Incoming},
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use tokio::time::Sleep;

use super::{
    failure::causes,
    headers,
    pool::{Connection, Pool},
};

/// Put into a response's extensions: the answer is the shop's own, and we add no header to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FromShop;

/// The error that ends a body if the shop does not end it.
#[derive(Debug, thiserror::Error)]
enum CutAnswer {
    #[error("the shop's answer ended early: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the shop fell silent in the middle of its answer")]
    Silent,
}

/// What happens to the connection after the answer has been read to its end. Until then, dropping this closes the
/// connection.
pub(super) enum Afterwards {
    /// Keep it for another request.
    Keep(Rc<Pool>, Connection),
    /// Close it when the rest of the request has been sent, or after this time.
    Finish(Connection, Duration),
}

impl Afterwards {
    fn happens(self) {
        match self {
            Self::Keep(pool, connection) => pool.keep(connection),
            Self::Finish(connection, limit) => connection.finish(limit),
        }
    }
}

/// Makes our answer from the shop's: same status, headers and body. It ends only after the `upload`: once an answer has
/// ended, the server reads no more of the request.
pub(super) async fn answer(
    shops: Response<Incoming>,
    method: &Method,
    version: Version,
    longest_silence: Duration,
    upload: impl Future<Output = ()> + 'static,
    afterwards: Afterwards,
) -> HttpResponse {
    let (head, body) = shops.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16()).expect("both types allow 100 to 999");
    let size = if *method == Method::HEAD {
        // The length that GET would have; no body follows.
        let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        match length {
            Some(length) => BodySize::Sized(length),
            None if head.headers.contains_key(TRANSFER_ENCODING) => BodySize::Stream,
            None => BodySize::None,
        }
    } else if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        BodySize::None
    } else {
        body.size_hint().exact().map_or(BodySize::Stream, BodySize::Sized)
    };
    let mut upload: LocalBoxFuture<'static, ()> = Box::pin(upload);
    let mut afterwards = Some(afterwards);
    if matches!(size, BodySize::None | BodySize::Sized(0)) {
        // Without a body the answer ends with its head.
        upload.await;
        upload = Box::pin(ready(()));
        afterwards.take().into_iter().for_each(Afterwards::happens);
    }
    let body = ShopBody { body: Some(body), upload, afterwards, size, longest_silence, silence: None };
    let mut answer = HttpResponse::with_body(status, BoxBody::new(body));
    headers::to_client(&head.headers, status == StatusCode::NOT_MODIFIED, answer.headers_mut());
    let ours = answer.head_mut();
    ours.set_camel_case_headers(true);
    if status.canonical_reason().is_none() {
        ours.reason = Some("");
    }
    if size == BodySize::Stream && version < Version::HTTP_11 {
        // HTTP/1.0 has no chunks: the end of the connection ends the body.
        ours.no_chunking(true);
        ours.set_connection_type(ConnectionType::Close);
    }
    answer.extensions_mut().insert(FromShop);
    answer
}

/// The shop's body, one piece at a time. If it is cut short, our answer is cut short as well, so that the client
/// notices.
struct ShopBody {
    /// Until the body has ended.
    body: Option<Incoming>,
    upload: LocalBoxFuture<'static, ()>,
    /// Until the body and the upload have ended.
    afterwards: Option<Afterwards>,
    size: BodySize,
    longest_silence: Duration,
    /// Started when no piece was ready; reset by the next piece.
    silence: Option<Pin<Box<Sleep>>>,
}

impl MessageBody for ShopBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        loop {
            let Some(body) = &mut this.body else {
                ready!(this.upload.as_mut().poll(cx));
                this.afterwards.take().into_iter().for_each(Afterwards::happens);
                return Poll::Ready(None);
            };
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.silence = None;
                    // Trailers are not forwarded.
                    if let Ok(piece) = frame.into_data() {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::warn!(error = causes(&error), "the shop's answer ended early");
                    return Poll::Ready(Some(Err(CutAnswer::from(error).into())));
                }
                Poll::Ready(None) => this.body = None,
                Poll::Pending => {
                    let limit = this.longest_silence;
                    let silence = this.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                    ready!(silence.as_mut().poll(cx));
                    tracing::warn!("the shop stopped sending in the middle of an answer");
                    return Poll::Ready(Some(Err(CutAnswer::Silent.into())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use actix_web::body::to_bytes;
    use hyper::Request;

    use super::*;
    use crate::proxy::{connect::Connector, upload::RequestBody};

    /// Our answer to a shop that sends `begins` and then nothing more.
    async fn standing_still(begins: &'static str) -> HttpResponse {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(begins.as_bytes()).unwrap();
            // Until the other side closes.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let second = Duration::from_secs(1);
        let pool = Rc::new(Pool::new(Connector::new(&address.to_string().parse().unwrap(), second)));
        let mut connection = pool.fresh().await.unwrap();
        let shops = connection.send(Request::get("/").body(RequestBody::Empty).unwrap()).await.unwrap();
        let afterwards = Afterwards::Finish(connection, second);
        answer(shops, &Method::GET, Version::HTTP_11, Duration::from_millis(50), async {}, afterwards).await
    }

    #[actix_web::test]
    async fn a_shop_silent_in_the_middle_of_an_answer_ends_it() {
        for begins in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ] {
            let error = to_bytes(standing_still(begins).await.into_body()).await.unwrap_err();
            assert_eq!(error.to_string(), CutAnswer::Silent.to_string());
        }
    }

    #[actix_web::test]
    async fn an_answer_that_is_whole_is_not_waited_for() {
        let answer = standing_still("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").await;
        assert!(answer.extensions().get::<FromShop>().is_some());
        assert_eq!(to_bytes(answer.into_body()).await.unwrap(), "abc");
    }
}
