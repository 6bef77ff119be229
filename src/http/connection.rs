//! A client's connection, which may be slow, but not for ever.
//!
//! actix-http limits how long the head of a connection's *first* request takes, and how long a connection is unused. A
//! second head may drip for ever, and so may an answer that nobody takes. Here both come to an end. How long a body may
//! take is for those to say who read it.

use std::{
    cell::Cell,
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use actix_rt::net::TcpStream;
use actix_web::{
    body::{BodySize, MessageBody},
    web::Bytes,
};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// How long clients may take.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// For which a connection may be unused.
    pub idle: Duration,
    /// For which a client takes nothing of an answer.
    pub stall: Duration,
}

/// A client's connection that ends in an error where the client is too slow.
pub struct ClientStream {
    tcp: TcpStream,
    limits: ClientLimits,
    under_way: UnderWay,
    /// How many requests had begun when this was last read from: a quick one begins and ends between two looks.
    begun: u64,
    head: Option<Head>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    /// A new connection.
    pub fn new(tcp: TcpStream, limits: ClientLimits) -> Self {
        Self { tcp, limits, under_way: UnderWay::default(), begun: 0, head: None, stall: None }
    }

    /// Whether a request is under way: to be told by the middleware, as data of the connection.
    pub fn under_way(&self) -> UnderWay {
        self.under_way.clone()
    }
}

/// Whether a request of a connection is under way: its head is complete, and its answer is not. What is read meanwhile
/// is its body, or the next request, which has to wait.
#[derive(Debug, Clone, Default)]
pub struct UnderWay(Rc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    under_way: Cell<bool>,
    begun: Cell<u64>,
}

impl UnderWay {
    /// A request has begun; it ends when what is returned is dropped.
    pub(super) fn begin(&self) -> Begun {
        self.0.under_way.set(true);
        self.0.begun.set(self.0.begun.get() + 1);
        Begun(self.clone())
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Begun(UnderWay);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.0.under_way.set(false);
    }
}

/// What was read while no request was under way.
enum Head {
    /// Once: the beginning of a head, or the last of a body whose answer came first. Then there may be nothing more for as
    /// long as a connection may be unused.
    Perhaps(Pin<Box<Sleep>>),
    /// More: a head it is.
    Surely(Pin<Box<Sleep>>),
}

impl Head {
    fn over(&mut self) -> &mut Pin<Box<Sleep>> {
        match self {
            Self::Perhaps(over) | Self::Surely(over) => over,
        }
    }
}

/// Pending for longer than `limit` is an error.
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
        let before = into.filled().len();
        let read = Pin::new(&mut this.tcp).poll_read(context, into);
        let requests = &this.under_way.0;
        if requests.under_way.get() || requests.begun.get() != this.begun {
            // That head was complete.
            this.begun = requests.begun.get();
            this.head = None;
        }
        if requests.under_way.get() {
            return read;
        }
        if into.filled().len() > before {
            let ClientLimits { head, idle, .. } = this.limits;
            match &this.head {
                None => this.head = Some(Head::Perhaps(Box::pin(sleep(head.max(idle))))),
                Some(Head::Perhaps(_)) => this.head = Some(Head::Surely(Box::pin(sleep(head)))),
                Some(Head::Surely(_)) => {}
            }
        }
        // Also where there is something to read: it may be a byte a second.
        match this.head.as_mut().map(|head| head.over().as_mut().poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Some(Poll::Pending) | None => read,
        }
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
    /// An answer's body; its request is under way until it has been written.
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
