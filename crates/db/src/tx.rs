//! An open transaction of either database behind one type, so that a procedure of several statements is a function and
//! its errors point at its lines. A statement has one text for both databases; its parameters and rows are of types
//! that both know.

use sqlx::{
    Arguments as _, Encode, FromRow, PgConnection, Postgres, SqlSafeStr, SqlStr, Sqlite, SqliteConnection, Type,
    error::BoxDynError,
    postgres::{PgArguments, PgRow},
    query_as_with, query_with,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::Result;

/// The connection of an open transaction.
pub(super) enum Tx<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

/// A statement with its parameters so far.
pub(super) struct Statement<'t> {
    sql: SqlStr,
    target: Target<'t>,
    failed: Option<BoxDynError>,
}

enum Target<'t> {
    Sqlite(&'t mut SqliteConnection, SqliteArguments),
    Postgres(&'t mut PgConnection, PgArguments),
}

/// A value that both databases store.
pub(super) trait Value<'v>: Encode<'v, Sqlite> + Type<Sqlite> + Encode<'v, Postgres> + Type<Postgres> {}
impl<'v, T: Encode<'v, Sqlite> + Type<Sqlite> + Encode<'v, Postgres> + Type<Postgres>> Value<'v> for T {}

/// A row that is read from both databases.
pub(super) trait Row: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}
impl<T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin> Row for T {}

impl<'c> From<&'c mut SqliteConnection> for Tx<'c> {
    fn from(connection: &'c mut SqliteConnection) -> Self {
        Self::Sqlite(connection)
    }
}

impl<'c> From<&'c mut PgConnection> for Tx<'c> {
    fn from(connection: &'c mut PgConnection) -> Self {
        Self::Postgres(connection)
    }
}

impl Tx<'_> {
    /// Lends the connection to a function.
    pub(super) fn again(&mut self) -> Tx<'_> {
        match self {
            Self::Sqlite(connection) => Tx::Sqlite(connection),
            Self::Postgres(connection) => Tx::Postgres(connection),
        }
    }

    /// Begins a statement.
    pub(super) fn query(&mut self, sql: impl SqlSafeStr) -> Statement<'_> {
        let target = match self {
            Self::Sqlite(connection) => Target::Sqlite(connection, SqliteArguments::default()),
            Self::Postgres(connection) => Target::Postgres(connection, PgArguments::default()),
        };
        Statement { sql: sql.into_sql_str(), target, failed: None }
    }
}

impl<'t> Statement<'t> {
    /// Adds the value of the next parameter. One that cannot be encoded fails the statement.
    pub(super) fn bind<'v>(mut self, value: impl Value<'v>) -> Self {
        let added = match &mut self.target {
            Target::Sqlite(_, arguments) => arguments.add(value),
            Target::Postgres(_, arguments) => arguments.add(value),
        };
        self.failed = self.failed.or(added.err());
        self
    }

    /// Executes a change and returns how many rows it changed.
    pub(super) async fn execute(self) -> Result<u64> {
        let (sql, target) = self.checked()?;
        Ok(match target {
            Target::Sqlite(connection, arguments) => {
                query_with::<Sqlite, _>(sql, arguments).execute(connection).await?.rows_affected()
            }
            Target::Postgres(connection, arguments) => {
                query_with::<Postgres, _>(sql, arguments).execute(connection).await?.rows_affected()
            }
        })
    }

    /// Reads all rows.
    pub(super) async fn all<T: Row>(self) -> Result<Vec<T>> {
        let (sql, target) = self.checked()?;
        Ok(match target {
            Target::Sqlite(connection, arguments) => {
                query_as_with::<Sqlite, T, _>(sql, arguments).fetch_all(connection).await?
            }
            Target::Postgres(connection, arguments) => {
                query_as_with::<Postgres, T, _>(sql, arguments).fetch_all(connection).await?
            }
        })
    }

    /// Reads the first row, if there is one.
    pub(super) async fn first<T: Row>(self) -> Result<Option<T>> {
        let (sql, target) = self.checked()?;
        Ok(match target {
            Target::Sqlite(connection, arguments) => {
                query_as_with::<Sqlite, T, _>(sql, arguments).fetch_optional(connection).await?
            }
            Target::Postgres(connection, arguments) => {
                query_as_with::<Postgres, T, _>(sql, arguments).fetch_optional(connection).await?
            }
        })
    }

    /// Reads the row that there is; without one it is an error.
    pub(super) async fn one<T: Row>(self) -> Result<T> {
        Ok(self.first().await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    fn checked(self) -> Result<(SqlStr, Target<'t>)> {
        match self.failed {
            Some(error) => Err(sqlx::Error::Encode(error).into()),
            None => Ok((self.sql, self.target)),
        }
    }
}
