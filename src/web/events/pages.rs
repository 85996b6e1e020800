//! `/admin/webhooks`: the addresses that the portal calls for events, with the form that adds one, and for each its
//! progress, a test, and the form that changes it.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    events::WebhookRequest,
    model::WebhookId,
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form, Id, Query},
            routes::Pages,
        },
        page::{Nav, Page},
        views::{self, WebhookForm, WebhookRow, WebhooksPage},
    },
};

/// Adds the routes of the page.
pub fn routes(pages: Pages) -> Pages {
    pages
        .get("/admin/webhooks", list)
        .post("/admin/webhooks", add)
        .post("/admin/webhooks/{id}", change)
        .post("/admin/webhooks/{id}/remove", remove)
        .post("/admin/webhooks/{id}/test", try_out)
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
        "added" => "The webhook was added. It gets events from now on.",
        "changed" => "The webhook was changed.",
        "removed" => "The webhook was removed.",
        "tested" => "The test event arrived.",
        _ => return None,
    })
}

async fn add(admin: Admin, State(portal): State<Arc<Portal>>, fields: Form) -> Result<Response> {
    let typed = typed(None, &fields);
    match portal.events.add_webhook(asked(&typed), portal.changed_by(&admin)).await.map_err(Error::from) {
        Ok(_) => Ok(Redirect::to("/admin/webhooks?done=added").into_response()),
        Err(error) => refused(&portal, &admin, Some(typed), error).await,
    }
}

async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<WebhookId>,
    fields: Form,
) -> Result<Response> {
    let typed = typed(Some(id), &fields);
    match portal.events.change_webhook(id, asked(&typed), portal.changed_by(&admin)).await.map_err(Error::from) {
        Ok(_) => Ok(Redirect::to("/admin/webhooks?done=changed").into_response()),
        Err(error) => refused(&portal, &admin, Some(typed), error).await,
    }
}

async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Id(id): Id<WebhookId>) -> Result<Response> {
    match portal.events.remove_webhook(id, portal.changed_by(&admin)).await.map_err(Error::from) {
        Ok(()) => Ok(Redirect::to("/admin/webhooks?done=removed").into_response()),
        Err(error) => refused(&portal, &admin, None, error).await,
    }
}

async fn try_out(admin: Admin, State(portal): State<Arc<Portal>>, Id(id): Id<WebhookId>) -> Result<Response> {
    match portal.events.try_webhook(id, admin.0.user.name.as_str()).await? {
        None => Ok(Redirect::to("/admin/webhooks?done=tested").into_response()),
        Some(why) => {
            let error = Error::conflict(format!("The test event did not arrive. {why}"));
            refused(&portal, &admin, None, error).await
        }
    }
}

fn typed(id: Option<WebhookId>, fields: &Form) -> WebhookForm {
    let text = |name: &str, limit: usize| fields.get(name).chars().take(limit).collect::<String>();
    WebhookForm {
        id: id.map(|id| id.to_string()).unwrap_or_default(),
        url: text("url", 4000),
        types: text("types", 4000),
        active: id.is_none() || fields.get("active") == "on",
        errors: Vec::new(),
    }
}

/// Types are separated by spaces, commas or lines.
fn asked(typed: &WebhookForm) -> WebhookRequest {
    let patterns = typed.types.split([' ', ',', '\n', '\r', '\t']).map(str::to_owned);
    WebhookRequest { url: typed.url.clone(), types: patterns.collect(), active: typed.active }
}

/// The page once more, with what was typed and why it was refused.
async fn refused(portal: &Portal, admin: &Admin, form: Option<WebhookForm>, error: Error) -> Result<Response> {
    if !error.is_for_the_form() {
        return Err(error);
    }
    let mut view = view(portal, admin).await?;
    let errors: Vec<_> = error.field_errors().iter().map(views::FieldError::from).collect();
    if errors.is_empty() {
        view.error = Some(error.detail().to_owned());
    }
    if let Some(form) = form {
        let row = view.rows.iter_mut().find(|row| row.form.id == form.id);
        *row.map_or(&mut view.form, |row| &mut row.form) = WebhookForm { errors, ..form };
    }
    Ok(error.with_page(Page(view)))
}

async fn view(portal: &Portal, admin: &Admin) -> Result<WebhooksPage> {
    let now = portal.clock.now();
    let hooks = portal.events.webhooks().await?.into_iter();
    Ok(WebhooksPage {
        layout: portal.layout_of(&admin.0, Nav::Administration),
        notice: None,
        error: None,
        hosts: portal.events.hosts().to_vec(),
        rows: hooks.map(|hook| WebhookRow::new(portal.events.secret(&hook), hook, now)).collect(),
        form: WebhookForm { active: true, ..WebhookForm::default() },
    })
}
