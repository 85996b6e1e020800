//! Presets over REST: `/presets`, requests that users save under a name. The pages that save, use and share them are in
//! `pages`. The rules are the service's.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub(super) mod pages;

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Created, Error, Problem, Result},
        extract::{CurrentUser, Id, Json, Query},
        paging::Listed,
        versions::{check_version, tagged},
    },
};
use crate::{
    jobs::JobRequest,
    model::{
        Preset, PresetId, Timestamp,
        preset::{PresetHolder, PresetKind},
    },
    presets::{NewPreset, PresetChange, SavedRequest},
    sessions::StartRequest,
};

/// A saved request for a session or a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Preset)]
pub struct PresetView {
    /// The id of the preset.
    #[schema(value_type = String, format = "uuid")]
    id: PresetId,
    name: String,
    /// What it starts.
    kind: PresetKind,
    /// The name of the group that it is shared with; null if it is your own.
    group: Option<String>,
    /// The name of the user who saved it last.
    saved_by: String,
    /// The saved request, if this is a preset of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<StartRequest>,
    /// The saved request, if this is a preset of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobRequest>,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
    /// When it was changed last.
    #[schema(value_type = String, format = "date-time")]
    changed_at: Timestamp,
}

impl PresetView {
    fn new(preset: Preset) -> Result<Self> {
        let (session, job) = match SavedRequest::of(&preset)? {
            SavedRequest::Session(request) => (Some(request), None),
            SavedRequest::Job(request) => (None, Some(request)),
        };
        let group = match preset.holder {
            PresetHolder::User(_) => None,
            PresetHolder::Group(_, name) => Some(name),
        };
        Ok(Self {
            id: preset.id,
            name: preset.name,
            kind: preset.kind,
            group,
            saved_by: preset.saved_by,
            session,
            job,
            created_at: preset.created_at,
            changed_at: preset.changed_at,
        })
    }
}

/// `?kind=` of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PresetParameters {
    /// Only presets of sessions or only presets of jobs: `session` or `job`.
    kind: Option<String>,
}

/// Lists your presets and those of your groups, by name.
///
/// Administrators also see those of other groups.
#[utoipa::path(get, path = "/presets", tag = "presets", params(PresetParameters),
    responses((status = 200, body = Listed<PresetView>)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<PresetParameters>,
) -> Result<axum::Json<Listed<PresetView>>> {
    let kind = match parameters.kind.as_deref() {
        None | Some("") => None,
        Some(word) => {
            let unknown = |_err| Error::field("kind", "invalid_value", "Must be session or job.");
            Some(word.parse::<PresetKind>().map_err(unknown)?)
        }
    };
    let mut presets = portal.presets.seen_by(&user.user).await?;
    presets.retain(|preset| kind.is_none_or(|kind| preset.kind == kind));
    let items = presets.into_iter().map(PresetView::new).collect::<Result<_>>()?;
    Ok(axum::Json(Listed { items, next_cursor: None }))
}

/// A preset to save.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPreset)]
pub struct PresetRequest {
    /// At most 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// The group to share it with, by name or id. You must manage the group.
    #[serde(default)]
    group: Option<String>,
    /// The request of a session. Give this or `job`.
    #[serde(default)]
    session: Option<StartRequest>,
    /// The request of a job. Environment variables whose names suggest a secret are rejected.
    #[serde(default)]
    job: Option<JobRequest>,
}

/// Saves a preset.
#[utoipa::path(post, path = "/presets", tag = "presets", request_body = PresetRequest,
    responses((status = 201, body = PresetView),
        (status = 422, description = "A field is invalid, the name is in use, or there are 50 already",
            body = Problem)))]
pub async fn create(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(asked): Json<PresetRequest>,
) -> Result<Created<PresetView>> {
    let request = one_of(asked.session, asked.job)?
        .ok_or_else(|| Error::field("session", "required", "Give the request of a session or of a job."))?;
    let new = NewPreset { name: asked.name, group: asked.group, request };
    let preset = portal.presets.save(&user.user, new).await?;
    Ok(Created(format!("/api/v1/presets/{}", preset.id), PresetView::new(preset)?))
}

/// The request that was given, where there is one.
fn one_of(session: Option<StartRequest>, job: Option<JobRequest>) -> Result<Option<SavedRequest>> {
    match (session, job) {
        (Some(_), Some(_)) => Err(Error::field("job", "ambiguous", "Give a session or a job, not both.")),
        (Some(request), None) => Ok(Some(SavedRequest::Session(request))),
        (None, Some(request)) => Ok(Some(SavedRequest::Job(request))),
        (None, None) => Ok(None),
    }
}

/// Returns a preset.
#[utoipa::path(get, path = "/presets/{id}", tag = "presets", params(("id" = String, Path)),
    responses((status = 200, body = PresetView)))]
pub async fn find(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<PresetId>) -> Result<Response> {
    Ok(tagged(&PresetView::new(portal.presets.find(&user.user, id).await?)?, &[]))
}

/// A change of a preset. Omitted fields are not changed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = PresetChange)]
pub struct PresetChangeRequest {
    name: Option<String>,
    /// The group to share it with, by name or id; an empty text makes it your own preset.
    group: Option<String>,
    /// The new request, of a preset of a session.
    session: Option<StartRequest>,
    /// The new request, of a preset of a job.
    job: Option<JobRequest>,
}

/// Renames, shares or replaces a preset.
///
/// Presets of a group are changed by its managers and by administrators.
#[utoipa::path(patch, path = "/presets/{id}", tag = "presets", params(("id" = String, Path)),
    request_body = PresetChangeRequest,
    responses((status = 200, body = PresetView),
        (status = 403, description = "Not a manager of the group", body = Problem),
        (status = 412, description = "Changed since the version in If-Match", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<PresetId>,
    headers: HeaderMap,
    Json(asked): Json<PresetChangeRequest>,
) -> Result<Response> {
    let before = portal.presets.find(&user.user, id).await?;
    check_version(&headers, &PresetView::new(before.clone())?, &[])?;
    let request = one_of(asked.session, asked.job)?;
    let change = PresetChange { name: asked.name, group: asked.group, request };
    let after = portal.presets.change(&user.user, &before, change).await?;
    Ok(tagged(&PresetView::new(after)?, &[]))
}

/// Deletes a preset.
///
/// What was started with it continues.
#[utoipa::path(delete, path = "/presets/{id}", tag = "presets", params(("id" = String, Path)),
    responses((status = 204, description = "Deleted"),
        (status = 403, description = "Not a manager of the group", body = Problem),
        (status = 412, description = "Changed since the version in If-Match", body = Problem)))]
pub async fn remove(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<PresetId>,
    headers: HeaderMap,
) -> Result<Response> {
    let preset = portal.presets.find(&user.user, id).await?;
    check_version(&headers, &PresetView::new(preset.clone())?, &[])?;
    portal.presets.remove(&user.user, &preset).await?;
    Ok(NoContent.into_response())
}
