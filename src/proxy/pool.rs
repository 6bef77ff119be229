//! The connections of one worker to the shop.
//!
//! A kept connection may be closed by the shop in the very moment in which a request is sent on it, and then nobody knows
//! whether the request was acted upon. So what may not be sent again uses one only if it was in use a moment ago, or makes a
//! new one. A request with a body ends its connection: the shop may not have read that body to its end
//! (`docs/adr/0022-own-connections.md`).

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::AsFd,
    rc::{Rc, Weak},
    time::Duration,
};

use actix_rt::task::JoinHandle;
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    connect::Connector,
    stream::{Seen, ShopStream},
    upload::RequestBody,
};

/// How long an unused connection is kept: less than the 5 s after which many servers close theirs.
const KEPT_IDLE: Duration = Duration::from_secs(4);

/// A connection unused for no longer than this is not one that the shop is about to close for being unused: shops wait
/// seconds.
const JUST_USED: Duration = Duration::from_millis(100);

/// Unused connections kept at a time.
const MOST_KEPT: usize = 256;

/// Header lines of an answer. The library's own limit is 100, which a shop with many cookies passes.
const MOST_HEADERS: usize = 256;

/// Makes connections, and keeps those that can be used again.
pub(super) struct Pool {
    connector: Connector,
    /// The last one used is the last here.
    kept: RefCell<Vec<(Instant, Connection)>>,
    /// Whether somebody looks after those that are unused for too long.
    is_tended: Cell<bool>,
}

/// A connection to the shop. Dropped, it is closed.
pub(super) struct Connection {
    sender: SendRequest<RequestBody>,
    seen: Rc<Seen>,
    /// As long as the task moves its bytes.
    socket: Weak<RefCell<TcpStream>>,
    task: Task,
}

/// What moves the bytes of a connection. Dropped, it ends, and the connection with it.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Pool {
    pub(super) fn new(connector: Connector) -> Self {
        Self { connector, kept: RefCell::default(), is_tended: Cell::new(false) }
    }

    /// A new connection.
    pub(super) async fn fresh(&self) -> io::Result<Connection> {
        let seen = Rc::new(Seen::default());
        let socket = Rc::new(RefCell::new(self.connector.connect().await?));
        let (stream, socket) = (ShopStream::new(socket.clone(), seen.clone()), Rc::downgrade(&socket));
        let (sender, connection) = Builder::new()
            .title_case_headers(true)
            .max_headers(MOST_HEADERS)
            // A gateway mends both in answers (RFC 9112, sections 5.1 and 5.2).
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let task = actix_rt::spawn(async move {
            // What goes wrong is told to who waits for the answer.
            let _ = connection.await;
        });
        Ok(Connection { sender, seen, socket, task: Task(task) })
    }

    /// The unused connection that was used last, if the shop is not known to have closed it: for what may be sent again.
    pub(super) fn take(&self) -> Option<Connection> {
        self.take_used_within(KEPT_IDLE)
    }

    /// The same, if it was used a moment ago and nothing has come on it since: for what may not be sent again.
    pub(super) fn take_just_used(&self) -> Option<Connection> {
        std::iter::from_fn(|| self.take_used_within(JUST_USED)).find(Connection::is_silent)
    }

    fn take_used_within(&self, limit: Duration) -> Option<Connection> {
        let (mut kept, now) = (self.kept.borrow_mut(), Instant::now());
        let young = kept.partition_point(|(used, _)| now - *used > limit);
        let at = young + kept[young..].iter().rposition(|(_, connection)| connection.sender.is_ready())?;
        Some(kept.remove(at).1)
    }

    /// Keeps a connection whose answer has been read to its end, unless it cannot be used again.
    pub(super) fn keep(self: &Rc<Self>, connection: Connection) {
        if self.kept.borrow().len() >= MOST_KEPT {
            self.close_old();
        }
        let mut kept = self.kept.borrow_mut();
        if connection.sender.is_closed() || connection.seen.changed() || kept.len() >= MOST_KEPT {
            return;
        }
        kept.push((Instant::now(), connection));
        if !self.is_tended.replace(true) {
            let pool = Rc::downgrade(self);
            actix_rt::spawn(async move {
                loop {
                    tokio::time::sleep(KEPT_IDLE).await;
                    let Some(pool) = pool.upgrade() else { return };
                    pool.close_old();
                    if pool.kept.borrow().is_empty() {
                        pool.is_tended.set(false);
                        return;
                    }
                }
            });
        }
    }

    /// Drops what the shop has closed, and closes what has been unused for too long.
    fn close_old(&self) {
        let (mut kept, now) = (self.kept.borrow_mut(), Instant::now());
        kept.retain(|(used, connection)| now - *used < KEPT_IDLE && !connection.sender.is_closed());
    }
}

impl Connection {
    /// Sends a request. The answer's head, once it is there.
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> {
        self.seen.expect_answer();
        self.sender.send_request(request)
    }

    /// Whether the shop has sent nothing since its answer, and not closed the connection. Asks the system: the library knows
    /// only of what it was told before its last turn.
    fn is_silent(&self) -> bool {
        let Some(socket) = self.socket.upgrade() else { return false };
        let peeked = recv(socket.borrow().as_fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peeked, Err(Errno::AGAIN))
    }

    /// What has been seen of the answer.
    pub(super) fn seen(&self) -> &Rc<Seen> {
        &self.seen
    }

    /// Closes it when all that was to be sent has been sent, or after `limit`.
    pub(super) fn finish(self, limit: Duration) {
        let Self { sender, mut task, .. } = self;
        drop(sender);
        if !task.0.is_finished() {
            actix_rt::spawn(async move {
                let _ = timeout(limit, &mut task.0).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream as StdTcpStream},
    };

    use actix_web::{
        body::to_bytes,
        http::{Method, Version},
    };

    use super::*;
    use crate::proxy::answer::{Afterwards, answer};

    /// A pool with one connection that has just been used, and the shop's side of it.
    async fn used() -> (Rc<Pool>, StdTcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shop = listener.local_addr().unwrap().to_string().parse().unwrap();
        let pool = Rc::new(Pool::new(Connector::new(&shop, KEPT_IDLE)));
        let mut connection = pool.fresh().await.unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let sent = connection.send(Request::post("/").body(RequestBody::Empty).unwrap());
        let shop = std::thread::spawn(move || {
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").unwrap();
            stream
        });
        let (answered, afterwards) = (sent.await.unwrap(), Afterwards::Keep(pool.clone(), connection));
        let answered = answer(answered, &Method::POST, Version::HTTP_11, KEPT_IDLE, async {}, afterwards).await;
        assert_eq!(to_bytes(answered.into_body()).await.unwrap(), "ok");
        while !pool.kept.borrow()[0].1.sender.is_ready() {
            actix_rt::task::yield_now().await;
        }
        (pool, shop.join().unwrap())
    }

    #[actix_web::test]
    async fn what_was_used_a_moment_ago_may_take_what_is_not_sent_twice() {
        let (pool, _shop) = used().await;
        let since = pool.kept.borrow()[0].0;
        let taken = pool.take_just_used();
        // A machine may be busy.
        assert!(taken.is_some() || since.elapsed() > JUST_USED);
        pool.keep(taken.or_else(|| pool.take()).unwrap());
        tokio::time::sleep(JUST_USED * 2).await;
        assert!(pool.take_just_used().is_none());
        assert!(pool.take().is_some(), "it is there still");
    }

    #[actix_web::test]
    async fn what_the_shop_has_closed_or_sent_more_on_takes_nothing() {
        for closes in [true, false] {
            let (pool, mut shop) = used().await;
            let connection = pool.take().unwrap();
            assert!(connection.is_silent());
            if closes {
                drop(shop);
            } else {
                shop.write_all(b"H").unwrap();
            }
            // The system knows at once; the library has had no turn.
            assert!(!connection.is_silent());
            pool.keep(connection);
            assert!(pool.take_just_used().is_none());
        }
    }
}
