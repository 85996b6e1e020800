//! HTTP/1.1 as the proxy speaks it with apps: over one connection, one exchange at a time, a
//! head and a body go out, a head and a body come in. It is driven by the task of its request
//! and hands bytes on as they came; heads are read by httparse. An answer that can be read
//! in two ways ends its connection. What may pass is decided in `headers`.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use hyper::{
    HeaderMap, Method, Response, StatusCode, Version,
    body::Body as _,
    header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING},
    http::{request, response},
};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::{
    Error,
    chunks::{self, Chunks},
};
use lyceum_wire::dial::Stream;

/// The largest head of an answer, in bytes, and how many headers it may have.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 128;
/// What is read at once of a head, and of a body.
const HEAD_PIECE: usize = 4 * 1024;
const BODY_PIECE: usize = 64 * 1024;

/// A connection to an app.
pub(super) struct Connection {
    stream: Stream,
    /// Read, and not yet taken. Its memory is kept from one exchange to the next, unless it is large.
    read: BytesMut,
    large: bool,
    /// To be written.
    unsent: Bytes,
    /// Written, and perhaps held back by TLS.
    unflushed: bool,
    upload: Option<Upload>,
    answer: Remaining,
    /// Whether another exchange may follow this one.
    keeps: bool,
}

/// What is still to come of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Remaining {
    Nothing,
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

/// A request's body on its way out.
struct Upload {
    body: Body,
    /// Bytes that were promised and not sent; `None`: in chunks.
    left: Option<u64>,
}

/// An exchange without an answer.
pub(super) struct ExchangeError {
    pub(super) error: Error,
    /// Nothing came back, and the request may be sent again: it changes nothing, or was not sent.
    pub(super) again: bool,
}

impl From<Error> for ExchangeError {
    fn from(error: Error) -> Self {
        Self { error, again: false }
    }
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        let (read, unsent) = (BytesMut::new(), Bytes::new());
        let (large, unflushed, upload) = (false, false, None);
        Self { stream, read, large, unsent, unflushed, upload, answer: Remaining::Nothing, keeps: true }
    }

    /// Sends a request and reads the answer's head. `body` is left where it is as long as
    /// the request can be sent again.
    pub(super) async fn exchange(
        &mut self,
        head: &request::Parts,
        body: &mut Body,
    ) -> Result<response::Parts, ExchangeError> {
        self.unsent = written(head);
        // Until it has been answered, nobody else may use it.
        self.keeps = false;
        let has_body = !body.is_end_stream();
        if let Err(error) = std::future::poll_fn(|cx| self.poll_write(cx)).await {
            let away = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
            let error = if away { Error::Closed } else { Error::Exchange(error) };
            return Err(ExchangeError { error, again: away });
        }
        if has_body {
            let left = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
            self.upload = Some(Upload { body: std::mem::take(body), left });
        }
        let repeatable = !has_body && matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        std::future::poll_fn(|cx| self.poll_head(cx, &head.method, repeatable)).await
    }

    /// Whether the app has neither closed the connection nor spoken out of turn meanwhile.
    pub(super) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        self.read.reserve(HEAD_PIECE);
        self.read.is_empty() && poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.read).is_pending()
    }

    /// Whether the exchange is over and another may follow.
    pub(super) fn is_ready(&self) -> bool {
        self.keeps && self.is_over() && self.upload.is_none() && self.unsent.is_empty() && self.read.is_empty()
    }

    /// Whether the answer's body is over.
    pub(super) fn is_over(&self) -> bool {
        self.answer == Remaining::Nothing
    }

    /// The length of what is still to come of the answer's body, where it is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self.answer {
            Remaining::Nothing => Some(0),
            Remaining::Length(left) => Some(left),
            Remaining::Chunked(_) | Remaining::UntilClose => None,
        }
    }

    /// The answer's whole body, where it has come with its head.
    pub(super) fn whole_body(&mut self) -> Option<Bytes> {
        let Remaining::Length(left) = self.answer else { return None };
        let left = usize::try_from(left).ok().filter(|left| *left <= self.read.len())?;
        self.answer = Remaining::Nothing;
        Some(self.take(left))
    }

    /// The next piece of the answer's body; what is left of the request's goes out meanwhile.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        loop {
            match &mut self.answer {
                Remaining::Nothing => return Poll::Ready(None),
                Remaining::Length(left) if !self.read.is_empty() => {
                    let taken = usize::try_from(*left).map_or(self.read.len(), |left| left.min(self.read.len()));
                    *left -= taken as u64;
                    if *left == 0 {
                        self.answer = Remaining::Nothing;
                    }
                    return Poll::Ready(Some(Ok(self.take(taken))));
                }
                Remaining::UntilClose if !self.read.is_empty() => {
                    return Poll::Ready(Some(Ok(self.take(self.read.len()))));
                }
                Remaining::Chunked(chunks) => match chunks.next(&mut self.read) {
                    Ok(chunks::Next::Data(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                    Ok(chunks::Next::End) => {
                        self.answer = Remaining::Nothing;
                        self.shed();
                        return Poll::Ready(None);
                    }
                    Ok(chunks::Next::More) => {}
                    Err(chunks::Malformed) => return Poll::Ready(Some(Err(malformed("invalid chunks")))),
                },
                Remaining::Length(_) | Remaining::UntilClose => {}
            }
            let piece = self.left().and_then(|left| usize::try_from(left).ok()).unwrap_or(BODY_PIECE);
            let piece = piece.clamp(HEAD_PIECE, BODY_PIECE);
            self.large |= piece > HEAD_PIECE;
            self.read.reserve(piece);
            match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.read)) {
                Ok(0) if self.answer == Remaining::UntilClose => {
                    self.answer = Remaining::Nothing;
                    return Poll::Ready(None);
                }
                Ok(0) => return Poll::Ready(Some(Err(Error::Closed))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(Error::Exchange(error)))),
            }
        }
    }

    /// After a 101: the bare connection, and what was read of it already.
    pub(super) fn into_parts(self) -> (Stream, Bytes) {
        (self.stream, self.read.freeze())
    }

    /// Takes so many bytes of the answer's body.
    fn take(&mut self, bytes: usize) -> Bytes {
        let taken = self.read.split_to(bytes).freeze();
        if self.is_over() {
            self.shed();
        }
        taken
    }

    /// Who waits for the next exchange holds no large buffer.
    fn shed(&mut self) {
        if std::mem::take(&mut self.large) && self.read.is_empty() {
            self.read = BytesMut::new();
        }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
        repeatable: bool,
    ) -> Poll<Result<response::Parts, ExchangeError>> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error.into()));
        }
        loop {
            while !self.read.is_empty() {
                match self.parse(method)? {
                    // Others than 101 only announce the answer.
                    Some(head) if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS => {}
                    Some(head) => return Poll::Ready(Ok(head)),
                    None => break,
                }
            }
            self.read.reserve(HEAD_PIECE);
            let nothing_came = self.read.is_empty();
            match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.read)) {
                Ok(0) => {
                    return Poll::Ready(Err(ExchangeError { error: Error::Closed, again: repeatable && nothing_came }));
                }
                Ok(_) => {}
                // An agent that ended did not take leave of TLS.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
                    return Poll::Ready(Err(ExchangeError { error: Error::Closed, again: repeatable && nothing_came }));
                }
                Err(error) => return Poll::Ready(Err(Error::Exchange(error).into())),
            }
        }
    }

    /// Takes a head from what was read, if it is complete.
    fn parse(&mut self, method: &Method) -> Result<Option<response::Parts>, Error> {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut found = httparse::Response::new(&mut []);
        let parsed =
            httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut found, &self.read, &mut headers);
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.read.len() < MAX_HEAD => return Ok(None),
            Ok(httparse::Status::Partial) => return Err(malformed("header section too large")),
            Err(error) => return Err(Error::Exchange(io::Error::new(io::ErrorKind::InvalidData, error))),
        };
        let status = found.code.and_then(|code| StatusCode::from_u16(code).ok());
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = status.ok_or_else(|| malformed("missing status"))?;
        head.version = if found.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
        let start = self.read.as_ptr().addr();
        let mut places = Vec::with_capacity(found.headers.len());
        for header in found.headers.iter() {
            let name =
                HeaderName::from_bytes(header.name.as_bytes()).map_err(|_err| malformed("invalid header name"))?;
            let at = header.value.as_ptr().addr() - start;
            // An empty value lies nowhere.
            let place = if header.value.is_empty() { 0..0 } else { at..at + header.value.len() };
            places.push((name, place));
        }
        let text = self.read.split_to(length).freeze();
        head.headers.reserve(places.len());
        for (name, place) in places {
            let value = HeaderValue::from_maybe_shared(text.slice(place)).map_err(Error::Value)?;
            head.headers.append(name, value);
        }
        self.answer = framing(&head, method)?;
        self.keeps = keeps(&head);
        Ok(Some(head))
    }

    /// Ready once the request is out. An app that does not want all of it may still answer.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            if ready!(self.poll_write(cx)).is_err() {
                (self.unsent, self.unflushed) = (Bytes::new(), false);
                (self.upload, self.keeps) = (None, false);
            }
            let Some(upload) = &mut self.upload else { return Poll::Ready(Ok(())) };
            let next = ready!(upload.poll_next(cx))?;
            if next.is_none() || upload.left == Some(0) {
                self.upload = None;
            }
            self.unsent = next.unwrap_or_default();
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let taken = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(taken);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl Upload {
    /// The next bytes for the wire; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose().map_err(Error::RequestBody)?;
            let Some(frame) = frame else {
                return Poll::Ready(match self.left.replace(0) {
                    // The end of chunks, and of ourselves: zero is left.
                    None => Ok(Some(Bytes::from_static(b"0\r\n\r\n"))),
                    Some(0) => Ok(None),
                    Some(_) => Err(broken_off()),
                });
            };
            // Trailers were not announced to the app.
            let Ok(data) = frame.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            return Poll::Ready(match &mut self.left {
                None => Ok(Some([format!("{:x}\r\n", data.len()).as_bytes(), &data, b"\r\n"].concat().into())),
                Some(left) => match left.checked_sub(data.len() as u64) {
                    Some(rest) => {
                        *left = rest;
                        Ok(Some(data))
                    }
                    None => Err(broken_off()),
                },
            });
        }
    }
}

/// A request's head as it goes out.
fn written(head: &request::Parts) -> Bytes {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut length = head.method.as_str().len() + target.len() + 16;
    length += head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
    let mut text = BytesMut::with_capacity(length);
    for part in [head.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text.freeze()
}

/// How long an answer's body is (RFC 9112, 6.3).
fn framing(head: &response::Parts, method: &Method) -> Result<Remaining, Error> {
    let headers = &head.headers;
    if *method == Method::HEAD
        || head.status.is_informational()
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    {
        return Ok(Remaining::Nothing);
    }
    if let Some(last) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
        let last = last.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
        let chunked = last.eq_ignore_ascii_case(b"chunked") && head.version == Version::HTTP_11;
        return Ok(if chunked { Remaining::Chunked(Chunks::default()) } else { Remaining::UntilClose });
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(Remaining::UntilClose) };
    let text = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match text.and_then(|text| text.parse().ok()) {
        Some(_) if lengths.any(|other| other != first) => Err(malformed("conflicting content lengths")),
        Some(0) => Ok(Remaining::Nothing),
        Some(length) => Ok(Remaining::Length(length)),
        None => Err(malformed("content length is not a number")),
    }
}

fn keeps(head: &response::Parts) -> bool {
    match head.version {
        Version::HTTP_11 => !says(&head.headers, "close"),
        _ => says(&head.headers, "keep-alive"),
    }
}

fn says(headers: &HeaderMap, word: &str) -> bool {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(word)))
}

fn malformed(what: &'static str) -> Error {
    Error::Exchange(io::Error::new(io::ErrorKind::InvalidData, what))
}

fn broken_off() -> Error {
    Error::RequestBody(axum::Error::new(io::Error::from(io::ErrorKind::UnexpectedEof)))
}
