//! The way into apps, `/s/{session}/…`: who may enter is decided here for every request and
//! upgrade, from memory; passing it on is `proxy`'s business. On the portal's own origin
//! programs come with a token and people are led to the apps' origin, where a cookie of that
//! one session lets them in (`handover`); in path mode there is one origin for both, in
//! subdomain mode one for each session, whose name the Host must be (`hosts`). Nothing
//! else stands around these requests, so errors, numbers and log lines are seen to here too.

mod handover;
mod hosts;
mod origins;
mod pages;
mod watch;

use std::{any::Any, collections::HashMap, ops::Range, panic::AssertUnwindSafe, path::Path, sync::Arc, time::Instant};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, Uri, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use futures_util::FutureExt;
use parking_lot::RwLock;

pub(super) use self::hosts::is_below;
pub use self::watch::{cut_what_lost_access, expected, forget_ended};
use super::{
    APP, AppsOrigin, Listener, Portal,
    claim::{self, Claimed},
    http::{
        error::{Error, Result},
        extract::wants_html,
        forwarded, guard,
        request_scope::{self, RequestFacts},
    },
    identity::Identity,
    ticket,
};
use crate::{
    auth::{Credential, Principal, scopes},
    dial::Endpoint,
    model::{SessionId, SessionState, token},
    nodes::Nodes,
    protocol::node::Door,
    proxy::{self, Activity, Holder, PathFault, Proxy, Rules, Upstream, session_path},
    sessions::Route,
};

/// What the way into apps is made of.
pub struct Gateway {
    pub proxy: Proxy,
    pub tickets: ticket::Tickets,
    /// Seals the apps' cookies.
    pub key: [u8; 32],
    /// How agents on other nodes are reached.
    pub nodes: Arc<Nodes>,
    upstreams: RwLock<HashMap<SessionId, Upstream>>,
}

impl Gateway {
    pub fn new(proxy: Proxy, key: [u8; 32], nodes: Arc<Nodes>) -> Self {
        Self { proxy, tickets: ticket::Tickets::default(), key, nodes, upstreams: RwLock::default() }
    }

    /// Where a running session's requests go; remembered, since every request asks.
    fn upstream(&self, route: &Route) -> Option<Upstream> {
        let known = self.upstreams.read().get(&route.session).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.uid == route.uid && leads_to(&known.endpoint, route)) {
            return Some(known.clone());
        }
        let endpoint = match (&route.link, &route.port, &route.socket) {
            (Some(link), port, Some(path)) => {
                let door = if port.is_some() { Door::Port } else { Door::parse(path.file_name()?.to_str()?)? };
                let endpoint = self.nodes.endpoint(route.session, link, path.parent()?, route.uid, door);
                Endpoint::Node(Arc::new(endpoint))
            }
            (None, Some(port), _) => Endpoint::Port(*port),
            (None, None, Some(path)) => Endpoint::Socket(Arc::from(path.as_path() as &Path)),
            (_, _, None) => return None,
        };
        let activity = known.map_or_else(Arc::default, |known| known.activity);
        let upstream = Upstream { session: route.session, endpoint, uid: route.uid, activity };
        self.upstreams.write().insert(route.session, upstream.clone());
        Some(upstream)
    }

    /// A session has ended: nothing of it may be reached any more.
    pub fn forget(&self, session: SessionId) {
        self.upstreams.write().remove(&session);
        self.nodes.forget(session);
        self.proxy.drop_session(session);
    }

    /// Every session's traffic, for those who judge idleness.
    pub fn activity(&self) -> Vec<(SessionId, Arc<Activity>)> {
        self.upstreams.read().iter().map(|(id, upstream)| (*id, upstream.activity.clone())).collect()
    }
}

fn leads_to(endpoint: &Endpoint, route: &Route) -> bool {
    match (endpoint, &route.link) {
        (Endpoint::Node(node), link) => Some(node.link()) == link.as_ref(),
        (_, Some(_)) => false,
        (Endpoint::Port(port), None) => route.port == Some(*port),
        (Endpoint::Socket(path), None) => route.port.is_none() && route.socket.as_deref() == Some(path),
    }
}

/// `/s/…` on the portal's own listener.
pub async fn on_portal(State(portal): State<Arc<Portal>>, request: Request) -> Response {
    answer(&portal, Listener::Portal, request).await
}

/// `/s/…` on the apps' listener. The login cookie means nothing here.
pub async fn on_apps(State(portal): State<Arc<Portal>>, request: Request) -> Response {
    answer(&portal, Listener::Apps, request).await
}

/// `/` on a session's own name.
pub(super) async fn front_door(State(portal): State<Arc<Portal>>, headers: HeaderMap) -> Result<Redirect> {
    match &portal.config.apps {
        AppsOrigin::Subdomain(domain) => hosts::front_door(&headers, domain),
        _ => Err(Error::not_found()),
    }
}

/// Where a path below `/s/` that names a session names it.
const SESSION: Range<usize> = 3..39;

/// What an app has answered, or an answer of ours.
enum Answer {
    /// It goes out as it is.
    FromApp(Response),
    Ours(Response),
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Ours(response)
    }
}

/// Lets a request in, or says why not.
pub(super) async fn answer(portal: &Arc<Portal>, side: Listener, mut request: Request) -> Response {
    let started = Instant::now();
    let claimed = claim::take(portal, &mut request);
    let asked = RequestFacts::of(side, request.method(), request.uri(), request.headers());
    let mut who = Identity::Nobody;
    let judged = AssertUnwindSafe(let_in(portal, side, request, &claimed, &mut who)).catch_unwind().await;
    let judged = judged.unwrap_or_else(|panic| Ok(Answer::Ours(request_scope::panicked(panic as Box<dyn Any + Send>))));
    let count = |response: &Response| {
        let (status, elapsed) = (response.status().as_u16(), started.elapsed());
        portal.metrics.answered(asked.method.as_str(), APP, status, elapsed);
        (status, u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    };
    let method = asked.method.as_str();
    match judged {
        Ok(Answer::FromApp(response)) => {
            let (status, milliseconds) = count(&response);
            // A notebook asks several times a second: its traffic is told on demand only.
            tracing::debug!(
                method,
                route = APP,
                status,
                milliseconds,
                user = who.user_id_for_log(),
                "request forwarded"
            );
            response
        }
        judged => {
            let response = match judged {
                Ok(Answer::Ours(response) | Answer::FromApp(response)) => response,
                Err(error) => error.into_response(),
            };
            let id = request_scope::request_id();
            let response = request_scope::complete(portal, &asked, &who, &id, response);
            let (status, milliseconds) = count(&response);
            // So are its attempts to reach an app that is away.
            if status < 500 {
                tracing::info!(
                    request_id = id,
                    method,
                    route = APP,
                    status,
                    milliseconds,
                    user = who.user_id_for_log(),
                    "answered"
                );
            } else {
                tracing::debug!(
                    request_id = id,
                    method,
                    route = APP,
                    status,
                    milliseconds,
                    user = who.user_id_for_log(),
                    "answered"
                );
            }
            response
        }
    }
}

/// Settles who is asking, by the rules of the listener that was asked.
async fn let_in(
    portal: &Arc<Portal>,
    side: Listener,
    request: Request,
    claimed: &Claimed,
    who: &mut Identity,
) -> Result<Answer> {
    let (mut asked, body) = request.into_parts();
    let id = session_path(asked.uri.path()).map(|(id, _)| id).map_err(|fault| match fault {
        PathFault::NoSession => Error::not_found(),
        PathFault::DotSegment => Error::malformed("The address contains the segment `.` or `..`."),
    })?;
    let asking = SessionRequest { portal, side, id, generation: portal.access.generation() };
    match side {
        Listener::Portal => {
            let own = match portal.config.apps {
                AppsOrigin::Path => take_the_apps_own(&mut asked.headers),
                _ => Vec::new(),
            };
            *who = Identity::of(portal, &asked.headers, claimed).await;
            for value in own {
                asked.headers.append(header::AUTHORIZATION, value);
            }
            let principal = who.principal()?.ok_or_else(Error::unauthenticated)?;
            asking.on_portal(&principal, asked, body).await
        }
        Listener::Apps => {
            if let AppsOrigin::Subdomain(domain) = &portal.config.apps
                && !hosts::names(&asked.headers, &asked.uri.path()[SESSION], domain)
            {
                return Err(Error::not_found());
            }
            match handover::meet(&asking, &asked).await? {
                handover::Outcome::SignedIn(principal) if claimed.contradicts(&principal) => {
                    Err(Error::unauthenticated())
                }
                handover::Outcome::SignedIn(principal) => {
                    *who = Identity::Somebody(principal.clone());
                    origins::check(&asked, |headers| origins::is_apps(portal, headers, id))?;
                    asking.enter(&principal, asked, body).await
                }
                handover::Outcome::Redirect(response) => Ok(response.into()),
            }
        }
    }
}

/// An app's pages may send what the app takes for proof of itself: a secret that it asks for, or the
/// token that JupyterLab puts into its pages. On an origin of their own nobody looks at it; here
/// it would be taken for a token of ours that is no good. What does not have the form of one is
/// the app's alone, and whoever sends it is judged by their cookie.
fn take_the_apps_own(headers: &mut HeaderMap) -> Vec<HeaderValue> {
    let values = headers.get_all(header::AUTHORIZATION);
    if values.iter().any(|value| token::holds_token(value.as_bytes())) {
        return Vec::new();
    }
    let own = values.iter().cloned().collect();
    headers.remove(header::AUTHORIZATION);
    own
}

/// Describes a request for a session, with the state at its arrival.
struct SessionRequest<'a> {
    portal: &'a Arc<Portal>,
    side: Listener,
    id: SessionId,
    /// Of the access, before anybody was judged.
    generation: i64,
}

impl SessionRequest<'_> {
    async fn on_portal(&self, principal: &Arc<Principal>, asked: Parts, body: Body) -> Result<Answer> {
        let portal = self.portal;
        let Credential::Login { id: login, .. } = principal.credential else {
            if !principal.scopes_allow(scopes::APPS.look) {
                return Err(Error::forbidden(
                    "This token's scopes do not allow this. It needs the scope `sessions:connect`.",
                ));
            }
            return self.enter(principal, asked, body).await;
        };
        origins::check(&asked, |headers| guard::origin_is_ours(headers, &portal.config))?;
        if portal.config.apps == AppsOrigin::Path {
            return self.enter(principal, asked, body).await;
        }
        // A person: once it runs, their browser goes to the apps' origin.
        match self.own_route(principal).await? {
            None => self.closed(principal, &asked).await,
            Some(route) if route.state != SessionState::Running => self.waiting(principal, &asked).await,
            Some(_) if !is_reading(&asked) => Err(Error::not_same_origin()),
            Some(_) => Ok(handover::send(self, login, &asked)?.into()),
        }
    }

    async fn own_route(&self, principal: &Principal) -> Result<Option<Arc<Route>>> {
        let route = self.portal.sessions.find_route(self.id).await?;
        Ok(route.filter(|route| route.owner == principal.id()))
    }

    /// Lets somebody in whose identity is settled: if it is theirs, and if it runs.
    async fn enter(&self, principal: &Arc<Principal>, asked: Parts, body: Body) -> Result<Answer> {
        let portal = self.portal;
        let Some(route) = self.own_route(principal).await? else {
            return self.closed(principal, &asked).await;
        };
        if route.state != SessionState::Running {
            return self.waiting(principal, &asked).await;
        }
        if let Some(address) = with_slash(&asked.uri) {
            return Ok(Redirect::to(&address).into_response().into());
        }
        if route.is_terminals && is_front_page(&asked.uri) && is_reading(&asked) && wants_html(&asked.headers) {
            return self.terminal(principal, &asked.headers).await;
        }
        let Some(upstream) = portal.gateway.upstream(&route) else {
            return self.waiting(principal, &asked).await;
        };
        let access = match principal.credential {
            Credential::Login { id, .. } => proxy::Access::Login(id),
            Credential::Token { id, .. } => proxy::Access::Token(id),
        };
        let holder = Holder { user: principal.id(), access };
        let authorization = route.authorization.as_deref().map(HeaderValue::from_str);
        let rules = Rules {
            strip_prefix: route.strip_prefix,
            path_mode: portal.config.apps == AppsOrigin::Path,
            authorization: authorization.transpose().map_err(Error::internal)?,
            client: forwarded::client_address(&portal.config, &asked.headers, &asked.extensions),
            scheme: portal.config.scheme(),
            active: is_use(&asked, &principal.credential),
            holder,
        };
        let answer = portal.gateway.proxy.forward(Request::from_parts(asked, body), &upstream, &rules).await;
        self.judge_again(principal, holder).await?;
        match answer {
            // Their access stands: it is the session that has ended.
            Err(proxy::Error::Cut) => Err(proxy::Error::Closed.into()),
            answer => Ok(Answer::FromApp(answer?)),
        }
    }

    /// The app may have thought for long, and what it answers may live for longer. Whatever
    /// lives on is registered by now: a change of access that is not seen here will find it.
    async fn judge_again(&self, principal: &Principal, holder: Holder) -> Result<()> {
        let portal = self.portal;
        if portal.sessions.routes.find(self.id).is_none() {
            portal.gateway.forget(self.id);
        }
        if portal.access.generation() != self.generation && portal.access.still(principal).await?.is_none() {
            portal.gateway.proxy.tunnels().cut(|tunnel| tunnel.holder == holder);
            return Err(Error::unauthenticated());
        }
        Ok(())
    }
}

/// Whether nothing but an answer is asked for.
fn is_reading(asked: &Parts) -> bool {
    matches!(asked.method, Method::GET | Method::HEAD) && !guard::is_upgrade(&asked.headers)
}

/// `/s/{id}` with the slash that everything else of an app lies below, cookies included.
fn with_slash(uri: &Uri) -> Option<String> {
    let path = uri.path();
    (path.len() == "/s/".len() + 36).then(|| match uri.query() {
        Some(query) => format!("{path}/?{query}"),
        None => format!("{path}/"),
    })
}

fn is_front_page(uri: &Uri) -> bool {
    let path = uri.path();
    path.len() == "/s//".len() + 36 && path.ends_with('/')
}

/// Whether a request is somebody's doing: pages poll by themselves, and an open tab alone
/// must not keep a session alive. A browser says what a request is for, but only to an
/// address that it trusts; over plain HTTP what it accepts tells a page from a poll.
fn is_use(asked: &Parts, credential: &Credential) -> bool {
    let changes = !matches!(asked.method, Method::GET | Method::HEAD);
    match (asked.headers.get("sec-fetch-mode"), credential) {
        (Some(mode), _) => changes || mode.as_bytes() == b"navigate",
        (None, Credential::Login { .. }) => changes || (is_reading(asked) && wants_html(&asked.headers)),
        // A program does what somebody has told it.
        (None, Credential::Token { .. }) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LoginId, TokenId};

    #[test]
    fn an_open_tab_is_no_use() {
        let login = Credential::Login { id: LoginId::new(), csrf_token: String::new() };
        let token = Credential::Token { id: TokenId::new(), scopes: Vec::new() };
        for (method, header, by_login, by_token) in [
            // A browser at an address that it trusts.
            ("GET", ("sec-fetch-mode", "navigate"), true, true),
            ("GET", ("sec-fetch-mode", "cors"), false, false),
            ("GET", ("sec-fetch-mode", "websocket"), false, false),
            ("POST", ("sec-fetch-mode", "cors"), true, true),
            // Over plain HTTP it does not say; a program never does.
            ("GET", ("accept", "text/html,*/*;q=0.8"), true, true),
            ("GET", ("accept", "*/*"), false, true),
            ("HEAD", ("accept", "application/json"), false, true),
            ("GET", ("upgrade", "websocket"), false, true),
            ("PUT", ("accept", "*/*"), true, true),
        ] {
            let asked = Request::builder().method(method).header(header.0, header.1).body(Body::empty()).unwrap();
            let asked = asked.into_parts().0;
            assert_eq!(is_use(&asked, &login), by_login, "{method} {header:?} by a login");
            assert_eq!(is_use(&asked, &token), by_token, "{method} {header:?} by a token");
        }
    }
}
