//! `/users` over REST: the list that administrators and operators see, and what administrators
//! do with one account. The rules are `auth::people`'s; the pages are in `pages`.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod group_pages;
pub mod groups;
pub mod invitations;
pub mod pages;
mod place;
pub mod stop;
mod visit;

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub(super) use self::place::GroupPlace;
use self::place::Place;
use super::{
    Portal,
    error::{Created, Error, Problem, Result},
    extract::{Admin, HashedJson, IdempotencyKey, Json, Operator, Query},
    paging::{Listed, Paging},
    tokens::TokenInfo,
    versions::{check_version, tagged},
};
use crate::{
    auth::people::{NewPerson, PersonChange},
    db::{
        groups::Belonging,
        people::{ListedUser, PeopleFilter, Sort},
    },
    model::{Role, Timestamp, TokenId, User, user},
};

/// An account, as administrators and operators see it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub struct UserView {
    #[schema(format = "uuid")]
    id: String,
    name: String,
    display_name: String,
    /// Where the account comes from: `local` or `ldap`.
    source: String,
    /// What they may do: `user`, `operator` or `admin`.
    role: &'static str,
    /// What was given here; where `role` is more, the directory gives it.
    given_role: &'static str,
    /// `active`, `disabled` (here), or `absent` from the directory.
    state: &'static str,
    /// The names of the groups they are in.
    groups: Vec<String>,
    /// How many of their sessions have not ended.
    sessions: i64,
    #[schema(value_type = Option<String>, format = "date-time")]
    last_seen_at: Option<Timestamp>,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
}

impl UserView {
    fn new(user: &User, sessions: i64) -> Self {
        Self {
            id: user.id.to_string(),
            name: user.name.to_string(),
            display_name: user.display_name.clone(),
            source: user.source.clone(),
            role: user.role.as_str(),
            given_role: user.given_role.as_str(),
            state: user.state().as_str(),
            groups: user.groups.clone(),
            sessions,
            last_seen_at: user.last_seen_at,
            created_at: user.created_at,
        }
    }
}

/// One account with what belongs to it.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserDetails {
    #[serde(flatten)]
    user: UserView,
    /// The Unix account that an administrator named on the machine.
    unix_name: Option<String>,
    /// Since when the directory does not list them any more, or has locked them.
    #[schema(value_type = Option<String>, format = "date-time")]
    absent_since: Option<Timestamp>,
    /// The groups they are in or manage, with their sources.
    belongings: Vec<BelongingView>,
    /// How many browsers are signed in.
    logins: i64,
}

/// How somebody belongs to a group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Belonging)]
pub struct BelongingView {
    #[schema(format = "uuid")]
    id: String,
    group: String,
    /// Where the group comes from: `local` or `ldap`.
    source: String,
    member: bool,
    manager: bool,
}

impl From<Belonging> for BelongingView {
    fn from(belonging: Belonging) -> Self {
        let Belonging { group, is_member, is_manager } = belonging;
        Self {
            id: group.id.to_string(),
            group: group.name,
            source: group.source,
            member: is_member,
            manager: is_manager,
        }
    }
}

/// `?find=&role=&state=&source=&sort=` of the list, with paging.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    /// A part of the name or the display name.
    find: Option<String>,
    /// `user`, `operator` or `admin`.
    role: Option<String>,
    /// `active`, `disabled` or `absent`.
    state: Option<String>,
    /// `local` or `ldap`.
    source: Option<String>,
    /// `name`, `seen`, or with `-` before it the other way round.
    #[param(default = "name")]
    sort: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

impl ListParameters {
    /// What to ask the database for, and the number of people that a page has.
    fn filter(self) -> Result<(PeopleFilter, i64)> {
        let paging = Paging::new(self.limit, self.cursor.filter(|cursor| !cursor.is_empty()));
        let limit = paging.limit()?;
        let sort = match self.sort.as_deref() {
            None | Some("" | "name") => Sort::Name,
            Some("-name") => Sort::NameDown,
            Some("seen") => Sort::Seen,
            Some("-seen") => Sort::SeenDown,
            Some(_) => return Err(Error::field("sort", "invalid_value", "One of name, -name, seen, -seen.")),
        };
        let after = paging.after::<Place>()?.map(|place| place.of(sort)).transpose()?;
        let find = self.find.unwrap_or_default();
        let filter = PeopleFilter {
            find: find.trim().chars().take(200).collect(),
            role: word("role", self.role, "One of user, operator, admin.")?,
            state: word::<user::State>("state", self.state, "One of active, disabled, absent.")?,
            source: self.source.filter(|source| !source.is_empty()),
            sort,
            after,
            limit: limit + 1,
        };
        if filter.source.as_ref().is_some_and(|source| source.contains('\0')) {
            return Err(Error::field("source", "invalid_value", "One of local, ldap."));
        }
        Ok((filter, limit))
    }
}

/// An optional word of a list.
fn word<T: std::str::FromStr>(field: &str, text: Option<String>, expected: &str) -> Result<Option<T>> {
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| text.parse()).transpose().map_err(|_err| Error::field(field, "invalid_value", expected))
}

/// Everybody, for administrators and operators.
#[utoipa::path(get, path = "/users", tag = "users", params(ListParameters),
    responses((status = 200, body = Listed<UserView>), (status = 403, description = "For administrators and operators", body = Problem)))]
pub async fn list(
    _: Operator,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<ListParameters>,
) -> Result<axum::Json<Listed<UserView>>> {
    let (filter, limit) = parameters.filter()?;
    let found = portal.db.list_people(&filter).await?;
    let page = Listed::new(found, limit, |one: &ListedUser| Place::after(&one.user, filter.sort));
    let items = page.items.iter().map(|one| UserView::new(&one.user, one.sessions)).collect();
    Ok(axum::Json(Listed { items, next_cursor: page.next_cursor }))
}

/// A local account to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUserRequest {
    /// At most 29 of `a` to `z`, digits, `_`, `.` and `-`; not digits alone, and not a system account's.
    #[schema(min_length = 1, max_length = 29)]
    name: String,
    #[serde(default)]
    #[schema(max_length = 128)]
    display_name: String,
    /// `user` (also when left out), `operator` or `admin`.
    #[schema(value_type = Option<String>)]
    role: Option<Role>,
    /// At least 10 characters. Without one nobody can sign in yet.
    #[schema(min_length = 10, max_length = 1024)]
    password: Option<String>,
}

/// Make a local account.
#[utoipa::path(post, path = "/users", tag = "users", request_body = NewUserRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked twice with one key, it is made once.")),
    responses((status = 201, body = UserDetails), (status = 403, description = "For administrators", body = Problem),
        (status = 422, description = "A field cannot be accepted", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: request, hash }: HashedJson<NewUserRequest>,
) -> Result<Created<UserDetails>> {
    let NewUserRequest { name, display_name, role, password } = request;
    let new = NewPerson { name, display_name, role: role.unwrap_or(Role::User), password };
    let key = key.as_deref().map(|key| (key, hash.as_str()));
    let id = portal.access.add_person(&admin.0, new, key).await?;
    let user = portal.db.find_user(id).await?.ok_or_else(Error::not_found)?.user;
    Ok(Created(format!("/api/v1/users/{}", user.name), details(&portal, &user).await?))
}

/// One account.
#[utoipa::path(get, path = "/users/{name}", tag = "users", params(("name" = String, Path)),
    responses((status = 200, body = UserDetails), (status = 404, description = "There is no such user", body = Problem)))]
pub async fn find(_: Operator, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    Ok(tagged(&details(&portal, &user).await?, &PASSING))
}

/// What to change; fields that are left out stay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChangeRequest {
    /// Of local accounts.
    #[schema(max_length = 128)]
    display_name: Option<String>,
    /// What is given here: `user`, `operator` or `admin`.
    #[schema(value_type = Option<String>)]
    role: Option<Role>,
    /// True ends logins, tokens and open connections within five seconds.
    disabled: Option<bool>,
    /// Of local accounts; it ends their logins.
    #[schema(min_length = 10, max_length = 1024)]
    password: Option<String>,
}

/// Change an account, all or nothing. Nobody changes their own role, and the last administrator stays.
#[utoipa::path(patch, path = "/users/{name}", tag = "users", params(("name" = String, Path)),
    request_body = UserChangeRequest,
    responses((status = 200, body = UserDetails), (status = 403, description = "For administrators, and not for oneself", body = Problem),
        (status = 409, description = "The last administrator, or the directory's to change", body = Problem),
        (status = 412, description = "Changed since If-Match", body = Problem)))]
pub async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(request): Json<UserChangeRequest>,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    check_version(&headers, &details(&portal, &user).await?, &PASSING)?;
    let UserChangeRequest { display_name, role, disabled, password } = request;
    portal.access.change_person(&admin.0, &user, PersonChange { display_name, role, disabled, password }).await?;
    let user = named(&portal, &name).await?;
    Ok(tagged(&details(&portal, &user).await?, &PASSING))
}

/// Remove a local account that was never used; others are disabled.
#[utoipa::path(delete, path = "/users/{name}", tag = "users", params(("name" = String, Path)),
    responses((status = 204, description = "Removed"), (status = 409, description = "It was used, or is the last administrator", body = Problem)))]
pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    portal.access.remove_person(&admin.0, &user).await?;
    Ok(NoContent.into_response())
}

/// End all their sign-ins. Tokens and sessions go on.
#[utoipa::path(post, path = "/users/{name}/sign-out", tag = "users", params(("name" = String, Path)),
    responses((status = 204, description = "Signed out everywhere")))]
pub async fn sign_out(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    portal.access.sign_out_person(&admin.0, &user).await?;
    Ok(NoContent.into_response())
}

/// Their tokens, newest first: names, scopes and last use, never a secret.
#[utoipa::path(get, path = "/users/{name}/tokens", tag = "users", params(("name" = String, Path), Paging),
    responses((status = 200, body = Listed<TokenInfo>)))]
pub async fn tokens(
    _: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Listed<TokenInfo>>> {
    let user = named(&portal, &name).await?;
    let limit = paging.limit()?;
    let tokens = portal.db.list_tokens(user.id, paging.after::<TokenId>()?, limit + 1).await?;
    let tokens = tokens.into_iter().map(TokenInfo::from).collect();
    Ok(axum::Json(Listed::new(tokens, limit, |token| token.id.clone())))
}

/// Revoke a token of theirs; it ends at once.
#[utoipa::path(delete, path = "/users/{name}/tokens/{id}", tag = "users",
    params(("name" = String, Path), ("id" = String, Path)),
    responses((status = 204, description = "Revoked"), (status = 404, description = "They have no such token", body = Problem)))]
pub async fn revoke_token(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(path): Path<(String, String)>,
) -> Result<Response> {
    let user = named(&portal, &path.0).await?;
    let id: TokenId = path.1.parse().map_err(|_err| Error::not_found())?;
    if portal.access.revoke_token_of(&admin.0, &user, id).await? {
        Ok(NoContent.into_response())
    } else {
        Err(Error::not_found())
    }
}

/// What changes by itself is no part of an account's version.
const PASSING: [&str; 3] = ["sessions", "last_seen_at", "logins"];

pub(super) async fn named(portal: &Portal, name: &str) -> Result<User> {
    Ok(portal.db.find_user_by_name(name).await?.ok_or_else(Error::not_found)?.user)
}

async fn details(portal: &Portal, user: &User) -> Result<UserDetails> {
    let sessions = portal.db.live_by_owner().await?.get(&user.id).copied().unwrap_or_default();
    let belongings = portal.db.belongings(user.id).await?;
    Ok(UserDetails {
        user: UserView::new(user, sessions),
        unix_name: user.unix_name.clone(),
        absent_since: user.absent_since,
        belongings: belongings.into_iter().map(BelongingView::from).collect(),
        logins: pages::live_logins(portal, user.id).await?,
    })
}
