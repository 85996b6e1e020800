//! Jobs: what outlives an attempt. Writing a new one, and a new attempt of one, is part of
//! `admit`, because both are decided about first; states and ends are those of the attempt's
//! row in `sessions`.

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Json, Result,
    audit::{ChangedBy, append_audit},
    ordering::{Ordering, SortBy, SortColumn, position},
    reading,
    search::{Named, by_parts, fold, id_is, pattern},
    sessions::{array_of, select, session},
    transaction,
    trash::discard_job,
    types::{parse, readable},
};
use lyceum_model::{
    IdPart, Job, JobId, Session, SessionState, Timestamp, UserId,
    job::{Task, Visibility},
};

/// Which jobs to list. Newest first where nothing else is said; `before` is the last id of the page before.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobFilter<'a> {
    /// Who reads; `None` sees all.
    pub reader: Option<UserId>,
    pub owner: Option<UserId>,
    pub state: Option<SessionState>,
    pub live_only: bool,
    pub tag: Option<&'a str>,
    /// The name of the group that the latest attempt is charged to.
    pub group: Option<&'a str>,
    pub starred: bool,
    /// A part of the name, whatever its case.
    pub find: &'a str,
    /// What the id begins or ends with.
    pub id: Option<&'a IdPart>,
    /// Helper jobs too. A list by id or tag has them anyway: who names one means it.
    pub with_helpers: bool,
    pub sort: Option<SortBy<'a>>,
    pub before: Option<JobId>,
    pub limit: i64,
}

/// The columns that jobs are sorted by.
pub const SORT_COLUMNS: [SortColumn; 6] = [
    SortColumn::CREATED,
    SortColumn::text("name", "j.folded_name"),
    SortColumn::number("state", STATE),
    SortColumn::number("started", "COALESCE(s.ready_at, s.started_at, 0)"),
    SortColumn::number("duration", DURATION),
    SortColumn::number("gpus", "s.gpus"),
];

/// What runs before what waits, then what went wrong before what succeeded: the outcomes are those of `Session::outcome`.
const STATE: &str = "(CASE s.state WHEN 'running' THEN 9 WHEN 'starting' THEN 8 WHEN 'stopping' THEN 7 WHEN 'queued' THEN 6
     ELSE (CASE WHEN s.end_reason = 'exited' AND COALESCE(s.exit_code, 0) = 0 THEN 1
         WHEN s.end_reason IN ('stopped_by_owner', 'stopped_by_admin') THEN 2 WHEN s.end_reason IN ('time_limit', 'idle') THEN 3
         WHEN s.end_reason = 'out_of_memory' THEN 4 ELSE 5 END) END)";

/// Milliseconds for ended jobs. Running jobs sort above them, the longest-running one first, by a number that does not grow
/// between two pages.
const DURATION: &str = "(CASE WHEN s.ended_at IS NULL
     THEN 9000000000000000 - COALESCE(s.ready_at, s.started_at, 9000000000000000)
     ELSE s.ended_at - COALESCE(s.ready_at, s.started_at, s.ended_at) END)";

/// Those of what a user sees of other users' jobs: no index has the attempts of the few jobs that are shared.
pub const SHARED_SORT_COLUMNS: [SortColumn; 2] = [SortColumn::CREATED, SortColumn::text("name", "j.folded_name")];

/// What is to be another than it was; `None` stays.
#[derive(Clone, Debug, Default)]
pub struct JobChange {
    pub name: Option<String>,
    pub notes: Option<String>,
    pub tags: Option<Vec<String>>,
    pub starred: Option<bool>,
    pub visibility: Option<Visibility>,
}

/// Reports the outcome of deleting a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is in the trash.
    Done,
    /// It has not ended.
    Live,
    /// There is none.
    Missing,
}

#[derive(FromRow)]
pub(super) struct Row {
    id: String,
    name: String,
    notes: String,
    tags: String,
    starred: bool,
    visibility: String,
    created_at: i64,
    attempt: i64,
    retries_left: i64,
    helper: bool,
    latest: String,
    /// The value that the list is sorted by.
    #[sqlx(default)]
    sorted: String,
}

/// `$1` id, `$2` owner, `$3` and `$4` name, `$5` task, `$6` the first attempt, `$7` now, `$8` how
/// often it is tried again, `$9` and `$10` the sweep and its place there, `$11` its tags, `$12` whether it is a helper job,
/// `$13` its notes.
pub(super) const ADD_JOB: &str = "INSERT INTO jobs (id, owner, name, folded_name, task, session_id, attempt, notes,
         tags, starred, visibility, created_at, retries_left, sweep_id, sweep_index, helper)
     VALUES ($1, $2, $3, $4, $5, $6, 1, $13, $11, FALSE, 'private', $7, $8, $9, $10, $12)";

/// `$1` tag, `$2` owner, `$3` job.
pub(super) const ADD_TAG: &str = "INSERT INTO job_tags (tag, owner, job_id) VALUES ($1, $2, $3)";

/// `$1` job, `$2` the one that has to end first, `$3` how.
pub(super) const ADD_DEPENDENCY: &str = "INSERT INTO job_dependencies (job_id, after_id, needs) VALUES ($1, $2, $3)";

/// `$1` job, `$2` its new attempt, `$3` the number of that, `$4` owner; `$5` is 1 where it is tried
/// again by itself, and 0 where that is over.
pub(super) const NEXT_ATTEMPT: &str =
    "UPDATE jobs SET session_id = $2, attempt = $3, retries_left = (retries_left - 1) * $5
     WHERE id = $1 AND attempt = $3 - 1 AND owner = $4 AND ($5 = 0 OR retries_left > 0)
         AND EXISTS (SELECT 1 FROM sessions WHERE sessions.id = jobs.session_id AND sessions.state = 'ended')";

pub(super) fn job(row: Row) -> Result<Job> {
    let latest = session(&row.latest)?;
    Ok(Job {
        id: parse(&row.id, "job id")?,
        owner: latest.owner,
        owner_name: latest.owner_name.clone(),
        name: row.name,
        notes: row.notes,
        tags: Json::read_or_default(&row.tags),
        starred: row.starred,
        visibility: parse(&row.visibility, "job's visibility")?,
        created_at: Timestamp(row.created_at),
        attempt: row.attempt,
        retries_left: row.retries_left,
        is_helper: row.helper,
        latest,
    })
}

pub(super) fn select_jobs(db: &Db) -> String {
    format!("{} FROM {NEWEST}", columns(db))
}

const NEWEST: &str = "jobs j JOIN sessions s ON s.id = j.session_id JOIN users u ON u.id = j.owner";

fn columns(db: &Db) -> String {
    format!(
        "SELECT j.id, j.name, j.notes, j.tags, j.starred, j.visibility, j.created_at, j.attempt,
             j.retries_left, j.helper, {} AS latest",
        array_of(db)
    )
}

/// Jobs that other users share with the reader `$7`. The first words are those of the index `jobs_shared`.
const SHARED: &str = "(j.visibility <> 'private' AND (j.visibility = 'everybody' OR EXISTS (
     SELECT 1 FROM group_members a JOIN group_members b ON b.group_id = a.group_id
     WHERE a.user_id = j.owner AND b.user_id = $7)))";

/// Where a list looks for its jobs: among all, the newest first, or where only a few are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    All,
    /// The live sessions, by an index that only the words of the condition fit.
    Live,
    /// The jobs with a tag.
    Tagged,
    /// The attempts that are charged to a group.
    Charged,
    /// The attempts, in the order of one of their columns.
    Attempts,
}

impl Origin {
    fn of(filter: &JobFilter<'_>, is_one_group: bool) -> Self {
        if filter.live_only || filter.state.is_some_and(SessionState::is_live) {
            Self::Live
        } else if let Some(sort) = filter.sort.filter(|sort| !sort.column.is_by_id()) {
            if sort.column.name == "name" { Self::All } else { Self::Attempts }
        } else if filter.tag.is_some() {
            Self::Tagged
        } else if filter.group.is_some() && is_one_group {
            Self::Charged
        } else {
            Self::All
        }
    }

    /// The tables and what joins them. SQLite takes a CROSS JOIN in the order in which it stands.
    fn from(self) -> &'static str {
        match self {
            Self::All => "jobs j CROSS JOIN sessions s JOIN users u ON u.id = j.owner WHERE s.id = j.session_id",
            Self::Live => {
                "sessions s CROSS JOIN jobs j JOIN users u ON u.id = j.owner
                 WHERE j.session_id = s.id AND s.state <> 'ended'"
            }
            Self::Tagged => {
                "job_tags t CROSS JOIN jobs j CROSS JOIN sessions s JOIN users u ON u.id = j.owner
                 WHERE j.id = t.job_id AND s.id = j.session_id"
            }
            Self::Charged => {
                "sessions s CROSS JOIN jobs j JOIN users u ON u.id = j.owner
                 WHERE j.session_id = s.id"
            }
            Self::Attempts => {
                "sessions s CROSS JOIN jobs j JOIN users u ON u.id = j.owner
                 WHERE j.session_id = s.id AND s.job_id IS NOT NULL"
            }
        }
    }

    /// The job's id, in the order of which the jobs are found.
    fn id(self) -> &'static str {
        match self {
            Self::All | Self::Live => "j.id",
            Self::Tagged => "t.job_id",
            Self::Charged | Self::Attempts => "s.job_id",
        }
    }

    /// The condition that a job is of the person in this place of the statement.
    fn is_of(self, place: &str) -> String {
        match self {
            Self::All => format!("j.owner = {place}"),
            // Attempts are their job's owner's. If the jobs were named too, PostgreSQL's plan for all owners would go
            // through every job of this one.
            Self::Live => format!("s.owner = {place}"),
            Self::Charged | Self::Attempts => format!("j.owner = {place} AND s.owner = {place}"),
            Self::Tagged => format!("j.owner = {place} AND t.owner = {place}"),
        }
    }
}

/// Builds the statement that lists: `$1` owner, `$2` state, `$3` the id before, `$4` how many, `$5` a tag, `$6` a name as a
/// pattern, `$7` the reader, `$8` a group: its id where `is_one_group`, and otherwise a name that several have, `$9` the
/// expression of the few names where `is_few`, `$10` the sorted value before. A condition is there only when it is asked for.
pub(super) fn list(db: &Db, filter: &JobFilter<'_>, is_one_group: bool, is_few: bool) -> String {
    let origin = Origin::of(filter, is_one_group);
    let key = origin.id();
    let owner = if filter.owner.is_some() { origin.is_of("$1") } else { "$1 = ''".to_owned() };
    let state = if filter.state.is_some() { "s.state = $2" } else { "$2 = ''" };
    let tag = match (filter.tag, origin) {
        (None, _) => "$5 = ''",
        (Some(_), Origin::Tagged) => "t.tag = $5",
        (Some(_), _) => "EXISTS (SELECT 1 FROM job_tags t WHERE t.tag = $5 AND t.owner = j.owner AND t.job_id = j.id)",
    };
    let group = match filter.group {
        None => "$8 = ''",
        Some(_) if is_one_group => "s.charged_group = $8",
        Some(_) => "s.charged_group IN (SELECT g.id FROM groups g WHERE g.name = $8)",
    };
    let starred = if filter.starred { "AND j.starred" } else { "" };
    let has_helpers = filter.with_helpers || filter.id.is_some() || filter.tag.is_some();
    let work = if has_helpers { "" } else { "AND NOT j.helper" };
    let find = if filter.find.is_empty() { "$6 = ''" } else { "j.folded_name LIKE $6 ESCAPE '!'" };
    let parts = by_parts("j.id", Named::Job, "$9", is_few);
    let id = id_is("j.id", filter.id);
    let Ordering { after, order, value } = Ordering::new(filter.sort.as_ref(), key, "$3", "$10");
    let asked =
        format!("{owner} AND {state} AND {tag} AND {group} {starred} {work} {id} AND {find} {parts} AND {after}");
    let newest = format!("ORDER BY {order} LIMIT $4");
    let (select, from) = (format!("{}, {value} AS sorted", columns(db)), origin.from());
    match filter.reader {
        None => format!("{select} FROM {from} AND $7 = '' AND {asked} {newest}"),
        // One's own jobs are all seen.
        Some(_) if filter.owner == filter.reader => format!("{select} FROM {from} AND $7 <> '' AND {asked} {newest}"),
        Some(_) if origin == Origin::Live => {
            format!("{select} FROM {from} AND (j.owner = $7 OR {SHARED}) AND {asked} {newest}")
        }
        // What a reader may see is looked up among their own jobs and among those that are shared, never among all.
        Some(_) => {
            let part = |seen: &str| {
                format!("SELECT id FROM (SELECT {key} AS id FROM {from} AND {seen} AND {asked} {newest}) AS part")
            };
            let (own, shared) = (part(&origin.is_of("$7")), part(SHARED));
            let Ordering { order, .. } = Ordering::new(filter.sort.as_ref(), "j.id", "$3", "$10");
            format!("{select} FROM {NEWEST} WHERE j.id IN ({own} UNION {shared}) ORDER BY {order} LIMIT $4")
        }
    }
}

/// A tag as both databases can store it.
pub(super) fn stored_tag(tag: &str) -> String {
    tag.replace('\0', "\u{fffd}")
}

impl Db {
    pub async fn find_job(&self, id: JobId) -> Result<Option<Job>> {
        let sql = format!("{} WHERE j.id = $1", select_jobs(self));
        let row: Option<Row> = reading!(self, pool =>
            query_as(AssertSqlSafe(sql)).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(job).transpose()
    }

    /// What it runs.
    pub async fn job_task(&self, id: JobId) -> Result<Option<Task>> {
        let text: Option<String> = reading!(self, pool => query_scalar("SELECT task FROM jobs WHERE id = $1")
            .bind(id.to_string()).fetch_optional(pool).await)?;
        text.map(|text| Json::read(&text, "job's task")).transpose()
    }

    pub async fn list_jobs(&self, filter: JobFilter<'_>) -> Result<Vec<Job>> {
        Ok(self.list_jobs_sorted(filter).await?.into_iter().map(|(job, _)| job).collect())
    }

    /// Lists jobs, each with the value that the list is sorted by.
    pub async fn list_jobs_sorted(&self, filter: JobFilter<'_>) -> Result<Vec<(Job, String)>> {
        let name = filter.group.unwrap_or_default().replace('\0', "\u{fffd}");
        let mut groups: Vec<String> = match filter.group {
            Some(_) => reading!(self, pool => query_scalar("SELECT id FROM groups WHERE name = $1 LIMIT 2")
                .bind(&name).fetch_all(pool).await)?,
            None => Vec::new(),
        };
        let group = match groups.len() {
            0 if filter.group.is_some() => return Ok(Vec::new()),
            1 => groups.remove(0),
            _ => name,
        };
        let few = self.few_with_part(Named::Job, filter.find).await?;
        let sql = list(self, &filter, groups.is_empty(), !few.is_empty());
        let owner = filter.owner.map(|owner| owner.to_string()).unwrap_or_default();
        // "g" sorts after every hexadecimal digit, so after every id.
        let before = filter.before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(&owner).bind(filter.state.map_or("", SessionState::as_str)).bind(&before).bind(filter.limit)
            .bind(filter.tag.map(stored_tag).unwrap_or_default()).bind(pattern(filter.find))
            .bind(filter.reader.map(|reader| reader.to_string()).unwrap_or_default()).bind(&group).bind(&few)
            .bind(position(filter.sort.as_ref())).fetch_all(pool).await)?;
        let sorted = |mut row: Row| {
            let value = std::mem::take(&mut row.sorted);
            Ok((job(row)?, value))
        };
        Ok(readable(rows.into_iter().map(sorted)))
    }

    /// All attempts of a job, the latest first.
    pub async fn job_attempts(&self, id: JobId) -> Result<Vec<Session>> {
        let sql = format!("{} WHERE s.job_id = $1 ORDER BY s.attempt DESC", select(self));
        let rows: Vec<String> = reading!(self, pool =>
            query_scalar(AssertSqlSafe(sql)).bind(id.to_string()).fetch_all(pool).await)?;
        Ok(readable(rows.iter().map(|row| session(row))))
    }

    /// Changes what people say of a job; false where it is gone.
    pub async fn change_job(&self, id: JobId, change: &JobChange) -> Result<bool> {
        let folded = change.name.as_deref().map(fold);
        let tags = change.tags.as_ref().map(Json::write);
        let (id, visibility) = (id.to_string(), change.visibility.map(Visibility::as_str));
        let changed = transaction!(self, tx => {
            let changed = query("UPDATE jobs SET name = COALESCE($2, name),
                     folded_name = COALESCE($3, folded_name), notes = COALESCE($4, notes), tags = COALESCE($5, tags),
                     starred = COALESCE($6, starred), visibility = COALESCE($7, visibility) WHERE id = $1")
                .bind(&id).bind(&change.name).bind(&folded).bind(&change.notes).bind(&tags)
                .bind(change.starred).bind(visibility).execute(&mut *tx).await?.rows_affected();
            // Users who may see the job may see its run.
            if let Some(visibility) = visibility {
                query("UPDATE runs SET visibility = $2 WHERE job_id = $1").bind(&id).bind(visibility)
                    .execute(&mut *tx).await?;
            }
            if let Some(tags) = &change.tags {
                query("DELETE FROM job_tags WHERE job_id = $1").bind(&id).execute(&mut *tx).await?;
                for tag in tags {
                    query("INSERT INTO job_tags (tag, owner, job_id) SELECT $2, owner, id FROM jobs WHERE id = $1
                         ON CONFLICT (tag, owner, job_id) DO NOTHING")
                        .bind(&id).bind(stored_tag(tag)).execute(&mut *tx).await?;
                }
            }
            changed
        });
        Ok(changed > 0)
    }

    /// Moves a job that has ended into the trash, with its run. The rows of its attempts stay, since what they held is
    /// part of people's use, and go by age.
    pub async fn delete_job(&self, id: JobId, by: ChangedBy<'_>) -> Result<DeleteOutcome> {
        let id = id.to_string();
        Ok(transaction!(self, tx => 'delete: {
            let found: Option<(String, String)> = query_as("SELECT j.name, s.state FROM jobs j
                 JOIN sessions s ON s.id = j.session_id WHERE j.id = $1")
                .bind(&id).fetch_optional(&mut *tx).await?;
            let Some((name, state)) = found else { break 'delete DeleteOutcome::Missing };
            if state != SessionState::Ended.as_str() {
                break 'delete DeleteOutcome::Live;
            }
            discard_job(&mut *tx, &id, by.at).await?;
            append_audit(&mut *tx, &by.did("job.delete", &id, &name)).await?;
            DeleteOutcome::Done
        }))
    }

    /// Whether two people are members of one group.
    pub async fn share_a_group(&self, one: UserId, other: UserId) -> Result<bool> {
        let found: Option<(i64,)> = reading!(self, pool => query_as("SELECT CAST(1 AS BIGINT) FROM group_members a
             JOIN group_members b ON b.group_id = a.group_id WHERE a.user_id = $1 AND b.user_id = $2 LIMIT 1")
            .bind(one.to_string()).bind(other.to_string()).fetch_optional(pool).await)?;
        Ok(found.is_some())
    }
}
