//! `POST /groups/{group}/stop`: ends all that the people of a group run and wait for, for operators and administrators,
//! who may end each of it. Sweeps come first, so that none submits another task meanwhile. What cannot be stopped is
//! reported, and the rest is stopped nevertheless.

use std::{collections::BTreeSet, sync::Arc};

use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

use super::groups::group;
use crate::{
    model::{JobId, UserId, sweep::SweepState},
    sessions::Actor,
    web::{
        Portal,
        error::{Accepted, Error, Problem, Result},
        extract::Operator,
    },
};

/// A running or queued workload of a member.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoppedItem)]
pub struct StoppedItem {
    /// `session`, `job` or `sweep`.
    kind: &'static str,
    #[schema(format = "uuid")]
    id: String,
    owner: String,
    name: String,
    /// Whether it is being stopped.
    stopped: bool,
    /// The reason why it was not stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The result for each workload.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoppedGroup)]
pub struct StoppedGroup {
    items: Vec<StoppedItem>,
    /// The number of workloads that could not be stopped.
    failed: usize,
}

impl StoppedGroup {
    fn add(&mut self, kind: &'static str, id: String, (owner, name): (&str, &str), outcome: Result<()>) {
        let error = outcome.err().map(|error| match error.detail() {
            "" => error.kind().title().to_owned(),
            detail => detail.to_owned(),
        });
        if let Some(error) = &error {
            tracing::warn!(item.kind = kind, item.id = id, error, "failed to stop a group's workload");
        }
        self.failed += usize::from(error.is_some());
        let (owner, name, stopped) = (owner.to_owned(), name.to_owned(), error.is_none());
        self.items.push(StoppedItem { kind, id, owner, name, stopped, error });
    }
}

/// Stops all sessions, jobs and sweeps of the members of a group, including queued ones.
#[utoipa::path(post, path = "/groups/{group}/stop", tag = "groups",
    params(("group" = String, Path, description = "Id or name")),
    responses((status = 202, body = StoppedGroup, description = "The result for each workload"),
        (status = 403, description = "Not an administrator or operator", body = Problem),
        (status = 404, description = "Not found", body = Problem)))]
pub async fn stop(
    Operator(operator): Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Accepted<StoppedGroup>> {
    let found = group(&portal, &operator, &name).await?;
    let members = portal.db.group_members(found.group.id, None, i64::MAX).await?;
    let members: BTreeSet<UserId> = members.into_iter().map(|member| member.id).collect();
    let actor = Actor { user: &operator.user };
    let mut told = StoppedGroup { items: Vec::new(), failed: 0 };
    for sweep in portal.db.open_sweeps().await?.into_iter().filter(|sweep| members.contains(&sweep.owner)) {
        if sweep.state != SweepState::Stopping {
            let outcome = portal.sweeps.stop(actor, sweep.id).await;
            let outcome = outcome.map(drop).map_err(Error::from);
            told.add("sweep", sweep.id.to_string(), (&sweep.owner_name, &sweep.name), outcome);
        }
    }
    let mut jobs: BTreeSet<JobId> = BTreeSet::new();
    // Those that are between two attempts first: their next one may begin meanwhile.
    let waiting = portal.db.jobs_to_retry().await?;
    for job in waiting.into_iter().filter(|job| members.contains(&job.owner) && job.is_to_be_retried()) {
        jobs.insert(job.id);
        let outcome = portal.jobs.cancel(actor, job.id).await;
        let outcome = outcome.map(drop).map_err(Error::from);
        told.add("job", job.id.to_string(), (&job.latest.owner_name, &job.name), outcome);
    }
    let live = portal.db.live_sessions().await?;
    for workload in live.into_iter().filter(|workload| members.contains(&workload.owner)) {
        let who = (workload.owner_name.as_str(), workload.name.as_str());
        match workload.job {
            Some(attempt) if !jobs.insert(attempt.job) => {}
            Some(attempt) => {
                let outcome = portal.jobs.cancel(actor, attempt.job).await;
                told.add("job", attempt.job.to_string(), who, outcome.map(drop).map_err(Error::from));
            }
            None => {
                let outcome = portal.sessions.stop(actor, workload.id).await;
                told.add("session", workload.id.to_string(), who, outcome.map(drop).map_err(Error::from));
            }
        }
    }
    let stopped = told.items.len() - told.failed;
    tracing::info!(
        user.name = %operator.user.name,
        group = found.group.name,
        stopped,
        failed = told.failed,
        "stopped a group's workloads"
    );
    Ok(Accepted(told))
}
