//! A connection to the shop, within one limit.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use tokio::time::timeout;
use tower_service::Service;

/// What went wrong with a connection.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Connects as another does, but no longer than `limit` in all: looking up the shop's name counts, for which nobody else
/// sets a limit.
#[derive(Debug, Clone)]
pub(super) struct InTime<C> {
    connector: C,
    limit: Duration,
}

impl<C> InTime<C> {
    pub(super) const fn new(connector: C, limit: Duration) -> Self {
        Self { connector, limit }
    }
}

impl<C> Service<Uri> for InTime<C>
where
    C: Service<Uri>,
    C::Error: Into<Cause>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = Cause;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, Cause>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, shop: Uri) -> Self::Future {
        let connected = timeout(self.limit, self.connector.call(shop));
        Box::pin(async move {
            match connected.await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time").into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Pending, pending};

    use super::*;

    /// As where no name server answers.
    struct Hanging;

    impl Service<Uri> for Hanging {
        type Response = ();
        type Error = io::Error;
        type Future = Pending<io::Result<()>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Uri) -> Self::Future {
            pending()
        }
    }

    #[tokio::test]
    async fn a_name_that_nobody_looks_up_is_no_connection() {
        let mut connector = InTime::new(Hanging, Duration::from_millis(10));
        let cause = timeout(Duration::from_secs(5), connector.call(Uri::from_static("http://shop/"))).await;
        assert_eq!(cause.expect("it ends by itself").unwrap_err().to_string(), "no connection in time");
    }
}
