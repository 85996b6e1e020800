//! The composition root: from a checked configuration to a portal that serves. It names the
//! adapters, opens what must be open before the port is, starts the loops, and answers when
//! everything has ended. What each part does is the part's own business.

mod listeners;
mod loops;
mod workloads;

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Child,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use url::Url;

use crate::{
    admission::{Admission, BlockedGpus, external_usage::ExternalUsage, slurm_limits::SharedSlurmLimits},
    announcements::Announcements,
    apps::Catalogue,
    associations::{Mirror, Reader},
    auth::{self, Access, Authenticator, Header, Ldap, keys},
    cluster::Cluster,
    config::{AppsMode, AuthKind, Config, Environment},
    db::{self, Db},
    environments::{self, EnvironmentPaths, Environments, Recipe},
    events::Events,
    files::{self, Files},
    helper,
    images::Images,
    journal::Journal,
    lifecycle::Lifecycle,
    listen,
    model::{Clock, Inventory, Loops},
    nodes::Nodes,
    notifications::Notifications,
    proxy::Proxy,
    retention::Retention,
    runs::{self, Runs},
    scheduler::{Accounts, slurm::Quotas},
    sessions::{self, Sessions},
    start::{Paths, Started, lock::Lock},
    trash::Trash,
    web::{
        self, AppsOrigin, Portal, ReportContext, WebConfig,
        gateway::{self, Gateway},
    },
};

/// A portal that is about to serve.
pub struct App {
    pub portal: Arc<Portal>,
    pub life: Lifecycle,
    /// What tells the audit log, and what forgets what is old.
    keepers: (Journal, Retention),
    listener: TcpListener,
    apps_listener: Option<TcpListener>,
    /// Where agents on other nodes call, if they are to.
    calls: Option<(Arc<Nodes>, TcpListener)>,
    options: listen::Options,
    /// Root's, where root started us.
    helper: Option<Child>,
    /// Held as long as the process lives, so that a second one refuses to start.
    _lock: Lock,
}

/// How often the files of the certificate are looked at; what is new is taken up at the second look.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl App {
    /// Opens everything: keys, database, first account, environments, listeners. Nothing is
    /// served and no loop runs yet.
    /// `start_empty`: also where the database of an earlier start is gone.
    pub async fn open(
        config: &Config,
        surroundings: &Environment,
        started: Started,
        clock: Clock,
        start_empty: bool,
    ) -> Result<Self> {
        let paths = &started.paths;
        let lock = lock(&paths.private)?;
        let loops = Loops::new(clock.clone());
        let life = Lifecycle { loops: loops.clone(), ..Lifecycle::default() };
        let db = database(config, &paths.private, start_empty).await?;
        note_open_listener(config, &db, &clock).await?;
        let first_password = auth::first::ensure_first_admin(&db, &clock, &paths.private).await?;
        if let Some(file) = &first_password {
            log_first_password(file);
        }
        // Behind the first account: from here on a database without any has lost them.
        let key = keys::load(&paths.private).context("loading the portal's key")?;

        let single_user_mode = !started.launcher.changes_user();
        let launcher = Arc::new(started.launcher);
        let nodes = Nodes::new(config.nodes.clone(), &keys::derive(&key, b"nodes"));
        let machine = workloads::Machine {
            launcher: launcher.clone(),
            hierarchy: started.hierarchy,
            paths,
            service_uid: started.service_uid,
            binary: started.binary.clone(),
            nodes: nodes.clone(),
        };
        let scheduler = workloads::scheduler(config, machine, keys::derive(&key, b"jobs"), &clock).await?;
        let installed = environments::install(&paths.shared).context("installing templates and wrappers")?;
        let inventory = scheduler.stock().inventory();
        let cuda = inventory.cuda.filter(|_| !inventory.gpus.is_empty());
        let place = EnvironmentPaths { cuda, ..place(paths, single_user_mode, surroundings) };
        let environments = Environments::new(config.environments.clone(), place, Recipe::default(), clock.clone());
        environments.load(&db).await.context("reading the environments that administrators added")?;
        let (place, sealing) = (paths.shared.join("images"), keys::derive(&key, b"registry credentials"));
        let images = Images::open(config.images.clone(), place, db.clone(), clock.clone(), sealing);
        let images = images.await.context("opening the images")?;
        let admission = admission(config, &db, &clock, scheduler.stock().clone())?;
        let logs = folder(&paths.private, "logs")?;
        let single_user = if single_user_mode { own_account(&*scheduler).await } else { None };
        let storage: Vec<_> = config.storage.iter().map(|one| (one.name.clone(), one.path.clone())).collect();
        let files_config = files_config(config, &storage, single_user_mode);
        let files = Files::new(db.clone(), scheduler.clone(), launcher, files_config);
        let curves = folder(&paths.private, "curves")?;
        let trash = Trash { db: db.clone(), clock: clock.clone(), logs: logs.clone(), points: curves.clone() };
        let keepers = keepers(config, trash.clone());
        let runs = Runs::new(db.clone(), clock.clone(), scheduler.clone(), files.clone(), runs_config(config, curves));
        let mirror = mirror(config, &admission);
        let reader = config.scheduler.slurm().and_then(|settings| Reader::new(admission.clone(), settings));
        let cluster = Cluster::new(admission.clone(), scheduler.clone(), config.gpus);
        let sessions = Sessions::new(
            admission,
            scheduler,
            Catalogue::new(config.apps.clone()),
            environments,
            images,
            sessions::Config {
                profiles: config.profiles(),
                key: keys::derive(&key, b"upstream"),
                logs,
                boot_id: helper::process::boot_id().context("reading the boot id")?,
                installed,
                storage,
                start_timeout_seconds: config.sessions.start_timeout.unsigned_abs(),
                open_within_seconds: config.sessions.open_within,
                portal_uid: started.service_uid,
                shared_uid: config.accounts.shared_uid,
                single_user_mode,
                loops: loops.clone(),
            },
        );

        sessions.load_profiles().await.context("reading the profiles that administrators added")?;
        sessions.take_over_the_clock().await?;
        let (listener, apps_listener) = listeners::bind(config).await?;
        note_addresses(&lock, &listener, apps_listener.as_ref()).context("storing the portal's address")?;
        let calls = listeners::bind_calls(&nodes).await?;
        let announcements = announcements(&db, &clock).await?;
        let (access, directory) = access(config, db, &clock, &key, &paths.private).await?;
        let certificate = listeners::certificate(config)?;
        let web_config = web_config(config, &paths.private, &listener, apps_listener.as_ref())?;
        let portal = Arc::new(Portal::new(web::Parts {
            access: Arc::new(access),
            events: events(config, &sessions, &key),
            notifications: notifications(config, &sessions, &runs, &key, web_config.public_url.as_ref()),
            config: web_config,
            sessions,
            cluster,
            gateway: Gateway::new(Proxy::new(clock), keys::derive(&key, b"apps"), nodes.clone()),
            files,
            runs,
            trash,
            announcements,
            surroundings: ReportContext { loops, directory, certificate, mirror, reader },
            single_user,
            program: started.binary,
            driver_library: config.scheduler.driver_library(),
            datasets: config.datasets.clone(),
            stopping: life.stopping.clone(),
        }));
        let options = listeners::connections(&portal)?;
        let helper = started.helper;
        let calls = calls.map(|listener| (nodes, listener));
        Ok(Self { portal, life, keepers, listener, apps_listener, calls, options, helper, _lock: lock })
    }

    /// The address that the main listener really has.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Starts the loops and serves until the process is asked to end.
    pub async fn run(self) -> Result<()> {
        let address = self.listener.local_addr()?;
        let Self { portal, life, keepers, listener, apps_listener, calls, options, helper, _lock } = self;
        let (journal, retention) = keepers;
        if let Some(helper) = helper {
            // Without it nothing can be launched or ended; a new start brings a new one.
            life.spawn("helper", end_of(helper));
        }
        loops::start(&life, &portal);
        life.spawn("audit log", journal.follow(life.loops.clone()));
        life.spawn("retention", retention.run(life.loops.clone()));
        if let Some(directory) = portal.surroundings.directory.clone() {
            loops::look_at_directory(&life, directory);
        }
        if let Some(mirror) = portal.surroundings.mirror.clone() {
            life.spawn("quotas in Slurm", mirror.run(life.loops.clone()));
        }
        if let Some(reader) = portal.surroundings.reader.clone() {
            life.spawn("quotas in Slurm", reader.run(life.loops.clone()));
        }
        if let Some(certificate) = portal.surroundings.certificate.clone() {
            life.periodic("certificate", CERTIFICATE_CHECK_INTERVAL, move || {
                std::future::ready(listeners::look_at_certificate(&certificate))
            });
        }
        let service = web::Front::portal(portal.clone());
        life.tracker.spawn(listen::serve(listener, service, options.clone(), life.stopping.clone()));
        if let Some(listener) = apps_listener {
            let service = web::Front::apps(portal.clone());
            life.tracker.spawn(listen::serve(listener, service, options, life.stopping.clone()));
        }
        if let Some((nodes, listener)) = calls {
            life.tracker.spawn(nodes.serve(listener, gateway::expected(portal.clone()), life.stopping.clone()));
        }
        listeners::announce(&portal, address);
        let outcome = life.wait().await;
        portal.sessions.stopping.cancel();
        portal.gateway.proxy.tunnels().shut_down().await;
        portal.sessions.tracker.close();
        // Launches under way are finished by whoever comes next, if they take too long.
        let _ = tokio::time::timeout(Duration::from_secs(10), portal.sessions.tracker.wait()).await;
        portal.db.close().await;
        Ok(outcome?)
    }
}

/// Comes back when the helper has ended.
async fn end_of(mut helper: Child) {
    while matches!(helper.try_wait(), Ok(None)) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tracing::error!("helper exited; sessions cannot be started or ended until Lyceum is restarted");
}

/// Who decides what may run on this machine.
fn admission(config: &Config, db: &Db, clock: &Clock, stock: Inventory) -> Result<Admission> {
    let (db, clock, period) = (db.clone(), clock.clone(), config.quotas.period()?);
    let extend_while_others_wait = config.sessions.extend_while_others_wait;
    let zone = config.quotas.zone()?;
    Ok(Admission {
        db,
        clock,
        stock,
        period,
        extend_while_others_wait,
        holds_at_once: config.scheduler.slurm().is_none(),
        zone,
        blocked_gpus: BlockedGpus::default(),
        external_usage: ExternalUsage::default(),
        slurm_limits: config
            .scheduler
            .slurm()
            .filter(|slurm| slurm.quotas == Quotas::Read)
            .map(|_| SharedSlurmLimits::default()),
    })
}

/// Who writes limits into Slurm's accounting, where that is set.
fn mirror(config: &Config, admission: &Admission) -> Option<Arc<Mirror>> {
    let settings = config.scheduler.slurm().filter(|settings| settings.quotas == Quotas::Mirror)?;
    Some(Mirror::new(admission.clone(), settings))
}

/// How people's files are come to.
fn files_config(config: &Config, storage: &[(String, PathBuf)], single_user_mode: bool) -> files::Config {
    files::Config {
        storage: storage.to_owned(),
        max_upload_bytes: config.files.max_upload.unsigned_abs(),
        patience: Duration::from_secs(config.files.timeout.unsigned_abs()),
        single_user_mode,
        shared_uid: config.accounts.shared_uid,
    }
}

/// How much of people's curves is kept, and where.
fn runs_config(config: &Config, directory: PathBuf) -> runs::Config {
    runs::Config {
        directory,
        most_points: config.curves.max_points.unsigned_abs(),
        memory: config.curves.memory.unsigned_abs(),
    }
}

/// Who tells people of their jobs.
fn notifications(
    config: &Config,
    sessions: &Arc<Sessions>,
    runs: &Arc<Runs>,
    key: &keys::Key,
    public: Option<&Url>,
) -> Arc<Notifications> {
    let portal = public.map(|url| url.as_str().trim_end_matches('/').to_owned()).unwrap_or_default();
    let (settings, key) = (config.notifications.clone(), keys::derive(key, b"notifications"));
    Notifications::new(sessions.clone(), runs.clone(), settings, key, portal)
}

/// Creates the service that lists events and calls webhooks.
fn events(config: &Config, sessions: &Arc<Sessions>, key: &keys::Key) -> Arc<Events> {
    let (db, clock, key) = (sessions.db.clone(), sessions.clock.clone(), keys::derive(key, b"webhooks"));
    Events::new(db, clock, config.notifications.clone(), key)
}

async fn announcements(db: &Db, clock: &Clock) -> Result<Arc<Announcements>> {
    let announcements = Arc::new(Announcements::new(db.clone(), clock.clone()));
    announcements.refresh().await?;
    Ok(announcements)
}

/// Where environments are made, and for whom.
fn place(paths: &Paths, single_user_mode: bool, surroundings: &Environment) -> EnvironmentPaths {
    EnvironmentPaths {
        shared: paths.shared.clone(),
        cache: paths.private.join("environments"),
        everybody: !single_user_mode,
        variables: surroundings.for_tools(),
        cuda: None,
    }
}

/// Creates a folder of the portal's own data.
fn folder(private: &Path, name: &'static str) -> Result<PathBuf> {
    let folder = private.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("creating the directory for {name}"))?;
    Ok(folder)
}

fn keepers(config: &Config, trash: Trash) -> (Journal, Retention) {
    let Trash { db, clock, logs, .. } = trash.clone();
    (Journal::new(db.clone(), config.audit.clone()), Retention { db, clock, config: config.retention, logs, trash })
}

async fn database(config: &Config, private: &Path, start_empty: bool) -> Result<Db> {
    if start_empty {
        if let Some(file) = config.database.file(private)? {
            db::forget_changes(&file).context("removing the remains of the lost database")?;
        }
        return Ok(Db::open(&config.database, private).await?);
    }
    Ok(Db::open_known(&config.database, private, &keys::path(private)).await?)
}

/// That passwords cross a network in clear is written down at each start.
async fn note_open_listener(config: &Config, db: &Db, clock: &Clock) -> Result<()> {
    if config.server.is_open() {
        let (action, listen) = ("server.insecure_http", config.server.listen.to_string());
        db.add_audit(clock.now(), "portal", action, &listen, "passwords are sent over the network unencrypted").await?;
    }
    Ok(())
}

/// Who gets in and by what, and the directory, where there is one.
async fn access(
    config: &Config,
    db: Db,
    clock: &Clock,
    key: &keys::Key,
    private: &Path,
) -> Result<(Access, Option<Arc<Ldap>>)> {
    let (authenticator, directory) = authenticator(config, &db, clock).await?;
    let header = config.auth.header.is_on().then(|| config.auth.header.clone());
    let header = header.map(|settings| Header::new(settings, db.clone(), clock.clone(), directory.clone()));
    let access = Access::new(db, clock.clone(), keys::derive(key, b"forms"), private, authenticator);
    Ok((access.with_header(header).disabling_unused(config.accounts.dormant_after), directory))
}

/// Who judges passwords, and the directory, where that is one.
async fn authenticator(config: &Config, db: &Db, clock: &Clock) -> Result<(Arc<dyn Authenticator>, Option<Arc<Ldap>>)> {
    Ok(match config.auth.kind {
        AuthKind::Local => (Arc::new(auth::Local::new(db.clone()).await?), None),
        AuthKind::Ldap => {
            let directory = Arc::new(Ldap::new(db.clone(), clock.clone(), config.auth.ldap.clone()).await?);
            (directory.clone(), Some(directory))
        }
    })
}

fn web_config(
    config: &Config,
    private: &Path,
    listener: &TcpListener,
    apps: Option<&TcpListener>,
) -> Result<WebConfig> {
    let server = &config.server;
    let port = listener.local_addr()?.port();
    let apps = match apps {
        None if server.apps == AppsMode::Subdomain => AppsOrigin::Subdomain(server.apps_domain()),
        None => AppsOrigin::Path,
        Some(_) if !server.apps_url.is_empty() => AppsOrigin::Url(server.apps_url.trim_end_matches('/').to_owned()),
        Some(apps) => AppsOrigin::Port(apps.local_addr()?.port()),
    };
    let trusted_proxies =
        server.trusted_proxies.iter().map(|proxy| web::http::forwarded::parse_network(proxy)).collect();
    Ok(WebConfig {
        public_url: server.public_address(port),
        tls: !server.tls_cert.is_empty(),
        port,
        host_names: vec![rustix::system::uname().nodename().to_string_lossy().into_owned()],
        trusted_proxies: Option::context(trusted_proxies, "server.trusted_proxies")?,
        client_header: server.client_header,
        hsts: server.hsts,
        insecure_http: server.insecure_http,
        apps,
        private: private.to_owned(),
        quotas: config.scheduler.slurm().map(|settings| settings.quotas).unwrap_or_default(),
    })
}

/// The Unix account that everything runs as, in a portal that is not root.
async fn own_account(accounts: &dyn Accounts) -> Option<String> {
    let nobody = crate::scheduler::PortalUser { name: String::new(), account: crate::scheduler::Account::Made };
    accounts.person(&nobody).await.ok().map(|person| person.unix_name)
}

/// Refuses a second portal on the same data directory.
fn lock(private: &Path) -> Result<Lock> {
    let lock = Lock::take(private).with_context(|| format!("locking {}", private.display()))?;
    lock.context("another `lyceum serve` uses this data directory; stop it, or choose another one with --data")
}

/// For `lyceum check`.
fn note_addresses(lock: &Lock, listener: &TcpListener, apps: Option<&TcpListener>) -> io::Result<()> {
    lock.note(listener.local_addr()?, apps.map(TcpListener::local_addr).transpose()?)
}

/// On a terminal the first password is shown; a log must not hold it.
fn log_first_password(file: &Path) {
    if io::IsTerminal::is_terminal(&io::stdout())
        && let Ok(password) = std::fs::read_to_string(file)
    {
        let (password, file) = (password.trim(), file.display());
        let _ = writeln!(
            io::stdout(),
            "\n  Sign in as  admin  with  {password}\n  (the password is also in {file} until the first sign-in)\n"
        );
    } else {
        let file = file.display();
        tracing::info!(%file, "created account `admin`; the file has its password until the first sign-in");
    }
}
