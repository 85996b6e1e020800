//! Offboarding: what a user has (`GET /users/{name}/contents`), the end of their access and work (`POST …/offboard`), and
//! what they made in another owner's hands (`POST …/hand-over`). Each step can be repeated; what could not be done is
//! reported, and the rest is done nevertheless. The page is in `page`.

mod hand_over;
pub mod page;

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
};
use serde::Serialize;
use utoipa::ToSchema;

pub use self::hand_over::{__path_hand_over, hand_over};
use super::{
    named,
    stop::{StopParameters, reason, stop_work},
};
use crate::{
    auth::{Principal, people::PersonChange},
    db,
    model::User,
    web::{
        Portal,
        http::{
            error::{Accepted, Error, Problem, Result},
            extract::{Admin, Operator, Query},
        },
    },
};

/// What a user has in the portal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountContents)]
pub struct ContentsView {
    /// `active`, `disabled` in the portal, `expired`, `dormant`, or `absent` from the directory.
    pub state: &'static str,
    /// Active sign-ins.
    pub sign_ins: i64,
    /// API tokens, also expired ones.
    pub tokens: i64,
    /// Sessions that have not ended.
    pub live_sessions: i64,
    /// Jobs that have not ended.
    pub live_jobs: i64,
    /// Sweeps that have not ended.
    pub live_sweeps: i64,
    /// All jobs, also ended ones.
    pub jobs: i64,
    /// All sweeps, also ended ones.
    pub sweeps: i64,
    /// All runs.
    pub runs: i64,
    /// All datasets, including those that failed to build.
    pub datasets: i64,
    /// Models, trained or not.
    pub models: i64,
    /// The user's own saved requests, and those that they saved for groups.
    pub presets: i64,
    /// The groups that the user is in or manages.
    pub groups: Vec<String>,
    /// The folders of the user's files, the home directory first. Empty if they cannot be determined.
    pub folders: Vec<String>,
}

/// Returns what a user has in the portal: what an offboarding ends, and what can be handed over.
#[utoipa::path(get, path = "/users/{name}/contents", tag = "users", params(("name" = String, Path)),
    responses((status = 200, body = ContentsView), (status = 404, description = "Not found", body = Problem)))]
pub async fn contents(
    _: Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Json<ContentsView>> {
    let user = named(&portal, &name).await?;
    Ok(Json(contents_of(&portal, &user).await?))
}

pub(super) async fn contents_of(portal: &Portal, user: &User) -> Result<ContentsView> {
    let db::hand_over::AccountContents {
        live_sessions,
        live_jobs,
        live_sweeps,
        jobs,
        sweeps,
        runs,
        datasets,
        models,
        presets,
        tokens,
        sign_ins,
    } = portal.db.account_contents(user.id).await?;
    let groups = portal.db.belongings(user.id).await?.into_iter().map(|belonging| belonging.group.name).collect();
    // A Unix account that is gone has no folders, and everything else is as true as before.
    let roots = portal.files.roots(user).await.unwrap_or_default();
    let folders = roots.iter().map(|root| root.path.to_string_lossy().into_owned()).collect();
    Ok(ContentsView {
        state: user.state().as_str(),
        sign_ins,
        tokens,
        live_sessions,
        live_jobs,
        live_sweeps,
        jobs,
        sweeps,
        runs,
        datasets,
        models,
        presets,
        groups,
        folders,
    })
}

/// One step of an offboarding.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OffboardingStep)]
pub struct Step {
    pub kind: StepKind,
    /// The id, for what has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub name: String,
    /// Whether it was done; false in a dry run.
    pub done: bool,
    /// The reason why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = OffboardingStepKind)]
pub enum StepKind {
    /// The account is disabled, which ends its sign-ins.
    Account,
    /// An API token is revoked.
    Token,
    Sweep,
    Job,
    Session,
    /// A membership in a portal group ends.
    Member,
    /// The user no longer manages a group.
    Manager,
}

impl StepKind {
    pub(super) fn of_work(kind: &str) -> Self {
        match kind {
            "sweep" => Self::Sweep,
            "job" => Self::Job,
            _ => Self::Session,
        }
    }
}

/// The result of each step. Steps that were done earlier are not listed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Offboarding)]
pub struct Offboarding {
    /// In the order in which they were done.
    pub steps: Vec<Step>,
    /// The number of steps that failed.
    pub failed: usize,
}

impl Offboarding {
    async fn step(
        &mut self,
        is_dry_run: bool,
        (kind, id, name): (StepKind, Option<String>, &str),
        act: impl Future<Output = Result<()>>,
    ) {
        let error = if is_dry_run { None } else { act.await.err().as_ref().map(reason) };
        if let Some(error) = &error {
            tracing::warn!(step = ?kind, item.name = name, error, "step of an offboarding failed");
        }
        self.failed += usize::from(error.is_some());
        let done = !is_dry_run && error.is_none();
        self.steps.push(Step { kind, id, name: name.to_owned(), done, error });
    }
}

/// Ends a user's access and work: disables the account, revokes its tokens, stops its sweeps, jobs and sessions, and ends
/// its memberships in portal groups.
///
/// With `dry_run`, lists the steps. What the user made stays; see `hand-over`.
#[utoipa::path(post, path = "/users/{name}/offboard", tag = "users",
    params(("name" = String, Path), StopParameters),
    responses((status = 202, body = Offboarding, description = "The result of each step"),
        (status = 403, description = "Not an administrator, or your own account", body = Problem),
        (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "The last administrator", body = Problem)))]
pub async fn offboard(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(StopParameters { dry_run }): Query<StopParameters>,
) -> Result<Accepted<Offboarding>> {
    let user = named(&portal, &name).await?;
    Ok(Accepted(end_access(&portal, &admin, &user, dry_run).await?))
}

/// Carries out the steps, or lists them. Where the account cannot be disabled, nothing else is done.
pub(super) async fn end_access(
    portal: &Portal,
    admin: &Principal,
    user: &User,
    is_dry_run: bool,
) -> Result<Offboarding> {
    let mut result = Offboarding { steps: Vec::new(), failed: 0 };
    if admin.id() == user.id {
        return Err(Error::forbidden("You cannot offboard yourself. Ask another administrator."));
    }
    if !user.disabled {
        if !is_dry_run {
            let change = PersonChange { disabled: Some(true), ..PersonChange::default() };
            portal.access.change_person(admin, user, change).await?;
        }
        result.steps.push(Step {
            kind: StepKind::Account,
            id: None,
            name: user.name.to_string(),
            done: !is_dry_run,
            error: None,
        });
    }
    for token in portal.db.list_tokens(user.id, None, i64::MAX).await? {
        let revoke =
            async { portal.access.revoke_token_of(admin, user, token.id).await.map(drop).map_err(Error::from) };
        result.step(is_dry_run, (StepKind::Token, Some(token.id.to_string()), &token.name), revoke).await;
    }
    let work = Box::pin(stop_work(portal, admin, &BTreeSet::from([user.id]), is_dry_run)).await?;
    result.failed += work.failed;
    result.steps.extend(work.items.into_iter().map(|item| Step {
        kind: StepKind::of_work(item.kind),
        id: Some(item.id),
        name: item.name,
        done: item.stopped,
        error: item.error,
    }));
    for belonging in portal.db.belongings(user.id).await? {
        let group = &belonging.group;
        let id = || Some(group.id.to_string());
        if belonging.is_manager {
            let end = async { portal.access.set_manager(admin, group, user, false).await.map_err(Error::from) };
            result.step(is_dry_run, (StepKind::Manager, id(), &group.name), end).await;
        }
        // A directory's groups are changed there.
        if belonging.is_member && group.is_local() {
            let leave = async { portal.access.remove_member(admin, group, user).await.map_err(Error::from) };
            result.step(is_dry_run, (StepKind::Member, id(), &group.name), leave).await;
        }
    }
    if !is_dry_run {
        let (steps, failed) = (result.steps.len(), result.failed);
        tracing::info!(user.name = %admin.user.name, subject = %user.name, steps, failed, "offboarded a user");
    }
    Ok(result)
}
