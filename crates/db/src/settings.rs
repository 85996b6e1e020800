//! Single values: this installation's id, and the access generation that rises with every
//! change of who may enter what, so that live sockets are looked at again within a second.

use sqlx::{query, query_scalar};

use super::{Db, Result, reading, writing};

/// Raised inside the transaction of any change of access, also by the command line.
pub(super) const RAISE_GENERATION: &str = "INSERT INTO settings (name, value) VALUES ('access_generation', '1')
     ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(settings.value AS BIGINT) + 1 AS TEXT)";

pub(super) const SET_SETTING: &str = "INSERT INTO settings (name, value) VALUES ($1, $2)
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";

impl Db {
    pub async fn setting(&self, name: &str) -> Result<Option<String>> {
        Ok(reading!(self, pool => query_scalar("SELECT value FROM settings WHERE name = $1")
            .bind(name).fetch_optional(pool).await)?)
    }

    pub async fn set_setting(&self, name: &str, value: &str) -> Result<()> {
        writing!(self, pool => query(SET_SETTING)
            .bind(name).bind(value).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Keeps the first value ever given for `name` and answers with it.
    pub async fn setting_or(&self, name: &str, value: &str) -> Result<String> {
        Ok(writing!(self, pool => query_scalar("INSERT INTO settings (name, value) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET value = settings.value RETURNING value")
            .bind(name).bind(value).fetch_one(pool).await)?)
    }

    pub async fn access_generation(&self) -> Result<i64> {
        let text = self.setting("access_generation").await?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}
