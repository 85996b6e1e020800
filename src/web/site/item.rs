//! One user or group as it should be: a site's file of one item. The account or group is created if it does not exist, what
//! is named becomes true, and the same request again changes nothing.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::HeaderMap,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{AppliedSite, answer, services};
use crate::{
    model::{GroupId, Role, user::ExpiryChange},
    site::{self, Declared, Limits, Options, SiteGroup, SiteLimit, SiteUser},
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{Admin, Json},
        },
    },
};

/// A user as it should be. Fields that are omitted stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedUser {
    /// Where a new account comes from: `local`, or `service` for a service account, which uses tokens and cannot sign in.
    /// Required for new accounts where accounts also come from a directory.
    source: Option<String>,
    /// For local and service accounts only.
    #[schema(max_length = 128)]
    display_name: Option<String>,
    /// The role that is set in the portal.
    #[schema(value_type = Option<String>)]
    role: Option<Role>,
    /// Whether the account is disabled.
    disabled: Option<bool>,
    /// When the account expires. Null: it does not expire.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    expires_at: ExpiryChange,
    /// The limits that are set for this user alone, by quota field. Others that the user has are removed.
    #[schema(value_type = Option<std::collections::BTreeMap<String, SiteLimit>>)]
    quota: Option<Limits>,
}

/// A group as it should be. Fields that are omitted stay as they are; lists and limits that are named are complete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedGroup {
    /// The names of the members. For local groups only.
    members: Option<Vec<String>>,
    /// The names of the managers.
    managers: Option<Vec<String>>,
    /// The limits of each member, by quota field.
    #[schema(value_type = Option<std::collections::BTreeMap<String, SiteLimit>>)]
    each: Option<Limits>,
    /// The totals of the group, by quota field.
    #[schema(value_type = Option<std::collections::BTreeMap<String, SiteLimit>>)]
    total: Option<Limits>,
    /// Whether sessions can be charged to the group.
    chargeable: Option<bool>,
    /// Whether members get at most this group's limits.
    restrictive: Option<bool>,
}

/// Creates or changes an account with its limits.
///
/// What is named becomes true, all of it or nothing. The same request again changes nothing. A new local account gets an
/// invitation link instead of a password.
#[utoipa::path(put, path = "/users/{name}", tag = "users", params(("name" = String, Path)), request_body = WantedUser,
    responses((status = 200, body = AppliedSite, description = "The changes; none if nothing differs"),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn put_user(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(wanted): Json<WantedUser>,
) -> Result<axum::Json<AppliedSite>> {
    let WantedUser { source, display_name, role, disabled, expires_at, quota } = wanted;
    let user = SiteUser { name, source, display_name, role, disabled, expires_at, quota };
    put(&portal, &admin, &headers, Declared { users: vec![(PLACE.to_owned(), user)], ..Declared::default() }).await
}

/// Creates or changes a group with its members, managers and limits.
///
/// What is named becomes true, all of it or nothing. The same request again changes nothing.
#[utoipa::path(put, path = "/groups/{group}", tag = "groups",
    params(("group" = String, Path, description = "The name, or the id of a group that exists")),
    request_body = WantedGroup,
    responses((status = 200, body = AppliedSite, description = "The changes; none if nothing differs"),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem),
        (status = 404, description = "No group has this id", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn put_group(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(wanted): Json<WantedGroup>,
) -> Result<axum::Json<AppliedSite>> {
    // The id of a group that was removed is no name for a new one.
    if name.parse::<GroupId>().is_ok() && portal.db.find_groups(&name).await?.is_empty() {
        return Err(Error::not_found());
    }
    let WantedGroup { members, managers, each, total, chargeable, restrictive } = wanted;
    let group = SiteGroup { name, source: None, members, managers, each, total, chargeable, restrictive };
    put(&portal, &admin, &headers, Declared { groups: vec![(PLACE.to_owned(), group)], ..Declared::default() }).await
}

/// Stands before the fields of the item in faults.
const PLACE: &str = "item";

async fn put(
    portal: &Portal,
    Admin(admin): &Admin,
    headers: &HeaderMap,
    declared: Declared,
) -> Result<axum::Json<AppliedSite>> {
    let options = Options { dry_run: false, prune: true, expected: None };
    let applied = site::apply(services(portal), admin, &declared, Vec::new(), &options).await.map_err(of_the_body)?;
    Ok(axum::Json(answer(portal, headers, applied, false)))
}

/// Names the fields as in the body.
fn of_the_body(mut error: site::Error) -> site::Error {
    if let site::Error::Invalid(faults) = &mut error {
        for fault in faults {
            let field = fault.field.strip_prefix(PLACE).unwrap_or(&fault.field).trim_start_matches('.');
            fault.field = if field.is_empty() { "name".to_owned() } else { field.to_owned() };
        }
    }
    error
}
