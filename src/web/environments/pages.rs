//! `/admin/environments`: all software environments with their progress, the form that adds one, and the forms that change
//! and remove added ones. The rules are in `services::environments`.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::by;
use crate::{
    environments::{NewEnvironment, SUGGESTIONS},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form, Query},
        },
        page::{Nav, Page},
        views::{self, EnvironmentForm, EnvironmentRow, EnvironmentsPage},
    },
};

/// The address of the page.
#[derive(Default, Deserialize)]
pub struct PageParams {
    done: Option<String>,
}

/// `/admin/environments`
pub async fn list(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let mut view = view(&portal, &admin);
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

/// `POST /admin/environments`
pub async fn add(admin: Admin, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let typed = typed(form.get("name"), &form);
    let outcome = portal.sessions.environments.add(&portal.db, asked(&typed), by(&portal, &admin)).await;
    match outcome.map_err(Error::from) {
        Ok(_) => Ok(Redirect::to("/admin/environments?done=added").into_response()),
        Err(error) => refused(&portal, &admin, typed, error),
    }
}

/// `POST /admin/environments/{name}`
pub async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response> {
    let mut typed = typed(&name, &form);
    typed.changes = true;
    let outcome = portal.sessions.environments.change_added(&portal.db, asked(&typed), by(&portal, &admin)).await;
    match outcome.map_err(Error::from) {
        Ok(_) => Ok(Redirect::to("/admin/environments?done=changed").into_response()),
        Err(error) => refused(&portal, &admin, typed, error),
    }
}

/// `POST /admin/environments/{name}/remove`
pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    match portal.sessions.environments.remove(&portal.db, &name, by(&portal, &admin)).await.map_err(Error::from) {
        Ok(()) => Ok(Redirect::to("/admin/environments?done=removed").into_response()),
        Err(error) => refused(&portal, &admin, EnvironmentForm::default(), error),
    }
}

/// `POST /admin/environments/{name}/retry`
pub async fn retry(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    match portal.sessions.environments.retry_failed(&name).map_err(Error::from) {
        Ok(()) => Ok(Redirect::to("/admin/environments?done=retried").into_response()),
        Err(error) => refused(&portal, &admin, EnvironmentForm::default(), error),
    }
}

fn typed(name: &str, form: &Form) -> EnvironmentForm {
    let text = |name: &str, limit: usize| form.get(name).chars().take(limit).collect::<String>();
    EnvironmentForm {
        name: name.trim().chars().take(100).collect(),
        title: text("title", 200),
        packages: text("packages", 64 << 10),
        changes: false,
    }
}

/// Reads one package per line. Text behind `#` is a comment, as in a requirements file.
fn asked(typed: &EnvironmentForm) -> NewEnvironment {
    let lines = typed.packages.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let packages = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    NewEnvironment { name: typed.name.clone(), title: typed.title.clone(), packages }
}

/// The page once more, with what was typed and why it was refused.
fn refused(portal: &Portal, admin: &Admin, typed: EnvironmentForm, error: Error) -> Result<Response> {
    if !error.is_for_the_form() {
        return Err(error);
    }
    let mut view = view(portal, admin);
    view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
    if view.errors.is_empty() {
        view.error = Some(error.detail().to_owned());
    }
    view.form = typed;
    Ok(error.with_page(Page(view)))
}

fn view(portal: &Portal, admin: &Admin) -> EnvironmentsPage {
    let (now, known) = (portal.clock.now(), portal.sessions.environments.list());
    let is_new = |name: &str| known.iter().all(|one| one.name != name);
    EnvironmentsPage {
        layout: portal.layout_of(&admin.0, Nav::Administration),
        notice: None,
        error: None,
        errors: Vec::new(),
        suggestions: SUGGESTIONS.iter().filter(|one| is_new(one.name)).collect(),
        rows: known.into_iter().map(|one| EnvironmentRow::new(one, now)).collect(),
        form: EnvironmentForm::default(),
    }
}
