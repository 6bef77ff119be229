//! Makes a new connection to the shop. One limit covers everything: looking up the name and trying each address.

use std::{
    cell::RefCell,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use hyper::http::uri::Authority;
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};

/// How long the addresses of a name are used before the next lookup. Many requests make a connection of their own, and
/// the name server should not be asked each time.
const ADDRESSES_KEPT: Duration = Duration::from_secs(5);

/// The port of an `http://` URL that names none.
const HTTP_PORT: u16 = 80;

/// Connects to the shop.
pub(super) struct Connector {
    host: String,
    port: u16,
    limit: Duration,
    /// The result of the last lookup, and its time.
    known: RefCell<Option<(Instant, Vec<SocketAddr>)>>,
}

impl Connector {
    /// Connects to `shop`; each call takes at most `limit`.
    pub(super) fn new(shop: &Authority, limit: Duration) -> Self {
        let host = shop.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Self { host, port: shop.port_u16().unwrap_or(HTTP_PORT), limit, known: RefCell::default() }
    }

    /// A connection on which nothing has been sent yet.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let look_up = || async { Ok(lookup_host((self.host.as_str(), self.port)).await?.collect()) };
        timeout(self.limit, self.connect_with(look_up)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn connect_with<F, L>(&self, look_up: F) -> io::Result<TcpStream>
    where
        F: Fn() -> L,
        L: Future<Output = io::Result<Vec<SocketAddr>>>,
    {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return first_of(&[SocketAddr::new(address, self.port)], self.limit).await;
        }
        let known = self.known.borrow().clone().filter(|(since, _)| since.elapsed() < ADDRESSES_KEPT);
        if let Some((_, addresses)) = known
            && let Ok(connected) = first_of(&addresses, self.limit / 2).await
        {
            return Ok(connected);
        }
        // The addresses are unknown, or the shop has moved.
        let addresses = look_up().await?;
        self.known.replace(Some((Instant::now(), addresses.clone())));
        first_of(&addresses, self.limit).await
    }
}

/// Connects to the first address that answers. Each gets an equal share of the time: an address that does not answer
/// must not use up the time of the others.
async fn first_of(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name of the shop has no address");
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(connected)) => {
                connected.set_nodelay(true)?;
                return Ok(connected);
            }
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::Error::new(io::ErrorKind::TimedOut, "no connection in time"),
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending, net::TcpListener};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn to(shop: &str, limit: Duration) -> Connector {
        Connector::new(&shop.parse().unwrap(), limit)
    }

    fn free_address() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn a_name_that_nobody_looks_up_is_no_connection() {
        let connector = to("shop:80", Duration::from_millis(10));
        // As if no name server answered.
        let connected = timeout(connector.limit, connector.connect_with(pending)).await;
        assert!(connected.is_err(), "nothing ends it but the limit of all");
        assert_eq!(to("[::1]:81", LIMIT).host, "::1");
        assert_eq!(to("shop", LIMIT).port, 80);
    }

    #[tokio::test]
    async fn every_address_is_tried_and_what_is_known_is_not_looked_up_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (nobody, shop) = (free_address(), listener.local_addr().unwrap());
        let looked_up = Cell::new(0);
        let look_up = || {
            looked_up.set(looked_up.get() + 1);
            async { Ok(vec![nobody, shop]) }
        };
        let connector = to("shop:80", LIMIT);
        for _ in 0..3 {
            assert_eq!(connector.connect_with(look_up).await.unwrap().peer_addr().unwrap(), shop);
        }
        assert_eq!(looked_up.get(), 1);
    }

    #[tokio::test]
    async fn a_shop_that_has_moved_is_looked_up_at_once() {
        let connector = to("shop:80", LIMIT);
        let (nobody, listener) = (free_address(), TcpListener::bind("127.0.0.1:0").unwrap());
        let moved = listener.local_addr().unwrap();
        connector.known.replace(Some((Instant::now(), vec![nobody])));
        let connected = connector.connect_with(|| async { Ok(vec![moved]) }).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap(), moved);
        assert!(connector.connect_with(|| async { Err(io::ErrorKind::NotFound.into()) }).await.is_ok(), "known now");
    }

    #[tokio::test]
    async fn without_an_address_or_an_answer_there_is_no_connection() {
        let connector = to("shop:80", LIMIT);
        assert!(connector.connect_with(|| async { Ok(Vec::new()) }).await.is_err());
        let refused = to(&free_address().to_string(), LIMIT).connect().await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
