//! The table of people with what they use and may: as a page, as JSON and for a spreadsheet.
//! One page of it costs a few queries, however many people there are.

use std::{fmt, str::FromStr, sync::Arc};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use url::form_urlencoded::Serializer;
use utoipa::{IntoParams, ToSchema};

use super::Effective as EffectiveView;
use crate::{
    auth::Principal,
    cluster::GpuView,
    db::quota_table::{Order, QuotaTableFilter, QuotaTableLine, QuotaTablePosition, TableFilter},
    model::{
        Capacity, Timestamp,
        gpus::{Condition, Obstacle},
        machines::MachineState,
        quota::{self, Effective, Field, Limit, Limits, Period, Unit as FieldUnit, Usage},
    },
    web::{
        Portal,
        audit::wants_csv,
        http::{
            csv,
            error::{Error, Problem, Result},
            extract::{Operator, Query},
            paging::{Listed, Paging},
        },
        page::{Nav, Page},
        views::{Column, Meter, Moment, QuotaColumns, QuotaRow, QuotaSearch, QuotaStrip, QuotasPage, Source, Unit},
    },
};

/// How many of somebody's groups a line names.
const MAX_GROUPS_SHOWN: usize = 3;

/// How many lines are read at once for a spreadsheet.
const STEP: i64 = 500;

/// The same in an order of amounts, for which each step adds up what everybody holds or has used.
const STEP_BY_AMOUNT: i64 = 5_000;

/// How many people the page shows: 2 kB each.
const PAGE: i64 = 40;

/// What the table shows of each person.
const SHOWN_FIELDS: [Field; 5] = [Field::Gpus, Field::Cpus, Field::MemoryBytes, Field::Sessions, Field::GpuHours];

/// `?find=&only=&sort=` of the table, with paging.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TableParameters {
    /// A part of the name or the display name.
    find: String,
    /// Empty: all users. `override`: only users with an override. `active`: only users who use something or have
    /// queued requests.
    only: String,
    /// `name`, `-name`, `gpus` (most GPUs held first), `hours` (most GPU-hours of the period first) or `seen` (last
    /// seen first).
    #[param(default = "name")]
    sort: String,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
    cursor: Option<String>,
    /// What a form did, for the page alone.
    #[param(ignore)]
    done: Option<String>,
}

impl TableParameters {
    /// What to ask the database for, and how many lines a page has.
    fn filter(&self) -> Result<(TableFilter, i64)> {
        let paging = Paging::new(self.limit, self.cursor.clone().filter(|cursor| !cursor.is_empty()));
        let limit = paging.limit()?;
        let only = match self.only.as_str() {
            "" => QuotaTableFilter::Everybody,
            "override" => QuotaTableFilter::Overridden,
            "active" => QuotaTableFilter::Active,
            _ => return Err(Error::field("only", "invalid_value", "Must be empty, override or active.")),
        };
        let sort = match self.sort.as_str() {
            "" | "name" => Order::Name,
            "-name" => Order::NameDown,
            "gpus" => Order::Gpus,
            "hours" => Order::Hours,
            "seen" => Order::Seen,
            _ => return Err(Error::field("sort", "invalid_value", "Must be one of name, -name, gpus, hours, seen.")),
        };
        let after = paging.after::<Cursor>()?.map(|Cursor(place)| place);
        if after.as_ref().is_some_and(|place| place.order != sort) {
            return Err(Error::field(
                "cursor",
                "invalid_value",
                "This cursor belongs to a list with another sort order.",
            ));
        }
        let find = self.find.trim().chars().take(200).collect();
        Ok((TableFilter { find, only, sort, after, limit: limit + 1 }, limit))
    }

    fn address(&self, path: &str, sort: &str, cursor: &str) -> String {
        let pairs = [("find", self.find.trim()), ("only", &self.only), ("sort", sort), ("cursor", cursor)];
        let mut query = Serializer::new(String::new());
        query.extend_pairs(pairs.into_iter().filter(|(_, value)| !value.is_empty()));
        let query = query.finish();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }
}

/// A place in the table, as a cursor carries it. Names and ids hold no space.
struct Cursor(QuotaTablePosition);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuotaTablePosition { order, number, text } = &self.0;
        let order = match order {
            Order::Name => "name",
            Order::NameDown => "-name",
            Order::Gpus => "gpus",
            Order::Hours => "hours",
            Order::Seen => "seen",
        };
        write!(f, "{order} {number} {text}")
    }
}

/// Reports an invalid cursor of the quota table.
struct InvalidCursor;

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidCursor> {
        let mut words = text.splitn(3, ' ');
        let order = match words.next() {
            Some("name") => Order::Name,
            Some("-name") => Order::NameDown,
            Some("gpus") => Order::Gpus,
            Some("hours") => Order::Hours,
            Some("seen") => Order::Seen,
            _ => return Err(InvalidCursor),
        };
        let number = words.next().and_then(|number| number.parse().ok()).ok_or(InvalidCursor)?;
        let is_place = |text: &&str| !text.is_empty() && !text.contains([' ', '\0']);
        let text = words.next().filter(is_place).ok_or(InvalidCursor)?.to_owned();
        match order {
            Order::Name | Order::NameDown if number != 0 => Err(InvalidCursor),
            _ => Ok(Self(QuotaTablePosition { order, number, text })),
        }
    }
}

/// A summary of the cluster.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QuotaStrip)]
pub struct ClusterSummary {
    gpus: i64,
    gpus_allocated: i64,
    /// Allocated GPUs that have been idle for longer than the site's threshold.
    gpus_idle: i64,
    /// GPUs that cannot be used, allocated or not.
    gpus_down: i64,
    /// Queued requests.
    waiting: i64,
    #[schema(value_type = Option<String>, format = "date-time")]
    oldest_wait_since: Option<Timestamp>,
}

impl ClusterSummary {
    /// As it is now, by the last look at the GPUs.
    pub(super) async fn of(portal: &Portal) -> Result<Self> {
        let held = portal.db.quota_strip().await?;
        let view = portal.cluster.view();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let is_down =
            |gpu: &&GpuView| matches!(gpu.condition, Condition::Down(_)) || gpu.obstacle == Some(Obstacle::Down);
        let gpus_down = match portal.sessions.scheduler.machines().await {
            Some(cluster) => {
                let down = cluster.machines.iter().filter(|machine| machine.state == MachineState::Down);
                down.map(|machine| machine.all_gpus().all).sum()
            }
            None => count(view.gpus.iter().filter(is_down).count()),
        };
        Ok(Self {
            gpus: portal.sessions.admission.stock.capacity().gpus,
            gpus_allocated: held.gpus_allocated,
            gpus_idle: count(view.idle.iter().map(|idle| idle.gpus.len()).sum()),
            gpus_down,
            waiting: held.waiting,
            oldest_wait_since: held.oldest_wait_since,
        })
    }
}

/// The usage and limits of one user, abridged.
#[derive(Debug, Serialize, ToSchema)]
pub struct QuotaLine {
    user: String,
    display_name: String,
    groups: Vec<String>,
    /// The effective limits, by field, of the fields in the table.
    effective: std::collections::BTreeMap<String, EffectiveView>,
    usage: Usage,
    #[schema(value_type = Option<String>, format = "date-time")]
    last_seen_at: Option<Timestamp>,
}

/// Lists the usage and limits of all users, in pages.
///
/// With `Accept: text/csv`, returns all users as a table.
#[utoipa::path(
    get, path = "/quotas/users", tag = "quotas", params(TableParameters),
    responses(
        (status = 200, content((Listed<QuotaLine> = "application/json"), (String = "text/csv"))),
        (status = 403, description = "Not an administrator or operator", body = Problem),
        (status = 422, description = "A parameter is invalid", body = Problem),
    )
)]
pub async fn table(
    _: Operator,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<TableParameters>,
    headers: HeaderMap,
) -> Result<Response> {
    let (filter, limit) = parameters.filter()?;
    if wants_csv(&headers) {
        return Ok(spreadsheet(portal, filter));
    }
    let lines = portal.sessions.admission.table(&filter).await?;
    let page = Listed::new(lines, limit, |(line, _)| Cursor(line.place(filter.sort)));
    let items = page.items.into_iter().map(|(line, limits)| api_line(line, &limits)).collect();
    Ok(Listed::<QuotaLine> { items, next_cursor: page.next_cursor }.into_response())
}

fn api_line(line: QuotaTableLine, limits: &Limits) -> QuotaLine {
    let effective = SHOWN_FIELDS.iter().map(|field| {
        let Effective { limit, source } = limits.of(field);
        (field.name().into_owned(), EffectiveView { limit: limit.value(), source: source.to_string() })
    });
    QuotaLine {
        user: line.name.to_string(),
        effective: effective.collect(),
        display_name: line.display_name,
        groups: line.groups,
        usage: line.usage,
        last_seen_at: line.last_seen_at,
    }
}

/// `/admin/quotas`
pub async fn page(
    Operator(reader): Operator,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<TableParameters>,
) -> Result<Response> {
    let notice = match parameters.done.as_deref() {
        Some("saved") => Some("Saved for all selected users. The new limits apply from now on. Nothing was stopped."),
        Some("nobody") => Some("No users selected. Select the users whose limits you want to change."),
        _ => None,
    };
    let mut view = view(&portal, &reader, &known(parameters)).await?;
    view.notice = notice.map(str::to_owned);
    Ok(Page(view).into_response())
}

/// What is not known is left out, so that a link of yesterday works.
fn known(parameters: TableParameters) -> TableParameters {
    let of = |text: String, words: &[&str]| if words.contains(&text.as_str()) { text } else { String::new() };
    TableParameters {
        only: of(parameters.only, &["override", "active"]),
        sort: of(parameters.sort, &["-name", "gpus", "hours", "seen"]),
        find: parameters.find.trim().chars().take(200).collect(),
        limit: Some(PAGE),
        ..parameters
    }
}

async fn view(portal: &Portal, reader: &Arc<Principal>, parameters: &TableParameters) -> Result<QuotasPage> {
    const PATH: &str = "/admin/quotas";
    let now = portal.clock.now();
    let admission = &portal.sessions.admission;
    let (filter, limit) = parameters.filter()?;
    let lines = admission.table(&filter).await?;
    let listed = Listed::new(lines, limit, |(line, _)| Cursor(line.place(filter.sort)));
    let strip = ClusterSummary::of(portal).await?;
    let sorted = |is: bool, direction| is.then_some(direction);
    let (order, column) =
        (filter.sort, |label, sort: &str, sorted| Column { label, href: parameters.address(PATH, sort, ""), sorted });
    let columns = QuotaColumns {
        person: match order {
            Order::Name => column("User", "-name", Some("ascending")),
            _ => column("User", "", sorted(order == Order::NameDown, "descending")),
        },
        gpus: column("GPUs", "gpus", sorted(order == Order::Gpus, "descending")),
        hours: column("GPU-hours", "hours", sorted(order == Order::Hours, "descending")),
        seen: column("Last seen", "seen", sorted(order == Order::Seen, "descending")),
    };
    let paged = parameters.cursor.as_ref().is_some_and(|cursor| !cursor.is_empty());
    Ok(QuotasPage {
        layout: portal.layout_of(reader, Nav::Administration),
        notice: None,
        strip: QuotaStrip {
            gpus: Meter {
                field: "gpus",
                label: "GPUs allocated".to_owned(),
                used: strip.gpus_allocated,
                limit: Some(strip.gpus),
                ..Meter::default()
            },
            idle: strip.gpus_idle,
            down: strip.gpus_down,
            waiting: strip.waiting,
            oldest_wait: strip.oldest_wait_since.map(|since| Moment {
                at: since,
                show: crate::web::views::Show::Since,
                now,
            }),
        },
        search: QuotaSearch {
            find: parameters.find.clone(),
            only: parameters.only.clone(),
            sort: parameters.sort.clone(),
        },
        columns,
        period: match &admission.period {
            Period::Rolling { days } => format!("{days} d"),
            Period::Month(_) => "this month".to_owned(),
            Period::Week(_) => "this week".to_owned(),
        },
        rows: listed
            .items
            .into_iter()
            .map(|(line, limits)| row(line, &limits, admission.stock.capacity(), now))
            .collect(),
        total: portal.db.count_users().await?,
        csv_href: parameters.address("/admin/quotas/table", &parameters.sort, ""),
        first_href: paged.then(|| parameters.address(PATH, &parameters.sort, "")),
        next_href: listed.next_cursor.map(|cursor| parameters.address(PATH, &parameters.sort, &cursor)),
        may_change: reader.is_admin() && admission.slurm_limits.is_none(),
    })
}

fn row(mut line: QuotaTableLine, limits: &Limits, capacity: Capacity, now: Timestamp) -> QuotaRow {
    let more_groups = line.groups.len().saturating_sub(MAX_GROUPS_SHOWN);
    line.groups.truncate(MAX_GROUPS_SHOWN);
    let mut sources: Vec<Source> = Vec::new();
    for field in SHOWN_FIELDS.iter().chain([&Field::MaxSessionSeconds]) {
        let effective = limits.of(field);
        let source = Source::of(&effective.source, now);
        if !matches!(effective.source, quota::Source::Default | quota::Source::Machine) && !sources.contains(&source) {
            sources.push(source);
        }
    }
    if sources.is_empty() {
        sources.push(Source { words: "default".to_owned(), until: None });
    }
    QuotaRow {
        name: line.name.to_string(),
        display_name: line.display_name,
        groups: line.groups,
        more_groups,
        meters: SHOWN_FIELDS.iter().map(|field| capped(field, &line.usage, limits.of(field), capacity)).collect(),
        sources,
        seen: line.last_seen_at.map(|at| Moment::ago(at, now)),
    }
}

/// A bar of a limit, which the machine's own size may lie below.
fn capped(field: &Field, usage: &Usage, effective: &Effective, capacity: Capacity) -> Meter {
    let machine = match field {
        Field::Gpus => Some(capacity.gpus),
        Field::Cpus => Some(capacity.cpus),
        Field::MemoryBytes => Some(capacity.memory_bytes),
        _ => None,
    };
    let limit = machine.map_or(effective.limit, |machine| Limit::AtMost(effective.limit.cap(machine)));
    let meter = meter(field, usage, &Effective { limit, source: effective.source.clone() });
    meter.unwrap_or_default()
}

/// A bar of what is used of a limit; none of what is no amount. Where cores are limited by the
/// machine alone, light sessions count nothing: they share what others leave idle.
pub(super) fn meter(field: &Field, usage: &Usage, effective: &Effective) -> Option<Meter> {
    let (name, label) = match field {
        Field::Gpus => ("gpus", "GPUs"),
        Field::GpusOf(model) => ("gpus", model.as_str()),
        Field::Cpus => ("cpus", "cores"),
        Field::MemoryBytes => ("memory_bytes", "memory"),
        Field::Sessions => ("sessions", "sessions"),
        Field::Light => ("light", "light sessions"),
        Field::Jobs => ("jobs", "jobs"),
        Field::Pending => ("pending", "queued"),
        Field::GpuHours => ("gpu_hours", "GPU-hours"),
        Field::CpuHours => ("cpu_hours", "core-hours"),
        Field::StorageBytes if usage.storage_bytes > 0 => ("storage_bytes", "storage"),
        _ => return None,
    };
    let lent = if *field == Field::Cpus && effective.is_the_machines() { usage.light_cpus } else { 0 };
    Some(Meter {
        field: name,
        label: label.to_owned(),
        used: usage.of(field) - lent,
        asked: 0,
        limit: match effective.limit {
            Limit::Unlimited => None,
            Limit::AtMost(limit) => Some(limit),
        },
        unit: if field.unit() == FieldUnit::Bytes { Unit::Bytes } else { Unit::Count },
        source: effective.source.to_string(),
    })
}

/// The table of the page as a file.
pub async fn download(
    _: Operator,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<TableParameters>,
) -> Result<Response> {
    let (filter, _) = known(parameters).filter()?;
    Ok(spreadsheet(portal, filter))
}

/// Streams all lines of a filter. A cell without a limit is empty.
fn spreadsheet(portal: Arc<Portal>, filter: TableFilter) -> Response {
    let fields =
        SHOWN_FIELDS.iter().flat_map(|field| [format!("{}_used", field.name()), format!("{}_limit", field.name())]);
    let head = ["user", "display_name", "groups"].map(str::to_owned).into_iter().chain(fields);
    let head = csv::line(head.chain(["limit_comes_from".to_owned(), "last_seen_at".to_owned()]));
    let limit = if matches!(filter.sort, Order::Gpus | Order::Hours) { STEP_BY_AMOUNT } else { STEP };
    let first = TableFilter { after: None, limit, ..filter };
    csv::download(portal, "quotas", head, first, async |portal, filter| {
        let lines = portal.sessions.admission.table(&filter).await?;
        let is_full = i64::try_from(lines.len()).is_ok_and(|count| count == filter.limit);
        let last = lines.last().filter(|_| is_full).map(|(line, _)| line.place(filter.sort));
        let next = last.map(|place| TableFilter { after: Some(place), ..filter });
        Ok((lines.iter().map(|(line, limits)| cells(line, limits)).collect(), next))
    })
}

fn cells(line: &QuotaTableLine, limits: &Limits) -> String {
    let number = |limit| match limit {
        Limit::Unlimited => String::new(),
        Limit::AtMost(limit) => limit.to_string(),
    };
    let amounts =
        SHOWN_FIELDS.iter().flat_map(|field| [line.usage.of(field).to_string(), number(limits.of(field).limit)]);
    let who = [line.name.to_string(), line.display_name.clone(), line.groups.join(" ")];
    let seen = line.last_seen_at.map(|at| at.to_string()).unwrap_or_default();
    csv::line(who.into_iter().chain(amounts).chain([limits.of(&Field::Gpus).source.to_string(), seen]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_were_written() {
        for (order, number, text) in [
            (Order::Name, 0, "ada"),
            (Order::NameDown, 0, "a.b-c"),
            (Order::Gpus, 4, "ada"),
            (Order::Hours, 7200, "ada"),
            (Order::Seen, -7, "id"),
        ] {
            let place = QuotaTablePosition { order, number, text: text.to_owned() };
            let read = Cursor(place.clone()).to_string().parse::<Cursor>();
            assert!(read.is_ok_and(|Cursor(read)| read == place));
        }
        for bad in ["", "name", "name 0", "name 0 ", "name 1 ada", "gpus x ada", "seen 1 a b", "gpus 1 a\0", "x 0 a"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad:?}");
        }
    }
}
