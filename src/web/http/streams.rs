//! Server-sent events: how a stream of ours ends, how many one person may have, and the one that
//! follows the history of a session or a job. It looks again and again whether its reader
//! still may read. Logs are followed in `log`.

use std::{collections::HashMap, convert::Infallible, fmt, sync::Arc, time::Duration};

use axum::{
    http::HeaderMap,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{
    error::{Error, Result},
    extract::CurrentUser,
};
use crate::{
    jobs::JobEvent,
    model::{JobId, SessionId, SessionState, Timestamp, UserId},
    sessions::Change,
    web::Portal,
};

/// How often a silent stream sends a comment. Reverse proxies close what is silent for a
/// minute or less, and a browser that misses two of these knows that nobody is there.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// How many streams one person may have open. All pages of a browser share one, so only a
/// program that forgets to close its own comes near; each costs a look at its login again and again.
const MAX_STREAMS: usize = 64;

/// How many streams everybody has open.
#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<HashMap<UserId, usize>>>);

/// One open stream's place under [`MAX_STREAMS`].
struct StreamSlot {
    streams: Streams,
    user: UserId,
}

impl Streams {
    fn enter(&self, user: UserId) -> Result<StreamSlot> {
        let mut open = self.0.lock();
        let count = open.entry(user).or_default();
        if *count >= MAX_STREAMS {
            let told = format!(
                "You have {MAX_STREAMS} event streams open, which is the maximum for each user. Close some of them first."
            );
            return Err(Error::throttled(told, 5));
        }
        *count += 1;
        Ok(StreamSlot { streams: self.clone(), user })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

/// Somebody's stream of events, if they do not have too many.
pub(in crate::web) fn sse_for<S>(portal: &Portal, user: UserId, stream: S) -> Result<Response>
where
    S: Stream<Item = Event> + Send + 'static,
{
    let place = portal.streams.enter(user)?;
    // It is left when the stream is dropped, whoever ends it.
    let stream = stream.inspect(move |_| _ = &place);
    Ok(sse(portal.stopping.clone(), stream))
}

/// A stream of events; it ends with the portal, which does not wait for those who listen.
pub(in crate::web) fn sse<S>(stopping: CancellationToken, stream: S) -> Response
where
    S: Stream<Item = Event> + Send + 'static,
{
    let stream = stream.take_until(stopping.cancelled_owned());
    let sse = Sse::new(stream.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(HEARTBEAT_INTERVAL));
    // nginx would gather some kilobytes first.
    ([("x-accel-buffering", "no")], sse).into_response()
}

/// Whose history is followed.
#[derive(Clone, Copy)]
pub(in crate::web) enum Subject {
    Session(SessionId),
    Job(JobId),
}

impl Subject {
    /// Whether it goes on, and what happened after that moment of its history.
    async fn events(self, portal: &Portal, user: &CurrentUser, after: EventId) -> Result<(bool, Vec<JobEvent>)> {
        let actor = user.actor();
        Ok(match self {
            Self::Session(id) => {
                // Read first: an end that comes between the two is told by the next look.
                let is_live = portal.sessions.find(actor, id).await?.state.is_live();
                let events = portal.sessions.events(actor, id, after.number).await?;
                (is_live, events.into_iter().map(|event| JobEvent { attempt: 0, event }).collect())
            }
            Self::Job(id) => {
                let job = portal.jobs.find(actor, id).await?;
                (
                    job.latest.state.is_live() || job.is_to_be_retried(),
                    portal.jobs.events(&job, (after.attempt, after.number)).await?,
                )
            }
        })
    }

    fn is_of(self, change: &Change) -> bool {
        match self {
            Self::Session(id) => change.session == id,
            Self::Job(id) => change.job == Some(id),
        }
    }
}

/// Identifies an entry of a history; in a job's, `3.2` is the second line of the third attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::web) struct EventId {
    attempt: i64,
    number: i64,
}

impl EventId {
    /// `Last-Event-ID`; the beginning where it says nothing that we said.
    pub(in crate::web) fn resumed(headers: &HeaderMap) -> Self {
        let text = headers.get("last-event-id").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (attempt, number) = text.split_once('.').unwrap_or(("0", text));
        match (attempt.parse(), number.parse()) {
            (Ok(attempt), Ok(number)) => Self { attempt, number },
            _ => Self::default(),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            0 => write!(f, "{}", self.number),
            attempt => write!(f, "{attempt}.{}", self.number),
        }
    }
}

pub(in crate::web) fn follow_events(
    portal: Arc<Portal>,
    user: CurrentUser,
    subject: Subject,
    last: EventId,
) -> impl Stream<Item = Event> {
    let changes = portal.sessions.subscribe();
    let state = (changes, last, Vec::new().into_iter());
    futures_util::stream::unfold(state, move |(mut changes, mut last, mut ready)| {
        let (portal, user) = (Arc::clone(&portal), user.clone());
        async move {
            loop {
                if let Some(happened) = ready.next() {
                    let happened: JobEvent = happened;
                    last = EventId { attempt: happened.attempt, number: happened.event.number };
                    let event =
                        Event::default().id(last.to_string()).event("state").json_data(EventView::new(&happened));
                    return Some((event.unwrap_or_default(), (changes, last, ready)));
                }
                if !matches!(portal.access.still(&user).await, Ok(Some(_))) {
                    return None;
                }
                let (is_live, news) = subject.events(&portal, &user, last).await.ok()?;
                if news.is_empty() {
                    if !is_live {
                        return None;
                    }
                    // A missed change is caught up with at the next one or after a while.
                    let wait = async {
                        while let Ok(change) = changes.recv().await {
                            if subject.is_of(&change) {
                                break;
                            }
                        }
                    };
                    let _ = tokio::time::timeout(Duration::from_secs(15), wait).await;
                }
                ready = news.into_iter();
            }
        }
    })
}

/// One line of history, as the stream tells it.
#[derive(Serialize)]
struct EventView<'a> {
    /// Of a job's history: which attempt.
    #[serde(skip_serializing_if = "is_zero")]
    attempt: i64,
    number: i64,
    at: Timestamp,
    state: SessionState,
    message: &'a str,
}

impl<'a> EventView<'a> {
    fn new(happening: &'a JobEvent) -> Self {
        let JobEvent { attempt, event } = happening;
        Self { attempt: *attempt, number: event.number, at: event.at, state: event.state, message: &event.message }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_for_each_person() {
        let (streams, ann, bob) = (Streams::default(), UserId::new(), UserId::new());
        let mut places: Vec<_> =
            (0..MAX_STREAMS).map(|_| streams.enter(ann).unwrap_or_else(|_| panic!("room"))).collect();
        assert_eq!(streams.enter(ann).err().map(|error| error.status().as_u16()), Some(429));
        drop(streams.enter(bob).unwrap_or_else(|_| panic!("room for others")));
        places.pop();
        places.push(streams.enter(ann).unwrap_or_else(|_| panic!("room again")));
        drop(places);
        assert!(streams.0.lock().is_empty(), "nobody is remembered who has none");
    }

    #[test]
    fn a_history_goes_on_where_it_was_left() {
        let resumed = |id: &'static str| {
            let mark =
                EventId::resumed(&HeaderMap::from_iter([("last-event-id".parse().unwrap(), id.parse().unwrap())]));
            (mark.attempt, mark.number)
        };
        for (id, place) in [("7", (0, 7)), ("3.2", (3, 2)), ("", (0, 0)), ("x.2", (0, 0)), ("1.", (0, 0))] {
            assert_eq!(resumed(id), place, "{id}");
        }
        for id in ["7", "3.2"] {
            let (attempt, number) = resumed(id);
            assert_eq!(EventId { attempt, number }.to_string(), id);
        }
        assert_eq!(EventId::resumed(&HeaderMap::new()), EventId::default());
    }
}
