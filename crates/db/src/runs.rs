//! Runs: whose they are, who may see them, and how far reading has come. What somebody changes
//! writes its row of the audit log in the same transaction; what reading notes does not. The
//! points themselves are `curves`'s.

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    idempotency::{self, IdempotentRequest},
    people::places,
    reading,
    search::{id_is, pattern},
    transaction,
    trash::discard_run,
    types::{Json, parse, parse_optional, readable},
    writing,
};
use lyceum_model::{
    GroupId, IdPart, JobId, Run, RunId, SessionId, SessionState, Timestamp, UserId,
    run::{ReadProgress, Source, UnreadAttempt},
    session::{Placement, SessionSpec},
};

/// Which runs to list, the newest first.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// Who reads; `None` sees all.
    pub reader: Option<UserId>,
    /// Only those of this person.
    pub owner: Option<&'a str>,
    /// A part of the name of runs that no job made: those have the name of their job.
    pub find: &'a str,
    /// Runs of helper jobs too. A list by id has them anyway.
    pub with_helpers: bool,
    /// The last one of the page before.
    pub before: Option<RunId>,
    pub limit: i64,
}

#[derive(FromRow)]
struct Row {
    id: String,
    owner: String,
    owner_name: String,
    name: String,
    directory: String,
    session_id: Option<String>,
    job_id: Option<String>,
    state: Option<String>,
    placement: Option<String>,
    visibility: String,
    group_id: Option<String>,
    group_name: Option<String>,
    complete: bool,
    points: i64,
    curves: i64,
    read_at: Option<i64>,
    grown_at: Option<i64>,
    error: Option<String>,
    skipped: String,
    created_at: i64,
    helper: bool,
}

impl Row {
    fn run(self) -> Result<Run> {
        let source = match self.session_id {
            None => Source::External,
            Some(id) => Source::Session {
                id: parse(&id, "session id")?,
                job: parse_optional(self.job_id.as_deref(), "job id")?,
                // One that was forgotten had ended long before.
                state: parse_optional(self.state.as_deref(), "session's state")?.unwrap_or(SessionState::Ended),
                placement: self.placement.as_deref().and_then(Json::read_or_default::<Option<Box<Placement>>>),
            },
        };
        let group: Option<GroupId> = parse_optional(self.group_id.as_deref(), "group id")?;
        Ok(Run {
            id: parse(&self.id, "run id")?,
            owner: parse(&self.owner, "user id")?,
            owner_name: self.owner_name,
            name: self.name,
            directory: self.directory,
            source,
            visibility: parse(&self.visibility, "visibility")?,
            group: group.map(|group| (group, self.group_name)),
            reading: ReadProgress {
                complete: self.complete,
                points: self.points.unsigned_abs(),
                curves: self.curves.unsigned_abs(),
                read_at: self.read_at.map(Timestamp),
                grown_at: self.grown_at.map(Timestamp),
                error: self.error,
                skipped: Json::read_or_default(&self.skipped),
            },
            created_at: Timestamp(self.created_at),
            is_helper: self.helper,
        })
    }
}

const SELECT: &str = "SELECT runs.id, runs.owner, users.name AS owner_name, COALESCE(jobs.name, runs.name) AS name,
    runs.directory, runs.session_id, runs.job_id, sessions.state, sessions.placement, runs.visibility, runs.group_id, groups.name AS group_name, runs.complete,
    runs.points, runs.curves, runs.read_at, runs.grown_at, runs.error, runs.skipped, runs.created_at, runs.helper
    FROM runs JOIN users ON users.id = runs.owner LEFT JOIN jobs ON jobs.id = runs.job_id
    LEFT JOIN sessions ON sessions.id = runs.session_id LEFT JOIN groups ON groups.id = runs.group_id";

/// Runs that other users share with the reader `$1`. A job's group is any that its owner is in. The first words are
/// those of the index `runs_shared`.
const SHARED: &str = "(runs.visibility <> 'private' AND (runs.visibility = 'everybody'
    OR (runs.job_id IS NULL AND runs.group_id IN (SELECT group_id FROM group_members WHERE user_id = $1))
    OR (runs.job_id IS NOT NULL AND EXISTS (SELECT 1 FROM group_members mine JOIN group_members theirs
        ON theirs.group_id = mine.group_id WHERE mine.user_id = $1 AND theirs.user_id = runs.owner))))";

/// Builds the statement that lists runs: `$1` reader, `$2` owner's name, `$3` the id before, `$4` how many, `$5` the pattern of a name. What a
/// reader may see is looked up among their own runs and among those that are shared, never among all.
pub(super) fn list(filter: &Filter<'_>, id: Option<&IdPart>) -> String {
    let owner = if filter.owner.is_some() { "runs.owner = (SELECT id FROM users WHERE name = $2)" } else { "$2 = ''" };
    let find =
        if filter.find.is_empty() { "$5 = ''" } else { "runs.job_id IS NULL AND LOWER(runs.name) LIKE $5 ESCAPE '!'" };
    let work = if filter.with_helpers || id.is_some() { "" } else { "AND NOT runs.helper" };
    let asked = format!("{owner} AND {find} {work} AND runs.id < $3 {}", id_is("runs.id", id));
    let newest = "ORDER BY runs.id DESC LIMIT $4";
    let part =
        |seen: &str| format!("SELECT id FROM (SELECT runs.id FROM runs WHERE {seen} AND {asked} {newest}) AS part");
    if filter.reader.is_none() {
        return format!("{SELECT} WHERE $1 = '' AND {asked} {newest}");
    }
    let (own, shared) = (part("runs.owner = $1"), part(SHARED));
    format!("{SELECT} WHERE runs.id IN ({own} UNION {shared}) {newest}")
}

fn reader(reader: Option<UserId>) -> String {
    reader.map(|reader| reader.to_string()).unwrap_or_default()
}

fn small(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Db {
    pub async fn list_runs(&self, filter: &Filter<'_>) -> Result<Vec<Run>> {
        self.list_runs_like(filter, None).await
    }

    /// Those of them whose id begins or ends with this part.
    pub async fn list_runs_like(&self, filter: &Filter<'_>, id: Option<&IdPart>) -> Result<Vec<Run>> {
        let sql = list(filter, id);
        // "g" sorts after every hexadecimal digit, so after every id.
        let before = filter.before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(reader(filter.reader)).bind(filter.owner.unwrap_or_default()).bind(before).bind(filter.limit)
            .bind(pattern(filter.find)).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(Row::run)))
    }

    /// A run, if `sees` (`None`: all) may see it.
    pub async fn find_run(&self, id: RunId, sees: Option<UserId>) -> Result<Option<Run>> {
        let sql = format!("{SELECT} WHERE ($1 = '' OR runs.owner = $1 OR {SHARED}) AND runs.id = $2");
        let row: Option<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(reader(sees)).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(Row::run).transpose()
    }

    /// Returns the runs of some jobs; a job whose logs nobody has read has none.
    pub async fn runs_of_jobs(&self, jobs: &[JobId]) -> Result<Vec<(JobId, RunId)>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!("SELECT job_id, id FROM runs WHERE job_id IN ({})", places(jobs.len()));
        let rows: Vec<(String, String)> = reading!(self, pool => {
            let question = query_as(AssertSqlSafe(sql));
            jobs.iter().fold(question, |question, id| question.bind(id.to_string())).fetch_all(pool).await
        })?;
        rows.iter().map(|(job, run)| Ok((parse(job, "job id")?, parse(run, "run id")?))).collect()
    }

    /// The run of a job, whoever may see it.
    pub async fn run_of_job(&self, job: JobId) -> Result<Option<Run>> {
        let sql = format!("{SELECT} WHERE runs.job_id = $1");
        let row: Option<Row> = reading!(self, pool =>
            query_as(AssertSqlSafe(sql)).bind(job.to_string()).fetch_optional(pool).await)?;
        row.map(Row::run).transpose()
    }

    /// Latest attempts of jobs behind `since` that no run is of.
    pub async fn unread_attempts(&self, since: SessionId) -> Result<Vec<UnreadAttempt>> {
        let rows: Vec<(String, String, String, String)> = reading!(self, pool => query_as(
            "SELECT jobs.id, jobs.owner, sessions.id, sessions.spec FROM sessions JOIN jobs ON jobs.session_id = sessions.id
             WHERE sessions.id > $1 AND sessions.job_id IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.job_id = jobs.id AND runs.session_id = sessions.id)")
            .bind(since.to_string()).fetch_all(pool).await)?;
        let mut found = Vec::new();
        for (job, owner, session, spec) in rows {
            // What cannot be read of it names no directory.
            let Some(directory) = SessionSpec::salvaged(&spec).log_directory else { continue };
            found.push(UnreadAttempt {
                job: parse(&job, "job id")?,
                owner: parse(&owner, "user id")?,
                session: parse(&session, "session id")?,
                directory,
            });
        }
        Ok(found)
    }

    /// Makes the run of a job, or has the one that is there read another attempt.
    pub async fn read_attempt(&self, attempt: &UnreadAttempt, directory: &str, now: Timestamp) -> Result<()> {
        writing!(self, pool => query("INSERT INTO runs (id, owner, name, directory, session_id, job_id, visibility,
                 complete, points, curves, look_at, skipped, created_at, helper)
             SELECT $1, $2, '', $3, $4, $5, jobs.visibility, FALSE, 0, 0, 0, $6, $7, jobs.helper FROM jobs WHERE jobs.id = $5
             ON CONFLICT (job_id) DO UPDATE SET session_id = $4, directory = $3, complete = FALSE")
            .bind(RunId::new().to_string()).bind(attempt.owner.to_string()).bind(directory)
            .bind(attempt.session.to_string()).bind(attempt.job.to_string())
            .bind(Json::write(&lyceum_model::run::SkippedData::default())).bind(now.0).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Removes the runs of jobs that were forgotten; which they were.
    pub async fn remove_runs_without_job(&self) -> Result<Vec<RunId>> {
        let ids: Vec<String> = transaction!(self, tx => {
            let ids: Vec<String> = query_scalar("SELECT id FROM runs WHERE job_id IS NOT NULL
                     AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = runs.job_id)")
                .fetch_all(&mut *tx).await?;
            for id in &ids {
                query("DELETE FROM run_digests WHERE run_id = $1").bind(id).execute(&mut *tx).await?;
                query("DELETE FROM runs WHERE id = $1").bind(id).execute(&mut *tx).await?;
            }
            ids
        });
        ids.iter().map(|id| parse(id, "run id")).collect()
    }

    /// What is to be read: runs whose workload lives; of those whose workload has ended since, `most` of each person,
    /// what could not be read before after the others; and `most` of the directories of nobody's that are due, the
    /// longest due first.
    pub async fn runs_to_read(&self, now: Timestamp, most: i64) -> Result<Vec<Run>> {
        let of_sessions = format!(
            "{SELECT} WHERE runs.session_id IS NOT NULL AND NOT runs.complete AND (sessions.state <> 'ended' OR runs.id IN
                 (SELECT id FROM (SELECT ended.id, ROW_NUMBER() OVER (PARTITION BY ended.owner
                      ORDER BY CASE WHEN ended.error IS NULL THEN 0 ELSE ended.look_at END, ended.id) AS turn
                  FROM runs ended LEFT JOIN sessions past ON past.id = ended.session_id
                  WHERE ended.session_id IS NOT NULL AND NOT ended.complete AND COALESCE(past.state, 'ended') = 'ended')
                  AS turns WHERE turn <= $1))"
        );
        let due =
            format!("{SELECT} WHERE runs.session_id IS NULL AND runs.look_at <= $1 ORDER BY runs.look_at LIMIT $2");
        let mut rows: Vec<Row> =
            reading!(self, pool => query_as(AssertSqlSafe(of_sessions)).bind(most).fetch_all(pool).await)?;
        let due: Vec<Row> =
            reading!(self, pool => query_as(AssertSqlSafe(due)).bind(now.0).bind(most).fetch_all(pool).await)?;
        rows.extend(due);
        Ok(readable(rows.into_iter().map(Row::run)))
    }

    /// Every run there is or that can be restored, to tell which files of points are nobody's any more.
    pub async fn run_ids(&self) -> Result<Vec<RunId>> {
        let ids: Vec<String> = reading!(self, pool => query_scalar("SELECT id FROM runs UNION ALL SELECT id FROM trashed_runs").fetch_all(pool).await)?;
        ids.iter().map(|id| parse(id, "run id")).collect()
    }

    /// One of somebody's groups, by its name.
    pub async fn group_of_member(&self, member: UserId, name: &str) -> Result<Option<GroupId>> {
        let id: Option<String> = reading!(self, pool => query_scalar(
            "SELECT groups.id FROM groups JOIN group_members ON group_members.group_id = groups.id
             WHERE group_members.user_id = $1 AND groups.name = $2 ORDER BY groups.id LIMIT 1")
            .bind(member.to_string()).bind(name).fetch_optional(pool).await)?;
        parse_optional(id.as_deref(), "group id")
    }

    /// Writes a new one; [`super::Error::Unique`] when another request with its key was faster.
    pub async fn add_run(&self, new: &Run, once: Option<IdempotentRequest<'_>>, noted: &Entry<'_>) -> Result<()> {
        let id = new.id.to_string();
        let session = match &new.source {
            Source::External => None,
            Source::Session { id, .. } => Some(id.to_string()),
        };
        transaction!(self, tx => {
            query("INSERT INTO runs (id, owner, name, directory, session_id, visibility, group_id, complete, points,
                     curves, look_at, skipped, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, $9, $10)")
                .bind(&id).bind(new.owner.to_string()).bind(&new.name).bind(&new.directory).bind(session)
                .bind(new.visibility.as_str()).bind(new.group.as_ref().map(|(group, _)| group.to_string()))
                .bind(new.reading.complete).bind(Json::write(&new.reading.skipped)).bind(new.created_at.0)
                .execute(&mut *tx).await?;
            if let Some(once) = once {
                query(idempotency::ADD).bind(once.user.to_string()).bind(once.key).bind(once.request_hash).bind(&id)
                    .bind(new.created_at.0).execute(&mut *tx).await?;
            }
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Writes what its owner may change of it: name and visibility. False where it is gone.
    pub async fn change_run(&self, run: &Run, noted: &Entry<'_>) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let changed = query("UPDATE runs SET name = $2, visibility = $3, group_id = $4 WHERE id = $1")
                .bind(run.id.to_string()).bind(&run.name).bind(run.visibility.as_str())
                .bind(run.group.as_ref().map(|(group, _)| group.to_string())).execute(&mut *tx).await?;
            if changed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    /// Moves a run into the trash; false where it is gone.
    pub async fn remove_run(&self, id: RunId, noted: &Entry<'_>) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => {
            if !discard_run(&mut *tx, &id, noted.at).await? {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    /// Notes how far reading has come, and when to look next where nobody's agent follows.
    pub async fn note_reading(&self, id: RunId, reading: &ReadProgress, look_at: Timestamp) -> Result<()> {
        writing!(self, pool => query("UPDATE runs SET complete = $2, points = $3, curves = $4, read_at = $5,
                 grown_at = $6, error = $7, skipped = $8, look_at = $9 WHERE id = $1")
            .bind(id.to_string()).bind(reading.complete).bind(small(reading.points)).bind(small(reading.curves))
            .bind(reading.read_at.map(|at| at.0)).bind(reading.grown_at.map(|at| at.0)).bind(&reading.error)
            .bind(Json::write(&reading.skipped)).bind(look_at.0).execute(pool).await.map(drop))?;
        Ok(())
    }
}
