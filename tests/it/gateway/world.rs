//! What these tests stand on: a portal with both its listeners, sessions whose app is one of
//! the test's own, and a browser that keeps cookies as browsers do.

use std::{net::SocketAddr, time::Duration};

use futures_util::FutureExt;
use lyceum::{
    db::{admit::NewSession, sessions::Ending},
    listen,
    model::{EndReason, Resources, Role, SessionId, UserId, session::Placement, session::SessionSpec},
    web::{self, AppsOrigin, WebConfig, gateway},
};
use reqwest::{Client, Method, Response, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, client::IntoClientRequest, http::HeaderName},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    portal::{self, Caller, TestPortal},
    proxy::app::App,
};

/// Longer than anything here takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub struct World {
    pub portal: TestPortal,
    /// `http://127.0.0.1:PORT` of the apps' listener.
    pub apps: String,
    _shutdown: DropGuard,
    _loops: tokio::task::JoinSet<()>,
}

impl World {
    /// Apps on a port of their own.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// On one origin with the portal, or on a port of their own.
    pub async fn in_path_mode(path_mode: bool) -> Self {
        Self::with(|config| {
            if path_mode {
                config.apps = AppsOrigin::Path;
            }
        })
        .await
    }

    pub async fn with(configure: impl FnOnce(&mut WebConfig)) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let portal = TestPortal::start_with(|config| {
            config.apps = AppsOrigin::Port(address.port());
            configure(config);
        })
        .await;
        let shutdown = CancellationToken::new();
        let options = listen::Options { grace: Duration::ZERO, ..listen::Options::default() };
        let mut loops = tokio::task::JoinSet::new();
        loops.spawn(listen::serve(listener, web::apps_router(portal.portal.clone()), options, shutdown.clone()));
        loops.spawn(gateway::cut_what_lost_access(portal.portal.clone()));
        Self { portal, apps: format!("http://{address}"), _shutdown: shutdown.drop_guard(), _loops: loops }
    }

    /// A running session of this app's.
    pub async fn session(&self, owner: UserId, app: &App) -> SessionId {
        self.session_of("jupyter", owner, app).await
    }

    pub async fn session_of(&self, kind: &str, owner: UserId, app: &App) -> SessionId {
        let id = self.queued(kind, owner).await;
        let (db, now) = (self.portal.db(), self.portal.clock.now());
        assert!(db.begin_start(id, now).await.unwrap());
        let placement = Placement {
            // Of a machine that nobody can ask: what this test knows of it stands.
            node: "elsewhere".to_owned(),
            pid: 1,
            start_ticks: 1,
            boot_id: "another".to_owned(),
            uid: rustix::process::getuid().as_raw(),
            unix_name: "somebody".to_owned(),
            run_directory: app.socket_directory().to_str().unwrap().to_owned(),
            limits: "sampled".to_owned(),
        };
        assert!(db.set_placement(id, &placement).await.unwrap());
        assert!(db.mark_running(id, now, now.plus_seconds(30 * 86_400)).await.unwrap());
        self.portal.portal.sessions.reconcile().await;
        id
    }

    /// A session that waits.
    pub async fn queued(&self, kind: &str, owner: UserId) -> SessionId {
        let id = SessionId::new();
        let new = NewSession {
            id,
            owner,
            app: kind.to_owned(),
            name: format!("a {kind}"),
            spec: SessionSpec {
                resources: Resources { memory_bytes: 64 << 20, ..Resources::default() },
                profile: None,
                environment: None,
                working_directory: None,
                duration_seconds: 3600,
                log_directory: None,
            },
            light: true,
            cluster: "local".to_owned(),
            idempotency: None,
        };
        self.portal.portal.sessions.admission.insert(&new).await.unwrap();
        id
    }

    pub async fn ended(&self, owner: UserId) -> SessionId {
        let id = self.queued("terminal", owner).await;
        let ending = Ending {
            reason: EndReason::OutOfMemory,
            exit_code: None,
            signal: Some(9),
            at: self.portal.clock.now(),
            detail: "It was over its memory.".to_owned(),
        };
        assert!(self.portal.db().end_session(id, &ending).await.unwrap());
        id
    }

    pub async fn user(&self, name: &str) -> UserId {
        self.portal.add_user(name, Role::User).await
    }

    /// A browser that has signed in on the portal.
    pub async fn browser(&self, name: &str) -> Browser {
        let mut browser = Browser::default();
        let answer = self.portal.try_sign_in(name, &portal::password(name)).await;
        assert_eq!(answer.status(), 200);
        browser.keep(&self.portal.url, &answer);
        browser
    }

    /// The apps' cookie of a browser, as a program would send it.
    pub fn on_apps(&self, cookie: &str) -> Caller {
        self.portal.anybody().at(&self.apps).with("cookie", cookie)
    }
}

/// Keeps cookies by host and path (a host's ports share them) and follows redirects itself.
pub struct Browser {
    client: Client,
    jar: Vec<(String, String, String)>,
    /// Hosts whose cookies it refuses, with their ports.
    pub refuses: Vec<String>,
    pub method: Method,
}

impl Default for Browser {
    fn default() -> Self {
        Self { client: portal::client(), jar: Vec::new(), refuses: Vec::new(), method: Method::GET }
    }
}

/// What a journey passed, and where it ended.
pub struct Journey {
    pub hops: Vec<String>,
    pub status: u16,
    pub url: String,
    pub headers: header::HeaderMap,
    pub text: String,
}

impl Browser {
    /// One that trusts an authority of the test's own, say.
    pub fn with(client: Client) -> Self {
        Self { client, ..Self::default() }
    }

    /// Types an address, or follows a link.
    pub async fn visit(&mut self, url: &str) -> Journey {
        let (mut url, mut hops) = (url.to_owned(), Vec::new());
        loop {
            assert!(hops.len() < 10, "round in circles: {hops:#?}");
            hops.push(url.clone());
            let answer = self.get(&url).await;
            if let Some(location) = answer.headers().get("location") {
                url = answer.url().join(location.to_str().unwrap()).unwrap().to_string();
                continue;
            }
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            return Journey { hops, status, url, headers, text: answer.text().await.unwrap() };
        }
    }

    /// One step, as a navigation.
    pub async fn get(&mut self, url: &str) -> Response {
        let request = self
            .client
            .request(self.method.clone(), url)
            .header("accept", "text/html,*/*;q=0.8")
            .header("sec-fetch-site", "none")
            .header("sec-fetch-mode", "navigate")
            .header("sec-fetch-dest", "document");
        let request = match self.cookies(url) {
            cookies if cookies.is_empty() => request,
            cookies => request.header("cookie", cookies),
        };
        let answer = request.send().await.unwrap();
        self.keep(url, &answer);
        answer
    }

    pub fn cookies(&self, url: &str) -> String {
        let path = reqwest::Url::parse(url).unwrap().path().to_owned();
        let sent = self.jar.iter().filter(|(_, under, _)| path.starts_with(under.as_str()));
        sent.map(|(name, _, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    /// What a `Set-Cookie` or a script of any port of the host does.
    pub fn put(&mut self, name: &str, path: &str, value: &str) {
        self.jar.retain(|(known, under, _)| (known.as_str(), under.as_str()) != (name, path));
        self.jar.push((name.to_owned(), path.to_owned(), value.to_owned()));
    }

    pub fn keep(&mut self, url: &str, answer: &Response) {
        if self.refuses.iter().any(|refused| url.starts_with(refused.as_str())) {
            return;
        }
        for line in answer.headers().get_all("set-cookie") {
            let mut parts = line.to_str().unwrap().split(';').map(str::trim);
            let (name, value) = parts.next().unwrap().split_once('=').unwrap();
            let path = parts.find_map(|part| part.strip_prefix("Path=")).unwrap_or("/").to_owned();
            self.put(name, &path, value);
        }
    }

    /// `name=value` of the cookie whose name begins so.
    pub fn cookie(&self, beginning: &str) -> Option<String> {
        let found = self.jar.iter().find(|(name, _, _)| name.starts_with(beginning));
        found.map(|(name, _, value)| format!("{name}={value}"))
    }

    pub fn forget(&mut self, beginning: &str) {
        self.jar.retain(|(name, _, _)| !name.starts_with(beginning));
    }
}

pub type Socket = WebSocketStream<TcpStream>;

/// A WebSocket to an address of either listener, or the status that refused it.
pub async fn socket(url: &str, headers: &[(&str, &str)]) -> Result<Socket, u16> {
    let address = url.trim_start_matches("http://");
    let mut request = format!("ws://{address}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let stream = TcpStream::connect(address.split('/').next().unwrap()).await.unwrap();
    match timeout(DEADLINE, client_async(request, stream)).await.unwrap() {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// Bytes to a listener, and the status and text of what comes back.
pub async fn raw(url: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer).map(Result::ok)).await.expect("the server closes");
    let text = String::from_utf8_lossy(&answer).into_owned();
    (text.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default(), text)
}
