//! The body of a purchase must arrive while the claim holds.
//!
//! A slow or missing body delays the shop's answer, and the lease ends meanwhile. The pass could then buy elsewhere,
//! and here as well once the body is complete.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{dev::Payload, error::PayloadError, web::Bytes};
use futures_util::Stream;
use tokio::time::{Sleep, sleep};

/// How long a body may take to arrive: the 5 s of the lease (`upstream.timeout_ms` and 5 s) that are not the shop's.
pub(super) const BODY_LIMIT: Duration = Duration::from_secs(5);

/// The same body. It ends in an error unless it is read to its end within `limit` from now.
pub(super) fn in_time(body: Payload, limit: Duration) -> Payload {
    match body {
        Payload::None => Payload::None,
        body => Payload::Stream { payload: Box::pin(InTime { body, over: Box::pin(sleep(limit)), ended: false }) },
    }
}

struct InTime {
    body: Payload,
    over: Pin<Box<Sleep>>,
    ended: bool,
}

impl Stream for InTime {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.over.as_mut().poll(context).is_ready() {
            self.ended = true;
            return Poll::Ready(Some(Err(PayloadError::Io(io::ErrorKind::TimedOut.into()))));
        }
        Pin::new(&mut self.body).poll_next(context)
    }
}
