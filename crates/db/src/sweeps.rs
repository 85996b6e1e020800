//! Sweeps: many jobs from one plan. A task becomes a job in `admit`'s transaction, which counts it
//! here, so that none is a job twice or left out; and what holds the queue, one person's or
//! everybody's.

use std::collections::{BTreeMap, HashMap};

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Json, Result,
    audit::{Entry, append_audit},
    idempotency::{self, IdempotentRequest},
    jobs::{Row as JobRow, job, select_jobs},
    ordering::{Ordering, SortBy, SortColumn, position},
    people::places,
    reading,
    search::{fold, id_is, pattern},
    transaction,
    types::{parse, readable},
};
use lyceum_model::{
    IdPart, Job, JobId, ModelId, RunId, Sweep, SweepId, Timestamp, UserId,
    hold::Pause,
    sweep::{Plan, SweepState},
};

/// Which sweeps to list. Newest first without a `sort`; `before` is the last id of the page before.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepFilter<'a> {
    /// `None`: of all users.
    pub owner: Option<UserId>,
    /// What the id begins or ends with.
    pub id: Option<&'a IdPart>,
    /// A part of the name, whatever its case.
    pub find: &'a str,
    pub sort: Option<SortBy<'a>>,
    pub before: Option<SweepId>,
    pub limit: i64,
}

/// So many runs or sweeps are asked for in one statement.
const BATCH_SIZE: usize = 200;

/// The columns that sweeps are sorted by.
pub const SORT_COLUMNS: [SortColumn; 3] =
    [SortColumn::CREATED, SortColumn::text("name", "w.folded_name"), SortColumn::number("tasks", "w.tasks")];

#[derive(FromRow)]
struct Row {
    id: String,
    owner: String,
    owner_name: String,
    name: String,
    kind: String,
    state: String,
    note: String,
    tasks: i64,
    released: i64,
    parallel: i64,
    created_at: i64,
    /// The value that the list is sorted by.
    #[sqlx(default)]
    sorted: String,
}

const COLUMNS: &str =
    "SELECT w.id, w.owner, u.name AS owner_name, w.name, w.kind, w.state, w.note, w.tasks, w.released,
         w.parallel, w.created_at";

const OWNED: &str = "sweeps w JOIN users u ON u.id = w.owner";

fn sweep(row: Row) -> Result<Sweep> {
    Ok(Sweep {
        id: parse(&row.id, "sweep id")?,
        owner: parse(&row.owner, "user id")?,
        owner_name: row.owner_name,
        name: row.name,
        kind: parse(&row.kind, "sweep's kind")?,
        state: parse(&row.state, "sweep's state")?,
        note: row.note,
        tasks: row.tasks,
        released: row.released,
        parallel: row.parallel,
        created_at: Timestamp(row.created_at),
    })
}

/// A task becomes a job: `$1` sweep, `$2` the place of the task.
pub(super) const RELEASE: &str =
    "UPDATE sweeps SET released = released + 1 WHERE id = $1 AND released = $2 AND state = 'running'";

/// A pause with the user whose jobs it holds.
fn pause((user, by, note, at): (String, String, String, i64)) -> (String, Pause) {
    let pause = Pause { of_everybody: user.is_empty(), by, note, at: Timestamp(at) };
    (user, pause)
}

/// The statement that lists: `$1` owner, `$2` the id before, `$3` how many, `$4` a name as a pattern, `$5` the sorted value
/// before.
pub(super) fn list(filter: &SweepFilter<'_>) -> String {
    let owner = if filter.owner.is_some() { "w.owner = $1" } else { "$1 = ''" };
    let find = if filter.find.is_empty() { "$4 = ''" } else { "w.folded_name LIKE $4 ESCAPE '!'" };
    let id = id_is("w.id", filter.id);
    let Ordering { after, order, value } = Ordering::new(filter.sort.as_ref(), "w.id", "$2", "$5");
    format!(
        "{COLUMNS}, {value} AS sorted FROM {OWNED} WHERE {owner} AND {find} {id} AND {after} ORDER BY {order} LIMIT $3"
    )
}

impl Db {
    /// Writes a sweep; [`super::Error::Unique`] when its key was used before.
    pub async fn add_sweep(
        &self,
        new: &Sweep,
        plan: &Plan,
        once: Option<IdempotentRequest<'_>>,
        noted: &Entry<'_>,
    ) -> Result<()> {
        let (id, plan) = (new.id.to_string(), Json::write(plan));
        transaction!(self, tx => {
            query("INSERT INTO sweeps (id, owner, name, plan, kind, tasks, released, parallel, state, note, created_at,
                     folded_name) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)")
                .bind(&id).bind(new.owner.to_string()).bind(&new.name).bind(&plan).bind(new.kind.as_str())
                .bind(new.tasks).bind(new.released).bind(new.parallel).bind(new.state.as_str()).bind(&new.note)
                .bind(new.created_at.0).bind(fold(&new.name)).execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
            if let Some(IdempotentRequest { user, key, request_hash }) = once {
                query(idempotency::ADD).bind(user.to_string()).bind(key).bind(request_hash).bind(&id)
                    .bind(new.created_at.0).execute(&mut *tx).await?;
            }
        });
        Ok(())
    }

    pub async fn find_sweep(&self, id: SweepId) -> Result<Option<Sweep>> {
        let row: Option<Row> = reading!(self, pool => query_as(AssertSqlSafe(format!("{COLUMNS} FROM {OWNED} WHERE w.id = $1")))
            .bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(sweep).transpose()
    }

    pub async fn sweep_plan(&self, id: SweepId) -> Result<Option<Plan>> {
        let text: Option<String> = reading!(self, pool => query_scalar("SELECT plan FROM sweeps WHERE id = $1")
            .bind(id.to_string()).fetch_optional(pool).await)?;
        text.map(|text| Json::read(&text, "sweep's plan")).transpose()
    }

    /// Lists sweeps, each with the value that the list is sorted by.
    pub async fn list_sweeps(&self, filter: SweepFilter<'_>) -> Result<Vec<(Sweep, String)>> {
        let sql = list(&filter);
        let owner = filter.owner.map(|owner| owner.to_string()).unwrap_or_default();
        // "g" sorts after every id.
        let before = filter.before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql)).bind(&owner).bind(&before)
            .bind(filter.limit).bind(pattern(filter.find)).bind(position(filter.sort.as_ref())).fetch_all(pool).await)?;
        let sorted = |mut row: Row| {
            let value = std::mem::take(&mut row.sorted);
            Ok((sweep(row)?, value))
        };
        Ok(readable(rows.into_iter().map(sorted)))
    }

    /// Those that have not ended, the oldest first.
    pub async fn open_sweeps(&self) -> Result<Vec<Sweep>> {
        let sql = format!("{COLUMNS} FROM {OWNED} WHERE w.state <> 'ended' ORDER BY w.id");
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql)).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(sweep)))
    }

    /// The jobs that its tasks have become, with the places of those.
    pub async fn sweep_jobs(&self, id: SweepId) -> Result<Vec<(i64, Job)>> {
        let sql = format!("{} WHERE j.sweep_id = $1 ORDER BY j.sweep_index", select_jobs(self));
        let rows: Vec<JobRow> =
            reading!(self, pool => query_as(AssertSqlSafe(sql)).bind(id.to_string()).fetch_all(pool).await)?;
        let places: Vec<i64> = reading!(self, pool =>
            query_scalar("SELECT sweep_index FROM jobs WHERE sweep_id = $1 ORDER BY sweep_index")
                .bind(id.to_string()).fetch_all(pool).await)?;
        Ok(readable(places.into_iter().zip(rows).map(|(place, row)| Ok((place, job(row)?)))))
    }

    /// The runs of its jobs; `true` beside one: everything of it has been read.
    pub async fn sweep_runs(&self, id: SweepId) -> Result<Vec<(JobId, RunId, bool)>> {
        let rows: Vec<(String, String, bool)> = reading!(self, pool =>
            query_as("SELECT j.id, r.id, r.complete FROM jobs j JOIN runs r ON r.job_id = j.id WHERE j.sweep_id = $1")
                .bind(id.to_string()).fetch_all(pool).await)?;
        rows.into_iter().map(|(job, run, over)| Ok((parse(&job, "job id")?, parse(&run, "run id")?, over))).collect()
    }

    /// The models that its jobs train.
    pub async fn sweep_models(&self, id: SweepId) -> Result<HashMap<JobId, ModelId>> {
        let rows: Vec<(String, String)> = reading!(self, pool =>
            query_as("SELECT j.id, m.id FROM jobs j JOIN models m ON m.job_id = j.id WHERE j.sweep_id = $1")
                .bind(id.to_string()).fetch_all(pool).await)?;
        rows.into_iter().map(|(job, model)| Ok((parse(&job, "job id")?, parse(&model, "model id")?))).collect()
    }

    /// The job that the task at this place has become.
    pub async fn sweep_job(&self, id: SweepId, place: i64) -> Result<Option<Job>> {
        let sql = format!("{} WHERE j.sweep_id = $1 AND j.sweep_index = $2", select_jobs(self));
        let row: Option<JobRow> = reading!(self, pool => query_as(AssertSqlSafe(sql)).bind(id.to_string()).bind(place).fetch_optional(pool).await)?;
        row.map(job).transpose()
    }

    /// The sweep that a job is a task of, and which.
    pub async fn sweep_of_job(&self, id: JobId) -> Result<Option<(SweepId, i64)>> {
        let found: Option<(Option<String>, Option<i64>)> = reading!(self, pool =>
            query_as("SELECT sweep_id, sweep_index FROM jobs WHERE id = $1")
                .bind(id.to_string()).fetch_optional(pool).await)?;
        let Some((Some(sweep), Some(place))) = found else { return Ok(None) };
        Ok(Some((parse(&sweep, "sweep id")?, place)))
    }

    /// Returns the values of sweep parameters that runs were started with: of those whose job is a task of a sweep that is
    /// still there.
    pub async fn sweep_values_of_runs(&self, runs: &[RunId]) -> Result<Vec<(RunId, BTreeMap<String, String>)>> {
        let mut tasks: HashMap<String, Vec<(RunId, i64)>> = HashMap::new();
        for some in runs.chunks(BATCH_SIZE) {
            let sql = format!(
                "SELECT r.id, j.sweep_id, j.sweep_index FROM runs r JOIN jobs j ON j.id = r.job_id
                 WHERE j.sweep_id IS NOT NULL AND r.id IN ({})",
                places(some.len())
            );
            let rows: Vec<(String, String, i64)> = reading!(self, pool => {
                let question = query_as(AssertSqlSafe(sql));
                some.iter().fold(question, |question, id| question.bind(id.to_string())).fetch_all(pool).await
            })?;
            for (run, sweep, place) in rows {
                tasks.entry(sweep).or_default().push((parse(&run, "run id")?, place));
            }
        }
        let sweeps: Vec<&String> = tasks.keys().collect();
        let mut found = Vec::new();
        for some in sweeps.chunks(BATCH_SIZE) {
            let sql = format!("SELECT id, plan FROM sweeps WHERE id IN ({})", places(some.len()));
            let plans: Vec<(String, String)> = reading!(self, pool => {
                let question = query_as(AssertSqlSafe(sql));
                some.iter().fold(question, |question, id| question.bind(id.as_str())).fetch_all(pool).await
            })?;
            for (sweep, plan) in plans {
                // A plan that is damaged costs its own values alone.
                let Ok(plan) = Json::read::<Plan>(&plan, "sweep's plan") else { continue };
                for (run, place) in tasks.get(&sweep).into_iter().flatten() {
                    let settings = usize::try_from(*place).ok().and_then(|place| plan.tasks.get(place));
                    found.extend(settings.map(|settings| (*run, settings.values.clone())));
                }
            }
        }
        Ok(found)
    }

    /// How many of its jobs have not ended, or may be tried again.
    pub async fn live_in_sweep(&self, id: SweepId) -> Result<i64> {
        Ok(reading!(self, pool => query_scalar("SELECT COUNT(*) FROM jobs j JOIN sessions s ON s.id = j.session_id
             WHERE j.sweep_id = $1 AND (s.state <> 'ended' OR j.retries_left > 0)").bind(id.to_string()).fetch_one(pool).await)?)
    }

    /// Brings a sweep from one state into another; false where it is in none of `from`. What
    /// people do is noted.
    pub async fn set_sweep_state(
        &self,
        id: SweepId,
        from: &[SweepState],
        (to, note): (SweepState, &str),
        noted: Option<&Entry<'_>>,
    ) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => {
            let found: Option<String> = query_scalar("SELECT state FROM sweeps WHERE id = $1")
                .bind(&id).fetch_optional(&mut *tx).await?;
            let changes = found.is_some_and(|found| from.iter().any(|from| from.as_str() == found));
            if changes {
                query("UPDATE sweeps SET state = $2, note = $3 WHERE id = $1")
                    .bind(&id).bind(to.as_str()).bind(note).execute(&mut *tx).await?;
                if let Some(noted) = noted {
                    append_audit(&mut *tx, noted).await?;
                }
            }
            changes
        }))
    }

    /// Forgets a sweep that has ended; its jobs stay. False where it is not there, or not over.
    pub async fn remove_sweep(&self, id: SweepId, noted: &Entry<'_>) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => {
            let gone = query("DELETE FROM sweeps WHERE id = $1 AND state = 'ended'")
                .bind(&id).execute(&mut *tx).await?.rows_affected();
            if gone > 0 {
                append_audit(&mut *tx, noted).await?;
            }
            gone > 0
        }))
    }

    /// Who holds this person's waiting jobs: everybody's first, then their own; `None` asks for everybody's.
    pub async fn queue_pauses(&self, user: Option<UserId>) -> Result<Vec<Pause>> {
        let user = user.map(|user| user.to_string()).unwrap_or_default();
        let rows: Vec<(String, String, String, i64)> = reading!(self, pool => query_as(
            "SELECT user_id, by_name, note, at FROM queue_pauses WHERE user_id = '' OR user_id = $1 ORDER BY user_id")
            .bind(&user).fetch_all(pool).await)?;
        Ok(rows.into_iter().map(|row| pause(row).1).collect())
    }

    /// All of them, by the user whose waiting jobs are held; everybody's under the empty name.
    pub(super) async fn queue_pauses_by_user(&self) -> Result<HashMap<String, Pause>> {
        let rows: Vec<(String, String, String, i64)> = reading!(self, pool =>
            query_as("SELECT user_id, by_name, note, at FROM queue_pauses").fetch_all(pool).await)?;
        Ok(rows.into_iter().map(pause).collect())
    }

    /// Holds or frees the waiting jobs of somebody, or of everybody; false where it was so already.
    pub async fn pause_queue(&self, user: Option<UserId>, pause: Option<&Pause>, noted: &Entry<'_>) -> Result<bool> {
        let user = user.map(|user| user.to_string()).unwrap_or_default();
        Ok(transaction!(self, tx => {
            let changed = match pause {
                Some(pause) => query("INSERT INTO queue_pauses (user_id, by_name, note, at) VALUES ($1, $2, $3, $4)
                     ON CONFLICT (user_id) DO NOTHING")
                    .bind(&user).bind(&pause.by).bind(&pause.note).bind(pause.at.0)
                    .execute(&mut *tx).await?.rows_affected(),
                None => query("DELETE FROM queue_pauses WHERE user_id = $1")
                    .bind(&user).execute(&mut *tx).await?.rows_affected(),
            };
            if changed > 0 {
                append_audit(&mut *tx, noted).await?;
            }
            changed > 0
        }))
    }
}
