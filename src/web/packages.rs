//! `/me/environments`: what one installed oneself over the shared environments, and its
//! removal by a click. The page stands below the settings, because looking at a home may take
//! its time.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::{Path, State},
    response::{IntoResponse, NoContent, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Kind, Problem, Result},
        extract::{CurrentUser, Query},
        paging::Listed,
    },
    page::{Nav, Page},
    views::{OverlayPanel, Packages},
};
use crate::sessions::OwnPackages;

/// Packages that you installed on top of one environment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnEnvironment)]
pub(super) struct OwnEnvironmentView {
    /// The name of its folder below `~/.local/share/lyceum/environments`.
    name: String,
    /// The shared environment.
    environment: String,
    python_version: String,
    /// False if the packages were installed for an earlier Python. Sessions do not use them.
    current: bool,
    size_bytes: u64,
    /// False if measuring took too long. The actual size is then larger.
    size_complete: bool,
    package_count: usize,
    /// The first hundred packages, by name.
    packages: Vec<PackageView>,
    /// Live sessions that use these packages.
    used_by: Vec<UserOfPackages>,
}

/// An installed package.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OwnPackage)]
struct PackageView {
    name: String,
    version: String,
    /// The version in the shared environment that it replaces.
    instead_of: Option<String>,
}

/// A session and its name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionName)]
struct UserOfPackages {
    #[schema(format = "uuid")]
    id: String,
    name: String,
}

impl From<OwnPackages> for OwnEnvironmentView {
    fn from(own: OwnPackages) -> Self {
        let package = |package: crate::protocol::Package| PackageView {
            name: package.name,
            version: package.version,
            instead_of: package.instead_of,
        };
        Self {
            name: own.overlay.name,
            environment: own.overlay.environment,
            python_version: own.overlay.python_version,
            current: own.is_current,
            size_bytes: own.overlay.bytes,
            size_complete: own.overlay.counted,
            package_count: own.overlay.count,
            packages: own.overlay.packages.into_iter().map(package).collect(),
            used_by: own.used_by.into_iter().map(|(id, name)| UserOfPackages { id: id.to_string(), name }).collect(),
        }
    }
}

/// Lists the packages that you installed, by environment.
#[utoipa::path(
    get, path = "/me/environments", tag = "me",
    responses(
        (status = 200, body = Listed<OwnEnvironmentView>),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 503, description = "The home directory does not respond", body = Problem),
    )
)]
pub(super) async fn list(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
) -> Result<Answer<Listed<OwnEnvironmentView>>> {
    let own = portal.sessions.packages(user.actor()).await?;
    Ok(Answer(Listed { items: own.into_iter().map(OwnEnvironmentView::from).collect(), next_cursor: None }))
}

/// Removes all packages that you installed on top of one environment.
///
/// Sessions that use them continue to run.
#[utoipa::path(
    delete, path = "/me/environments/{name}", tag = "me", params(("name" = String, Path)),
    responses(
        (status = 204, description = "Removed"),
        (status = 401, description = "Not signed in", body = Problem),
        (status = 403, description = "No proof of origin, or a token with scopes", body = Problem),
        (status = 404, description = "There are no packages of this name", body = Problem),
        (status = 409, description = "They could not be removed. The detail says why.", body = Problem),
        (status = 503, description = "The home directory does not respond", body = Problem),
    )
)]
pub(super) async fn reset(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Path(name): Path<String>,
) -> Result<Response> {
    portal.sessions.reset_packages(user.actor(), &name).await?;
    Ok(NoContent.into_response())
}

#[derive(Deserialize)]
pub(super) struct PageParams {
    done: Option<String>,
}

/// `/settings/packages`
pub(super) async fn page(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let notice = (visit.done.as_deref() == Some("reset")).then(|| {
        "The packages were removed. Restart the kernels of running notebooks to unload packages that they have \
         imported."
            .to_owned()
    });
    draw(&portal, &user, notice).await.map(IntoResponse::into_response)
}

pub(super) async fn reset_by_form(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Path(name): Path<String>,
) -> Result<Response> {
    portal.sessions.reset_packages(user.actor(), &name).await?;
    Ok(Redirect::to("/settings/packages?done=reset").into_response())
}

async fn draw(portal: &Portal, user: &CurrentUser, notice: Option<String>) -> Result<Page<Packages>> {
    let looked = portal.sessions.packages(user.actor()).await.map_err(super::Error::from);
    let (overlays, trouble) = match looked {
        Ok(own) => (own.into_iter().map(OverlayPanel::from).collect(), None),
        // The rest of the page is of use all the same.
        Err(error) if error.kind() == Kind::Unavailable => (Vec::new(), Some(error.detail().to_owned())),
        Err(error) => return Err(error),
    };
    Ok(Page(Packages { layout: portal.layout_of(&user.0, Nav::Settings), notice, trouble, overlays }))
}
