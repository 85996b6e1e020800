//! What was refused, and why: the latest requests of each person. Admission writes the rows in
//! its own transaction, be it that a request was refused at once or after it had waited;
//! whoever manages limits reads them.

use sqlx::{FromRow, query_as};

use super::{Db, Json, Result, reading, types::parse};
use lyceum_model::{Resources, SessionId, Timestamp, UserId, quota::Reason};

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub id: SessionId,
    pub app: String,
    pub name: String,
    pub resources: Resources,
    pub duration_seconds: i64,
    pub reasons: Vec<Reason>,
    pub at: Timestamp,
    /// It waited first, so there is a session of this id.
    pub waited: bool,
}

/// `$1` session, `$2` owner, `$3` app, `$4` name, `$5`–`$9` what was asked for, `$10` reasons, `$11` now.
pub(super) const ADD: &str =
    "INSERT INTO refusals (id, owner, app, name, gpus, gpu_model, cpus, memory_bytes, duration_seconds, reasons, refused_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// The same for a session that waits: `$1` session, `$2` reasons, `$3` now.
pub(super) const ADD_WAITING: &str =
    "INSERT INTO refusals (id, owner, app, name, gpus, gpu_model, cpus, memory_bytes, duration_seconds, reasons, refused_at)
     SELECT id, owner, app, name, gpus, gpu_model, cpus, memory_bytes, duration_seconds, $2, $3 FROM sessions WHERE id = $1";

/// Forgets all but the latest twenty of a person (`$1`): whoever asks in a loop fills nothing.
pub(super) const KEEP_LATEST: &str = "DELETE FROM refusals WHERE owner = $1 AND id NOT IN
     (SELECT id FROM refusals WHERE owner = $1 ORDER BY refused_at DESC, id DESC LIMIT 20)";

/// `$1` the moment before which they are forgotten.
pub(super) const DELETE_OLD: &str = "DELETE FROM refusals WHERE refused_at < $1";

#[derive(FromRow)]
struct Row {
    id: String,
    app: String,
    name: String,
    gpus: i64,
    gpu_model: Option<String>,
    cpus: i64,
    memory_bytes: i64,
    duration_seconds: i64,
    reasons: String,
    refused_at: i64,
    session: Option<String>,
}

impl Db {
    /// What was refused somebody lately, the latest first.
    pub async fn refusals(&self, owner: UserId, limit: i64) -> Result<Vec<Refusal>> {
        let owner = owner.to_string();
        let rows: Vec<Row> = reading!(self, pool => query_as(
            "SELECT r.id, r.app, r.name, r.gpus, r.gpu_model, r.cpus, r.memory_bytes, r.duration_seconds, r.reasons,
                 r.refused_at, s.id AS session
             FROM refusals r LEFT JOIN sessions s ON s.id = r.id
             WHERE r.owner = $1 ORDER BY r.refused_at DESC, r.id DESC LIMIT $2")
            .bind(&owner).bind(limit).fetch_all(pool).await)?;
        rows.into_iter().map(Row::refusal).collect()
    }
}

impl Row {
    fn refusal(self) -> Result<Refusal> {
        let Self { gpus, gpu_model, cpus, memory_bytes, .. } = self;
        Ok(Refusal {
            id: parse(&self.id, "session id")?,
            app: self.app,
            name: self.name,
            resources: Resources { gpus, gpu_model, cpus, memory_bytes },
            duration_seconds: self.duration_seconds,
            reasons: Json::read(&self.reasons, "reasons of a refusal")?,
            at: Timestamp(self.refused_at),
            waited: self.session.is_some(),
        })
    }
}
