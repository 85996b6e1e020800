//! Presets on the pages: saving the start form or the job form under a name, filling the forms, the one click that
//! starts a session, and the list on the settings page.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};

use crate::{
    model::{
        Preset, PresetId, Role,
        preset::{PresetHolder, PresetKind},
        size::exact_size,
    },
    presets::{NewPreset, PresetChange, SavedRequest},
    sessions::StartRequest,
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Id},
        },
        sessions::form::new_key,
        settings,
        views::{NewSessionForm, PresetForm, PresetList, PresetRow, PresetStart},
    },
};

/// What a form shows of presets: those of its kind, and the groups that the user can share one with.
pub(in crate::web) async fn choices(portal: &Portal, user: &CurrentUser, kind: PresetKind) -> Result<PresetForm> {
    let mut presets = portal.presets.of(&user.user).await?;
    presets.retain(|preset| preset.kind == kind);
    let rows = presets.into_iter().map(|preset| row(preset, true)).collect();
    Ok(PresetForm { rows, chosen: String::new(), groups: kept_groups(portal, user).await?, name: String::new() })
}

/// The groups whose presets a user keeps: id and name. Administrators keep those of the groups that they are in.
async fn kept_groups(portal: &Portal, user: &CurrentUser) -> Result<Vec<(String, String)>> {
    let mut belongings = portal.db.belongings(user.id()).await?;
    belongings.retain(|belonging| belonging.is_manager || user.user.role == Role::Admin);
    Ok(belongings.into_iter().map(|belonging| (belonging.group.id.to_string(), belonging.group.name)).collect())
}

fn row(preset: Preset, may_change: bool) -> PresetRow {
    let (group_id, group) = match preset.holder {
        PresetHolder::User(_) => (String::new(), None),
        PresetHolder::Group(id, name) => (id.to_string(), Some(name)),
    };
    PresetRow {
        id: preset.id.to_string(),
        is_job: preset.kind == PresetKind::Job,
        name: preset.name,
        group,
        group_id,
        may_change,
    }
}

/// What the home page offers to start.
pub(in crate::web) async fn starts(portal: &Portal, user: &CurrentUser) -> Result<Vec<PresetStart>> {
    let presets = choices(portal, user, PresetKind::Session).await?;
    Ok(presets.rows.into_iter().map(|row| PresetStart { row, idempotency_key: new_key() }).collect())
}

/// What the settings page lists.
pub(in crate::web) async fn section(portal: &Portal, user: &CurrentUser) -> Result<PresetList> {
    let mut rows = Vec::new();
    for preset in portal.presets.seen_by(&user.user).await? {
        let may_change = portal.presets.may_change(&user.user, &preset).await?;
        rows.push(row(preset, may_change));
    }
    Ok(PresetList { rows, groups: kept_groups(portal, user).await? })
}

/// The preset of a form's address, `?preset=`.
pub(in crate::web) async fn asked(
    portal: &Portal,
    user: &CurrentUser,
    kind: PresetKind,
    text: &str,
) -> Result<(Preset, SavedRequest)> {
    let preset = portal.presets.named(&user.user, kind, text).await?;
    let request = SavedRequest::of(&preset)?;
    Ok((preset, request))
}

/// Fills the form of sessions with a request. What the request omits stays as it is.
pub(in crate::web) fn fill(form: &mut NewSessionForm, request: &StartRequest) {
    let texts = [
        (Some(&request.app).filter(|app| !app.is_empty()), &mut form.app),
        (request.name.as_ref(), &mut form.name),
        (request.working_directory.as_ref(), &mut form.working_directory),
        (request.group.as_ref(), &mut form.group),
        (request.options.log_directory.as_ref(), &mut form.log_directory),
    ];
    for (value, field) in texts {
        if let Some(value) = value {
            field.clone_from(value);
        }
    }
    if let Some(resources) = &request.resources {
        "custom".clone_into(&mut form.profile);
        form.gpus = resources.gpus.to_string();
        form.gpu_model = resources.gpu_model.clone().unwrap_or_default();
        form.cpus = resources.cpus.to_string();
        form.memory = exact_size(resources.memory_bytes);
    }
    if let Some(profile) = &request.profile {
        form.profile.clone_from(profile);
    }
    if let Some(seconds) = request.duration_seconds {
        form.duration = seconds.to_string();
    }
    if !request.modules.is_empty() {
        form.modules = request.modules.join(" ");
    }
    form.slurm = request.slurm.clone();
    form.image = request.image.clone().unwrap_or_default();
    if let Some(environment) = &request.environment {
        let is_own = environment.contains(['/', '~']);
        let field = if is_own { &mut form.own_environment } else { &mut form.environment };
        field.clone_from(environment);
    }
}

/// Saves what a form holds, under the name and for the group that it has for a preset.
pub(in crate::web) async fn save(
    portal: &Portal,
    user: &CurrentUser,
    fields: &Form,
    request: SavedRequest,
) -> Result<Preset> {
    let group = Some(fields.get("preset_group").trim()).filter(|group| !group.is_empty()).map(str::to_owned);
    let new = NewPreset { name: fields.get("preset_name").to_owned(), group, request };
    portal.presets.save(&user.user, new).await.map_err(Error::from).map_err(|error| {
        let renamed = |field: &str| match field {
            "name" => "preset_name".to_owned(),
            "group" => "preset_group".to_owned(),
            other => other.strip_prefix("job.").unwrap_or(other).to_owned(),
        };
        let mut faults = error.field_errors().to_vec();
        if faults.is_empty() {
            return error;
        }
        for fault in &mut faults {
            fault.field = renamed(&fault.field);
        }
        Error::invalid(faults)
    })
}

/// `POST /presets/{id}/start`
pub(in crate::web) async fn start(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<PresetId>,
    form: Form,
) -> Result<Response> {
    let preset = portal.presets.find(&user.user, id).await?;
    let SavedRequest::Session(request) = SavedRequest::of(&preset)? else { return Err(Error::not_found()) };
    let key = Some(form.get("idempotency_key")).filter(|key| !key.is_empty());
    match portal.sessions.start(user.actor(), request, key).await.map_err(Error::from) {
        Ok(session) => Ok(Redirect::to(&portal.open_url(&headers, session.id)).into_response()),
        // The form shows what is wrong, each beside its field.
        Err(error) if error.is_for_the_form() => {
            Ok(Redirect::to(&format!("/sessions/new?preset={id}")).into_response())
        }
        Err(error) => Err(error),
    }
}

/// `POST /settings/presets/{id}`
pub(in crate::web) async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<PresetId>,
    form: Form,
) -> Result<Response> {
    let before = portal.presets.find(&user.user, id).await?;
    let group_before = match &before.holder {
        PresetHolder::User(_) => String::new(),
        PresetHolder::Group(group, _) => group.to_string(),
    };
    let change = PresetChange {
        name: Some(form.get("preset_name").to_owned()),
        group: Some(form.get("preset_group").trim().to_owned()).filter(|group| *group != group_before),
        request: None,
    };
    match portal.presets.change(&user.user, &before, change).await.map_err(Error::from) {
        Ok(_) => Ok(Redirect::to("/settings?done=preset#presets").into_response()),
        Err(error) => {
            settings::again(&portal, &user, error, |view| {
                for fault in &mut view.errors {
                    let field = match fault.field.as_str() {
                        "token_name" => "preset_name",
                        "group" => "preset_group",
                        other => other,
                    };
                    fault.field = field.to_owned();
                }
            })
            .await
        }
    }
}

/// `POST /settings/presets/{id}/remove`
pub(in crate::web) async fn remove_by_form(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<PresetId>,
    _form: Form,
) -> Result<Redirect> {
    let preset = portal.presets.find(&user.user, id).await?;
    portal.presets.remove(&user.user, &preset).await?;
    Ok(Redirect::to("/settings?done=preset_removed#presets"))
}
