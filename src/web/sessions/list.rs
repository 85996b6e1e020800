//! `/sessions`: all sessions of a user, running and ended, with a search by name, app, state and end. Operators see other
//! users' sessions here too. Cards of what runs now are on the home page.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::cards;
use crate::{
    db::sessions::Filter,
    model::{EndReason, Session, SessionState},
    web::{
        Portal,
        error::Result,
        extract::{CurrentUser, Query},
        href::href,
        page::{Nav, Page},
        paging::{Listed, Paging},
        views::{SessionRow, SessionSearch, SessionsPage},
    },
};

/// The number of sessions on a page.
const PAGE_SIZE: i64 = 50;

/// The query of the page. A value that is not known narrows nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    find: String,
    state: String,
    app: String,
    end: String,
    all: String,
    cursor: Option<String>,
}

impl PageParams {
    fn address(&self, cursor: Option<&str>) -> String {
        let pairs = [
            ("find", self.find.as_str()),
            ("state", &self.state),
            ("app", &self.app),
            ("end", &self.end),
            ("all", &self.all),
            ("cursor", cursor.unwrap_or_default()),
        ];
        href("/sessions", pairs)
    }
}

/// `GET /sessions`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let now = portal.clock.now();
    let sees_all = cards::is_operator(&user);
    let search = SessionSearch {
        find: visit.find.trim().chars().take(200).collect(),
        state: visit.state.clone(),
        app: visit.app.clone(),
        end: visit.end.clone(),
        all: sees_all && !visit.all.is_empty(),
    };
    let end_reason: Option<EndReason> = search.end.parse().ok();
    let paging = Paging::new(Some(PAGE_SIZE), visit.cursor.clone());
    let filter = Filter {
        owner: (!search.all).then(|| user.id()),
        state: search.state.parse().ok(),
        live_only: search.state == "live",
        sessions_only: true,
        app: Some(search.app.as_str()).filter(|app| !app.is_empty()),
        end_reason,
        find: &search.find,
        before: paging.after()?,
        limit: PAGE_SIZE + 1,
        ..Filter::default()
    };
    let found = Listed::new(portal.sessions.list(filter).await?, PAGE_SIZE, |session: &Session| session.id);
    let row = |session: Session| {
        let is_own = session.owner == user.id();
        let title =
            portal.sessions.apps.find(&session.app).map_or_else(|| session.app.clone(), |app| app.title.clone());
        let open = (session.state == SessionState::Running).then(|| portal.open_url(&headers, session.id));
        SessionRow::new(session, title, open.filter(|_| is_own), is_own, now)
    };
    let view = SessionsPage {
        layout: portal.layout_of(&user.0, Nav::Sessions),
        rows: found.items.into_iter().map(row).collect(),
        apps: portal.sessions.apps.iter().map(|app| (app.name.clone(), app.title.clone())).collect(),
        sees_all,
        first_href: visit.cursor.is_some().then(|| visit.address(None)),
        next_href: found.next_cursor.map(|cursor| visit.address(Some(&cursor))),
        search,
    };
    Ok(Page(view).into_response())
}
