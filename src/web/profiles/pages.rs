//! `/admin/profiles`: all named sizes with what fits now, the form that adds one, and the forms that change and remove
//! added ones. The rules are in `services::sessions::profiles`.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{actor, free};
use crate::{
    model::{
        Resources,
        job::Shape,
        size::{human_size, parse_size},
        time::parse_duration,
    },
    sessions::{
        Profile,
        profiles::{NewProfile, Origin},
    },
    web::{
        Portal,
        http::{
            error::{Error, FieldError, Result},
            extract::{Admin, Form, Query},
            routes::Pages,
        },
        offered::{existing_groups, position},
        page::{Nav, Page},
        views::{self, ProfileForm, ProfileRow, ProfilesPage},
    },
};

/// Adds the routes of the page.
pub fn routes(pages: Pages) -> Pages {
    pages
        .get("/admin/profiles", list)
        .post("/admin/profiles", add)
        .post("/admin/profiles/{name}", change)
        .post("/admin/profiles/{name}/remove", remove)
}

/// The address of the page.
#[derive(Default, Deserialize)]
pub struct PageParams {
    done: Option<String>,
}

async fn list(admin: Admin, State(portal): State<Arc<Portal>>, Query(visit): Query<PageParams>) -> Result<Response> {
    let mut view = view(&portal, &admin).await?;
    view.notice = visit.done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "added" => "The profile was added.",
        "changed" => "The profile was changed.",
        "removed" => "The profile was removed.",
        _ => return None,
    })
}

async fn add(admin: Admin, State(portal): State<Arc<Portal>>, fields: Form) -> Result<Response> {
    let typed = typed(fields.get("name"), &fields);
    let outcome = match asked(&typed) {
        Ok(new) => portal.sessions.add_profile(new, portal.changed_by(&admin)).await.map_err(Error::from),
        Err(faults) => Err(Error::invalid(faults)),
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/admin/profiles?done=added").into_response()),
        Err(error) => refused(&portal, &admin, Some(Refused::Addition(typed)), error).await,
    }
}

async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    fields: Form,
) -> Result<Response> {
    let typed = typed(&name, &fields);
    let outcome = match asked(&typed) {
        Ok(new) => portal.sessions.change_profile(new, portal.changed_by(&admin)).await.map_err(Error::from),
        Err(faults) => Err(Error::invalid(faults)),
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/admin/profiles?done=changed").into_response()),
        Err(error) => refused(&portal, &admin, Some(Refused::Change(typed)), error).await,
    }
}

async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    match portal.sessions.remove_profile(&name, portal.changed_by(&admin)).await.map_err(Error::from) {
        Ok(()) => Ok(Redirect::to("/admin/profiles?done=removed").into_response()),
        Err(error) => refused(&portal, &admin, None, error).await,
    }
}

/// A form that was refused.
enum Refused {
    Addition(ProfileForm),
    Change(ProfileForm),
}

fn typed(name: &str, fields: &Form) -> ProfileForm {
    let text = |name: &str| fields.get(name).chars().take(16 << 10).collect::<String>();
    ProfileForm {
        name: name.trim().chars().take(100).collect(),
        title: text("title"),
        gpus: text("gpus"),
        gpu_model: text("gpu_model"),
        cpus: text("cpus"),
        memory: text("memory"),
        duration: text("duration"),
        groups: text("groups"),
        position: text("position"),
        errors: Vec::new(),
    }
}

/// Reads what was typed, or says which inputs cannot be read.
fn asked(typed: &ProfileForm) -> Result<NewProfile, Vec<FieldError>> {
    let mut faults = Vec::new();
    let mut read = |field: &str, value: Option<i64>, message: &str| {
        value.unwrap_or_else(|| {
            faults.push(FieldError::new(field, "invalid_value", message));
            0
        })
    };
    let number = |text: &str| text.trim().parse::<i64>().ok();
    let gpu_model = Some(typed.gpu_model.trim().to_owned()).filter(|model| !model.is_empty());
    let resources = Resources {
        gpus: read("gpus", number(&typed.gpus), "Enter a whole number."),
        gpu_model,
        cpus: read("cpus", number(&typed.cpus), "Enter a whole number."),
        memory_bytes: read("memory", parse_size(&typed.memory), "Enter a size such as 48 GiB."),
    };
    let duration_seconds = read("duration", parse_duration(&typed.duration), "Enter a time such as 8h or 2d.");
    let position = position(&typed.position).unwrap_or_else(|fault| {
        faults.push(fault);
        None
    });
    let groups = typed.groups.split(',').map(str::to_owned).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(NewProfile {
        name: typed.name.clone(),
        title: typed.title.clone(),
        resources,
        duration_seconds,
        groups,
        position,
    })
}

/// The page once more, with what was typed and why it was refused.
async fn refused(portal: &Portal, admin: &Admin, form: Option<Refused>, error: Error) -> Result<Response> {
    if !error.is_for_the_form() {
        return Err(error);
    }
    let mut view = view(portal, admin).await?;
    let errors: Vec<_> = error.field_errors().iter().map(beside_input).collect();
    if errors.is_empty() {
        view.error = Some(error.detail().to_owned());
    }
    match form {
        Some(Refused::Addition(form)) => view.form = ProfileForm { errors, ..form },
        Some(Refused::Change(form)) => {
            let row = view.rows.iter_mut().find(|row| row.name == form.name);
            if let Some(place) = row.and_then(|row| row.form.as_mut()) {
                *place = ProfileForm { errors, ..form };
            }
        }
        None => {}
    }
    Ok(error.with_page(Page(view)))
}

/// The fault beside the input that the field is typed into.
fn beside_input(fault: &FieldError) -> views::FieldError {
    let field = match fault.field.as_str() {
        "resources.memory_bytes" => "memory",
        "duration_seconds" => "duration",
        field => field.strip_prefix("resources.").unwrap_or(field),
    };
    views::FieldError { field: field.to_owned(), ..views::FieldError::from(fault) }
}

/// Why no session or job of this size can start, whatever is free.
fn objection(portal: &Portal, profile: &Profile) -> Option<String> {
    let (asked, largest) = (&profile.resources, portal.sessions.scheduler.largest());
    let too_large = [
        (asked.gpus, largest.gpus, format!("{} GPUs", largest.gpus)),
        (asked.cpus, largest.cpus, format!("{} cores", largest.cpus)),
        (asked.memory_bytes, largest.memory_bytes, human_size(largest.memory_bytes)),
    ];
    let beyond = too_large.into_iter().find(|(asked, there, _)| there < asked);
    let too_large = beyond.map(|(_, _, most)| format!("The largest node has {most}."));
    let scheduler = &portal.sessions.scheduler;
    too_large.or_else(|| {
        let sentence = scheduler.objection(asked, profile.duration_seconds, &Shape::default())?;
        Some(views::as_sentence(&sentence))
    })
}

async fn view(portal: &Portal, admin: &Admin) -> Result<ProfilesPage> {
    let all = portal.sessions.profiles_for(actor(admin));
    let status = portal.sessions.standing(admin.0.user.id).await?;
    let groups = existing_groups(portal, all.iter().flat_map(|one| &one.groups)).await?;
    let row = |profile: Profile| {
        let objection = objection(portal, &profile);
        let free = free(&profile.resources, &status);
        ProfileRow::new(profile, free, objection, |group| groups.contains(group))
    };
    let suggestion = |profile: Profile| {
        // Each is added behind those that are there.
        let form = ProfileForm { position: String::new(), ..ProfileForm::of(&profile) };
        (row(profile), form)
    };
    let shipped = portal.sessions.shipped_profiles();
    let are_shipped = all.iter().all(|one| one.origin == Origin::Shipped);
    let is_new = |one: &Profile| are_shipped || all.iter().all(|other| other.name != one.name);
    Ok(ProfilesPage {
        layout: portal.layout_of(&admin.0, Nav::Administration),
        notice: None,
        error: None,
        suggestions: shipped.into_iter().filter(is_new).map(suggestion).collect(),
        rows: all.into_iter().map(row).collect(),
        are_shipped,
        form: ProfileForm::default(),
    })
}
