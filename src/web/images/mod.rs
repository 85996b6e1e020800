//! Container images over REST: people see those that they may use, administrators add, pull and remove them. The page
//! is in `pages`; what an image is and when it can be used is the service's.

pub mod pages;
pub mod storage;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json as Answer,
    extract::{Path, State},
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Accepted, Created, Error, Problem, Result},
        extract::{CurrentUser, Json},
        paging::Listed,
    },
};
use crate::{
    auth::Principal,
    images::{Entry, NewImage, SUGGESTIONS},
    model::Timestamp,
    sessions::Actor,
};

/// A container image for sessions and jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Image)]
pub struct ImageView {
    name: String,
    title: String,
    /// Registry, repository and tag or digest, or the address of a file.
    reference: String,
    /// The groups that may use it. Empty: all users, unless it is private.
    groups: Vec<String>,
    /// Whether only the user who added it may use it. It is pulled with their own credentials.
    private: bool,
    /// `missing`, `pulling`, `unpacking`, `ready` or `failed`. An image that is updated can be used meanwhile: then
    /// `digest` is not null.
    state: &'static str,
    /// Bytes that are pulled, or unpacked in the state `unpacking`. Null in other states.
    bytes: Option<u64>,
    /// Bytes of all layers. Null until the registry has listed them.
    total: Option<u64>,
    /// Why the last pull failed.
    failure: Option<String>,
    /// The digest that sessions and jobs run with. Null before the first pull.
    digest: Option<String>,
    /// Such as `linux/amd64`.
    platform: Option<String>,
    /// Bytes on the disk.
    size_bytes: Option<u64>,
    #[schema(value_type = Option<String>, format = "date-time")]
    pulled_at: Option<Timestamp>,
    /// Whether it is in the configuration file and cannot be removed here.
    read_only: bool,
    /// The user who added it. Null if it is in the configuration file.
    added_by: Option<String>,
    /// What the image says about itself. Null before the first pull.
    inside: Option<InsideView>,
}

/// What a container image says about itself.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageContent)]
pub struct InsideView {
    /// The image's entrypoint. Sessions and jobs do not start through it.
    entrypoint: Vec<String>,
    command: Vec<String>,
    working_directory: String,
    environment: BTreeMap<String, String>,
    /// What it requires of the driver, in the words of `NVIDIA_REQUIRE_CUDA`.
    require_cuda: Option<String>,
    /// The series of Python, such as `3.12`. Null if none was found, or if the image is one imported file.
    python: Option<String>,
    /// Versions of the packages that were found of those that matter here, such as `jupyterlab` and `torch`.
    packages: BTreeMap<String, String>,
}

impl From<Entry> for ImageView {
    fn from(entry: Entry) -> Self {
        let amount = entry.amount();
        let stored = entry.stored.as_ref();
        let contents = stored.and_then(|image| image.contents.clone()).unwrap_or_default();
        let inside = stored.and_then(|image| image.config.clone()).map(|config| InsideView {
            python: contents.python,
            packages: contents.packages,
            entrypoint: config.entrypoint,
            command: config.cmd,
            working_directory: config.working_dir,
            environment: config.env.into_iter().collect(),
            require_cuda: config.require_cuda,
        });
        Self {
            state: entry.state().as_str(),
            bytes: amount.map(|amount| amount.bytes),
            total: amount.and_then(|amount| amount.total),
            failure: entry.failure().map(str::to_owned),
            digest: stored.map(|image| image.digest.to_string()),
            platform: stored.map(|image| image.platform.to_string()),
            size_bytes: stored.map(|image| image.bytes),
            pulled_at: entry.pulled_at,
            private: entry.owner.is_some(),
            read_only: entry.added_by.is_none(),
            inside,
            name: entry.name,
            title: entry.title,
            reference: entry.source.to_string(),
            groups: entry.groups,
            added_by: entry.added_by,
        }
    }
}

impl Portal {
    /// Whether the pages of somebody name images: there are some that they may use, or they may add some.
    pub(super) fn has_images(&self, principal: &Principal) -> bool {
        let actor = Actor { user: &principal.user };
        let may_add = self.sessions.images.may_add(&principal.user);
        self.sessions.can_use_images() && (may_add || !self.sessions.images_for(actor).is_empty())
    }

    /// Administrators pull and remove all images, other users their own.
    fn check_image_is_theirs(&self, principal: &Principal, name: &str) -> Result<()> {
        let is_theirs = self.sessions.images.find(name).is_some_and(|image| image.may_change(&principal.user));
        if is_theirs || principal.is_admin() {
            return Ok(());
        }
        Err(Error::forbidden("Only administrators can do this."))
    }

    /// Nothing is pulled where it could not be used.
    fn check_images(&self) -> Result<()> {
        if !self.sessions.can_use_images() {
            return Err(Error::conflict(
                "On a Slurm cluster, images need a folder that all nodes see: set images.directory in the \
                 configuration file.",
            ));
        }
        Ok(())
    }
}

/// Lists the container images that you may use.
#[utoipa::path(get, path = "/images", tag = "catalogue", responses((status = 200, body = Listed<ImageView>)))]
pub async fn list(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Answer<Listed<ImageView>> {
    let items = portal.sessions.images_for(user.actor()).into_iter().map(ImageView::from).collect();
    Answer(Listed { items, next_cursor: None })
}

/// Returns a container image.
#[utoipa::path(get, path = "/images/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 200, body = ImageView),
        (status = 404, description = "It does not exist, or your groups may not use it", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Answer<ImageView>> {
    let found = portal.sessions.images_for(user.actor()).into_iter().find(|image| image.name == name);
    found.map(|image| Answer(image.into())).ok_or_else(Error::not_found)
}

/// A new container image.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewImage)]
pub struct ImageRequest {
    /// The name that sessions and jobs use: lower-case letters, digits, `_`, `.` and `-`.
    name: String,
    #[serde(default)]
    title: String,
    /// Such as `nvcr.io/nvidia/pytorch:26.10`, or a file on the portal's machine: `file:///srv/images/pytorch.tar`,
    /// with `#TAG` if an archive has several images. May be omitted for a name of `GET /image-suggestions`.
    #[serde(default)]
    reference: String,
    /// The groups that may use it. Default: all users.
    #[serde(default)]
    groups: Vec<String>,
    /// Only you may use it, and it is pulled with your own registry credentials. Always true for users who are not
    /// administrators.
    #[serde(default)]
    private: bool,
}

/// Adds a container image.
///
/// It is pulled by `POST /images/{name}/pull`, or when a session or job needs it.
#[utoipa::path(post, path = "/images", tag = "catalogue", request_body = ImageRequest,
    responses((status = 201, body = ImageView),
        (status = 403, description = "You may not add images", body = Problem),
        (status = 409, description = "The name is in use", body = Problem),
        (status = 422, description = "A field is invalid, or the repository is not allowed", body = Problem)))]
pub async fn add(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(new): Json<ImageRequest>,
) -> Result<Created<ImageView>> {
    portal.check_images()?;
    let ImageRequest { name, title, reference, groups, private: is_private } = new;
    let new = NewImage { name, title, reference, groups, is_private };
    let added = portal.sessions.images.add(&user.user, new).await?;
    Ok(Created(format!("/api/v1/images/{}", added.name), added.into()))
}

/// An image that can be added by its name alone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageSuggestion)]
pub struct SuggestionView {
    name: &'static str,
    title: &'static str,
    /// Registry, repository and tag.
    reference: &'static str,
    /// Whether it is no longer developed.
    legacy: bool,
    /// Whose terms apply.
    licence: &'static str,
}

/// Lists container images that can be added by their name alone.
///
/// They are references only: nothing of them is pulled before they are added.
#[utoipa::path(get, path = "/image-suggestions", tag = "catalogue",
    responses((status = 200, body = Listed<SuggestionView>)))]
pub async fn suggestions(_user: CurrentUser) -> Answer<Listed<SuggestionView>> {
    let items = SUGGESTIONS.iter().map(|one| SuggestionView {
        name: one.name,
        title: one.title,
        reference: one.reference,
        legacy: one.is_legacy,
        licence: one.licence,
    });
    Answer(Listed { items: items.collect(), next_cursor: None })
}

/// Pulls a container image, or updates it.
///
/// The registry is asked again what the tag names. Sessions and jobs that start later use the new digest.
#[utoipa::path(post, path = "/images/{name}/pull", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 202, body = ImageView),
        (status = 403, description = "Not an administrator, and not your own image", body = Problem),
        (status = 404, description = "It does not exist", body = Problem)))]
pub async fn pull(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Accepted<ImageView>> {
    portal.check_image_is_theirs(&user, &name)?;
    portal.check_images()?;
    Ok(Accepted(portal.sessions.images.pull(user.user.name.as_str(), &name).await?.into()))
}

/// Removes a container image and what is stored of it.
#[utoipa::path(delete, path = "/images/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 204, description = "Removed"),
        (status = 403, description = "Not an administrator, and not your own image", body = Problem),
        (status = 404, description = "It does not exist", body = Problem),
        (status = 409, description = "It is in the configuration file, or sessions or jobs use it", body = Problem)))]
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Response> {
    portal.check_image_is_theirs(&user, &name)?;
    portal.sessions.images.remove(user.user.name.as_str(), &name).await?;
    Ok(NoContent.into_response())
}
