//! A shop that writes down what it gets, keeps its connections, and misbehaves where it is told to.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::wire::{header, more};

/// Longer than the time after which some proxies give a shop up by default.
const SLOW: Duration = Duration::from_secs(16);

/// The answer to the key that every test of a WebSocket sends; the pair is the one of RFC 6455.
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// `GET /slow` is answered late, `POST /dying` is read and never answered.
pub(super) struct Shop {
    pub(super) port: u16,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    heads: Mutex<Vec<String>>,
    stale: AtomicBool,
}

impl Shop {
    pub(super) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let all = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen) = (stream.unwrap(), all.clone());
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Self { port, seen }
    }

    /// From now on each connection ends when a second request comes on it, as when the shop closes an idle connection
    /// while the proxy uses it: the request is read and never answered.
    pub(super) fn becomes_stale(&self, stale: bool) {
        self.seen.stale.store(stale, Ordering::SeqCst);
    }

    /// The heads of the requests since this was last asked.
    pub(super) fn saw(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.heads.lock().unwrap())
    }

    /// `METHOD TARGET` of the requests since this was last asked.
    pub(super) fn lines(&self) -> Vec<String> {
        self.saw().iter().map(|head| head.split(" HTTP/").next().unwrap().to_owned()).collect()
    }
}

fn serve(mut stream: TcpStream, seen: &Seen) {
    stream.set_read_timeout(None).unwrap();
    let mut bytes = Vec::new();
    for nth in 0.. {
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = bytes.split_off(end + 4);
                break String::from_utf8_lossy(&std::mem::replace(&mut bytes, rest)).into_owned();
            }
            if more(&mut stream, &mut bytes) == 0 {
                return;
            }
        };
        let length = header(&head, "content-length").map(|length| length.parse::<usize>().unwrap());
        let chunked = header(&head, "transfer-encoding").is_some();
        while if chunked { !bytes.ends_with(b"0\r\n\r\n") } else { bytes.len() < length.unwrap_or(0) } {
            if more(&mut stream, &mut bytes) == 0 {
                return;
            }
        }
        let body = std::mem::take(&mut bytes);
        seen.heads.lock().unwrap().push(head.clone());
        if head.starts_with("POST /dying") || (nth > 0 && seen.stale.load(Ordering::SeqCst)) {
            return;
        }
        if head.starts_with("GET /slow") {
            std::thread::sleep(SLOW);
        }
        if let Some(protocol) = header(&head, "upgrade") {
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
                 Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).unwrap();
            while more(&mut stream, &mut bytes) > 0 {
                stream.write_all(&std::mem::take(&mut bytes)).unwrap();
            }
            return;
        }
        let body = if body.is_empty() || head.starts_with("HEAD") { b"from the shop".to_vec() } else { body };
        let answer = format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(answer.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
            return;
        }
    }
}
