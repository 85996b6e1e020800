//! Results: many runs in one table, with what they were given and what they came to. Which rows and
//! columns there are, in which order and in which groups, is decided by `table` from digests, with `columns`
//! and `groups`; `expression` is the language of its filter, `kind` says what names of metrics mean. Here the digests are
//! kept and collected, for as many runs as one table may have.

mod columns;
pub(super) mod digest;
mod expression;
mod extremes;
mod groups;
mod kind;
mod progress;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use serde_json::Value;

use self::{
    digest::{Digest, value_at},
    table::{RunLine, StepQuery, StepValues},
};
use super::{Result, Runs, invalid};
use lyceum_db as db;
use lyceum_model::{FieldError, Run, RunId, User};

pub use self::{
    digest::CurveOutline as SmallLine,
    expression::MAX_LENGTH as LONGEST_FILTER,
    extremes::Extremes,
    kind::BetterDirection,
    progress::{Extent, JobProgress, LoggedMetric},
    table::{Band, Cell, Column, Group, Item, Kind, MetricValue, Order, Spread, Table, TableQuery},
};

/// A table is made of so many runs, the newest of those that are meant.
pub const MAX_RUNS: i64 = 1000;

/// Of so many runs the value at a step is looked up: that needs their points.
const MAX_RUNS_AT_STEP: usize = 200;
const MAX_READERS: usize = 4;

/// Which runs a table is made of.
#[derive(Clone, Debug, Default)]
pub struct RunSelection {
    /// These alone.
    pub runs: Option<Vec<RunId>>,
    /// Only of this person; `*`: everybody's, for operators.
    pub owner: Option<String>,
    /// Those of helper jobs too.
    pub with_helpers: bool,
}

/// Digests as they were read last, by the number of the reading they are of.
#[derive(Default)]
pub(super) struct Digests(Mutex<HashMap<RunId, (u64, Arc<Digest>)>>);

/// Values of sweep parameters by run; a run without any has none.
#[derive(Default)]
pub(super) struct GivenValues(Mutex<HashMap<RunId, Arc<BTreeMap<String, Value>>>>);

/// A value as a program would log it: a number or a truth value where the text is one.
fn plain(text: String) -> Value {
    match serde_json::from_str(&text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text),
    }
}

/// More than are ever shown at once are let go.
const MAX_KEPT: usize = 3000;

impl Runs {
    /// The table of results.
    pub async fn results(&self, user: &User, of: &RunSelection, asked: &TableQuery) -> Result<Table> {
        let (runs, truncated) = self.meant(user, of).await?;
        let mut lines = self.lines(runs).await?;
        let plan = table::plan(&lines, asked).map_err(invalid)?;
        if let MetricValue::At(step) = asked.which {
            let open = plan.open(&lines);
            if open.len() > MAX_RUNS_AT_STEP {
                let message = format!(
                    "Values at a step are available for at most {MAX_RUNS_AT_STEP} runs, and {} runs match. Narrow the filter.",
                    open.len()
                );
                return Err(invalid(FieldError::new("at", "too_many", message)));
            }
            self.look_up(&mut lines, &open, plan.wanted(), step).await;
        }
        Ok(plan.table(lines, truncated))
    }

    async fn meant(&self, user: &User, of: &RunSelection) -> Result<(Vec<Run>, bool)> {
        let Some(ids) = &of.runs else {
            let mut runs = self.list(user, of.owner.as_deref(), None, of.with_helpers, None, MAX_RUNS + 1).await?;
            let most = usize::try_from(MAX_RUNS).unwrap_or(usize::MAX);
            let truncated = most < runs.len();
            runs.truncate(most);
            return Ok((runs, truncated));
        };
        let mut runs = Vec::with_capacity(ids.len());
        for id in ids {
            runs.push(self.find(user, *id).await?);
        }
        Ok((runs, false))
    }

    /// What is known of each run.
    async fn lines(&self, runs: Vec<Run>) -> Result<Vec<RunLine>> {
        let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
        let digests = self.digests(&ids).await?;
        let given = self.given(&ids).await?;
        let line = |run: Run| RunLine {
            digest: digests.get(&run.id).cloned().unwrap_or_default(),
            given: given.get(&run.id).cloned().unwrap_or_default(),
            at: StepValues::default(),
            run,
        };
        Ok(runs.into_iter().map(line).collect())
    }

    /// The values of sweep parameters that the runs were started with. They do not change, so each is read once.
    async fn given(&self, ids: &[RunId]) -> Result<HashMap<RunId, Arc<BTreeMap<String, Value>>>> {
        let unread: Vec<RunId> = {
            let kept = self.given.0.lock();
            ids.iter().filter(|id| !kept.contains_key(*id)).copied().collect()
        };
        let mut read: HashMap<RunId, Arc<BTreeMap<String, Value>>> =
            unread.iter().map(|id| (*id, Arc::default())).collect();
        for (id, values) in self.db.sweep_values_of_runs(&unread).await? {
            let values = values.into_iter().map(|(name, text)| (name, plain(text))).collect();
            read.insert(id, Arc::new(values));
        }
        let mut kept = self.given.0.lock();
        kept.extend(read);
        if kept.len() > MAX_KEPT {
            let shown: HashSet<&RunId> = ids.iter().collect();
            kept.retain(|id, _| shown.contains(id));
        }
        Ok(ids.iter().filter_map(|id| Some((*id, kept.get(id)?.clone()))).collect())
    }

    /// The digests of those of the runs that have one; what was read before is not read again.
    async fn digests(&self, ids: &[RunId]) -> Result<HashMap<RunId, Arc<Digest>>> {
        let revisions: HashMap<RunId, u64> = self.db.digest_revisions(ids).await?.into_iter().collect();
        let stale: Vec<RunId> = {
            let kept = self.digests.0.lock();
            let is_known = |(id, revision): &(&RunId, &u64)| kept.get(*id).is_some_and(|(known, _)| known == *revision);
            revisions.iter().filter(|known| !is_known(known)).map(|(id, _)| *id).collect()
        };
        let mut read = Vec::with_capacity(stale.len());
        for (id, revision, text) in self.db.digests(&stale).await? {
            // One that cannot be read is made anew as soon as its run is.
            let digest: Digest = db::Json::read(&text, "digest").unwrap_or_default();
            read.push((id, (revision, Arc::new(digest))));
        }
        let mut kept = self.digests.0.lock();
        kept.extend(read);
        if kept.len() > MAX_KEPT {
            let shown: HashSet<&RunId> = ids.iter().collect();
            kept.retain(|id, _| shown.contains(id));
        }
        let known = |id: &RunId| kept.get(id).map(|(_, digest)| (*id, Arc::clone(digest)));
        Ok(revisions.keys().filter_map(known).collect())
    }

    /// Looks up some metrics of some rows at a step. What cannot be read has no value.
    async fn look_up(&self, lines: &mut [RunLine], open: &[usize], wanted: StepQuery, step: i64) {
        let asked: Vec<(usize, RunId, Arc<Digest>)> =
            open.iter().map(|at| (*at, lines[*at].run.id, Arc::clone(&lines[*at].digest))).collect();
        let wanted: Arc<BTreeSet<String>> = Arc::new(wanted.0);
        let mut found = stream::iter(asked)
            .map(|(at, id, digest)| {
                let wanted = Arc::clone(&wanted);
                async move {
                    let look = move |store: &lyceum_curves::Store| {
                        let metrics = digest.metrics.iter().filter(|(name, _)| wanted.contains(*name));
                        let values = metrics.filter_map(|(name, metric)| {
                            value_at(store, metric, step).map(|value| (name.clone(), value))
                        });
                        values.collect::<HashMap<_, _>>()
                    };
                    (at, self.cache.look(id, look).await.unwrap_or_default())
                }
            })
            .buffer_unordered(MAX_READERS);
        while let Some((at, values)) = found.next().await {
            lines[at].at = StepValues(Some(values));
        }
    }

    /// Keeps what a run comes to now.
    pub(super) async fn keep_digest(&self, id: RunId, revision: u64, digest: &Digest) {
        if let Err(err) = self.db.keep_digest(id, revision, &db::Json::write(digest)).await {
            tracing::warn!(run.id = %id, error = &err as &dyn std::error::Error, "failed to store the summary of a run");
        }
    }
}
