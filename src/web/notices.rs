//! What the reader should know of their sessions, and where their browser tells them, of their jobs now: the
//! strip that every page of the portal shows, and the messages in its corner of what has just ended. The event stream
//! says when that changes (`live`), and pages fetch it anew.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    Portal,
    http::{
        error::Result,
        extract::{CurrentUser, Query},
    },
    page::Page,
    sessions::cards,
    views::{NoticeLine, Notices, Toast},
};
use crate::{
    db::sessions::Filter,
    model::{EndReason, Session, Timestamp, ending::Notice, notification::UnseenJob},
};

/// More live sessions than this nobody has.
const LIVE: i64 = 200;

/// What ended longer ago (seconds) is not news in a corner.
const LATEST_TOAST: i64 = 600;
/// So many ends of sessions are told at once.
const TOASTS: i64 = 5;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NoticesQuery {
    /// This browser tells of jobs.
    jobs: bool,
    /// This page shows messages in its corner.
    toasts: bool,
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
    let mut toasts = Vec::new();
    if asked.toasts || asked.jobs {
        let (unseen, left_out) = portal.notifications.unseen(user.id()).await?;
        if asked.jobs {
            notices.extend(unseen.iter().map(NoticeLine::of_job));
            more = left_out;
        } else {
            toasts = toasts_of_jobs(&portal, &user, &unseen).await?;
        }
    }
    if asked.toasts {
        toasts.extend(other_toasts(&portal, &user).await?);
    }
    Ok(Page(Notices { notices, more, toasts, csrf_token: user.csrf_token().to_owned() }).into_response())
}

fn news_since(portal: &Portal) -> Timestamp {
    portal.clock.now().plus_seconds(-LATEST_TOAST)
}

/// The jobs that have just ended or need attention. Where the strip has them, the corner does not say it again.
async fn toasts_of_jobs(portal: &Portal, user: &CurrentUser, unseen: &[UnseenJob]) -> Result<Vec<Toast>> {
    let since = news_since(portal);
    let fresh: Vec<&UnseenJob> = unseen.iter().filter(|one| since <= one.at).collect();
    let jobs: Vec<_> = fresh.iter().filter_map(|one| Some(one.message.job?.0)).collect();
    let products = portal.db.products_of_jobs(user.id(), &jobs).await?;
    let product = |one: &UnseenJob| {
        let (job, _) = one.message.job?;
        products.iter().find(|(of, _)| *of == job).map(|(_, product)| *product)
    };
    Ok(fresh.into_iter().map(|one| Toast::of_job(one, product(one))).collect())
}

/// The sessions that ended by themselves, and the pulls of the user's own images.
async fn other_toasts(portal: &Portal, user: &CurrentUser) -> Result<Vec<Toast>> {
    let (now, since) = (portal.clock.now(), news_since(portal));
    let just = Filter {
        owner: Some(user.id()),
        sessions_only: true,
        ended_from: Some(since),
        limit: TOASTS,
        ..Filter::default()
    };
    let ended = portal.sessions.list(just).await?;
    let is_news = |session: &&Session| session.end_reason != Some(EndReason::StoppedByOwner);
    let images = portal.sessions.images.list();
    let pulled = images.iter().filter(|image| image.is_of(&user.user)).filter(|image| Some(since) <= image.ended_at);
    let of_sessions = ended.iter().filter(is_news).map(|session| Toast::of_session(session, now));
    Ok(of_sessions.chain(pulled.filter_map(Toast::of_image)).collect())
}
