//! Named sizes over REST: users see those that they may choose with what is free, and administrators add, change and
//! remove them. The page is in `pages`, the rules in `services::sessions::profiles`.

pub mod pages;

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Created, Error, Problem, Result},
        extract::{Admin, CurrentUser, Json},
        paging::Listed,
    },
};
use crate::{
    admission::QuotaStatus,
    model::Resources,
    sessions::{
        Actor, Profile,
        profiles::{NewProfile, Origin},
    },
};

/// A named size for sessions and jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Profile)]
pub struct ProfileView {
    pub name: String,
    pub title: String,
    pub resources: Resources,
    pub duration_seconds: i64,
    /// How many sessions of this size fit into the free resources now.
    pub free: i64,
    /// Names of the groups that may use it. Empty: all users.
    pub groups: Vec<String>,
    /// Lists show profiles in this order. Those of the configuration file have 10, 20, 30 and so on.
    pub position: i64,
    /// Where it comes from. Only a profile that was `added` can be changed here.
    pub origin: OriginView,
    /// The user who added it. Null unless it was `added`.
    pub added_by: Option<String>,
}

/// Where a profile comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ProfileOrigin)]
pub enum OriginView {
    /// The portal calculated it from the hardware, because no others exist.
    Shipped,
    /// It is in the configuration file.
    File,
    /// An administrator has added it.
    Added,
}

impl ProfileView {
    fn new(profile: Profile, status: &QuotaStatus) -> Self {
        let (origin, added_by) = match profile.origin {
            Origin::Shipped => (OriginView::Shipped, None),
            Origin::File => (OriginView::File, None),
            Origin::Added { by } => (OriginView::Added, Some(by)),
        };
        Self {
            free: free(&profile.resources, status),
            name: profile.name,
            title: profile.title,
            resources: profile.resources,
            duration_seconds: profile.duration_seconds,
            groups: profile.groups,
            position: profile.position,
            origin,
            added_by,
        }
    }
}

/// How often these resources fit into what is free.
pub(super) fn free(asked: &Resources, status: &QuotaStatus) -> i64 {
    let (all, held) = (status.capacity, &status.in_use);
    let left = |there: i64, taken: i64, asked: i64| if asked == 0 { i64::MAX } else { (there - taken).max(0) / asked };
    left(all.gpus, held.gpus, asked.gpus).min(left(all.cpus, held.cpus, asked.cpus)).min(left(
        all.memory_bytes,
        held.memory_bytes,
        asked.memory_bytes,
    ))
}

/// Lists the named sizes that you may use.
#[utoipa::path(get, path = "/profiles", tag = "catalogue", responses((status = 200, body = Listed<ProfileView>)))]
pub async fn list(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<axum::Json<Listed<ProfileView>>> {
    let status = portal.sessions.standing(user.id()).await?;
    let offered = portal.sessions.profiles_for(user.actor()).into_iter();
    let items = offered.map(|profile| ProfileView::new(profile, &status)).collect();
    Ok(axum::Json(Listed { items, next_cursor: None }))
}

/// Returns one named size.
#[utoipa::path(get, path = "/profiles/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 200, body = ProfileView),
        (status = 404, description = "It does not exist, or your groups may not use it", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<axum::Json<ProfileView>> {
    let found = portal.sessions.profiles_for(user.actor()).into_iter().find(|one| one.name == name);
    let found = found.ok_or_else(Error::not_found)?;
    let status = portal.sessions.standing(user.id()).await?;
    Ok(axum::Json(ProfileView::new(found, &status)))
}

/// A new named size.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProfileRequest {
    /// 1 to 32 of `a` to `z`, digits, `_`, `.` and `-`, starting with a letter or digit.
    #[schema(min_length = 1, max_length = 32)]
    name: String,
    /// Shown in forms. Default: the name.
    #[serde(default)]
    #[schema(max_length = 60)]
    title: String,
    resources: Resources,
    /// How long sessions and jobs of this size last when the request names no time.
    #[schema(minimum = 60)]
    duration_seconds: i64,
    /// Names of the groups that may use it. Default: all users.
    #[serde(default)]
    #[schema(max_items = 50)]
    groups: Vec<String>,
    /// Lists show profiles in this order. Default: last.
    #[schema(minimum = 0, maximum = 1_000_000)]
    position: Option<i64>,
}

/// The new values of a named size.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileChangeRequest {
    /// Shown in forms. Default: the name.
    #[serde(default)]
    #[schema(max_length = 60)]
    title: String,
    resources: Resources,
    /// How long sessions and jobs of this size last when the request names no time.
    #[schema(minimum = 60)]
    duration_seconds: i64,
    /// Names of the groups that may use it. Default: all users.
    #[serde(default)]
    #[schema(max_items = 50)]
    groups: Vec<String>,
    /// Lists show profiles in this order. Default: unchanged.
    #[schema(minimum = 0, maximum = 1_000_000)]
    position: Option<i64>,
}

/// Adds a named size.
///
/// The first one replaces those that the portal calculates from the hardware.
#[utoipa::path(post, path = "/profiles", tag = "catalogue", request_body = NewProfileRequest,
    responses((status = 201, body = ProfileView), (status = 403, description = "Not an administrator", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<NewProfileRequest>,
) -> Result<Created<ProfileView>> {
    let NewProfileRequest { name, title, resources, duration_seconds, groups, position } = request;
    let new = NewProfile { name, title, resources, duration_seconds, groups, position };
    let added = portal.sessions.add_profile(new, portal.changed_by(&admin)).await?;
    let status = portal.sessions.standing(admin.0.user.id).await?;
    Ok(Created(format!("/api/v1/profiles/{}", added.name), ProfileView::new(added, &status)))
}

/// Replaces the values of a named size that was added.
///
/// Sessions and jobs keep the size that they were requested with.
#[utoipa::path(put, path = "/profiles/{name}", tag = "catalogue", params(("name" = String, Path)),
    request_body = ProfileChangeRequest,
    responses((status = 200, body = ProfileView), (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "It was not added by an administrator", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Json(request): Json<ProfileChangeRequest>,
) -> Result<axum::Json<ProfileView>> {
    let ProfileChangeRequest { title, resources, duration_seconds, groups, position } = request;
    let new = NewProfile { name, title, resources, duration_seconds, groups, position };
    let changed = portal.sessions.change_profile(new, portal.changed_by(&admin)).await?;
    let status = portal.sessions.standing(admin.0.user.id).await?;
    Ok(axum::Json(ProfileView::new(changed, &status)))
}

/// Removes a named size that was added.
///
/// Sessions and jobs keep their size.
#[utoipa::path(delete, path = "/profiles/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 204, description = "Removed"), (status = 404, description = "Not found", body = Problem),
        (status = 409, description = "It was not added by an administrator", body = Problem)))]
pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    portal.sessions.remove_profile(&name, portal.changed_by(&admin)).await?;
    Ok(NoContent.into_response())
}

/// Whoever acts, as the service asks for it.
fn actor(admin: &Admin) -> Actor<'_> {
    Actor { user: &admin.0.user }
}
