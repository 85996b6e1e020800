//! `/search`: one search over what a user can open: pages, actions, sessions, jobs, runs, datasets, models, and for
//! operators the other users. The command palette asks it for JSON while somebody types; without scripts it is a page with
//! a form. Each kind is read by its own list, with the rules of who may see what.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    Portal,
    http::{
        error::{Error, Result},
        extract::{CurrentUser, Query},
    },
    page::{Layout, Nav, Page},
    sessions::cards::is_operator,
    views::{FoundItem, SearchPage, session_badge},
};
use crate::db::{
    datasets::DatasetFilter,
    jobs::JobFilter,
    models::ModelFilter,
    people::{PeopleFilter, Sort},
    sessions::Filter as SessionFilter,
};

/// The number of results of each kind.
const MAX_OF_A_KIND: i64 = 6;

/// The longest search text (characters).
const MAX_TEXT: usize = 200;

/// What a user can start from anywhere, with its address.
const ACTIONS: [(&str, &str); 7] = [
    ("New session", "/sessions/new"),
    ("New terminal", "/sessions/new?app=terminal"),
    ("New TensorBoard", "/sessions/new?app=tensorboard"),
    ("New job", "/jobs/new"),
    ("New dataset", "/datasets/new"),
    ("Train a model", "/models/new"),
    ("Add a run", "/runs#add"),
];

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    find: String,
}

/// `GET /search`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let find: String = visit.find.trim().chars().take(MAX_TEXT).collect();
    let layout = portal.layout_of(&user.0, Nav::None);
    let mut items = places(&layout, &find);
    if !find.is_empty() {
        items.extend(objects(&portal, &user, &find).await?);
        items.sort_by_key(|item| item.distance(&find));
    }
    let wants_json = headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/json");
    Ok(if wants_json { Json(items).into_response() } else { Page(SearchPage { layout, find, items }).into_response() })
}

/// Returns the pages and actions whose label has this text.
fn places(layout: &Layout, find: &str) -> Vec<FoundItem> {
    let find = find.to_lowercase();
    let is_found = |label: &str| label.to_lowercase().contains(&find);
    let pages = layout.navigation().flat_map(|(_, entries)| entries);
    let pages = pages.filter(|entry| is_found(entry.label)).map(|entry| FoundItem::page(entry.label, entry.href));
    let actions = ACTIONS.into_iter().filter(|(label, _)| is_found(label));
    actions.map(|(label, href)| FoundItem::action(label, href)).chain(pages).collect()
}

/// Returns the objects whose name has this text, a few of each kind, newest first.
async fn objects(portal: &Portal, user: &CurrentUser, find: &str) -> Result<Vec<FoundItem>> {
    let (owner, limit) = (user.id(), MAX_OF_A_KIND);
    let sessions = async {
        let filter = SessionFilter { owner: Some(owner), sessions_only: true, find, limit, ..SessionFilter::default() };
        Ok::<_, Error>(portal.sessions.list(filter).await?)
    };
    let jobs = async {
        let filter = JobFilter { owner: Some(owner), find, limit, ..JobFilter::default() };
        Ok::<_, Error>(portal.jobs.list(filter).await?)
    };
    let datasets = async {
        let filter = DatasetFilter { viewer: owner, own: false, state: None, find, sort: None, before: None, limit };
        Ok::<_, Error>(portal.db.list_datasets(filter).await?.into_iter().map(|(one, _)| one))
    };
    let models = async {
        let filter = ModelFilter {
            viewer: owner,
            own: false,
            dataset: None,
            parent: None,
            find,
            sort: None,
            before: None,
            limit,
        };
        Ok::<_, Error>(portal.db.list_models(filter).await?.into_iter().map(|(one, _)| one))
    };
    let runs = async {
        let filter = crate::db::runs::Filter {
            reader: Some(owner),
            owner: None,
            find,
            with_helpers: false,
            before: None,
            limit,
        };
        Ok::<_, Error>(portal.db.list_runs(&filter).await?)
    };
    let people = async {
        if !is_operator(user) {
            return Ok::<_, Error>(Vec::new());
        }
        let filter = PeopleFilter {
            find: find.to_owned(),
            role: None,
            state: None,
            expires_before: None,
            source: None,
            sort: Sort::Name,
            after: None,
            limit,
        };
        Ok::<_, Error>(portal.db.list_people(&filter).await?)
    };
    let (sessions, jobs, datasets, models, runs, people) =
        tokio::try_join!(sessions, jobs, datasets, models, runs, people)?;
    let found = sessions.into_iter().map(|session| {
        FoundItem::new("Session", session.name.clone(), session_badge(&session).1, format!("/sessions/{}", session.id))
    });
    let found =
        found.chain(jobs.into_iter().map(|job| {
            FoundItem::new("Job", job.name.clone(), session_badge(&job.latest).1, format!("/jobs/{}", job.id))
        }));
    let found = found.chain(
        runs.into_iter().map(|run| FoundItem::new("Run", run.name, &run.directory, format!("/runs/{}", run.id))),
    );
    let found = found.chain(datasets.map(|dataset| {
        FoundItem::new("Dataset", dataset.name, dataset.state.as_str(), format!("/datasets/{}", dataset.id))
    }));
    let found = found.chain(
        models
            .into_iter()
            .map(|model| FoundItem::new("Model", model.name, &model.network, format!("/models/{}", model.id))),
    );
    let found = found.chain(people.into_iter().map(|person| {
        let name = person.user.name.to_string();
        FoundItem::new("User", name.clone(), &person.user.display_name, format!("/admin/users/{name}"))
    }));
    Ok(found.collect())
}
