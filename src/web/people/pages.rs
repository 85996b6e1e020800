//! `/admin/users` as pages: the list with its search and its form for a new account, and one
//! person's page with the forms that change it. The rules are `auth::people`'s, as the API's.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    EXPIRING, ListParameters, PeopleCursor, named,
    navigation::{self, done, refusal, typed},
};
use crate::{
    auth::{
        people::{NewPerson, PersonChange},
        store::ends_at,
    },
    db::{people::ListedUser, sessions::Filter},
    model::{
        Role, SessionState, User, UserId,
        time::{form_moment, parse_day_or_moment},
        user::{self, ExpiryChange},
    },
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form, Operator, Query},
            paging::{Listed, Part},
        },
        page::{Nav, Page},
        sessions::cards,
        settings::{self, SHOWN, token_rows},
        views::{
            self, BelongingRow, Column, Moment, NewUserForm, SOURCES, TokenForm, UserPage, UserRow, UserSearch,
            UsersPage, source_word,
        },
    },
};

/// How many of somebody's groups a line of the list names.
const MAX_GROUPS_SHOWN: usize = 3;

/// How many ended sessions somebody's page shows.
const ENDED: i64 = 5;

/// How many live sessions a part of somebody's page shows.
const LIVE: usize = 20;

/// The address of the list: what is not known is left out, so that a link of yesterday works.
#[derive(Default, Deserialize)]
pub struct ListPageParams {
    find: Option<String>,
    role: Option<String>,
    state: Option<String>,
    source: Option<String>,
    sort: Option<String>,
    cursor: Option<String>,
    done: Option<String>,
}

/// `/admin/users`
pub async fn list(
    Operator(reader): Operator,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<ListPageParams>,
) -> Result<Response> {
    let done = visit.done.clone();
    let mut view = list_view(&portal, &reader, visit).await?;
    view.notice = done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

/// `POST /admin/users`: makes a local account.
pub async fn create(admin: Admin, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let role = match form.get("role") {
        "" => Ok(Role::User),
        text => text.parse().map_err(|_err| Error::field("role", "invalid_value", "Select a value from the list.")),
    };
    let made = match role {
        Ok(role) => {
            let new = NewPerson {
                name: form.get("name").trim().to_owned(),
                display_name: form.get("display_name").to_owned(),
                role,
                password: Some(form.get("password").to_owned()).filter(|password| !password.is_empty()),
                is_service: form.get("source") == user::SERVICE,
            };
            portal.access.add_person(&admin.0, new, None).await.map_err(Error::from)
        }
        Err(error) => Err(error),
    };
    let error = match made {
        Ok(id) => {
            let user = portal.db.find_user(id).await?.ok_or_else(Error::not_found)?.user;
            return Ok(back(&user, "added"));
        }
        Err(error) if error.field_errors().is_empty() => return Err(error),
        Err(error) => error,
    };
    let mut view = list_view(&portal, &admin.0, ListPageParams::default()).await?;
    view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
    view.form = NewUserForm {
        name: typed(form.get("name")),
        display_name: form.get("display_name").chars().take(400).collect(),
        role: form.get("role").chars().take(40).collect(),
        is_service: form.get("source") == user::SERVICE,
    };
    Ok(error.with_page(Page(view)))
}

async fn list_view(portal: &Portal, reader: &Arc<crate::auth::Principal>, visit: ListPageParams) -> Result<UsersPage> {
    let now = portal.clock.now();
    let known = |text: Option<String>, is: fn(&str) -> bool| text.filter(|text| is(text)).unwrap_or_default();
    let search = UserSearch {
        find: typed(&visit.find.unwrap_or_default()),
        role: known(visit.role, |text| text.parse::<Role>().is_ok()),
        state: known(visit.state, |text| text == EXPIRING || text.parse::<user::State>().is_ok()),
        source: known(visit.source, |text| SOURCES.iter().any(|(known, _)| *known == text)),
        sort: known(visit.sort, |text| ["-name", "seen", "-seen"].contains(&text)),
    };
    let parameters = ListParameters {
        find: Some(search.find.clone()),
        role: Some(search.role.clone()),
        state: Some(search.state.clone()),
        source: Some(search.source.clone()),
        sort: Some(search.sort.clone()),
        limit: None,
        cursor: visit.cursor.clone(),
    };
    let (filter, limit) = parameters.filter(now)?;
    let found = portal.db.list_people(&filter).await?;
    let page = Listed::new(found, limit, |one: &ListedUser| PeopleCursor::after(&one.user, filter.sort));
    let paged = visit.cursor.is_some_and(|cursor| !cursor.is_empty());
    Ok(UsersPage {
        layout: portal.layout_of(reader, Nav::Administration),
        notice: None,
        errors: Vec::new(),
        columns: columns(&search),
        rows: page.items.into_iter().map(|one| row(one, now)).collect(),
        total: portal.db.count_users().await?,
        first_href: paged.then(|| address(&search, &search.sort, "")),
        next_href: page.next_cursor.map(|cursor| address(&search, &search.sort, &cursor)),
        may_change: reader.is_admin(),
        form: NewUserForm::default(),
        search,
    })
}

/// The list with this search in another order, from a place on.
fn address(search: &UserSearch, sort: &str, cursor: &str) -> String {
    let parts = [
        ("find", search.find.as_str()),
        ("role", &search.role),
        ("state", &search.state),
        ("source", &search.source),
        ("sort", sort),
        ("cursor", cursor),
    ];
    navigation::address("/admin/users", &parts)
}

fn columns(search: &UserSearch) -> Vec<Column> {
    let sorted = match search.sort.as_str() {
        "-name" => ("Name", "descending"),
        "seen" => ("Last seen", "ascending"),
        "-seen" => ("Last seen", "descending"),
        _ => ("Name", "ascending"),
    };
    // Whoever looks for use wants the latest first.
    let column = |label, first: &str, other: &str| Column {
        label,
        href: address(search, if search.sort == first { other } else { first }, ""),
        sorted: (sorted.0 == label).then_some(sorted.1),
    };
    vec![column("Name", "", "-name"), column("Last seen", "-seen", "seen")]
}

fn row(one: ListedUser, now: crate::model::Timestamp) -> UserRow {
    let ListedUser { mut user, sessions } = one;
    let more_groups = user.groups.len().saturating_sub(MAX_GROUPS_SHOWN);
    user.groups.truncate(MAX_GROUPS_SHOWN);
    UserRow {
        name: user.name.to_string(),
        role: views::role_word(user.role),
        is_directorys_role: user.has_directorys_role(),
        state: user.state().into(),
        expires: user.expires_soon(now).map(|end| Moment::clock(end, now)),
        source: source_word(&user.source),
        seen: user.last_seen_at.map(|at| Moment::ago(at, now)),
        display_name: user.display_name,
        groups: user.groups,
        more_groups,
        sessions,
    }
}

/// What a form did, after the redirect; and cursors of the lists of somebody's page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    pub(super) done: Option<String>,
    sessions: Option<String>,
    tokens: Option<String>,
    groups: Option<String>,
}

pub(super) fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "added" => "Account created.",
        "role" => "Role changed. The change applies immediately.",
        "disabled" => {
            "Account disabled. Sign-ins, tokens and open connections end now. Sessions continue; you can stop them \
             below."
        }
        "enabled" => "Account enabled.",
        "expiry" => "End of the account changed.",
        "signed-out" => "The user is signed out everywhere.",
        "password" => "Password changed. The user is signed out everywhere.",
        "revoked" => "Token revoked.",
        "removed" => "Account removed.",
        _ => return None,
    })
}

/// `/admin/users/{name}`
pub async fn show(
    Operator(reader): Operator,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    let mut view = view(&portal, &reader, &headers, &user, &visit).await?;
    view.notice = visit.done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

pub async fn set_role(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let role = form.get("role").parse();
    let role = role.map_err(|_err| Error::field("role", "invalid_value", "Select a value from the list."))?;
    change(&portal, &admin, &headers, &name, PersonChange { role: Some(role), ..PersonChange::default() }, "role").await
}

pub async fn disable(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let closed = PersonChange { disabled: Some(true), ..PersonChange::default() };
    change(&portal, &admin, &headers, &name, closed, "disabled").await
}

pub async fn enable(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let open = PersonChange { disabled: Some(false), ..PersonChange::default() };
    change(&portal, &admin, &headers, &name, open, "enabled").await
}

/// `POST /admin/users/{name}/expiry`: a time in UTC, or nothing.
pub async fn set_expiry(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let text = form.get("until").trim();
    let entered = (!text.is_empty()).then(|| parse_day_or_moment(text));
    let expires_at = match entered {
        None => ExpiryChange::Never,
        Some(Some(moment)) => ExpiryChange::At(moment),
        Some(None) => {
            let user = named(&portal, &name).await?;
            let message = "Enter a time in UTC, as 2030-01-31 or 2030-01-31 12:00.";
            let error = Error::field("until", "invalid_value", message);
            return again(&portal, &admin, &headers, &user, error).await;
        }
    };
    change(&portal, &admin, &headers, &name, PersonChange { expires_at, ..PersonChange::default() }, "expiry").await
}

pub async fn set_password(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let password = Some(form.get("password").to_owned());
    change(&portal, &admin, &headers, &name, PersonChange { password, ..PersonChange::default() }, "password").await
}

pub async fn sign_out(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    portal.access.sign_out_person(&admin.0, &user).await?;
    Ok(back(&user, "signed-out"))
}

pub async fn remove(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    match portal.access.remove_person(&admin.0, &user).await {
        Ok(()) => Ok(done("/admin/users", "removed")),
        Err(err) => again(&portal, &admin, &headers, &user, err.into()).await,
    }
}

async fn change(
    portal: &Portal,
    admin: &Admin,
    headers: &HeaderMap,
    name: &str,
    change: PersonChange,
    done: &str,
) -> Result<Response> {
    let user = named(portal, name).await?;
    match portal.access.change_person(&admin.0, &user, change).await {
        Ok(()) => Ok(back(&user, done)),
        Err(err) => again(portal, admin, headers, &user, err.into()).await,
    }
}

pub(super) fn back(user: &User, what: &str) -> Response {
    done(&format!("/admin/users/{}", user.name), what)
}

/// The page once more, with why a form was refused.
pub(super) async fn again(
    portal: &Portal,
    admin: &Admin,
    headers: &HeaderMap,
    user: &User,
    error: Error,
) -> Result<Response> {
    let (error, why) = refusal(error)?;
    let mut view = view(portal, &admin.0, headers, user, &PageParams::default()).await?;
    view.error = Some(why);
    Ok(error.with_page(Page(view)))
}

pub(super) async fn view(
    portal: &Portal,
    reader: &Arc<crate::auth::Principal>,
    headers: &HeaderMap,
    user: &User,
    visit: &PageParams,
) -> Result<UserPage> {
    let now = portal.clock.now();
    let path = format!("/admin/users/{}", user.name);
    let standing = portal.sessions.standing(user.id).await?;
    let theirs = Filter { owner: Some(user.id), ..Filter::default() };
    let live = portal.sessions.list(Filter { live_only: true, limit: i64::MAX, ..theirs }).await?;
    let live = Part::cut(
        live,
        LIVE,
        visit.sessions.as_deref(),
        |session| session.id,
        |cursor| settings::address(&path, "sessions", cursor),
    );
    let ended = portal.sessions.list(Filter { state: Some(SessionState::Ended), limit: ENDED, ..theirs }).await?;
    let card = |session| cards::card(portal, reader, headers, session, &standing.limits);
    let tokens = portal.db.list_tokens(user.id, None, i64::MAX).await?;
    let is_unused = user.is_kept_here()
        && user.last_seen_at.is_none()
        && live.more.total == 0
        && ended.is_empty()
        && tokens.iter().all(|token| token.last_used_at.is_none());
    let tokens = Part::cut(
        tokens,
        SHOWN,
        visit.tokens.as_deref(),
        |token| token.id,
        |cursor| settings::address(&path, "tokens", cursor),
    );
    let groups = Part::cut(
        portal.db.belongings(user.id).await?,
        SHOWN,
        visit.groups.as_deref(),
        |belonging| belonging.group.id,
        |cursor| settings::address(&path, "groups", cursor),
    );
    let mut moments = vec![("Created", Moment::clock(user.created_at, now))];
    moments.extend(user.last_seen_at.map(|at| ("Last seen", Moment::ago(at, now))));
    moments.extend(user.expired_at.map(|at| ("Expired", Moment::clock(at, now))));
    moments.extend(user.dormant_at.map(|at| ("Dormant since", Moment::clock(at, now))));
    moments.extend(user.absent_since.map(|at| ("Not in the directory since", Moment::clock(at, now))));
    let mut facts = Vec::new();
    facts.extend(user.unix_name.clone().map(|name| ("Unix account", name)));
    facts.extend(user.uid_number.map(|uid| ("Unix uid (from the directory)", uid.to_string())));
    Ok(UserPage {
        layout: portal.layout_of(reader, Nav::Administration),
        notice: None,
        error: None,
        name: user.name.to_string(),
        display_name: user.display_name.clone(),
        source: user.source.clone(),
        state: user.state(),
        role: user.role,
        given_role: user.given_role,
        is_oneself: user.id == reader.id(),
        may_change: reader.is_admin(),
        is_unused,
        expiry: user.expires_at.map(|end| (form_moment(end).replace('T', " "), Moment::clock(end, now))),
        is_expired: user.expired_before(now).is_some(),
        facts,
        moments,
        groups: groups
            .items
            .into_iter()
            .map(|belonging| BelongingRow {
                id: belonging.group.id.to_string(),
                source: source_word(&belonging.group.source),
                name: belonging.group.name,
                is_member: belonging.is_member,
                is_manager: belonging.is_manager,
            })
            .collect(),
        more_groups: groups.more,
        tokens: token_rows(tokens.items, now),
        more_tokens: tokens.more,
        new_token: None,
        password_link: None,
        token_form: (user.is_service() && reader.is_admin()).then(|| TokenForm {
            name: String::new(),
            scopes: settings::scope_choices(user),
            errors: Vec::new(),
        }),
        logins: live_logins(portal, user.id).await?,
        live: live.items.iter().map(card).collect(),
        more_live: live.more,
        ended: ended.iter().map(card).collect(),
    })
}

/// How many browsers somebody is signed in on.
pub(super) async fn live_logins(portal: &Portal, user: UserId) -> Result<i64> {
    let now = portal.clock.now();
    let logins = portal.db.list_logins(user).await?;
    Ok(i64::try_from(logins.iter().filter(|login| now < ends_at(login)).count()).unwrap_or(i64::MAX))
}
