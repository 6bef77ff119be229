//! Finds where a request ends in the bytes of a client's connection. The server gets no bytes of the next request until
//! the last one is answered.
//!
//! Otherwise the server would read on and format an answer for the *next* request: no body for a `HEAD`, a closed
//! connection, HTTP/1.0. The server also treats every `Connection: upgrade` as an upgrade that it makes: it says so in
//! the answer and closes. This module prevents both.

/// The body of a request, as the server read its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// This many bytes.
    Length(u64),
    /// Chunks, up to the last one.
    Chunked,
    /// All remaining bytes: the connection changes to another protocol.
    Rest,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Lines of a head.
    Head {
        /// The head has a line that is not empty.
        begun: bool,
        /// The beginning of this line has passed already.
        in_line: bool,
    },
    /// The head is complete; the server has to say what the body is.
    Verdict,
    /// The body.
    Length(u64),
    /// The body.
    Chunks(Chunk),
    /// The answer has to be written.
    Answer,
    /// All remaining bytes.
    Rest,
}

/// The place in a chunked body; the states are the server's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Size(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// After the last chunk: a trailer, or the empty line.
    LineStart,
    Trailer,
    TrailerLf,
    EndLf,
}

/// A head line longer than this passes in pieces, unread: it is not one that matters here.
const MAX_LINE: usize = 16 * 1024;

/// Decides how many bytes may pass.
#[derive(Debug)]
pub(super) struct Framing {
    next: Next,
    /// The request is answered; more of its body may come.
    answered: bool,
    /// Empty lines came before the head.
    empty_lines: bool,
    /// Requests whose head was complete.
    requests: u64,
}

const NEXT_HEAD: Next = Next::Head { begun: false, in_line: false };

impl Default for Framing {
    fn default() -> Self {
        Self { next: NEXT_HEAD, answered: true, empty_lines: false, requests: 0 }
    }
}

impl Framing {
    /// How many of these bytes, from the first, the server may have now. An incomplete line must wait, unless `must`:
    /// the buffer is full, or the client sends no more.
    pub(super) fn pass(&mut self, bytes: &mut [u8], must: bool) -> usize {
        let mut passed = 0;
        while passed < bytes.len() {
            let rest = &mut bytes[passed..];
            let length = rest.len();
            let more = match self.next {
                Next::Head { begun, in_line } => self.pass_line(begun, in_line, rest, must),
                Next::Verdict | Next::Answer => 0,
                Next::Length(left) => {
                    let some = left.min(length as u64);
                    self.next = Next::Length(left - some);
                    if left == some {
                        self.body_ends();
                    }
                    some as usize
                }
                Next::Chunks(chunk) => self.pass_chunk(chunk, rest),
                Next::Rest => length,
            };
            if more == 0 {
                break;
            }
            passed += more;
        }
        passed
    }

    /// Whether no bytes may pass until [`Self::begins`] or [`Self::is_answered`].
    pub(super) fn waits(&self) -> bool {
        matches!(self.next, Next::Verdict | Next::Answer)
    }

    /// Whether a head has begun but its request has not. `held`: the beginning of a line was received.
    pub(super) fn in_head(&self, held: bool) -> bool {
        match self.next {
            Next::Verdict => true,
            Next::Head { begun, .. } => begun || held,
            Next::Length(_) | Next::Chunks(_) | Next::Answer | Next::Rest => false,
        }
    }

    /// Whether bytes came that belong to no open request: the rest of a body that was answered early, or empty lines.
    pub(super) fn between_requests(&self) -> bool {
        match self.next {
            Next::Head { .. } => self.empty_lines,
            Next::Length(_) | Next::Chunks(_) => self.answered,
            Next::Verdict | Next::Answer | Next::Rest => false,
        }
    }

    /// The number of requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// The server has read a head.
    pub(super) fn begins(&mut self, body: Body) {
        self.requests += 1;
        (self.answered, self.empty_lines) = (false, false);
        self.next = match body {
            Body::Length(0) => Next::Answer,
            Body::Length(length) => Next::Length(length),
            Body::Chunked => Next::Chunks(Chunk::Size(0)),
            Body::Rest => Next::Rest,
        };
    }

    /// The answer has been written.
    pub(super) fn is_answered(&mut self) {
        self.answered = true;
        if self.next == Next::Answer {
            self.next = NEXT_HEAD;
        }
    }

    fn body_ends(&mut self) {
        self.next = if self.answered { NEXT_HEAD } else { Next::Answer };
    }

    fn pass_line(&mut self, begun: bool, in_line: bool, bytes: &mut [u8], must: bool) -> usize {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            if !must && bytes.len() <= MAX_LINE {
                return 0;
            }
            self.next = Next::Head { begun: true, in_line: true };
            return bytes.len();
        };
        let line = &mut bytes[..=end];
        let is_empty = !in_line && line.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        if is_empty && begun {
            self.next = Next::Verdict;
        } else {
            self.empty_lines |= is_empty;
            self.next = Next::Head { begun: begun || !is_empty, in_line: false };
            if !in_line {
                decline_upgrade(line);
            }
        }
        end + 1
    }

    fn pass_chunk(&mut self, mut chunk: Chunk, bytes: &[u8]) -> usize {
        let mut passed = 0;
        while let Some(byte) = bytes.get(passed).copied() {
            if let Chunk::Data(left) = chunk {
                let some = left.min((bytes.len() - passed) as u64);
                passed += some as usize;
                chunk = if left == some { Chunk::DataCr } else { Chunk::Data(left - some) };
                continue;
            }
            passed += 1;
            chunk = match (chunk, byte) {
                (Chunk::Size(size) | Chunk::Extension(size), b'\r') => Chunk::SizeLf(size),
                (Chunk::Size(size), digit) => match char::from(digit).to_digit(16) {
                    Some(digit) => Chunk::Size(size.saturating_mul(16).saturating_add(digit.into())),
                    None => Chunk::Extension(size),
                },
                (Chunk::Extension(size), _) => Chunk::Extension(size),
                (Chunk::SizeLf(0), b'\n') => Chunk::LineStart,
                (Chunk::SizeLf(size), b'\n') => Chunk::Data(size),
                (Chunk::DataCr, b'\r') => Chunk::DataLf,
                (Chunk::DataLf, b'\n') => Chunk::Size(0),
                (Chunk::LineStart, b'\r') => Chunk::EndLf,
                (Chunk::Trailer, b'\r') => Chunk::TrailerLf,
                (Chunk::LineStart | Chunk::Trailer, _) => Chunk::Trailer,
                (Chunk::TrailerLf, b'\n') => Chunk::LineStart,
                (Chunk::EndLf, b'\n') => {
                    self.body_ends();
                    return passed;
                }
                // Malformed: the server detects it and ends the connection.
                (Chunk::SizeLf(_) | Chunk::DataCr | Chunk::DataLf | Chunk::TrailerLf | Chunk::EndLf, _) => {
                    self.next = Next::Rest;
                    return passed;
                }
                (Chunk::Data(_), _) => unreachable!("passed in one piece above"),
            };
        }
        self.next = Next::Chunks(chunk);
        passed
    }
}

/// Removes `upgrade` from a `Connection` line. The offer itself is in the `Upgrade` header, and a server may ignore it
/// (RFC 9110, section 7.8).
fn decline_upgrade(line: &mut [u8]) {
    const NAME: &[u8] = b"connection:";
    let Some((name, value)) = line.split_at_mut_checked(NAME.len()) else { return };
    if !name.eq_ignore_ascii_case(NAME) {
        return;
    }
    for word in value.split_mut(|byte| *byte == b',') {
        if word.trim_ascii().eq_ignore_ascii_case(b"upgrade") {
            word.iter_mut().filter(|byte| byte.is_ascii_alphabetic()).for_each(|byte| *byte = b' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// The pieces that the server gets, in order, if the bytes arrive in pieces of `piece` bytes. Each request gets the
    /// next of `bodies`, and is answered as soon as no more bytes pass.
    fn given(bytes: &str, piece: usize, bodies: &[Body]) -> Vec<String> {
        let (mut framing, mut held, mut given) = (Framing::default(), Vec::new(), vec![Vec::new()]);
        let mut bodies = bodies.iter();
        for piece in bytes.as_bytes().chunks(piece) {
            held.extend_from_slice(piece);
            loop {
                let passed = framing.pass(&mut held, false);
                given.last_mut().unwrap().extend(held.drain(..passed));
                if framing.next == Next::Verdict {
                    framing.begins(*bodies.next().unwrap());
                } else if framing.next == Next::Answer {
                    framing.is_answered();
                    given.push(Vec::new());
                } else if passed == 0 {
                    break;
                }
            }
        }
        given.last_mut().unwrap().extend(held);
        given.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    #[test]
    fn each_request_is_given_by_itself_however_the_bytes_arrive() {
        let all = [
            (GET.to_owned(), Body::Length(0)),
            ("\r\n\nPOST /a HTTP/1.1\nHost: x\nContent-Length: 4\n\n\r\n\r\n".to_owned(), Body::Length(4)),
            (format!("POST /c HTTP/1.1\r\nHost: x\r\n\r\n{CHUNKS}"), Body::Chunked),
            (GET.to_owned(), Body::Length(0)),
        ];
        let bytes: String = all.iter().map(|(bytes, _)| bytes.as_str()).collect();
        let bodies: Vec<Body> = all.iter().map(|(_, body)| *body).collect();
        for piece in [1, 2, 3, 5, 17, bytes.len()] {
            let given = given(&bytes, piece, &bodies);
            let expected: Vec<&str> = all.iter().map(|(bytes, _)| bytes.as_str()).chain([""]).collect();
            assert_eq!(given, expected, "{piece}");
        }
    }

    const CHUNKS: &str = "5;a=b\r\nab\r\nc\r\n1A \r\n0123456789012345678901234\n\r\n0\r\nX: a\nb\r\nY\r\n\r\n";

    #[test]
    fn the_rest_of_a_body_may_come_after_the_answer() {
        let mut framing = Framing::default();
        let mut head = GET.as_bytes().to_vec();
        assert_eq!(framing.pass(&mut head, false), head.len());
        assert!(framing.waits() && framing.in_head(false));
        framing.begins(Body::Length(3));
        assert_eq!(framing.pass(&mut b"a".to_vec(), false), 1);
        framing.is_answered();
        assert!(framing.between_requests() && !framing.waits());
        let mut rest = [b"bc", GET.as_bytes(), b"x"].concat();
        assert_eq!(framing.pass(&mut rest, false), 2 + GET.len(), "the next head follows at once");
        assert!(framing.waits());
    }

    #[test]
    fn what_is_malformed_passes_and_is_the_servers_to_refuse() {
        for chunks in ["1\nx", "1\r\nxy\r\n", "0\r\n\rx", "2\r\nab\rx"] {
            let mut framing = Framing { next: Next::Chunks(Chunk::Size(0)), ..Framing::default() };
            let mut bytes = [chunks.as_bytes(), GET.as_bytes()].concat();
            let whole = bytes.len();
            assert_eq!(framing.pass(&mut bytes, false), whole, "{chunks:?}");
        }
        let mut framing = Framing { next: Next::Verdict, ..Framing::default() };
        framing.begins(Body::Rest);
        assert_eq!(framing.pass(&mut GET.as_bytes().to_vec(), false), GET.len());
    }

    #[test]
    fn a_long_line_does_not_wait_for_its_end() {
        let mut framing = Framing::default();
        let mut line = vec![b'x'; MAX_LINE + 1];
        assert_eq!(framing.pass(&mut line, false), MAX_LINE + 1);
        assert_eq!(framing.pass(&mut b"\r\n\r\nmore".to_vec(), false), 4, "the end of the line, and the empty one");
        assert!(framing.waits());
        assert_eq!(Framing::default().pass(&mut b"GET".to_vec(), false), 0);
        assert_eq!(Framing::default().pass(&mut b"GET".to_vec(), true), 3);
    }

    #[test]
    fn upgrades_are_declined_and_other_words_stay() {
        for (line, ours) in [
            ("Connection: Upgrade, HTTP2-Settings\r\n", "Connection:        , HTTP2-Settings\r\n"),
            ("connection:upgrade\n", "connection:       \n"),
            ("CONNECTION: keep-alive ,\tUPGRADE\r\n", "CONNECTION: keep-alive ,\t       \r\n"),
            ("Connection: x-upgrade\r\n", "Connection: x-upgrade\r\n"),
            ("Upgrade: upgrade\r\n", "Upgrade: upgrade\r\n"),
            ("X-Connection: upgrade\r\n", "X-Connection: upgrade\r\n"),
            ("C\r\n", "C\r\n"),
        ] {
            let mut bytes = line.as_bytes().to_vec();
            assert_eq!(Framing::default().pass(&mut bytes, false), line.len());
            assert_eq!(String::from_utf8(bytes).unwrap(), ours);
        }
    }
}
