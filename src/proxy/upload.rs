//! The body of a request on its way to the shop: a piece at a time, never the whole.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{dev::Payload, error::PayloadError, web::Bytes};
use futures_util::StreamExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::{
    sync::{Notify, mpsc},
    time::timeout,
};

/// Pieces that wait for the shop at a time; a piece is what one read of the socket gave.
const PIECES_AHEAD: usize = 4;

/// The client's body is malformed, or ended early because the client went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body of the request ended early")]
pub(super) struct CutShort;

/// A request's body as the client of the shop takes it. Actix keeps bodies on one thread and hyper's client wants to be
/// free to move them, so there is a channel between.
pub(super) enum RequestBody {
    /// There is none.
    Empty,
    /// Its pieces.
    Pieces(mpsc::Receiver<Result<Bytes, CutShort>>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Pieces(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

/// How far a body has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The client has yet to send more.
    FromClient,
    /// The shop has yet to take a piece.
    ToShop,
    /// All of it is on its way.
    Done,
    /// It will never be complete.
    CutShort,
    /// Whoever stands before us waits no longer for the rest of it.
    TooSlow,
}

/// Whether a body ended because it took too long: the gate limits that of a purchase.
fn is_late(error: &PayloadError) -> bool {
    matches!(error, PayloadError::Io(cause) if cause.kind() == std::io::ErrorKind::TimedOut)
}

/// What who waits for the answer sees of the body.
pub(super) struct Upload {
    stage: Cell<Stage>,
    moved: Notify,
}

impl Upload {
    /// Where there is no body.
    pub(super) fn none() -> Rc<Self> {
        Rc::new(Self { stage: Cell::new(Stage::Done), moved: Notify::new() })
    }

    /// Starts to hand a body over. It ends by itself when the shop's side drops what it is given.
    pub(super) fn start(mut payload: Payload) -> (RequestBody, Rc<Self>) {
        let (to_shop, pieces) = mpsc::channel(PIECES_AHEAD);
        let upload = Rc::new(Self { stage: Cell::new(Stage::FromClient), moved: Notify::new() });
        let seen = upload.clone();
        actix_rt::spawn(async move {
            let end = loop {
                let piece = match payload.next().await {
                    None => break Stage::Done,
                    Some(Err(error)) => {
                        let end = if is_late(&error) { Stage::TooSlow } else { Stage::CutShort };
                        seen.stage.set(end);
                        let _ = to_shop.send(Err(CutShort)).await;
                        break end;
                    }
                    Some(Ok(piece)) => piece,
                };
                seen.move_on(Stage::ToShop);
                if to_shop.send(Ok(piece)).await.is_err() {
                    // The shop has answered, or gone, and takes no more.
                    break Stage::Done;
                }
                seen.move_on(Stage::FromClient);
            };
            seen.move_on(end);
        });
        (RequestBody::Pieces(pieces), upload)
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Waits until the body needs nobody any more: the shop may answer first and read on. One that stands still for as long
    /// as `limit` has ended.
    pub(super) async fn ended(self: Rc<Self>, limit: Duration) {
        while matches!(self.stage(), Stage::FromClient | Stage::ToShop) {
            if timeout(limit, self.moved()).await.is_err() {
                return;
            }
        }
    }

    /// Waits until a piece has moved.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }

    fn move_on(&self, stage: Stage) {
        self.stage.set(stage);
        self.moved.notify_one();
    }
}
