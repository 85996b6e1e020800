//! Many people's limits and use at once, as the administrators' table shows them: which people
//! are on a page, what binds each of them, and what they hold and have spent. One person's,
//! with all that a decision needs, is `standing`'s; what is counted how is the same there.

use std::collections::{BTreeMap, HashMap};

use sqlx::{AssertSqlSafe, FromRow, query::QueryAs, query_as};

use super::{
    Db, Error, Json, Result,
    limits_and_usage::Amounts,
    people::places,
    quotas, reading,
    search::{Named, by_parts, pattern},
    types::parse,
};
use lyceum_model::{
    Timestamp, UserId, Username,
    quota::{LimitRow, Usage, Window},
};

/// Which people are on a page of the table.
#[derive(Clone, Debug, Default)]
pub struct TableFilter {
    /// A part of the name or the display name; empty for everybody.
    pub find: String,
    pub only: QuotaTableFilter,
    pub sort: Order,
    /// The last one of the page before.
    pub after: Option<QuotaTablePosition>,
    pub limit: i64,
}

/// Filters the quota table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaTableFilter {
    #[default]
    Everybody,
    /// Those with a limit of their own.
    Overridden,
    /// Those who hold something or wait.
    Active,
}

/// The order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Name,
    NameDown,
    /// Those first who hold most GPUs.
    Gpus,
    /// Those first who have used most GPU time of the period, counted to the end of what runs.
    Hours,
    /// Those first who were seen last.
    Seen,
}

/// Identifies a position in the sorted list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaTablePosition {
    pub order: Order,
    /// GPUs held, seconds of GPU time, or when they were seen; 0 in the order of names.
    pub number: i64,
    /// A name; in the order of last seen an id.
    pub text: String,
}

/// Describes one row of the quota table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaTableLine {
    pub id: UserId,
    pub name: Username,
    pub display_name: String,
    pub last_seen_at: Option<Timestamp>,
    /// The names of their groups, in order.
    pub groups: Vec<String>,
    /// What bears on their limits.
    pub limits: Vec<LimitRow>,
    /// What they hold, and their hours of the period; not counted by GPU model.
    pub usage: Usage,
}

impl QuotaTableLine {
    /// Its place in the table.
    #[must_use]
    pub fn place(&self, order: Order) -> QuotaTablePosition {
        let (number, text) = match order {
            Order::Name | Order::NameDown => (0, self.name.to_string()),
            Order::Gpus => (self.usage.gpus, self.name.to_string()),
            Order::Hours => (self.usage.gpu_seconds, self.name.to_string()),
            Order::Seen => (self.last_seen_at.unwrap_or_default().0, self.id.to_string()),
        };
        QuotaTablePosition { order, number, text }
    }
}

/// Sums up the cluster in one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterSummary {
    pub gpus_allocated: i64,
    pub waiting: i64,
    pub oldest_wait_since: Option<Timestamp>,
}

#[derive(FromRow)]
struct PersonRow {
    id: String,
    name: String,
    display_name: String,
    last_seen_at: Option<i64>,
}

#[derive(FromRow)]
struct LimitOf {
    user_id: String,
    #[sqlx(flatten)]
    limit: quotas::Row,
}

#[derive(FromRow)]
struct UsageByUser {
    owner: String,
    #[sqlx(flatten)]
    amounts: Amounts,
}

/// The text that lists: `$1` pattern, `$2` and `$3` the place after which it goes on, `$4` how
/// many, `$5` the expression of the few names where `is_few`; in the order of hours `$6` the seconds of each who used some. What is not asked for is not there, so
/// that an index serves the orders of names and of last seen.
pub(super) fn people(db: &Db, filter: &TableFilter, is_few: bool) -> String {
    let find = match filter.find.as_str() {
        "" => "$1 = ''",
        _ => "(name LIKE $1 ESCAPE '!' OR folded_display_name LIKE $1 ESCAPE '!')",
    };
    let find = format!("{find} {}", by_parts("users.id", Named::User, "$5", is_few));
    let only = match filter.only {
        QuotaTableFilter::Everybody => "",
        QuotaTableFilter::Overridden => "AND users.id IN (SELECT scope_id FROM quota_limits WHERE scope = 'user')",
        QuotaTableFilter::Active => {
            "AND users.id IN (SELECT owner FROM sessions WHERE state <> 'ended'
                 UNION ALL SELECT owner FROM intervals WHERE session_id IS NULL AND ended_at IS NULL)"
        }
    };
    let of_each = match (filter.sort, db) {
        (Order::Gpus, _) => Some(HELD),
        (Order::Hours, Db::Sqlite { .. }) => Some("SELECT key AS owner, value AS amount FROM json_each($6)"),
        (Order::Hours, Db::Postgres { .. }) => {
            Some("SELECT key AS owner, CAST(value AS BIGINT) AS amount FROM json_each_text(CAST($6 AS json))")
        }
        (Order::Name | Order::NameDown | Order::Seen, _) => None,
    };
    if let Some(of_each) = of_each {
        return by_amount(of_each, filter, &find, only);
    }
    let seen = "COALESCE(last_seen_at, 0)";
    let after = match (&filter.after, filter.sort) {
        (None, _) => "$2 = 0 AND $3 = ''".to_owned(),
        (Some(_), Order::NameDown) => "$2 = 0 AND name < $3".to_owned(),
        (Some(_), Order::Seen) => format!("{seen} <= $2 AND ({seen} < $2 OR id < $3)"),
        (Some(_), Order::Name | Order::Gpus | Order::Hours) => "$2 = 0 AND name > $3".to_owned(),
    };
    let order = match filter.sort {
        Order::Name | Order::Gpus | Order::Hours => "name".to_owned(),
        Order::NameDown => "name DESC".to_owned(),
        Order::Seen => format!("{seen} DESC, id DESC"),
    };
    format!(
        "SELECT id, name, display_name, last_seen_at FROM users WHERE {find} {only} AND {after} ORDER BY {order} LIMIT $4"
    )
}

/// Who holds GPUs, and how many.
const HELD: &str = "SELECT owner, CAST(SUM(gpus) AS BIGINT) AS amount FROM (
         SELECT owner, gpus FROM sessions WHERE state <> 'ended' AND admitted_at IS NOT NULL AND gpus > 0
         UNION ALL SELECT owner, gpus FROM intervals WHERE session_id IS NULL AND ended_at IS NULL AND gpus > 0
     ) AS parts GROUP BY owner";

/// In the order of an amount: the few who have some are sorted, and all others follow by their names, as an index has
/// them. `of_each` is who has how much.
fn by_amount(of_each: &str, filter: &TableFilter, find: &str, only: &str) -> String {
    let (of_holders, of_others) = match &filter.after {
        None => ("$2 = 0 AND $3 = ''", "$2 = 0 AND $3 = ''"),
        Some(place) => (
            "(held.amount < $2 OR (held.amount = $2 AND name > $3))",
            if 0 < place.number { "$2 > 0 AND $3 <> ''" } else { "$2 = 0 AND name > $3" },
        ),
    };
    let columns = "users.id AS id, name, display_name, last_seen_at";
    format!(
        "WITH held AS ({of_each})
         SELECT id, name, display_name, last_seen_at FROM (
             SELECT * FROM (SELECT {columns}, held.amount AS amount
                 FROM held JOIN users ON users.id = held.owner
                 WHERE {find} {only} AND {of_holders} ORDER BY held.amount DESC, name LIMIT $4) AS holders
             UNION ALL SELECT * FROM (SELECT {columns}, 0 AS amount FROM users
                 WHERE {find} {only} AND {of_others} AND users.id NOT IN (SELECT owner FROM held)
                 ORDER BY name LIMIT $4) AS others
         ) AS page ORDER BY amount DESC, name LIMIT $4"
    )
}

/// GPU time of the period (GPUs × milliseconds) of what people hold, counted to its end, as `held_by` counts it: `$1` now,
/// `$2` and `$3` the period.
pub(super) const RUNNING: &str = "SELECT owner, CAST(SUM(gpus * part) AS BIGINT) FROM (
         SELECT owner, gpus, CASE WHEN ends < $1 THEN $1 WHEN ends > $3 THEN $3 ELSE ends END
                 - CASE WHEN began < $2 THEN $2 ELSE began END AS part
             FROM (SELECT live.*, COALESCE(expires_at, began + duration_seconds * 1000) AS ends
                   FROM (SELECT s.owner, COALESCE(i.gpus, s.gpus) AS gpus, expires_at, duration_seconds,
                             COALESCE(i.started_at, $1) AS began
                         FROM sessions s LEFT JOIN intervals i ON i.session_id = s.id AND i.ended_at IS NULL
                         WHERE state <> 'ended' AND admitted_at IS NOT NULL AND s.gpus > 0
                         UNION ALL SELECT owner, gpus, ends_by, 0, started_at
                         FROM intervals WHERE session_id IS NULL AND ended_at IS NULL AND gpus > 0) AS live) AS running
         ) AS parts GROUP BY owner";

/// The rows that bear on each of some people; those of the default come once, for nobody.
pub(super) fn limits_of(people: &str) -> String {
    let (of_nobody, of_a_group) = (quotas::of_nobody!(), quotas::of_a_group!());
    format!(
        "SELECT '' AS user_id, {of_nobody}
             FROM quota_limits WHERE scope = 'default' AND scope_id = '' AND kind = 'each'
         UNION ALL SELECT scope_id AS user_id, {of_nobody}
             FROM quota_limits WHERE scope = 'user' AND kind = 'each' AND scope_id IN ({people})
         UNION ALL SELECT user_id, {of_a_group}
             WHERE user_id IN ({people})
         ORDER BY name, scope, field, kind"
    )
}

/// What some people hold, by whether it waits, as `standing::SUMS` and `FROM_SHELL` count it, a job from a
/// shell as a job without a time of its own where it may run for ever: then now, the
/// beginning and the end of the period.
pub(super) fn held_by(people: &str, first: usize) -> String {
    let (now, from, to) = (first, first + 1, first + 2);
    format!(
        "SELECT owner, admitted_at IS NULL AS waits, COUNT(*) AS count,
             CAST(SUM(gpus) AS BIGINT) AS gpus, CAST(SUM(cpus) AS BIGINT) AS cpus,
             CAST(SUM(memory_bytes) AS BIGINT) AS memory_bytes, SUM(CASE WHEN light THEN 1 ELSE 0 END) AS light,
             SUM(CASE WHEN job_id IS NOT NULL THEN 1 ELSE 0 END) AS jobs,
             CAST(SUM(CASE WHEN light THEN cpus ELSE 0 END) AS BIGINT) AS light_cpus,
             CAST(COALESCE(SUM(held_gpus * (ends - begins)), 0) AS BIGINT) AS gpu_time,
             CAST(COALESCE(SUM(held_cpus * (ends - begins)), 0) AS BIGINT) AS cpu_time
         FROM (SELECT owner, admitted_at, gpus, cpus, memory_bytes, light, job_id, held_gpus, held_cpus,
                   CASE WHEN ends < ${now} THEN ${now} WHEN ends > ${to} THEN ${to} ELSE ends END AS ends,
                   CASE WHEN began < ${from} THEN ${from} ELSE began END AS begins
               FROM (SELECT live.*, COALESCE(expires_at, began + duration_seconds * 1000) AS ends
                     FROM (SELECT s.owner, admitted_at, s.gpus, s.cpus, s.memory_bytes, light, job_id, expires_at,
                               duration_seconds, COALESCE(i.gpus, s.gpus) AS held_gpus,
                               COALESCE(i.cpus, s.cpus) AS held_cpus,
                               COALESCE(i.started_at, CASE WHEN admitted_at IS NOT NULL THEN ${now} END) AS began
                           FROM sessions s LEFT JOIN intervals i ON i.session_id = s.id AND i.ended_at IS NULL
                           WHERE state <> 'ended' AND s.owner IN ({people})
                           UNION ALL SELECT owner, started_at, gpus, cpus, memory_bytes, FALSE, '', ends_by,
                               0, gpus, cpus, started_at
                           FROM intervals WHERE session_id IS NULL AND ended_at IS NULL AND owner IN ({people})
                           ) AS live) AS ending) AS parts
         GROUP BY 1, 2"
    )
}

/// GPUs and cores × milliseconds of some people's allocations that ended in the period, which
/// began at the last parameter.
pub(super) fn closed_of(people: &str, from: usize) -> String {
    format!(
        "SELECT owner, CAST(COALESCE(SUM(gpus * part), 0) AS BIGINT), CAST(COALESCE(SUM(cpus * part), 0) AS BIGINT)
         FROM (SELECT owner, gpus, cpus, ended_at - CASE WHEN started_at < ${from} THEN ${from} ELSE started_at END AS part
               FROM intervals WHERE ended_at > ${from} AND owner IN ({people})) AS parts
         GROUP BY owner"
    )
}

fn groups_of(people: &str) -> String {
    format!(
        "SELECT DISTINCT user_id, name FROM group_members JOIN groups ON groups.id = group_id
         WHERE user_id IN ({people}) ORDER BY name"
    )
}

impl Db {
    /// One page of the table.
    pub async fn quota_table(
        &self,
        filter: &TableFilter,
        window: Window,
        at: Timestamp,
    ) -> Result<Vec<QuotaTableLine>> {
        let few = self.few_with_part(Named::User, &filter.find).await?;
        let (sql, find) = (people(self, filter, !few.is_empty()), pattern(&filter.find));
        let (number, text) = filter.after.as_ref().map_or((0, ""), |after| (after.number, after.text.as_str()));
        let end = window.to.map_or(i64::MAX, |to| to.0);
        let by_hours = match filter.sort {
            Order::Hours => Some(Json::write(&self.gpu_seconds(window, at).await?)),
            _ => None,
        };
        let rows: Vec<PersonRow> = reading!(self, pool => {
            let query = query_as(AssertSqlSafe(sql)).bind(&find).bind(number).bind(text).bind(filter.limit)
                .bind(&few);
            match by_hours {
                Some(seconds) => query.bind(seconds).fetch_all(pool).await,
                None => query.fetch_all(pool).await,
            }
        })?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let (ids, people) = (rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>(), places(rows.len()));
        let (limits, held) = (limits_of(&people), held_by(&people, ids.len() + 1));
        let (closed, groups) = (closed_of(&people, ids.len() + 1), groups_of(&people));
        let (limits, held, closed, groups) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let limits: Vec<LimitOf> = ids.iter().fold(query_as(AssertSqlSafe(limits)), QueryAs::bind)
                .fetch_all(&mut *tx).await?;
            let held: Vec<UsageByUser> = ids.iter().fold(query_as(AssertSqlSafe(held)), QueryAs::bind)
                .bind(at.0).bind(window.from.0).bind(end).fetch_all(&mut *tx).await?;
            let closed: Vec<(String, i64, i64)> = ids.iter().fold(query_as(AssertSqlSafe(closed)), QueryAs::bind)
                .bind(window.from.0).fetch_all(&mut *tx).await?;
            let groups: Vec<(String, String)> = ids.iter().fold(query_as(AssertSqlSafe(groups)), QueryAs::bind)
                .fetch_all(&mut *tx).await?;
            (limits, held, closed, groups)
        });
        let mut limits = by_person(limits.into_iter().map(|row| Ok((row.user_id, row.limit.limit()?))))?;
        let mut groups = by_person(groups.into_iter().map(Ok))?;
        let (mut usages, defaults) = (usages(held, closed), limits.remove("").unwrap_or_default());
        let line = |row: PersonRow| {
            let own = limits.remove(&row.id).unwrap_or_default();
            Ok(QuotaTableLine {
                id: parse(&row.id, "user id")?,
                name: Username::parse(&row.name).map_err(|_err| Error::Stored("user name"))?,
                display_name: row.display_name,
                last_seen_at: row.last_seen_at.map(Timestamp),
                groups: groups.remove(&row.id).unwrap_or_default(),
                limits: defaults.iter().cloned().chain(own).collect(),
                usage: usages.remove(&row.id).unwrap_or_default(),
            })
        };
        rows.into_iter().map(line).collect()
    }

    /// GPU time of the period (seconds, rounded up) by the ids of those who used some. What has ended is summed up in
    /// memory: it is the same for every page.
    async fn gpu_seconds(&self, window: Window, at: Timestamp) -> Result<BTreeMap<String, i64>> {
        let end = window.to.map_or(i64::MAX, |to| to.0);
        let running: Vec<(String, i64)> = reading!(self, pool => query_as(RUNNING)
            .bind(at.0).bind(window.from.0).bind(end).fetch_all(pool).await)?;
        let mut spent = self.ended_gpu_time(window.from).await?;
        for (owner, time) in running {
            let sum = spent.entry(owner).or_default();
            *sum = sum.saturating_add(time);
        }
        let used = spent.into_iter().filter(|(_, time)| *time > 0);
        Ok(used.map(|(owner, time)| (owner, time.saturating_add(999) / 1000)).collect())
    }

    /// The rows of the default, and those that bear on each person besides.
    pub async fn limits_of_everybody(&self) -> Result<(Vec<LimitRow>, HashMap<UserId, Vec<LimitRow>>)> {
        let sql = limits_of("SELECT id FROM users");
        let rows: Vec<LimitOf> = reading!(self, pool => query_as(AssertSqlSafe(sql)).fetch_all(pool).await)?;
        let mut limits = by_person(rows.into_iter().map(|row| Ok((row.user_id, row.limit.limit()?))))?;
        let defaults = limits.remove("").unwrap_or_default();
        let own = limits.into_iter().map(|(user, rows)| Ok((parse(&user, "user id")?, rows)));
        Ok((defaults, own.collect::<Result<_>>()?))
    }

    /// What is allocated and who waits, over all.
    pub async fn quota_strip(&self) -> Result<ClusterSummary> {
        let (gpus_allocated, waiting, oldest): (i64, i64, Option<i64>) = reading!(self, pool => query_as(STRIP)
            .fetch_one(pool).await)?;
        Ok(ClusterSummary { gpus_allocated, waiting, oldest_wait_since: oldest.map(Timestamp) })
    }
}

pub(super) const STRIP: &str = "SELECT CAST(COALESCE(SUM(CASE WHEN admitted_at IS NOT NULL THEN gpus ELSE 0 END), 0)
             + (SELECT COALESCE(SUM(gpus), 0) FROM intervals WHERE session_id IS NULL AND ended_at IS NULL) AS BIGINT),
         CAST(COALESCE(SUM(CASE WHEN admitted_at IS NULL THEN 1 ELSE 0 END), 0) AS BIGINT),
         MIN(CASE WHEN admitted_at IS NULL THEN created_at END)
     FROM sessions WHERE state <> 'ended'";

fn by_person<T>(rows: impl Iterator<Item = Result<(String, T)>>) -> Result<HashMap<String, Vec<T>>> {
    let mut found = HashMap::<String, Vec<T>>::new();
    for row in rows {
        let (person, thing) = row?;
        found.entry(person).or_default().push(thing);
    }
    Ok(found)
}

/// What is held, and the hours of what has ended and of what runs, rounded up to seconds.
fn usages(held: Vec<UsageByUser>, closed: Vec<(String, i64, i64)>) -> HashMap<String, Usage> {
    let mut spent: HashMap<String, (i64, i64)> =
        closed.into_iter().map(|(owner, gpus, cpus)| (owner, (gpus, cpus))).collect();
    let mut usages: HashMap<String, Usage> = HashMap::new();
    for row in held {
        let usage = usages.entry(row.owner.clone()).or_default();
        row.amounts.add_to(usage, spent.entry(row.owner).or_default());
    }
    for (owner, (gpus, cpus)) in spent {
        let usage = usages.entry(owner).or_default();
        usage.gpu_seconds = gpus.saturating_add(999) / 1000;
        usage.cpu_seconds = cpus.saturating_add(999) / 1000;
    }
    usages
}
