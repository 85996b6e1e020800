//! `/usage`: what was used of GPUs and cores in a time, by person, by the group that was
//! charged, or by GPU model; one's own, and for operators everybody's. As JSON, or as a
//! table for a spreadsheet.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    audit::wants_csv,
    cards::is_operator,
    csv,
    error::{Error, Problem, Result},
    extract::{CurrentUser, Query},
};
use crate::{
    db::usage::{Asked, By, Used},
    model::Timestamp,
};

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Left out: the beginning of the period that hours are counted in.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Left out: now.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
    /// `user` (where nothing is said), `group` or `gpu_model`.
    #[param(value_type = Option<String>)]
    by: Option<String>,
}

/// What was used between two moments.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageAnswer {
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
    /// `user`, `group` or `gpu_model`.
    by: &'static str,
    items: Vec<UsageRow>,
}

/// The use of one person, group or model.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageRow {
    /// A person, a group (empty: none was charged, or it is gone) or a model.
    name: String,
    /// GPUs × seconds, of what was really held.
    gpu_seconds: i64,
    /// Cores × seconds; 0 by model.
    cpu_seconds: i64,
    /// How many sessions held something in that time.
    sessions: i64,
}

/// One's own use; operators see everybody's. With `Accept: text/csv` as a table.
#[utoipa::path(
    get, path = "/usage", tag = "usage", params(UsageQuery),
    responses(
        (status = 200, content((UsageAnswer = "application/json"), (String = "text/csv"))),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 422, description = "A parameter cannot be accepted", body = Problem),
    )
)]
pub async fn sums(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<UsageQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let now = portal.clock.now();
    let from = parameters.from.unwrap_or_else(|| portal.sessions.admission.period.window(now).from);
    let to = parameters.to.unwrap_or(now);
    let (by, name) = match parameters.by.as_deref().unwrap_or("user") {
        "user" => (By::User, "user"),
        "group" => (By::Group, "group"),
        "gpu_model" => (By::GpuModel, "gpu_model"),
        _ => return Err(Error::field("by", "invalid_value", "This is user, group or gpu_model.")),
    };
    if to < from {
        return Err(Error::field("to", "before_from", "This must not be before `from`."));
    }
    let owner = (!is_operator(&user)).then_some(user.user.id);
    let rows = portal.db.used(&Asked { by, owner, from, to, now }).await?;
    let items: Vec<UsageRow> = rows.into_iter().map(row).collect();
    if wants_csv(&headers) {
        return Ok(table(name, &items));
    }
    Ok(Answer(UsageAnswer { from, to, by: name, items }).into_response())
}

fn row(used: Used) -> UsageRow {
    let seconds = |milliseconds: i64| milliseconds.saturating_add(999) / 1000;
    UsageRow {
        name: used.name,
        gpu_seconds: seconds(used.gpu_milliseconds),
        cpu_seconds: seconds(used.cpu_milliseconds),
        sessions: used.sessions,
    }
}

fn table(by: &str, rows: &[UsageRow]) -> Response {
    let mut text = csv::line([by, "gpu_seconds", "cpu_seconds", "sessions"]);
    for row in rows {
        let numbers = [row.gpu_seconds, row.cpu_seconds, row.sessions].map(|number| number.to_string());
        text += &csv::line(std::iter::once(&row.name).chain(&numbers));
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"usage.csv\""),
    ];
    (headers, text).into_response()
}
