//! `/sweeps` and one sweep as pages, with the buttons that pause, stop and forget one. A new one
//! comes from the form of jobs.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    db::sweeps::{SORT_COLUMNS, SweepFilter},
    model::{Role, Sweep, SweepId, SweepState},
    sweeps::best,
    web::{
        Portal, columns,
        http::{
            error::Result,
            extract::{CurrentUser, Id, Query},
            href::href,
            paging::{Paging, Part},
            sorting::Sorting,
        },
        page::{Nav, Page},
        selection, settings,
        views::{ShowSweep, SweepRow, SweepsPage, TaskRow},
    },
};

/// How many a page of the list shows.
const PAGE_SIZE: i64 = 50;

/// The number of tasks whose curves are compared at once.
const MAX_COMPARED: usize = 50;
/// How many tasks a page of one sweep shows.
const TASKS: usize = 100;

/// The address of one sweep.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ShowVisit {
    /// The cursor of the list of tasks.
    tasks: Option<String>,
}

/// The address of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    find: String,
    all: String,
    sort: String,
    cursor: Option<String>,
    done: String,
    failed: String,
}

/// `/sweeps`
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let now = portal.clock.now();
    let all = !visit.all.is_empty() && Role::Operator <= user.user.role;
    let find: String = visit.find.trim().chars().take(200).collect();
    let sorting = Sorting::of_page(&SORT_COLUMNS, &visit.sort);
    let position = sorting.position(&Paging::new(Some(PAGE_SIZE), visit.cursor.clone()))?;
    let filter = SweepFilter {
        owner: Some(user.id()).filter(|_| !all),
        find: &find,
        sort: sorting.sort(&position),
        before: position.before,
        limit: PAGE_SIZE + 1,
        ..SweepFilter::default()
    };
    let found = portal.sweeps.list(user.actor(), filter).await?;
    let found = sorting.listed(found, PAGE_SIZE, |sweep: &Sweep| sweep.id);
    let address = |sort: &str, cursor: &str| {
        let all = if all { "yes" } else { "" };
        href("/sweeps", [("find", find.as_str()), ("all", all), ("sort", sort), ("cursor", cursor)])
    };
    let columns = columns::SWEEPS.shown(&portal, &user).await?;
    let frame = sorting.frame(columns, address, visit.cursor.as_deref(), found.next_cursor.as_deref());
    let frame = selection::told(frame, &visit.done, &visit.failed, "sweep");
    let view = SweepsPage {
        layout: portal.layout_of(&user.0, Nav::Sweeps),
        all,
        rows: found.items.into_iter().map(|sweep| SweepRow::new(sweep, now)).collect(),
        frame,
        find,
    };
    Ok(Page(view).into_response())
}

/// `/sweeps/{id}`
pub async fn show(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SweepId>,
    Query(visit): Query<ShowVisit>,
) -> Result<Response> {
    let now = portal.clock.now();
    let sweep = portal.sweeps.find(user.actor(), id).await?;
    let (metric, standings) = portal.sweeps.standings(&sweep).await?;
    let found = metric.as_ref().and_then(|metric| best(metric, &standings));
    let is_own = sweep.owner == user.id();
    let mut parameters: Vec<String> =
        standings.first().map(|one| one.settings.values.keys().cloned().collect()).unwrap_or_default();
    parameters.truncate(8);
    let mut runs = Vec::new();
    for job in standings.iter().filter_map(|standing| standing.job.as_ref()).take(MAX_COMPARED) {
        runs.extend(portal.runs.of_job(job.id).await?.map(|run| run.id.to_string()));
    }
    let compare_href = (runs.len() > 1).then(|| href("/runs/compare", runs.iter().map(|id| ("id", id.as_str()))));
    let path = format!("/sweeps/{id}");
    let part = Part::cut(
        standings.iter().enumerate().collect(),
        TASKS,
        visit.tasks.as_deref(),
        |(place, _)| *place,
        |cursor| settings::address(&path, "tasks", cursor),
    );
    let rows: Vec<TaskRow> = part.items.iter().map(|(_, standing)| TaskRow::new(standing, &parameters, now)).collect();
    let view = ShowSweep {
        compare_href,
        layout: portal.layout_of(&user.0, Nav::Sweeps),
        best: found.map(|standing| TaskRow::new(standing, &parameters, now)),
        metric,
        has_repeats: standings.iter().any(|one| one.settings.repeat > 0),
        parameters,
        rows,
        more: part.more,
        counts: ShowSweep::count(&standings),
        is_own,
        may_pause: sweep.state == SweepState::Running,
        may_resume: sweep.state == SweepState::Paused,
        may_stop: matches!(sweep.state, SweepState::Running | SweepState::Paused),
        may_delete: is_own && sweep.state == SweepState::Ended,
        sweep: SweepRow::new(sweep, now),
    };
    Ok(Page(view).into_response())
}

pub async fn pause(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<SweepId>) -> Result<Redirect> {
    portal.sweeps.pause(user.actor(), id).await?;
    Ok(Redirect::to(&format!("/sweeps/{id}")))
}

pub async fn resume(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<SweepId>) -> Result<Redirect> {
    portal.sweeps.go_on(user.actor(), id).await?;
    Ok(Redirect::to(&format!("/sweeps/{id}")))
}

pub async fn stop(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<SweepId>) -> Result<Redirect> {
    portal.sweeps.stop(user.actor(), id).await?;
    Ok(Redirect::to(&format!("/sweeps/{id}")))
}

pub async fn delete(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<SweepId>) -> Result<Redirect> {
    portal.sweeps.delete(user.actor(), id).await?;
    Ok(Redirect::to("/sweeps"))
}
