//! The bytes of a connection to the shop, between the socket and the HTTP library.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use actix_web::web::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::head::HeadReader;

/// Bytes per read from the socket while the head of an answer is read.
const PIECE: usize = 2 * 1024;

/// What was read of an answer, even if the library could not read it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Present while the head of an answer is expected.
    head: RefCell<Option<HeadReader>>,
    status: Cell<Option<u16>>,
    changed: Cell<bool>,
}

impl Seen {
    /// Call before a request is sent: the next bytes are the head of its answer.
    pub(super) fn expect_answer(&self) {
        self.head.replace(Some(HeadReader::default()));
        self.status.set(None);
    }

    /// The status of the answer, once its status line has been read.
    pub(super) fn status(&self) -> Option<u16> {
        self.status.get()
    }

    /// Whether any head from the shop had to be changed: it is then unclear where its answers end.
    pub(super) fn changed(&self) -> bool {
        self.changed.get()
    }
}

/// A connection to the shop.
pub(super) struct ShopStream {
    tcp: Rc<RefCell<TcpStream>>,
    seen: Rc<Seen>,
    /// Bytes read and repaired, but not yet taken by the library.
    ready: BytesMut,
    /// The shop reads no more.
    deaf: bool,
}

impl ShopStream {
    pub(super) fn new(tcp: Rc<RefCell<TcpStream>>, seen: Rc<Seen>) -> Self {
        Self { tcp, seen, ready: BytesMut::new(), deaf: false }
    }

    /// Reads until a head is complete or no more bytes are there. `false`: the shop has closed.
    fn poll_head(&mut self, context: &mut Context<'_>, reader: &mut HeadReader) -> Poll<io::Result<bool>> {
        let mut piece = [0; PIECE];
        loop {
            let mut read = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut *self.tcp.borrow_mut()).poll_read(context, &mut read))?;
            let mut bytes = read.filled();
            if bytes.is_empty() {
                return Poll::Ready(Ok(false));
            }
            while let Some(head) = reader.read(&mut bytes)? {
                self.ready.extend_from_slice(&head.lines);
                if !head.is_interim {
                    self.seen.changed.set(self.seen.changed.get() || head.changed);
                    self.ready.extend_from_slice(bytes);
                    return Poll::Ready(Ok(true));
                }
            }
        }
    }

    fn take_ready(&mut self, into: &mut ReadBuf<'_>) {
        let length = self.ready.len().min(into.remaining());
        into.put_slice(&self.ready.split_to(length));
        if self.ready.is_empty() {
            self.ready = BytesMut::new();
        }
    }
}

impl AsyncRead for ShopStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ready.is_empty() {
            this.take_ready(into);
            return Poll::Ready(Ok(()));
        }
        let Some(mut reader) = this.seen.head.take() else {
            return Pin::new(&mut *this.tcp.borrow_mut()).poll_read(context, into);
        };
        let head = this.poll_head(context, &mut reader);
        this.seen.status.set(reader.final_status());
        if !matches!(head, Poll::Ready(Ok(true))) {
            this.seen.head.replace(Some(reader));
        }
        if !this.ready.is_empty() {
            // This may include an interim head.
            this.take_ready(into);
            return Poll::Ready(Ok(()));
        }
        head.map_ok(|_| ())
    }
}

/// A shop that has answered may close without reading the rest of the request. Its answer is still read, so this write
/// error is ignored. Without an answer, the read fails.
fn unless_deaf<T>(deaf: &mut bool, written: Poll<io::Result<T>>, else_: T) -> Poll<io::Result<T>> {
    match written {
        Poll::Ready(Err(error)) if is_end(&error) => {
            *deaf = true;
            Poll::Ready(Ok(else_))
        }
        other => other,
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl AsyncWrite for ShopStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut *this.tcp.borrow_mut()).poll_write(context, bytes);
        unless_deaf(&mut this.deaf, written, bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = slices.iter().map(|slice| slice.len()).sum();
        if this.deaf {
            return Poll::Ready(Ok(length));
        }
        let written = Pin::new(&mut *this.tcp.borrow_mut()).poll_write_vectored(context, slices);
        unless_deaf(&mut this.deaf, written, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().tcp.borrow_mut()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = Pin::new(&mut *this.tcp.borrow_mut()).poll_shutdown(context);
        unless_deaf(&mut this.deaf, ended, ())
    }
}
