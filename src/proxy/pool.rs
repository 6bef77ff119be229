//! The connections of one worker to the shop.
//!
//! A kept connection may be closed by the shop in the very moment in which a request is sent on it, and then nobody knows
//! whether the request was acted upon. So only what may be sent again, and has no body, uses one; everything else has a
//! connection of its own, which ends with it (`docs/adr/0022-own-connections.md`).

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use actix_rt::task::JoinHandle;
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};

use super::{
    connect::Connector,
    stream::{Seen, ShopStream},
    upload::RequestBody,
};

/// How long an unused connection is kept: less than the 5 s after which many servers close theirs.
const KEPT_IDLE: Duration = Duration::from_secs(4);

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
        let stream = ShopStream::new(self.connector.connect().await?, seen.clone());
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
        Ok(Connection { sender, seen, task: Task(task) })
    }

    /// The unused connection that was used last, if the shop is not known to have closed it.
    pub(super) fn take(&self) -> Option<Connection> {
        self.close_old();
        let mut kept = self.kept.borrow_mut();
        kept.retain(|(_, connection)| !connection.sender.is_closed());
        let at = kept.iter().rposition(|(_, connection)| connection.sender.is_ready())?;
        Some(kept.remove(at).1)
    }

    /// Keeps a connection whose answer has been read to its end, unless it cannot be used again.
    pub(super) fn keep(self: &Rc<Self>, connection: Connection) {
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

    /// Closes what has been unused for too long.
    fn close_old(&self) {
        let mut kept = self.kept.borrow_mut();
        let old = kept.partition_point(|(since, _)| since.elapsed() >= KEPT_IDLE);
        kept.drain(..old);
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
