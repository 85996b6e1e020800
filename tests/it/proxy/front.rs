//! The accept loop and the proxy as the portal puts them together, without its rules of who
//! may what; and a client of raw bytes.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use hyper::{Request, Response, body::Incoming, header::HeaderValue};
use lyceum::{
    listen::{self, PeerAddr},
    model::{Clock, LoginId, SessionId, Timestamp, UserId},
    proxy::{self, Access, Activity, Endpoint, Holder, PathFault, Proxy, Rules, Upstream, session_path},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use super::app::App;
use crate::wait::eventually;

/// Longer than anything here takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// What a test may change.
#[derive(Clone)]
pub struct Setup {
    pub endpoint: Endpoint,
    pub uid: u32,
    pub strip_prefix: bool,
    pub path_mode: bool,
    pub options: listen::Options,
}

impl Setup {
    pub fn of(app: &App) -> Self {
        Self {
            endpoint: Endpoint::Socket(app.socket().into()),
            uid: rustix::process::getuid().as_raw(),
            strip_prefix: false,
            path_mode: false,
            options: listen::Options::default(),
        }
    }

    /// Serves until the front is dropped.
    pub async fn start(self) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let session = SessionId::new();
        let clock = Clock::manual(Timestamp(1000));
        let proxy = Arc::new(Proxy::new(clock.clone()));
        let activity = Arc::new(Activity::default());
        let upstream =
            Arc::new(Upstream { session, endpoint: self.endpoint, uid: self.uid, activity: activity.clone() });
        let user = UserId::new();
        let rules = Rules {
            strip_prefix: self.strip_prefix,
            path_mode: self.path_mode,
            authorization: Some(HeaderValue::from_static("token of-the-app")),
            client: address.ip(),
            scheme: "http",
            active: true,
            holder: Holder { user, access: Access::Login(LoginId::new()) },
        };
        let passing = proxy.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (proxy, upstream, rules) = (passing.clone(), upstream.clone(), rules.clone());
            async move { Ok::<_, Infallible>(route(&proxy, &upstream, rules, request).await) }
        });
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(listen::serve(listener, service, self.options, shutdown.clone()));
        Front { address, session, user, clock, proxy, activity, shutdown, serving: Some(serving) }
    }
}

/// What the portal's routes do, in short.
async fn route(proxy: &Proxy, upstream: &Upstream, rules: Rules, request: Request<Incoming>) -> Response<Body> {
    let answer = |status: u16, text: String| Response::builder().status(status).body(Body::from(text)).unwrap();
    let PeerAddr(peer) = *request.extensions().get().unwrap();
    match session_path(request.uri().path()) {
        Ok((session, _)) if session == upstream.session => {}
        Ok(_) | Err(PathFault::NoSession) => return answer(404, "no such session".to_owned()),
        Err(fault @ PathFault::DotSegment) => return answer(400, fault.to_string()),
    }
    let rules = Rules { client: peer.ip(), ..rules };
    match proxy.forward(request.map(Body::new), upstream, &rules).await {
        Ok(response) => response,
        Err(proxy::Error::ServiceWorker) => answer(403, "no service workers".to_owned()),
        Err(error) => answer(502, format!("{error:?}")),
    }
}

pub struct Front {
    pub address: SocketAddr,
    pub session: SessionId,
    pub user: UserId,
    pub clock: Clock,
    pub proxy: Arc<Proxy>,
    pub activity: Arc<Activity>,
    pub shutdown: CancellationToken,
    pub serving: Option<JoinHandle<()>>,
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

impl Front {
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends `text`, with `{s}` as this session's path, and reads until the server closes.
    pub async fn say(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        self.say_on(&mut stream, text).await
    }

    pub async fn say_on(&self, stream: &mut TcpStream, text: &str) -> String {
        let text = text.replace("{s}", &format!("/s/{}", self.session));
        let mut answer = Vec::new();
        let talk = async {
            stream.write_all(text.as_bytes()).await.ok();
            // A reset says "closed" as well.
            stream.read_to_end(&mut answer).await.ok();
        };
        timeout(DEADLINE, talk).await.unwrap_or_else(|_| panic!("still open after {text:?}"));
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A GET on a connection of its own, with more header lines.
    pub async fn get(&self, path: &str, headers: &str) -> String {
        self.say(&format!("GET {{s}}{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")).await
    }
}

/// Waits for a condition; a test that waits in vain fails with `what`.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    eventually(what, async || condition().then_some(())).await;
}
