//! `/sessions`: the list of sessions, a line each, with what narrows it. The card of a session is in `card`, its page in
//! `session`.

use askama::Template;

use super::{ListFrame, Moment, end_reason_word, resources_line, session_badge};
use crate::{
    model::{EndReason, Session, SessionState, Timestamp, time::human_duration},
    web::page::{Layout, filters},
};

/// The list of sessions.
#[derive(Debug, Template)]
#[template(path = "sessions/list.html")]
pub struct SessionsPage {
    pub layout: Layout,
    pub search: SessionSearch,
    pub rows: Vec<SessionRow>,
    /// Name and title of every app.
    pub apps: Vec<(String, String)>,
    /// Whether the reader may see other users' sessions.
    pub sees_all: bool,
    pub frame: ListFrame,
}

/// `/tensorboard`: asks whether a board of a folder is to be started.
#[derive(Debug, Template)]
#[template(path = "sessions/board.html")]
pub struct BoardPage {
    pub layout: Layout,
    /// The folder of logs, as the link names it.
    pub directory: String,
}

/// What the list is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct SessionSearch {
    pub find: String,
    /// A state, `live`, or nothing.
    pub state: String,
    pub app: String,
    /// A reason of the end.
    pub end: String,
    /// Other users' sessions too.
    pub all: bool,
}

impl SessionSearch {
    /// Returns whether anything narrows the list.
    pub fn narrows(&self) -> bool {
        self.all || [&self.find, &self.state, &self.app, &self.end].iter().any(|text| !text.is_empty())
    }
}

impl SessionsPage {
    /// Returns whether some of them can be stopped.
    pub fn can_stop(&self) -> bool {
        self.rows.iter().any(|row| row.can_stop)
    }

    pub const STATES: [(&'static str, &'static str); 4] =
        [("live", "Not ended"), ("queued", "Pending"), ("running", "Running"), ("ended", "Ended")];

    /// Returns the reasons of an end with their words.
    pub fn ends() -> impl Iterator<Item = (&'static str, &'static str)> {
        EndReason::ALL.iter().copied().map(|reason| (reason.as_str(), end_reason_word(reason)))
    }
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct SessionRow {
    pub id: String,
    pub class: &'static str,
    pub word: &'static str,
    pub name: String,
    pub app: String,
    pub owner: String,
    pub resources: String,
    /// How many it asked for.
    pub gpus: i64,
    pub created: Moment,
    pub started: Option<Moment>,
    /// How long it ran, or has run.
    pub ran: Option<String>,
    /// Why it ended, where its state does not say so.
    pub end: String,
    /// The address of its app while it runs.
    pub open: Option<String>,
    /// Whether the reader can start it again.
    pub can_repeat: bool,
    /// Whether the reader can stop it.
    pub can_stop: bool,
}

impl SessionRow {
    /// Draws a session for a reader who owns it or not.
    #[must_use]
    pub fn new(session: Session, app: String, open: Option<String>, is_own: bool, now: Timestamp) -> Self {
        let (class, word) = session_badge(&session);
        let began = session.ready_at.or(session.started_at);
        let end = session.end_reason.map(end_reason_word).filter(|end| *end != word).unwrap_or_default();
        Self {
            id: session.id.to_string(),
            class,
            word,
            app,
            resources: resources_line(&session.spec.resources, &session.gpus),
            gpus: session.spec.resources.gpus,
            created: Moment::clock(session.created_at, now),
            started: began.map(|at| Moment::clock(at, now)),
            ran: began.map(|at| human_duration(session.ended_at.unwrap_or(now).seconds_since(at))),
            end: end.to_owned(),
            open,
            can_stop: session.state.is_live() && session.state != SessionState::Stopping,
            can_repeat: is_own && session.state == SessionState::Ended,
            name: session.name,
            owner: session.owner_name,
        }
    }
}
