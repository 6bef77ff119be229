//! Reads the head of the shop's answer and repairs it for the HTTP library.
//!
//! A shop that answers 201 has sold, even if another line of its answer is malformed. The library reads the whole head
//! or nothing, so the head is repaired first: control characters in values become spaces (RFC 9110, section 5.5), lines
//! that are no header are left out, and so is the reason phrase. The status is known as soon as its line has been read.

use std::io;

use actix_web::web::{Bytes, BytesMut};

/// A longer head is an error.
const MAX_HEAD: usize = 256 * 1024;

/// Reads the heads of one answer: interim ones (103), then the final one.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    /// The incomplete line.
    line: Vec<u8>,
    /// Complete lines, repaired.
    mended: BytesMut,
    /// Bytes of this head so far.
    length: usize,
    /// The status of this head.
    status: Option<u16>,
    /// The first line has been read.
    in_headers: bool,
    /// Whether the last header line was kept. A line that continues it is kept or left out with it.
    kept: bool,
    /// A line was changed or left out.
    changed: bool,
}

/// A complete head.
#[derive(Debug)]
pub(super) struct Head {
    /// The lines, with the empty line that ends them.
    pub(super) lines: Bytes,
    /// Whether another head follows.
    pub(super) is_interim: bool,
    /// Whether a line was changed or left out: then it is unclear where the shop's answer ends.
    pub(super) changed: bool,
}

impl HeadReader {
    /// Removes bytes from the front of `from`, up to the end of a head.
    ///
    /// # Errors
    /// The head is too long.
    pub(super) fn read(&mut self, from: &mut &[u8]) -> io::Result<Option<Head>> {
        while !from.is_empty() {
            let end = from.iter().position(|byte| *byte == b'\n').map_or(from.len(), |at| at + 1);
            let (piece, rest) = from.split_at(end);
            *from = rest;
            self.length += piece.len();
            if self.length > MAX_HEAD {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the head of the answer is too long"));
            }
            self.line.extend_from_slice(piece);
            if !self.in_headers {
                self.status = status_in(&self.line);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if let Some(head) = self.end_line(line.strip_suffix(b"\n").unwrap_or(&line)) {
                    return Ok(Some(head));
                }
                self.line = line;
                self.line.clear();
            }
        }
        Ok(None)
    }

    /// The final status, as soon as it has been read, even if the head is incomplete.
    pub(super) fn final_status(&self) -> Option<u16> {
        self.status.filter(|status| *status >= 200)
    }

    fn end_line(&mut self, line: &[u8]) -> Option<Head> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match (self.in_headers, line) {
            // Empty lines before an answer are ignored.
            (false, b"") => None,
            (false, line) => {
                self.status_line(line);
                None
            }
            (true, b"") => {
                self.mended.extend_from_slice(b"\r\n");
                let is_interim = self.status.is_some_and(|status| status < 200 && status != 101);
                let head = Head { lines: self.mended.split().freeze(), is_interim, changed: self.changed };
                if is_interim {
                    *self = Self::default();
                }
                Some(head)
            }
            (true, line) => {
                self.header_line(line);
                None
            }
        }
    }

    fn status_line(&mut self, line: &[u8]) {
        self.in_headers = true;
        match (line.get(..8), self.status) {
            (Some(version @ (b"HTTP/1.0" | b"HTTP/1.1")), Some(status)) => {
                self.mended.extend_from_slice(version);
                self.mended.extend_from_slice(format!(" {status} \r\n").as_bytes());
            }
            // Left unchanged: the library reports the error.
            _ => {
                self.mended.extend_from_slice(line);
                self.mended.extend_from_slice(b"\r\n");
            }
        }
    }

    fn header_line(&mut self, line: &[u8]) {
        let continues = line.starts_with(b" ") || line.starts_with(b"\t");
        let colon = line.iter().position(|byte| *byte == b':');
        self.kept =
            if continues { self.kept } else { colon.is_some_and(|colon| is_name(line[..colon].trim_ascii_end())) };
        if !self.kept {
            self.changed = true;
            return;
        }
        let from = self.mended.len();
        self.mended.extend_from_slice(line);
        for byte in &mut self.mended[from..] {
            if byte.is_ascii_control() && *byte != b'\t' {
                *byte = b' ';
                self.changed = true;
            }
        }
        self.mended.extend_from_slice(b"\r\n");
    }
}

/// The status in a possibly incomplete status line: three digits after the version, followed by another character.
fn status_in(line: &[u8]) -> Option<u16> {
    let start = line.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let rest = line[start..].strip_prefix(b"HTTP/")?;
    let version = rest.iter().position(|byte| *byte == b' ')?;
    let rest = rest[version..].trim_ascii_start();
    let (digits, after) = rest.split_at_checked(3)?;
    let is_status = digits.iter().all(u8::is_ascii_digit) && after.first().is_some_and(|byte| !byte.is_ascii_digit());
    is_status.then(|| digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')))
}

/// A token (RFC 9110, section 5.6.2).
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The heads of an answer that is read in pieces of `piece` bytes, and the rest.
    fn read(answer: &[u8], piece: usize) -> (Vec<Head>, Vec<u8>) {
        let (mut reader, mut heads, mut rest) = (HeadReader::default(), Vec::new(), Vec::new());
        for mut piece in answer.chunks(piece) {
            while !piece.is_empty() {
                if heads.last().is_some_and(|head: &Head| !head.is_interim) {
                    rest.extend_from_slice(piece);
                    break;
                }
                heads.extend(reader.read(&mut piece).unwrap());
            }
        }
        (heads, rest)
    }

    fn mended(answer: &str) -> (String, bool) {
        let mut all = Vec::new();
        for piece in [1, 2, 3, 7, answer.len()] {
            let (heads, rest) = read(answer.as_bytes(), piece);
            assert_eq!(rest, b"the rest");
            let lines = heads.iter().map(|head| String::from_utf8_lossy(&head.lines).into_owned());
            all.push((lines.collect::<String>(), heads.last().unwrap().changed));
        }
        all.dedup();
        assert_eq!(all.len(), 1, "it does not matter how it arrives: {all:?}");
        all.remove(0)
    }

    #[test]
    fn what_is_well_formed_stays_as_it_is_but_for_the_words_of_the_status() {
        for (status_line, ours) in [
            ("HTTP/1.1 200 OK", "HTTP/1.1 200 "),
            ("HTTP/1.0 404 Nothing \x01 here", "HTTP/1.0 404 "),
            ("HTTP/1.1 799", "HTTP/1.1 799 "),
            ("\r\nHTTP/1.1  201  Twice spaced", "HTTP/1.1 201 "),
        ] {
            let lines = "A: 1\r\nSet-Cookie: a=\"b\"; c\r\nX-Odd: \u{e9}\t!\r\nX-Spaced : a\r\nX-Folded: a\r\n b\r\n";
            let (answer, changed) = mended(&format!("{status_line}\r\n{lines}\r\nthe rest"));
            assert_eq!(answer, format!("{ours}\r\n{lines}\r\n"));
            assert!(!changed);
        }
    }

    #[test]
    fn control_characters_become_spaces_and_what_is_no_header_goes() {
        for (line, ours) in [
            ("Set-Cookie: a\x01b", "Set-Cookie: a b\r\n"),
            ("X: a\0b\x7fc\x1bd", "X: a b c d\r\n"),
            ("X: a\rSet-Cookie: b", "X: a Set-Cookie: b\r\n"),
            ("X: a\r\n \x02b", "X: a\r\n  b\r\n"),
            ("no colon", ""),
            (": no name", ""),
            ("a name: b", ""),
            ("Content-Length\x01: 5\r\n 6", ""),
            ("N\u{e4}me: b", ""),
            (" first: continues nothing", ""),
        ] {
            let (answer, changed) = mended(&format!("HTTP/1.1 201 Created\r\n{line}\r\nB: 2\r\n\r\nthe rest"));
            assert_eq!(answer, format!("HTTP/1.1 201 \r\n{ours}B: 2\r\n\r\n"), "{line:?}");
            assert!(changed, "{line:?}");
        }
    }

    #[test]
    fn lines_may_end_without_a_carriage_return_and_interim_heads_are_not_the_answer() {
        let (answer, changed) = mended("HTTP/1.1 103 Early\nLink: x\n\nHTTP/1.1 200 OK\nA: 1\r\n\nthe rest");
        assert_eq!(answer, "HTTP/1.1 103 \r\nLink: x\r\n\r\nHTTP/1.1 200 \r\nA: 1\r\n\r\n");
        assert!(!changed);
    }

    #[test]
    fn a_status_is_known_as_soon_as_it_has_been_read() {
        for (begun, status) in [
            ("HTTP/1.1 201 Created\r\nSet-Co", Some(201)),
            ("HTTP/1.1 201 Cre", Some(201)),
            ("HTTP/1.1 201 ", Some(201)),
            ("HTTP/1.1 409\r", Some(409)),
            ("HTTP/2 201 \r\n", Some(201)),
            ("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 303 ", Some(303)),
            ("HTTP/1.1 103 Early\r\nLink: x", None),
            ("HTTP/1.1 101 Switching\r\n\r\n", None),
            ("HTTP/1.1 201", None),
            ("HTTP/1.1 2011 ", None),
            ("HTTP/1.1 2x1 ", None),
            ("SSH-2.0-OpenSSH_9.2\r\n", None),
            ("", None),
        ] {
            let mut reader = HeadReader::default();
            let mut bytes = begun.as_bytes();
            while !bytes.is_empty() {
                reader.read(&mut bytes).unwrap();
            }
            assert_eq!(reader.final_status(), status, "{begun:?}");
        }
    }

    #[test]
    fn a_head_without_end_is_no_answer() {
        let mut reader = HeadReader::default();
        assert!(reader.read(&mut &b"HTTP/1.1 200 OK\r\nA: "[..]).unwrap().is_none());
        let much = vec![b'x'; MAX_HEAD];
        assert!(reader.read(&mut &much[..]).is_err());
        assert_eq!(reader.final_status(), Some(200));
    }
}
