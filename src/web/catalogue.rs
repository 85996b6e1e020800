//! What can be chosen when something is started: profiles with what is free now, and the site's modules. Environments
//! have a module of their own.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Portal,
    http::{error::Result, extract::CurrentUser, paging::Listed},
};
use crate::model::Resources;

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
}

/// Lists the named sizes.
#[utoipa::path(get, path = "/profiles", tag = "catalogue", responses((status = 200, body = Listed<ProfileView>)))]
pub async fn profiles(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<axum::Json<Listed<ProfileView>>> {
    let standing = portal.sessions.standing(user.id()).await?;
    let (all, held) = (standing.capacity, &standing.in_use);
    let left = |there: i64, taken: i64, asked: i64| if asked == 0 { i64::MAX } else { (there - taken).max(0) / asked };
    let view = |profile: &crate::sessions::Profile| {
        let asked = &profile.resources;
        let free = left(all.gpus, held.gpus, asked.gpus).min(left(all.cpus, held.cpus, asked.cpus)).min(left(
            all.memory_bytes,
            held.memory_bytes,
            asked.memory_bytes,
        ));
        ProfileView {
            name: profile.name.clone(),
            title: profile.title.clone(),
            resources: asked.clone(),
            duration_seconds: profile.duration_seconds,
            free,
        }
    };
    let items = portal.sessions.profiles().iter().map(view).collect();
    Ok(axum::Json(Listed { items, next_cursor: None }))
}

/// An environment module that can be loaded.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Module)]
pub struct ModuleView {
    pub name: String,
    pub description: String,
    /// Names with versions, as requests use them.
    pub versions: Vec<String>,
}

/// Lists the environment modules of the site.
#[utoipa::path(get, path = "/modules", tag = "catalogue", responses((status = 200, body = Listed<ModuleView>)))]
pub async fn modules(_: CurrentUser, State(portal): State<Arc<Portal>>) -> axum::Json<Listed<ModuleView>> {
    let known = portal.sessions.environments.modules().list();
    let view = |module: &crate::environments::modules::Module| ModuleView {
        name: module.name.clone(),
        description: module.description.clone(),
        versions: module.versions.clone(),
    };
    axum::Json(Listed { items: known.iter().map(view).collect(), next_cursor: None })
}
