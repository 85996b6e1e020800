//! Fills tables with copies of a row that the portal made itself, on either database: for tests of what happens as tables
//! grow.

use lyceum::db::Db;
use sqlx::{AssertSqlSafe, query_scalar};

use super::execute;

/// An id that differs for each copy `i`, as the text of an expression.
pub const ID: &str = "'01900000-0000-7000-8000-' || (100000000000 + i)";

/// Copies the row of a table that `which` describes `count` times. Columns that are named get what their expression
/// says, in which `i` counts from 1.
pub async fn copy(db: &Db, table: &str, which: &str, count: usize, changes: &[(&str, &str)]) {
    let columns = columns(db, table).await;
    let value = |column: &String| {
        let change = changes.iter().find(|(changed, _)| changed == column);
        change.map_or_else(|| format!("model.{column}"), |(_, expression)| (*expression).to_owned())
    };
    for (changed, _) in changes {
        assert!(columns.iter().any(|column| column == changed), "{table} has no column {changed}");
    }
    let values: Vec<String> = columns.iter().map(value).collect();
    let sql = format!(
        "INSERT INTO {table} ({}) WITH RECURSIVE n (i) AS
             (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         SELECT {} FROM {table} AS model, n WHERE {which}",
        columns.join(", "),
        values.join(", ")
    );
    execute(db, &sql).await;
}

async fn columns(db: &Db, table: &str) -> Vec<String> {
    match db {
        Db::Sqlite { read, .. } => {
            let sql = format!("SELECT name FROM pragma_table_info('{table}')");
            query_scalar(AssertSqlSafe(sql)).fetch_all(read).await.unwrap()
        }
        Db::Postgres { read, .. } => {
            let sql = format!(
                "SELECT column_name::text FROM information_schema.columns
                 WHERE table_name = '{table}' AND table_schema = current_schema()"
            );
            query_scalar(AssertSqlSafe(sql)).fetch_all(read).await.unwrap()
        }
    }
}
