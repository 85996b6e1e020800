//! The way into apps, `/s/{session}/…`: who may enter is decided here for every request and
//! upgrade, from memory; passing it on is `proxy`'s business. On the portal's own origin
//! programs come with a token and people are led to the apps' origin, where a cookie of that
//! one session lets them in; in path mode there is one origin for both.

use std::{collections::HashMap, net::IpAddr, path::Path, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use parking_lot::RwLock;
use url::Url;

use super::{
    AppsOrigin, Portal, cards,
    error::{Error, Result},
    extract::wants_html,
    finish::FromApp,
    guard,
    identity::{self, Cookie, Identity},
    page::{Layout, Nav, Page},
    ticket,
    views::{self, TerminalPage},
};
use crate::{
    auth::{Credential, Principal},
    dial::Endpoint,
    model::{LoginId, SessionId, SessionState},
    proxy::{self, Activity, Holder, PathFault, Proxy, Rules, Upstream, session_path},
    sessions::Route,
};

/// What the way into apps is made of.
pub struct Gateway {
    pub proxy: Proxy,
    pub tickets: ticket::Tickets,
    /// Seals the apps' cookies.
    pub key: [u8; 32],
    upstreams: RwLock<HashMap<SessionId, Upstream>>,
}

/// The parameter that carries a ticket to the apps' origin, once.
const TICKET: &str = "lyceum_ticket";

impl Gateway {
    pub fn new(proxy: Proxy, key: [u8; 32]) -> Self {
        Self { proxy, tickets: ticket::Tickets::default(), key, upstreams: RwLock::default() }
    }

    /// Where a running session's requests go; remembered, since every request asks.
    fn upstream(&self, route: &Route) -> Option<Upstream> {
        let endpoint = match (&route.port, &route.socket) {
            (Some(port), _) => Endpoint::Port(*port),
            (None, Some(path)) => Endpoint::Socket(Arc::from(path.as_path() as &Path)),
            (None, None) => return None,
        };
        if let Some(known) = self.upstreams.read().get(&route.session)
            && known.endpoint == endpoint
            && known.uid == route.uid
        {
            return Some(known.clone());
        }
        let activity =
            self.upstreams.read().get(&route.session).map_or_else(Arc::default, |known| known.activity.clone());
        let upstream = Upstream { session: route.session, endpoint, uid: route.uid, activity };
        self.upstreams.write().insert(route.session, upstream.clone());
        Some(upstream)
    }

    /// A session has ended: nothing of it may be reached any more.
    pub fn forget(&self, session: SessionId) {
        self.upstreams.write().remove(&session);
        self.proxy.drop_session(session);
    }

    /// Every session's traffic, for those who judge idleness.
    pub fn activity(&self) -> Vec<(SessionId, Arc<Activity>)> {
        self.upstreams.read().iter().map(|(id, upstream)| (*id, upstream.activity.clone())).collect()
    }
}

/// `/s/…` on the portal's own listener.
pub async fn on_portal(State(portal): State<Arc<Portal>>, request: Request) -> Result<Response> {
    let (asked, body) = request.into_parts();
    let id = parse(&asked)?;
    let identity = asked.extensions.get::<Identity>().cloned().unwrap_or(Identity::Nobody);
    let principal = identity.principal()?.ok_or_else(Error::unauthenticated)?;
    let Credential::Login { id: login, .. } = principal.credential else {
        if !principal.scopes_allow("GET", "/s/{*rest}") {
            return Err(Error::forbidden("This token's scopes do not include `sessions:connect`."));
        }
        return enter(&portal, &principal, id, asked, body).await;
    };
    if portal.config.apps == AppsOrigin::Path {
        check_origin(&asked, |headers| guard::origin_is_ours(headers, &portal.config))?;
        return enter(&portal, &principal, id, asked, body).await;
    }
    // A person: once it runs, their browser goes to the apps' origin with a ticket.
    match portal.sessions.routes.find(id).filter(|route| route.owner == principal.id()) {
        None => return closed(&portal, &principal, id, &asked).await,
        Some(route) if route.state != SessionState::Running => {
            return waiting(&portal, &principal, id, &asked).await;
        }
        Some(_) => {}
    }
    if !matches!(asked.method, Method::GET | Method::HEAD) || guard::is_upgrade(&asked.headers) {
        return Err(Error::not_same_origin());
    }
    let ticket = portal.gateway.tickets.issue(login, id, portal.clock.now());
    let target = asked.uri.path_and_query().map_or("/", |target| target.as_str());
    let glue = if target.contains('?') { '&' } else { '?' };
    let address = format!("{}{target}{glue}{TICKET}={ticket}", portal.apps_origin(&asked.headers));
    Ok(Redirect::to(&address).into_response())
}

/// `/s/…` on the apps' listener. The login cookie means nothing here.
pub async fn on_apps(State(portal): State<Arc<Portal>>, request: Request) -> Result<Response> {
    let (asked, body) = request.into_parts();
    let id = parse(&asked)?;
    if let Some((secret, clean)) = take_ticket(&asked) {
        let now = portal.clock.now();
        let login = portal.gateway.tickets.redeem(&secret, id, now);
        return Ok(match login {
            Some(login) => {
                let cookie = app_cookie(&portal, login, id);
                ([(header::SET_COOKIE, cookie)], Redirect::to(&clean)).into_response()
            }
            // Used before (a page loaded again), or too old: ask for another one.
            None => Redirect::to(&format!("{}{clean}", portal.portal_origin(&asked.headers))).into_response(),
        });
    }
    let running = portal.sessions.routes.find(id).is_some_and(|route| route.state == SessionState::Running);
    let principal = known_here(&portal, id, &asked.headers).await?;
    // A page visit gets its ticket, or the page that says why there is nothing, from the portal.
    if (principal.is_none() || !running) && asked.method == Method::GET && wants_html(&asked.headers) {
        let target = asked.uri.path_and_query().map_or("/", |target| target.as_str());
        return Ok(Redirect::to(&format!("{}{target}", portal.portal_origin(&asked.headers))).into_response());
    }
    let principal = principal.ok_or_else(Error::unauthenticated)?;
    check_origin(&asked, |headers| apps_origin_is_ours(&portal, headers))?;
    enter(&portal, &principal, id, asked, body).await
}

impl Portal {
    /// The origin that apps have for this browser: the portal's own in path mode.
    pub fn apps_origin(&self, headers: &HeaderMap) -> String {
        self.config.apps_origin(headers).unwrap_or_else(|| self.config.origin(headers))
    }

    /// The portal's own origin, also when the apps' listener was asked: same host, our port.
    pub fn portal_origin(&self, headers: &HeaderMap) -> String {
        let origin = self.config.origin(headers);
        match (&self.config.apps, &self.config.public_url) {
            (AppsOrigin::Port(apps), None) => match Url::parse(&origin) {
                Ok(mut url) if url.port_or_known_default() == Some(*apps) => {
                    let _ = url.set_port(Some(self.config.port));
                    url.origin().ascii_serialization()
                }
                _ => origin,
            },
            _ => origin,
        }
    }

    /// Where a person's browser goes to use a session.
    pub fn open_url(&self, headers: &HeaderMap, id: SessionId) -> String {
        format!("{}/s/{id}/", self.apps_origin(headers))
    }
}

/// The session of a path; tricks name nothing.
fn parse(asked: &Parts) -> Result<SessionId> {
    session_path(asked.uri.path()).map(|(id, _)| id).map_err(|fault| match fault {
        PathFault::NoSession => Error::not_found(),
        PathFault::DotSegment => Error::malformed("The address has a dot segment."),
    })
}

/// What a cookie must prove beyond itself, since the app's own checks are off behind us:
/// upgrades and changes come from this very origin, and other sites may only link.
fn check_origin(asked: &Parts, is_ours: impl Fn(&HeaderMap) -> bool) -> Result<()> {
    let headers = &asked.headers;
    if guard::is_upgrade(headers) {
        return if is_ours(headers) { Ok(()) } else { Err(Error::not_same_origin()) };
    }
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let reads = matches!(asked.method, Method::GET | Method::HEAD);
    let proven = match word("sec-fetch-site") {
        Some("same-origin") => true,
        Some("none") => reads,
        Some(_) => reads && word("sec-fetch-mode") == Some("navigate") && word("sec-fetch-dest") == Some("document"),
        None => reads || is_ours(headers),
    };
    if proven { Ok(()) } else { Err(Error::not_same_origin()) }
}

fn apps_origin_is_ours(portal: &Portal, headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
    origin.to_str().is_ok_and(|origin| proxy::origin_matches(origin, &portal.apps_origin(headers)))
}

/// Whoever this session's own cookie stands for. Two of them are none.
async fn known_here(portal: &Portal, id: SessionId, headers: &HeaderMap) -> Result<Option<Arc<Principal>>> {
    let name = ticket::cookie_name(id);
    let Cookie::One(value) = identity::cookie(headers, &name) else { return Ok(None) };
    let Some(login) = ticket::open(&portal.gateway.key, value, id) else { return Ok(None) };
    Ok(portal.access.by_login(login).await?)
}

fn app_cookie(portal: &Portal, login: LoginId, id: SessionId) -> HeaderValue {
    let secure = if portal.config.is_https() { "; Secure" } else { "" };
    let value = ticket::seal(&portal.gateway.key, login, id);
    let cookie = format!("{}={value}; Path=/s/{id}/; HttpOnly; SameSite=Lax{secure}", ticket::cookie_name(id));
    HeaderValue::from_str(&cookie).expect("ids and base64 are visible ASCII")
}

/// The ticket of a request and its address without it.
fn take_ticket(asked: &Parts) -> Option<(String, String)> {
    let query = asked.uri.query()?;
    let mut secret = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.split_once('=') {
            Some((TICKET, value)) => {
                secret = Some(value.to_owned());
                false
            }
            _ => true,
        })
        .collect();
    let path = asked.uri.path();
    let clean = if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) };
    secret.map(|secret| (secret, clean))
}

/// Lets somebody in whose identity is settled: if it is theirs, and if it runs.
async fn enter(
    portal: &Arc<Portal>,
    principal: &Arc<Principal>,
    id: SessionId,
    asked: Parts,
    body: Body,
) -> Result<Response> {
    let Some(route) = portal.sessions.routes.find(id).filter(|route| route.owner == principal.id()) else {
        return closed(portal, principal, id, &asked).await;
    };
    if route.state != SessionState::Running {
        return waiting(portal, principal, id, &asked).await;
    }
    let path = asked.uri.path();
    if path.len() == "/s/".len() + 36 {
        return Ok(Redirect::to(&format!("{path}/")).into_response());
    }
    if route.app == "terminal" && path.ends_with('/') && path.len() == "/s//".len() + 36 && wants_html(&asked.headers) {
        return terminal(portal, principal, id, &asked.headers).await;
    }
    let Some(upstream) = portal.gateway.upstream(&route) else {
        return waiting(portal, principal, id, &asked).await;
    };
    let access = match principal.credential {
        Credential::Login { id, .. } => proxy::Access::Login(id),
        Credential::Token { id, .. } => proxy::Access::Token(id),
    };
    let authorization = route.authorization.as_deref().map(HeaderValue::from_str);
    let rules = Rules {
        strip_prefix: route.strip_prefix,
        path_mode: portal.config.apps == AppsOrigin::Path,
        authorization: authorization.transpose().map_err(Error::internal)?,
        client: client(portal, &asked),
        scheme: if portal.config.is_https() { "https" } else { "http" },
        active: is_use(&asked),
        holder: Holder { user: principal.id(), access },
    };
    let mut response = match portal.gateway.proxy.forward(Request::from_parts(asked, body), &upstream, &rules).await {
        Ok(response) => response,
        Err(error) => return Err(error.into()),
    };
    response.extensions_mut().insert(FromApp);
    Ok(response)
}

fn client(portal: &Portal, asked: &Parts) -> IpAddr {
    identity::client_address(&portal.config, &asked.headers, &asked.extensions)
}

/// Whether a request is somebody's doing: pages poll by themselves, and an open tab alone
/// must not keep a session alive.
fn is_use(asked: &Parts) -> bool {
    match asked.headers.get("sec-fetch-mode") {
        Some(mode) => mode.as_bytes() == b"navigate" || !matches!(asked.method, Method::GET | Method::HEAD),
        None => true,
    }
}

/// Not theirs, or over: 404, or the page that says why it ended.
async fn closed(portal: &Portal, principal: &Arc<Principal>, id: SessionId, asked: &Parts) -> Result<Response> {
    let session = portal.db.find_session(id).await?.filter(|session| session.owner == principal.id());
    let Some(session) = session else { return Err(Error::not_found()) };
    if session.state.is_live() {
        return waiting(portal, principal, id, asked).await;
    }
    if !wants_html(&asked.headers) {
        return Err(Error::ended("This session has ended. Its page says why, and starts it again."));
    }
    let layout = app_layout(portal, principal, &asked.headers);
    let standing = portal.sessions.standing(session.owner).await?;
    let card = cards::card(portal, principal, &asked.headers, &session, &standing.limits);
    Ok(Error::ended("This session has ended.").with_page(Page(views::Ended::new(layout, card))))
}

/// It waits or starts: a page for people, 503 for programs.
async fn waiting(portal: &Portal, principal: &Arc<Principal>, id: SessionId, asked: &Parts) -> Result<Response> {
    let session = portal.db.find_session(id).await?.filter(|session| session.owner == principal.id());
    let Some(session) = session else { return Err(Error::not_found()) };
    let reads = matches!(asked.method, Method::GET | Method::HEAD);
    if !reads || guard::is_upgrade(&asked.headers) || !wants_html(&asked.headers) {
        return Err(Error::unavailable("This session does not run yet. Try again in a moment.", 2));
    }
    let layout = app_layout(portal, principal, &asked.headers);
    let standing = portal.sessions.standing(session.owner).await?;
    let card = cards::card(portal, principal, &asked.headers, &session, &standing.limits);
    let doing = portal.sessions.live(id).status.map(|status| status.step);
    let steps = views::ShowSession::steps(&session, doing.as_deref());
    Ok(Page(views::Waiting::new(layout, card, steps)).into_response())
}

async fn terminal(portal: &Portal, principal: &Arc<Principal>, id: SessionId, headers: &HeaderMap) -> Result<Response> {
    let session = portal.db.find_session(id).await?.ok_or_else(Error::not_found)?;
    let place =
        session.placement.map_or_else(String::new, |placement| format!("{}@{}", placement.unix_name, placement.node));
    let layout = app_layout(portal, principal, headers);
    let page = TerminalPage { layout, id: id.to_string(), name: session.name, place };
    let mut response = Page(page).into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(guard::TERMINAL_POLICY));
    Ok(response)
}

/// Pages on the apps' origin link back to the portal and carry none of its secrets.
fn app_layout(portal: &Portal, principal: &Arc<Principal>, headers: &HeaderMap) -> Layout {
    let layout = portal.layout_of(principal, Nav::None);
    if portal.config.apps == AppsOrigin::Path {
        return layout;
    }
    Layout { csrf_token: String::new(), portal: portal.portal_origin(headers), ..layout }
}

impl From<proxy::Error> for Error {
    fn from(err: proxy::Error) -> Self {
        match err {
            proxy::Error::ServiceWorker => {
                Self::forbidden("An app on the portal's own address may not install a service worker.")
            }
            proxy::Error::Path(_) | proxy::Error::Target(_) | proxy::Error::Value(_) | proxy::Error::RequestBody(_) => {
                Self::malformed("This address or header cannot be passed on to an app.")
            }
            proxy::Error::TooManyConnections => {
                Self::unavailable("This session has too many connections open. Close some of its tabs.", 5)
            }
            proxy::Error::Cut => Self::unauthenticated(),
            away => Self::outage(
                "The session's program does not answer. It may be busy, or it has just ended: look at its card on the home page.",
                3,
                away,
            ),
        }
    }
}
