//! `/welcome`: the owner of a local account sets the first password, or a new one, by a link. The link has its secret
//! behind `#`, so a script moves it into the form; without scripts it is pasted.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};

use crate::{
    auth,
    web::{
        Identity, Portal,
        http::{
            error::{Error, Result},
            extract::Form,
        },
        identity::set_form_cookie,
        login::form_cookie,
        page::{Nav, Page},
        views::Welcome,
    },
};

pub async fn page(State(portal): State<Arc<Portal>>, headers: HeaderMap) -> Response {
    draw(&portal, &headers, String::new(), None)
}

pub async fn accept(State(portal): State<Arc<Portal>>, headers: HeaderMap, form: Form) -> Result<Response> {
    // The whole link is pasted too.
    let typed = form.get("code").trim();
    let code = typed.rsplit_once('#').map_or(typed, |(_, code)| code);
    let outcome = if form.get("password") == form.get("password_again") {
        portal.access.accept_account_invitation(code, form.get("password")).await
    } else {
        let (field, code, message) = ("password_again", "invalid_value", "the two passwords differ".to_owned());
        Err(auth::Error::Field { field, code, message })
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/login?welcome=1").into_response()),
        Err(error @ auth::Error::Field { .. }) => {
            let error = Error::from(error);
            let page = draw(&portal, &headers, code.to_owned(), error.field_errors().first().cloned());
            Ok(error.with_page(page))
        }
        Err(error) => Err(error.into()),
    }
}

fn draw(portal: &Portal, headers: &HeaderMap, code: String, error: Option<crate::model::FieldError>) -> Response {
    let (cookie, is_new) = form_cookie(portal, headers);
    let mut layout = portal.layout(&Identity::Nobody, Nav::None);
    layout.csrf_token = portal.access.form_token(&cookie);
    let set_cookie = is_new.then(|| (header::SET_COOKIE, set_form_cookie(&portal.config, &cookie)));
    (AppendHeaders(set_cookie), Page(Welcome { layout, code, error })).into_response()
}
