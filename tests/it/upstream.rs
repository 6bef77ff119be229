//! A shop that writes down every byte it gets, and a client that sends any.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

/// A request as the shop got it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Got {
    /// The request line and the headers, without the empty line.
    pub(crate) head: String,
    /// The body, its chunks put together.
    pub(crate) body: Vec<u8>,
}

impl Got {
    /// The request line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The target as it was sent.
    pub(crate) fn target(&self) -> &str {
        self.line().split(' ').nth(1).unwrap_or_default()
    }

    /// Every value of a header, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        values(&self.head, name)
    }
}

fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    lines.filter(|(there, _)| there.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
}

/// What the shop does with a request; `false` ends the connection.
type Answer = dyn Fn(&Got, &mut TcpStream) -> bool + Send + Sync;

/// A running shop. Its threads end with the test's process.
pub(crate) struct Upstream {
    address: String,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<Mutex<u32>>,
}

impl Upstream {
    /// Answers everything with 201 and `ok`.
    pub(crate) fn friendly() -> Self {
        Self::answering(|_, stream| stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").is_ok())
    }

    /// Answers as told, once a request is there in full.
    pub(crate) fn answering(answer: impl Fn(&Got, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let answer: Arc<Answer> = Arc::new(answer);
        let got = Arc::new(Mutex::new(Vec::new()));
        let seen = got.clone();
        let mut upstream = Self::by_hand(move |mut stream| {
            let mut wire = Wire::new(stream.try_clone().unwrap());
            while let Some(request) = wire.request() {
                seen.lock().unwrap().push(request.clone());
                if !answer(&request, &mut stream) {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        });
        upstream.got = got;
        upstream
    }

    /// Does with each connection what it is told.
    pub(crate) fn by_hand(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(Mutex::new(0));
        let (serve, count) = (Arc::new(serve), connections.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (serve, stream) = (serve.clone(), stream.unwrap());
                *count.lock().unwrap() += 1;
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, got: Arc::default(), connections }
    }

    pub(crate) fn url(&self) -> &str {
        &self.address
    }

    /// What came since this was last asked.
    pub(crate) fn take(&self) -> Vec<Got> {
        std::mem::take(&mut *self.got.lock().unwrap())
    }

    /// The one request that came.
    pub(crate) fn only(&self) -> Got {
        let mut all = self.take();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u32 {
        *self.connections.lock().unwrap()
    }
}

/// Reads messages off a connection.
struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    const fn new(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    fn more(&mut self) -> Option<()> {
        let mut chunk = vec![0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(read @ 1..) => {
                self.read.extend_from_slice(&chunk[..read]);
                Some(())
            }
            Ok(_) | Err(_) => None,
        }
    }

    fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let mut from = 0;
        loop {
            if let Some(at) = self.read[from..].windows(end.len()).position(|window| window == end) {
                let found = self.read[..from + at].to_vec();
                self.read.drain(..from + at + end.len());
                return Some(found);
            }
            from = self.read.len().saturating_sub(end.len());
            self.more()?;
        }
    }

    fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.read.len() < length {
            self.more()?;
        }
        Some(self.read.drain(..length).collect())
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.until(b"\r\n")?).ok()?;
            let length = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
            body.extend(self.exactly(length)?);
            self.exactly(2)?;
            if length == 0 {
                return Some(body);
            }
        }
    }

    fn request(&mut self) -> Option<Got> {
        let head = String::from_utf8_lossy(&self.until(b"\r\n\r\n")?).into_owned();
        let body = self.body(&head)?.unwrap_or_default();
        Some(Got { head, body })
    }

    /// `Some(None)`: nothing says how long it is.
    fn body(&mut self, head: &str) -> Option<Option<Vec<u8>>> {
        if values(head, "transfer-encoding").iter().any(|value| value.eq_ignore_ascii_case("chunked")) {
            return Some(Some(self.chunks()?));
        }
        match values(head, "content-length").first().and_then(|length| length.parse().ok()) {
            Some(length) => Some(Some(self.exactly(length)?)),
            None => Some(None),
        }
    }
}

/// An answer as a client got it.
#[derive(Debug, Clone)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// The status line and the headers, without the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The body was as long as it was said to be.
    pub(crate) whole: bool,
}

impl RawAnswer {
    /// Every value of a header, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        values(&self.head, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether it is a problem with this code.
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> bool {
        self.status == status
            && self.all("content-type") == ["application/problem+json"]
            && self.text().contains(&format!("\"{code}\""))
    }
}

/// A client that speaks no HTTP of its own accord.
pub(crate) struct Raw {
    stream: TcpStream,
    wire: Wire,
}

impl Raw {
    /// Connects to `http://host:port`.
    pub(crate) fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { wire: Wire::new(stream.try_clone().unwrap()), stream }
    }

    /// Sends and says nothing if the other side does not listen any more.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// How long to wait for more.
    pub(crate) fn patience(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).unwrap();
    }

    /// The connection, for who sends while somebody else reads.
    pub(crate) fn sender(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// The next answer, interim ones included; none: the connection ended.
    pub(crate) fn answer(&mut self) -> Option<RawAnswer> {
        self.answer_to("GET")
    }

    /// As [`Self::answer`], for a request with another method.
    pub(crate) fn answer_to(&mut self, method: &str) -> Option<RawAnswer> {
        let head = String::from_utf8_lossy(&self.wire.until(b"\r\n\r\n")?).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut answer = RawAnswer { status, head, body: Vec::new(), whole: true };
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return Some(answer);
        }
        match self.wire.body(&answer.head) {
            Some(Some(body)) => answer.body = body,
            Some(None) => {
                while self.wire.more().is_some() {}
                answer.body = std::mem::take(&mut self.wire.read);
            }
            None => answer.whole = false,
        }
        Some(answer)
    }

    /// One request, one answer, an own connection.
    pub(crate) fn ask(url: &str, request: &[u8]) -> Option<RawAnswer> {
        let mut raw = Self::connect(url);
        raw.send(request);
        let method = request.split(|byte| *byte == b' ').next().unwrap_or_default();
        raw.answer_to(&String::from_utf8_lossy(method))
    }
}
