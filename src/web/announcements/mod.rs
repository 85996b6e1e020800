//! Announcements over REST: everybody reads those that are active, administrators read and
//! write all. The pages are in `pages`, the strip on top of every page in `strip`, maintenance
//! has a file of its own; the rules are `announcements`'s.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod banner;
pub mod maintenance;
pub mod pages;

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Created, Error, Problem, Result},
        extract::{Admin, CurrentUser, HashedJson, Id, IdempotencyKey, Json, Query},
        paging::{Listed, Paging},
        versions::{check_version, tagged},
    },
};
use crate::{
    db::{announcements::Filter, idempotency::IdempotentRequest},
    model::{
        Announcement, AnnouncementId, Phase, Timestamp,
        announcement::{Draft, Level},
    },
};

/// An announcement by administrators to all users, or to the members of some groups.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Announcement)]
pub struct AnnouncementView {
    #[schema(value_type = String, format = "uuid")]
    id: AnnouncementId,
    level: Level,
    /// One line of plain text.
    text: String,
    #[schema(value_type = String, format = "date-time")]
    from: Timestamp,
    /// Null: it is shown until it is ended.
    #[schema(value_type = Option<String>, format = "date-time")]
    to: Option<Timestamp>,
    /// Whether it is also shown on the sign-in page.
    on_login: bool,
    /// Names of the groups whose members see it. Empty: all users.
    groups: Vec<String>,
    phase: Phase,
    /// Who changed it last: a user name, or `unix:NAME` for the command line.
    changed_by: String,
    #[schema(value_type = String, format = "date-time")]
    changed_at: Timestamp,
}

/// It changes by itself.
const VOLATILE_FIELDS: [&str; 1] = ["phase"];

impl AnnouncementView {
    fn new(one: Announcement, now: Timestamp) -> Self {
        Self {
            id: one.id,
            level: one.level,
            phase: one.window.phase(now),
            from: one.window.from,
            to: one.window.to,
            text: one.text,
            on_login: one.on_login,
            groups: one.groups,
            changed_by: one.changed_by,
            changed_at: one.changed_at,
        }
    }
}

/// `?phase=` of the list, with paging.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    /// `coming`, `active` or `past`. If omitted, administrators see all announcements.
    #[param(value_type = Option<String>)]
    phase: Option<String>,
    /// Maximum number of items to return, 1 to 500. The default is 50.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Lists announcements, newest first: active ones for you or, for administrators, all.
#[utoipa::path(get, path = "/announcements", tag = "announcements", params(ListParameters),
    responses((status = 200, body = Listed<AnnouncementView>),
        (status = 403, description = "Only administrators can see announcements that are not active", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<ListParameters>,
) -> Result<axum::Json<Listed<AnnouncementView>>> {
    let paging = Paging::new(parameters.limit, parameters.cursor);
    let limit = paging.limit()?;
    let asked = match parameters.phase.as_deref() {
        None | Some("") => None,
        Some(word) => Some(
            word.parse().map_err(|_err| Error::field("phase", "invalid_value", "Must be coming, active or past."))?,
        ),
    };
    let now = portal.clock.now();
    if user.is_admin() {
        let filter = Filter { phase: asked, now, before: paging.after()?, limit: limit + 1 };
        let found = portal.db.list_announcements(&filter).await?;
        let views = found.into_iter().map(|one| AnnouncementView::new(one, now)).collect();
        return Ok(axum::Json(Listed::new(views, limit, |view: &AnnouncementView| view.id)));
    }
    if asked.is_some_and(|asked| asked != Phase::Active) {
        return Err(Error::forbidden("Only administrators can see announcements that are not active."));
    }
    let before: Option<AnnouncementId> = paging.after()?;
    let mut found = portal.announcements.active_for(user.id());
    found.retain(|one| before.is_none_or(|before| one.id < before));
    let views = found.into_iter().map(|one| AnnouncementView::new(one, now)).collect();
    Ok(axum::Json(Listed::new(views, limit, |view: &AnnouncementView| view.id)))
}

/// A new announcement.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAnnouncement {
    #[serde(default = "usual")]
    #[schema(default = "info")]
    level: Level,
    /// One line of plain text. Addresses of http and https become links.
    #[schema(min_length = 1, max_length = 500)]
    text: String,
    /// Defaults to now.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    from: Option<Timestamp>,
    /// If omitted, it is shown until it is ended.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    to: Option<Timestamp>,
    /// Whether it is also shown on the sign-in page.
    #[serde(default)]
    on_login: bool,
    /// Names of the groups whose members see it; a name that no group has yet is accepted. Default: all users.
    #[serde(default)]
    groups: Vec<String>,
}

fn usual() -> Level {
    Level::Info
}

/// Creates an announcement to all users, or to the members of some groups.
///
/// Open pages show it immediately.
#[utoipa::path(post, path = "/announcements", tag = "announcements", request_body = NewAnnouncement,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Requests that repeat a key return the first result.")),
    responses((status = 201, body = AnnouncementView),
        (status = 403, description = "Not an administrator", body = Problem),
        (status = 422, description = "The text or the times are invalid", body = Problem)))]
pub async fn create(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: new, hash }: HashedJson<NewAnnouncement>,
) -> Result<Created<AnnouncementView>> {
    let NewAnnouncement { level, text, from, to, on_login, groups } = new;
    let once = key.as_deref().map(|key| IdempotentRequest { user: admin.id(), key, request_hash: &hash });
    let draft = Draft { level, text, from, to, on_login, groups };
    let made = portal.announcements.make(admin.user.name.as_str(), draft, once).await?;
    let address = format!("/api/v1/announcements/{}", made.id);
    Ok(Created(address, AnnouncementView::new(made, portal.clock.now())))
}

/// Returns an announcement.
#[utoipa::path(get, path = "/announcements/{id}", tag = "announcements", params(("id" = String, Path)),
    responses((status = 200, body = AnnouncementView),
        (status = 404, description = "It does not exist, or it is not active or not for you and you are \
                                      not an administrator", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
) -> Result<Response> {
    let now = portal.clock.now();
    let found = announcement(&portal, id).await?;
    if !user.is_admin() && !portal.announcements.active_for(user.id()).contains(&found) {
        return Err(Error::not_found());
    }
    Ok(tagged(&AnnouncementView::new(found, now), &VOLATILE_FIELDS))
}

/// A change of an announcement. Fields that are omitted are not changed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnnouncementChange {
    #[serde(default)]
    level: Option<Level>,
    #[serde(default)]
    #[schema(min_length = 1, max_length = 500)]
    text: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    from: Option<Timestamp>,
    /// Null: it is shown until it is ended.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    to: Nullable<Timestamp>,
    #[serde(default)]
    on_login: Option<bool>,
    #[serde(default)]
    groups: Option<Vec<String>>,
}

/// A field of a change that may be null, which is something else than not named.
#[derive(Debug, Default)]
pub enum Nullable<T> {
    #[default]
    NotNamed,
    Named(Option<T>),
}

impl<T> Nullable<T> {
    /// What was named, else what was there before.
    fn or(self, before: Option<T>) -> Option<T> {
        match self {
            Self::NotNamed => before,
            Self::Named(value) => value,
        }
    }

    fn is_named(&self) -> bool {
        matches!(self, Self::Named(_))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Named)
    }
}

/// Changes an announcement.
///
/// If the text or the level changes, users who dismissed it see it again.
#[utoipa::path(patch, path = "/announcements/{id}", tag = "announcements", params(("id" = String, Path)),
    request_body = AnnouncementChange,
    responses((status = 200, body = AnnouncementView), (status = 412, description = "Changed since the version in \
                                                                                     If-Match", body = Problem),
        (status = 422, description = "The text or the times are invalid", body = Problem)))]
pub async fn change(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
    headers: HeaderMap,
    Json(change): Json<AnnouncementChange>,
) -> Result<Response> {
    let now = portal.clock.now();
    let found = announcement(&portal, id).await?;
    check_version(&headers, &AnnouncementView::new(found.clone(), now), &VOLATILE_FIELDS)?;
    let before = Draft::from(&found);
    let draft = Draft {
        level: change.level.unwrap_or(before.level),
        text: change.text.unwrap_or(before.text),
        from: change.from.or(before.from),
        to: change.to.or(before.to),
        on_login: change.on_login.unwrap_or(before.on_login),
        groups: change.groups.unwrap_or(before.groups),
    };
    let changed = portal.announcements.change(admin.user.name.as_str(), &found, draft).await?;
    Ok(tagged(&AnnouncementView::new(changed, now), &VOLATILE_FIELDS))
}

/// Deletes an announcement.
///
/// Its entries in the audit log are kept.
#[utoipa::path(delete, path = "/announcements/{id}", tag = "announcements", params(("id" = String, Path)),
    responses((status = 204, description = "Deleted"),
        (status = 404, description = "It does not exist", body = Problem)))]
pub async fn remove(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
) -> Result<Response> {
    portal.announcements.remove(admin.user.name.as_str(), id).await?;
    Ok(NoContent.into_response())
}

/// Dismisses an active announcement for yourself.
///
/// Critical announcements cannot be dismissed.
#[utoipa::path(post, path = "/announcements/{id}/dismiss", tag = "announcements", params(("id" = String, Path)),
    responses((status = 204, description = "Dismissed"),
        (status = 404, description = "It is not active, or not for you", body = Problem),
        (status = 409, description = "It is critical", body = Problem)))]
pub async fn dismiss(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
) -> Result<Response> {
    portal.announcements.dismiss(user.id(), id).await?;
    Ok(NoContent.into_response())
}

async fn announcement(portal: &Portal, id: AnnouncementId) -> Result<Announcement> {
    portal.db.find_announcement(id).await?.ok_or_else(Error::not_found)
}
