//! The way from a browser to an app: requests and upgrades are passed on to a session's own
//! socket, with the rules of `headers`, `cookies` and `paths` in between. Who may do so was
//! decided before; which page an error becomes is decided after, both by `web`. The proxy
//! streams: it holds no body, parses no WebSocket frame, and never looks an address up in a URL.

mod activity;
mod body;
mod chunks;
mod cookies;
mod exchange;
mod headers;
mod names;
mod paths;
mod pool;
mod registry;
mod tunnel;

use std::{io, net::IpAddr, sync::Arc};

use axum::body::Body;
use hyper::{
    Request, Response, StatusCode,
    body::Body as _,
    header::{HOST, HeaderValue},
    http::{response, uri},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

pub use self::{
    activity::{Activity, total_bytes},
    paths::{PathFault, origin_matches, session_path},
    pool::MAX_OPEN,
    registry::{Registration, Registry},
    tunnel::{Access, Holder, Tunnel, Tunnels},
};
use self::{
    body::{Answer, Upload},
    pool::{Lease, Pool},
};
use lyceum_model::{Clock, SessionId};
use lyceum_wire::dial;
pub use lyceum_wire::dial::Endpoint;

use crate::listen;

/// Where requests for a session go.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Whose connections these are; with `endpoint`, the key of the pool.
    pub session: SessionId,
    pub endpoint: Endpoint,
    /// The only user whose process may answer there.
    pub uid: u32,
    pub activity: Arc<Activity>,
}

/// What holds for one request.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The app is asked for `/` where the browser asks for `/s/{id}/`.
    pub strip_prefix: bool,
    /// Apps share the portal's origin.
    pub path_mode: bool,
    /// Sent as `Authorization`, for an app that wants a token of its own.
    pub authorization: Option<HeaderValue>,
    /// The browser's address, as far as it is known.
    pub client: IpAddr,
    /// What the browser came by: `http` or `https`.
    pub scheme: &'static str,
    /// This request is use of the app by a person, not a page's own polling.
    pub active: bool,
    pub holder: Holder,
}

/// Passes requests on; one for the whole portal.
pub struct Proxy {
    clock: Clock,
    pool: Arc<Pool>,
    tunnels: Tunnels,
}

impl Proxy {
    pub fn new(clock: Clock) -> Self {
        Self { clock, pool: Arc::default(), tunnels: Tunnels::default() }
    }

    /// Passes a request on and returns the app's answer, whose body is still on its way.
    /// There is no limit to how long an app may think, since long polls do.
    pub async fn forward(
        &self,
        mut request: Request<Body>,
        upstream: &Upstream,
        rules: &Rules,
    ) -> Result<Response<Body>> {
        if rules.path_mode && headers::fetches_service_worker(request.headers()) {
            return Err(Error::ServiceWorker);
        }
        if rules.active {
            upstream.activity.note(self.clock.now());
        }
        let protocol = headers::upgrade(&request);
        let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let host = request.headers().get(HOST).cloned();
        headers::to_upstream(&mut request, upstream.session, rules, protocol)?;
        let connection = request.extensions_mut().remove::<listen::Connection>();
        request.extensions_mut().clear();
        if let Some(client) = client {
            *request.body_mut() = Body::empty();
            // Boxed, so that the future of every plain request stays small.
            return Box::pin(self.upgrade(request, client, upstream, rules, host.as_ref())).await;
        }
        let (head, mut body) = request.into_parts();
        if !body.is_end_stream() {
            let clock = rules.active.then(|| self.clock.clone());
            body = Body::new(Upload { body, activity: upstream.activity.clone(), clock });
        }
        // Registered before the first wait: access that ends meanwhile ends this too, however
        // long the app thinks and however much the browser still sends.
        let registration = self.tunnels.register(tunnel(upstream, rules));
        let sent = registration.token.run_until_cancelled(self.pool.send(&head, body, upstream)).await;
        let (answer, lease) = sent.ok_or(Error::Cut)??;
        // An answer that breaks off is noticed by who reads it; others lose their connection.
        if let (Some(connection), false) = (connection, lease.is_over()) {
            registration.closes(connection);
        }
        Self::answer(answer, lease, upstream, rules, host.as_ref(), registration)
    }

    /// Everything live that goes through here.
    pub fn tunnels(&self) -> &Tunnels {
        &self.tunnels
    }

    /// Ends all connections to a session's app. Call it the moment the session ends: its
    /// socket or port may be somebody else's next.
    pub fn drop_session(&self, session: SessionId) {
        self.pool.drop_session(session);
        self.tunnels.cut(|tunnel| tunnel.session == session);
    }

    /// Closes connections that nobody has used for a minute. Call it every minute or so.
    pub fn sweep(&self) {
        self.pool.sweep();
    }

    /// How many connections to a session's app are open, idle ones and tunnels included.
    pub fn open_connections(&self, session: SessionId) -> usize {
        self.pool.open(session)
    }

    fn answer(
        mut head: response::Parts,
        mut lease: Lease,
        upstream: &Upstream,
        rules: &Rules,
        host: Option<&HeaderValue>,
        registration: Registration<Tunnel>,
    ) -> Result<Response<Body>> {
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            lease.close();
            return Err(Error::UnaskedUpgrade);
        }
        headers::from_upstream(&mut head, upstream.session, rules, host)?;
        if lease.is_over() {
            return Ok(Response::from_parts(head, Body::empty()));
        }
        if let Some(body) = lease.whole_body() {
            upstream.activity.sent_down(body.len());
            return Ok(Response::from_parts(head, Body::from(body)));
        }
        let body = Answer::new(lease, upstream.activity.clone(), registration);
        Ok(Response::from_parts(head, Body::new(body)))
    }

    async fn upgrade(
        &self,
        request: Request<Body>,
        client: OnUpgrade,
        upstream: &Upstream,
        rules: &Rules,
        host: Option<&HeaderValue>,
    ) -> Result<Response<Body>> {
        // Registered before the first wait: access that ends meanwhile ends this too.
        let registration = self.tunnels.register(tunnel(upstream, rules));
        let asked = async {
            let (asked, mut none) = request.into_parts();
            let mut lease = self.pool.connect(upstream).await?;
            let answer = lease.exchange(&asked, &mut none).await.map_err(|failed| failed.error)?;
            Ok::<_, Error>((answer, lease))
        };
        let asked = registration.token.run_until_cancelled(asked).await;
        let (mut head, lease) = asked.ok_or(Error::Cut)??;
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            return Self::answer(head, lease, upstream, rules, host, registration);
        }
        headers::from_upstream(&mut head, upstream.session, rules, host)?;
        let (activity, clock) = (upstream.activity.clone(), self.clock.clone());
        self.tunnels.spawn(async move {
            let tunnel = async {
                let Some((stream, already_read, _lease)) = lease.into_tunnel() else { return };
                let Ok(client) = client.await else { return };
                let mut client = TokioIo::new(client);
                activity.sent_down(already_read.len());
                if client.write_all(&already_read).await.is_err() || client.flush().await.is_err() {
                    return;
                }
                drop(already_read);
                if let Err(error) = tunnel::join(client, stream, &activity, &clock).await {
                    tracing::debug!(%error, "tunnel failed");
                }
            };
            registration.token.run_until_cancelled(tunnel).await;
        });
        Ok(Response::from_parts(head, Body::empty()))
    }
}

fn tunnel(upstream: &Upstream, rules: &Rules) -> Tunnel {
    Tunnel { session: upstream.session, holder: rules.holder }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an app could not be asked, or its answer could not be passed on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Service workers are refused in path mode: 403.
    #[error("an app on the portal's own address may not install a service worker")]
    ServiceWorker,
    #[error(transparent)]
    Path(#[from] PathFault),
    #[error("the address cannot be passed on")]
    Target(#[source] uri::InvalidUri),
    #[error("a header cannot be passed on")]
    Value(#[source] hyper::header::InvalidHeaderValue),
    /// Not started yet, ended, or somebody else's.
    #[error(transparent)]
    Dial(#[from] dial::Error),
    #[error("the app already has {MAX_OPEN} open connections")]
    TooManyConnections,
    /// The connection ended before an answer, or within it.
    #[error("the app closed the connection")]
    Closed,
    /// What the app said is not HTTP, or it broke off.
    #[error("the app's response is invalid or was interrupted")]
    Exchange(#[source] io::Error),
    /// The browser broke its own request off, or framed it wrongly.
    #[error("the request body was interrupted")]
    RequestBody(#[source] axum::Error),
    #[error("the app switched protocols without a request to do so")]
    UnaskedUpgrade,
    /// Access ended while the answer was on its way.
    #[error("access to the app has ended")]
    Cut,
}
