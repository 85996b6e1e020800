//! Software environments over REST: everybody sees them with how far they are, and administrators add, change and remove
//! those that the portal builds from a list of packages. The page is in `pages`, the rules in `services::environments`.

pub mod pages;

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::header,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Accepted, Created, Error, Problem, Result},
        extract::{Admin, CurrentUser, Json},
        paging::Listed,
    },
};
use crate::environments::{Environment, Framework, NewEnvironment, Origin, State as Building};

/// How much of a log is answered: its end, in bytes.
const LOG_LIMIT: u64 = 256 << 10;

/// A software environment for sessions and jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Environment)]
pub struct EnvironmentView {
    pub name: String,
    pub title: String,
    pub python_version: Option<String>,
    /// The deep-learning frameworks that it contains, once they are known.
    pub frameworks: Vec<FrameworkView>,
    /// What administrators should know, such as a driver that is too old for CUDA.
    pub note: Option<String>,
    /// `building`, `ready`, `failed` or `missing`.
    pub state: &'static str,
    /// The progress while it is being built.
    pub percent: Option<u8>,
    /// The current step, or what went wrong and the command that fixes it.
    pub detail: Option<String>,
    /// Names of the groups that may use it. Empty: all users.
    pub groups: Vec<String>,
    /// Lists show environments in this order. The portal's own has 0, those of the configuration file have 10, 20, 30 and
    /// so on.
    pub position: i64,
    /// Where it is listed. Only an environment that was `added` can be changed here.
    pub origin: OriginView,
    /// The requirements that the administrator entered, as for pip. Null unless it was `added`.
    pub packages: Option<Vec<String>>,
    /// The user who added it. Null unless it was `added`.
    pub added_by: Option<String>,
}

/// Where an environment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EnvironmentOrigin)]
pub enum OriginView {
    /// It belongs to the portal.
    Shipped,
    /// It is in the configuration file.
    File,
    /// An administrator has added it.
    Added,
}

impl From<Environment> for EnvironmentView {
    fn from(environment: Environment) -> Self {
        let framework = |one: Framework| FrameworkView { name: one.name, uses_gpus: one.uses_gpus };
        let (state, percent, detail) = match environment.state {
            Building::Building { percent, step, .. } => ("building", Some(percent), Some(step)),
            Building::Ready { .. } => ("ready", None, None),
            Building::Failed { what, command, .. } => ("failed", None, Some(format!("{what} To fix it: {command}"))),
            Building::Missing => ("missing", None, None),
        };
        let (origin, packages, added_by) = match environment.origin {
            Origin::Shipped => (OriginView::Shipped, None, None),
            Origin::File => (OriginView::File, None, None),
            Origin::Added { packages, by } => (OriginView::Added, Some(packages), Some(by)),
        };
        Self {
            name: environment.name,
            title: environment.title,
            python_version: environment.python_version,
            frameworks: environment.frameworks.into_iter().map(framework).collect(),
            note: environment.note,
            state,
            percent,
            detail,
            groups: environment.groups,
            position: environment.position,
            origin,
            packages,
            added_by,
        }
    }
}

/// A deep-learning framework of an environment.
#[derive(Debug, Serialize, ToSchema)]
pub struct FrameworkView {
    /// `JAX`, `PyTorch` or `TensorFlow`.
    pub name: String,
    /// Whether its build can compute on GPUs.
    pub uses_gpus: bool,
}

/// Lists the software environments that you may use.
#[utoipa::path(get, path = "/environments", tag = "catalogue",
    responses((status = 200, body = Listed<EnvironmentView>)))]
pub async fn list(user: CurrentUser, State(portal): State<Arc<Portal>>) -> axum::Json<Listed<EnvironmentView>> {
    let offered = portal.sessions.environments_for(user.actor()).into_iter();
    let items = offered.map(EnvironmentView::from).collect();
    axum::Json(Listed { items, next_cursor: None })
}

/// Returns one software environment.
#[utoipa::path(get, path = "/environments/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 200, body = EnvironmentView),
        (status = 404, description = "It does not exist, or your groups may not use it", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<axum::Json<EnvironmentView>> {
    let found = portal.sessions.environments_for(user.actor()).into_iter().find(|one| one.name == name);
    Ok(axum::Json(found.ok_or_else(Error::not_found)?.into()))
}

/// A new software environment.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEnvironmentRequest {
    /// 1 to 32 of `a` to `z`, digits, `_`, `.` and `-`, starting with a letter or digit.
    #[schema(min_length = 1, max_length = 32)]
    name: String,
    /// Shown beside the name.
    #[serde(default)]
    #[schema(max_length = 80)]
    title: String,
    /// Requirements as for pip, such as `torch` or `torch==2.9.*`. JupyterLab, ipykernel and TensorBoard are added.
    #[schema(min_items = 1, max_items = 200)]
    packages: Vec<String>,
    /// Names of the groups that may use it. Default: all users.
    #[serde(default)]
    #[schema(max_items = 50)]
    groups: Vec<String>,
    /// Lists show environments in this order. Default: last.
    #[schema(minimum = 0, maximum = 1_000_000)]
    position: Option<i64>,
}

/// Adds a software environment, which the portal builds in the background.
///
/// Follow `state`, `percent` and `detail`.
#[utoipa::path(post, path = "/environments", tag = "catalogue", request_body = NewEnvironmentRequest,
    responses((status = 201, body = EnvironmentView), (status = 403, description = "Not an administrator", body = Problem),
        (status = 409, description = "The portal builds no environments", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<NewEnvironmentRequest>,
) -> Result<Created<EnvironmentView>> {
    let NewEnvironmentRequest { name, title, packages, groups, position } = request;
    let new = NewEnvironment { name, title, packages, groups, position };
    let made = portal.sessions.environments.add(&portal.db, new, portal.changed_by(&admin)).await?;
    Ok(Created(format!("/api/v1/environments/{}", made.name), made.into()))
}

/// The new values of an environment.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentChangeRequest {
    #[serde(default)]
    #[schema(max_length = 80)]
    title: String,
    /// Requirements as for pip. If they differ from the current ones, the environment is rebuilt.
    #[schema(min_items = 1, max_items = 200)]
    packages: Vec<String>,
    /// Names of the groups that may use it. Default: all users.
    #[serde(default)]
    #[schema(max_items = 50)]
    groups: Vec<String>,
    /// Lists show environments in this order. Default: unchanged.
    #[schema(minimum = 0, maximum = 1_000_000)]
    position: Option<i64>,
}

/// Changes a software environment that was added.
///
/// Running sessions and jobs keep the packages that they started with.
#[utoipa::path(put, path = "/environments/{name}", tag = "catalogue", params(("name" = String, Path)),
    request_body = EnvironmentChangeRequest,
    responses((status = 200, body = EnvironmentView), (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "It was not added by an administrator", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Json(request): Json<EnvironmentChangeRequest>,
) -> Result<axum::Json<EnvironmentView>> {
    let EnvironmentChangeRequest { title, packages, groups, position } = request;
    let new = NewEnvironment { name, title, packages, groups, position };
    let changed = portal.sessions.environments.change_added(&portal.db, new, portal.changed_by(&admin)).await?;
    Ok(axum::Json(changed.into()))
}

/// Removes a software environment that was added, with its files.
#[utoipa::path(delete, path = "/environments/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 204, description = "Removed"), (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "Sessions or jobs use it, or it was not added by an administrator", body = Problem)))]
pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    portal.sessions.environments.remove(&portal.db, &name, portal.changed_by(&admin)).await?;
    Ok(NoContent.into_response())
}

/// Builds an environment again that could not be built.
#[utoipa::path(post, path = "/environments/{name}/retry", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 202, description = "The build begins", body = EnvironmentView),
        (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "It has not failed", body = Problem)))]
pub async fn retry(
    _: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Accepted<EnvironmentView>> {
    portal.sessions.environments.retry_failed(&name)?;
    let found = portal.sessions.environments.find(&name).ok_or_else(Error::not_found)?;
    Ok(Accepted(found.into()))
}

/// Returns the end of the log of an environment's builds.
#[utoipa::path(get, path = "/environments/{name}/log", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 200, description = "At most the last 256 KiB; empty before the first build", body = String, content_type = "text/plain"),
        (status = 403, description = "Not an administrator", body = Problem),
        (status = 404, description = "The portal builds no environment of this name", body = Problem)))]
pub async fn log(_: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let text = portal.sessions.environments.build_log(&name, LOG_LIMIT).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}
