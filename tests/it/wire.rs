//! HTTP as it goes over the wire: requests that no client library sends, and answers as they came.

use std::{
    io::{Read, Write},
    time::Duration,
};

use serde_json::Value;

/// No answer takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An answer, as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Sends these bytes on a connection of their own and reads the answer to its end. The request says
    /// `Connection: close`.
    pub(crate) fn to(mut stream: impl Read + Write, request: &[u8]) -> Self {
        stream.write_all(request).unwrap();
        let mut bytes = Vec::new();
        // What came before a reset counts.
        let _ = stream.read_to_end(&mut bytes);
        Self::read(&bytes)
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// (status, code) of a problem in the form of the contract.
    #[track_caller]
    pub(crate) fn refusal(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        let body: Value = serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!(body["status"], self.status);
        assert!(["type", "title", "detail"].iter().all(|field| body[field].is_string()), "{body}");
        (self.status, body["code"].as_str().unwrap().to_owned())
    }
}

/// The value of a header in a head; the first, if there are several.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    values(head, name).next()
}

/// The values of a header in a head.
pub(crate) fn values<'a>(head: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.filter(move |(there, _)| there.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// A request whose answer ends its connection.
pub(crate) fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: {length}\r\n");
    format!("{head}{lines}\r\n{body}").into_bytes()
}

/// One request read from a connection: its head and its body, however that is delimited. `None`: the connection ended,
/// or nothing came in time.
pub(crate) fn read_request(stream: &mut impl Read, left_over: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head_end = loop {
        if let Some(at) = find(left_over, b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, left_over)?;
    };
    let head = String::from_utf8_lossy(&left_over.drain(..head_end).collect::<Vec<_>>()).into_owned();
    let is_chunked = header(&head, "transfer-encoding").is_some_and(|kind| kind.eq_ignore_ascii_case("chunked"));
    let body = if is_chunked {
        read_chunks(stream, left_over)?
    } else {
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        take(stream, left_over, length)?
    };
    Some((head, body))
}

fn read_chunks(stream: &mut impl Read, left_over: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = loop {
            if let Some(at) = find(left_over, b"\r\n") {
                break at;
            }
            more(stream, left_over)?;
        };
        let line = take(stream, left_over, line_end + 2)?;
        let size = usize::from_str_radix(str::from_utf8(&line).ok()?.trim(), 16).ok()?;
        let chunk = take(stream, left_over, size + 2)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

fn take(stream: &mut impl Read, left_over: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while left_over.len() < length {
        more(stream, left_over)?;
    }
    Some(left_over.drain(..length).collect())
}

fn more(stream: &mut impl Read, left_over: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 4096];
    match stream.read(&mut chunk) {
        Ok(read @ 1..) => left_over.extend_from_slice(&chunk[..read]),
        Ok(0) | Err(_) => return None,
    }
    Some(())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
