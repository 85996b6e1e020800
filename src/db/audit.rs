//! The audit table: who did what to what, in order. Rows are added, never changed.

use sqlx::{FromRow, query, query_as};

use super::{Db, Result, reading, writing};
use crate::model::Timestamp;

/// One row, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub at: Timestamp,
    /// A user's name, what somebody typed as one, or `unix:NAME` for the command line.
    pub actor: String,
    pub action: String,
    pub target: String,
    pub detail: String,
}

#[derive(FromRow)]
struct Row {
    at: i64,
    actor: String,
    action: String,
    target: String,
    detail: String,
}

/// `$1` id, `$2` time, `$3` actor, `$4` action, `$5` target, `$6` detail.
pub(super) const ADD_AUDIT: &str =
    "INSERT INTO audit (id, at, actor, action, target, detail) VALUES ($1, $2, $3, $4, $5, $6)";

/// An id for a new row; later ones sort after earlier ones.
pub(super) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

impl Db {
    pub async fn add_audit(&self, at: Timestamp, actor: &str, action: &str, target: &str, detail: &str) -> Result<()> {
        writing!(self, pool => query(ADD_AUDIT)
            .bind(new_id()).bind(at.0).bind(actor).bind(action).bind(target).bind(detail)
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// The last rows, newest first.
    pub async fn list_audit(&self, limit: i64) -> Result<Vec<Audit>> {
        let rows: Vec<Row> = reading!(self, pool =>
            query_as("SELECT at, actor, action, target, detail FROM audit ORDER BY id DESC LIMIT $1")
            .bind(limit).fetch_all(pool).await)?;
        Ok(rows
            .into_iter()
            .map(|Row { at, actor, action, target, detail }| Audit { at: Timestamp(at), actor, action, target, detail })
            .collect())
    }
}
