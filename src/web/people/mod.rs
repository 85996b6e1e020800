//! `/users` over REST: the list that administrators and operators see, and what administrators
//! do with one account. The rules are `auth::people`'s; the pages are in `pages`.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

mod cursor;
pub mod group_pages;
pub mod groups;
pub mod invitations;
mod navigation;
pub mod offboarding;
pub mod pages;
pub mod password_links;
pub mod stop;
pub mod tokens;

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub(super) use self::cursor::GroupCursor;
use self::cursor::PeopleCursor;
use super::{
    Pages, Portal,
    http::{
        error::{Created, Error, Problem, Result},
        extract::{Admin, HashedJson, IdempotencyKey, Json, Operator, Query},
        paging::{Listed, Paging},
        versions::{check_version, tagged},
    },
};
use crate::{
    auth::people::{NewPerson, PersonChange},
    db::{
        groups::Membership,
        people::{ListedUser, PeopleFilter, Sort},
    },
    model::{
        Role, Timestamp, User,
        user::{self, EXPIRY_WARNING_SECONDS, ExpiryChange},
    },
};

/// Adds the pages of users and groups to others.
pub(super) fn routes(pages: Pages) -> Pages {
    pages
        .get("/admin/users", pages::list)
        .post("/admin/users", pages::create)
        .get("/admin/users/{name}", pages::show)
        .post("/admin/users/{name}/role", pages::set_role)
        .post("/admin/users/{name}/disable", pages::disable)
        .post("/admin/users/{name}/enable", pages::enable)
        .post("/admin/users/{name}/expiry", pages::set_expiry)
        .post("/admin/users/{name}/sign-out", pages::sign_out)
        .post("/admin/users/{name}/password", pages::set_password)
        .post("/admin/users/{name}/password-link", password_links::create_by_form)
        .post("/admin/users/{name}/remove", pages::remove)
        .get("/admin/users/{name}/offboard", offboarding::page::show)
        .post("/admin/users/{name}/offboard", offboarding::page::end)
        .post("/admin/users/{name}/hand-over", offboarding::page::hand_over)
        .post("/admin/users/{name}/tokens", tokens::create_by_form)
        .post("/admin/users/{name}/tokens/{id}/rotate", tokens::rotate_by_form)
        .post("/admin/users/{name}/tokens/{id}/revoke", tokens::revoke_by_form)
        .get("/admin/groups", group_pages::list)
        .post("/admin/groups", group_pages::create)
        .get("/admin/groups/{group}", group_pages::show)
        .post("/admin/groups/{group}/rename", group_pages::rename)
        .post("/admin/groups/{group}/remove", group_pages::remove)
        .post("/admin/groups/{group}/members", group_pages::add_member)
        .post("/admin/groups/{group}/members/{name}/remove", group_pages::remove_member)
        .post("/admin/groups/{group}/invitations", invitations::invite_by_form)
        .post("/admin/groups/{group}/invitations/{name}/withdraw", invitations::withdraw_by_form)
        .post("/admin/groups/{group}/managers", group_pages::add_manager)
        .post("/admin/groups/{group}/managers/{name}/remove", group_pages::remove_manager)
}

/// An account, as administrators and operators see it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub struct UserView {
    #[schema(format = "uuid")]
    id: String,
    name: String,
    display_name: String,
    /// Where the account comes from: `local`, `service` (a service account), `ldap` or `header`.
    source: String,
    /// The effective role: `user`, `operator` or `admin`.
    role: &'static str,
    /// The role that was set in the portal. If `role` is higher, it comes from the directory.
    given_role: &'static str,
    /// `active`, `disabled` in the portal, `expired`, or `absent` from the directory.
    state: &'static str,
    /// The names of the user's groups.
    groups: Vec<String>,
    /// The number of sessions that have not ended.
    sessions: i64,
    #[schema(value_type = Option<String>, format = "date-time")]
    last_seen_at: Option<Timestamp>,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
    /// When the account expires: it is disabled then. Null: it does not expire.
    #[schema(value_type = Option<String>, format = "date-time")]
    expires_at: Option<Timestamp>,
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
            expires_at: user.expires_at,
        }
    }
}

/// An account, with its groups and sign-ins.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserDetails {
    #[serde(flatten)]
    user: UserView,
    /// The Unix account on the machine, if an administrator set it.
    unix_name: Option<String>,
    /// The time since when the account is missing or locked in the directory.
    #[schema(value_type = Option<String>, format = "date-time")]
    absent_since: Option<Timestamp>,
    /// The groups that the user is in or manages.
    belongings: Vec<BelongingView>,
    /// The number of active sign-ins.
    logins: i64,
}

/// A user's membership in a group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Membership)]
pub struct BelongingView {
    #[schema(format = "uuid")]
    id: String,
    group: String,
    /// Where the group comes from: `local` or `ldap`.
    source: String,
    member: bool,
    manager: bool,
}

impl From<Membership> for BelongingView {
    fn from(belonging: Membership) -> Self {
        let Membership { group, is_member, is_manager } = belonging;
        Self {
            id: group.id.to_string(),
            group: group.name,
            source: group.source,
            member: is_member,
            manager: is_manager,
        }
    }
}

/// What the list calls active accounts that expire soon.
pub(super) const EXPIRING: &str = "expiring";

/// `?find=&role=&state=&source=&sort=` of the list, with paging.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    /// Part of the name or the display name.
    find: Option<String>,
    /// `user`, `operator` or `admin`.
    role: Option<String>,
    /// `active`, `disabled`, `expired`, `absent`, or `expiring` for active accounts that expire within 14 days.
    state: Option<String>,
    /// `local`, `service`, `ldap` or `header`.
    source: Option<String>,
    /// `name` or `seen`. A `-` before it reverses the order.
    #[param(default = "name")]
    sort: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

impl ListParameters {
    /// What to ask the database for, and the number of people that a page has.
    fn filter(self, now: Timestamp) -> Result<(PeopleFilter, i64)> {
        let paging = Paging::new(self.limit, self.cursor.filter(|cursor| !cursor.is_empty()));
        let limit = paging.limit()?;
        let sort = match self.sort.as_deref() {
            None | Some("" | "name") => Sort::Name,
            Some("-name") => Sort::NameDown,
            Some("seen") => Sort::Seen,
            Some("-seen") => Sort::SeenDown,
            Some(_) => return Err(Error::field("sort", "invalid_value", "Must be one of name, -name, seen, -seen.")),
        };
        let after = paging.after::<PeopleCursor>()?.map(|place| place.of(sort)).transpose()?;
        let find = self.find.unwrap_or_default();
        let is_expiring = self.state.as_deref() == Some(EXPIRING);
        let state = if is_expiring { Some(user::State::Active.as_str().to_owned()) } else { self.state };
        let expected = "Must be one of active, disabled, expired, absent, expiring.";
        let filter = PeopleFilter {
            find: find.trim().chars().take(200).collect(),
            role: word("role", self.role, "Must be one of user, operator, admin.")?,
            state: word::<user::State>("state", state, expected)?,
            expires_before: is_expiring.then(|| now.plus_seconds(EXPIRY_WARNING_SECONDS)),
            source: self.source.filter(|source| !source.is_empty()),
            sort,
            after,
            limit: limit + 1,
        };
        if filter.source.as_ref().is_some_and(|source| source.contains('\0')) {
            return Err(Error::field("source", "invalid_value", "Must be one of local, service, ldap, header."));
        }
        Ok((filter, limit))
    }
}

/// An optional word of a list.
fn word<T: std::str::FromStr>(field: &str, text: Option<String>, expected: &str) -> Result<Option<T>> {
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| text.parse()).transpose().map_err(|_err| Error::field(field, "invalid_value", expected))
}

/// Lists all users.
#[utoipa::path(get, path = "/users", tag = "users", params(ListParameters),
    responses((status = 200, body = Listed<UserView>),
        (status = 403, description = "Not an administrator or operator", body = Problem)))]
pub async fn list(
    _: Operator,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<ListParameters>,
) -> Result<axum::Json<Listed<UserView>>> {
    let (filter, limit) = parameters.filter(portal.clock.now())?;
    let found = portal.db.list_people(&filter).await?;
    let page = Listed::new(found, limit, |one: &ListedUser| PeopleCursor::after(&one.user, filter.sort));
    let items = page.items.iter().map(|one| UserView::new(&one.user, one.sessions)).collect();
    Ok(axum::Json(Listed { items, next_cursor: page.next_cursor }))
}

/// A new account of the portal.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUserRequest {
    /// At most 29 of `a` to `z`, digits, `_`, `.` and `-`. Not only digits, and not the name of a system account.
    #[schema(min_length = 1, max_length = 29)]
    name: String,
    #[serde(default)]
    #[schema(max_length = 128)]
    display_name: String,
    /// `user` (the default), `operator` or `admin`.
    #[schema(value_type = Option<String>)]
    role: Option<Role>,
    /// At least 10 characters. Without a password the user cannot sign in yet.
    #[schema(min_length = 10, max_length = 1024)]
    password: Option<String>,
    /// `service` creates a service account, which cannot sign in. Administrators create its tokens.
    #[serde(default)]
    source: NewSource,
}

/// What kind of account is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NewSource {
    /// A person's account.
    #[default]
    Local,
    /// A service account, for a program.
    Service,
}

/// Creates a local account or a service account.
#[utoipa::path(post, path = "/users", tag = "users", request_body = NewUserRequest,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Requests that repeat a key return the first result.")),
    responses((status = 201, body = UserDetails), (status = 403, description = "Not an administrator", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    IdempotencyKey(key): IdempotencyKey,
    HashedJson { value: request, hash }: HashedJson<NewUserRequest>,
) -> Result<Created<UserDetails>> {
    let NewUserRequest { name, display_name, role, password, source } = request;
    let is_service = source == NewSource::Service;
    let new = NewPerson { name, display_name, role: role.unwrap_or(Role::User), password, is_service };
    let key = key.as_deref().map(|key| (key, hash.as_str()));
    let id = portal.access.add_person(&admin.0, new, key).await?;
    let user = portal.db.find_user(id).await?.ok_or_else(Error::not_found)?.user;
    Ok(Created(format!("/api/v1/users/{}", user.name), details(&portal, &user).await?))
}

/// Returns one account.
#[utoipa::path(get, path = "/users/{name}", tag = "users", params(("name" = String, Path)),
    responses((status = 200, body = UserDetails), (status = 404, description = "Not found", body = Problem)))]
pub async fn find(_: Operator, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    Ok(tagged(&details(&portal, &user).await?, &VOLATILE_FIELDS))
}

/// A change of an account. Fields that are omitted keep their values.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChangeRequest {
    /// For local and service accounts only.
    #[schema(max_length = 128)]
    display_name: Option<String>,
    /// The role to set in the portal: `user`, `operator` or `admin`.
    #[schema(value_type = Option<String>)]
    role: Option<Role>,
    /// `true` ends logins, tokens and open connections within five seconds.
    ///
    /// `false` is rejected while `expires_at` is in the past.
    disabled: Option<bool>,
    /// When the account expires. From then on it is disabled, and its sessions and jobs are stopped. Null: it does not
    /// expire. A later moment does not enable an account that has expired.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    expires_at: ExpiryChange,
    /// For local accounts only. Ends all logins of the user.
    #[schema(min_length = 10, max_length = 1024)]
    password: Option<String>,
}

/// Changes an account.
///
/// All changes are made, or none. You cannot change your own role, and the last administrator cannot be removed.
#[utoipa::path(patch, path = "/users/{name}", tag = "users", params(("name" = String, Path)),
    request_body = UserChangeRequest,
    responses((status = 200, body = UserDetails),
        (status = 403, description = "Not an administrator, or your own account", body = Problem),
        (status = 409, description = "This is the last administrator, the account has expired, or the value is managed by \
            the directory",
            body = Problem),
        (status = 412, description = "Changed since the version in If-Match", body = Problem)))]
pub async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(request): Json<UserChangeRequest>,
) -> Result<Response> {
    let user = named(&portal, &name).await?;
    check_version(&headers, &details(&portal, &user).await?, &VOLATILE_FIELDS)?;
    let UserChangeRequest { display_name, role, disabled, expires_at, password } = request;
    let change = PersonChange { display_name, role, disabled, expires_at, password };
    portal.access.change_person(&admin.0, &user, change).await?;
    let user = named(&portal, &name).await?;
    Ok(tagged(&details(&portal, &user).await?, &VOLATILE_FIELDS))
}

/// Deletes a local or service account that was never used.
///
/// Disable other accounts instead.
#[utoipa::path(delete, path = "/users/{name}", tag = "users", params(("name" = String, Path)),
    responses((status = 204, description = "Removed"),
        (status = 409, description = "The account was used, or is the last administrator", body = Problem)))]
pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    portal.access.remove_person(&admin.0, &user).await?;
    Ok(NoContent.into_response())
}

/// Signs a user out everywhere.
///
/// Tokens stay valid and sessions continue.
#[utoipa::path(post, path = "/users/{name}/sign-out", tag = "users", params(("name" = String, Path)),
    responses((status = 204, description = "Signed out everywhere")))]
pub async fn sign_out(admin: Admin, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    let user = named(&portal, &name).await?;
    portal.access.sign_out_person(&admin.0, &user).await?;
    Ok(NoContent.into_response())
}

/// What changes by itself is no part of an account's version.
const VOLATILE_FIELDS: [&str; 3] = ["sessions", "last_seen_at", "logins"];

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
