//! `/admin/environments`: all software environments with their progress, the form that adds one, and the forms that change
//! and remove added ones. The rules are in `services::environments`.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    environments::{NewEnvironment, SUGGESTIONS},
    web::{
        Portal,
        http::{
            error::{Error, FieldError, Result},
            extract::{Admin, Form, Query},
            routes::Pages,
        },
        offered::{existing_groups, position},
        page::{Nav, Page},
        views::{self, EnvironmentForm, EnvironmentRow, EnvironmentsPage},
    },
};

/// Adds the routes of the page.
pub fn routes(pages: Pages) -> Pages {
    pages
        .get("/admin/environments", list)
        .post("/admin/environments", add)
        .post("/admin/environments/{name}", change)
        .post("/admin/environments/{name}/remove", remove)
        .post("/admin/environments/{name}/retry", retry)
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
        "added" => "The environment was added. Sessions and jobs that select it start when it is built.",
        "changed" => "The environment was changed. Running sessions and jobs keep their packages.",
        "removed" => "The environment was removed.",
        "retried" => "The build was started again.",
        _ => return None,
    })
}

async fn add(admin: Admin, State(portal): State<Arc<Portal>>, fields: Form) -> Result<Response> {
    let typed = typed(fields.get("name"), &fields);
    let outcome = match asked(&typed) {
        Ok(new) => {
            portal.sessions.environments.add(&portal.db, new, portal.changed_by(&admin)).await.map_err(Error::from)
        }
        Err(fault) => Err(Error::invalid(vec![fault])),
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/admin/environments?done=added").into_response()),
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
        Ok(new) => {
            let changed = portal.sessions.environments.change_added(&portal.db, new, portal.changed_by(&admin));
            changed.await.map_err(Error::from)
        }
        Err(fault) => Err(Error::invalid(vec![fault])),
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/admin/environments?done=changed").into_response()),
        Err(error) => refused(&portal, &admin, Some(Refused::Change(typed)), error).await,
    }
}

async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let removed = portal.sessions.environments.remove(&portal.db, &name, portal.changed_by(&admin));
    match removed.await.map_err(Error::from) {
        Ok(()) => Ok(Redirect::to("/admin/environments?done=removed").into_response()),
        Err(error) => refused(&portal, &admin, None, error).await,
    }
}

async fn retry(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    match portal.sessions.environments.retry_failed(&name).map_err(Error::from) {
        Ok(()) => Ok(Redirect::to("/admin/environments?done=retried").into_response()),
        Err(error) => refused(&portal, &admin, None, error).await,
    }
}

/// A form that was refused.
enum Refused {
    Addition(EnvironmentForm),
    Change(EnvironmentForm),
}

fn typed(name: &str, fields: &Form) -> EnvironmentForm {
    let text = |name: &str, limit: usize| fields.get(name).chars().take(limit).collect::<String>();
    EnvironmentForm {
        name: name.trim().chars().take(100).collect(),
        title: text("title", 200),
        packages: text("packages", 64 << 10),
        groups: text("groups", 16 << 10),
        position: text("position", 100),
        errors: Vec::new(),
    }
}

/// Reads one package per line. Text behind `#` is a comment, as in a requirements file.
fn asked(typed: &EnvironmentForm) -> Result<NewEnvironment, FieldError> {
    let lines = typed.packages.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(NewEnvironment {
        name: typed.name.clone(),
        title: typed.title.clone(),
        packages: lines.filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        groups: typed.groups.split(',').map(str::to_owned).collect(),
        position: position(&typed.position)?,
    })
}

/// The page once more, with what was typed and why it was refused.
async fn refused(portal: &Portal, admin: &Admin, form: Option<Refused>, error: Error) -> Result<Response> {
    if !error.is_for_the_form() {
        return Err(error);
    }
    let mut view = view(portal, admin).await?;
    let errors: Vec<_> = error.field_errors().iter().map(views::FieldError::from).collect();
    if errors.is_empty() {
        view.error = Some(error.detail().to_owned());
    }
    match form {
        Some(Refused::Addition(form)) => view.form = EnvironmentForm { errors, ..form },
        Some(Refused::Change(form)) => {
            let row = view.rows.iter_mut().find(|row| row.name == form.name);
            if let Some(place) = row.and_then(|row| row.form.as_mut()) {
                *place = EnvironmentForm { errors, ..form };
            }
        }
        None => {}
    }
    Ok(error.with_page(Page(view)))
}

async fn view(portal: &Portal, admin: &Admin) -> Result<EnvironmentsPage> {
    let (now, known) = (portal.clock.now(), portal.sessions.environments.list());
    let groups = existing_groups(portal, known.iter().flat_map(|one| &one.groups)).await?;
    let is_new = |name: &str| known.iter().all(|one| one.name != name);
    let row = |one| EnvironmentRow::new(one, now, |group| groups.contains(group));
    Ok(EnvironmentsPage {
        layout: portal.layout_of(&admin.0, Nav::Administration),
        notice: None,
        error: None,
        suggestions: SUGGESTIONS.iter().filter(|one| is_new(one.name)).collect(),
        rows: known.iter().cloned().map(row).collect(),
        form: EnvironmentForm::default(),
    })
}
