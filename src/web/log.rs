//! Logs over HTTP: as plain text, all that is kept of one, its last lines or what comes behind an offset, and followed
//! as they grow. An event's id is the place behind its text, `3.4096` of a job's third attempt, `4096` of a session:
//! whoever names it in `Last-Event-ID` misses nothing and gets nothing twice. What was dropped in between is said.

use std::{fmt, io, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, header},
    response::{IntoResponse, Response, sse::Event},
};
use bytes::Bytes;
use futures_util::Stream;
use serde_json::json;

use super::{
    Portal,
    http::{
        error::{Error, Result},
        extract::CurrentUser,
        streams::sse_for,
    },
};
use crate::{
    model::{JobId, Session, SessionId},
    protocol::log::{Log, MAX_PIECE, cut_character},
};

/// How often a followed log is looked at; files on network mounts do not tell by themselves.
const INTERVAL: Duration = Duration::from_secs(1);

/// Selects the log to read.
#[derive(Clone, Copy)]
pub(super) enum LogSource {
    Session(SessionId),
    Job(JobId),
}

/// Selects the part of a log.
pub(super) struct LogPart {
    /// The last lines.
    pub tail: Option<i64>,
    /// What comes behind a place.
    pub offset: Option<u64>,
    /// Of a job: this attempt alone.
    pub attempt: Option<i64>,
}

/// A place in a log: how much of it comes before. Of a session the attempt is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    attempt: i64,
    offset: u64,
}

/// The log of one attempt, and what comes after it.
struct AttemptLog {
    attempt: i64,
    workload: Session,
    /// Another attempt follows, or is to.
    goes_on: bool,
}

/// A log, or the part of it that was asked for: as text, or as events for whoever wants those.
pub(super) async fn answer(
    portal: Arc<Portal>,
    user: CurrentUser,
    headers: &HeaderMap,
    whose: LogSource,
    part: LogPart,
) -> Result<Response> {
    let lines = part.tail.map(asked_lines).transpose()?;
    if lines.is_some() && part.offset.is_some() {
        return Err(Error::field("offset", "conflict", "Use either `tail` or `offset`, not both."));
    }
    let found = whose.find(&portal, &user, part.attempt).await?;
    let is_followed =
        headers.get(header::ACCEPT).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    let resumed = Position::resumed(headers).filter(|_| is_followed);
    let resumed = match resumed {
        // Of what is not there, as of a job that was submitted anew, there is nothing to resume.
        Some(place) if part.attempt.is_none_or(|only| only == place.attempt) => {
            whose.find(&portal, &user, Some(place.attempt)).await.ok().map(|_| place)
        }
        _ => None,
    };
    // Looked at once: while a place is looked for, the log may grow by more lines than are wanted.
    let log = portal.sessions.open_log(&found.workload).await.ok().flatten();
    let begin = match (resumed, lines, part.offset) {
        (Some(place), ..) => place,
        (None, None, offset) => Position { attempt: found.attempt, offset: offset.unwrap_or(0) },
        (None, Some(lines), _) => {
            let offset = match log.clone().filter(|log| !is_followed || !log.is_substitute) {
                Some(log) => reading(move || log.last_lines(lines)).await.unwrap_or(0),
                None => 0,
            };
            Position { attempt: found.attempt, offset }
        }
    };
    if !is_followed {
        let log = log.filter(|log| part.offset.is_none() || !log.is_substitute);
        return Ok(text(portal, user, &found, log, begin.offset));
    }
    let reader = user.id();
    let only = part.attempt.is_some();
    let follower = Follower { portal: Arc::clone(&portal), user, whose, place: begin, only, inode: None, over: false };
    let events = futures_util::stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((event, follower))
    });
    sse_for(&portal, reader, events)
}

impl LogSource {
    /// The log of an attempt, of the latest where none is named.
    async fn find(self, portal: &Portal, user: &CurrentUser, attempt: Option<i64>) -> Result<AttemptLog> {
        let actor = user.actor();
        Ok(match self {
            Self::Session(id) => {
                let workload = portal.sessions.find(actor, id).await?;
                AttemptLog { attempt: 0, workload, goes_on: false }
            }
            Self::Job(id) => {
                let job = portal.jobs.find(actor, id).await?;
                let attempt = attempt.unwrap_or(job.attempt);
                let workload = portal.jobs.attempt(&job, attempt).await?;
                AttemptLog { attempt, workload, goes_on: attempt < job.attempt || job.is_to_be_retried() }
            }
        })
    }
}

impl Position {
    /// `Last-Event-ID`; `None` where it says nothing that we said.
    fn resumed(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get("last-event-id")?.to_str().ok()?;
        let (attempt, offset) = text.split_once('.').unwrap_or(("0", text));
        Some(Self { attempt: attempt.parse().ok().filter(|attempt| *attempt >= 0)?, offset: offset.parse().ok()? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            0 => write!(f, "{}", self.offset),
            attempt => write!(f, "{attempt}.{}", self.offset),
        }
    }
}

/// Who follows a log, and how far they have come.
struct Follower {
    portal: Arc<Portal>,
    user: CurrentUser,
    whose: LogSource,
    place: Position,
    /// Not the attempts that come after this one.
    only: bool,
    /// Which file was read last, while its workload lived.
    inode: Option<u64>,
    over: bool,
}

impl Follower {
    /// What comes next, when it comes; `None` after the end, or when the reader may not read any more.
    async fn next(&mut self) -> Option<Event> {
        while !self.over {
            // Access may have ended meanwhile.
            if !matches!(self.portal.access.still(&self.user).await, Ok(Some(_))) {
                return None;
            }
            // Looked at before the log: what ends behind this look is told by the next one.
            let attempt = Some(self.place.attempt);
            let found = self.whose.find(&self.portal, &self.user, attempt).await.ok()?;
            let is_live = found.workload.state.is_live();
            let log = self.portal.sessions.open_log(&found.workload).await.ok().flatten();
            if let Some(log) = log.filter(|log| !is_live || !log.is_substitute)
                && let Some(event) = self.read(log, is_live).await
            {
                return Some(event);
            }
            if !is_live && found.goes_on && !self.only {
                if self.advance().await {
                    return Some(self.event("attempt", json!({ "attempt": self.place.attempt })));
                }
            } else if !is_live {
                self.over = true;
                return Some(Event::default().event("end").data("ended"));
            }
            tokio::time::sleep(INTERVAL).await;
        }
        None
    }

    /// What a log holds behind the place that was reached.
    async fn read(&mut self, log: Log, is_live: bool) -> Option<Event> {
        // An agent of an earlier version does not count what it drops: its log is another file, or shorter than it was.
        let is_another = is_live && log.start == 0 && self.inode.is_some_and(|inode| inode != log.inode);
        let is_anew = log.end < self.place.offset || is_another;
        self.inode = is_live.then_some(log.inode);
        if is_anew {
            self.place.offset = log.start;
            return Some(self.event("restart", json!({})));
        }
        if let Some(dropped) = log.start.checked_sub(self.place.offset).filter(|dropped| *dropped > 0) {
            self.place.offset = log.start;
            return Some(self.event("dropped", json!({ "bytes": dropped })));
        }
        let (from, end) = (self.place.offset, log.end);
        let mut bytes = reading(move || log.read(from, MAX_PIECE)).await.ok()?;
        // The rest of a character is read with what follows, where something may.
        if is_live || from + (bytes.len() as u64) < end {
            bytes.truncate(bytes.len() - cut_character(&bytes));
        }
        if bytes.is_empty() {
            return None;
        }
        self.place.offset += bytes.len() as u64;
        // A bare carriage return ends a field of the stream; progress bars are full of them.
        Some(self.event("log", json!(String::from_utf8_lossy(&bytes))))
    }

    /// Goes on to the next attempt, where it is there.
    async fn advance(&mut self) -> bool {
        let next = self.place.attempt + 1;
        let is_there = self.whose.find(&self.portal, &self.user, Some(next)).await.is_ok();
        if is_there {
            self.place = Position { attempt: next, offset: 0 };
            self.inode = None;
        }
        is_there
    }

    fn event(&self, kind: &str, data: serde_json::Value) -> Event {
        Event::default().id(self.place.to_string()).event(kind).json_data(data).unwrap_or_default()
    }
}

/// What the log holds now, from an offset on; read as fast as it is taken.
fn text(portal: Arc<Portal>, user: CurrentUser, found: &AttemptLog, log: Option<Log>, offset: u64) -> Response {
    let (from, end) = log.as_ref().map_or((0, 0), |log| (offset.clamp(log.start, log.end), log.end));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("log-offset", from.into());
    headers.insert("log-end", end.into());
    if found.attempt > 0 {
        headers.insert("log-attempt", found.attempt.into());
    }
    let Some(log) = log else { return (headers, String::new()).into_response() };
    (headers, Body::from_stream(pieces(portal, user, log, from))).into_response()
}

/// The bytes of a log from an offset on, as long as its reader may read.
fn pieces(portal: Arc<Portal>, user: CurrentUser, log: Log, from: u64) -> impl Stream<Item = io::Result<Bytes>> {
    futures_util::stream::try_unfold(from, move |from| {
        let (portal, user, log) = (Arc::clone(&portal), user.clone(), log.clone());
        async move {
            if log.end <= from {
                return Ok(None);
            }
            if !matches!(portal.access.still(&user).await, Ok(Some(_))) {
                return Err(io::Error::other("the reader's access has ended"));
            }
            let most = usize::try_from(log.end - from).unwrap_or(MAX_PIECE).min(MAX_PIECE);
            let piece = reading(move || log.read(from, most)).await?;
            if piece.is_empty() {
                return Ok(None);
            }
            let next = from + piece.len() as u64;
            Ok(Some((Bytes::from(piece), next)))
        }
    })
}

/// How many of a log's last lines are wanted.
fn asked_lines(tail: i64) -> Result<usize> {
    match tail {
        1..=10_000 => Ok(usize::try_from(tail).unwrap_or(usize::MAX)),
        _ => Err(Error::field("tail", "out_of_range", "Must be between 1 and 10000.")),
    }
}

/// A file system may keep who asks it waiting.
async fn reading<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_resumed_where_it_was_left() {
        let resumed = |id: &'static str| {
            Position::resumed(&HeaderMap::from_iter([("last-event-id".parse().unwrap(), id.parse().unwrap())]))
        };
        for (id, attempt, offset) in [("4096", 0, 4096), ("3.4096", 3, 4096), ("1.0", 1, 0)] {
            assert_eq!(resumed(id), Some(Position { attempt, offset }));
            assert_eq!(resumed(id).unwrap().to_string(), id);
        }
        for id in ["", "x", "1.", ".5", "-1.5", "1.-5", "1.2.3", "99999999999999999999"] {
            assert_eq!(resumed(id), None, "{id}");
        }
        assert_eq!(Position::resumed(&HeaderMap::new()), None);
    }
}
