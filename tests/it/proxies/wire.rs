//! Requests as bytes, and answers as they come over the wire.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
    pub(super) took: Duration,
}

impl Answer {
    /// (status, code) of a problem document; no code where it is none.
    pub(super) fn refusal(&self) -> (u16, String) {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        (self.status, body["code"].as_str().unwrap_or_default().to_owned())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// The value of a header in the head of a message.
pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    headers(head, name).into_iter().next()
}

/// The values of all its lines.
pub(super) fn headers<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.filter(|(there, _)| there.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
}

/// A request on a connection of its own, with a `Content-Length`.
pub(super) fn request(port: u16, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let length = body.len();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    send(port, &format!("{method} {target} HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n{lines}\r\n{body}"))
}

/// These bytes on a connection of their own.
pub(super) fn send(port: u16, request: &str) -> Answer {
    exchange(&mut connect(port), request)
}

/// These bytes on a connection that may have carried others.
pub(super) fn exchange(stream: &mut TcpStream, request: &str) -> Answer {
    let began = Instant::now();
    // A proxy that refuses early may close before it has read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let (head, rest) = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            if !head.starts_with("HTTP/1.1 100") {
                break (head.to_owned(), rest.len());
            }
            bytes = rest.as_bytes().to_vec();
            continue;
        }
        let read = more(stream, &mut bytes);
        assert!(read > 0, "the answer breaks off: {text:?} to {request:?}");
    };
    let length = header(&head, "content-length").map(|length| length.parse::<usize>().unwrap());
    let start = bytes.len() - rest;
    let complete = |bytes: &[u8]| match length {
        Some(length) => bytes.len() - start >= length,
        None => head.starts_with("HTTP/1.1 101") || bytes.ends_with(b"0\r\n\r\n"),
    };
    while !complete(&bytes) && more(stream, &mut bytes) > 0 {}
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: String::from_utf8_lossy(&bytes[start..]).into_owned(), took: began.elapsed() }
}

pub(super) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads on; 0: the other side is done.
pub(super) fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> usize {
    let mut chunk = [0; 16384];
    match stream.read(&mut chunk) {
        Ok(read) => {
            bytes.extend_from_slice(&chunk[..read]);
            read
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
        Err(error) => panic!("no answer after {PATIENCE:?}: {error}"),
    }
}
