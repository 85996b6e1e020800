//! What somebody's limits and use are now, for those who look and for those who decide: the
//! rows that bind them, and sums of what they, the group they charge and everybody hold. The
//! database sums up; what hours of a period are is `model::quota`'s rule, said in SQL here.

use sqlx::{FromRow, query_as};

use super::{Db, Json, Result, quotas, reading};
use crate::model::{
    Gpu, GroupId, Timestamp, UserId,
    quota::{Field, Limit, LimitRow, Period, Total, Usage, Whose, Window},
};

/// Who asks, and what hours are counted in.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub owner: UserId,
    /// Which group is charged; a session that waits already has its own.
    pub group: Option<GroupId>,
    pub period: &'a Period,
    /// What is admitted is held from then on; else from when the scheduler's own queue gives it.
    pub holds_at_once: bool,
}

/// Limits and use at one moment.
#[derive(Clone, Debug)]
pub struct Sums {
    pub at: Timestamp,
    /// The period that hours are counted in.
    pub window: Window,
    pub limits: Vec<LimitRow>,
    /// The person's own live, admitted workloads, and how many of theirs wait.
    pub usage: Usage,
    /// Of all together, and of the group that is charged: what is limited, and what is used.
    pub totals: Vec<Total>,
    /// Everybody's.
    pub in_use: Usage,
}

/// What binds somebody, and what was spent of hours by workloads that have ended, and by what runs without
/// the portal.
#[derive(Debug)]
pub(super) struct Bounds {
    pub limits: Vec<quotas::Row>,
    pub totals: Vec<quotas::TotalRow>,
    pub group_name: Option<String>,
    /// GPUs and cores × milliseconds of the period: the person's, the group's, everybody's.
    pub besides: [(i64, i64); 3],
}

/// GPUs and cores × milliseconds of the allocations that ended after `$1`, counted from then on.
macro_rules! closed {
    ($whose:literal) => {
        concat!(
            "SELECT CAST(COALESCE(SUM(gpus * part), 0) AS BIGINT), CAST(COALESCE(SUM(cpus * part), 0) AS BIGINT)
             FROM (SELECT gpus, cpus, ended_at - CASE WHEN started_at < $1 THEN $1 ELSE started_at END AS part
                   FROM intervals WHERE ended_at > $1",
            $whose,
            ") AS parts"
        )
    };
}
pub(super) const CLOSED_OF_PERSON: &str = closed!(" AND owner = $2");
pub(super) const CLOSED_OF_GROUP: &str = closed!(" AND charged_group = $2");
pub(super) const CLOSED: &str = closed!("");

/// The same of jobs from a shell that run: `$1`'s and the others', those charged to `$2` and the others. As
/// with sessions they count from `$4` to their end, `$5` at most; one that may run for ever up to `$3`, now.
pub(super) const FROM_SHELL: &str = "SELECT owner = $1, COALESCE(charged_group, '') = $2,
         CAST(SUM(gpus * (ends - begins)) AS BIGINT), CAST(SUM(cpus * (ends - begins)) AS BIGINT)
     FROM (SELECT owner, charged_group, gpus, cpus, CASE WHEN started_at < $4 THEN $4 ELSE started_at END AS begins,
               CASE WHEN COALESCE(ends_by, $3) < $3 THEN $3 WHEN ends_by > $5 THEN $5 ELSE COALESCE(ends_by, $3) END AS ends
           FROM intervals WHERE session_id IS NULL AND ended_at IS NULL) AS parts
     WHERE begins < ends GROUP BY 1, 2";

/// Reads what binds `$owner` while they charge `$group` (or ""). Hours are summed up where
/// somebody limits them, and the person's own where `$always`.
macro_rules! bounds {
    ($tx:ident, $owner:expr, $group:expr, $window:expr, $at:expr, $always:expr) => {{
        use $crate::db::{quotas, standing};
        let limits: Vec<quotas::Row> = sqlx::query_as(quotas::OF_PERSON).bind($owner).fetch_all(&mut *$tx).await?;
        let totals: Vec<quotas::TotalRow> =
            sqlx::query_as(quotas::TOTALS).bind($group).bind($at.0).fetch_all(&mut *$tx).await?;
        let group_name: Option<(String,)> = match $group {
            "" => None,
            group => sqlx::query_as(quotas::GROUP_NAME).bind(group).fetch_optional(&mut *$tx).await?,
        };
        let counted = |scope: &str| totals.iter().any(|row| row.scope == scope && quotas::counts_hours(&row.field));
        let from = $window.from.0;
        let (mut of_person, mut of_group, mut of_all) = ((0_i64, 0_i64), (0_i64, 0_i64), (0_i64, 0_i64));
        let counts_own = $always || limits.iter().any(|row| quotas::counts_hours(&row.field));
        if counts_own {
            of_person = sqlx::query_as(standing::CLOSED_OF_PERSON).bind(from).bind($owner).fetch_one(&mut *$tx).await?;
        }
        if counted("group") {
            of_group = sqlx::query_as(standing::CLOSED_OF_GROUP).bind(from).bind($group).fetch_one(&mut *$tx).await?;
        }
        if counted("cluster") {
            of_all = sqlx::query_as(standing::CLOSED).bind(from).fetch_one(&mut *$tx).await?;
        }
        let end = $window.to.map_or(i64::MAX, |to| to.0);
        let mut from_shell: Vec<(bool, bool, i64, i64)> = Vec::new();
        if counts_own || counted("group") || counted("cluster") {
            from_shell = sqlx::query_as(standing::FROM_SHELL)
                .bind($owner)
                .bind($group)
                .bind($at.0)
                .bind(from)
                .bind(end)
                .fetch_all(&mut *$tx)
                .await?;
        }
        let mut besides = [of_person, of_group, of_all];
        for (own, charged, gpus, cpus) in from_shell {
            let counts = [own, charged && !$group.is_empty(), true];
            for (_, sum) in counts.into_iter().zip(&mut besides).filter(|(counts, _)| *counts) {
                *sum = (sum.0.saturating_add(gpus), sum.1.saturating_add(cpus));
            }
        }
        let group_name = group_name.map(|(name,)| name);
        standing::Bounds { limits, totals, group_name, besides }
    }};
}
pub(super) use bounds;

/// Sums over the live sessions: `$1`'s and the others', those charged to `$2` and the others,
/// those that wait and those that were admitted. Of what is held, the part between `$4` and
/// `$5` counts to its end, and to `$3` (now) at least, as [`Window::spent`] says; what is not held
/// yet counts as if it began now.
pub(super) const SUMS: &str = "SELECT owner = $1 AS own, COALESCE(charged_group, '') = $2 AS charged,
         admitted_at IS NULL AS waits, COUNT(*) AS count,
         CAST(SUM(gpus) AS BIGINT) AS gpus, CAST(SUM(cpus) AS BIGINT) AS cpus,
         CAST(SUM(memory_bytes) AS BIGINT) AS memory_bytes, SUM(CASE WHEN light THEN 1 ELSE 0 END) AS light,
         SUM(CASE WHEN job_id IS NOT NULL THEN 1 ELSE 0 END) AS jobs,
         CAST(SUM(CASE WHEN light THEN cpus ELSE 0 END) AS BIGINT) AS light_cpus,
         CAST(COALESCE(SUM(held_gpus * (ends - begins)), 0) AS BIGINT) AS gpu_time,
         CAST(COALESCE(SUM(held_cpus * (ends - begins)), 0) AS BIGINT) AS cpu_time
     FROM (SELECT owner, charged_group, admitted_at, gpus, cpus, memory_bytes, light, job_id, held_gpus, held_cpus,
               CASE WHEN ends < $3 THEN $3 WHEN ends > $5 THEN $5 ELSE ends END AS ends,
               CASE WHEN began < $4 THEN $4 ELSE began END AS begins
           FROM (SELECT live.*, COALESCE(expires_at, began + duration_seconds * 1000) AS ends
                 FROM (SELECT s.owner, s.charged_group, admitted_at, s.gpus, s.cpus, s.memory_bytes, light, job_id,
                           expires_at, duration_seconds,
                           COALESCE(i.gpus, s.gpus) AS held_gpus, COALESCE(i.cpus, s.cpus) AS held_cpus,
                           COALESCE(i.started_at, CASE WHEN admitted_at IS NOT NULL THEN $3 END) AS began
                       FROM sessions s LEFT JOIN intervals i ON i.session_id = s.id AND i.ended_at IS NULL
                       WHERE state <> 'ended') AS live) AS ending) AS parts
     GROUP BY 1, 2, 3";

#[derive(FromRow)]
struct Sum {
    own: bool,
    charged: bool,
    #[sqlx(flatten)]
    amounts: Amounts,
}

/// Live sessions that all wait or all do not, summed up.
#[derive(FromRow)]
pub(super) struct Amounts {
    waits: bool,
    count: i64,
    gpus: i64,
    cpus: i64,
    memory_bytes: i64,
    light: i64,
    jobs: i64,
    light_cpus: i64,
    gpu_time: i64,
    cpu_time: i64,
}

impl Amounts {
    /// Counts them: what they hold, and in `spent` the GPUs and cores × milliseconds of it that
    /// fall into the period.
    pub(super) fn add_to(&self, usage: &mut Usage, spent: &mut (i64, i64)) {
        if self.waits {
            usage.pending += self.count;
            return;
        }
        usage.gpus += self.gpus;
        usage.cpus += self.cpus;
        usage.light_cpus += self.light_cpus;
        usage.memory_bytes += self.memory_bytes;
        usage.light += self.light;
        usage.jobs += self.jobs;
        usage.sessions += self.count - self.light - self.jobs;
        *spent = (spent.0.saturating_add(self.gpu_time), spent.1.saturating_add(self.cpu_time));
    }
}

/// Who holds them, who is charged, and the list.
type GpusHeld = (String, Option<String>, String);

/// Which GPUs are held: `$1`'s alone, or everybody's.
pub(super) const GPUS_OF_PERSON: &str = "SELECT owner, charged_group, gpu_list FROM sessions
     WHERE state <> 'ended' AND admitted_at IS NOT NULL AND gpus > 0 AND owner = $1";
const GPUS: &str = "SELECT owner, charged_group, gpu_list FROM sessions
     WHERE state <> 'ended' AND admitted_at IS NOT NULL AND gpus > 0";

impl Db {
    /// Somebody's limits and what bears on them now.
    pub async fn usage(&self, asking: &Asking<'_>, at: Timestamp) -> Result<Sums> {
        let owner = &*asking.owner.to_string();
        let group = &*asking.group.map(|group| group.to_string()).unwrap_or_default();
        let window = asking.period.window(at);
        let (bounds, sums, by_model, gpus) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let bounds = bounds!(tx, owner, group, window, at, true);
            let end = window.to.map_or(i64::MAX, |to| to.0);
            let sums: Vec<Sum> = query_as(SUMS).bind(owner).bind(group).bind(at.0).bind(window.from.0).bind(end)
                .fetch_all(&mut *tx).await?;
            let by_model = bounds.totals.iter().any(|row| row.field.starts_with("gpus:"));
            let gpus: Vec<GpusHeld> = if by_model {
                query_as(GPUS).fetch_all(&mut *tx).await?
            } else {
                query_as(GPUS_OF_PERSON).bind(owner).fetch_all(&mut *tx).await?
            };
            (bounds, sums, by_model, gpus)
        });
        let mut usages: [Usage; 3] = Default::default();
        let mut open = [(0_i64, 0_i64); 3];
        for sum in sums {
            let counts = [sum.own, sum.charged && !group.is_empty(), true];
            for ((_, usage), open) in
                counts.into_iter().zip(&mut usages).zip(&mut open).filter(|((counts, _), _)| *counts)
            {
                sum.amounts.add_to(usage, open);
            }
        }
        for (holder, charged, list) in gpus {
            // Of others' GPUs the models are counted only where somebody limits them.
            let counts =
                [holder == owner, by_model && !group.is_empty() && charged.as_deref() == Some(group), by_model];
            let list: Vec<Gpu> = Json::read_or_default(&list);
            for (_, usage) in counts.into_iter().zip(&mut usages).filter(|(counts, _)| *counts) {
                usage.hold(&list);
            }
        }
        bounds.sums(at, window, usages, open)
    }
}

impl Bounds {
    /// With what is held: the person's, the group's, everybody's, and the GPUs and cores ×
    /// milliseconds of it that fall into the period.
    pub(super) fn sums(
        &self,
        at: Timestamp,
        window: Window,
        usages: [Usage; 3],
        open: [(i64, i64); 3],
    ) -> Result<Sums> {
        let seconds = |open: i64, besides: i64| open.saturating_add(besides).saturating_add(999) / 1000;
        let mut usages = usages;
        for ((usage, open), besides) in usages.iter_mut().zip(open).zip(self.besides) {
            usage.gpu_seconds = seconds(open.0, besides.0);
            usage.cpu_seconds = seconds(open.1, besides.1);
        }
        let [usage, of_group, in_use] = usages;
        let group = self.group_name.clone().map(|name| (Whose::Group(name), of_group));
        let both = group.into_iter().chain([(Whose::Cluster, in_use.clone())]);
        Ok(Sums {
            at,
            window,
            limits: self.limits.iter().map(quotas::Row::limit).collect::<Result<_>>()?,
            usage,
            totals: both.map(|(whose, usage)| total(whose, usage, &self.totals)).collect::<Result<_>>()?,
            in_use,
        })
    }
}

fn total(whose: Whose, usage: Usage, rows: &[quotas::TotalRow]) -> Result<Total> {
    let scope = if whose == Whose::Cluster { "cluster" } else { "group" };
    let rows = rows.iter().filter(|row| row.scope == scope);
    let limits: Vec<(Field, Limit)> = rows.map(quotas::TotalRow::limit).collect::<Result<_>>()?;
    Ok(Total { whose, limits, usage })
}
