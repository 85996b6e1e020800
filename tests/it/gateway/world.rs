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
    portal::{self, Caller, DOMAIN, TestPortal},
    proxy::app::App,
};

/// Longer than anything here takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Where apps live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Port,
    Path,
    /// Each session on a name of its own.
    Names,
}

pub const MODES: [Mode; 3] = [Mode::Port, Mode::Path, Mode::Names];

pub struct World {
    pub portal: TestPortal,
    /// `http://127.0.0.1:PORT` of the apps' listener, where they have one.
    pub apps: String,
    _shutdown: DropGuard,
    _loops: tokio::task::JoinSet<()>,
}

impl World {
    /// Apps on a port of their own.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// Wherever apps may live.
    pub async fn in_mode(mode: Mode) -> Self {
        match mode {
            Mode::Port => Self::new().await,
            Mode::Path => Self::with(|config| config.apps = AppsOrigin::Path).await,
            Mode::Names => Self::of(TestPortal::start_with_names(|_| {}).await, None),
        }
    }

    pub async fn with(configure: impl FnOnce(&mut WebConfig)) -> Self {
        Self::around(async |port| {
            TestPortal::start_with(|config| {
                config.apps = AppsOrigin::Port(port);
                configure(config);
            })
            .await
        })
        .await
    }

    /// Around a portal that is told the apps' port.
    pub async fn around(portal: impl AsyncFnOnce(u16) -> TestPortal) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let portal = portal(address.port()).await;
        Self::of(portal, Some(listener))
    }

    /// Around a portal that serves; the apps' listener, where they have one of their own.
    pub fn of(portal: TestPortal, apps: Option<TcpListener>) -> Self {
        let shutdown = CancellationToken::new();
        let options = listen::Options { grace: Duration::ZERO, ..listen::Options::default() };
        let mut loops = tokio::task::JoinSet::new();
        let address = apps.as_ref().map(|listener| listener.local_addr().unwrap());
        if let Some(listener) = apps {
            let front = web::Front::apps(portal.portal.clone());
            loops.spawn(listen::serve(listener, front, options, shutdown.clone()));
        }
        loops.spawn(gateway::cut_what_lost_access(portal.portal.clone()));
        let apps = address.map_or_else(String::new, |address| format!("http://{address}"));
        Self { portal, apps, _shutdown: shutdown.drop_guard(), _loops: loops }
    }

    /// The origin of a session's app.
    pub fn app_of(&self, id: SessionId) -> String {
        let port = self.portal.url.rsplit_once(':').unwrap().1;
        match self.portal.portal.config.apps {
            AppsOrigin::Path => self.portal.url.clone(),
            AppsOrigin::Subdomain(_) => format!("http://{id}.{DOMAIN}:{port}"),
            _ => self.apps.clone(),
        }
    }

    /// A browser that has opened a session, and with what it is known there.
    pub async fn opened(&self, name: &str, id: SessionId) -> (Browser, String) {
        let mut browser = self.browser(name).await;
        let journey = browser.visit(&format!("{}/s/{id}/", self.app_of(id))).await;
        assert_eq!(journey.status, 200, "{:#?}", journey.hops);
        let cookie = browser.cookie("lyceum_app_").or_else(|| browser.cookie("lyceum_login")).unwrap();
        (browser, cookie)
    }

    /// A running session of this app's.
    pub async fn session(&self, owner: UserId, app: &App) -> SessionId {
        self.session_of("jupyter", owner, app).await
    }

    pub async fn session_of(&self, kind: &str, owner: UserId, app: &App) -> SessionId {
        let id = self.queued(kind, owner).await;
        self.run_at(id, &placement(app)).await;
        id
    }

    /// A session that the portal has seen starting, and whose row says since then that it is running.
    pub async fn just_running(&self, owner: UserId, app: &App) -> SessionId {
        let id = self.queued("jupyter", owner).await;
        self.start_at(id, &placement(app)).await;
        self.portal.portal.sessions.reconcile().await;
        self.mark_running(id).await;
        id
    }

    /// Has a session that waits run at a place.
    pub async fn run_at(&self, id: SessionId, placement: &Placement) {
        self.start_at(id, placement).await;
        self.mark_running(id).await;
        self.portal.portal.sessions.reconcile().await;
    }

    async fn start_at(&self, id: SessionId, placement: &Placement) {
        let db = self.portal.db();
        assert!(db.begin_start(id, self.portal.clock.now()).await.unwrap());
        assert!(db.set_placement(id, placement).await.unwrap());
    }

    async fn mark_running(&self, id: SessionId) {
        let now = self.portal.clock.now();
        assert!(self.portal.db().mark_running(id, now, now.plus_seconds(30 * 86_400)).await.unwrap());
    }

    /// A session that waits.
    pub async fn queued(&self, kind: &str, owner: UserId) -> SessionId {
        let id = SessionId::new();
        let new = NewSession {
            id,
            owner,
            charged_group: None,
            app: kind.to_owned(),
            name: format!("a {kind}"),
            spec: SessionSpec {
                resources: Resources { memory_bytes: 64 << 20, ..Resources::default() },
                profile: None,
                environment: None,
                working_directory: None,
                duration_seconds: 3600,
                log_directory: None,
                log_directories: std::collections::BTreeMap::new(),
                group: None,
                modules: Vec::new(),
                image: None,
                slurm: lyceum::model::SlurmOptions::default(),
            },
            light: true,
            cluster: "local".to_owned(),
            idempotency: None,
            job: None,
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

    /// The same to one session's app.
    pub fn on_app(&self, id: SessionId, cookie: &str) -> Caller {
        self.portal.anybody().at(&self.app_of(id)).with("cookie", cookie)
    }
}

/// Where this app listens, on a machine that nobody can ask: what the test knows of it stands.
fn placement(app: &App) -> Placement {
    Placement {
        node: "elsewhere".to_owned(),
        pid: 1,
        start_ticks: 1,
        boot_id: "another".to_owned(),
        uid: rustix::process::getuid().as_raw(),
        unix_name: "somebody".to_owned(),
        run_directory: app.socket_directory().to_str().unwrap().to_owned(),
        limits: "sampled".to_owned(),
        link: None,
    }
}

/// Keeps cookies by host and path (a host's ports share them) and follows redirects itself.
pub struct Browser {
    client: Client,
    jar: Vec<Kept>,
    /// Hosts whose cookies it refuses, with their ports.
    pub refuses: Vec<String>,
    pub method: Method,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
}

impl Default for Browser {
    fn default() -> Self {
        Self {
            client: portal::client(),
            jar: Vec::new(),
            refuses: Vec::new(),
            method: Method::GET,
            headers: Vec::new(),
        }
    }
}

/// A cookie.
struct Kept {
    /// The host; with a dot in front all hosts below it; empty: any.
    host: String,
    name: String,
    path: String,
    value: String,
}

impl Kept {
    fn goes_to(&self, host: &str, path: &str) -> bool {
        let below = self.host.starts_with('.') && host.ends_with(&self.host);
        (below || self.host.is_empty() || self.host == host) && path.starts_with(&self.path)
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

    /// One that sends headers of its own, as a proxy behind it would.
    pub fn sending(headers: Vec<(String, String)>) -> Self {
        Self { headers, ..Self::default() }
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
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let request = match self.cookies(url) {
            cookies if cookies.is_empty() => request,
            cookies => request.header("cookie", cookies),
        };
        let answer = request.send().await.unwrap();
        self.keep(url, &answer);
        answer
    }

    pub fn cookies(&self, url: &str) -> String {
        let url = reqwest::Url::parse(url).unwrap();
        let sent = self.jar.iter().filter(|kept| kept.goes_to(url.host_str().unwrap(), url.path()));
        sent.map(|kept| format!("{}={}", kept.name, kept.value)).collect::<Vec<_>>().join("; ")
    }

    /// What a script of any port of the host does.
    pub fn put(&mut self, name: &str, path: &str, value: &str) {
        self.put_at("", name, path, value);
    }

    /// What a `Set-Cookie` does, or a script; with a dot in front of the host, by `Domain`.
    pub fn put_at(&mut self, host: &str, name: &str, path: &str, value: &str) {
        let [host, name, path, value] = [host, name, path, value].map(str::to_owned);
        self.jar.retain(|kept| (&kept.host, &kept.name, &kept.path) != (&host, &name, &path));
        self.jar.push(Kept { host, name, path, value });
    }

    pub fn keep(&mut self, url: &str, answer: &Response) {
        if self.refuses.iter().any(|refused| url.starts_with(refused.as_str())) {
            return;
        }
        for line in answer.headers().get_all("set-cookie") {
            let mut parts = line.to_str().unwrap().split(';').map(str::trim);
            let (name, value) = parts.next().unwrap().split_once('=').unwrap();
            let path = parts.find_map(|part| part.strip_prefix("Path=")).unwrap_or("/").to_owned();
            self.put_at(reqwest::Url::parse(url).unwrap().host_str().unwrap(), name, &path, value);
        }
    }

    /// `name=value` of the cookie whose name begins so.
    pub fn cookie(&self, beginning: &str) -> Option<String> {
        let found = self.jar.iter().find(|kept| kept.name.starts_with(beginning));
        found.map(|kept| format!("{}={}", kept.name, kept.value))
    }

    pub fn forget(&mut self, beginning: &str) {
        self.jar.retain(|kept| !kept.name.starts_with(beginning));
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
    let stream = portal::dial(address.split('/').next().unwrap()).await;
    match timeout(DEADLINE, client_async(request, stream)).await.unwrap() {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// Bytes to a listener, and the status and text of what comes back.
pub async fn raw(url: &str, request: &str) -> (u16, String) {
    let mut stream = portal::dial(url).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer).map(Result::ok)).await.expect("the server closes");
    let text = String::from_utf8_lossy(&answer).into_owned();
    (text.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default(), text)
}
