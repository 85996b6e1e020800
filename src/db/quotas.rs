//! The table of limits: one row a scope and field. No row means *inherit*, -1 unlimited.
//! Which row wins is `model::quota`'s business.

use sqlx::{FromRow, query, query_as};

use super::{Db, Error, Result, reading, transaction, types::parse};
use crate::model::{
    Timestamp, UserId,
    quota::{Field, LimitRow},
};

#[derive(FromRow)]
pub(super) struct Row {
    scope: String,
    field: String,
    value: i64,
    expires_at: Option<i64>,
    note: Option<String>,
}

impl Row {
    pub(super) fn limit(self) -> Result<LimitRow> {
        Ok(LimitRow {
            scope: parse(&self.scope, "scope of a limit")?,
            field: Field::parse(&self.field).ok_or(Error::Stored("field of a limit"))?,
            value: self.value,
            expires_at: self.expires_at.map(Timestamp),
            note: self.note,
        })
    }
}

/// The rows that bear on one person: the defaults and their own.
pub(super) const OF_PERSON: &str = "SELECT scope, field, value, expires_at, note FROM quota_limits
     WHERE kind = 'each' AND (scope = 'default' OR (scope = 'user' AND scope_id = $1))";

/// One field's change: `None` removes the row, so that the field is inherited again.
pub type Change = (Field, Option<i64>);

impl Db {
    pub async fn limits_of(&self, user: UserId) -> Result<Vec<LimitRow>> {
        let user = user.to_string();
        reading!(self, pool => query_as::<_, Row>(OF_PERSON).bind(&user).fetch_all(pool).await)?
            .into_iter()
            .map(Row::limit)
            .collect()
    }

    /// The rows at the default alone.
    pub async fn default_limits(&self) -> Result<Vec<LimitRow>> {
        reading!(self, pool => query_as::<_, Row>(OF_PERSON).bind("").fetch_all(pool).await)?
            .into_iter()
            .map(Row::limit)
            .collect()
    }

    /// Changes fields at the default (`user` is `None`) or for a person, all or none.
    pub async fn set_limits(&self, user: Option<UserId>, changes: &[Change], about: &ChangeNote<'_>) -> Result<()> {
        let scope = if user.is_some() { "user" } else { "default" };
        let scope_id = user.map(|user| user.to_string()).unwrap_or_default();
        transaction!(self, tx => for (field, value) in changes {
            match value {
                Some(value) => query("INSERT INTO quota_limits
                     (scope, scope_id, kind, field, value, expires_at, note, updated_by, updated_at)
                     VALUES ($1, $2, 'each', $3, $4, $5, $6, $7, $8)
                     ON CONFLICT (scope, scope_id, kind, field) DO UPDATE SET value = excluded.value,
                         expires_at = excluded.expires_at, note = excluded.note,
                         updated_by = excluded.updated_by, updated_at = excluded.updated_at")
                    .bind(scope).bind(&scope_id).bind(field.as_str()).bind(value)
                    .bind(about.expires_at.map(|at| at.0)).bind(about.note).bind(about.by).bind(about.at.0)
                    .execute(&mut *tx).await?,
                None => query("DELETE FROM quota_limits WHERE scope = $1 AND scope_id = $2 AND kind = 'each' AND field = $3")
                    .bind(scope).bind(&scope_id).bind(field.as_str())
                    .execute(&mut *tx).await?,
            };
        });
        Ok(())
    }
}

/// Who changed limits, when, until when and why.
#[derive(Clone, Copy, Debug)]
pub struct ChangeNote<'a> {
    pub by: &'a str,
    pub at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub note: Option<&'a str>,
}
