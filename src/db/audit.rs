//! The audit table: who did what to what, in order. Rows are added, never changed.

use sqlx::query;

use super::{Db, Result, writing};
use crate::model::Timestamp;

impl Db {
    pub async fn add_audit(&self, at: Timestamp, actor: &str, action: &str, target: &str, detail: &str) -> Result<()> {
        let id = uuid::Uuid::now_v7().to_string();
        writing!(self, pool => query("INSERT INTO audit (id, at, actor, action, target, detail) VALUES ($1, $2, $3, $4, $5, $6)")
            .bind(&id).bind(at.0).bind(actor).bind(action).bind(target).bind(detail)
            .execute(pool).await.map(drop))?;
        Ok(())
    }
}
