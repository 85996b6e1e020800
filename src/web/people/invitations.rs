//! Invitations into groups: `/groups/{group}/invitations` for those who keep a group, and
//! `/me/invitations` for those who are invited; and the forms on the home page, under Settings and
//! on the group's page. The rules are `auth::invitations`'s.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::{Path, State},
    response::{IntoResponse, NoContent, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{group_pages, groups::group, navigation::done};
use crate::{
    auth::invitations::InviteOutcome,
    model::{Invitation, Timestamp},
    web::{
        Portal,
        http::{
            error::{Created, Error, Problem, Result},
            extract::{CurrentUser, Form, GroupReader, Json},
            paging::Listed,
        },
    },
};

/// A pending invitation into a group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Invitation)]
pub struct InvitationView {
    #[schema(format = "uuid")]
    group_id: String,
    group: String,
    /// The name of the invited user.
    name: String,
    invited_by: String,
    #[schema(value_type = String, format = "date-time")]
    created_at: Timestamp,
    #[schema(value_type = String, format = "date-time")]
    expires_at: Timestamp,
}

impl From<Invitation> for InvitationView {
    fn from(invitation: Invitation) -> Self {
        let Invitation { group, group_name, name, invited_by, created_at, expires_at } = invitation;
        Self { group_id: group.to_string(), group: group_name, name, invited_by, created_at, expires_at }
    }
}

/// The user to invite.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvitationRequest {
    /// A user name.
    #[schema(min_length = 1, max_length = 32)]
    name: String,
}

fn listed(invitations: Vec<Invitation>) -> Answer<Listed<InvitationView>> {
    Answer(Listed { items: invitations.into_iter().map(InvitationView::from).collect(), next_cursor: None })
}

/// Lists the pending invitations to a group, by name.
#[utoipa::path(get, path = "/groups/{group}/invitations", tag = "groups",
    params(("group" = String, Path, description = "Id or name")),
    responses((status = 200, body = Listed<InvitationView>),
        (status = 404, description = "Not found, or not managed by you", body = Problem)))]
pub async fn list(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Answer<Listed<InvitationView>>> {
    let found = group(&portal, &reader.0, &name).await?;
    Ok(listed(portal.access.invitations_into(found.group.id).await?))
}

/// Invites a user to a local group.
///
/// If an invitation is already pending, it is returned.
#[utoipa::path(post, path = "/groups/{group}/invitations", tag = "groups", request_body = InvitationRequest,
    params(("group" = String, Path, description = "Id or name")),
    responses((status = 201, body = InvitationView, description = "Invited, now or earlier"),
        (status = 409, description = "Already a member, recently declined, or a group of the directory",
            body = Problem),
        (status = 422, description = "There is no user with this name who can be invited", body = Problem)))]
pub async fn create(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    Json(request): Json<InvitationRequest>,
) -> Result<Created<InvitationView>> {
    let found = group(&portal, &reader.0, &name).await?;
    let (InviteOutcome::Invited(invitation) | InviteOutcome::Again(invitation)) =
        portal.access.invite(&reader.0, &found.group, &request.name).await?;
    let place = format!("/api/v1/groups/{}/invitations/{}", invitation.group, invitation.name);
    Ok(Created(place, invitation.into()))
}

/// Withdraws an invitation.
///
/// Succeeds if there is none. If an administrator does this, the user can also be invited again after declining.
#[utoipa::path(delete, path = "/groups/{group}/invitations/{name}", tag = "groups",
    params(("group" = String, Path, description = "Id or name"), ("name" = String, Path)),
    responses((status = 204, description = "The user is not invited")))]
pub async fn withdraw(
    reader: GroupReader,
    State(portal): State<Arc<Portal>>,
    Path((name, user)): Path<(String, String)>,
) -> Result<Response> {
    let found = group(&portal, &reader.0, &name).await?;
    portal.access.withdraw_invitation(&reader.0, &found.group, &user).await?;
    Ok(NoContent.into_response())
}

/// Lists your pending invitations, by group.
#[utoipa::path(get, path = "/me/invitations", tag = "me", responses((status = 200, body = Listed<InvitationView>)))]
pub async fn own(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Answer<Listed<InvitationView>>> {
    Ok(listed(portal.access.invitations_of(&user).await?))
}

/// Accepts an invitation.
///
/// You become a member of the group.
#[utoipa::path(put, path = "/me/invitations/{group}", tag = "me",
    params(("group" = String, Path, description = "Id or name")),
    responses((status = 204, description = "You are a member"),
        (status = 404, description = "No invitation to this group is pending", body = Problem)))]
pub async fn accept(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Response> {
    answer(&portal, &user, &name, true).await
}

/// Declines an invitation.
///
/// Managers of the group cannot repeat it for a week.
#[utoipa::path(delete, path = "/me/invitations/{group}", tag = "me",
    params(("group" = String, Path, description = "Id or name")),
    responses((status = 204, description = "Declined"),
        (status = 404, description = "No invitation to this group is pending", body = Problem)))]
pub async fn decline(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Response> {
    answer(&portal, &user, &name, false).await
}

async fn answer(portal: &Portal, user: &CurrentUser, group: &str, accepts: bool) -> Result<Response> {
    if portal.access.answer_invitation(user, group, accepts).await? {
        return Ok(NoContent.into_response());
    }
    Err(Error::not_found_because(
        "No invitation to this group is pending. It was answered or withdrawn, or it expired.",
    ))
}

/// `POST /invitations/{group}/accept`
pub async fn accept_by_form(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Response> {
    answer(&portal, &user, &name, true).await?;
    Ok(Redirect::to("/settings?done=accepted#groups").into_response())
}

/// `POST /invitations/{group}/decline`
pub async fn decline_by_form(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
) -> Result<Response> {
    answer(&portal, &user, &name, false).await?;
    Ok(Redirect::to("/settings?done=declined#groups").into_response())
}

/// `POST /settings/groups/{group}/leave`
pub async fn leave(user: CurrentUser, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Response> {
    if !portal.access.leave_group(&user, &name).await? {
        return Err(Error::not_found());
    }
    Ok(Redirect::to("/settings?done=left#groups").into_response())
}

/// `POST /admin/groups/{group}/invitations`
pub async fn invite_by_form(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response> {
    let found = group(&portal, &reader, &name).await?;
    let typed = form.get("name").trim();
    let outcome = portal.access.invite(&reader, &found.group, typed).await.map(drop);
    group_pages::answer(&portal, &reader, found, outcome, "invited", typed).await
}

/// `POST /admin/groups/{group}/invitations/{name}/withdraw`
pub async fn withdraw_by_form(
    GroupReader(reader): GroupReader,
    State(portal): State<Arc<Portal>>,
    Path((name, user)): Path<(String, String)>,
) -> Result<Response> {
    let found = group(&portal, &reader, &name).await?;
    portal.access.withdraw_invitation(&reader, &found.group, &user).await?;
    Ok(done(&format!("/admin/groups/{}", found.group.id), "withdrawn"))
}
