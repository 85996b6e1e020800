//! What waiting jobs wait for besides quotas and room, and which failed ones are to be tried
//! again. What follows from it is `model::hold`'s to say.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, FromRow, query, query_as};

use super::{
    Db, Result,
    jobs::{Row, job, select_jobs},
    reading,
    types::{parse, readable},
    writing,
};
use lyceum_model::{
    Job, JobId, SessionId, SweepState, Timestamp,
    hold::{Dependency, Obstacles, Outcome},
};

#[derive(FromRow)]
struct DependencyRow {
    after_id: String,
    needs: String,
    name: Option<String>,
    state: Option<String>,
    end_reason: Option<String>,
    exit_code: Option<i64>,
    retries_left: Option<i64>,
}

const DEPENDENCIES: &str = "SELECT d.after_id, d.needs, j.name, s.state, s.end_reason, s.exit_code, j.retries_left
     FROM job_dependencies d LEFT JOIN jobs j ON j.id = d.after_id LEFT JOIN sessions s ON s.id = j.session_id
     WHERE d.job_id = $1 ORDER BY d.after_id";

#[derive(FromRow)]
struct WaitingJob {
    id: String,
    owner: String,
    not_before: Option<i64>,
    sweep: Option<String>,
}

pub(super) const WAITING: &str = "SELECT s.id, s.owner, s.not_before, w.state AS sweep FROM sessions s
     LEFT JOIN jobs j ON j.id = s.job_id LEFT JOIN sweeps w ON w.id = j.sweep_id
     WHERE s.state <> 'ended' AND s.admitted_at IS NULL AND s.job_id IS NOT NULL";

#[derive(FromRow)]
struct DependencyOf {
    session_id: String,
    #[sqlx(flatten)]
    row: DependencyRow,
}

pub(super) const DEPENDENCIES_OF_WAITING: &str =
    "SELECT waits.id AS session_id, d.after_id, d.needs, j.name, s.state, s.end_reason,
         s.exit_code, j.retries_left
     FROM sessions waits JOIN job_dependencies d ON d.job_id = waits.job_id LEFT JOIN jobs j ON j.id = d.after_id
     LEFT JOIN sessions s ON s.id = j.session_id
     WHERE waits.state <> 'ended' AND waits.admitted_at IS NULL AND waits.attempt = 1 ORDER BY waits.id, d.after_id";

fn dependency(row: DependencyRow) -> Result<Dependency> {
    let end_reason = row.end_reason.map(|word| parse(&word, "end reason")).transpose()?;
    let found = match (row.name, row.state, row.retries_left) {
        (Some(name), Some(state), Some(retries)) => {
            let state = parse(&state, "session's state")?;
            Some((name, Outcome::of(state, end_reason, row.exit_code, retries)))
        }
        _ => None,
    };
    Ok(Dependency { job: parse(&row.after_id, "job id")?, needs: parse(&row.needs, "job's dependency")?, found })
}

impl Db {
    /// How those stand that a job is to follow.
    pub async fn job_dependencies(&self, id: JobId) -> Result<Vec<Dependency>> {
        let rows: Vec<DependencyRow> =
            reading!(self, pool => query_as(DEPENDENCIES).bind(id.to_string()).fetch_all(pool).await)?;
        rows.into_iter().map(dependency).collect()
    }

    /// What stands between each attempt that waits and its decision. Who is tried again, or resumed by its owner, has
    /// waited for others already.
    pub async fn obstacles_of_waiting(&self) -> Result<HashMap<SessionId, Obstacles>> {
        let (rows, dependencies) = reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let rows: Vec<WaitingJob> = query_as(WAITING).fetch_all(&mut *tx).await?;
            let dependencies: Vec<DependencyOf> = query_as(DEPENDENCIES_OF_WAITING).fetch_all(&mut *tx).await?;
            (rows, dependencies)
        });
        let pauses = self.queue_pauses_by_user().await?;
        let mut by_session = HashMap::<String, Vec<Dependency>>::new();
        for DependencyOf { session_id, row } in dependencies {
            by_session.entry(session_id).or_default().push(dependency(row)?);
        }
        let obstacles = |row: WaitingJob| {
            let of = |user: &str| pauses.get(user).cloned();
            let found = Obstacles {
                not_before: row.not_before.map(Timestamp),
                dependencies: by_session.remove(&row.id).unwrap_or_default(),
                pauses: of("").into_iter().chain(of(&row.owner)).collect(),
                sweep_is_paused: row.sweep.is_some_and(|state| state == SweepState::Paused.as_str()),
            };
            Ok((parse(&row.id, "session id")?, found))
        };
        rows.into_iter().map(obstacles).collect()
    }

    /// Jobs that have ended with retries left: they are tried again, or settled.
    pub async fn jobs_to_retry(&self) -> Result<Vec<Job>> {
        let sql = format!("{} WHERE j.retries_left > 0 AND s.state = 'ended' ORDER BY j.id", select_jobs(self));
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql)).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(job)))
    }

    /// From now on this job is not tried again by itself.
    pub async fn settle_job(&self, id: JobId) -> Result<()> {
        writing!(self, pool => query("UPDATE jobs SET retries_left = 0 WHERE id = $1").bind(id.to_string())
            .execute(pool).await.map(drop))?;
        Ok(())
    }
}
