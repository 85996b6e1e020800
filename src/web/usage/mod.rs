//! `/usage` over REST: what was used of GPUs and cores in a time, by person, by the group that
//! was charged, by both, by GPU model, or by day, week or month; one's own, that of groups which one manages, and
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
    http::{
        csv,
        error::{Error, Problem, Result},
        extract::{CurrentUser, Query},
        json::Long,
        paging::{Listed, Paging},
    },
};
use crate::{
    auth::{Principal, scopes::Scope},
    db::usage::{self, Sort, UsageFilter, UsageGrouping, UsageOwner, UsageSum, Used, UsedIn},
    model::{
        Role, Timestamp,
        timeline::{self, Span, Step},
    },
};

/// Into more days, weeks or months nobody cuts a time.
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
    /// `user` (the default), `group`, `gpu_model`, `day`, `week` or `month`; `group,user` or `group,month` for what each
    /// group was charged by user or by month. Days, weeks (from Monday) and months are those of `quotas.time_zone`.
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
    /// What the items are: users, groups, GPU models, days, weeks or months, or users or months of groups.
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

/// The usage of one user, group or GPU model, or of one day, week or month.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UsageRow {
    /// By `group,user` and `group,month`: the group that was charged. Empty if no group was charged, or if it was
    /// deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    group: Option<Arc<str>>,
    /// The name of a user, a group or a GPU model, a date, or a month such as `2030-01`. Empty if no group was charged,
    /// or if it was deleted.
    #[schema(value_type = String)]
    name: Arc<str>,
    /// GPUs × seconds that were held.
    gpu_seconds: i64,
    /// Cores × seconds that were held. 0 by GPU model.
    cpu_seconds: i64,
    /// The number of sessions and jobs that held resources in that time. By day, week and month: the number that
    /// started.
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
        "month" => ("month", dated(&portal, whose, Step::Month, time, now).await?),
        word => {
            let Some((by, rows)) = of_groups(&portal, whose, word, time, now).await? else {
                let words = "Must be user, group, gpu_model, day, week, month, `group,user` or `group,month`.";
                return Err(Error::field("by", "invalid_value", words));
            };
            (by, (rows, portal.db.used_from_shell(whose, from, to, now).await?))
        }
    };
    if wants_csv(&headers) {
        return Ok(table(by, &items));
    }
    let items: Vec<(String, UsageRow)> = items.into_iter().map(|row| (row.key(), row)).collect();
    let Listed { items, next_cursor } = Listed::cut(&items, &paging, |(key, _)| key, |(_, row)| row.clone())?;
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
    Ok((used.iter().map(|used| UsageRow::dated(used, step)).collect(), from_shell))
}

/// What each group was charged, by user or by month; `None` if that is not what the word means.
async fn of_groups(
    portal: &Portal,
    whose: UsageOwner,
    by: &str,
    (from, to): (Timestamp, Timestamp),
    now: Timestamp,
) -> Result<Option<(&'static str, Vec<UsageRow>)>> {
    match by {
        "group,user" => {
            let used = portal.db.used_by_group_and_user(whose, from, to, now).await?;
            let row = |(group, name, UsageSum { spent, sessions, .. })| UsageRow {
                group: Some(group),
                name,
                gpu_seconds: seconds(spent.gpu_milliseconds),
                cpu_seconds: seconds(spent.cpu_milliseconds),
                sessions,
            };
            Ok(Some(("group,user", used.into_iter().map(row).collect())))
        }
        "group,month" => {
            let used = portal.db.used_by_group_in(whose, &cut(portal, Step::Month, from, to)?).await?;
            let row = |(group, used)| UsageRow { group: Some(group), ..UsageRow::dated(&used, Step::Month) };
            Ok(Some(("group,month", used.into_iter().map(row).collect())))
        }
        _ => Ok(None),
    }
}

/// A time in days, weeks or months, as far as it has passed.
fn cut(portal: &Portal, step: Step, from: Timestamp, to: Timestamp) -> Result<Vec<Span>> {
    let to = to.min(portal.clock.now());
    let days = match step {
        Step::Day => 1,
        Step::Week => 7,
        Step::Month => 28,
    };
    if MAX_SPANS * days * 86_400 < to.seconds_since(from) {
        return Err(Error::field("from", "too_long", "Must cover at most 800 days, 800 weeks or 800 months."));
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
            group: None,
            gpu_seconds: seconds(used.gpu_milliseconds),
            cpu_seconds: seconds(used.cpu_milliseconds),
            name: used.name,
            sessions: used.sessions,
        }
    }
}

impl UsageRow {
    fn dated(used: &UsedIn, step: Step) -> Self {
        let form = if step == Step::Month { "%Y-%m" } else { "%Y-%m-%d" };
        Self {
            group: None,
            name: used.span.date.strftime(form).to_string().into(),
            gpu_seconds: seconds(used.spent.gpu_milliseconds),
            cpu_seconds: seconds(used.spent.cpu_milliseconds),
            sessions: used.sessions,
        }
    }

    /// What no other row of its list has, for cursors.
    fn key(&self) -> String {
        self.group.as_ref().map_or_else(|| self.name.to_string(), |group| format!("{group}\n{}", self.name))
    }
}

fn table(by: &str, rows: &[UsageRow]) -> Response {
    let mut text = csv::line(by.split(',').chain(["gpu_seconds", "cpu_seconds", "sessions"]));
    for row in rows {
        let numbers = [row.gpu_seconds, row.cpu_seconds, row.sessions].map(|number| number.to_string());
        text +=
            &csv::line(row.group.as_deref().into_iter().chain([&*row.name]).chain(numbers.iter().map(String::as_str)));
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"usage.csv\""),
    ];
    (headers, text).into_response()
}
