//! A site's file over REST: what is declared in it, as JSON, is planned or made true, and read as it is now. The rules
//! are `site`'s; `read` turns the body into a declaration and reports all that is wrong with it at once.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

pub mod import;
pub mod item;
mod read;
mod table;
pub mod welcome;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Portal,
    http::{
        error::{Problem, Result},
        extract::{Admin, Query, json_body},
        versions::tagged,
    },
};
use crate::{
    model::Timestamp,
    site::{self, Applied, NewInvitation, Options, PlannedChange, Site},
};

/// The largest file, in bytes: one of ten thousand users has two million.
const MAX_FILE_LENGTH: usize = 16 * 1024 * 1024;

/// `?dry_run=&prune=`
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApplyParameters {
    /// Return the plan without making the changes.
    #[serde(default)]
    dry_run: bool,
    /// Also remove members, managers and limits that the named groups, users and levels have and the file does not
    /// list, and what complete sections do not list.
    #[serde(default)]
    prune: bool,
}

/// The changes that a site's file makes.
#[derive(Debug, Serialize, ToSchema)]
pub struct AppliedSite {
    /// Whether the changes were made. `false` for a dry run, or if there is nothing to change.
    applied: bool,
    /// All changes, in the order of the file. Empty if nothing differs.
    changes: Vec<PlannedChange>,
    /// What would be removed with `prune`.
    unlisted: Vec<PlannedChange>,
    /// The links of the new accounts. They are shown only here.
    invitations: Vec<InvitationLink>,
}

/// A link by which the owner of a local account sets the password. It works once.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountInvitation)]
pub struct InvitationLink {
    /// The name of the user.
    name: String,
    /// The address; without a host if the request was sent to a host name that the portal does not know. What follows
    /// `#` is a secret: send it only to this user.
    pub(in crate::web) url: String,
    #[schema(value_type = String, format = "date-time")]
    expires_at: Timestamp,
}

impl InvitationLink {
    /// `origin` is the portal's own address, without a path.
    pub(in crate::web) fn new(origin: &str, name: String, secret: &str, expires_at: Timestamp) -> Self {
        Self { name, url: format!("{origin}/welcome#{secret}"), expires_at }
    }
}

/// Returns users, groups, members, limits, profiles and announcements as the file that declares them.
///
/// Applied to the same state, the file changes nothing. It contains no passwords and no tokens.
#[utoipa::path(get, path = "/site", tag = "site", responses((status = 200, body = Site),
    (status = 403, description = "Not an administrator, or a token with scopes", body = Problem)))]
pub async fn export(_: Admin, State(portal): State<Arc<Portal>>) -> Result<Response> {
    Ok(tagged(&site::read(&portal.sessions).await?, &[]))
}

/// Makes what a site's file declares true, in one transaction.
///
/// All changes are made, or none. All faults are returned at once. What the file does not mention stays as it is. New
/// local accounts get an invitation link instead of a password. The `ETag` identifies the plan: sent as `If-Match`,
/// exactly this plan is carried out, or none.
#[utoipa::path(post, path = "/site/apply", tag = "site", params(ApplyParameters), request_body = Site,
    responses((status = 200, body = AppliedSite, description = "The changes"),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem),
        (status = 412, description = "The plan is no longer the one in If-Match", body = Problem),
        (status = 413, description = "The file has more than 16 MiB", body = Problem),
        (status = 422, description = "All faults of the file", body = Problem)))]
pub async fn apply(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Query(parameters): Query<ApplyParameters>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response> {
    let body = json_body(request, MAX_FILE_LENGTH).await?;
    let (declared, faults) = read::declaration(&body)?;
    let expected = headers.get(header::IF_MATCH).filter(|version| *version != "*");
    let expected = expected.map(|version| version.to_str().unwrap_or_default().trim_matches('"').to_owned());
    let options = Options { dry_run: parameters.dry_run, prune: parameters.prune, expected };
    let applied = site::apply(services(&portal), &admin, &declared, faults, &options).await?;
    let version = [(header::ETAG, format!("\"{}\"", applied.version))];
    Ok((version, axum::Json(answer(&portal, &headers, applied, options.dry_run))).into_response())
}

fn answer(portal: &Portal, headers: &HeaderMap, applied: Applied, dry_run: bool) -> AppliedSite {
    let origin = portal.config.origin(headers);
    let link = |new: NewInvitation| InvitationLink::new(&origin, new.name, &new.secret, new.expires_at);
    AppliedSite {
        applied: !dry_run && !applied.changes.is_empty(),
        changes: applied.changes,
        unlisted: applied.unlisted,
        invitations: applied.invitations.into_iter().map(link).collect(),
    }
}

fn services(portal: &Portal) -> site::Services<'_> {
    site::Services {
        access: &portal.access,
        announcements: &portal.announcements,
        sessions: &portal.sessions,
        has_directory: portal.surroundings.directory.is_some(),
    }
}
