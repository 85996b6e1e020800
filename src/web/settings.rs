//! `/settings`: password, tokens, theme and sign-ins as forms, over the services that the
//! API uses. A form that was refused is drawn again with its errors and what was typed.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{
    Portal,
    claim::Claimed,
    columns,
    http::{
        error::{Error, Result},
        extract::{CurrentUser, Form, Id, Query},
        paging::Part,
        routes::Pages,
    },
    identity,
    login::ClientAddress,
    notifications, packages,
    page::{Nav, Page, Theme},
    presets, registry_credentials,
    views::{self, FieldError, InvitationRow, Moment, OwnGroup, ScopeChoice, Settings, TokenRow, source_word},
};
use crate::{
    auth::{
        Principal,
        scopes::{self, Scope},
        store::ends_at,
        tokens::NewToken,
    },
    db::tokens::Token,
    model::{Role, Timestamp, TokenId, User},
};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PageParams {
    done: Option<String>,
    /// Cursors of the list of tokens and of that of groups.
    tokens: Option<String>,
    groups: Option<String>,
}

/// How many tokens, and how many groups, a page shows.
pub(super) const SHOWN: usize = 50;

/// Adds the pages to those that are there.
pub(super) fn pages(others: Pages) -> Pages {
    others
        .and(&scopes::ACCOUNT)
        .get("/settings", page)
        .get("/settings/packages", packages::page)
        .post("/settings/packages/{name}/reset", packages::reset_by_form)
        .post("/settings/password", change_password)
        .post("/settings/tokens", make_token)
        .post("/settings/tokens/{id}/rotate", rotate_token)
        .post("/settings/tokens/{id}/revoke", revoke_token)
        .post("/settings/sign-out-everywhere", sign_out_everywhere)
        .post("/settings/registry-credentials", registry_credentials::save_by_form)
        .post("/settings/registry-credentials/{registry}/remove", registry_credentials::remove_by_form)
        .post("/settings/presets/{id}", presets::pages::change)
        .post("/settings/presets/{id}/remove", presets::pages::remove_by_form)
        .post("/settings/notifications", notifications::save)
        .post("/settings/notifications/test", notifications::save_test)
        .post("/settings/theme", set_theme)
        .post("/settings/columns", columns::choose)
}

async fn page(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let mut view = view(&portal, &user, &visit).await?;
    view.notice = visit.done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

/// What a form did, after the redirect.
fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "password" => "Your password was changed and your other sign-ins were ended.",
        "revoked" => "The token was revoked.",
        "theme" => "The theme was saved.",
        "notifications" => "Your notification settings were saved.",
        "registry" => "The credentials were saved.",
        "registry_removed" => "The credentials were removed. Images that were pulled with them stay.",
        "preset" => "The preset was saved.",
        "preset_removed" => "The preset was deleted. What was started with it continues.",
        "test" => "A test notification was sent.",
        "accepted" => "You have joined the group.",
        "declined" => "You have declined the invitation. Managers of the group cannot repeat it for a week.",
        "left" => "You have left the group. Your sessions and jobs continue.",
        _ => return None,
    })
}

async fn change_password(
    State(portal): State<Arc<Portal>>,
    user: CurrentUser,
    ClientAddress(from): ClientAddress,
    form: Form,
) -> Result<Response> {
    let outcome = if form.get("new_password") == form.get("repeat_password") {
        let (current, new) = (form.get("current_password"), form.get("new_password"));
        portal.access.change_password(&user, current, new, from).await.map_err(Error::from)
    } else {
        Err(Error::field("repeat_password", "different", "The passwords do not match."))
    };
    match outcome {
        Ok(()) => Ok(Redirect::to("/settings?done=password").into_response()),
        Err(error) => again(&portal, &user, error, |_| {}).await,
    }
}

async fn make_token(State(portal): State<Arc<Portal>>, user: CurrentUser, form: Form) -> Result<Response> {
    let outcome = match token_of_form(&form) {
        Err(error) => Err(error),
        Ok(new) => portal.access.make_token(&user, &user.user, new, None).await.map_err(Error::from),
    };
    match outcome {
        Ok((token, secret)) => with_secret(&portal, &user, token, secret).await,
        Err(error) => {
            again(&portal, &user, error, |view| {
                view.token_name = form.get("name").chars().take(200).collect();
                for scope in &mut view.scopes {
                    scope.chosen = form.all("scopes").any(|chosen| chosen == scope.name);
                }
            })
            .await
        }
    }
}

/// Reads the token that a form asks for.
///
/// # Errors
///
/// The lifetime is no number.
pub(super) fn token_of_form(form: &Form) -> Result<NewToken> {
    let expires_in_seconds = match form.get("expires") {
        "" => None,
        text => Some(text.parse().map_err(|_not_a_number: std::num::ParseIntError| {
            Error::field("expires", "invalid_type", "Select a value from the list.")
        })?),
    };
    let scopes = form.all("scopes").map(str::to_owned).collect();
    Ok(NewToken { name: form.get("name").to_owned(), scopes, expires_in_seconds })
}

/// Shows the secret of a token. No redirect: it is in no address and in no memory of ours.
async fn with_secret(portal: &Portal, user: &CurrentUser, token: Token, secret: String) -> Result<Response> {
    let mut view = view(portal, user, &PageParams::default()).await?;
    view.new_token = Some(views::NewToken { name: token.name, secret });
    Ok(Page(view).into_response())
}

async fn rotate_token(State(portal): State<Arc<Portal>>, user: CurrentUser, Id(id): Id<TokenId>) -> Result<Response> {
    let (token, secret) =
        portal.access.rotate_token(&user, &user.user, id, None).await?.ok_or_else(Error::not_found)?;
    with_secret(&portal, &user, token, secret).await
}

async fn revoke_token(State(portal): State<Arc<Portal>>, user: CurrentUser, Id(id): Id<TokenId>) -> Result<Response> {
    if portal.access.revoke_token(&user, id).await? {
        Ok(Redirect::to("/settings?done=revoked").into_response())
    } else {
        Err(Error::not_found())
    }
}

async fn sign_out_everywhere(
    State(portal): State<Arc<Portal>>,
    claimed: Claimed,
    user: CurrentUser,
) -> Result<Response> {
    portal.access.log_out_everywhere(&user).await?;
    let cookie = identity::drop_login_cookie(&portal.config);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(claimed.after_sign_out(&portal))).into_response())
}

async fn set_theme(State(portal): State<Arc<Portal>>, user: CurrentUser, form: Form) -> Result<Response> {
    portal.db.set_theme(user.id(), Theme::parse(form.get("theme")).as_str()).await?;
    portal.access.forget();
    Ok(Redirect::to("/settings?done=theme").into_response())
}

/// The page once more, with what was wrong.
pub(super) async fn again(
    portal: &Portal,
    user: &CurrentUser,
    error: Error,
    fill: impl FnOnce(&mut Settings),
) -> Result<Response> {
    if error.field_errors().is_empty() {
        return Err(error);
    }
    let mut view = view(portal, user, &PageParams::default()).await?;
    view.errors = error.field_errors().iter().map(shown).collect();
    fill(&mut view);
    Ok(error.with_page(Page(view)))
}

/// The API's fields under the names that the page has for them.
pub(super) fn shown(error: &super::http::error::FieldError) -> FieldError {
    let field = match error.field.as_str() {
        "name" => "token_name",
        "expires_in_seconds" => "expires",
        "stalled_after_seconds" => "stalled_minutes",
        other => other,
    };
    FieldError { field: field.to_owned(), message: error.message.clone() }
}

async fn view(portal: &Portal, user: &CurrentUser, visit: &PageParams) -> Result<Settings> {
    let now = portal.clock.now();
    let tokens = portal.db.list_tokens(user.id(), None, i64::MAX).await?;
    let tokens = Part::cut(
        tokens,
        SHOWN,
        visit.tokens.as_deref(),
        |token| token.id,
        |cursor| address("/settings", "tokens", cursor),
    );
    let logins = portal.db.list_logins(user.id()).await?;
    let live = logins.iter().filter(|login| now < ends_at(login));
    let principal: &Principal = user;
    let invitations = portal.access.invitations_of(principal).await?;
    let mut belongings = portal.db.belongings(user.id()).await?;
    belongings.retain(|belonging| belonging.is_member);
    let groups = Part::cut(
        belongings,
        SHOWN,
        visit.groups.as_deref(),
        |belonging| belonging.group.id,
        |cursor| address("/settings", "groups", cursor),
    );
    Ok(Settings {
        layout: portal.layout_of(&user.0, Nav::Settings),
        notice: None,
        errors: Vec::new(),
        has_local_password: principal.user.source == "local",
        tokens: token_rows(tokens.items, now),
        more_tokens: tokens.more,
        scopes: scope_choices(&principal.user),
        token_name: String::new(),
        new_token: None,
        logins: i64::try_from(live.count()).unwrap_or(i64::MAX),
        invitations: invitations.into_iter().map(|invitation| InvitationRow::new(invitation, now)).collect(),
        groups: groups
            .items
            .into_iter()
            .map(|belonging| OwnGroup {
                id: belonging.group.id.to_string(),
                source: source_word(&belonging.group.source),
                may_leave: belonging.group.is_local(),
                name: belonging.group.name,
            })
            .collect(),
        more_groups: groups.more,
        presets: presets::pages::section(portal, user).await?,
        registries: registry_credentials::section(portal, user, now).await?,
        told: views::NotificationForm::new(
            portal.notifications.overview(&principal.user).await?,
            principal.user.role,
            now,
        ),
    })
}

/// The scopes that mean something for this user's tokens.
pub(super) fn scope_choices(user: &User) -> Vec<ScopeChoice> {
    let is_useful = |scope: &Scope| match scope {
        Scope::AdminUsers | Scope::AdminQuotas => Role::Operator <= user.role || !user.manages.is_empty(),
        Scope::AdminAudit | Scope::AdminSite => user.role == Role::Admin,
        _ => true,
    };
    let choice = |scope: Scope| ScopeChoice {
        name: scope.as_str().to_owned(),
        description: scope.meaning().to_owned(),
        chosen: false,
    };
    Scope::ALL.into_iter().filter(is_useful).map(choice).collect()
}

/// The address of a page with the list of this name, from a cursor on.
pub(super) fn address(path: &str, list: &str, cursor: &str) -> String {
    if cursor.is_empty() { format!("{path}#{list}") } else { format!("{path}?{list}={cursor}#{list}") }
}

/// Tokens as pages list them.
pub(super) fn token_rows(tokens: Vec<Token>, now: Timestamp) -> Vec<TokenRow> {
    let row = |token: Token| TokenRow {
        id: token.id.to_string(),
        name: token.name,
        scopes: token.scopes,
        created: Moment::ago(token.created_at, now),
        last_used: token.last_used_at.map(|used| Moment::ago(used, now)),
        expires: Some(Moment::clock(token.expires_at, now)),
        is_expired: token.expires_at <= now,
    };
    tokens.into_iter().map(row).collect()
}
