//! One request, one connection, one answer, fast.

use std::time::Duration;

use crate::upstream::{Raw, RawAnswer};

/// How long a shop may take. Longer takes only one that waits for more of a request than comes.
const PATIENCE: Duration = Duration::from_secs(3);

/// A request, in the parts that matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    /// Names and values, as they are sent.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// The body goes in chunks.
    pub(super) chunked: bool,
}

impl Request {
    pub(super) fn new(method: &str, target: &str) -> Self {
        Self { method: method.to_owned(), target: target.to_owned(), ..Self::default() }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same before all other headers.
    pub(super) fn with_first(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(0, (name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn body(mut self, kind: &str, body: &str) -> Self {
        self.body = body.as_bytes().to_vec();
        if kind.is_empty() { self } else { self.with("Content-Type", kind) }
    }

    pub(super) fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// As it goes over the wire. Text beyond ASCII goes as UTF-8.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name == "Host") {
            text.push_str("Host: shop.example\r\n");
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let has_body = !self.body.is_empty() || matches!(&*self.method, "POST" | "PUT" | "PATCH");
        if self.chunked {
            text.push_str("Transfer-Encoding: chunked\r\n");
        } else if has_body {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        if self.chunked {
            for piece in self.body.chunks(1000) {
                bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                bytes.extend_from_slice(piece);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }

    /// Sends it on a connection of its own and reads the answer; interim ones are passed over.
    pub(super) fn ask(&self, url: &str) -> Option<RawAnswer> {
        Client::new(url).ask(self)
    }
}

/// Who sends requests, one after the other.
pub(super) struct Client {
    url: String,
    /// Whether to keep connections.
    keep: bool,
    open: Option<Raw>,
}

impl Client {
    /// Keeps its connection while the other side does.
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), keep: true, open: None }
    }

    /// Opens a connection a request.
    pub(super) fn of_one_request_each(url: &str) -> Self {
        Self { keep: false, ..Self::new(url) }
    }

    /// Sends it and reads the answer; interim ones are passed over. `None`: there is no answer.
    ///
    /// A kept connection may have ended by now: then the request goes on a new one.
    pub(super) fn ask(&mut self, request: &Request) -> Option<RawAnswer> {
        let kept = self.open.take();
        if let Some(raw) = kept
            && let Some(answer) = self.ask_on(raw, request)
        {
            return Some(answer);
        }
        self.ask_on(Raw::connect(&self.url), request)
    }

    fn ask_on(&mut self, mut raw: Raw, request: &Request) -> Option<RawAnswer> {
        raw.patience(PATIENCE);
        raw.send(&request.bytes());
        let answer = loop {
            let answer = raw.answer_to(&request.method)?;
            if answer.status >= 200 {
                break answer;
            }
        };
        let ends = answer.all("connection").iter().any(|value| value.eq_ignore_ascii_case("close"));
        if self.keep && answer.whole && !ends {
            self.open = Some(raw);
        }
        Some(answer)
    }
}
