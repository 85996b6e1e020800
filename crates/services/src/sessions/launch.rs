//! From a session's row to what the scheduler starts: paths below the user's home, the
//! environment's Python, the app's command, the secret between proxy and app.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Error, Result, Route, Sessions};
use lyceum_db as db;
use lyceum_model::{Session, SessionId, SessionState, User};
use lyceum_node::apps::{self, App, AppKind, Batch, Context, OwnPython};
use lyceum_node::overlay;
use lyceum_wire::protocol::{HomeSetup, Modules, OverlaySetup, Software, files};

use crate::{
    environments::{DEFAULT, Environment, State},
    scheduler::{Launch, Person, PortalUser},
};

/// What becomes of a session whose specification is damaged.
pub(super) const NOT_READABLE: &str = "its stored request can no longer be read: start it again";

impl Sessions {
    /// Everything the scheduler needs. `Err(Conflict)` holds a sentence for the user.
    pub(super) async fn plan(&self, session: &Session, user: &User) -> Result<Launch> {
        let app = self
            .apps
            .find(&session.app)
            .ok_or_else(|| Error::Conflict(format!("the app `{}` is no longer available", session.app)))?;
        if !session.spec_is_whole {
            return Err(Error::Conflict(NOT_READABLE.to_owned()));
        }
        let portal_user = PortalUser::from(user);
        let person = self.scheduler.person(&portal_user).await?;
        let task = match session.job {
            Some(attempt) => self.db.job_task(attempt.job).await?,
            None => None,
        };
        // A script of Slurm's finds the Python that it names itself, or loads.
        let is_slurms = task.as_ref().is_some_and(|task| task.shape.as_written);
        let (container, kernels) = self.image(session, app, person.uid).await?;
        let (python, software) = match &session.spec.environment {
            _ if container.is_some() => (None, None),
            None if is_slurms => (None, None),
            _ => self.python(session, app, &person),
        };
        let name = session.spec.environment.as_deref().or(python.as_ref().map(|_| DEFAULT));
        let variables =
            name.map(|name| self.environments.variables(name, session.spec.resources.gpus)).unwrap_or_default();
        let mut extra: BTreeMap<String, String> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if let Some(init) = self.environments.modules().init().filter(|_| task.is_some() && container.is_none()) {
            // Scripts of bash's know `module`, as in a login shell.
            extra.entry("BASH_ENV".to_owned()).or_insert(init.to_string_lossy().into_owned());
        }
        let run_directory = self.scheduler.run_directory(session.id);
        let working_directory = below_home(&person, session.spec.working_directory.as_deref());
        let log_directory = session.spec.log_directory.as_deref().map(|path| below_home(&person, Some(path)));
        let log_directories = session.spec.log_directories.iter();
        let log_directories =
            log_directories.map(|(name, path)| (name.clone(), below_home(&person, Some(path)))).collect();
        let port = app.is_on_port().then(|| port_of(session.id));
        let shape = task.as_ref().map(|task| task.shape.clone()).unwrap_or_default().with(&session.spec.slurm);
        // What the program finds is what its node has.
        let resources = shape.share(session.spec.resources.clone());
        let context = Context {
            session: session.id,
            base_url: &apps::base_url(session.id),
            person: &person,
            run_directory: &run_directory,
            python: python.as_ref(),
            working_directory: &working_directory,
            log_directory: log_directory.as_deref(),
            log_directories: &log_directories,
            tensorboard_wrapper: &self.config.installed.tensorboard,
            trainer: &self.config.installed.trainer,
            resources: &resources,
            gpus: &session.gpus,
            gpu_driver: self.scheduler.stock().inventory().driver,
            token: &self.upstream_secret(session.id),
            port,
            batch: None,
            container: container.as_ref(),
            kernels: &kernels,
            extra: &extra,
        };
        let batch = session.job.zip(task.as_ref()).map(|(attempt, task)| Batch { attempt, task });
        let context = Context { batch, ..context };
        let mut app = apps::launch(app, &context).map_err(|problem| Error::Conflict(problem.to_string()))?;
        if let Some(ready) = &mut app.ready {
            ready.timeout_seconds = self.config.start_timeout_seconds;
        }
        let modules = self.modules(&session.spec.modules)?;
        if let Some(modules) = &modules {
            app = apps::with_modules(app, &modules.names, &self.config.installed.tensorboard);
        }
        let home = HomeSetup {
            home: person.home.clone(),
            templates: Some(self.config.installed.templates.clone()),
            links: self.config.storage.clone(),
            software,
            modules,
        };
        Ok(Launch {
            session: session.id,
            name: session.name.clone(),
            group: session.spec.group.clone(),
            seconds: session.spec.duration_seconds,
            person,
            resources: session.spec.resources.clone(),
            shape,
            gpus: session.gpus.clone(),
            app,
            home,
        })
    }

    /// What is loaded before the app starts.
    fn modules(&self, names: &[String]) -> Result<Option<Modules>> {
        if names.is_empty() {
            return Ok(None);
        }
        let init = self.environments.modules().init();
        let init = init
            .ok_or_else(|| Error::Conflict("environment modules are no longer available on this machine".to_owned()))?;
        Ok(Some(Modules { init: init.to_owned(), names: names.to_owned() }))
    }

    /// What runs the app's server, and what the person's own code runs in. The server is the
    /// shared environment's wherever there is one: what somebody installs cannot break it.
    fn python(&self, session: &Session, app: &App, person: &Person) -> (Option<apps::Python>, Option<Software>) {
        if !app.takes_environment() {
            return (None, None);
        }
        let asked = session.spec.environment.as_deref();
        if let Some(path) = asked.filter(|asked| is_path(asked)) {
            let folder = below_home(person, Some(path));
            let own = Some(OwnPython { folder: folder.clone(), is_overlay: false });
            let python = match self.environments.find(DEFAULT).map(|found| found.state) {
                Some(State::Ready { python, bin, .. }) => apps::Python { python, bin, own },
                _ => apps::Python { python: folder.join("bin/python"), bin: folder.join("bin"), own },
            };
            return (Some(python), Some(Software::Own { folder, needs: self.needs(app) }));
        }
        let name = asked.unwrap_or(DEFAULT);
        let Some(Environment {
            state: State::Ready { python, bin, base, libraries },
            python_version: Some(python_version),
            ..
        }) = self.environments.find(name)
        else {
            return (None, None);
        };
        let overlay = self.environments.overlay_name(name).filter(|_| app.kind != AppKind::TensorBoard);
        let software = overlay.map(|overlay| OverlaySetup {
            folder: overlay::folder(&person.home, &overlay),
            environment: name.to_owned(),
            python_version,
            base,
            libraries,
        });
        let own = software.as_ref().map(|setup| OwnPython { folder: setup.folder.clone(), is_overlay: true });
        (Some(apps::Python { python, bin, own }), software.map(Software::Overlay))
    }

    /// What an environment of the person's own has to hold: the server too, where nobody else has it.
    pub(super) fn needs(&self, app: &App) -> Vec<String> {
        let state = self.environments.find(DEFAULT).map(|found| found.state);
        let is_served = matches!(state, Some(State::Ready { .. } | State::Building { .. }));
        let needs: &[&str] = match (&app.kind, is_served) {
            (AppKind::Jupyter, true) => &["ipykernel"],
            (AppKind::Jupyter, false) => &["ipykernel", "jupyterlab"],
            (AppKind::TensorBoard, false) => &["tensorboard"],
            _ => &[],
        };
        needs.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Lets people come to a session, or to the terminals beside a job's program.
    pub(super) fn add_route(&self, session: &Session) {
        self.routes.set(self.route(session));
    }

    /// Finds the route of a live session. While the session is starting, also reads its row: a user who was told
    /// there that it is running may open it before the route table is updated.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub async fn find_route(&self, id: SessionId) -> db::Result<Option<Arc<Route>>> {
        let known = self.routes.find(id);
        if known.as_ref().is_some_and(|route| route.state == SessionState::Starting)
            && let Some(session) = self.db.find_session(id).await?
            && session.state == SessionState::Running
        {
            self.add_route(&session);
            return Ok(self.routes.find(id));
        }
        Ok(known)
    }

    /// The route of a session as its row stands.
    fn route(&self, session: &Session) -> Route {
        let app = self.apps.find(&session.app);
        let socket = app.and_then(App::socket).unwrap_or(files::APP_SOCKET);
        let placement = session.placement.as_ref();
        let jupyter = app.is_some_and(|app| app.kind == AppKind::Jupyter);
        Route {
            session: session.id,
            owner: session.owner,
            state: session.state,
            app: session.app.clone(),
            socket: placement.map(|placement| Path::new(&placement.run_directory).join(socket)),
            port: self.port(session),
            link: placement.and_then(|placement| placement.link.clone()),
            uid: placement.map_or(u32::MAX, |placement| placement.uid),
            is_terminals: app.is_some_and(App::is_terminals),
            authorization: jupyter.then(|| format!("token {}", self.upstream_secret(session.id))),
            strip_prefix: app.is_some_and(App::strips_prefix),
        }
    }

    /// The port of its node on which a session's app answers; `None` for one on a socket.
    pub fn port(&self, session: &Session) -> Option<u16> {
        self.apps.find(&session.app).filter(|app| app.is_on_port()).map(|_| port_of(session.id))
    }

    /// An id for a new session; that of an app on a port is one whose port is free.
    pub(super) fn new_id(&self, app: &str) -> SessionId {
        let new = SessionId::new();
        if !self.apps.find(app).is_some_and(App::is_on_port) {
            return new;
        }
        let is_free = |port| !self.routes.uses_port(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        let mut others = std::iter::repeat_with(SessionId::new).take(100);
        others.find(|id| is_free(port_of(*id))).unwrap_or(new)
    }

    /// The secret that the app expects from the proxy: derived, so that it is never stored.
    pub(super) fn upstream_secret(&self, id: SessionId) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.config.key).expect("a key of any length will do");
        mac.update(b"upstream ");
        mac.update(id.to_string().as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }
}

/// A port app's port: fixed by the session's id, so that a restarted portal knows it again.
/// It is between 16384 and 32767, below the ports of outgoing connections.
fn port_of(id: SessionId) -> u16 {
    let bits = id.uuid().as_u128() & 0x3fff;
    0x4000 | u16::try_from(bits).expect("14 bits")
}

/// Whether an environment is named by its path: it is one of the person's own.
pub fn is_path(environment: &str) -> bool {
    environment.starts_with('~') || environment.contains('/')
}

/// An absolute path as it is; anything else below the home directory.
pub(super) fn below_home(person: &Person, path: Option<&str>) -> PathBuf {
    let Some(path) = path else { return person.home.clone() };
    let path = path.strip_prefix("~/").or_else(|| (path == "~").then_some("")).unwrap_or(path);
    person.home.join(path)
}
