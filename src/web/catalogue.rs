//! The site's environment modules, which sessions and jobs can load.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Portal,
    http::{extract::CurrentUser, paging::Listed},
};

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
