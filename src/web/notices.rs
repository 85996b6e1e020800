//! What the reader should know of their sessions, and where their browser tells them, of their jobs now: the
//! strip that every page of the portal shows. The event stream says when it changes (`live`), and pages fetch it anew.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    Portal,
    error::Result,
    extract::{CurrentUser, Query},
    page::Page,
    sessions::cards,
    views::{NoticeLine, Notices},
};
use crate::{db::sessions::Filter, model::ending::Notice};

/// More live sessions than this nobody has.
const LIVE: i64 = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NoticesQuery {
    /// This browser tells of jobs.
    jobs: bool,
}

/// `/notices`
pub async fn fragment(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(asked): Query<NoticesQuery>,
) -> Result<Response> {
    let own = Filter { owner: Some(user.id()), live_only: true, sessions_only: true, limit: LIVE, ..Filter::default() };
    let sessions = portal.sessions.list(own).await?;
    let told = sessions.iter().filter_map(|session| Some((session, portal.sessions.notice(session)?)));
    let mut told: Vec<_> = told.collect();
    told.sort_by_key(|(_, notice)| match notice {
        Notice::Ending { deadline, .. } => (0, deadline.at),
        Notice::Turn { released_at } => (1, released_at.unwrap_or_default()),
    });
    let mut notices = Vec::new();
    if !told.is_empty() {
        let limits = portal.sessions.admission.limits(user.id()).await?;
        let line = |(session, notice)| {
            NoticeLine::new(session, notice, &cards::context(&portal, &user, &headers, session, &limits))
        };
        notices.extend(told.iter().map(|(session, notice)| line((*session, notice))));
    }
    let mut more = 0;
    if asked.jobs {
        let (unseen, left_out) = portal.notifications.unseen(user.id()).await?;
        notices.extend(unseen.iter().map(NoticeLine::of_job));
        more = left_out;
    }
    Ok(Page(Notices { notices, more, csrf_token: user.csrf_token().to_owned() }).into_response())
}
