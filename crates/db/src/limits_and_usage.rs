//! What somebody's limits and use are now, for those who look and for those who decide: the
//! rows that bind them, and sums of what they, the group they charge and everybody hold. The
//! database sums up; what hours of a period are is `model::quota`'s rule, said in SQL here.

use std::sync::Arc;

use sqlx::{FromRow, query_as};

use super::{
    Db, Json, Result,
    counted_groups::{CountedGroups, session_counts, together},
    quotas, reading,
    tx::Tx,
    types::parse,
};
use lyceum_model::{
    Gpu, GroupId, Timestamp, UserId,
    quota::{Field, Limit, LimitRow, Period, Total, TotalScope, Usage, Window},
};

/// Identifies the requesting user and the period of hours.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    pub owner: UserId,
    /// Which group is charged; a session that waits already has its own.
    pub group: Option<GroupId>,
    pub period: &'a Period,
    /// What is admitted is held from then on; else from when the scheduler's own queue gives it.
    pub holds_at_once: bool,
}

/// Holds a user's limits and usage at one moment.
#[derive(Clone, Debug)]
pub struct LimitsAndUsage {
    pub at: Timestamp,
    /// The period that hours are counted in.
    pub window: Window,
    pub limits: Vec<LimitRow>,
    /// The person's own live, admitted workloads, and how many of theirs wait.
    pub usage: Usage,
    /// Of the groups in which it counts, and of all together: what is limited, and what is used.
    pub totals: Vec<Total>,
    /// Everybody's.
    pub in_use: Usage,
    /// In which groups what people hold counts, whatever it is charged to.
    pub together: Arc<CountedGroups>,
}

/// What binds somebody, and what was spent of hours by workloads that have ended, and by what runs without
/// the portal.
#[derive(Debug)]
pub(super) struct Bounds {
    pub limits: Vec<quotas::Row>,
    /// The groups in whose totals a request counts.
    pub groups: Vec<BoundGroup>,
    /// What all people may use together.
    pub cluster: Vec<(Field, Limit)>,
    /// GPUs and cores × milliseconds of the period: the person's, and everybody's.
    pub of_person: (i64, i64),
    pub of_all: (i64, i64),
}

/// A group whose totals bind.
#[derive(Clone, Debug)]
pub(super) struct BoundGroup {
    pub id: GroupId,
    pub name: String,
    pub is_charged: bool,
    pub totals: Vec<(Field, Limit)>,
    /// As in [`Bounds`].
    pub besides: (i64, i64),
}

/// What is held now, and the GPUs and cores × milliseconds of it that fall into the period.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldUsage {
    pub usage: Usage,
    pub spent: (i64, i64),
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
/// Of a group in which what is charged to it counts.
pub(super) const CLOSED_OF_GROUP: &str = closed!(" AND charged_group = $2");
/// Of a group in which its members count, as `together` says.
pub(super) const CLOSED_OF_MEMBERS: &str = closed!(
    " AND (charged_group = $2 OR owner IN (SELECT user_id FROM group_members WHERE group_id = $2)
         OR session_id IN (SELECT session_id FROM counted_sessions WHERE group_id = $2))"
);
pub(super) const CLOSED: &str = closed!("");

/// The same of jobs from a shell that run, by whose they are and by the group that is charged. As
/// with sessions they count from `$2` to their end, `$3` at most; one that may run for ever up to `$1`, now.
pub(super) const FROM_SHELL: &str = "SELECT owner, COALESCE(charged_group, ''),
         CAST(SUM(gpus * (ends - begins)) AS BIGINT), CAST(SUM(cpus * (ends - begins)) AS BIGINT)
     FROM (SELECT owner, charged_group, gpus, cpus, CASE WHEN started_at < $2 THEN $2 ELSE started_at END AS begins,
               CASE WHEN COALESCE(ends_by, $1) < $1 THEN $1 WHEN ends_by > $3 THEN $3 ELSE COALESCE(ends_by, $1) END AS ends
           FROM intervals WHERE session_id IS NULL AND ended_at IS NULL) AS parts
     WHERE begins < ends GROUP BY 1, 2";

/// What is read of a user's limits, and as of when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding<'a> {
    pub owner: &'a str,
    /// The group that is charged, and all in which the request counts.
    pub charged: Option<GroupId>,
    pub groups: &'a [GroupId],
    /// Read in the same transaction.
    pub totals: &'a [quotas::ShareRow],
    pub together: &'a CountedGroups,
    pub window: Window,
    pub at: Timestamp,
    /// Whether hours are summed up even if no limit applies to them: the user's own, and those of groups.
    pub own_hours: bool,
    pub group_hours: bool,
}

/// Reads what binds a user. Hours are summed up where somebody limits them, and where the caller asks for them.
pub(super) async fn bounds(tx: impl Into<Tx<'_>>, binding: Binding<'_>) -> Result<Bounds> {
    let mut tx = tx.into();
    let Binding { owner, totals, window, .. } = binding;
    let limits: Vec<quotas::Row> = tx.query(quotas::OF_PERSON).bind(owner).all().await?;
    let from = window.from.0;
    let (mut of_person, mut of_all) = ((0_i64, 0_i64), (0_i64, 0_i64));
    let counts_own = binding.own_hours || limits.iter().any(|row| quotas::counts_hours(&row.field));
    let counts_all = totals.iter().any(|row| row.is_of(None) && row.counts_hours());
    if counts_own {
        of_person = tx.query(CLOSED_OF_PERSON).bind(from).bind(owner).one().await?;
    }
    if counts_all {
        of_all = tx.query(CLOSED).bind(from).one().await?;
    }
    let (mut groups, mut counts_some) = (Vec::new(), counts_own || counts_all);
    for id in binding.groups {
        let text = id.to_string();
        let row: Option<(String, bool)> = tx.query(quotas::GROUP_COUNTS).bind(&text).first().await?;
        let Some((name, chargeable)) = row else { continue };
        let mut besides = (0_i64, 0_i64);
        if binding.group_hours || totals.iter().any(|row| row.is_of(Some(&text)) && row.counts_hours()) {
            counts_some = true;
            let sql = if chargeable { CLOSED_OF_GROUP } else { CLOSED_OF_MEMBERS };
            besides = tx.query(sql).bind(from).bind(&text).one().await?;
        }
        let limits = totals.iter().filter(|row| row.is_of(Some(&text))).map(quotas::ShareRow::limit);
        let (totals, is_charged) = (limits.collect::<Result<_>>()?, binding.charged == Some(*id));
        groups.push(BoundGroup { id: *id, name, is_charged, totals, besides });
    }
    let mut from_shell: Vec<FromShell> = Vec::new();
    if counts_some {
        let end = window.to.map_or(i64::MAX, |to| to.0);
        from_shell = tx.query(FROM_SHELL).bind(binding.at.0).bind(from).bind(end).all().await?;
    }
    let mut bounds = Bounds { limits, groups, cluster: of_cluster(totals)?, of_person, of_all };
    bounds.add_from_shell(owner, &from_shell, binding.together)?;
    Ok(bounds)
}

/// Whose jobs from a shell, which group is charged, and GPUs and cores × milliseconds.
pub(super) type FromShell = (String, String, i64, i64);

/// What all people may use together.
pub(super) fn of_cluster(totals: &[quotas::ShareRow]) -> Result<Vec<(Field, Limit)>> {
    totals.iter().filter(|row| row.is_of(None)).map(quotas::ShareRow::limit).collect()
}

/// Sums over the live sessions: `$1`'s and the others', those that wait and those that were admitted. Of
/// what is held, the part between `$3` and `$4` counts to its end, and to `$2` (now) at least, as
/// [`Window::spent`] says; what is not held yet counts as if it began now.
macro_rules! sums {
    ($which:expr) => {
        concat!(
            "SELECT owner = $1 AS own,
         admitted_at IS NULL AS waits, COUNT(*) AS count,
         CAST(SUM(gpus) AS BIGINT) AS gpus, CAST(SUM(cpus) AS BIGINT) AS cpus,
         CAST(SUM(memory_bytes) AS BIGINT) AS memory_bytes, SUM(CASE WHEN light THEN 1 ELSE 0 END) AS light,
         SUM(CASE WHEN job_id IS NOT NULL THEN 1 ELSE 0 END) AS jobs,
         CAST(SUM(CASE WHEN light THEN cpus ELSE 0 END) AS BIGINT) AS light_cpus,
         CAST(COALESCE(SUM(held_gpus * (ends - begins)), 0) AS BIGINT) AS gpu_time,
         CAST(COALESCE(SUM(held_cpus * (ends - begins)), 0) AS BIGINT) AS cpu_time
     FROM (SELECT owner, admitted_at, gpus, cpus, memory_bytes, light, job_id, held_gpus, held_cpus,
               CASE WHEN ends < $2 THEN $2 WHEN ends > $4 THEN $4 ELSE ends END AS ends,
               CASE WHEN began < $3 THEN $3 ELSE began END AS begins
           FROM (SELECT live.*, COALESCE(expires_at, began + duration_seconds * 1000) AS ends
                 FROM (SELECT s.owner, admitted_at, s.gpus, s.cpus, s.memory_bytes, light, job_id,
                           expires_at, duration_seconds,
                           COALESCE(i.gpus, s.gpus) AS held_gpus, COALESCE(i.cpus, s.cpus) AS held_cpus,
                           COALESCE(i.started_at, CASE WHEN admitted_at IS NOT NULL THEN $2 END) AS began
                       FROM sessions s LEFT JOIN intervals i ON i.session_id = s.id AND i.ended_at IS NULL
                       WHERE state <> 'ended'",
            $which,
            ") AS live) AS ending) AS parts
     GROUP BY 1, 2"
        )
    };
}
pub(super) const SUMS: &str = sums!("");
/// The same of those that count in the group `$1`.
pub(super) const SUMS_OF_GROUP: &str = sums!(concat!(" AND ", session_counts!()));

#[derive(FromRow)]
struct Sum {
    own: bool,
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

/// Who holds them, and the list.
type GpusHeld = (String, String);

/// Which GPUs are held: `$1`'s alone, those that count in the group `$1`, or everybody's.
pub(super) const GPUS_OF_PERSON: &str = "SELECT owner, gpu_list FROM sessions
     WHERE state <> 'ended' AND admitted_at IS NOT NULL AND gpus > 0 AND owner = $1";
const GPUS_OF_GROUP: &str = concat!(
    "SELECT owner, gpu_list FROM sessions s WHERE state <> 'ended' AND admitted_at IS NOT NULL AND gpus > 0 AND ",
    session_counts!()
);
const GPUS: &str = "SELECT owner, gpu_list FROM sessions
     WHERE state <> 'ended' AND admitted_at IS NOT NULL AND gpus > 0";

impl Db {
    /// Holds a user's limits with the usage that counts against them.
    pub async fn usage(&self, asking: &Requester<'_>, at: Timestamp) -> Result<LimitsAndUsage> {
        Box::pin(self.sums(asking, at, false)).await
    }

    /// The same, with the hours of groups also where nobody limits them.
    pub async fn usage_with_hours(&self, asking: &Requester<'_>, at: Timestamp) -> Result<LimitsAndUsage> {
        Box::pin(self.sums(asking, at, true)).await
    }

    async fn sums(&self, asking: &Requester<'_>, at: Timestamp, with_hours: bool) -> Result<LimitsAndUsage> {
        let owner = &*asking.owner.to_string();
        let window = asking.period.window(at);
        let end = window.to.map_or(i64::MAX, |to| to.0);
        let limits_a_model =
            |limits: &[(Field, Limit)]| limits.iter().any(|(field, _)| matches!(field, Field::GpusOf(_)));
        let (bounds, together, sums, of_groups, gpus) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let totals: Vec<quotas::ShareRow> = query_as(quotas::SHARES).bind(at.0).fetch_all(&mut *tx).await?;
            let together = together(&mut *tx, owner).await?;
            let groups = together.groups(asking.owner, asking.group, None);
            let binding = Binding {
                owner, charged: asking.group, groups: &groups, totals: &totals, together: &together, window, at,
                own_hours: true, group_hours: with_hours,
            };
            let bounds = bounds(&mut *tx, binding).await?;
            let sums: Vec<Sum> = query_as(SUMS).bind(owner).bind(at.0).bind(window.from.0).bind(end)
                .fetch_all(&mut *tx).await?;
            let mut of_groups = Vec::with_capacity(bounds.groups.len());
            for group in &bounds.groups {
                let id = group.id.to_string();
                let sums: Vec<Sum> = query_as(SUMS_OF_GROUP).bind(&id).bind(at.0).bind(window.from.0).bind(end)
                    .fetch_all(&mut *tx).await?;
                // The models are counted only where somebody limits them.
                let gpus: Vec<GpusHeld> = if limits_a_model(&group.totals) {
                    query_as(GPUS_OF_GROUP).bind(&id).fetch_all(&mut *tx).await?
                } else {
                    Vec::new()
                };
                of_groups.push((sums, gpus));
            }
            let gpus: Vec<GpusHeld> = if limits_a_model(&bounds.cluster) {
                query_as(GPUS).fetch_all(&mut *tx).await?
            } else {
                query_as(GPUS_OF_PERSON).bind(owner).fetch_all(&mut *tx).await?
            };
            (bounds, together, sums, of_groups, gpus)
        });
        let read = Json::read_or_default::<Vec<Gpu>>;
        let (mut own, mut all) = (HeldUsage::default(), HeldUsage::default());
        for sum in sums {
            for (_, tally) in [(sum.own, &mut own), (true, &mut all)].into_iter().filter(|(counts, _)| *counts) {
                sum.amounts.add_to(&mut tally.usage, &mut tally.spent);
            }
        }
        for (holder, list) in gpus {
            let list = read(&list);
            if holder == owner {
                own.usage.hold(&list);
            }
            if limits_a_model(&bounds.cluster) {
                all.usage.hold(&list);
            }
        }
        let mut groups = Vec::with_capacity(of_groups.len());
        for (sums, gpus) in of_groups {
            let mut tally = HeldUsage::default();
            for sum in sums {
                sum.amounts.add_to(&mut tally.usage, &mut tally.spent);
            }
            for (_, list) in gpus {
                tally.usage.hold(&read(&list));
            }
            groups.push(tally);
        }
        bounds.sums(at, window, (own, groups, all), Arc::new(together))
    }
}

impl Bounds {
    /// Counts what runs without the portal.
    pub(super) fn add_from_shell(&mut self, owner: &str, jobs: &[FromShell], together: &CountedGroups) -> Result<()> {
        for (whose, payer, gpus, cpus) in jobs {
            let add = |sum: &mut (i64, i64)| *sum = (sum.0.saturating_add(*gpus), sum.1.saturating_add(*cpus));
            if whose == owner {
                add(&mut self.of_person);
            }
            let user = parse(whose, "user id")?;
            for group in &mut self.groups {
                if group.id.to_string() == *payer || together.has_member(group.id, user) {
                    add(&mut group.besides);
                }
            }
            add(&mut self.of_all);
        }
        Ok(())
    }

    /// With what is held: the person's, that of each group, everybody's.
    pub(super) fn sums(
        &self,
        at: Timestamp,
        window: Window,
        (own, of_groups, all): (HeldUsage, Vec<HeldUsage>, HeldUsage),
        together: Arc<CountedGroups>,
    ) -> Result<LimitsAndUsage> {
        let groups = self.groups.iter().zip(of_groups).map(|(group, tally)| Total {
            whose: TotalScope::Group { id: group.id, name: group.name.clone(), is_charged: group.is_charged },
            limits: group.totals.clone(),
            usage: tally.with(group.besides),
        });
        let in_use = all.with(self.of_all);
        let cluster = Total { whose: TotalScope::Cluster, limits: self.cluster.clone(), usage: in_use.clone() };
        Ok(LimitsAndUsage {
            at,
            window,
            limits: self.limits.iter().map(quotas::Row::limit).collect::<Result<_>>()?,
            usage: own.with(self.of_person),
            totals: groups.chain([cluster]).collect(),
            in_use,
            together,
        })
    }
}

impl HeldUsage {
    /// What is used, with the hours of what has ended and of what runs without the portal.
    fn with(self, besides: (i64, i64)) -> Usage {
        let seconds = |open: i64, besides: i64| open.saturating_add(besides).saturating_add(999) / 1000;
        let (gpu_seconds, cpu_seconds) = (seconds(self.spent.0, besides.0), seconds(self.spent.1, besides.1));
        Usage { gpu_seconds, cpu_seconds, ..self.usage }
    }
}
