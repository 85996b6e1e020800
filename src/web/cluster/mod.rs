//! `/cluster`: the machines of a cluster; or the one machine, its GPUs, what they do and did, how they are linked, and for
//! operators the sessions whose GPUs rest, with the two things to do about one: ask, stop. `queue` is the batch system's.

pub mod api;
pub mod choices;
mod drain;
mod draw;
pub mod machines;
pub mod node;
pub mod queue;
mod visibility;
mod withheld;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{
    Portal,
    http::{
        error::{Error, Result},
        extract::{CurrentUser, Id, Operator, Query},
    },
    page::{Nav, Page},
    sessions::cards::is_operator,
    views::{Calendar, ClusterPage, TimeChoice},
};
use crate::{
    cluster::{IdleSession, holders},
    model::{Session, SessionId, gpus::labels},
    sessions::Actor,
};
use draw::Drawing;
use visibility::Visibility;

/// `?over=` and `?done=`, as links and redirects of ours write them; `?after=` names the last node of the page before.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PageQuery {
    over: String,
    done: String,
    after: String,
}

/// `/cluster`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(query): Query<PageQuery>,
) -> Result<Response> {
    if let Some(machines) = portal.sessions.scheduler.machines().await {
        return Ok(Page(machines::page(&portal, &user, &machines, &query.after).await?).into_response());
    }
    let over = TimeChoice::parse(&query.over);
    let now = portal.clock.now();
    let sight = Visibility::of(&portal, &user).await?;
    let sessions = live(&portal).await?;
    let from = now.plus_seconds(-over.seconds());
    let points = portal.db.gpu_points(over.span(), from, now).await?;
    let holdings = portal.db.gpu_holdings(from, now).await?;
    let view = portal.cluster.view();
    let drawing = Drawing { view: &view, sessions: &sessions, holders: holders(&sessions), sight: &sight, now, over };
    let scheduler = &portal.sessions.scheduler;
    let node = scheduler.node().await;
    let holdings_now = portal.sessions.admission.holdings().await?;
    let page = ClusterPage {
        layout: portal.layout_of(&user.0, Nav::Cluster),
        notice: (query.done == "asked")
            .then_some("The owner was asked. The question is shown on the card of the session or the page of the job."),
        node: draw::node(&node, &portal.sessions.admission.stock.capacity(), &holdings_now.all, &view),
        calendar: Calendar::new(&[], portal.db.maintenance().await?.as_ref(), now),
        isolation: draw::isolation(&scheduler.stock().inventory(), scheduler.closes_gpus()),
        empty: draw::empty(&scheduler.stock().inventory(), &view),
        gpus: drawing.rows(&points, &holdings),
        free: drawing.free(),
        over,
        idle: if sight.everybody { drawing.idle() } else { Vec::new() },
        may_act: is_operator(&user),
        matrix: draw::matrix(&scheduler.stock().inventory()),
    };
    Ok(Page(page).into_response())
}

/// The routes that keep GPUs and nodes from new work.
pub fn hold_api() -> super::http::routes::Api {
    use utoipa_axum::routes;
    super::http::routes::Api::within(&crate::auth::scopes::CLUSTER)
        .routes(routes!(withheld::hold, withheld::release))
        .routes(routes!(drain::drain, drain::resume))
}

/// The same by forms.
pub fn hold_pages(others: super::http::routes::Pages) -> super::http::routes::Pages {
    others
        .and(&crate::auth::scopes::UNSCOPED)
        .post("/cluster/gpus/{uuid}/hold", withheld::hold_by_form)
        .post("/cluster/gpus/{uuid}/release", withheld::release_by_form)
        .post("/nodes/{name}/drain", drain::drain_by_form)
        .post("/nodes/{name}/resume", drain::resume_by_form)
}

/// Asks the owner whether they still need GPUs that rest.
pub async fn ask(user: Operator, State(portal): State<Arc<Portal>>, Id(id): Id<SessionId>) -> Result<Redirect> {
    ask_owner(&portal, Actor { user: &user.0.user }, id).await?;
    Ok(Redirect::to("/cluster?done=asked"))
}

/// Only about GPUs that rest is anybody asked: the question goes away by itself when they work.
async fn ask_owner(portal: &Portal, actor: Actor<'_>, id: SessionId) -> Result<Session> {
    let session = portal.sessions.find_workload(actor, id).await?;
    let view = portal.cluster.view();
    let Some(idle) = view.idle.iter().find(|idle| idle.session == session.id) else {
        return Err(Error::conflict("None of its GPUs is idle, so there is nothing to ask."));
    };
    let about = format!("{} asked whether {} still needed", actor.user.name, resting(idle));
    Ok(portal.sessions.ask(actor, id, &about).await?)
}

fn resting(idle: &IdleSession) -> String {
    let verb = if idle.gpus.len() == 1 { "is" } else { "are" };
    format!("GPU {} {verb}", labels(&idle.gpus))
}

/// Everybody's sessions and attempts of jobs that have not ended.
async fn live_workloads(portal: &Portal) -> Result<Vec<Session>> {
    Ok(portal.db.live_sessions().await?)
}

/// Everybody's sessions that hold GPUs now.
async fn live(portal: &Portal) -> Result<Vec<Session>> {
    let all = live_workloads(portal).await?;
    Ok(all.into_iter().filter(|session| !session.gpus.is_empty()).collect())
}
