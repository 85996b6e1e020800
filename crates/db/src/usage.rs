//! Who used how much in a time. What was held and is over is kept in memory (`model::ledger`), where it
//! is summed up: each question reads what ended since the last one and what is held still, in one
//! look, so that the answer is what the database holds at that moment, to the millisecond.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sqlx::{FromRow, query_as, query_scalar};
use tokio::sync::{Mutex, MutexGuard};

use super::{Db, Json, Result, reading};
pub use lyceum_model::ledger::{UsageGrouping, UsageSum, UsedIn};
use lyceum_model::{
    Gpu, Timestamp, UserId,
    ledger::{Ledger, LedgerAllocation, UsageScope},
    quota::ConsumedTime,
    timeline::Span,
};

/// Selects whose usage is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageOwner {
    Everybody,
    Person(UserId),
    /// What is charged to the groups that this person manages.
    ManagedBy(UserId),
}

/// Selects usage by owner and time.
#[derive(Clone, Debug)]
pub struct UsageFilter {
    pub by: UsageGrouping,
    pub whose: UsageOwner,
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
    pub id: Arc<str>,
    /// A person, a group or a model; empty where no group was charged, or it is gone.
    pub name: Arc<str>,
    /// GPUs × milliseconds.
    pub gpu_milliseconds: i64,
    /// Cores × milliseconds; 0 by model.
    pub cpu_milliseconds: i64,
    /// How many sessions there were.
    pub sessions: i64,
}

/// A list of what was used, or a part of it, with what the whole of it comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedList {
    pub rows: Vec<Used>,
    /// How many rows there are in all.
    pub count: i64,
    pub total: ConsumedTime,
    /// The most of each that one row has.
    pub most: ConsumedTime,
    /// What of the whole was used by jobs from a shell.
    pub from_shell: FromShell,
}

/// How many jobs from a shell there were, and what they used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FromShell {
    pub jobs: i64,
    pub spent: ConsumedTime,
}

/// Caches the allocations that were read so far.
#[derive(Clone, Debug, Default)]
pub struct UsageCache(Arc<Mutex<CachedUsage>>);

#[derive(Debug, Default)]
struct CachedUsage {
    ledger: Ledger,
    /// What each of its owners is called.
    names: Vec<Arc<str>>,
    /// Where each of its owners stands in the order of names.
    ranks: Vec<usize>,
    /// The last one that is in it, in the order in which they ended.
    last: i64,
    generation: Option<i64>,
}

/// So many are read at once: a year of them is nothing that many connections can wait for.
const BATCH_SIZE: i64 = 5000;

/// What ended behind `$1` (up to `$2`), what is held still, and the generation, in one look.
pub(super) const CHANGES: &str = "SELECT * FROM (SELECT number, owner, COALESCE(charged_group, '') AS charged_group, gpu_list,
             CASE WHEN of_several OR session_id IS NULL THEN COALESCE(session_id, CAST(job_number AS TEXT)) ELSE '' END AS session,
             session_id IS NULL AS from_shell, gpus, cpus, started_at, ended_at FROM intervals WHERE number > $1 ORDER BY number LIMIT $2) AS ended
     UNION ALL
     SELECT 0, owner, COALESCE(charged_group, ''), gpu_list,
             CASE WHEN of_several OR session_id IS NULL THEN COALESCE(session_id, CAST(job_number AS TEXT)) ELSE '' END,
             session_id IS NULL, gpus, cpus, started_at, NULL FROM intervals WHERE ended_at IS NULL
     UNION ALL
     SELECT -1, '', '', '', '', FALSE, 0, 0, CAST(COALESCE((SELECT value FROM settings WHERE name = 'usage_generation'), '0') AS BIGINT), NULL";

/// Raised inside the transaction of any change of what is over: it is forgotten, or its owner is
/// called otherwise. Then everything is read again.
pub(super) const RAISE_GENERATION: &str = "INSERT INTO settings (name, value) VALUES ('usage_generation', '1')
     ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(settings.value AS BIGINT) + 1 AS TEXT)";

#[derive(FromRow)]
struct HeldRow {
    /// 0 of what is held still, -1 of the generation.
    number: i64,
    owner: String,
    charged_group: String,
    gpu_list: String,
    session: String,
    from_shell: bool,
    gpus: i64,
    cpus: i64,
    started_at: i64,
    ended_at: Option<i64>,
}

impl HeldRow {
    fn held(&self) -> LedgerAllocation<'_> {
        LedgerAllocation {
            owner: &self.owner,
            group: &self.charged_group,
            gpu_list: &self.gpu_list,
            session: &self.session,
            from_shell: self.from_shell,
            gpus: self.gpus,
            cpus: self.cpus,
            from: Timestamp(self.started_at),
            to: self.ended_at.map(Timestamp),
        }
    }
}

impl Db {
    /// What was used, in the order and of the place that were asked for.
    pub async fn used(&self, asked: &UsageFilter) -> Result<UsedList> {
        let of = self.of(asked.whose).await?;
        let groups = if asked.by == UsageGrouping::Group { self.group_names().await? } else { HashMap::new() };
        let told = self.cache().await?;
        let sums = told.ledger.sums(asked.by, &of, asked.from, asked.to, asked.now);
        let from_shell = sums.from_shell.into();
        let found = match asked.by {
            UsageGrouping::User => {
                // In the order of names at once: to compare ten thousand of them takes longer than all else.
                let mut named = vec![None; told.names.len()];
                for (place, id, sum) in sums.each {
                    named[told.ranks[place]] = Some((id, &told.names[place], sum));
                }
                list(named.into_iter().flatten().collect(), asked)
            }
            UsageGrouping::Group => {
                // Sessions that were charged to nobody, and those of groups that are gone, are one row.
                let nobody = Arc::from("");
                let mut named: BTreeMap<(&Arc<str>, &Arc<str>), UsageSum> = BTreeMap::new();
                for (_, id, sum) in sums.each {
                    let key = groups.get(&**id).map_or((&nobody, &nobody), |name| (id, name));
                    named.entry(key).or_default().merge(&sum);
                }
                list(named.into_iter().map(|((id, name), sum)| (id, name, sum)).collect(), asked)
            }
            UsageGrouping::GpuModel if asked.page.as_ref().is_some_and(|page| page.after.is_some()) => {
                UsedList::default()
            }
            UsageGrouping::GpuModel => models(&sums.each, asked.sort),
        };
        Ok(UsedList { from_shell, ..found })
    }

    /// What was used in each span. They follow one another, and none reaches beyond now, up to
    /// which what is held still counts.
    pub async fn used_in(&self, whose: UsageOwner, spans: &[Span]) -> Result<Vec<UsedIn>> {
        let of = self.of(whose).await?;
        Ok(self.cache().await?.ledger.spans(&of, spans))
    }

    /// Returns what each user used of what was charged to each group, with the names of group and user, in their order.
    /// The group's is empty where none was charged, or it is gone.
    pub async fn used_by_group_and_user(
        &self,
        whose: UsageOwner,
        from: Timestamp,
        to: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<(Arc<str>, Arc<str>, UsageSum)>> {
        let (of, groups) = (self.of(whose).await?, self.group_names().await?);
        let cache = self.cache().await?;
        let mut named: BTreeMap<(Arc<str>, Arc<str>), UsageSum> = BTreeMap::new();
        for (group, owner, sum) in cache.ledger.sums_by_group_and_owner(&of, from, to, now) {
            let group = groups.get(&**group).cloned().unwrap_or_default();
            named.entry((group, cache.names[owner].clone())).or_default().merge(&sum);
        }
        Ok(named.into_iter().map(|((group, user), sum)| (group, user, sum)).collect())
    }

    /// Returns what was charged to each group in each span in which it used something, with its name as above. As to
    /// the spans, see [`Db::used_in`].
    pub async fn used_by_group_in(&self, whose: UsageOwner, spans: &[Span]) -> Result<Vec<(Arc<str>, UsedIn)>> {
        let (of, groups) = (self.of(whose).await?, self.group_names().await?);
        let told = self.cache().await?;
        let mut named: BTreeMap<(Arc<str>, usize), UsedIn> = BTreeMap::new();
        for (group, used) in told.ledger.group_spans(&of, spans) {
            let group = groups.get(&**group).cloned().unwrap_or_default();
            for (place, used) in used.into_iter().enumerate() {
                if used.spent != ConsumedTime::default() || used.sessions > 0 {
                    named.entry((group.clone(), place)).and_modify(|sum| sum.merge(&used)).or_insert(used);
                }
            }
        }
        Ok(named.into_iter().map(|((group, _), used)| (group, used)).collect())
    }

    /// What jobs from a shell used in a time; what runs counts until now.
    pub async fn used_from_shell(
        &self,
        whose: UsageOwner,
        from: Timestamp,
        to: Timestamp,
        now: Timestamp,
    ) -> Result<FromShell> {
        let of = self.of(whose).await?;
        Ok(self.cache().await?.ledger.sums(UsageGrouping::User, &of, from, to, now).from_shell.into())
    }

    /// GPUs × milliseconds since a moment of what has ended, by the owners' ids.
    pub(super) async fn ended_gpu_time(&self, from: Timestamp) -> Result<BTreeMap<String, i64>> {
        let told = self.cache().await?;
        // What is held still counts up to the moment from which is counted, which is nothing.
        let (everybody, to) = (UsageScope::Everybody, Timestamp(i64::MAX));
        let sums = told.ledger.sums(UsageGrouping::User, &everybody, from, to, from);
        Ok(sums.each.into_iter().map(|(_, id, sum)| (id.to_string(), sum.spent.gpu_milliseconds)).collect())
    }

    async fn of(&self, whose: UsageOwner) -> Result<UsageScope> {
        Ok(match whose {
            UsageOwner::Everybody => UsageScope::Everybody,
            UsageOwner::Person(id) => UsageScope::Owner(id.to_string()),
            UsageOwner::ManagedBy(id) => {
                let ids: Vec<String> = reading!(self, pool => query_scalar("SELECT group_id FROM group_managers WHERE user_id = $1")
                    .bind(id.to_string()).fetch_all(pool).await)?;
                UsageScope::Groups(ids.into_iter().collect())
            }
        })
    }

    async fn group_names(&self) -> Result<HashMap<String, Arc<str>>> {
        let rows: Vec<(String, String)> =
            reading!(self, pool => query_as("SELECT id, name FROM groups").fetch_all(pool).await)?;
        Ok(rows.into_iter().map(|(id, name)| (id, name.into())).collect())
    }

    /// Reads what is not known yet, so that nobody who asks has to wait for a year of it.
    pub async fn catch_up_with_use(&self) -> Result<()> {
        self.cache().await.map(drop)
    }

    /// Everything that was held, as the database says it now.
    async fn cache(&self) -> Result<MutexGuard<'_, CachedUsage>> {
        let mut told = self.known().0.lock().await;
        loop {
            let rows: Vec<HeldRow> =
                reading!(self, pool => query_as(CHANGES).bind(told.last).bind(BATCH_SIZE).fetch_all(pool).await)?;
            let generation = rows.iter().find(|row| row.number < 0).map(|row| row.started_at);
            if told.generation != generation {
                *told = CachedUsage { generation, ..CachedUsage::default() };
                continue;
            }
            let mut count = 0;
            for row in rows.iter().filter(|row| row.number > 0) {
                told.ledger.add(&row.held());
                told.last = row.number;
                count += 1;
            }
            if count < BATCH_SIZE {
                told.ledger.set_open(rows.iter().filter(|row| row.number == 0).map(HeldRow::held));
                break;
            }
        }
        if told.names.len() < told.ledger.owners().len() {
            let rows: Vec<(String, String)> =
                reading!(self, pool => query_as("SELECT id, name FROM users").fetch_all(pool).await)?;
            let mut names: HashMap<String, String> = rows.into_iter().collect();
            told.names = told.ledger.owners().iter().map(|id| names.remove(&**id).unwrap_or_default().into()).collect();
            told.ranks = ranks(&told.names);
        }
        Ok(told)
    }

    fn known(&self) -> &UsageCache {
        match self {
            Self::Sqlite { known, .. } | Self::Postgres { known, .. } => known,
        }
    }
}

/// What these come to, and those of them that were asked for, in their order.
fn list(mut sums: Vec<(&Arc<str>, &Arc<str>, UsageSum)>, asked: &UsageFilter) -> UsedList {
    let mut whole = UsedList { count: i64::try_from(sums.len()).unwrap_or(i64::MAX), ..UsedList::default() };
    for (.., UsageSum { spent, .. }) in &sums {
        whole.total.gpu_milliseconds = whole.total.gpu_milliseconds.saturating_add(spent.gpu_milliseconds);
        whole.total.cpu_milliseconds = whole.total.cpu_milliseconds.saturating_add(spent.cpu_milliseconds);
        whole.most.gpu_milliseconds = whole.most.gpu_milliseconds.max(spent.gpu_milliseconds);
        whole.most.cpu_milliseconds = whole.most.cpu_milliseconds.max(spent.cpu_milliseconds);
    }
    if let Some((amount, text)) = asked.page.as_ref().and_then(|page| page.after.as_ref()) {
        let after = (Reverse(*amount), text.as_str());
        sums.retain(|row| after < place(asked.sort, row));
    }
    sums.sort_unstable_by(|one, other| place(asked.sort, one).cmp(&place(asked.sort, other)));
    let limit = asked.page.as_ref().map_or(usize::MAX, |page| usize::try_from(page.limit).unwrap_or(0));
    let row = |(id, name, sum): (&Arc<str>, &Arc<str>, UsageSum)| Used {
        id: id.clone(),
        name: name.clone(),
        gpu_milliseconds: sum.spent.gpu_milliseconds,
        cpu_milliseconds: sum.spent.cpu_milliseconds,
        sessions: sum.sessions,
    };
    whole.rows = sums.into_iter().take(limit).map(row).collect();
    whole
}

/// Where each of them stands among all, in their order.
fn ranks(names: &[Arc<str>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_unstable_by_key(|place| &names[*place]);
    let mut ranks = vec![0; names.len()];
    for (rank, place) in order.into_iter().enumerate() {
        ranks[place] = rank;
    }
    ranks
}

impl From<UsageSum> for FromShell {
    fn from(sum: UsageSum) -> Self {
        Self { jobs: sum.sessions, spent: sum.spent }
    }
}

/// Where a row stands: the greatest first, then by id; or by name alone.
fn place<'a>(sort: Sort, (id, name, sum): &(&'a Arc<str>, &'a Arc<str>, UsageSum)) -> (Reverse<i64>, &'a str) {
    match sort {
        Sort::Name => (Reverse(0), name),
        Sort::Gpus => (Reverse(sum.spent.gpu_milliseconds), id),
        Sort::Cpus => (Reverse(sum.spent.cpu_milliseconds), id),
        Sort::Sessions => (Reverse(sum.sessions), id),
    }
}

/// Sums by model from those by list of GPUs.
fn models(lists: &[(usize, &Arc<str>, UsageSum)], sort: Sort) -> UsedList {
    let mut used: BTreeMap<String, Used> = BTreeMap::new();
    for (_, list, sum) in lists {
        add_models(&mut used, &Json::read_or_default::<Vec<Gpu>>(list), sum);
    }
    let mut rows: Vec<Used> = used.into_values().collect();
    match sort {
        Sort::Name | Sort::Cpus => {}
        Sort::Gpus => rows.sort_by_key(|row| Reverse(row.gpu_milliseconds)),
        Sort::Sessions => rows.sort_by_key(|row| Reverse(row.sessions)),
    }
    let spent = |gpu_milliseconds| ConsumedTime { gpu_milliseconds, cpu_milliseconds: 0 };
    UsedList {
        count: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        total: spent(rows.iter().fold(0, |sum, row| row.gpu_milliseconds.saturating_add(sum))),
        most: spent(rows.iter().map(|row| row.gpu_milliseconds).max().unwrap_or_default()),
        rows,
        ..UsedList::default()
    }
}

/// Each GPU of a list was held so long; an allocation counts once for each model in it.
fn add_models(used: &mut BTreeMap<String, Used>, gpus: &[Gpu], sum: &UsageSum) {
    for (index, gpu) in gpus.iter().enumerate() {
        let model = || Arc::from(gpu.model.as_str());
        let fresh = || Used { id: model(), name: model(), gpu_milliseconds: 0, cpu_milliseconds: 0, sessions: 0 };
        let row = used.entry(gpu.model.clone()).or_insert_with(fresh);
        row.gpu_milliseconds = row.gpu_milliseconds.saturating_add(sum.milliseconds);
        let is_first = gpus[..index].iter().all(|other| other.model != gpu.model);
        row.sessions += if is_first { sum.sessions } else { 0 };
    }
}
