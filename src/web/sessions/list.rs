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
    db::sessions::{Filter, SORT_COLUMNS},
    model::{EndReason, Session, SessionState},
    web::{
        Portal, columns,
        http::{
            error::Result,
            extract::{CurrentUser, Query},
            href::href,
            paging::Paging,
            sorting::Sorting,
        },
        page::{Nav, Page},
        selection,
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
    sort: String,
    cursor: Option<String>,
    done: String,
    failed: String,
}

impl PageParams {
    fn address(&self, sort: &str, cursor: &str) -> String {
        let pairs = [
            ("find", self.find.as_str()),
            ("state", &self.state),
            ("app", &self.app),
            ("end", &self.end),
            ("all", &self.all),
            ("sort", sort),
            ("cursor", cursor),
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
    let sorting = Sorting::of_page(&SORT_COLUMNS, &visit.sort);
    let position = sorting.position(&Paging::new(Some(PAGE_SIZE), visit.cursor.clone()))?;
    let filter = Filter {
        owner: (!search.all).then(|| user.id()),
        state: search.state.parse().ok(),
        live_only: search.state == "live",
        sessions_only: true,
        app: Some(search.app.as_str()).filter(|app| !app.is_empty()),
        end_reason,
        find: &search.find,
        sort: sorting.sort(&position),
        before: position.before,
        limit: PAGE_SIZE + 1,
        ..Filter::default()
    };
    let found = portal.sessions.list_sorted(filter).await?;
    let found = sorting.listed(found, PAGE_SIZE, |session: &Session| session.id);
    let columns = columns::SESSIONS.shown(&portal, &user).await?;
    let address = |sort: &str, cursor: &str| visit.address(sort, cursor);
    let frame = sorting.frame(columns, address, visit.cursor.as_deref(), found.next_cursor.as_deref());
    let frame = selection::told(frame, &visit.done, &visit.failed, "session");
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
        frame,
        search,
    };
    Ok(Page(view).into_response())
}
