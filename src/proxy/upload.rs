//! The body of a request on its way to the shop: one piece at a time, never the whole.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::{dev::Payload, error::PayloadError, web::Bytes};
use futures_util::Stream;
use hyper::body::{Body, Frame, SizeHint};
use tokio::{sync::Notify, time::timeout};

/// The client's body will not be complete: it is malformed, too long or too slow, or the client disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body of the request ended early")]
pub(super) struct CutShort;

/// How far a body has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waiting for the client to send more.
    FromClient,
    /// Waiting for the shop to take a piece.
    ToShop,
    /// All of it has been handed over, or the shop takes no more.
    Done,
    /// The body will never be complete.
    CutShort,
    /// The gate in front stopped waiting for the rest.
    TooSlow,
    /// The body is longer than the limit.
    TooLong,
}

/// A request's body. The connection to the shop takes a piece only when it has room.
pub(super) enum RequestBody {
    /// No body.
    Empty,
    /// The client's body, streamed.
    Streamed {
        /// The client's bytes.
        payload: Payload,
        /// Bytes that may still come.
        room: u64,
        /// The progress, seen by the code that waits for the answer.
        upload: Rc<Upload>,
    },
}

/// The progress of a body, for the code that waits for the answer.
pub(super) struct Upload {
    stage: Cell<Stage>,
    moved: Notify,
}

impl RequestBody {
    /// No body.
    pub(super) fn none() -> (Self, Rc<Upload>) {
        (Self::Empty, Rc::new(Upload { stage: Cell::new(Stage::Done), moved: Notify::new() }))
    }

    /// A body of at most `limit` bytes.
    pub(super) fn streamed(payload: Payload, limit: u64) -> (Self, Rc<Upload>) {
        let upload = Rc::new(Upload { stage: Cell::new(Stage::FromClient), moved: Notify::new() });
        (Self::Streamed { payload, room: limit, upload: upload.clone() }, upload)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        let Self::Streamed { payload, room, upload } = self.get_mut() else { return Poll::Ready(None) };
        if !upload.is_under_way() {
            return Poll::Ready(None);
        }
        upload.is(Stage::FromClient);
        let ends = match ready!(Pin::new(payload).poll_next(context)) {
            Some(Ok(piece)) => match room.checked_sub(piece.len() as u64) {
                Some(left) => {
                    *room = left;
                    upload.is(Stage::ToShop);
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                None => Stage::TooLong,
            },
            Some(Err(error)) if is_late(&error) => Stage::TooSlow,
            Some(Err(_)) => Stage::CutShort,
            None => Stage::Done,
        };
        upload.is(ends);
        Poll::Ready((ends != Stage::Done).then_some(Err(CutShort)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed { .. } => SizeHint::default(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Self::Streamed { upload, .. } = self
            && upload.is_under_way()
        {
            // The connection has ended.
            upload.is(Stage::Done);
        }
    }
}

/// Whether a body ended because it took too long: the gate limits the time for a purchase's body.
fn is_late(error: &PayloadError) -> bool {
    matches!(error, PayloadError::Io(cause) if cause.kind() == std::io::ErrorKind::TimedOut)
}

impl Upload {
    pub(super) fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Waits until the body is done. The shop may answer first and read on. A body that does not move for `limit`
    /// counts as done.
    pub(super) async fn ended(self: Rc<Self>, limit: Duration) {
        while self.is_under_way() {
            if timeout(limit, self.moved()).await.is_err() {
                return;
            }
        }
    }

    /// Waits until a piece has moved.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }

    fn is_under_way(&self) -> bool {
        matches!(self.stage(), Stage::FromClient | Stage::ToShop)
    }

    fn is(&self, stage: Stage) {
        if self.stage.replace(stage) != stage {
            self.moved.notify_one();
        }
    }
}
