//! Models: whose, trained by which job on which dataset, and what came of it; and the pictures
//! that they were asked about. Who may see which is decided by whoever asks.

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    idempotency::{self, IdempotentRequest},
    ordering::{Ordering, SortBy, SortColumn, position},
    reading,
    search::{fold, pattern},
    transaction,
    tx::Tx,
    types::{parse, parse_optional, readable},
    writing,
};
use lyceum_model::{
    DatasetId, DescriptionChanges, JobId, Model, ModelId, ModelTest, ModelTestId, Timestamp, UserId, trained::Trained,
};

/// Which models to list. Newest first without a `sort`; `before` is the last id of the page before.
#[derive(Clone, Copy, Debug)]
pub struct ModelFilter<'a> {
    /// Those that this person trained, and those that are shown to them.
    pub viewer: UserId,
    /// Only those that the viewer trained.
    pub own: bool,
    /// Only those that learnt from this one.
    pub dataset: Option<DatasetId>,
    /// Only those that went on from this one.
    pub parent: Option<ModelId>,
    /// A part of the name, whatever its case.
    pub find: &'a str,
    pub sort: Option<SortBy<'a>>,
    pub before: Option<ModelId>,
    pub limit: i64,
}

/// The columns that models are sorted by.
pub const SORT_COLUMNS: [SortColumn; 4] = [
    SortColumn::CREATED,
    SortColumn::text("name", "m.folded_name"),
    SortColumn::text("network", "m.network"),
    SortColumn::number("checkpoints", "m.snapshots"),
];

#[derive(FromRow)]
struct Row {
    id: String,
    owner: String,
    owner_name: String,
    name: String,
    kind: String,
    network: String,
    directory: String,
    dataset_id: Option<String>,
    job_id: Option<String>,
    parent_id: Option<String>,
    parent_snapshot: Option<String>,
    state: String,
    detail: String,
    attempt: i64,
    metric: String,
    best: Option<f64>,
    snapshots: i64,
    precisions_job: Option<String>,
    speed: Option<String>,
    visibility: String,
    notes: String,
    created_at: i64,
    changed_at: i64,
    /// The value that the list is sorted by.
    #[sqlx(default)]
    sorted: String,
}

fn model(row: Row) -> Result<Model> {
    Ok(Model {
        id: parse(&row.id, "model id")?,
        owner: parse(&row.owner, "model's owner")?,
        owner_name: row.owner_name,
        name: row.name,
        kind: row.kind,
        network: row.network,
        directory: row.directory,
        dataset: parse_optional(row.dataset_id.as_deref(), "model's dataset")?,
        job: parse_optional(row.job_id.as_deref(), "model's job")?,
        parent: parse_optional(row.parent_id.as_deref(), "model's parent")?.zip(row.parent_snapshot),
        state: parse(&row.state, "model's state")?,
        detail: row.detail,
        attempt: row.attempt,
        metric: row.metric,
        best: row.best,
        snapshots: row.snapshots,
        speed: row.speed.and_then(|text| serde_json::from_str(&text).ok()),
        precisions_job: parse_optional(row.precisions_job.as_deref(), "model's precisions")?,
        visibility: parse(&row.visibility, "model's visibility")?,
        notes: row.notes,
        created_at: Timestamp(row.created_at),
        changed_at: Timestamp(row.changed_at),
    })
}

#[derive(FromRow)]
struct TestRow {
    id: String,
    model_id: String,
    owner: String,
    job_id: String,
    snapshot: String,
    picture: String,
    directory: String,
    created_at: i64,
}

fn test(row: TestRow) -> Result<ModelTest> {
    Ok(ModelTest {
        id: parse(&row.id, "test id")?,
        model: parse(&row.model_id, "test's model")?,
        owner: parse(&row.owner, "test's owner")?,
        job: parse(&row.job_id, "test's job")?,
        snapshot: row.snapshot,
        picture: row.picture,
        directory: row.directory,
        created_at: Timestamp(row.created_at),
    })
}

const COLUMNS: &str = "SELECT m.id, m.owner, u.name AS owner_name, m.name, m.kind, m.network, m.directory, m.dataset_id,
     m.job_id, m.parent_id, m.parent_snapshot, m.state, m.detail, m.attempt, m.metric, m.best, m.snapshots, m.precisions_job, m.speed, m.visibility, m.notes, m.created_at, m.changed_at";

const OWNED: &str = "models m JOIN users u ON u.id = m.owner";

/// `$1` the viewer.
const VISIBLE: &str = "(m.owner = $1 OR m.visibility = 'everybody' OR (m.visibility = 'group' AND EXISTS (
     SELECT 1 FROM group_members a JOIN group_members b ON b.group_id = a.group_id
     WHERE a.user_id = m.owner AND b.user_id = $1)))";

const TESTS: &str = "SELECT id, model_id, owner, job_id, snapshot, picture, directory, created_at FROM model_tests";

/// Writes a new one in an open transaction, with its job where that is known.
pub(super) async fn insert_model(tx: &mut Tx<'_>, new: &Model, config: &str) -> Result<()> {
    let (parent, snapshot) = new.parent.as_ref().map(|(id, file)| (id.to_string(), file.as_str())).unzip();
    tx.query(
        "INSERT INTO models (id, owner, name, folded_name, kind, network, config, directory, dataset_id, job_id,
             state, detail, attempt, metric, best, snapshots, visibility, notes, created_at, changed_at,
             parent_id, parent_snapshot)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '', 0, '', NULL, 0, $12, '', $13, $13, $14, $15)",
    )
    .bind(new.id.to_string())
    .bind(new.owner.to_string())
    .bind(&new.name)
    .bind(fold(&new.name))
    .bind(&new.kind)
    .bind(&new.network)
    .bind(config)
    .bind(&new.directory)
    .bind(new.dataset.map(|id| id.to_string()))
    .bind(new.job.map(|id| id.to_string()))
    .bind(new.state.as_str())
    .bind(new.visibility.as_str())
    .bind(new.created_at.0)
    .bind(parent)
    .bind(snapshot)
    .execute()
    .await?;
    Ok(())
}

impl Db {
    /// Writes a new one; [`super::Error::Unique`] when another request with its key was faster.
    pub async fn add_model(
        &self,
        new: &Model,
        config: &str,
        once: Option<IdempotentRequest<'_>>,
        noted: &Entry<'_>,
    ) -> Result<()> {
        let id = new.id.to_string();
        transaction!(self, tx => {
            insert_model(&mut Tx::from(&mut *tx), new, config).await?;
            if let Some(once) = once {
                query(idempotency::ADD).bind(once.user.to_string()).bind(once.key).bind(once.request_hash).bind(&id)
                    .bind(new.created_at.0).execute(&mut *tx).await?;
            }
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    pub async fn find_model(&self, id: ModelId) -> Result<Option<Model>> {
        let sql = format!("{COLUMNS} FROM {OWNED} WHERE m.id = $1");
        let row: Option<Row> = reading!(self, pool =>
            query_as(AssertSqlSafe(sql)).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(model).transpose()
    }

    /// The one whose training writes into this directory; of several the latest.
    pub async fn find_model_in(&self, directory: &str) -> Result<Option<Model>> {
        let sql = format!("{COLUMNS} FROM {OWNED} WHERE m.directory = $1 ORDER BY m.id DESC LIMIT 1");
        let row: Option<Row> = reading!(self, pool =>
            query_as(AssertSqlSafe(sql)).bind(directory).fetch_optional(pool).await)?;
        row.map(model).transpose()
    }

    /// The configuration of its training, as JSON.
    pub async fn model_config(&self, id: ModelId) -> Result<Option<String>> {
        Ok(reading!(self, pool => query_scalar("SELECT config FROM models WHERE id = $1")
            .bind(id.to_string()).fetch_optional(pool).await)?)
    }

    /// Lists models, each with the value that the list is sorted by.
    pub async fn list_models(&self, filter: ModelFilter<'_>) -> Result<Vec<(Model, String)>> {
        let who = if filter.own { "m.owner = $1" } else { VISIBLE };
        let dataset = if filter.dataset.is_some() { "m.dataset_id = $2" } else { "$2 = ''" };
        let find = if filter.find.is_empty() { "$3 = ''" } else { "m.folded_name LIKE $3 ESCAPE '!'" };
        let parent = if filter.parent.is_some() { "m.parent_id = $4" } else { "$4 = ''" };
        let Ordering { after, order, value } = Ordering::new(filter.sort.as_ref(), "m.id", "$5", "$7");
        let sql = format!(
            "{COLUMNS}, {value} AS sorted FROM {OWNED} WHERE {who} AND {dataset} AND {find} AND {parent} AND {after}
             ORDER BY {order} LIMIT $6"
        );
        // "g" sorts after every hexadecimal digit, so after every id.
        let before = filter.before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(filter.viewer.to_string()).bind(filter.dataset.map(|id| id.to_string()).unwrap_or_default())
            .bind(pattern(filter.find)).bind(filter.parent.map(|id| id.to_string()).unwrap_or_default()).bind(&before).bind(filter.limit)
            .bind(position(filter.sort.as_ref())).fetch_all(pool).await)?;
        let sorted = |mut row: Row| {
            let value = std::mem::take(&mut row.sorted);
            Ok((model(row)?, value))
        };
        Ok(readable(rows.into_iter().map(sorted)))
    }

    /// Those that are trained on a dataset, by this network or any, and shown to this person, with their speed: the
    /// latest first.
    pub async fn list_speeds(
        &self,
        viewer: UserId,
        dataset: DatasetId,
        network: Option<&str>,
        limit: i64,
    ) -> Result<Vec<Model>> {
        let sql = format!(
            "{COLUMNS} FROM {OWNED} WHERE {VISIBLE} AND m.dataset_id = $2 AND ($3 = '' OR m.network = $3)
             AND m.state = 'trained' AND m.speed IS NOT NULL ORDER BY m.id DESC LIMIT $4"
        );
        let rows: Vec<Row> = reading!(self, pool => query_as(AssertSqlSafe(sql)).bind(viewer.to_string())
            .bind(dataset.to_string()).bind(network.unwrap_or_default()).bind(limit).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(model)))
    }

    /// Whether somebody else's model is shown to this person.
    pub async fn model_is_shown(&self, id: ModelId, viewer: UserId) -> Result<bool> {
        let sql = format!("SELECT COUNT(*) FROM models m WHERE {VISIBLE} AND m.id = $2");
        let count: i64 = reading!(self, pool => query_scalar(AssertSqlSafe(sql))
            .bind(viewer.to_string()).bind(id.to_string()).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Names the job that trains it, and where it writes.
    pub async fn set_model_job(&self, id: ModelId, job: JobId, directory: &str, at: Timestamp) -> Result<()> {
        writing!(self, pool => query("UPDATE models SET job_id = $2, directory = $3, changed_at = $4 WHERE id = $1")
            .bind(id.to_string()).bind(job.to_string()).bind(directory).bind(at.0).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Names the job that measures it in 32, 16 and 8 bits.
    pub async fn set_model_precisions(&self, id: ModelId, job: JobId, noted: &Entry<'_>) -> Result<()> {
        transaction!(self, tx => {
            query("UPDATE models SET precisions_job = $2 WHERE id = $1").bind(id.to_string()).bind(job.to_string())
                .execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// Writes down what came of an attempt, unless that of a later one is known.
    pub async fn settle_model(&self, id: ModelId, trained: &Trained, at: Timestamp) -> Result<bool> {
        let changed = writing!(self, pool => query("UPDATE models SET state = $2, detail = $3, attempt = $4, metric = $5,
                 best = $6, snapshots = $7, changed_at = $8, speed = $9 WHERE id = $1 AND attempt <= $4")
            .bind(id.to_string()).bind(trained.state.as_str()).bind(&trained.detail).bind(trained.attempt)
            .bind(&trained.metric).bind(trained.best).bind(trained.snapshots).bind(at.0)
            .bind(trained.speed.as_ref().and_then(|speed| serde_json::to_string(speed).ok()))
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed == 1)
    }

    /// Changes what its owner says of it; what is `None` stays. False where there is none.
    pub async fn change_model(&self, id: ModelId, changes: &DescriptionChanges, at: Timestamp) -> Result<bool> {
        self.describe("models", id.to_string(), changes, at).await
    }

    /// Forgets it and what it was asked; files are somebody else's business. False where there is none.
    pub async fn remove_model(&self, id: ModelId, noted: &Entry<'_>) -> Result<bool> {
        let id = id.to_string();
        Ok(transaction!(self, tx => {
            query("DELETE FROM model_tests WHERE model_id = $1").bind(&id).execute(&mut *tx).await?;
            let removed = query("DELETE FROM models WHERE id = $1").bind(&id).execute(&mut *tx).await?;
            if removed.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit(&mut *tx, noted).await?;
            true
        }))
    }

    pub async fn add_model_test(&self, new: &ModelTest) -> Result<()> {
        writing!(self, pool => query("INSERT INTO model_tests (id, model_id, owner, job_id, snapshot, picture, directory, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(new.id.to_string()).bind(new.model.to_string()).bind(new.owner.to_string()).bind(new.job.to_string())
            .bind(&new.snapshot).bind(&new.picture).bind(&new.directory).bind(new.created_at.0).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// One that this person asked.
    pub async fn find_model_test(&self, id: ModelTestId, owner: UserId) -> Result<Option<ModelTest>> {
        let sql = format!("{TESTS} WHERE id = $1 AND owner = $2");
        let row: Option<TestRow> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(id.to_string()).bind(owner.to_string()).fetch_optional(pool).await)?;
        row.map(test).transpose()
    }

    /// What this person asked a model, the latest first.
    pub async fn list_model_tests(&self, of: ModelId, owner: UserId, limit: i64) -> Result<Vec<ModelTest>> {
        let sql = format!("{TESTS} WHERE model_id = $1 AND owner = $2 ORDER BY id DESC LIMIT $3");
        let rows: Vec<TestRow> = reading!(self, pool => query_as(AssertSqlSafe(sql))
            .bind(of.to_string()).bind(owner.to_string()).bind(limit).fetch_all(pool).await)?;
        rows.into_iter().map(test).collect()
    }
}
