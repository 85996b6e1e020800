//! Signs a user in on the apps' origin by redirects; `ticket` defines verifier, challenge and
//! ticket. The apps' origin redirects an unknown visitor to the portal with the challenge of their
//! verifier; the portal, where they are signed in, redirects them back with a ticket; the ticket
//! becomes the app's cookie. If the verifier does not come back with its ticket, the browser keeps
//! no cookies, and an error page says so.

use std::sync::Arc;

use axum::{
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};

use super::{SessionRequest, is_reading, origins, with_slash};
use crate::{
    auth::Principal,
    model::{LoginId, SessionId, SessionState},
    web::{
        AppsOrigin, Listener, Portal,
        http::{
            error::{Error, Result},
            extract::wants_html,
        },
        identity::{self, Cookie},
        page::Page,
        ticket,
        views::{ErrorLink, ErrorPage},
    },
};

/// Carries a ticket to the apps' origin, once.
const TICKET: &str = "lyceum_ticket";
/// Carries a verifier's challenge to the portal.
const CHALLENGE: &str = "lyceum_hand";

/// Reports how the apps' listener handles a request.
pub(super) enum Outcome {
    SignedIn(Arc<Principal>),
    /// A redirect between the origins.
    Redirect(Response),
}

/// Redirects from the portal to the apps' origin, with a ticket if a verifier waits for one.
pub(super) fn send(asking: &SessionRequest<'_>, login: LoginId, asked: &Parts) -> Result<Response> {
    let portal = asking.portal;
    let apps = origins::known(portal.app_origin(&asked.headers, asking.id))?;
    let address = match take(asked, CHALLENGE) {
        Some((challenge, target)) => {
            let ticket = portal.gateway.tickets.issue(login, asking.id, &challenge, portal.clock.now());
            format!("{apps}{}", with(&target, TICKET, &ticket))
        }
        None => format!("{apps}{}", target(asked)),
    };
    Ok(Redirect::to(&address).into_response())
}

/// Identifies the user on the apps' listener, or redirects to the portal.
pub(super) async fn meet(asking: &SessionRequest<'_>, asked: &Parts) -> Result<Outcome> {
    let portal = asking.portal;
    let visits = is_reading(asked) && wants_html(&asked.headers);
    // The cookie lies below the slash: without it nobody would ever be known.
    if let Some(address) = with_slash(&asked.uri).filter(|_| is_reading(asked)) {
        return Ok(Outcome::Redirect(Redirect::to(&address).into_response()));
    }
    let name = Cookies::of(portal).app(asking.id);
    let cookie = identity::cookie(&asked.headers, &name);
    let known = match cookie {
        Cookie::One(value) => match ticket::open(&portal.gateway.key, value, asking.id) {
            Some(login) => stands(portal, login, &asked.headers).await?,
            None => None,
        },
        // Two of them are nobody's: a page of a neighbouring port may have put one there.
        Cookie::None | Cookie::Two => None,
    };
    if is_reading(asked)
        && let Some((ticket, clean)) = take(asked, TICKET)
    {
        if known.is_some() {
            return Ok(Outcome::Redirect(Redirect::to(&clean).into_response()));
        }
        return redeem(asking, &ticket, &clean, asked).await.map(Outcome::Redirect);
    }
    let route = portal.sessions.find_route(asking.id).await?;
    let running = route.is_some_and(|route| route.state == SessionState::Running);
    match known {
        Some(principal) if running || !visits => Ok(Outcome::SignedIn(principal)),
        None if !visits => Err(Error::unauthenticated()),
        None if cookie == Cookie::Two => no_cookies(asking, asked).map(Outcome::Redirect),
        // The portal has the page that says why there is nothing to see.
        _ if !running => {
            let back = origins::known(portal.portal_seen_from(Listener::Apps, &asked.headers))?;
            Ok(Outcome::Redirect(Redirect::to(&format!("{back}{}", target(asked))).into_response()))
        }
        _ => ask_for_ticket(asking, &target(asked), &asked.headers).map(Outcome::Redirect),
    }
}

/// Sets a verifier cookie if there is none, and redirects to the portal with its challenge.
fn ask_for_ticket(asking: &SessionRequest<'_>, target: &str, headers: &HeaderMap) -> Result<Response> {
    let portal = asking.portal;
    let back = origins::known(portal.portal_seen_from(Listener::Apps, headers))?;
    let cookies = Cookies::of(portal);
    let (verifier, fresh) = match identity::cookie(headers, cookies.verifier()) {
        Cookie::One(verifier) if verifier.len() == 43 => (verifier.to_owned(), None),
        _ => {
            let verifier = ticket::new_hand();
            let cookie = cookies.set(cookies.verifier(), &verifier, "/s/");
            (verifier, Some((header::SET_COOKIE, cookie)))
        }
    };
    let address = format!("{back}{}", with(target, CHALLENGE, &ticket::challenge(&verifier)));
    Ok((AppendHeaders(fresh), Redirect::to(&address)).into_response())
}

/// A ticket for the app's cookie, in the browser that it was written for.
async fn redeem(asking: &SessionRequest<'_>, ticket: &str, clean: &str, asked: &Parts) -> Result<Response> {
    let portal = asking.portal;
    let cookies = Cookies::of(portal);
    let Cookie::One(verifier) = identity::cookie(&asked.headers, cookies.verifier()) else {
        return no_cookies(asking, asked);
    };
    let login = portal.gateway.tickets.redeem(ticket, asking.id, verifier, portal.clock.now());
    if let Some(login) = login
        && stands(portal, login, &asked.headers).await?.is_some()
    {
        let value = ticket::seal(&portal.gateway.key, login, asking.id);
        let path = format!("/s/{}/", asking.id);
        let cookie = cookies.set(&cookies.app(asking.id), &value, &path);
        return Ok(([(header::SET_COOKIE, cookie)], Redirect::to(clean)).into_response());
    }
    // Used before (a page loaded again), too old, or another browser's: ask for one's own.
    ask_for_ticket(asking, clean, &asked.headers)
}

/// Whose login this is. Where both origins have one host, the browser shows its login cookie
/// here too: it opens nothing, but one of somebody else says that the app's cookie was put
/// there for this person to be led into another's session. On a host of a session's own only
/// a neighbour can have put one there, and it says nothing.
async fn stands(portal: &Portal, login: LoginId, headers: &HeaderMap) -> Result<Option<Arc<Principal>>> {
    let shown = match portal.config.apps {
        AppsOrigin::Subdomain(_) => Cookie::None,
        _ => identity::login_cookie(headers, &portal.config),
    };
    Ok(match shown {
        Cookie::None => portal.access.by_login(login).await?,
        Cookie::One(secret) => portal.access.by_cookie(secret).await?.filter(|found| found.login() == Some(login)),
        Cookie::Two => None,
    })
}

/// The end of a journey that would go round in circles.
fn no_cookies(asking: &SessionRequest<'_>, asked: &Parts) -> Result<Response> {
    let again = origins::known(asking.portal.open_url(&asked.headers, asking.id))?;
    let error = Error::forbidden(
        "To open this session, your browser must accept one cookie from this address. Allow cookies here, or delete \
         those of this address, and try again. Links that other users copied from their address bar do not work.",
    );
    let page = ErrorPage {
        layout: asking.portal.bare_layout(&asked.headers),
        status: error.status().as_u16(),
        title: "The browser's cookie is missing".to_owned(),
        detail: error.detail().to_owned(),
        kind: String::new(),
        request_id: String::new(),
        ways: vec![ErrorLink { href: again, label: "Try again".to_owned() }],
    };
    Ok(error.with_page(Page(page)))
}

/// How the cookies of the apps' origin are called and set.
#[derive(Clone, Copy)]
struct Cookies {
    https: bool,
    /// The host is one session's alone, and by HTTPS: then a prefix keeps neighbouring hosts
    /// from setting cookies of these names, and wants the whole host for a path.
    prefixed: bool,
}

impl Cookies {
    fn of(portal: &Portal) -> Self {
        let https = portal.config.is_https();
        Self { https, prefixed: https && matches!(portal.config.apps, AppsOrigin::Subdomain(_)) }
    }

    /// Tells one browser from another.
    fn verifier(self) -> &'static str {
        if self.prefixed { "__Host-lyceum_hand" } else { "lyceum_hand" }
    }

    /// Lets a login into one session.
    fn app(self, session: SessionId) -> String {
        format!("{}lyceum_app_{}", if self.prefixed { "__Host-" } else { "" }, session.short())
    }

    fn set(self, name: &str, value: &str, path: &str) -> HeaderValue {
        let path = if self.prefixed { "/" } else { path };
        let secure = if self.https { "; Secure" } else { "" };
        HeaderValue::from_str(&format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}"))
            .expect("ids and base64 are visible ASCII")
    }
}

fn target(asked: &Parts) -> String {
    asked.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned()
}

/// A parameter of ours, and the address without it.
fn take(asked: &Parts, name: &str) -> Option<(String, String)> {
    let (path, query) = (asked.uri.path(), asked.uri.query()?);
    let value =
        |pair: &str| pair.split_once('=').filter(|(found, _)| *found == name).map(|(_, value)| value.to_owned());
    let found = query.split('&').find_map(value)?;
    let rest: Vec<&str> = query.split('&').filter(|pair| value(pair).is_none()).collect();
    let clean = if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) };
    Some((found, clean))
}

fn with(target: &str, name: &str, value: &str) -> String {
    let glue = if target.contains('?') { '&' } else { '?' };
    format!("{target}{glue}{name}={value}")
}
