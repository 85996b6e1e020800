//! What comes to a run, as it comes: points, and how far reading is. Each event has the run's revision
//! as its id, and whoever names one hears everything behind it, whichever portal said it: it
//! is a place in the file of points.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{Response, sse::Event},
};
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::RecvError};
use utoipa::IntoParams;

use crate::{
    model::{Run, RunId, run::SkippedData},
    runs::{CurveGrowth, Delta, DeltaKind},
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{CurrentUser, Id, Query},
            streams::sse_for,
        },
    },
};

/// How often it is looked whether the reader may still read.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(4);

/// Start position of the stream.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventParameters {
    /// A `revision`, like `Last-Event-ID`. Without both, the stream starts with new events.
    since: Option<u64>,
}

/// Streams the changes of a run as events.
///
/// Events: `points`, `state`, `checkpoints` if there are new ones, and `reset` if the curves must be loaded again.
#[utoipa::path(get, path = "/runs/{id}/events", tag = "runs",
    params(("id" = String, Path), EventParameters, ("Last-Event-ID" = Option<String>, Header, description = "Id of the last event received.")),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn follow(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<RunId>,
    headers: HeaderMap,
    Query(parameters): Query<EventParameters>,
) -> Result<Response> {
    let heard = headers.get("last-event-id").map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
    let since = match heard {
        Some(Some(revision)) => Some(revision),
        Some(None) => {
            return Err(Error::field("Last-Event-ID", "invalid_value", "Must be the id of an event of this stream."));
        }
        None => parameters.since,
    };
    let changed = portal.runs.subscribe();
    let run = portal.runs.find(&user.user, id).await?;
    let (delta, news) = portal.runs.follow(id, since).await?;
    let owner = user.id();
    let mut follower = Follower {
        portal: portal.clone(),
        user,
        id,
        revision: delta.since,
        news,
        changed,
        ready: VecDeque::new(),
        looked: Instant::now(),
    };
    follower.tell(&delta);
    follower.tell_state(&run);
    sse_for(&portal, owner, follower.into_events())
}

struct Follower {
    portal: Arc<Portal>,
    user: CurrentUser,
    id: RunId,
    /// What was told.
    revision: u64,
    news: broadcast::Receiver<Arc<Delta>>,
    changed: broadcast::Receiver<RunId>,
    ready: VecDeque<Event>,
    looked: Instant,
}

#[derive(Serialize)]
struct Points<'a> {
    curves: &'a [CurveGrowth],
}

#[derive(Serialize)]
struct StateView<'a> {
    complete: bool,
    error: Option<&'a str>,
    skipped: &'a SkippedData,
    points: u64,
    curves: u64,
}

impl Follower {
    fn into_events(self) -> impl Stream<Item = Event> + Send {
        stream::unfold(self, |mut this| async move {
            loop {
                if let Some(event) = this.ready.pop_front() {
                    return Some((event, this));
                }
                this.wait().await?;
            }
        })
    }

    /// Comes back when something has happened; `None` at the end.
    async fn wait(&mut self) -> Option<()> {
        let news = tokio::select! {
            news = self.news.recv() => Some(news),
            changed = self.changed.recv() => {
                if matches!(changed, Ok(id) if id == self.id) || matches!(changed, Err(RecvError::Lagged(_))) {
                    let run = self.portal.runs.find(&self.user.user, self.id).await.ok()?;
                    self.tell_state(&run);
                }
                None
            }
            () = tokio::time::sleep(ACCESS_CHECK_INTERVAL) => None,
        };
        match news {
            Some(Ok(delta)) => self.tell(&delta),
            // Whoever is slow reads the file again.
            Some(Err(RecvError::Lagged(_))) => {
                let (delta, news) = self.portal.runs.follow(self.id, Some(self.revision)).await.ok()?;
                self.news = news;
                self.tell(&delta);
            }
            Some(Err(RecvError::Closed)) => return None,
            None => {}
        }
        if self.looked.elapsed() >= ACCESS_CHECK_INTERVAL {
            self.looked = Instant::now();
            // Access may have ended, or the run may be gone; and it is being looked at.
            if !matches!(self.portal.access.still(&self.user).await, Ok(Some(_))) {
                return None;
            }
            self.portal.runs.find(&self.user.user, self.id).await.ok()?;
        }
        Some(())
    }

    fn tell(&mut self, delta: &Delta) {
        // What was read again may be told once more by those who add.
        if delta.revision < self.revision
            || (delta.revision == self.revision && !matches!(delta.what, DeltaKind::Reset))
        {
            return;
        }
        self.revision = delta.revision;
        let event = match &delta.what {
            DeltaKind::Points(grown) if grown.is_empty() => None,
            DeltaKind::Points(grown) => Some(Event::default().event("points").json_data(Points { curves: grown })),
            DeltaKind::Reset => Some(Event::default().event("reset").json_data(serde_json::json!({}))),
        };
        let written =
            delta.has_checkpoints.then(|| Event::default().event("checkpoints").json_data(serde_json::json!({})));
        for event in event.into_iter().chain(written) {
            self.ready.push_back(event.unwrap_or_default().id(delta.revision.to_string()));
        }
    }

    fn tell_state(&mut self, run: &Run) {
        let reading = &run.reading;
        let state = StateView {
            complete: reading.complete,
            error: reading.error.as_deref(),
            skipped: &reading.skipped,
            points: reading.points,
            curves: reading.curves,
        };
        let event = Event::default().event("state").json_data(state).unwrap_or_default();
        self.ready.push_back(event.id(self.revision.to_string()));
    }
}
