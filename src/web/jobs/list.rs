//! `/jobs`: the list with its filters, its order and its columns, and the actions on several jobs. How far a job is comes
//! from what its program logs. One job is in `pages`; the rules are the service's, as for the API.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::order;
use crate::{
    db::jobs::{JobFilter, SHARED_SORT_COLUMNS},
    jobs::Changes,
    model::{Job, JobId, Role, hold::Pause},
    web::{
        Portal, columns,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Query},
            href::href,
            paging::{Listed, Paging},
            sorting::Sorting,
        },
        page::{Nav, Page},
        selection::{self, Tally},
        sessions::form as session_form,
        trash,
        views::{JobRow, JobSearch, JobsPage},
    },
};

/// The number of jobs on a page.
const PAGE_SIZE: i64 = 50;

/// The address of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    find: String,
    state: String,
    tag: String,
    group: String,
    starred: String,
    helpers: String,
    all: String,
    sort: String,
    cursor: Option<String>,
    done: String,
    failed: String,
    /// Between which moments an action deleted some.
    deleted: String,
}

impl PageParams {
    /// The address of a page of this list.
    fn address(&self, sort: &str, cursor: &str) -> String {
        let pairs = [
            ("find", self.find.as_str()),
            ("state", &self.state),
            ("tag", &self.tag),
            ("group", &self.group),
            ("starred", &self.starred),
            ("helpers", &self.helpers),
            ("all", &self.all),
            ("sort", sort),
            ("cursor", cursor),
        ];
        href("/jobs", pairs)
    }
}

/// `/jobs`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let now = portal.clock.now();
    let search = JobSearch {
        find: visit.find.trim().chars().take(200).collect(),
        // A word that is no state narrows to nothing in particular.
        state: visit.state.clone(),
        tag: visit.tag.trim().to_owned(),
        group: visit.group.trim().to_owned(),
        starred: !visit.starred.is_empty(),
        helpers: !visit.helpers.is_empty(),
        all: !visit.all.is_empty(),
    };
    let reader = (user.user.role < Role::Operator).then(|| user.id());
    let is_of_others = search.all && reader.is_some();
    let sorting = Sorting::of_page(if is_of_others { &SHARED_SORT_COLUMNS } else { &order::COLUMNS }, &visit.sort);
    let position = sorting.position(&Paging::new(Some(PAGE_SIZE), visit.cursor.clone()))?;
    let filter = JobFilter {
        reader,
        owner: (!search.all).then(|| user.id()),
        state: search.state.parse().ok(),
        live_only: search.state == "live",
        tag: Some(search.tag.as_str()).filter(|tag| !tag.is_empty()),
        group: Some(search.group.as_str()).filter(|group| !group.is_empty()),
        starred: search.starred,
        find: &search.find,
        with_helpers: search.helpers,
        limit: PAGE_SIZE + 1,
        ..JobFilter::default()
    };
    let found = order::listed(&portal, filter, &sorting, &position).await?;
    let Listed { items, next_cursor } = sorting.listed(found, PAGE_SIZE, |job: &Job| job.id);
    let columns = columns::JOBS.shown(&portal, &user).await?;
    let shown: Vec<JobId> = items.iter().map(|job| job.id).collect();
    let mut progress = portal.runs.progress_of_jobs(&shown).await?;
    let try_key = (items.is_empty() && !search.narrows()).then(session_form::new_key);
    let rows = items.into_iter().map(|job| {
        let (is_own, progress) = (job.owner == user.id(), progress.remove(&job.id));
        JobRow::new(job, is_own, now).with_progress(progress)
    });
    let pauses = portal.jobs.pauses(user.id()).await?;
    let billing_groups = portal.db.billing_groups_of(user.id()).await?;
    let address = |sort: &str, cursor: &str| visit.address(sort, cursor);
    let frame = sorting.frame(columns, address, visit.cursor.as_deref(), next_cursor.as_deref());
    let frame = selection::told(frame, &visit.done, &visit.failed, "job");
    let view = JobsPage {
        pauses: pauses.iter().map(Pause::sentence).collect(),
        is_paused: pauses.iter().any(|pause| !pause.of_everybody),
        all_is_paused: pauses.iter().any(|pause| pause.of_everybody),
        layout: portal.layout_of(&user.0, Nav::Jobs),
        rows: rows.collect(),
        groups: billing_groups.groups.into_iter().map(|group| group.name).collect(),
        try_key,
        has_queue: portal.sessions.scheduler.has_queue(),
        most_running: order::is_of_running(&sorting).then_some(order::MAX_RUNNING),
        frame,
        trash: trash::panel(&portal, &user, span(&visit.deleted)).await?,
        search,
    };
    Ok(Page(view).into_response())
}

/// `POST /jobs/selection`: one deed with several jobs.
pub async fn selection(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let actor = user.actor();
    let deed = selection::deed(&form, &["cancel", "delete", "restore", "star", "tag"])?;
    let (mut tally, from) = (Tally::default(), portal.clock.now());
    for id in selection::ids::<JobId>(&form) {
        let outcome = match deed {
            "cancel" => portal.jobs.cancel(actor, id).await.map(drop),
            "delete" => portal.jobs.delete(actor, id).await,
            "restore" => portal.jobs.restore(actor, id).await.map(drop),
            "star" => {
                let changes = Changes { starred: Some(true), ..Changes::default() };
                portal.jobs.change(actor, id, changes).await.map(drop)
            }
            _ => match portal.jobs.own(actor, id).await {
                Ok(job) => {
                    let tags = job.tags.into_iter().chain([form.get("tag").to_owned()]).collect();
                    portal.jobs.change(actor, id, Changes { tags: Some(tags), ..Changes::default() }).await.map(drop)
                }
                Err(error) => Err(error),
            },
        };
        tally.count(outcome.map_err(Error::from))?;
    }
    let deleted = if deed == "delete" { format!("{}-{}", from.0, portal.clock.now().0) } else { String::new() };
    Ok(tally.redirect(&form, "/jobs", deed, &deleted))
}

/// Reads between which moments an action deleted some jobs.
fn span(text: &str) -> Option<(i64, i64)> {
    let (from, to) = text.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}
