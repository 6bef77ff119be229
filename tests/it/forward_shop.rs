//! A shop behind a proxy: it writes down what it gets and answers 201 with the body it got, or `from the shop`.
//!
//! It can keep connections for a while, break them, and take an `Upgrade`: `websocket` becomes an echo, and `h2c` a
//! tunnel through which further requests reach it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::wire::{self, header};

/// What a shop does with connections.
#[derive(Debug, Clone, Copy)]
enum Keeping {
    /// One request each.
    Never,
    /// Closed, without a word before, when unused for so long.
    For(Duration),
}

/// A shop that writes down what it gets.
pub(crate) struct Shop {
    pub(crate) address: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    heads: Mutex<Vec<String>>,
    connections: AtomicUsize,
    /// How many of the requests to come are read and not answered.
    to_break: AtomicUsize,
}

impl Shop {
    /// One that answers one request a connection.
    pub(crate) fn open() -> Self {
        Self::start(Keeping::Never)
    }

    /// One that keeps connections and closes those that are unused for so long.
    pub(crate) fn keeping(idle: Duration) -> Self {
        Self::start(Keeping::For(idle))
    }

    fn start(keeping: Keeping) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Seen::default());
        let shared = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen) = (stream.unwrap(), shared.clone());
                seen.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(stream, keeping, &seen));
            }
        });
        Self { address, seen }
    }

    /// The next `count` requests are read, and their connections closed without an answer.
    pub(crate) fn break_next(&self, count: usize) {
        self.seen.to_break.store(count, Ordering::SeqCst);
    }

    /// Connections that were opened to it so far.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The heads of the requests since this was last asked.
    pub(crate) fn saw(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.heads.lock().unwrap())
    }

    /// `METHOD TARGET` of the requests since this was last asked.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.saw().iter().map(|head| head.split(" HTTP/").next().unwrap().to_owned()).collect()
    }
}

fn serve(mut stream: TcpStream, keeping: Keeping, seen: &Seen) {
    stream.set_nodelay(true).unwrap();
    let idle = match keeping {
        Keeping::Never => wire::PATIENCE,
        Keeping::For(idle) => idle,
    };
    stream.set_read_timeout(Some(idle)).unwrap();
    let mut left_over = Vec::new();
    while let Some((head, body)) = wire::read_request(&mut stream, &mut left_over) {
        // An offer that `Connection` does not name is none (RFC 9110, section 7.8).
        let is_offer = wire::values(&head, "connection").any(|names| names.to_ascii_lowercase().contains("upgrade"));
        let upgrade = header(&head, "upgrade").filter(|_| is_offer).map(str::to_ascii_lowercase);
        seen.heads.lock().unwrap().push(head);
        let breaks = seen.to_break.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if breaks.is_ok() {
            return;
        }
        match upgrade.as_deref() {
            Some("websocket") => return echo(stream),
            // Whoever passes the offer on passes on all that follows, unseen.
            Some("h2c") => {
                let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
                if stream.write_all(switching.as_bytes()).is_err() {
                    return;
                }
                continue;
            }
            _ => {}
        }
        let body = if body.is_empty() { b"from the shop".to_vec() } else { body };
        let ends = matches!(keeping, Keeping::Never);
        let connection = if ends { "Connection: close\r\n" } else { "" };
        let mut answer =
            format!("HTTP/1.1 201 Created\r\n{connection}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(&body);
        if stream.write_all(&answer).is_err() || ends {
            return;
        }
    }
}

/// A WebSocket of sorts: what comes goes back. The key is the one of the RFC's example.
fn echo(mut stream: TcpStream) {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let mut chunk = [0; 1024];
    if stream.write_all(switching.as_bytes()).is_err() {
        return;
    }
    while let Ok(read @ 1..) = stream.read(&mut chunk) {
        if stream.write_all(&chunk[..read]).is_err() {
            return;
        }
    }
}

/// A request for a WebSocket, to go with [`echo`].
pub(crate) fn websocket(target: &str) -> Vec<u8> {
    format!(
        "GET {target} HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .into_bytes()
}

/// A request that offers to go on in HTTP/2, and a purchase without a pass in the tunnel that this would open.
pub(crate) fn h2c_tunnel(purchase: &str) -> Vec<u8> {
    format!(
        "GET / HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n\
         POST {purchase} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Whether a WebSocket that was asked for on this connection answers and carries bytes both ways.
pub(crate) fn echoes(mut stream: impl Read + Write, target: &str) -> bool {
    stream.write_all(&websocket(target)).unwrap();
    let mut left_over = Vec::new();
    let Some((head, _)) = wire::read_request(&mut stream, &mut left_over) else { return false };
    if !head.starts_with("HTTP/1.1 101 ") {
        return false;
    }
    // A text frame, masked with zeros.
    let frame = b"\x81\x82\x00\x00\x00\x00hi";
    stream.write_all(frame).unwrap();
    while left_over.len() < frame.len() {
        let mut chunk = [0; 64];
        let Ok(read @ 1..) = stream.read(&mut chunk) else { return false };
        left_over.extend_from_slice(&chunk[..read]);
    }
    left_over == frame
}
