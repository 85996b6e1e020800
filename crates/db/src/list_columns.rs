//! The columns of lists that users chose. A user who chose none has no row, and so sees the usual columns; which columns
//! a list has is decided by whoever draws it.

use sqlx::{query, query_scalar};

use super::{Db, Result, reading, writing};
use lyceum_model::UserId;

impl Db {
    /// Returns the names of the columns that a user chose for a list; `None` where they chose none.
    pub async fn list_columns(&self, user: UserId, list: &str) -> Result<Option<String>> {
        Ok(reading!(self, pool => query_scalar("SELECT columns FROM list_columns WHERE user_id = $1 AND list = $2")
            .bind(user.to_string()).bind(list).fetch_optional(pool).await)?)
    }

    /// Keeps the names of the columns that a user chose for a list.
    pub async fn set_list_columns(&self, user: UserId, list: &str, columns: &str) -> Result<()> {
        writing!(self, pool => query("INSERT INTO list_columns (user_id, list, columns) VALUES ($1, $2, $3)
             ON CONFLICT (user_id, list) DO UPDATE SET columns = $3")
            .bind(user.to_string()).bind(list).bind(columns).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Forgets the choice, so that the usual columns are shown.
    pub async fn reset_list_columns(&self, user: UserId, list: &str) -> Result<()> {
        writing!(self, pool => query("DELETE FROM list_columns WHERE user_id = $1 AND list = $2")
            .bind(user.to_string()).bind(list).execute(pool).await.map(drop))?;
        Ok(())
    }
}
