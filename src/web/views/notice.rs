//! What the reader should know of their sessions and jobs, on every page: a line for each with its
//! sentence and the buttons that help, fetched as one fragment and told by browsers.

use askama::Template;

use super::{Action, ButtonStyle, CardContext, Sentence, SentenceContext, Show, Toast};
use crate::{
    model::{
        Session, SessionState,
        ending::{Cause, Notice},
        notification::{Event, UnseenJob},
    },
    web::page::filters,
};

/// All that there is to tell somebody now, the first end first.
#[derive(Clone, Debug, Template)]
#[template(path = "parts/notices.html")]
pub struct Notices {
    pub notices: Vec<NoticeLine>,
    /// Of jobs there is so much more to see.
    pub more: usize,
    /// What has just ended, for the corner of the page.
    pub toasts: Vec<Toast>,
    pub csrf_token: String,
}

#[derive(Clone, Debug)]
pub struct NoticeLine {
    /// What browsers remember, so that nothing is told twice.
    pub key: String,
    pub href: String,
    pub name: String,
    /// A few words for a notification: “‘nb’ will be stopped”.
    pub title: String,
    pub sentence: Sentence,
    pub actions: Vec<Action>,
    /// True before an end and where something went wrong, false for good news.
    pub warns: bool,
    /// It is over as soon as its reader is at `href`.
    pub until_seen: bool,
}

impl NoticeLine {
    #[must_use]
    pub fn new(session: &Session, notice: &Notice, context: &CardContext) -> Self {
        let runs = session.state == SessionState::Running;
        let open = || Action::open(context, "Open", ButtonStyle::Primary);
        let (about, actions) = match notice {
            Notice::Turn { .. } if runs => ("is ready", vec![open()]),
            Notice::Turn { .. } => ("starts now", vec![Action::open(context, "Open when ready", ButtonStyle::Plain)]),
            Notice::Ending { deadline, .. } if deadline.cause == Cause::TimeLimit => {
                let extend = context.extend_seconds.map(|seconds| Action::extend(session, seconds));
                ("ends soon", extend.into_iter().collect())
            }
            Notice::Ending { deadline, .. } => match deadline.cause {
                Cause::Maintenance => ("ends for maintenance", vec![open()]),
                Cause::Unopened { .. } => ("will be stopped unless opened", vec![open(), Action::keep(session)]),
                _ => ("will be stopped", vec![open(), Action::keep(session)]),
            },
        };
        Self {
            key: notice.key(session.id),
            href: format!("/sessions/{}", session.id),
            name: session.name.clone(),
            title: format!("‘{}’ {about}", session.name),
            sentence: sentence(session, notice, &context.around),
            actions,
            warns: matches!(notice, Notice::Ending { .. }),
            until_seen: false,
        }
    }

    /// Of what happened to a job.
    #[must_use]
    pub fn of_job(unseen: &UnseenJob) -> Self {
        let message = &unseen.message;
        let job = message.job.map(|(job, _)| job.to_string()).unwrap_or_default();
        Self {
            key: unseen.key(),
            href: format!("/jobs/{job}"),
            name: message.title.clone(),
            title: message.title.clone(),
            sentence: Sentence::default().text(&message.text),
            actions: vec![Action::dismiss(job)],
            warns: message.event != Event::Finished,
            until_seen: true,
        }
    }
}

fn sentence(session: &Session, notice: &Notice, around: &SentenceContext) -> Sentence {
    let say = Sentence::default();
    match notice {
        Notice::Turn { released_at: Some(end) } => say
            .text("has left the queue and is ready. It is stopped at ")
            .at(*end, Show::Clock, around)
            .text(" unless you open it."),
        Notice::Turn { .. } if session.state == SessionState::Running => say.text("has left the queue and is ready."),
        Notice::Turn { .. } => say.text("has left the queue and is starting."),
        Notice::Ending { deadline, .. } if deadline.cause == Cause::TimeLimit => say
            .text("ends at ")
            .at(deadline.at, Show::Clock, around)
            .text(", ")
            .at(deadline.at, Show::Left, around)
            .text(" left.")
            .also(around.no_extension.as_deref()),
        Notice::Ending { deadline, .. } if deadline.cause == Cause::Maintenance => say
            .text("ends for maintenance at ")
            .at(deadline.at, Show::Clock, around)
            .text(", ")
            .at(deadline.at, Show::Left, around)
            .text(" left. Save your work before then."),
        Notice::Ending { deadline, .. } => {
            say.text("has ").at(deadline.at, Show::Left, around).text(" left. ").idle(deadline, around)
        }
    }
}
