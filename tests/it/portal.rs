//! A whole portal for tests: the real router behind the real accept loop on a port of its
//! own, SQLite in a temporary directory, and a clock that only the test moves.

use std::{convert::Infallible, net::SocketAddr, os::unix::net::UnixStream, path::Path, sync::Arc};

use axum::response::Response as AxumResponse;
use hyper::{Request, body::Incoming};
use lyceum::{
    admission::{Admission, BlockedGpus, external_usage::ExternalUsage, slurm_limits::SharedSlurmLimits},
    announcements::Announcements,
    apps::Catalogue,
    auth::{Access, Authenticator, Header, Local, header, passwords},
    cluster::{self, Cluster},
    db::{
        Config, Db,
        audit::{ChangedBy, Entry},
        logins::Login,
        users::{NewUser, SignIn},
    },
    environments::{self, EnvironmentPaths, Environments, Recipe},
    events::Events,
    files::{self, Files},
    gpu,
    helper::{cgroup::Hierarchy, client::Launcher},
    images::{self, Images},
    listen,
    model::{Capacity, Clock, GpuInventory, LoginId, Loops, Role, Timestamp, UserId, Username},
    nodes::{self, Nodes},
    notifications::{self, Notifications},
    proxy::Proxy,
    runs::{self, Runs},
    scheduler::{self, ClusterInfo, slurm::Quotas},
    sessions::{self, Sessions},
    trash::Trash,
    web::{AppsOrigin, Front, Parts, Portal, ReportContext, WebConfig, gateway::Gateway},
};
use reqwest::{
    Client, Method, RequestBuilder, Response,
    dns::{Addrs, Name, Resolve, Resolving},
    header::CONTENT_TYPE,
    redirect,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::Service;

/// When all tests begin.
pub const START: Timestamp = Timestamp(1_800_000_000_000);

/// A running portal; it ends with the value.
pub struct TestPortal {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    pub portal: Arc<Portal>,
    pub clock: Clock,
    pub directory: TempDir,
    client: Client,
    poll: JoinHandle<()>,
    _shutdown: DropGuard,
}

impl Drop for TestPortal {
    fn drop(&mut self) {
        self.poll.abort();
    }
}

impl TestPortal {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// With another configuration; it speaks plain HTTP whatever that says.
    pub async fn start_with(configure: impl FnOnce(&mut WebConfig)) -> Self {
        Self::serve(configure, Front::portal).await
    }

    /// With each session on a name of its own.
    pub async fn start_with_names(configure: impl FnOnce(&mut WebConfig)) -> Self {
        Self::start_with(|config| {
            config.apps = AppsOrigin::Subdomain(DOMAIN.to_owned());
            config.public_url = Some(format!("http://localhost:{}", config.port).parse().unwrap());
            configure(config);
        })
        .await
    }

    /// With other routes than the portal's.
    pub async fn serve<S: Serves>(
        configure: impl FnOnce(&mut WebConfig),
        service: impl FnOnce(Arc<Portal>) -> S,
    ) -> Self
    where
        S::Future: Send,
    {
        Self::serve_as(local, |_, _| None, configure, service, None).await
    }

    /// With the GPUs of a driver library that the test compiled.
    pub async fn start_with_gpus(library: &Path) -> Self {
        Self::serve_as(local, |_, _| None, |_| {}, Front::portal, Some(library)).await
    }

    /// With a reverse proxy that names people.
    pub async fn start_behind_proxy(settings: header::Settings, configure: impl FnOnce(&mut WebConfig)) -> Self {
        let header = |db, clock| Some(Header::new(settings, db, clock, None));
        Self::serve_as(local, header, configure, Front::portal, None).await
    }

    /// With another judge of passwords.
    pub async fn start_as(authenticator: impl AsyncFnOnce(Db, Clock) -> Arc<dyn Authenticator>) -> Self {
        Self::serve_as(authenticator, |_, _| None, |_| {}, Front::portal, None).await
    }

    async fn serve_as<S: Serves>(
        authenticator: impl AsyncFnOnce(Db, Clock) -> Arc<dyn Authenticator>,
        header: impl FnOnce(Db, Clock) -> Option<Header>,
        configure: impl FnOnce(&mut WebConfig),
        service: impl FnOnce(Arc<Portal>) -> S,
        gpus: Option<&Path>,
    ) -> Self
    where
        S::Future: Send,
    {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&Config::default(), directory.path()).await.unwrap();
        let clock = Clock::manual(START);
        let authenticator = authenticator(db.clone(), clock.clone()).await;
        let access = Access::new(db.clone(), clock.clone(), [7; 32], directory.path(), authenticator);
        let access = access.with_header(header(db.clone(), clock.clone()));
        let access = Arc::new(access);
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config =
            WebConfig { private: directory.path().to_owned(), port: address.port(), ..WebConfig::default() };
        configure(&mut config);
        let kept = (config.quotas == Quotas::Read).then(SharedSlurmLimits::default);
        let shutdown = CancellationToken::new();
        let loops = Loops::new(clock.clone());
        let announcements = Arc::new(Announcements::new(db.clone(), clock.clone()));
        let images = directory.path().join("images");
        let images = Images::open(images::Config::default(), images, db.clone(), clock.clone(), [3; 32]).await.unwrap();
        let (sessions, files, runs) = services((db, images), &clock, directory.path(), gpus, (&loops, kept));
        // A site that sends mail and calls a host; nobody delivers anything here.
        let told = notifications::Config {
            smtp: "localhost".to_owned(),
            mail_from: "Lyceum <lyceum@example.org>".to_owned(),
            webhook_hosts: vec!["hooks.example.org".to_owned()],
            ..notifications::Config::default()
        };
        let events = Events::new(sessions.db.clone(), clock.clone(), told.clone(), [7; 32]);
        let notifications = Notifications::new(sessions.clone(), runs.clone(), told, [6; 32], String::new());
        let scheduler = sessions.scheduler.clone();
        let cluster = Cluster::new(sessions.admission.clone(), scheduler, cluster::Config::default());
        let trash = Trash {
            db: sessions.db.clone(),
            clock: clock.clone(),
            logs: directory.path().join("logs"),
            points: directory.path().join("curves"),
        };
        let portal = Arc::new(Portal::new(Parts {
            access: access.clone(),
            config,
            sessions,
            cluster,
            files,
            runs,
            trash,
            announcements,
            notifications,
            events,
            surroundings: ReportContext { loops: loops.clone(), ..ReportContext::default() },
            gateway: Gateway::new(Proxy::new(clock.clone()), [9; 32], Nodes::new(nodes::Config::default(), b"nodes")),
            single_user: None,
            program: env!("CARGO_BIN_EXE_lyceum").into(),
            driver_library: None,
            datasets: lyceum::datasets::Config::default(),
            stopping: shutdown.clone(),
        }));

        // What `/readyz` asks for: a first look at the sessions.
        portal.sessions.reconcile().await;
        let host = match portal.config.apps {
            AppsOrigin::Subdomain(_) => "localhost".to_owned(),
            _ => address.ip().to_string(),
        };
        let url = format!("http://{host}:{}", address.port());
        let options = listen::Options { grace: std::time::Duration::ZERO, ..listen::Options::default() };
        tokio::spawn(listen::serve(listener, service(portal.clone()), options, shutdown.clone()));
        let poll = tokio::spawn(async move { access.poll_for_ever(&loops).await });
        Self { url, portal, clock, directory, client: client(), poll, _shutdown: shutdown.drop_guard() }
    }

    pub fn db(&self) -> &Db {
        &self.portal.db
    }

    /// Who makes what a test needs.
    pub fn by(&self) -> ChangedBy<'static> {
        ChangedBy { actor: "test", at: self.clock.now() }
    }

    /// A local account; its password is [`password`] of the name.
    pub async fn add_user(&self, name: &str, role: Role) -> UserId {
        let hash = passwords::hash(&password(name)).await.unwrap();
        let new = NewUser {
            name: &Username::parse(name).unwrap(),
            display_name: "",
            unix_name: None,
            role,
            sign_in: SignIn::Password(&hash),
        };
        self.db().add_user(new, self.by()).await.unwrap()
    }

    /// Nobody, sending no headers of its own.
    pub fn anybody(&self) -> Caller {
        Caller { client: self.client.clone(), url: self.url.clone(), headers: Vec::new(), csrf_token: String::new() }
    }

    /// A browser that has signed in through the API.
    pub async fn sign_in(&self, name: &str) -> Caller {
        self.sign_in_with(name, &password(name)).await
    }

    pub async fn sign_in_with(&self, name: &str, password: &str) -> Caller {
        let answer = self.try_sign_in(name, password).await;
        assert_eq!(answer.status(), 200);
        let cookie = cookie(&answer, "lyceum_login").expect("a sign-in sets the cookie");
        let body: Value = answer.json().await.unwrap();
        let mut caller = self.anybody().with("cookie", &format!("lyceum_login={cookie}")).with("origin", &self.url);
        body["csrf_token"].as_str().unwrap().clone_into(&mut caller.csrf_token);
        caller
    }

    pub async fn try_sign_in(&self, name: &str, password: &str) -> Response {
        let body = json!({ "username": name, "password": password });
        self.anybody().with("origin", &self.url).post("/api/v1/login", &body).await
    }

    /// A login written straight into the database: its cookie. For tests that need hundreds.
    pub async fn new_login(&self, user: UserId) -> String {
        let secret = tower_sessions::session::Id::default().to_string();
        let now = self.clock.now();
        let login = Login {
            id: LoginId::new(),
            user,
            created_at: now,
            last_seen_at: now,
            expires_at: now.plus_seconds(86_400),
            address: "127.0.0.1".to_owned(),
        };
        let noted = Entry { at: now, actor: "test", action: "test", subject: "test", detail: "" };
        self.db().add_login(&login, &sha256(&secret), &noted).await.unwrap();
        secret
    }

    /// A fresh token of this browser's user.
    pub async fn token(&self, browser: &Caller, scopes: &[&str]) -> Caller {
        let made: Value =
            browser.post("/api/v1/tokens", &json!({ "name": "test", "scopes": scopes })).await.json().await.unwrap();
        self.bearer(made["secret"].as_str().unwrap())
    }

    pub fn bearer(&self, secret: &str) -> Caller {
        self.anybody().with("authorization", &format!("Bearer {secret}"))
    }
}

async fn local(db: Db, _: Clock) -> Arc<dyn Authenticator> {
    Arc::new(Local::new(db).await.unwrap())
}

/// The services without a loop and without a helper: what is asked for is written, nothing
/// ever starts, and nobody's files can be reached.
fn services(
    (db, images): (Db, Images),
    clock: &Clock,
    directory: &Path,
    nvml: Option<&Path>,
    (loops, kept): (&Loops, Option<SharedSlurmLimits>),
) -> (Arc<Sessions>, Arc<Files>, Arc<Runs>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    std::fs::create_dir(directory.join("placements")).unwrap();
    let nvml = nvml.map(Path::to_owned);
    let inventory = match &nvml {
        Some(_) => gpu::inventory(&gpu::Config { nvml: nvml.clone(), ..gpu::Config::default() }).unwrap(),
        None => GpuInventory::default(),
    };
    // Room for a session on each GPU.
    let cpus = if nvml.is_some() { 16 } else { 4 };
    let capacity = Capacity { gpus: i64::try_from(inventory.gpus.len()).unwrap(), cpus, memory_bytes: 8 << 30 };
    let launcher = Arc::new(Launcher::helper(ours).unwrap());
    let scheduler = scheduler::local::Local::new(scheduler::local::Config {
        launcher: launcher.clone(),
        capacity,
        inventory,
        nvml,
        gpu_interval: std::time::Duration::from_millis(5),
        run: directory.join("run"),
        placements: directory.join("placements"),
        hierarchy: Hierarchy::Sampled,
        service_uid: 64_999,
        grace_seconds: 1,
        clock: clock.clone(),
    })
    .unwrap();
    let place = EnvironmentPaths {
        shared: directory.join("shared"),
        cache: directory.join("cache"),
        everybody: false,
        variables: Vec::new(),
        cuda: None,
    };
    // A site with modules, which nobody lists here.
    let modules = environments::modules::Init::Path("/nonexistent/modules.sh".into());
    // Nothing is built: nobody runs the loop that does.
    let listed = environments::Config { modules, ..environments::Config::default() };
    let config = sessions::Config {
        profiles: Vec::new(),
        key: [8; 32],
        logs: directory.join("logs"),
        boot_id: "this one".to_owned(),
        installed: environments::install(&directory.join("shared")).unwrap(),
        storage: Vec::new(),
        start_timeout_seconds: 60,
        open_within_seconds: 1800,
        portal_uid: 64_999,
        shared_uid: false,
        single_user_mode: false,
        loops: loops.clone(),
    };
    let scheduler = Arc::new(scheduler);
    let files = files::Config {
        storage: Vec::new(),
        max_upload_bytes: 1 << 30,
        patience: std::time::Duration::from_secs(20),
        single_user_mode: false,
        shared_uid: false,
    };
    let files = Files::new(db.clone(), scheduler.clone(), launcher, files);
    let curves = directory.join("curves");
    std::fs::create_dir_all(&curves).unwrap();
    let curves = runs::Config { directory: curves, most_points: 1_000_000, memory: 64 << 20 };
    let runs = Runs::new(db.clone(), clock.clone(), scheduler.clone(), files.clone(), curves);
    let sessions = Sessions::new(
        Admission {
            db,
            clock: clock.clone(),
            stock: scheduler.stock().clone(),
            period: lyceum::model::quota::Period::default(),
            extend_while_others_wait: true,
            holds_at_once: true,
            zone: jiff::tz::TimeZone::UTC,
            blocked_gpus: BlockedGpus::default(),
            external_usage: ExternalUsage::default(),
            slurm_limits: kept,
        },
        scheduler,
        Catalogue::new(Vec::new()),
        Environments::new(listed, place, Recipe::default(), clock.clone()),
        images,
        config,
    );
    (sessions, files, runs)
}

/// Somebody who sends requests with the same headers each time, and follows no redirects.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    url: String,
    headers: Vec<(String, String)>,
    pub csrf_token: String,
}

impl Caller {
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same headers to another listener.
    pub fn at(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| header != name);
        self
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.client.request(method, format!("{}{path}", self.url));
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    pub async fn get(&self, path: &str) -> Response {
        self.request("GET", path).send().await.unwrap()
    }

    /// As a browser that shows the answer.
    pub async fn visit(&self, path: &str) -> Response {
        self.request("GET", path).header("accept", "text/html,application/xhtml+xml,*/*;q=0.8").send().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.request("POST", path).json(body).send().await.unwrap()
    }

    pub async fn post_form(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        self.request("POST", path).header(CONTENT_TYPE, FORM).body(form(fields)).send().await.unwrap()
    }

    pub async fn delete(&self, path: &str) -> Response {
        self.request("DELETE", path).send().await.unwrap()
    }
}

pub const FORM: &str = "application/x-www-form-urlencoded";

/// Fields as a browser sends a form.
pub fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// The value that an answer sets for a cookie.
pub fn cookie(answer: &Response, name: &str) -> Option<String> {
    let values = answer.headers().get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let pairs = values.filter_map(|value| value.split(';').next()?.split_once('='));
    pairs.filter(|(found, _)| *found == name).map(|(_, value)| value.to_owned()).next()
}

pub fn password(name: &str) -> String {
    format!("{name}-has-a-password")
}

pub fn sha256(text: impl AsRef<[u8]>) -> String {
    Sha256::digest(text).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A client that keeps no cookies and follows no redirects.
pub fn client() -> Client {
    // Several tests of this process come here; the first one chooses for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(redirect::Policy::none()).no_proxy().dns_resolver(Here).build().unwrap()
}

/// Below which sessions have names, where they do. Browsers know it by themselves.
pub const DOMAIN: &str = "apps.localhost";

/// Every name is this machine's.
struct Here;

impl Resolve for Here {
    fn resolve(&self, _: Name) -> Resolving {
        let here: Addrs = Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0))));
        Box::pin(std::future::ready(Ok(here)))
    }
}

/// A connection to `http://NAME:PORT`; every name is this machine's.
pub async fn dial(url: &str) -> TcpStream {
    let port = url.trim_end_matches('/').rsplit_once(':').unwrap().1;
    TcpStream::connect(("127.0.0.1", port.parse().unwrap())).await.unwrap()
}

/// What the accept loop takes.
pub trait Serves:
    Service<Request<Incoming>, Response = AxumResponse, Error = Infallible> + Clone + Send + 'static
{
}

impl<S> Serves for S where
    S: Service<Request<Incoming>, Response = AxumResponse, Error = Infallible> + Clone + Send + 'static
{
}
