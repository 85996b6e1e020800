//! Draining of nodes by operators, over REST and by the forms of the pages. The rules are the service's.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::{Path, State},
    response::Redirect,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::api::{NodeView, node_of_cluster};
use crate::{
    model::machines::Machine,
    web::{
        Portal,
        http::{
            error::{Problem, Result},
            extract::{Form, Json, Operator},
        },
        page::node_page,
    },
};

/// A reason to keep new work from a node.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DrainNode)]
pub struct Drain {
    /// One line, shown to all users with your name.
    reason: String,
}

/// Drains a node: it accepts no new work, and what runs there goes on.
///
/// The portal's account must be an administrator in Slurm.
#[utoipa::path(put, path = "/nodes/{name}/drain", tag = "cluster",
    params(("name" = String, Path, description = "The name of the node.")), request_body = Drain,
    responses((status = 200, body = NodeView), (status = 403, description = "Only for operators", body = Problem),
        (status = 404, description = "Unknown node", body = Problem),
        (status = 409, description = "Slurm rejected it, or there is only one machine", body = Problem),
        (status = 422, description = "The reason is invalid", body = Problem),
        (status = 503, description = "Slurm does not respond", body = Problem)))]
pub async fn drain(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Json(asked): Json<Drain>,
) -> Result<Answer<NodeView>> {
    let machine = portal.cluster.drain(&user.0.user, &name, &asked.reason).await?;
    Ok(Answer(view(&portal, &machine)))
}

/// Resumes a node that was drained or is down: it accepts work again.
///
/// A node that accepts work is not changed.
#[utoipa::path(delete, path = "/nodes/{name}/drain", tag = "cluster",
    params(("name" = String, Path, description = "The name of the node.")),
    responses((status = 200, body = NodeView), (status = 403, description = "Only for operators", body = Problem),
        (status = 404, description = "Unknown node", body = Problem),
        (status = 409, description = "Slurm rejected it, or there is only one machine", body = Problem),
        (status = 503, description = "Slurm does not respond", body = Problem)))]
pub async fn resume(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Answer<NodeView>> {
    let machine = portal.cluster.resume(&user.0.user, &name).await?;
    Ok(Answer(view(&portal, &machine)))
}

fn view(portal: &Portal, machine: &Machine) -> NodeView {
    node_of_cluster(machine, portal.sessions.scheduler.cluster(), Some(portal.clock.now()))
}

/// `POST /nodes/{name}/drain`
pub async fn drain_by_form(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Redirect> {
    portal.cluster.drain(&user.0.user, &name, form.get("reason")).await?;
    Ok(Redirect::to(&node_page(&name)))
}

/// `POST /nodes/{name}/resume`
pub async fn resume_by_form(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Redirect> {
    portal.cluster.resume(&user.0.user, &name).await?;
    Ok(Redirect::to(&node_page(&name)))
}
