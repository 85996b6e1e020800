//! Watches the bytes of a connection before hyper parses them, for the one thing hyper hides:
//! it quietly drops `Content-Length` where `Transfer-Encoding` stands too, and folds repeated
//! lengths into one. Two servers that read such a request differently are how a request is
//! smuggled, so we refuse it. The scanner can only refuse; framing stays hyper's.

use std::{
    io::{self, BufRead},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{caps::ConnectionSlot, watch::Watch};

/// A connection whose request heads are scanned as they are read. It also holds the
/// connection's place under the caps, so that an upgraded socket goes on being counted.
pub struct Guarded<T> {
    inner: T,
    scanner: Scanner,
    watch: Arc<Watch>,
    _place: ConnectionSlot,
}

impl<T> Guarded<T> {
    /// Tells `watch` when a head begins, and of the first ambiguous request.
    pub fn new(inner: T, watch: Arc<Watch>, place: ConnectionSlot) -> Self {
        Self { inner, scanner: Scanner::default(), watch, _place: place }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        if this.scanner.is_between_requests() {
            this.watch.head_began();
        }
        if !this.scanner.accepts(&buf.filled()[before..]) {
            this.watch.refused.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// Enough for `Content-Length:` and any length with some padding.
const LINE: usize = 64;

/// Follows request heads over any division into reads.
#[derive(Debug)]
enum Scanner {
    Head(Head),
    /// Inside a body of known length: so many bytes are left.
    Body(u64),
    /// A chunked body or an upgrade follows, whose end we do not look for. The server closes
    /// after the answer to such a request, so nothing behind it is ever read as a request.
    Opaque,
    Refused,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::Head(Head::default())
    }
}

impl Scanner {
    fn is_between_requests(&self) -> bool {
        matches!(self, Self::Head(head) if !head.seen_request_line && head.kept == 0)
    }

    fn accepts(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match self {
                Self::Head(head) => {
                    let before = bytes;
                    // On a slice this is the standard library's memchr and cannot fail.
                    let taken = bytes.skip_until(b'\n').unwrap_or(before.len());
                    if let Some(next) = head.take(&before[..taken]) {
                        *self = next;
                    }
                }
                Self::Body(left) => {
                    let taken = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    bytes = &bytes[taken..];
                    *left -= taken as u64;
                    if *left == 0 {
                        *self = Self::default();
                    }
                }
                Self::Opaque => return true,
                Self::Refused => return false,
            }
        }
        !matches!(self, Self::Refused)
    }
}

#[derive(Debug)]
struct Head {
    /// The start of a line of which the end was not read yet.
    line: [u8; LINE],
    kept: usize,
    seen_request_line: bool,
    length: Option<u64>,
    chunked: bool,
    opaque: bool,
}

impl Default for Head {
    fn default() -> Self {
        Self { line: [0; LINE], kept: 0, seen_request_line: false, length: None, chunked: false, opaque: false }
    }
}

impl Head {
    /// Takes a piece of a line, with its end when it ends in `\n`; `Some` where the head is over.
    fn take(&mut self, piece: &[u8]) -> Option<Scanner> {
        if self.kept == 0 && piece.ends_with(b"\n") {
            return self.line(piece);
        }
        let room = piece.len().min(LINE - self.kept);
        self.line[self.kept..self.kept + room].copy_from_slice(&piece[..room]);
        // Of a longer line its last two bytes are kept at the end, for the check of its ending.
        for byte in &piece[room..] {
            self.line[LINE - 2] = self.line[LINE - 1];
            self.line[LINE - 1] = *byte;
        }
        self.kept += room;
        if !piece.ends_with(b"\n") {
            return None;
        }
        let line = self.line;
        let kept = std::mem::take(&mut self.kept);
        self.line(&line[..kept])
    }

    fn line(&mut self, line: &[u8]) -> Option<Scanner> {
        let Some(line) = line.strip_suffix(b"\r\n") else { return Some(Scanner::Refused) };
        if line.is_empty() {
            // Empty lines before a request are allowed and skipped.
            return self.seen_request_line.then(|| self.end());
        }
        if !self.seen_request_line {
            self.seen_request_line = true;
            self.opaque = line.starts_with(b"CONNECT ");
            return None;
        }
        // Nearly all lines are about something else.
        if !matches!(line[0], b'C' | b'c' | b'T' | b't' | b'U' | b'u') {
            return None;
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = length.filter(|_| self.length.is_none()).and_then(|text| text.parse().ok());
            if length.is_none() {
                return Some(Scanner::Refused);
            }
            self.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked {
                return Some(Scanner::Refused);
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.opaque = true;
        }
        None
    }

    fn end(&self) -> Scanner {
        match (self.chunked, self.length) {
            (true, Some(_)) => Scanner::Refused,
            (true, None) => Scanner::Opaque,
            _ if self.opaque => Scanner::Opaque,
            (false, None | Some(0)) => Scanner::default(),
            (false, Some(length)) => Scanner::Body(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans `text` whole, byte by byte, and in sevens: the answer must be the same.
    fn accepts(text: &str) -> bool {
        let answers = [text.len().max(1), 1, 7].map(|size| {
            let mut scanner = Scanner::default();
            text.as_bytes().chunks(size).all(|piece| scanner.accepts(piece))
        });
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{text:?}: {answers:?}");
        answers[0]
    }

    #[test]
    fn ordinary_requests_pass() {
        let long = "x".repeat(500);
        for text in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            format!("GET /{long} HTTP/1.1\r\nCookie: {long}\r\nTest: {long}\r\n\r\n"),
            "POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\nab\ncd\nPOST / HTTP/1.1\r\ncontent-length:0\r\n\r\n"
                .to_owned(),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nContent-Length: 1\r\nTransfer-Encoding: x\n"
                .to_owned(),
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\u{1}\n\n\ncontent-length: x\r\n".to_owned(),
        ] {
            assert!(accepts(&text), "{text:?}");
        }
    }

    #[test]
    fn ambiguous_requests_do_not() {
        let padding = " ".repeat(200);
        for text in [
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\ncONTENT-lENGTH: 5\r\n\r\n0\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde".to_owned(),
            "POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\nabcde".to_owned(),
            "POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\nabcde".to_owned(),
            "POST / HTTP/1.1\r\nContent-Length:\r\n\r\nabcde".to_owned(),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\nHost: a\n\n".to_owned(),
            format!("GET /{padding} HTTP/1.1\nHost: a\r\n\r\n"),
            "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\naPOST / HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_owned(),
        ] {
            assert!(!accepts(&text), "{text:?}");
        }
    }

    #[test]
    fn a_padded_length_is_the_same_whole_or_in_pieces() {
        let padding = " ".repeat(200);
        let text = format!("POST / HTTP/1.1\r\nContent-Length:{padding}5\r\n\r\nabcde");
        let mut whole = Scanner::default();
        assert!(whole.accepts(text.as_bytes()));
        let mut pieces = Scanner::default();
        // In pieces it does not fit and is refused: the safe side, and no client sends it.
        assert!(!text.as_bytes().chunks(1).all(|piece| pieces.accepts(piece)));
    }
}
