//! Datasets: whose, what was asked for, and what came of it. States are changed by naming the
//! state that is expected; who may see which is decided by whoever asks.

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    idempotency::{self, IdempotentRequest},
    ordering::{Ordering, SortBy, SortColumn, position},
    reading,
    search::{fold, pattern},
    transaction,
    types::{parse, readable},
    writing,
};
use lyceum_model::{
    Dataset, DatasetId, DatasetState, DescriptionChanges, JobId, Timestamp, UserId, dataset::Outcome, job::Visibility,
};

/// Which datasets to list. Newest first without a `sort`; `before` is the last id of the page before.
#[derive(Clone, Copy, Debug)]
pub struct DatasetFilter<'a> {
    /// Those that this person made, and those that are shown to them.
    pub viewer: UserId,
    /// Only those that the viewer made.
    pub own: bool,
    pub state: Option<DatasetState>,
    /// A part of the name, whatever its case.
    pub find: &'a str,
    pub sort: Option<SortBy<'a>>,
    pub before: Option<DatasetId>,
    pub limit: i64,
}

/// The columns that datasets are sorted by.
pub const SORT_COLUMNS: [SortColumn; 4] = [
    SortColumn::CREATED,
    SortColumn::text("name", "d.folded_name"),
    SortColumn::number("images", "d.pictures"),
    SortColumn::number("classes", "d.classes"),
];

#[derive(FromRow)]
struct Row {
    id: String,
    owner: String,
    owner_name: String,
    name: String,
    kind: String,
    source: String,
    directory: String,
    state: String,
    detail: String,
    job_id: Option<String>,
    visibility: String,
    notes: String,
    manifest_sha256: String,
    pictures: i64,
    broken: i64,
    classes: i64,
    created_at: i64,
    changed_at: i64,
    /// The value that the list is sorted by.
    #[sqlx(default)]
    sorted: String,
}

fn dataset(row: Row) -> Result<Dataset> {
    Ok(Dataset {
        id: parse(&row.id, "dataset id")?,
        owner: parse(&row.owner, "dataset's owner")?,
        owner_name: row.owner_name,
        name: row.name,
        kind: row.kind,
        source: row.source,
        directory: row.directory,
        state: parse(&row.state, "dataset's state")?,
        detail: row.detail,
        job: row.job_id.map(|id| parse(&id, "dataset's job")).transpose()?,
        visibility: parse(&row.visibility, "dataset's visibility")?,
        notes: row.notes,
        manifest_sha256: row.manifest_sha256,
        pictures: row.pictures,
        broken: row.broken,
        classes: row.classes,
        created_at: Timestamp(row.created_at),
        changed_at: Timestamp(row.changed_at),
    })
}

const COLUMNS: &str =
    "SELECT d.id, d.owner, u.name AS owner_name, d.name, d.kind, d.source, d.directory, d.state, d.detail,
     d.job_id, d.visibility, d.notes, d.manifest_sha256, d.pictures, d.broken, d.classes, d.created_at, d.changed_at";

const OWNED: &str = "datasets d JOIN users u ON u.id = d.owner";

/// `$1` the viewer.
const VISIBLE: &str = "(d.owner = $1 OR d.visibility = 'everybody' OR (d.visibility = 'group' AND EXISTS (
     SELECT 1 FROM group_members a JOIN group_members b ON b.group_id = a.group_id
     WHERE a.user_id = d.owner AND b.user_id = $1)))";

impl Db {
    /// Writes a new one; [`super::Error::Unique`] when another request with its key was faster.
    pub async fn add_dataset(
        &self,
        new: &Dataset,
        spec: &str,
        once: Option<IdempotentRequest<'_>>,
        noted: &Entry<'_>,
    ) -> Result<()> {
        let id = new.id.to_string();
        transaction!(self, tx => {
            query("INSERT INTO datasets (id, owner, name, folded_name, spec, kind, source, directory, state, detail, job_id,
                     visibility, notes, manifest_sha256, pictures, broken, classes, created_at, changed_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', NULL, $10, '', '', 0, 0, 0, $11, $11)")
                .bind(&id).bind(new.owner.to_string()).bind(&new.name).bind(fold(&new.name)).bind(spec).bind(&new.kind)
                .bind(&new.source).bind(&new.directory).bind(new.state.as_str()).bind(new.visibility.as_str())
                .bind(new.created_at.0).execute(&mut *tx).await?;
            if let Some(once) = once {
                query(idempotency::ADD).bind(once.user.to_string()).bind(once.key).bind(once.request_hash).bind(&id)
                    .bind(new.created_at.0).execute(&mut *tx).await?;
            }
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    pub async fn find_dataset(&self, id: DatasetId) -> Result<Option<Dataset>> {
        let sql = format!("{COLUMNS} FROM {OWNED} WHERE d.id = $1");
        let row: Option<Row> = reading!(self, pool =>
            query_as(AssertSqlSafe(sql)).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(dataset).transpose()
    }

    /// What was asked for, as JSON.
    pub async fn dataset_spec(&self, id: DatasetId) -> Result<Option<String>> {
        Ok(reading!(self, pool => query_scalar("SELECT spec FROM datasets WHERE id = $1")
            .bind(id.to_string()).fetch_optional(pool).await)?)
    }

    /// Lists datasets, each with the value that the list is sorted by.
    pub async fn list_datasets(&self, filter: DatasetFilter<'_>) -> Result<Vec<(Dataset, String)>> {
        let who = if filter.own { "d.owner = $1" } else { VISIBLE };
        let state = if filter.state.is_some() { "d.state = $2" } else { "$2 = ''" };
        let find = if filter.find.is_empty() { "$3 = ''" } else { "d.folded_name LIKE $3 ESCAPE '!'" };
        let Ordering { after, order, value } = Ordering::new(filter.sort.as_ref(), "d.id", "$4", "$6");
        let sql = format!(
            "{COLUMNS}, {value} AS sorted FROM {OWNED} WHERE {who} AND {state} AND {find} AND {after} ORDER BY {order} LIMIT $5"
        );
        // "g" sorts after every hexadecimal digit, so after every id.
        let before = filter.before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(filter.viewer.to_string()).bind(filter.state.map_or("", DatasetState::as_str))
            .bind(pattern(filter.find)).bind(&before).bind(filter.limit).bind(position(filter.sort.as_ref()))
            .fetch_all(pool).await)?;
        let sorted = |mut row: Row| {
            let value = std::mem::take(&mut row.sorted);
            Ok((dataset(row)?, value))
        };
        Ok(readable(rows.into_iter().map(sorted)))
    }

    /// Whether somebody else's dataset is shown to this person.
    pub async fn dataset_is_shown(&self, id: DatasetId, viewer: UserId) -> Result<bool> {
        let sql = format!("SELECT COUNT(*) FROM datasets d WHERE {VISIBLE} AND d.id = $2");
        let count: i64 = reading!(self, pool => query_scalar(AssertSqlSafe(sql))
            .bind(viewer.to_string()).bind(id.to_string()).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Names the job that builds it. False where it is not being built any more.
    pub async fn set_dataset_job(&self, id: DatasetId, job: JobId, at: Timestamp) -> Result<bool> {
        let changed = writing!(self, pool => query("UPDATE datasets SET job_id = $2, changed_at = $3
             WHERE id = $1 AND state = 'building'")
            .bind(id.to_string()).bind(job.to_string()).bind(at.0).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed == 1)
    }

    /// Writes down what came of the build that is under way. False where somebody else did.
    pub async fn settle_dataset(&self, id: DatasetId, outcome: &Outcome, at: Timestamp) -> Result<bool> {
        let (state, detail, hash, [pictures, broken, classes]) = match outcome {
            Outcome::Ready { manifest_sha256, pictures, broken, classes } => {
                (DatasetState::Ready, "", manifest_sha256.as_str(), [*pictures, *broken, *classes])
            }
            Outcome::Failed(detail) => (DatasetState::Failed, detail.as_str(), "", [0; 3]),
            Outcome::Cancelled => (DatasetState::Cancelled, "", "", [0; 3]),
        };
        let changed = writing!(self, pool => query("UPDATE datasets SET state = $2, detail = $3, manifest_sha256 = $4,
                 pictures = $5, broken = $6, classes = $7, changed_at = $8 WHERE id = $1 AND state = 'building'")
            .bind(id.to_string()).bind(state.as_str()).bind(detail).bind(hash).bind(pictures).bind(broken).bind(classes)
            .bind(at.0).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed == 1)
    }

    /// It is to be built once more. False where it is there, or is being built.
    pub async fn rebuild_dataset(&self, id: DatasetId, at: Timestamp) -> Result<bool> {
        let changed = writing!(self, pool => query("UPDATE datasets SET state = 'building', detail = '', job_id = NULL,
                 changed_at = $2 WHERE id = $1 AND state IN ('failed', 'cancelled')")
            .bind(id.to_string()).bind(at.0).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed == 1)
    }

    /// Changes what its owner says of it; what is `None` stays. False where there is none.
    pub async fn change_dataset(&self, id: DatasetId, changes: &DescriptionChanges, at: Timestamp) -> Result<bool> {
        self.describe("datasets", id.to_string(), changes, at).await
    }

    /// Keeps what is said of one row of a table whose rows have a name, notes and a visibility.
    pub(super) async fn describe(
        &self,
        table: &'static str,
        id: String,
        changes: &DescriptionChanges,
        at: Timestamp,
    ) -> Result<bool> {
        let sql = format!(
            "UPDATE {table} SET name = COALESCE($2, name), folded_name = COALESCE($3, folded_name),
                 notes = COALESCE($4, notes), visibility = COALESCE($5, visibility), changed_at = $6 WHERE id = $1"
        );
        let name = changes.name.as_deref();
        let rows = writing!(self, pool => query(AssertSqlSafe(sql)).bind(id).bind(name).bind(name.map(fold))
            .bind(changes.notes.as_deref()).bind(changes.visibility.map(Visibility::as_str)).bind(at.0)
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(rows == 1)
    }

    /// Forgets it; its files are somebody else's business. False where there is none.
    pub async fn remove_dataset(&self, id: DatasetId, noted: &Entry<'_>) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => {
            let removed = query("DELETE FROM datasets WHERE id = $1").bind(&id).execute(&mut *tx).await?;
            if removed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }
}
