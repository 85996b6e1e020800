//! `/groups` over REST: administrators keep groups, operators see them, and whoever manages one
//! sees it, its people and what they run. The rules are `auth::groups`'s.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{cursor::GroupCursor, named};
use crate::{
    auth::Principal,
    db::groups::{Audience, GroupFilter, ListedGroup, Member},
    model::{JobId, Resources, Session, SessionState, Timestamp, User},
    web::{
        Portal,
        http::{
            error::{Created, Error, Problem, Result},
            extract::{Admin, CurrentUser, GroupReader, HashedJson, IdempotencyKey, Json, Query},
            paging::{Listed, Paging},
            versions::{check_version, tagged},
        },
    },
};

/// How many live sessions of a group are shown, the newest ones.
pub(super) const MAX_SESSIONS: i64 = 500;

/// A group of users.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Group)]
pub struct GroupView {
    #[schema(format = "uuid")]
    id: String,
    name: String,
    /// `local`: created in the portal. `ldap`: from the directory; its members can only be changed there.
    source: String,
    /// The id of the group in the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The number of members.
    members: i64,
    /// The names of the managers.
    managers: Vec<String>,
    #[schema(value_type = Option<String>, format = "date-time")]
    created_at: Option<Timestamp>,
    /// The time since when the directory no longer has the group, if limits or managers are set for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    absent_since: Option<Timestamp>,
}

impl From<ListedGroup> for GroupView {
    fn from(listed: ListedGroup) -> Self {
        let ListedGroup { group, members, managers } = listed;
        Self {
            id: group.id.to_string(),
            subject: (!group.is_local()).then_some(group.subject),
            name: group.name,
            source: group.source,
            members,
            managers,
            created_at: group.created_at,
            absent_since: group.absent_since,
        }
    }
}

/// A member of a group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Member)]
pub struct MemberView {
    name: String,
    display_name: String,
    /// `active`, `disabled`, `expired` or `absent`.
    state: &'static str,
    /// The number of sessions that have not ended.
    sessions: i64,
    #[schema(value_type = Option<String>, format = "date-time")]
    last_seen_at: Option<Timestamp>,
}

/// A workload of a member, with its resources and without its contents.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GroupSession)]
pub struct GroupSessionView {
    #[schema(format = "uuid")]
    id: String,
    owner: String,
    app: String,
    /// The job, if this is an attempt of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    job: Option<JobId>,
    state: SessionState,
    resources: Resources,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
}

impl From<Session> for GroupSessionView {
    fn from(session: Session) -> Self {
        Self {
            id: session.id.to_string(),
            owner: session.owner_name,
            app: session.app,
            job: session.job.map(|attempt| attempt.job),
            state: session.state,
            resources: session.spec.resources,
            created_at: session.created_at,
        }
    }
}

/// `?find=` of the list, with paging.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    /// Part of the name.
    find: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

impl ListParameters {
    pub(super) fn new(find: String, cursor: Option<String>) -> Self {
        Self { find: Some(find), limit: None, cursor }
    }

    /// What to ask the database for this reader, and the number of groups that a page has.
    pub(super) fn filter(self, reader: &Principal) -> Result<(GroupFilter, i64)> {
        let paging = Paging::new(self.limit, self.cursor.filter(|cursor| !cursor.is_empty()));
        let limit = paging.limit()?;
        let after = paging.after::<GroupCursor>()?.map(|place| (place.0, place.1));
        let find = self.find.unwrap_or_default().trim().chars().take(200).collect();
        let manager = (!reader.is_operator()).then(|| reader.id());
        Ok((GroupFilter { find, manager, after, limit: limit + 1 }, limit))
    }
}

/// Lists the groups that you can see, by name.
///
/// Administrators and operators see all groups, managers those that they manage.
#[utoipa::path(get, path = "/groups", tag = "groups", params(ListParameters),
    responses((status = 200, body = Listed<GroupView>),
        (status = 403, description = "Not an administrator, an operator or a manager of a \
                                                                                      group", body = Problem)))]
pub async fn list(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<ListParameters>,
) -> Result<axum::Json<Listed<GroupView>>> {
    let (filter, limit) = parameters.filter(&reader.0)?;
    let page = page(&portal, &filter, limit).await?;
    let items = page.items.into_iter().map(GroupView::from).collect();
    Ok(axum::Json(Listed { items, next_cursor: page.next_cursor }))
}

pub(super) async fn page(portal: &Portal, filter: &GroupFilter, limit: i64) -> Result<Listed<ListedGroup>> {
    let found = portal.db.list_groups(filter).await?;
    Ok(Listed::new(found, limit, |listed: &ListedGroup| GroupCursor(listed.group.name.clone(), listed.group.id)))
}

/// The name of a local group.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// `[a-z0-9_][a-z0-9_.-]{0,63}`
    #[schema(min_length = 1, max_length = 64)]
    name: String,
}

/// Creates a local group.
#[utoipa::path(post, path = "/groups", tag = "groups", request_body = GroupRequest,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Requests that repeat a key return the first result.")),
    responses((status = 201, body = GroupView), (status = 403, description = "Not an administrator", body = Problem),
        (status = 422, description = "The name is invalid or already in use", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: request, hash }: HashedJson<GroupRequest>,
) -> Result<Created<GroupView>> {
    let key = key.as_deref().map(|key| (key, hash.as_str()));
    let id = portal.access.make_group(&admin.0, &request.name, key).await?;
    let made = group(&portal, &admin.0, &id.to_string()).await?;
    Ok(Created(format!("/api/v1/groups/{id}"), made.into()))
}

/// Returns one group, by its id or name.
#[utoipa::path(get, path = "/groups/{group}", tag = "groups",
    params(("group" = String, Path, description = "Id or name")),
    responses((status = 200, body = GroupView),
        (status = 404, description = "Not found, or not managed by you", body = Problem),
        (status = 409, description = "Several groups have this name", body = Problem)))]
pub async fn find(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Response> {
    Ok(tagged(&GroupView::from(group(&portal, &reader.0, &name).await?), &[]))
}

/// Renames a local group.
#[utoipa::path(patch, path = "/groups/{group}", tag = "groups",
    params(("group" = String, Path)), request_body = GroupRequest,
    responses((status = 200, body = GroupView),
        (status = 409, description = "The group belongs to the directory", body = Problem),
        (status = 412, description = "Changed since the version in If-Match", body = Problem)))]
pub async fn rename(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(request): Json<GroupRequest>,
) -> Result<Response> {
    let found = group(&portal, &admin.0, &name).await?;
    let (id, here) = (found.group.id.to_string(), found.group.clone());
    check_version(&headers, &GroupView::from(found), &[])?;
    portal.access.rename_group(&admin.0, &here, &request.name).await?;
    Ok(tagged(&GroupView::from(group(&portal, &admin.0, &id).await?), &[]))
}

/// Deletes a local group, or a group that the directory no longer has.
///
/// The members keep their accounts.
#[utoipa::path(delete, path = "/groups/{group}", tag = "groups", params(("group" = String, Path)),
    responses((status = 204, description = "Removed"),
        (status = 409, description = "The group belongs to the directory", body = Problem)))]
pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let found = group(&portal, &admin.0, &name).await?;
    portal.access.remove_group(&admin.0, &found.group).await?;
    Ok(NoContent.into_response())
}

/// Lists the members of a group, by name.
#[utoipa::path(get, path = "/groups/{group}/members", tag = "groups", params(("group" = String, Path), Paging),
    responses((status = 200, body = Listed<MemberView>)))]
pub async fn members(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Listed<MemberView>>> {
    let found = group(&portal, &reader.0, &name).await?;
    let limit = paging.limit()?;
    let after = paging.after::<String>()?.filter(|name| !name.contains('\0'));
    let people = portal.db.group_members(found.group.id, after.as_deref(), limit + 1).await?;
    let live = portal.db.live_by_owner().await?;
    let items = people
        .into_iter()
        .map(|member| {
            let is_shown = shows(&reader.0, &member);
            MemberView {
                name: member.name.to_string(),
                display_name: member.display_name,
                state: member.state.as_str(),
                sessions: if is_shown { live.get(&member.id).copied().unwrap_or_default() } else { 0 },
                last_seen_at: member.last_seen_at.filter(|_| is_shown),
            }
        })
        .collect();
    Ok(axum::Json(Listed::new(items, limit, |member: &MemberView| member.name.clone())))
}

/// Adds a user to a local group.
///
/// Only administrators can do this; managers send invitations. Succeeds if the user is already a member.
#[utoipa::path(put, path = "/groups/{group}/members/{name}", tag = "groups",
    params(("group" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "The user is a member"),
        (status = 403, description = "Not an administrator. Managers send invitations", body = Problem),
        (status = 404, description = "The group or the user was not found", body = Problem),
        (status = 409, description = "The group belongs to the directory", body = Problem)))]
pub async fn add_member(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Path((name, user)): Path<(String, String)>,
) -> Result<Response> {
    let found = group(&portal, &reader.0, &name).await?;
    portal.access.may_add_members(&reader.0)?;
    let user = somebody(&portal, &user).await?;
    portal.access.add_member(&reader.0, &found.group, &user).await?;
    Ok(NoContent.into_response())
}

/// Removes a member from a local group.
///
/// Administrators, managers of the group and the member can do this. Succeeds if the user is not a member.
#[utoipa::path(delete, path = "/groups/{group}/members/{name}", tag = "groups",
    params(("group" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "The user is not a member"),
        (status = 409, description = "The group belongs to the directory", body = Problem)))]
pub async fn remove_member(
    actor: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path((name, user)): Path<(String, String)>,
) -> Result<Response> {
    if user == actor.user.name.as_str() {
        if portal.access.leave_group(&actor, &name).await? {
            return Ok(NoContent.into_response());
        }
        if !actor.is_operator() && actor.user.manages.is_empty() {
            return Err(Error::not_found_because("You are not a member of this group."));
        }
    }
    let reader = GroupReader::of(actor)?;
    let found = group(&portal, &reader.0, &name).await?;
    let user = somebody(&portal, &user).await?;
    portal.access.remove_member(&reader.0, &found.group, &user).await?;
    Ok(NoContent.into_response())
}

/// Whether this reader sees what a member does: a manager sees nothing of operators and administrators.
pub(super) fn shows(reader: &Principal, member: &Member) -> bool {
    reader.is_operator() || !member.is_staff
}

/// As whom somebody looks at a group.
pub(super) fn audience(reader: &Principal) -> Audience {
    if reader.is_operator() { Audience::Staff } else { Audience::Managers }
}

/// Makes a user a manager of a group, local or from the directory.
///
/// Succeeds if the user already is a manager.
#[utoipa::path(put, path = "/groups/{group}/managers/{name}", tag = "groups",
    params(("group" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "The user is a manager"),
        (status = 403, description = "Not an administrator", body = Problem)))]
pub async fn add_manager(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(path): Path<(String, String)>,
) -> Result<Response> {
    set_manager(&portal, &admin.0, &path, true).await
}

/// Removes a manager of a group.
///
/// Succeeds if the user is not a manager.
#[utoipa::path(delete, path = "/groups/{group}/managers/{name}", tag = "groups",
    params(("group" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "The user is not a manager"),
        (status = 403, description = "Not an administrator", body = Problem)))]
pub async fn remove_manager(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(path): Path<(String, String)>,
) -> Result<Response> {
    set_manager(&portal, &admin.0, &path, false).await
}

async fn set_manager(
    portal: &Portal,
    actor: &Principal,
    (name, user): &(String, String),
    is: bool,
) -> Result<Response> {
    let found = group(portal, actor, name).await?;
    let user = somebody(portal, user).await?;
    portal.access.set_manager(actor, &found.group, &user, is).await?;
    Ok(NoContent.into_response())
}

/// Lists the running and queued workloads of the members of a group: the newest 500.
///
/// Managers do not see workloads of operators and administrators.
#[utoipa::path(get, path = "/groups/{group}/sessions", tag = "groups", params(("group" = String, Path)),
    responses((status = 200, body = Listed<GroupSessionView>)))]
pub async fn sessions(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<axum::Json<Listed<GroupSessionView>>> {
    let found = group(&portal, &reader.0, &name).await?;
    let sessions = portal.db.group_sessions(found.group.id, audience(&reader.0), MAX_SESSIONS).await?;
    Ok(axum::Json(Listed { items: sessions.into_iter().map(GroupSessionView::from).collect(), next_cursor: None }))
}

/// A group that this person may see.
pub(super) async fn group(portal: &Portal, reader: &Principal, id_or_name: &str) -> Result<ListedGroup> {
    portal.access.group_for(reader, id_or_name).await?.ok_or_else(Error::not_found)
}

async fn somebody(portal: &Portal, name: &str) -> Result<User> {
    named(portal, name).await.map_err(|error| match error.kind() {
        crate::web::http::error::Kind::NotFound => Error::not_found_because("There is no user with this name."),
        _ => error,
    })
}
