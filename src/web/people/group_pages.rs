//! `/admin/groups` as pages: the groups that somebody may see, and one group with its people,
//! its managers and what they run. The rules are `auth::groups`'s, as the API's.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    groups::{ListParameters, MAX_SESSIONS, audience, group, page, shows},
    named,
    navigation::{self, done, refusal, typed},
};
use crate::{
    auth::Principal,
    db::groups::{ListedGroup, Member},
    model::{Session, size::human_size},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form, GroupReader, Query},
            paging::{Listed, Paging},
        },
        page::{Nav, Page},
        views::{
            self, FieldError, GroupPage, GroupRow, GroupSessionRow, GroupsPage, InvitationRow, MemberRow, Moment,
            resources_line, session_badge, source_word,
        },
    },
};

/// How many people a group's page shows at once.
const MEMBERS: i64 = 100;

/// How many live sessions a group's page lists.
const MAX_SESSIONS_SHOWN: usize = 50;

/// The address of the list.
#[derive(Default, Deserialize)]
pub struct ListPageParams {
    find: Option<String>,
    cursor: Option<String>,
    done: Option<String>,
}

/// `/admin/groups`
pub async fn list(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<ListPageParams>,
) -> Result<Response> {
    let done = visit.done.clone();
    let mut view = list_view(&portal, &reader, visit).await?;
    view.notice = done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

/// `POST /admin/groups`: makes a group here.
pub async fn create(admin: Admin, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let error = match portal.access.make_group(&admin.0, form.get("name"), None).await.map_err(Error::from) {
        Ok(id) => return Ok(done(&format!("/admin/groups/{id}"), "added")),
        Err(error) if error.field_errors().is_empty() => return Err(error),
        Err(error) => error,
    };
    let mut view = list_view(&portal, &admin.0, ListPageParams::default()).await?;
    view.errors = error.field_errors().iter().map(FieldError::from).collect();
    view.new_name = typed(form.get("name"));
    Ok(error.with_page(Page(view)))
}

async fn list_view(portal: &Portal, reader: &Arc<Principal>, visit: ListPageParams) -> Result<GroupsPage> {
    let find = typed(&visit.find.unwrap_or_default());
    let paged = visit.cursor.as_ref().is_some_and(|cursor| !cursor.is_empty());
    let parameters = ListParameters::new(find.clone(), visit.cursor);
    let (filter, limit) = parameters.filter(reader)?;
    let page = page(portal, &filter, limit).await?;
    let address = |cursor: &str| navigation::address("/admin/groups", &[("find", find.as_str()), ("cursor", cursor)]);
    Ok(GroupsPage {
        layout: portal.layout_of(reader, Nav::Administration),
        notice: None,
        errors: Vec::new(),
        first_href: paged.then(|| address("")),
        next_href: page.next_cursor.as_deref().map(address),
        rows: page.items.into_iter().map(row).collect(),
        may_change: reader.is_admin(),
        new_name: String::new(),
        find,
    })
}

fn row(listed: ListedGroup) -> GroupRow {
    GroupRow {
        id: listed.group.id.to_string(),
        source: source_word(&listed.group.source),
        name: listed.group.name,
        members: listed.members,
        managers: listed.managers,
    }
}

fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "added" => "Group created. Add or invite users below.",
        "renamed" => "Group renamed.",
        "removed" => "Group removed. Its members keep their accounts.",
        "invited" => "Invitation sent. The user joins the group by accepting it.",
        "withdrawn" => "Invitation withdrawn.",
        "member-added" => "Member added.",
        "member-removed" => "Member removed.",
        "manager-added" => "Manager added.",
        "manager-removed" => "Manager removed.",
        _ => return None,
    })
}

/// The address of one group's page.
#[derive(Default, Deserialize)]
pub struct PageParams {
    cursor: Option<String>,
    done: Option<String>,
}

/// `/admin/groups/{group}`, by id or name.
pub async fn show(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let found = group(&portal, &reader, &name).await?;
    let done = visit.done.clone();
    let mut view = view(&portal, &reader, found, visit.cursor).await?;
    view.notice = done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

pub async fn rename(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response> {
    let found = group(&portal, &admin.0, &name).await?;
    let outcome = portal.access.rename_group(&admin.0, &found.group, form.get("name")).await;
    answer(&portal, &admin.0, found, outcome, "renamed", form.get("name")).await
}

pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let found = group(&portal, &admin.0, &name).await?;
    match portal.access.remove_group(&admin.0, &found.group).await {
        Ok(()) => Ok(done("/admin/groups", "removed")),
        err => answer(&portal, &admin.0, found, err, "removed", "").await,
    }
}

pub async fn add_member(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response> {
    let found = group(&portal, &reader, &name).await?;
    let typed = form.get("name").trim();
    portal.access.may_add_members(&reader)?;
    let Ok(user) = named(&portal, typed).await else { return nobody(&portal, &reader, found, typed).await };
    let outcome = portal.access.add_member(&reader, &found.group, &user).await;
    answer(&portal, &reader, found, outcome, "member-added", typed).await
}

pub async fn remove_member(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path((name, user)): Path<(String, String)>,
) -> Result<Response> {
    let found = group(&portal, &reader, &name).await?;
    let user = named(&portal, &user).await?;
    let outcome = portal.access.remove_member(&reader, &found.group, &user).await;
    answer(&portal, &reader, found, outcome, "member-removed", "").await
}

pub async fn add_manager(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response> {
    let found = group(&portal, &admin.0, &name).await?;
    let typed = form.get("name").trim();
    let Ok(user) = named(&portal, typed).await else { return nobody(&portal, &admin.0, found, typed).await };
    let outcome = portal.access.set_manager(&admin.0, &found.group, &user, true).await;
    answer(&portal, &admin.0, found, outcome, "manager-added", typed).await
}

pub async fn remove_manager(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path((name, user)): Path<(String, String)>,
) -> Result<Response> {
    let found = group(&portal, &admin.0, &name).await?;
    let user = named(&portal, &user).await?;
    let outcome = portal.access.set_manager(&admin.0, &found.group, &user, false).await;
    answer(&portal, &admin.0, found, outcome, "manager-removed", "").await
}

async fn nobody(portal: &Portal, reader: &Arc<Principal>, found: ListedGroup, typed: &str) -> Result<Response> {
    let error = Error::field("name", "unknown_user", "There is no user with this name.");
    again(portal, reader, found, error, typed).await
}

/// Back to the group's page, or the page once more with why it could not be.
pub(super) async fn answer(
    portal: &Portal,
    reader: &Arc<Principal>,
    found: ListedGroup,
    outcome: crate::auth::Result<()>,
    what: &str,
    name: &str,
) -> Result<Response> {
    match outcome {
        Ok(()) => Ok(done(&format!("/admin/groups/{}", found.group.id), what)),
        Err(err) => again(portal, reader, found, err.into(), name).await,
    }
}

async fn again(
    portal: &Portal,
    reader: &Arc<Principal>,
    found: ListedGroup,
    error: Error,
    name: &str,
) -> Result<Response> {
    let (error, why) = refusal(error)?;
    let mut view = view(portal, reader, found, None).await?;
    view.error = Some(why);
    view.typed = typed(name);
    Ok(error.with_page(Page(view)))
}

async fn view(
    portal: &Portal,
    reader: &Arc<Principal>,
    found: ListedGroup,
    cursor: Option<String>,
) -> Result<GroupPage> {
    let now = portal.clock.now();
    let ListedGroup { group, members: member_count, managers } = found;
    let cursor = cursor.filter(|cursor| !cursor.is_empty());
    let after = Paging::new(None, cursor.clone()).after::<String>()?.filter(|name| !name.contains('\0'));
    let people = portal.db.group_members(group.id, after.as_deref(), MEMBERS + 1).await?;
    let people = Listed::new(people, MEMBERS, |member: &Member| member.name.clone());
    let live = portal.db.live_by_owner().await?;
    let sessions = portal.db.group_sessions(group.id, audience(reader), MAX_SESSIONS).await?;
    let pending = portal.access.invitations_into(group.id).await?;
    let page = format!("/admin/groups/{}", group.id);
    let may_change_members =
        group.is_local() && (reader.is_admin() || managers.iter().any(|name| name == reader.user.name.as_str()));
    Ok(GroupPage {
        layout: portal.layout_of(reader, Nav::Administration),
        notice: None,
        error: None,
        id: group.id.to_string(),
        source: source_word(&group.source),
        gone: group.absent_since.map(|at| Moment::clock(at, now)),
        subject: (!group.is_local()).then_some(group.subject),
        name: group.name,
        member_count,
        members: people
            .items
            .into_iter()
            .map(|member| {
                let is_shown = shows(reader, &member);
                MemberRow {
                    name: member.name.to_string(),
                    display_name: member.display_name,
                    state: member.state.into(),
                    seen: member.last_seen_at.filter(|_| is_shown).map(|at| Moment::ago(at, now)),
                    sessions: is_shown.then(|| live.get(&member.id).copied().unwrap_or_default()),
                }
            })
            .collect(),
        first_href: cursor.is_some().then(|| page.clone()),
        next_href: people.next_cursor.map(|cursor| format!("{page}?cursor={cursor}")),
        managers,
        invitations: pending.into_iter().map(|invitation| InvitationRow::new(invitation, now)).collect(),
        may_change: reader.is_admin(),
        may_change_members,
        sees_people: reader.is_operator(),
        typed: String::new(),
        uses: uses(&sessions),
        sessions: sessions
            .iter()
            .take(MAX_SESSIONS_SHOWN)
            .map(|session| {
                let (class, word) = session_badge(session);
                let app = portal.sessions.apps.find(&session.app);
                GroupSessionRow {
                    id: session.id.to_string(),
                    owner: session.owner_name.clone(),
                    app: app.map_or_else(|| session.app.clone(), |app| app.title.clone()),
                    class,
                    word,
                    resources: resources_line(&session.spec.resources, &session.gpus),
                    since: Moment { at: session.created_at, show: views::Show::Ago, now },
                }
            })
            .collect(),
    })
}

/// What admitted sessions hold together, in words.
fn uses(sessions: &[Session]) -> Vec<String> {
    let held: Vec<_> = sessions.iter().filter(|session| session.admitted_at.is_some()).collect();
    let sum = |of: fn(&Session) -> i64| held.iter().map(|session| of(session)).sum::<i64>();
    let count = |number: i64, one: &str, many: &str| {
        (number > 0).then(|| format!("{number} {}", if number == 1 { one } else { many }))
    };
    let running = i64::try_from(held.len()).unwrap_or(i64::MAX);
    let waiting = i64::try_from(sessions.len() - held.len()).unwrap_or(i64::MAX);
    let memory = sum(|session| session.spec.resources.memory_bytes);
    [
        count(running, "session", "sessions"),
        count(sum(|session| session.spec.resources.gpus), "GPU", "GPUs"),
        count(sum(|session| session.spec.resources.cpus), "core", "cores"),
        (memory > 0).then(|| human_size(memory)),
        count(waiting, "waits", "wait"),
    ]
    .into_iter()
    .flatten()
    .collect()
}
