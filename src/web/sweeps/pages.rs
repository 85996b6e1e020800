//! `/sweeps` and one sweep as pages, with the buttons that pause, stop and forget one. A new one
//! comes from the form of jobs.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    model::{Role, Sweep, SweepId, SweepState},
    sweeps::best,
    web::{
        Portal,
        error::Result,
        extract::{CurrentUser, Id, Query},
        page::{Nav, Page},
        paging::{Listed, Paging},
        views::{ShowSweep, SweepRow, SweepsPage, TaskRow},
    },
};

/// How many a page of the list shows.
const SHOWN: i64 = 50;

/// The address of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Visit {
    all: String,
    cursor: Option<String>,
}

/// `/sweeps`
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<Visit>,
) -> Result<Response> {
    let now = portal.clock.now();
    let all = !visit.all.is_empty() && Role::Operator <= user.user.role;
    let paging = Paging::new(Some(SHOWN), visit.cursor.clone());
    let found = portal.sweeps.list(user.actor(), all, None, paging.after()?, SHOWN + 1).await?;
    let Listed { items, next_cursor } = Listed::new(found, SHOWN, |sweep: &Sweep| sweep.id);
    let address = |cursor: &str| format!("/sweeps?cursor={cursor}{}", if all { "&all=yes" } else { "" });
    let view = SweepsPage {
        layout: portal.layout_of(&user.0, Nav::Jobs),
        all,
        rows: items.into_iter().map(|sweep| SweepRow::new(sweep, now)).collect(),
        first_href: visit.cursor.is_some().then(|| "/sweeps".to_owned()),
        next_href: next_cursor.map(|cursor| address(&cursor)),
    };
    Ok(Page(view).into_response())
}

/// `/sweeps/{id}`
pub async fn show(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<SweepId>) -> Result<Response> {
    let now = portal.clock.now();
    let sweep = portal.sweeps.find(user.actor(), id).await?;
    let (metric, standings) = portal.sweeps.standings(&sweep).await?;
    let found = metric.as_ref().and_then(|metric| best(metric, &standings));
    let is_own = sweep.owner == user.id();
    let mut parameters: Vec<String> =
        standings.first().map(|one| one.settings.values.keys().cloned().collect()).unwrap_or_default();
    parameters.truncate(8);
    let rows: Vec<TaskRow> = standings.iter().map(|standing| TaskRow::new(standing, &parameters, now)).collect();
    let view = ShowSweep {
        layout: portal.layout_of(&user.0, Nav::Jobs),
        best: found.map(|standing| TaskRow::new(standing, &parameters, now)),
        metric,
        has_repeats: standings.iter().any(|one| 0 < one.settings.repeat),
        parameters,
        rows,
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
