//! A client's connection, with time limits for slow clients.
//!
//! actix-http limits the time for the head of a connection's *first* request and the time that a connection is unused.
//! It does not limit a second head, or an answer that the client does not read. This module limits both. The code that
//! reads a body limits its time.
//!
//! With pipelining, this module gives actix one request at a time: see `framing`.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use actix_rt::net::TcpStream;
use actix_web::{
    body::{BodySize, MessageBody},
    dev::RequestHead,
    http::{
        Method,
        header::{self, HeaderValue},
    },
    web::Bytes,
};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::framing::{Body, Framing};

/// Bytes held back until the answer before them is written.
const MOST_HELD: usize = 64 * 1024;

/// Turns that the server gets, before a request is answered, to read its body. It reads in its next turn.
const MOST_TURNS: usize = 4;

/// Bytes per read from the socket while they are held back.
const PIECE: usize = 2 * 1024;

/// Time limits for clients.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// How long a connection may be unused.
    pub idle: Duration,
    /// How long a client may read nothing of an answer.
    pub stall: Duration,
}

/// A client's connection. It ends in an error if the client is too slow, and gives the server one request at a time.
pub struct ClientStream {
    tcp: TcpStream,
    limits: ClientLimits,
    under_way: UnderWay,
    /// Bytes received that the server may not read yet.
    held: Vec<u8>,
    /// The client sends no more.
    ended: bool,
    late: Option<Late>,
    stall: Option<Pin<Box<Sleep>>>,
}

/// The deadline for a head, or for bytes between two requests.
struct Late {
    /// It is for a head.
    is_head: bool,
    /// The number of the request.
    request: u64,
    over: Pin<Box<Sleep>>,
}

impl ClientStream {
    /// A new connection.
    pub fn new(tcp: TcpStream, limits: ClientLimits) -> Self {
        let under_way = UnderWay::default();
        Self { tcp, limits, under_way, held: Vec::new(), ended: false, late: None, stall: None }
    }

    /// The requests of this connection. The middleware needs it, as connection data, to report when they begin and end.
    pub fn under_way(&self) -> UnderWay {
        self.under_way.clone()
    }

    /// Reads the bytes that the server may have. Ready without bytes: the client sends no more.
    fn poll_pass(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.under_way.0.looked.set(true);
        let before = into.filled().len();
        let fits = self.held.len().min(into.remaining());
        let behind = self.held.split_off(fits);
        into.put_slice(&self.held);
        let (mut passed, mut read) = (0, Poll::Ready(Ok(())));
        let mut all = fits;
        loop {
            let must = self.ended || into.remaining() == 0;
            passed += self.under_way.0.framing.borrow_mut().pass(&mut into.filled_mut()[before + passed..], must);
            if passed > 0 || must {
                break;
            }
            read = Pin::new(&mut self.tcp).poll_read(context, into);
            if !matches!(read, Poll::Ready(Ok(()))) {
                break;
            }
            self.ended = into.filled().len() == before + all;
            all = into.filled().len() - before;
        }
        self.held.clear();
        self.held.extend_from_slice(&into.filled()[before + passed..]);
        self.held.extend_from_slice(&behind);
        into.set_filled(before + passed);
        if passed > 0 { Poll::Ready(Ok(())) } else { read }
    }

    /// The server may have no bytes now. Still notices a client that disconnects.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut piece = [0; PIECE];
        while !self.ended && self.held.len() < MOST_HELD {
            let mut read = ReadBuf::new(&mut piece);
            match Pin::new(&mut self.tcp).poll_read(context, &mut read) {
                Poll::Ready(Ok(())) => {
                    self.ended = read.filled().is_empty();
                    self.held.extend_from_slice(read.filled());
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        if self.held.is_empty() && self.ended {
            return Poll::Ready(Ok(()));
        }
        // Bytes are held, and the socket may not wake this task again.
        self.under_way.0.waker.replace(Some(context.waker().clone()));
        Poll::Pending
    }

    /// Whether a head, or the bytes between two requests, took too long.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let framing = self.under_way.0.framing.borrow();
        let is_head = framing.in_head(!self.held.is_empty());
        let limit = if is_head {
            self.limits.head
        } else if framing.between_requests() {
            self.limits.head.max(self.limits.idle)
        } else {
            self.late = None;
            return false;
        };
        let request = framing.requests();
        let late = match self.late.take() {
            Some(late) if late.is_head == is_head && late.request == request => late,
            Some(_) | None => Late { is_head, request, over: Box::pin(sleep(limit)) },
        };
        self.late.insert(late).over.as_mut().poll(context).is_ready()
    }
}

/// The requests of a connection, one at a time. A request is under way from its complete head to the end of its answer.
/// Bytes read meanwhile are its body; the next request waits.
#[derive(Debug, Clone, Default)]
pub struct UnderWay(Rc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    framing: RefCell<Framing>,
    /// Woken when a request begins or is answered.
    waker: RefCell<Option<Waker>>,
    /// The server has tried to read more.
    looked: Cell<bool>,
}

impl UnderWay {
    /// A request has begun. It is answered when the returned value is dropped.
    pub(super) fn begin(&self, request: &RequestHead) -> Begun {
        let body = body_of(request);
        self.0.framing.borrow_mut().begins(body);
        self.wake();
        Begun { under_way: self.clone(), has_body: body != Body::Length(0) }
    }

    fn wake(&self) {
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

/// The body of a request, as the HTTP library reads its head. The library has refused ambiguous heads.
fn body_of(request: &RequestHead) -> Body {
    let headers = request.headers();
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.trim().parse().ok());
    let is_websocket = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket");
    if headers.contains_key(header::TRANSFER_ENCODING) {
        Body::Chunked
    } else if headers.get_all(header::UPGRADE).any(is_websocket) {
        Body::Rest
    } else {
        match length {
            None if request.method == Method::CONNECT => Body::Rest,
            length => Body::Length(length.unwrap_or(0)),
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Begun {
    under_way: UnderWay,
    has_body: bool,
}

impl Begun {
    /// Lets the server read the part of the body that has arrived. An immediate answer (a refusal) would otherwise be
    /// written first and end the connection: the unread rest of a request blocks the next.
    pub(super) async fn body_may_come(&self) {
        let looked = &self.under_way.0.looked;
        looked.set(false);
        for _ in 0..MOST_TURNS {
            if !self.has_body || looked.get() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.under_way.0.framing.borrow_mut().is_answered();
        self.under_way.wake();
    }
}

/// Pending for longer than `limit` becomes an error.
fn limited<T>(
    timer: &mut Option<Pin<Box<Sleep>>>,
    limit: Duration,
    polled: Poll<io::Result<T>>,
    context: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    if polled.is_ready() {
        *timer = None;
        return polled;
    }
    let timer = timer.get_or_insert_with(|| Box::pin(sleep(limit)));
    timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let waits = this.under_way.0.framing.borrow().waits();
        let read = if waits { this.poll_held(context) } else { this.poll_pass(context, into) };
        // Checked even if bytes were read: they may come one byte a second.
        if this.is_late(context) { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { read }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.tcp).poll_write(context, bytes);
        limited(&mut this.stall, this.limits.stall, written, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(context)
    }
}

pin_project! {
    /// An answer's body. Its request is under way until the body has been written.
    pub(super) struct LastsUntilWritten<B> {
        #[pin]
        body: B,
        begun: Option<Begun>,
    }
}

impl<B> LastsUntilWritten<B> {
    pub(super) fn new(body: B, begun: Option<Begun>) -> Self {
        Self { body, begun }
    }
}

impl<B: MessageBody> MessageBody for LastsUntilWritten<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.project().body.poll_next(context)
    }
}
