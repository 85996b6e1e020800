//! The pages of limits: the defaults, one person's, a group's and the cluster's, each a form
//! that is looked at before it is saved. Two administrators at once: the second gets the form
//! again, with both versions and with all that they typed. Some people at once are
//! `selection`'s, the table of people `table`'s.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{
    draw::{LimitSubject, Reader, load_limits, page, preview},
    find, find_group, foretold,
    form::FormRequest,
    may_change_group, save, writable,
};
use crate::{
    db::limits::{Author, LevelChange, Outcome, objection},
    model::FieldError,
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form, GroupReader, Operator, Query},
        },
        page::Page,
    },
};

/// What a form did, after the redirect.
#[derive(Default, Deserialize)]
pub struct PageParams {
    done: Option<String>,
}

impl PageParams {
    fn notice(&self) -> Option<String> {
        let notice = match self.done.as_deref()? {
            "saved" => "Saved. The new limits apply from now on. Nothing was stopped.",
            "nothing" => "Nothing was changed.",
            _ => return None,
        };
        Some(notice.to_owned())
    }
}

pub async fn user(
    Operator(reader): Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let whose = LimitSubject::User(Box::new(find(&portal, &name).await?));
    let reader = Reader { principal: &reader, headers: &headers, may_change: reader.is_admin() };
    show(&portal, &reader, &whose, &visit).await
}

pub async fn change_user(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let whose = LimitSubject::User(Box::new(find(&portal, &name).await?));
    change(&portal, &Reader { principal: &admin, headers: &headers, may_change: true }, &whose, &form).await
}

pub async fn group(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let group = find_group(&portal, &reader, &name).await?;
    let may_change = may_change_group(&portal, &reader, &group).await?;
    let reader = Reader { principal: &reader, headers: &headers, may_change };
    show(&portal, &reader, &LimitSubject::Group(group), &visit).await
}

pub async fn change_group(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let group = find_group(&portal, &reader, &name).await?;
    if !may_change_group(&portal, &reader, &group).await? {
        return Err(Error::forbidden("Only administrators and managers of the group can do this."));
    }
    let reader = Reader { principal: &reader, headers: &headers, may_change: true };
    change(&portal, &reader, &LimitSubject::Group(group), &form).await
}

pub async fn defaults(
    Operator(reader): Operator,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let reader = Reader { principal: &reader, headers: &headers, may_change: reader.is_admin() };
    show(&portal, &reader, &LimitSubject::Default, &visit).await
}

pub async fn change_defaults(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    change(&portal, &Reader { principal: &admin, headers: &headers, may_change: true }, &LimitSubject::Default, &form)
        .await
}

pub async fn cluster(
    Operator(reader): Operator,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let reader = Reader { principal: &reader, headers: &headers, may_change: reader.is_admin() };
    show(&portal, &reader, &LimitSubject::Cluster, &visit).await
}

pub async fn change_cluster(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    change(&portal, &Reader { principal: &admin, headers: &headers, may_change: true }, &LimitSubject::Cluster, &form)
        .await
}

async fn show(portal: &Portal, reader: &Reader<'_>, whose: &LimitSubject, visit: &PageParams) -> Result<Response> {
    let standing = load_limits(portal, whose, reader).await?;
    let mut page = page(portal, reader, whose, &standing, &standing.sheet, &[]).await?;
    page.notice = visit.notice();
    Ok(Page(page).into_response())
}

/// Looks at what was sent, or saves it, or gives it back to be changed.
async fn change(portal: &Portal, reader: &Reader<'_>, whose: &LimitSubject, form: &Form) -> Result<Response> {
    writable(portal)?;
    let now = portal.clock.now();
    let standing = load_limits(portal, whose, reader).await?;
    let sheet = standing.sheet.posted(form);
    if form.get("step") == "edit" {
        return Ok(Page(page(portal, reader, whose, &standing, &sheet, &[]).await?).into_response());
    }
    let again = async |faults: Vec<FieldError>| {
        let page = page(portal, reader, whose, &standing, &sheet, &faults).await?;
        Ok(Error::invalid(faults).with_page(Page(page)))
    };
    let FormRequest { changes, marks } = match sheet.asked(now) {
        Ok(asked) if asked.is_empty() => return Ok(back(whose, "nothing")),
        Ok(asked) => asked,
        Err(faults) => return again(faults).await,
    };
    let seen = Some(sheet.version.as_str().into());
    let change = LevelChange { level: whose.level(), changes, marks, seen };
    let outcome = if form.get("step") == "save" {
        save(portal, reader.principal, std::slice::from_ref(&change)).await?
    } else {
        let name = reader.principal.user.name.as_str();
        let author = Author { name, at: now, is_manager: !reader.principal.is_admin() };
        let Some(objection) = objection(&change, &author, &standing.set, whose.group()) else {
            let told = foretold(portal, reader.principal, &[change.by(&author)]).await?;
            let page = preview(portal, reader.principal, whose, &standing, &sheet, &change, told);
            return Ok(Page(page).into_response());
        };
        objection
    };
    match outcome {
        Outcome::Done => Ok(back(whose, "saved")),
        Outcome::Refused(faults) => again(faults).await,
        Outcome::Gone(_) => Err(Error::not_found()),
        Outcome::Stale(_) => {
            let stored = load_limits(portal, whose, reader).await?;
            let both = sheet.upon(&stored.sheet);
            let mut page = page(portal, reader, whose, &stored, &both, &[]).await?;
            page.stale = Some(Vec::new());
            Ok(Error::stale().with_page(Page(page)))
        }
    }
}

fn back(whose: &LimitSubject, done: &str) -> Response {
    Redirect::to(&format!("{}?done={done}", whose.address())).into_response()
}
