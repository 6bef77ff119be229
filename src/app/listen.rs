//! The HTTP servers: which routes at which port, and what clients may take of us.

use std::{
    fmt,
    future::ready,
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream as StdTcpStream, ToSocketAddrs},
    os::fd::OwnedFd,
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

use super::{StartError, descriptors};
use crate::{
    config::{Config, ServerConfig},
    demo_shop::{self, ShopService},
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
    Demo(Data<ShopService>),
    /// None: purchases are unavailable.
    None,
}

/// How long connections that were taken last get to be read from. What is in the middle of arriving when a server stops
/// is thrown away, and a purchase is nothing that a balancer may send again.
const LAST_ARRIVALS: Duration = Duration::from_millis(200);

/// What may lie ready for a client that reads slowly.
const SEND_BUFFER: u32 = 256 * 1024;

/// One server that listens.
pub(super) struct Listening {
    /// Where.
    pub(super) address: SocketAddr,
    /// Our own hold on the socket.
    socket: StdTcpStream,
    handle: ServerHandle,
    server: JoinHandle<io::Result<()>>,
}

impl Listening {
    /// Takes no more connections, then waits until what is under way has ended, however long that takes. Refused is
    /// better than accepted and cut off: whoever is refused can safely ask somebody else.
    ///
    /// Purchases are waited for by themselves: one whose client has gone has no connection.
    pub(super) async fn end(&self, gate: &EntryTokenGate) {
        // Else the server would wonder what has become of its socket.
        self.handle.pause().await;
        // Where the system does not do that with a socket that listens, stopping does.
        let _ = self.socket.shutdown(Shutdown::Both);
        tokio::time::sleep(LAST_ARRIVALS).await;
        gate.purchases_have_ended().await;
        self.handle.stop(true).await;
    }

    /// Ends at once. What is still under way is cut off: a purchase stays claimed until its lease ends.
    pub(super) async fn close(self) {
        // A server that waits for its connections takes no orders. Dropped, it waits for none.
        self.server.abort();
        let _ = self.server.await;
    }
}

/// Binds first and serves then, so that a taken port fails the start before anybody is served. The first is the one for
/// buyers.
pub(super) fn listen(
    config: &Config,
    state: &Data<HttpState>,
    gate: &EntryTokenGate,
    shop: &Shop,
) -> Result<Vec<Listening>, StartError> {
    let server = &config.server;
    let public = bind(server, server.port)?;
    let management = server.management_port.map(|port| bind(server, port)).transpose()?;
    let failed = |cause| StartError::Listen { address: server.host.clone(), cause };
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
    if let Some(listener) = management {
        let state = state.clone();
        let small = serve(server, listener, 1, connections, move || {
            let app = WebApp::new().app_data(state.clone()).configure(http::management_routes);
            http::with_middleware(app.default_service(web::to(http::not_found)))
        });
        servers.push(small.map_err(failed)?);
    }
    Ok(servers)
}

/// What `HttpServer` does, with connections that may not be slow for ever, which it has no place for.
fn serve<F, I, S, B>(
    config: &ServerConfig,
    listener: TcpListener,
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
    let (address, socket) = (listener.local_addr()?, OwnedFd::from(listener.try_clone()?).into());
    let (keep_alive, head) =
        (Duration::from_secs(config.keep_alive_seconds), Duration::from_millis(config.client_request_timeout_ms));
    let limits =
        ClientLimits { head, idle: keep_alive, stall: Duration::from_secs(config.client_stall_timeout_seconds) };
    let builder = Server::build()
        .workers(workers)
        .max_concurrent_connections(connections)
        .disable_signals()
        // Begins later than the time of all, which is over first.
        .shutdown_timeout(config.shutdown_grace_seconds);
    let ending = builder.graceful_shutdown_signal();
    let builder = builder.listen(format!("http {address}"), listener, move || {
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
            .local_addr(address)
            .on_connect_ext(|client: &ClientStream, data| {
                data.insert(client.under_way());
            })
            .h1(map_config(app, |()| AppConfig::default()));
        let accept = fn_service(move |tcp: TcpStream| {
            let peer = tcp.peer_addr().ok();
            ready(Ok::<_, DispatchError>((ClientStream::new(tcp, limits), peer)))
        });
        accept.and_then(http)
    })?;
    let server = builder.run();
    Ok(Listening { address, socket, handle: server.handle(), server: actix_rt::spawn(server) })
}

/// A socket that listens. The standard library's own takes 128 at a time, and a crowd that comes at once is more.
fn bind(config: &ServerConfig, port: u16) -> Result<TcpListener, StartError> {
    let host = config.host.as_str();
    let failed = |cause| StartError::Listen { address: format!("{host}:{port}"), cause };
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match bind_to(address, config.backlog) {
            Ok(listener) => return Ok(listener),
            Err(cause) => last = cause,
        }
    }
    Err(failed(last))
}

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
        Shop::Demo(shop) => {
            scope.app_data(shop.clone()).configure(demo_shop::configure).default_service(web::to(http::not_found))
        }
        Shop::None => scope.configure(http::no_shop_routes).default_service(web::to(http::not_found)),
    };
    scope.wrap(gate.clone()).wrap(from_fn(proxy::refuse_ambiguous))
}
