//! `POST /groups/{group}/stop`: ends all that the people of a group run and wait for, for operators and administrators,
//! who may end each of it. Sweeps come first, so that none submits another task meanwhile. What cannot be stopped is
//! reported, and the rest is stopped nevertheless.

use std::{collections::BTreeSet, future::Future, sync::Arc};

use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::groups::group;
use crate::{
    auth::Principal,
    model::{JobId, UserId, sweep::SweepState},
    sessions::Actor,
    web::{
        Portal,
        http::{
            error::{Accepted, Error, Problem, Result},
            extract::{Operator, Query},
        },
    },
};

/// A running or queued workload of a member.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoppedItem)]
pub struct StoppedItem {
    /// `session`, `job` or `sweep`.
    pub(super) kind: &'static str,
    #[schema(format = "uuid")]
    pub(super) id: String,
    owner: String,
    pub(super) name: String,
    /// Whether it is being stopped; false in a dry run.
    pub(super) stopped: bool,
    /// The reason why it was not stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// The result for each workload.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StoppedGroup)]
pub struct StoppedGroup {
    pub(super) items: Vec<StoppedItem>,
    /// The number of workloads that could not be stopped.
    pub(super) failed: usize,
    #[serde(skip)]
    is_dry_run: bool,
}

/// Whether workloads are stopped, or only listed.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct StopParameters {
    /// List what would be stopped, and stop nothing.
    #[param(required = false)]
    pub(super) dry_run: bool,
}

/// Why something could not be done, in a sentence.
pub(super) fn reason(error: &Error) -> String {
    match (error.field_errors().first(), error.detail()) {
        (Some(field), _) => field.message.clone(),
        (None, "") => error.kind().title().to_owned(),
        (None, detail) => detail.to_owned(),
    }
}

impl StoppedGroup {
    async fn add(
        &mut self,
        kind: &'static str,
        id: String,
        (owner, name): (&str, &str),
        stop: impl Future<Output = Result<()>>,
    ) {
        if self.is_dry_run {
            let (owner, name) = (owner.to_owned(), name.to_owned());
            self.items.push(StoppedItem { kind, id, owner, name, stopped: false, error: None });
            return;
        }
        let outcome = stop.await;
        let error = outcome.err().as_ref().map(reason);
        if let Some(error) = &error {
            tracing::warn!(item.kind = kind, item.id = id, error, "failed to stop a user's workload");
        }
        self.failed += usize::from(error.is_some());
        let (owner, name, stopped) = (owner.to_owned(), name.to_owned(), error.is_none());
        self.items.push(StoppedItem { kind, id, owner, name, stopped, error });
    }
}

/// Stops all sessions, jobs and sweeps of the members of a group, including queued ones.
///
/// With `dry_run`, lists them.
#[utoipa::path(post, path = "/groups/{group}/stop", tag = "groups",
    params(("group" = String, Path, description = "Id or name"), StopParameters),
    responses((status = 202, body = StoppedGroup, description = "The result for each workload"),
        (status = 403, description = "Not an administrator or operator", body = Problem),
        (status = 404, description = "Not found", body = Problem)))]
pub async fn stop(
    Operator(operator): Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(StopParameters { dry_run }): Query<StopParameters>,
) -> Result<Accepted<StoppedGroup>> {
    let found = group(&portal, &operator, &name).await?;
    let members = portal.db.group_members(found.group.id, None, i64::MAX).await?;
    let members: BTreeSet<UserId> = members.into_iter().map(|member| member.id).collect();
    let told = Box::pin(stop_work(&portal, &operator, &members, dry_run)).await?;
    if dry_run {
        return Ok(Accepted(told));
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

/// Stops all sessions, jobs and sweeps of some users, or lists them.
pub(super) async fn stop_work(
    portal: &Portal,
    operator: &Principal,
    owners: &BTreeSet<UserId>,
    is_dry_run: bool,
) -> Result<StoppedGroup> {
    let actor = Actor { user: &operator.user };
    let mut told = StoppedGroup { items: Vec::new(), failed: 0, is_dry_run };
    for sweep in portal.db.open_sweeps().await?.into_iter().filter(|sweep| owners.contains(&sweep.owner)) {
        if sweep.state != SweepState::Stopping {
            let stop = async { portal.sweeps.stop(actor, sweep.id).await.map(drop).map_err(Error::from) };
            told.add("sweep", sweep.id.to_string(), (&sweep.owner_name, &sweep.name), stop).await;
        }
    }
    let mut jobs: BTreeSet<JobId> = BTreeSet::new();
    // Those that are between two attempts first: their next one may begin meanwhile.
    let waiting = portal.db.jobs_to_retry().await?;
    for job in waiting.into_iter().filter(|job| owners.contains(&job.owner) && job.is_to_be_retried()) {
        jobs.insert(job.id);
        let stop = async { portal.jobs.cancel(actor, job.id).await.map(drop).map_err(Error::from) };
        told.add("job", job.id.to_string(), (&job.latest.owner_name, &job.name), stop).await;
    }
    let live = portal.db.live_sessions().await?;
    for workload in live.into_iter().filter(|workload| owners.contains(&workload.owner)) {
        let who = (workload.owner_name.as_str(), workload.name.as_str());
        match workload.job {
            Some(attempt) if !jobs.insert(attempt.job) => {}
            Some(attempt) => {
                let stop = async { portal.jobs.cancel(actor, attempt.job).await.map(drop).map_err(Error::from) };
                told.add("job", attempt.job.to_string(), who, stop).await;
            }
            None => {
                let stop = async { portal.sessions.stop(actor, workload.id).await.map(drop).map_err(Error::from) };
                told.add("session", workload.id.to_string(), who, stop).await;
            }
        }
    }
    Ok(told)
}
