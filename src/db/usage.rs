//! Who used how much in a time: the overlap of every allocation with it, summed up by
//! person, by the group that was charged, or by GPU model; and what began and ended in each
//! span of a timeline, from which `model::timeline` tells what was used in it.

use std::{cmp::Reverse, collections::BTreeMap};

use sqlx::{AssertSqlSafe, FromRow, query_as};

use super::{Db, Json, Result, reading};
use crate::model::{
    Gpu, Timestamp, UserId,
    quota::Spent,
    timeline::{self, Moved, Span, Turnover},
};

/// By what use is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    User,
    Group,
    GpuModel,
}

/// Whose use is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Everybody,
    Person(UserId),
    /// What is charged to the groups that this person manages.
    ManagedBy(UserId),
}

/// Which use is asked for, and of which time.
#[derive(Clone, Debug)]
pub struct Asked {
    pub by: By,
    pub whose: Whose,
    pub from: Timestamp,
    pub to: Timestamp,
    /// What is held still counts until then.
    pub now: Timestamp,
    pub sort: Sort,
    /// A part of the list; models are so few that they always come all.
    pub page: Option<Page>,
}

/// The order of a list, the greatest first, but of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Name,
    Gpus,
    Cpus,
    Sessions,
}

/// So many, behind the last one of the page before: its amount and id, or 0 and its name where
/// they are in the order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub after: Option<(i64, String)>,
    pub limit: i64,
}

/// What somebody, a group or a model of GPUs was used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Of the person or group; a model's name.
    pub id: String,
    /// A person, a group or a model; empty where no group was charged, or it is gone.
    pub name: String,
    /// GPUs × milliseconds.
    pub gpu_milliseconds: i64,
    /// Cores × milliseconds; 0 by model.
    pub cpu_milliseconds: i64,
    /// How many allocations there were.
    pub sessions: i64,
}

/// A list of what was used, or a part of it, with what the whole of it comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedList {
    pub rows: Vec<Used>,
    /// How many rows there are in all. Where a page holds none, this and what follows is 0.
    pub count: i64,
    pub total: Spent,
    /// The most of each that one row has.
    pub most: Spent,
}

/// What was used in one span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedIn {
    pub span: Span,
    pub spent: Spent,
    /// How many allocations began in it.
    pub sessions: i64,
}

impl Whose {
    /// As a condition about `$3`, and what `$3` then is.
    fn condition(self) -> (&'static str, String) {
        match self {
            Self::Everybody => ("$3 = ''", String::new()),
            Self::Person(id) => ("owner = $3", id.to_string()),
            Self::ManagedBy(id) => {
                ("charged_group IN (SELECT group_id FROM group_managers WHERE user_id = $3)", id.to_string())
            }
        }
    }
}

/// Those that are held still are few, and have an index of their own. A sum beside it keeps a
/// planner without statistics from walking through everything that ever began (`started_at + 0`).
const OPEN: &str = "ended_at IS NULL";

/// The allocations between `$1` and `$2` with their part of that time (milliseconds); `$4` is
/// now. Those that ended and those that did not are looked up each by their own index.
fn parts(whose: Whose, columns: &str) -> String {
    let (whose, _) = whose.condition();
    let begins = "CASE WHEN started_at < $1 THEN $1 ELSE started_at END";
    let ends = |end: &str| format!("CASE WHEN {end} < $2 THEN {end} ELSE $2 END");
    let (ended, open) = (ends("ended_at"), ends("$4"));
    format!(
        "SELECT {columns}, ends - begins AS part FROM
             (SELECT {columns}, {ended} AS ends, {begins} AS begins FROM intervals
              WHERE ended_at > $1 AND started_at < $2 AND {whose}
              UNION ALL
              SELECT {columns}, {open} AS ends, {begins} AS begins FROM intervals
              WHERE {OPEN} AND started_at + 0 < $2 AND {whose}) AS held
         WHERE ends > begins"
    )
}

/// The text that sums up: `$1` to `$4` as above, `$5` and `$6` amount and id (or name) of the
/// row before, `$7` how many.
pub(super) fn sums(asked: &Asked) -> String {
    let key = match asked.by {
        By::User => "owner",
        By::Group => "charged_group",
        // One list of GPUs is given out again and again: there are far fewer of them than allocations.
        By::GpuModel => {
            let parts = parts(asked.whose, "gpus, gpu_list");
            let lists = format!(
                "SELECT gpu_list AS id, gpu_list AS name, CAST(SUM(part) AS BIGINT) AS gpu_time,
                     CAST(0 AS BIGINT) AS cpu_time, COUNT(*) AS sessions
                 FROM ({parts}) AS parts WHERE gpus > 0 AND $5 = 0 AND $6 = '' AND $7 > 0 GROUP BY gpu_list"
            );
            return format!("{} SELECT id, name, {AMOUNTS} FROM sums CROSS JOIN whole", with(&lists));
        }
    };
    let parts = parts(asked.whose, &format!("gpus, cpus, {key}"));
    let by_key = format!(
        "SELECT {key} AS id, CAST(SUM(gpus * part) AS BIGINT) AS gpu_time, CAST(SUM(cpus * part) AS BIGINT) AS cpu_time,
             COUNT(*) AS sessions FROM ({parts}) AS parts GROUP BY {key}"
    );
    let (after, order) = place(asked);
    if asked.by == By::User && asked.sort == Sort::Name {
        // People are gone through in the order of their names until the page is full.
        return format!(
            "{} SELECT users.id, name, {AMOUNTS} FROM users CROSS JOIN sums CROSS JOIN whole
             WHERE sums.id = users.id AND {after} ORDER BY {order} LIMIT $7",
            with(&by_key),
        );
    }
    if asked.by == By::User {
        // Only of those on the page the names are looked up.
        return format!(
            "{} SELECT top.id, users.name, {AMOUNTS}
             FROM (SELECT * FROM sums WHERE {after} ORDER BY {order} LIMIT $7) AS top
             CROSS JOIN whole JOIN users ON users.id = top.id ORDER BY {}",
            with(&by_key),
            order.replace(", id", ", top.id"),
        );
    }
    // Sessions that were charged to nobody, and those of groups that are gone, are one row.
    let named = format!(
        "SELECT COALESCE(groups.id, '') AS id, COALESCE(groups.name, '') AS name,
             CAST(SUM(gpu_time) AS BIGINT) AS gpu_time, CAST(SUM(cpu_time) AS BIGINT) AS cpu_time,
             CAST(SUM(sessions) AS BIGINT) AS sessions
         FROM ({by_key}) AS of_key LEFT JOIN groups ON groups.id = of_key.id
         GROUP BY COALESCE(groups.id, ''), COALESCE(groups.name, '')"
    );
    format!(
        "{} SELECT id, name, {AMOUNTS} FROM sums CROSS JOIN whole WHERE {after} ORDER BY {order} LIMIT $7",
        with(&named)
    )
}

/// `sums`, made once, and what they come to as `whole`.
fn with(sums: &str) -> String {
    format!(
        "WITH sums AS MATERIALIZED ({sums}),
             whole AS (SELECT COUNT(*) AS count, CAST(SUM(gpu_time) AS BIGINT) AS total_gpu_time,
                 CAST(SUM(cpu_time) AS BIGINT) AS total_cpu_time, MAX(gpu_time) AS most_gpu_time,
                 MAX(cpu_time) AS most_cpu_time FROM sums)"
    )
}

const AMOUNTS: &str =
    "gpu_time, cpu_time, sessions, count, total_gpu_time, total_cpu_time, most_gpu_time, most_cpu_time";

/// What lies behind the row before, and the order.
fn place(asked: &Asked) -> (&'static str, &'static str) {
    let (after, order) = match asked.sort {
        Sort::Name => ("$5 = 0 AND name > $6", "name"),
        Sort::Gpus => ("(gpu_time < $5 OR (gpu_time = $5 AND id > $6))", "gpu_time DESC, id"),
        Sort::Cpus => ("(cpu_time < $5 OR (cpu_time = $5 AND id > $6))", "cpu_time DESC, id"),
        Sort::Sessions => ("(sessions < $5 OR (sessions = $5 AND id > $6))", "sessions DESC, id"),
    };
    let is_first = asked.page.as_ref().is_none_or(|page| page.after.is_none());
    (if is_first { "$5 = 0 AND $6 = ''" } else { after }, order)
}

#[derive(FromRow)]
struct SumRow {
    id: String,
    name: String,
    gpu_time: i64,
    cpu_time: i64,
    sessions: i64,
    count: i64,
    total_gpu_time: i64,
    total_cpu_time: i64,
    most_gpu_time: i64,
    most_cpu_time: i64,
}

/// One row for each span with what began in it, and one with what ended; and one with what was
/// held when the first one began. The spans stand in the text: their bounds are our own numbers.
pub(super) fn turnovers(whose: Whose, spans: &[Span]) -> String {
    let (whose, _) = whose.condition();
    let spans: Vec<String> =
        spans.iter().enumerate().map(|(number, span)| format!("({number}, {}, {})", span.from.0, span.to.0)).collect();
    let moved = |kind: &str, at: &str| {
        format!(
            "SELECT '{kind}' AS kind, CAST(number AS BIGINT) AS number, COUNT(*) AS sessions,
                 CAST(SUM(gpus) AS BIGINT) AS gpus, CAST(SUM(cpus) AS BIGINT) AS cpus,
                 CAST(SUM(gpus * (upto - {at})) AS BIGINT) AS gpu_time,
                 CAST(SUM(cpus * (upto - {at})) AS BIGINT) AS cpu_time
             FROM spans CROSS JOIN intervals WHERE {at} >= since AND {at} < upto AND {whose} GROUP BY number"
        )
    };
    let held =
        |ended: &str| format!("SELECT gpus, cpus FROM intervals WHERE started_at + 0 < $1 AND {ended} AND {whose}");
    format!(
        "WITH spans (number, since, upto) AS (VALUES {}) {} UNION ALL {} UNION ALL
         SELECT 'held', CAST(0 AS BIGINT), COUNT(*), CAST(COALESCE(SUM(gpus), 0) AS BIGINT),
             CAST(COALESCE(SUM(cpus), 0) AS BIGINT), CAST(0 AS BIGINT), CAST($2 AS BIGINT)
         FROM ({} UNION ALL {}) AS held",
        spans.join(", "),
        moved("begun", "started_at"),
        moved("ended", "ended_at"),
        held("ended_at >= $1"),
        held(OPEN),
    )
}

#[derive(FromRow)]
struct TurnoverRow {
    kind: String,
    number: i64,
    sessions: i64,
    gpus: i64,
    cpus: i64,
    gpu_time: i64,
    cpu_time: i64,
}

impl Db {
    /// What was used, by name.
    pub async fn used(&self, asked: &Asked) -> Result<UsedList> {
        let sql = sums(asked);
        let (_, whose) = asked.whose.condition();
        let after = asked.page.as_ref().and_then(|page| page.after.clone());
        let limit = asked.page.as_ref().map_or(i64::MAX, |page| page.limit);
        let (amount, name) = after.unwrap_or_default();
        let rows: Vec<SumRow> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(asked.from.0).bind(asked.to.0).bind(&whose).bind(asked.now.0)
            .bind(amount).bind(&name).bind(limit)
            .fetch_all(pool).await)?;
        if asked.by == By::GpuModel { models(&rows, asked.sort) } else { Ok(list(rows)) }
    }

    /// What was used in each span. They follow one another, and none reaches beyond now, up to
    /// which what is held still counts.
    pub async fn used_in(&self, whose: Whose, spans: &[Span]) -> Result<Vec<UsedIn>> {
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return Ok(Vec::new()) };
        let sql = turnovers(whose, spans);
        let (_, whose) = whose.condition();
        let rows: Vec<TurnoverRow> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            // Each time has spans of its own: the text is not worth remembering.
            .persistent(false)
            .bind(first.from.0).bind(last.to.0).bind(&whose)
            .fetch_all(pool).await)?;
        let (mut gpus, mut cpus) = (0, 0);
        let mut turnovers = vec![Turnover::default(); spans.len()];
        let mut begun = vec![0; spans.len()];
        for row in rows {
            let number = usize::try_from(row.number).unwrap_or(usize::MAX);
            let rest = Spent { gpu_milliseconds: row.gpu_time, cpu_milliseconds: row.cpu_time };
            let moved = Moved { gpus: row.gpus, cpus: row.cpus, rest };
            match (row.kind.as_str(), turnovers.get_mut(number)) {
                ("begun", Some(turnover)) => (turnover.begun, begun[number]) = (moved, row.sessions),
                ("ended", Some(turnover)) => turnover.ended = moved,
                _ => (gpus, cpus) = (row.gpus, row.cpus),
            }
        }
        let spent = timeline::used(spans, gpus, cpus, &turnovers);
        let all = spans.iter().zip(spent).zip(begun);
        Ok(all.map(|((span, spent), sessions)| UsedIn { span: *span, spent, sessions }).collect())
    }
}

/// The rows as they came, with what each of them says of the whole.
fn list(rows: Vec<SumRow>) -> UsedList {
    let Some(first) = rows.first() else { return UsedList::default() };
    UsedList {
        count: first.count,
        total: Spent { gpu_milliseconds: first.total_gpu_time, cpu_milliseconds: first.total_cpu_time },
        most: Spent { gpu_milliseconds: first.most_gpu_time, cpu_milliseconds: first.most_cpu_time },
        rows: rows
            .into_iter()
            .map(|SumRow { id, name, gpu_time, cpu_time, sessions, .. }| Used {
                id,
                name,
                gpu_milliseconds: gpu_time,
                cpu_milliseconds: cpu_time,
                sessions,
            })
            .collect(),
    }
}

/// Sums by model from those by list of GPUs.
fn models(lists: &[SumRow], sort: Sort) -> Result<UsedList> {
    let mut used: BTreeMap<String, Used> = BTreeMap::new();
    for list in lists {
        add_models(&mut used, &Json::read::<Vec<Gpu>>(&list.name, "session's GPUs")?, list.gpu_time, list.sessions);
    }
    let mut rows: Vec<Used> = used.into_values().collect();
    match sort {
        Sort::Name | Sort::Cpus => {}
        Sort::Gpus => rows.sort_by_key(|row| Reverse(row.gpu_milliseconds)),
        Sort::Sessions => rows.sort_by_key(|row| Reverse(row.sessions)),
    }
    let spent = |gpu_milliseconds| Spent { gpu_milliseconds, cpu_milliseconds: 0 };
    Ok(UsedList {
        count: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        total: spent(rows.iter().fold(0, |sum, row| row.gpu_milliseconds.saturating_add(sum))),
        most: spent(rows.iter().map(|row| row.gpu_milliseconds).max().unwrap_or_default()),
        rows,
    })
}

/// Each GPU of a list was held so long; an allocation counts once for each model in it.
fn add_models(used: &mut BTreeMap<String, Used>, gpus: &[Gpu], milliseconds: i64, sessions: i64) {
    for (index, gpu) in gpus.iter().enumerate() {
        let model = || gpu.model.clone();
        let fresh = || Used { id: model(), name: model(), gpu_milliseconds: 0, cpu_milliseconds: 0, sessions: 0 };
        let row = used.entry(gpu.model.clone()).or_insert_with(fresh);
        row.gpu_milliseconds = row.gpu_milliseconds.saturating_add(milliseconds);
        let is_first = gpus[..index].iter().all(|other| other.model != gpu.model);
        row.sessions += if is_first { sessions } else { 0 };
    }
}
