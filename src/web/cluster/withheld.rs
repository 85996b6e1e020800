//! GPUs that operators keep from new work, over REST and by the forms of the pages. The rules are the service's.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::{Path, State},
    response::{IntoResponse, NoContent, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    model::{Timestamp, gpus::WithheldGpu},
    web::{
        Portal,
        http::{
            error::{Problem, Result},
            extract::{Form, Json, Operator},
        },
    },
};

/// Who keeps a GPU from new work.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WithheldGpu)]
pub struct WithheldView {
    reason: String,
    /// Name of the operator.
    by: String,
    #[schema(value_type = String, format = "date-time")]
    at: Timestamp,
}

impl From<WithheldGpu> for WithheldView {
    fn from(one: WithheldGpu) -> Self {
        Self { reason: one.reason, by: one.by, at: one.at }
    }
}

/// A reason to keep a GPU from new work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HoldGpu)]
pub struct Hold {
    /// One line, shown to all users.
    reason: String,
}

/// Keeps a GPU from new sessions and jobs. What holds it already keeps it.
#[utoipa::path(put, path = "/gpus/{uuid}/hold", tag = "cluster", params(("uuid" = String, Path)), request_body = Hold,
    responses((status = 200, body = WithheldView), (status = 403, description = "Only for operators", body = Problem),
        (status = 404, description = "There is no such GPU", body = Problem),
        (status = 422, description = "The reason is invalid", body = Problem)))]
pub async fn hold(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    Path(uuid): Path<String>,
    Json(asked): Json<Hold>,
) -> Result<Answer<WithheldView>> {
    Ok(Answer(portal.cluster.withhold(&user.0.user, &uuid, &asked.reason).await?.into()))
}

/// Gives a GPU to new sessions and jobs again.
#[utoipa::path(delete, path = "/gpus/{uuid}/hold", tag = "cluster", params(("uuid" = String, Path)),
    responses((status = 204, description = "Released"), (status = 403, description = "Only for operators", body = Problem),
        (status = 404, description = "There is no such GPU", body = Problem)))]
pub async fn release(user: Operator, State(portal): State<Arc<Portal>>, Path(uuid): Path<String>) -> Result<Response> {
    portal.cluster.release(&user.0.user, &uuid).await?;
    Ok(NoContent.into_response())
}

/// `POST /cluster/gpus/{uuid}/hold`
pub async fn hold_by_form(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    Path(uuid): Path<String>,
    form: Form,
) -> Result<Redirect> {
    portal.cluster.withhold(&user.0.user, &uuid, form.get("reason")).await?;
    Ok(Redirect::to("/cluster"))
}

/// `POST /cluster/gpus/{uuid}/release`
pub async fn release_by_form(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    Path(uuid): Path<String>,
) -> Result<Redirect> {
    portal.cluster.release(&user.0.user, &uuid).await?;
    Ok(Redirect::to("/cluster"))
}
