//! The HTTP servers: which routes at which port, and what clients may take of us.

use std::{
    fmt,
    future::ready,
    io,
    net::{SocketAddr, TcpListener, TcpStream as StdTcpStream, ToSocketAddrs},
    os::fd::{AsRawFd, RawFd},
    rc::Rc,
    time::Duration,
};

use actix_http::{HttpService, Request, Response, error::DispatchError};
use actix_rt::{net::TcpStream, task::JoinHandle};
use actix_server::Server;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::{
    App as WebApp, Error,
    body::MessageBody,
    dev::{AppConfig, HttpServiceFactory, ServerHandle},
    middleware::from_fn,
    web::{self, Data},
};
use futures_util::future::{LocalBoxFuture, join_all};
use rustix::{
    io::Errno,
    net::{Shutdown, shutdown},
};

use super::{Addresses, StartError, descriptors, watched::until_unwatched};
use crate::{
    config::{Config, ServerConfig},
    gate::EntryTokenGate,
    http::{self, ClientLimits, ClientStream, HttpState},
    proxy::{self, Proxy, ProxySettings},
};

/// How long a client may take to close its side of a connection that we have closed.
const CLOSING: Duration = Duration::from_secs(1);

/// What stands behind the gate.
#[derive(Clone)]
pub(super) enum Shop {
    /// A real one.
    Upstream(ProxySettings),
    /// The built-in one.
    #[cfg(feature = "demo-shop")]
    Demo(Data<crate::demo_shop::ShopService>),
    /// None: purchases are unavailable.
    None,
}

/// How long connections that were taken last get to be read from. What is in the middle of arriving when a server stops
/// is thrown away, and a purchase is nothing that a balancer may send again.
const LAST_ARRIVALS: Duration = Duration::from_millis(200);

/// What may lie ready for a client that reads slowly.
const SEND_BUFFER: u32 = 256 * 1024;

/// Serves these connections on this thread, until they have ended.
type Serve = Rc<dyn Fn(Vec<StdTcpStream>) -> LocalBoxFuture<'static, ()>>;

/// One server that listens.
pub(super) struct Listening {
    /// Our own hold on its sockets.
    sockets: Vec<TcpListener>,
    /// The same sockets, as the thread that takes connections holds them.
    watched: Vec<RawFd>,
    serve: Serve,
    handle: ServerHandle,
    server: JoinHandle<io::Result<()>>,
}

impl Listening {
    /// Takes no more connections, then waits until what is under way has ended, however long that takes. Refused is
    /// better than accepted and cut off: whoever is refused can safely ask somebody else.
    ///
    /// Purchases are waited for by themselves: one whose client has gone has no connection.
    pub(super) async fn end(&self, gate: &EntryTokenGate) {
        // Else the server would wonder what has become of its sockets.
        self.handle.pause().await;
        until_unwatched(&self.watched).await;
        // The system has made connections that nobody has taken since. The shutdown would cut them off.
        let mut last = Vec::new();
        for socket in &self.sockets {
            while let Ok((connection, _)) = socket.accept() {
                last.push(connection);
            }
            // Where the system does not do that with a socket that listens, stopping does.
            let _ = shutdown(socket, Shutdown::Both);
        }
        let last = actix_rt::spawn((self.serve)(last));
        tokio::time::sleep(LAST_ARRIVALS).await;
        gate.purchases_have_ended().await;
        self.handle.stop(true).await;
        let _ = last.await;
    }

    /// Ends at once. What is still under way is cut off: a purchase stays claimed until its lease ends.
    pub(super) async fn close(self) {
        // A server that waits for its connections takes no orders. Dropped, it waits for none.
        self.server.abort();
        let _ = self.server.await;
    }
}

/// Binds first and serves then, so that a taken port fails the start before anybody is served.
pub(super) fn listen(
    config: &Config,
    state: &Data<HttpState>,
    gate: &EntryTokenGate,
    shop: &Shop,
) -> Result<(Addresses, Vec<Listening>), StartError> {
    let server = &config.server;
    let public = bind(server, server.port)?;
    let management = server.management_port.map(|port| bind(server, port)).transpose()?;
    let failed = |cause| StartError::Listen { address: server.host.clone(), cause };
    let addresses = Addresses {
        public: addresses_of(&public).map_err(failed)?,
        management: addresses_of(management.as_deref().unwrap_or_default()).map_err(failed)?,
    };
    let apart = management.is_some();
    let workers = match server.workers {
        0 => std::thread::available_parallelism().map_or(2, usize::from),
        workers => workers,
    };
    let connections = descriptors::connections_a_worker(server.max_connections, workers, descriptors::raise());

    let (state_here, gate, shop) = (state.clone(), gate.clone(), shop.clone());
    let main = serve(server, public, workers, connections, move || {
        let app = WebApp::new()
            .app_data(state_here.clone())
            .configure(http::queue_routes)
            .configure(http::forward_auth_routes);
        let app = if apart { app } else { app.configure(http::management_routes) };
        let app = app.service(shop_scope(&gate, &shop));
        // `OPTIONS *` and the like have no path that a scope could take.
        http::with_middleware(app.default_service(web::to(http::not_found)))
    });
    let mut servers = vec![main.map_err(failed)?];
    if let Some(listeners) = management {
        let state = state.clone();
        let small = serve(server, listeners, 1, connections, move || {
            let app = WebApp::new().app_data(state.clone()).configure(http::management_routes);
            http::with_middleware(app.default_service(web::to(http::not_found)))
        });
        servers.push(small.map_err(failed)?);
    }
    Ok((addresses, servers))
}

/// What `HttpServer` does, with connections that may not be slow for ever, which it has no place for.
fn serve<F, I, S, B>(
    config: &ServerConfig,
    listeners: Vec<TcpListener>,
    workers: usize,
    connections: usize,
    app: F,
) -> io::Result<Listening>
where
    F: Fn() -> I + Send + Clone + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig, Error = Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    S::Service: 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let (keep_alive, head) =
        (Duration::from_secs(config.keep_alive_seconds), Duration::from_millis(config.client_request_timeout_ms));
    let limits =
        ClientLimits { head, idle: keep_alive, stall: Duration::from_secs(config.client_stall_timeout_seconds) };
    let mut builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(connections)
        .disable_signals()
        // Begins later than the time of all, which is over first.
        .shutdown_timeout(config.shutdown_grace_seconds);
    let ending = builder.graceful_shutdown_signal();
    let connections = move || {
        let ending = ending.clone();
        let app = app().into_factory().map_err(|error: Error| error.error_response());
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let ending = ending.clone();
                async move { ending.notified().await }
            })
            .keep_alive(keep_alive)
            .client_request_timeout(head)
            .client_disconnect_timeout(CLOSING)
            .on_connect_ext(|client: &ClientStream, data| {
                data.insert(client.under_way());
            })
            .h1(map_config(app, |()| AppConfig::default()));
        let accept = fn_service(move |tcp: TcpStream| {
            let peer = tcp.peer_addr().ok();
            ready(Ok::<_, DispatchError>((ClientStream::new(tcp, limits), peer)))
        });
        accept.and_then(http)
    };
    let (mut sockets, mut watched) = (Vec::new(), Vec::new());
    for listener in listeners {
        sockets.push(listener.try_clone()?);
        watched.push(listener.as_raw_fd());
        builder = builder.listen(format!("http {}", listener.local_addr()?), listener, connections.clone())?;
    }
    let serve: Serve = Rc::new(move |last| {
        let connections = connections.clone();
        Box::pin(async move {
            if last.is_empty() {
                return;
            }
            let Ok(service) = connections().new_service(()).await else { return };
            let last = last.into_iter().filter_map(|tcp| {
                tcp.set_nonblocking(true).ok()?;
                TcpStream::from_std(tcp).ok()
            });
            join_all(last.map(|tcp| service.call(tcp))).await;
        })
    });
    let server = builder.run();
    Ok(Listening { sockets, watched, serve, handle: server.handle(), server: actix_rt::spawn(server) })
}

/// Sockets that listen at every address of the host.
fn bind(config: &ServerConfig, port: u16) -> Result<Vec<TcpListener>, StartError> {
    let host = config.host.as_str();
    let failed = |cause| StartError::Listen { address: format!("{host}:{port}"), cause };
    bind_all((host, port).to_socket_addrs().map_err(failed)?, config.backlog).map_err(failed)
}

/// Sockets that listen at all of these addresses that this machine has, at least one. Any free port is the same for all.
fn bind_all(addresses: impl Iterator<Item = SocketAddr>, backlog: u32) -> io::Result<Vec<TcpListener>> {
    let (mut listeners, mut seen): (Vec<TcpListener>, Vec<SocketAddr>) = Default::default();
    let mut missing = io::ErrorKind::AddrNotAvailable.into();
    for mut address in addresses {
        // A name may be written down twice.
        if seen.contains(&address) {
            continue;
        }
        seen.push(address);
        if let (0, Some(first)) = (address.port(), listeners.first()) {
            address.set_port(first.local_addr()?.port());
        }
        match bind_to(address, backlog) {
            Ok(listener) => listeners.push(listener),
            // `localhost` has an IPv6 address in many places that have no IPv6.
            Err(cause) if matches!(Errno::from_io_error(&cause), Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) => {
                missing = cause;
            }
            Err(cause) => return Err(cause),
        }
    }
    if listeners.is_empty() { Err(missing) } else { Ok(listeners) }
}

fn addresses_of(listeners: &[TcpListener]) -> io::Result<Vec<SocketAddr>> {
    listeners.iter().map(TcpListener::local_addr).collect()
}

/// A socket that listens. The standard library's own takes 128 at a time, and a crowd that comes at once is more.
fn bind_to(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4() } else { tokio::net::TcpSocket::new_v6() }?;
    // After a restart connections of before may hold the port for a minute.
    socket.set_reuseaddr(true)?;
    // Of a larger one the system tells only after a third has been taken that there is room again: a client that reads
    // slowly would look like one that does not read.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(backlog)?.into_std()
}

/// Everything that is no route of ours stands behind the gate, so that no odd spelling finds a way round it. Last of
/// all services: it takes every path.
fn shop_scope(gate: &EntryTokenGate, shop: &Shop) -> impl HttpServiceFactory + use<> {
    let scope = web::scope("");
    let scope = match shop {
        Shop::Upstream(settings) => scope
            // One a worker: connections belong to their thread.
            .app_data(Data::new(Proxy::new(settings.clone())))
            // Nothing here has a template, and nobody need look for one.
            .app_data(&http::UNMATCHED)
            .default_service(web::to(proxy::forward)),
        #[cfg(feature = "demo-shop")]
        Shop::Demo(shop) => scope
            .app_data(shop.clone())
            .configure(crate::demo_shop::configure)
            .default_service(web::to(http::not_found)),
        Shop::None => scope.configure(http::no_shop_routes).default_service(web::to(http::not_found)),
    };
    scope.wrap(gate.clone()).wrap(from_fn(proxy::refuse_ambiguous))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(addresses: &[&str]) -> io::Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
        let listeners = bind_all(addresses.iter().map(|address| address.parse().unwrap()), 16)?;
        let at = addresses_of(&listeners)?;
        Ok((listeners, at))
    }

    #[actix_web::test]
    async fn every_address_of_a_host_is_listened_at_with_one_port() {
        // 192.0.2.1 is nobody's (RFC 5737); all of 127.0.0.0/8 is ours.
        let (_listeners, at) = bound(&["192.0.2.1:0", "127.0.0.1:0", "127.0.0.2:0", "127.0.0.1:0"]).unwrap();
        let port = at[0].port();
        assert_eq!(at, [SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from(([127, 0, 0, 2], port))]);
        for address in at {
            assert!(StdTcpStream::connect(address).is_ok(), "{address}");
        }
    }

    #[actix_web::test]
    async fn a_host_with_no_address_here_or_with_one_whose_port_is_taken_is_refused() {
        assert_eq!(bound(&["192.0.2.1:0"]).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let taken = listener.local_addr().unwrap();
        let here = format!("127.0.0.1:{}", taken.port());
        assert_eq!(bound(&[&here, &taken.to_string()]).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
