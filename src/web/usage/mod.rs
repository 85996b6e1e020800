//! `/usage` over REST: what was used of GPUs and cores in a time, by person, by the group that
//! was charged, by GPU model, or day by day; one's own, that of groups which one manages, and
//! for operators everybody's. As JSON, or as a table for a spreadsheet. `own` and `compare` draw it.

pub mod compare;
mod draw;
pub mod own;
mod range;

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    audit::wants_csv,
    csv,
    error::{Error, Problem, Result},
    extract::{CurrentUser, Query},
    json::Long,
    paging::{Listed, Paging},
};
use crate::{
    auth::{Principal, scopes::Scope},
    db::usage::{self, Sort, UsageFilter, UsageGrouping, UsageOwner, Used, UsedIn},
    model::{
        Role, Timestamp,
        timeline::{self, Span, Step},
    },
};

/// Into more days or weeks nobody cuts a time.
const MAX_SPANS: i64 = 800;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Default: the beginning of the quota period.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Default: now.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
    /// `user` (the default), `group`, `gpu_model`, `day` or `week`. Days and weeks (from Monday) are those of
    /// `quotas.time_zone`.
    #[param(value_type = Option<String>)]
    by: Option<String>,
    /// `own`, `managed` (what is charged to groups that you manage), or `everybody` (operators only).
    /// Default: `everybody` for operators, `own` for other users.
    #[param(value_type = Option<String>)]
    whose: Option<String>,
    /// Maximum number of items to return, 1 to 500. A CSV table has all of them.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// The usage between two times.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageAnswer {
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
    /// `user`, `group`, `gpu_model`, `day` or `week`.
    by: &'static str,
    /// `own`, `managed` or `everybody`.
    whose: &'static str,
    items: Vec<UsageRow>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
    from_shell: FromShell,
}

/// The part of the usage by jobs that users submitted to the batch system from a shell.
#[derive(Debug, Serialize, ToSchema)]
pub struct FromShell {
    jobs: i64,
    gpu_seconds: i64,
    cpu_seconds: i64,
}

/// The usage of one user, group or GPU model, or of one day or week.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UsageRow {
    /// The name of a user, a group or a GPU model, or a date. Empty if no group was charged, or if it was deleted.
    #[schema(value_type = String)]
    name: Arc<str>,
    /// GPUs × seconds that were held.
    gpu_seconds: i64,
    /// Cores × seconds that were held. 0 by GPU model.
    cpu_seconds: i64,
    /// The number of sessions and jobs that held resources in that time. By day and week: the number that started.
    sessions: i64,
}

/// Returns usage: your own, or that of other users if you may see it.
///
/// With `Accept: text/csv`, returns a table.
#[utoipa::path(
    get, path = "/usage", tag = "usage", params(UsageQuery),
    responses(
        (status = 200, content((UsageAnswer = "application/json"), (String = "text/csv"))),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "Not visible to you", body = Problem),
        (status = 422, description = "A parameter is invalid", body = Problem),
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
    if to < from {
        return Err(Error::field("to", "before_from", "Must not be before `from`."));
    }
    let paging = Paging::new(parameters.limit, parameters.cursor);
    paging.limit()?;
    let (whose, whose_name) = whose(&user, parameters.whose.as_deref())?;
    let time = (from, to);
    let (by, (items, from_shell)) = match parameters.by.as_deref().unwrap_or("user") {
        "user" => ("user", named(&portal, whose, UsageGrouping::User, time, now).await?),
        "group" => ("group", named(&portal, whose, UsageGrouping::Group, time, now).await?),
        "gpu_model" => ("gpu_model", named(&portal, whose, UsageGrouping::GpuModel, time, now).await?),
        "day" => ("day", dated(&portal, whose, Step::Day, time, now).await?),
        "week" => ("week", dated(&portal, whose, Step::Week, time, now).await?),
        _ => return Err(Error::field("by", "invalid_value", "Must be user, group, gpu_model, day or week.")),
    };
    if wants_csv(&headers) {
        return Ok(table(by, &items));
    }
    let Listed { items, next_cursor } = Listed::cut(&items, &paging, |row| &row.name, Clone::clone)?;
    Ok(Long(UsageAnswer { from, to, by, whose: whose_name, items, next_cursor, from_shell: from_shell.into() })
        .into_response())
}

/// Whose use somebody asks for, with its word.
fn whose(user: &Principal, asked: Option<&str>) -> Result<(UsageOwner, &'static str)> {
    let others = others(user);
    match asked.filter(|word| !word.is_empty()) {
        Some("everybody") | None if others == Some(UsageOwner::Everybody) => Ok((UsageOwner::Everybody, "everybody")),
        Some("own") | None => Ok((UsageOwner::Person(user.id()), "own")),
        Some("managed") if others.is_some() => Ok((UsageOwner::ManagedBy(user.id()), "managed")),
        Some("managed" | "everybody") => Err(Error::forbidden("You can only see your own usage.")),
        Some(_) => Err(Error::field("whose", "invalid_value", "Must be own, managed or everybody.")),
    }
}

/// Whose use beside their own somebody may see: everybody's as an operator, that of the groups
/// that they manage; a token's scopes have to reach so far.
fn others(user: &Principal) -> Option<UsageOwner> {
    let is_reached = user.scopes_allow(&[Scope::AdminUsers, Scope::AdminQuotas]);
    match is_reached {
        true if Role::Operator <= user.user.role => Some(UsageOwner::Everybody),
        true if !user.user.manages.is_empty() => Some(UsageOwner::ManagedBy(user.id())),
        _ => None,
    }
}

/// The rows, and what of them came from a shell.
type Answered = (Vec<UsageRow>, usage::FromShell);

async fn named(
    portal: &Portal,
    whose: UsageOwner,
    by: UsageGrouping,
    (from, to): (Timestamp, Timestamp),
    now: Timestamp,
) -> Result<Answered> {
    let asked = UsageFilter { by, whose, from, to, now, sort: Sort::Name, page: None };
    let used = portal.db.used(&asked).await?;
    Ok((used.rows.into_iter().map(UsageRow::from).collect(), used.from_shell))
}

async fn dated(
    portal: &Portal,
    whose: UsageOwner,
    step: Step,
    (from, to): (Timestamp, Timestamp),
    now: Timestamp,
) -> Result<Answered> {
    let spans = cut(portal, step, from, to)?;
    let (used, from_shell) =
        tokio::try_join!(portal.db.used_in(whose, &spans), portal.db.used_from_shell(whose, from, to, now))?;
    Ok((used.into_iter().map(UsageRow::from).collect(), from_shell))
}

/// A time in days or weeks, as far as it has passed.
fn cut(portal: &Portal, step: Step, from: Timestamp, to: Timestamp) -> Result<Vec<Span>> {
    let to = to.min(portal.clock.now());
    let days = if step == Step::Day { 1 } else { 7 };
    if MAX_SPANS * days * 86_400 < to.seconds_since(from) {
        return Err(Error::field("from", "too_long", "Must cover at most 800 days or 800 weeks."));
    }
    Ok(timeline::cut(from, to, step, &portal.sessions.admission.zone))
}

/// Whole seconds; a part of one counts as one.
fn seconds(milliseconds: i64) -> i64 {
    milliseconds.saturating_add(999) / 1000
}

impl From<usage::FromShell> for FromShell {
    fn from(usage::FromShell { jobs, spent }: usage::FromShell) -> Self {
        Self { jobs, gpu_seconds: seconds(spent.gpu_milliseconds), cpu_seconds: seconds(spent.cpu_milliseconds) }
    }
}

impl From<Used> for UsageRow {
    fn from(used: Used) -> Self {
        Self {
            gpu_seconds: seconds(used.gpu_milliseconds),
            cpu_seconds: seconds(used.cpu_milliseconds),
            name: used.name,
            sessions: used.sessions,
        }
    }
}

impl From<UsedIn> for UsageRow {
    fn from(used: UsedIn) -> Self {
        Self {
            name: used.span.date.to_string().into(),
            gpu_seconds: seconds(used.spent.gpu_milliseconds),
            cpu_seconds: seconds(used.spent.cpu_milliseconds),
            sessions: used.sessions,
        }
    }
}

fn table(by: &str, rows: &[UsageRow]) -> Response {
    let mut text = csv::line([by, "gpu_seconds", "cpu_seconds", "sessions"]);
    for row in rows {
        let numbers = [row.gpu_seconds, row.cpu_seconds, row.sessions].map(|number| number.to_string());
        text += &csv::line(std::iter::once(&*row.name).chain(numbers.iter().map(String::as_str)));
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"usage.csv\""),
    ];
    (headers, text).into_response()
}
