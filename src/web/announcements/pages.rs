//! `/admin/announcements` as pages: what is active, coming and past, the form for a new one,
//! and one announcement to change. The rules are the API's.

use std::{collections::HashSet, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::announcement;
use crate::{
    auth::Principal,
    db::announcements::Filter,
    model::{
        Announcement, AnnouncementId, FieldError, Phase, Timestamp,
        announcement::{Draft, Level},
        time::{form_moment, parse_moment},
    },
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form, Id, Query},
            paging::{Listed, Paging},
        },
        offered::existing_groups,
        page::{Nav, Page},
        views::{
            self, AnnouncementForm, AnnouncementLine, AnnouncementPage, AnnouncementRow, AnnouncementsPage, Moment,
        },
    },
};

/// How many a page shows.
const PAGE_SIZE: i64 = 50;

/// The address of the list.
#[derive(Default, Deserialize)]
pub struct PageParams {
    cursor: Option<String>,
    done: Option<String>,
}

/// `/admin/announcements`
pub async fn list(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let mut view = list_view(&portal, &admin, visit.cursor).await?;
    view.notice = visit.done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "made" => "The announcement was published.",
        "changed" => "The announcement was changed.",
        "ended" => "The announcement was ended and is no longer shown.",
        "removed" => "The announcement was deleted.",
        _ => return None,
    })
}

/// `POST /admin/announcements`
pub async fn create(Admin(admin): Admin, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let typed = read(&form);
    let outcome = match draft(&typed) {
        Ok(draft) => portal.announcements.make(admin.user.name.as_str(), draft, None).await.map_err(Error::from),
        Err(faults) => Err(Error::invalid(faults)),
    };
    let error = match outcome {
        Ok(_) => return Ok(Redirect::to("/admin/announcements?done=made").into_response()),
        Err(error) if error.field_errors().is_empty() => return Err(error),
        Err(error) => error,
    };
    let mut view = list_view(&portal, &admin, None).await?;
    view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
    view.form = typed;
    Ok(error.with_page(Page(view)))
}

/// `/admin/announcements/{id}`
pub async fn show(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
) -> Result<Response> {
    let found = announcement(&portal, id).await?;
    Ok(Page(view(&portal, &admin, &found)).into_response())
}

/// `POST /admin/announcements/{id}`
pub async fn change(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
    form: Form,
) -> Result<Response> {
    let found = announcement(&portal, id).await?;
    let typed = read(&form);
    let outcome = match draft(&typed) {
        Ok(draft) => {
            let (from, to) =
                (typed_or_previous(draft.from, Some(found.window.from)), typed_or_previous(draft.to, found.window.to));
            let draft = Draft { from, to, ..draft };
            portal.announcements.change(admin.user.name.as_str(), &found, draft).await.map_err(Error::from)
        }
        Err(faults) => Err(Error::invalid(faults)),
    };
    let error = match outcome {
        Ok(_) => return Ok(Redirect::to("/admin/announcements?done=changed").into_response()),
        Err(error) if error.field_errors().is_empty() => return Err(error),
        Err(error) => error,
    };
    let mut view = view(&portal, &admin, &found);
    view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
    view.form = typed;
    Ok(error.with_page(Page(view)))
}

/// `POST /admin/announcements/{id}/end`
pub async fn end(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
) -> Result<Redirect> {
    let found = announcement(&portal, id).await?;
    portal.announcements.end(admin.user.name.as_str(), &found).await?;
    Ok(Redirect::to("/admin/announcements?done=ended"))
}

/// `POST /admin/announcements/{id}/remove`
pub async fn remove(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
) -> Result<Redirect> {
    portal.announcements.remove(admin.user.name.as_str(), id).await?;
    Ok(Redirect::to("/admin/announcements?done=removed"))
}

/// What was typed, bounded.
fn read(form: &Form) -> AnnouncementForm {
    let text = |name: &str, most: usize| form.get(name).chars().take(most).collect::<String>();
    AnnouncementForm {
        level: form.get("level").parse().unwrap_or(Level::Info),
        text: text("text", 2000),
        from: text("from", 100),
        to: text("to", 100),
        on_login: form.get("on_login") == "yes",
        groups: text("groups", 2000),
    }
}

fn draft(typed: &AnnouncementForm) -> Result<Draft, Vec<FieldError>> {
    let (from, to) = (moment("from", &typed.from), moment("to", &typed.to));
    match (from, to) {
        (Ok(from), Ok(to)) => Ok(Draft {
            level: typed.level,
            text: typed.text.clone(),
            from,
            to,
            on_login: typed.on_login,
            groups: typed.groups.split(',').map(str::to_owned).collect(),
        }),
        (from, to) => Err(from.err().into_iter().chain(to.err()).collect()),
    }
}

/// A moment of a form; nothing where nothing was typed.
pub(super) fn moment(field: &'static str, text: &str) -> Result<Option<Timestamp>, FieldError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let message = "Enter a date and time in UTC, as in 2030-01-31T18:00.";
    parse_moment(text).map(Some).ok_or_else(|| FieldError::new(field, "invalid_value", message))
}

/// A form has minutes: what was not touched keeps its seconds.
pub(super) fn typed_or_previous(typed: Option<Timestamp>, was: Option<Timestamp>) -> Option<Timestamp> {
    if typed.map(form_moment) == was.map(form_moment) { was } else { typed }
}

async fn list_view(portal: &Portal, admin: &Arc<Principal>, cursor: Option<String>) -> Result<AnnouncementsPage> {
    let now = portal.clock.now();
    let paged = cursor.as_ref().is_some_and(|cursor| !cursor.is_empty());
    let paging = Paging::new(Some(PAGE_SIZE), cursor.filter(|cursor| !cursor.is_empty()));
    let filter = Filter { phase: None, now, before: paging.after()?, limit: PAGE_SIZE + 1 };
    let found = portal.db.list_announcements(&filter).await?;
    let page = Listed::new(found, PAGE_SIZE, |one: &Announcement| one.id);
    let existing = existing_groups(portal, page.items.iter().flat_map(|one| &one.groups)).await?;
    let of = |phase: Phase| {
        let these = page.items.iter().filter(move |one| one.window.phase(now) == phase);
        these.map(|one| row(one, &existing, now)).collect()
    };
    Ok(AnnouncementsPage {
        layout: portal.layout_of(admin, Nav::Administration),
        notice: None,
        errors: Vec::new(),
        active: of(Phase::Active),
        coming: of(Phase::Coming),
        past: of(Phase::Past),
        first_href: paged.then(|| "/admin/announcements".to_owned()),
        next_href: page.next_cursor.as_ref().map(|cursor| format!("/admin/announcements?cursor={cursor}")),
        form: AnnouncementForm::default(),
    })
}

fn row(one: &Announcement, existing: &HashSet<String>, now: Timestamp) -> AnnouncementRow {
    AnnouncementRow {
        id: one.id.to_string(),
        sentence: AnnouncementLine::of_announcement(one, false).sentence,
        level: one.level,
        from: Moment::clock(one.window.from, now),
        to: one.window.to.map(|to| Moment::clock(to, now)),
        on_login: one.on_login,
        groups: one.groups.iter().map(|group| (group.clone(), existing.contains(group))).collect(),
        changed_by: one.changed_by.clone(),
    }
}

fn view(portal: &Portal, admin: &Arc<Principal>, found: &Announcement) -> AnnouncementPage {
    let now = portal.clock.now();
    AnnouncementPage {
        layout: portal.layout_of(admin, Nav::Administration),
        id: found.id.to_string(),
        errors: Vec::new(),
        phase: found.window.phase(now),
        form: AnnouncementForm {
            level: found.level,
            text: found.text.clone(),
            from: form_moment(found.window.from),
            to: found.window.to.map(form_moment).unwrap_or_default(),
            on_login: found.on_login,
            groups: found.groups.join(", "),
        },
    }
}
