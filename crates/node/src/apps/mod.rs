//! The catalogue of apps: what somebody can start, how it looks on the form, and when it
//! counts as idle. [`launch`] says how each is started; apps that a site adds by
//! configuration are described and checked in [`site`]. Pure: nothing here touches a disk.

mod context;
mod images;
mod jupyter;
mod launch;
mod site;

pub use context::{Batch, Context, OwnPython, Python};
pub use launch::{Error, base_url, launch, with_modules};
pub use site::{Fault, Listen, SiteApp, is_variable, validate};

use lyceum_model::{Resources, size::GIB};
use lyceum_wire::protocol::files;

/// The name under which attempts of jobs stand beside apps.
pub const JOB: &str = "job";

/// Everything that can be started here, in the order of the form.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    apps: Vec<App>,
    /// How jobs are started; nobody chooses it as an app.
    job: App,
}

/// One app, as forms and cards show it.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    pub kind: AppKind,
    /// As `POST /sessions {"app": …}` names it.
    pub name: String,
    pub title: String,
    /// One line.
    pub description: String,
    /// The id of a symbol of the icon sheet.
    pub icon: &'static str,
    /// Whether it waits for an environment to be built. A terminal takes one that is there.
    pub uses_environment: bool,
    pub idle: Idle,
    /// What the form proposes; `None` leaves the choice to the profiles.
    pub default_resources: Option<Resources>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AppKind {
    Jupyter,
    TensorBoard,
    /// A trained model that answers pictures over HTTP.
    Model,
    Terminal,
    /// A command or a script, which nobody opens.
    Job,
    Site(SiteApp),
}

/// Selects what counts as use; a session without use for too long is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// Requests of people, and what it computes.
    #[default]
    Http,
    /// What it computes: a busy core or GPU. Requests do not count.
    Cpu,
    /// A busy GPU, and nothing else. What cannot be measured is never idle.
    Gpu,
    /// Nothing: it is never stopped for idleness.
    None,
    /// As `Http`, and what Jupyter says of its kernels and terminals. Not for apps of the
    /// configuration.
    #[serde(skip_deserializing)]
    Kernels,
    /// As `Http`, and input and output of the agent's terminals. Not for apps of the
    /// configuration.
    #[serde(skip_deserializing)]
    Terminals,
}

impl Catalogue {
    /// The built-in apps, then the site's, which must have passed [`validate`].
    pub fn new(site: Vec<SiteApp>) -> Self {
        Self { apps: built_in().into_iter().chain(site.into_iter().map(App::from)).collect(), job: job() }
    }

    pub fn find(&self, name: &str) -> Option<&App> {
        self.apps.iter().chain([&self.job]).find(|app| app.name == name)
    }

    /// Those that people choose from.
    pub fn iter(&self) -> impl Iterator<Item = &App> {
        self.apps.iter()
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl App {
    /// Whether somebody of these groups may start it.
    pub fn allows<S: AsRef<str>>(&self, groups: &[S]) -> bool {
        match &self.kind {
            AppKind::Site(site) if !site.groups.is_empty() => {
                groups.iter().any(|group| site.groups.iter().any(|allowed| allowed == group.as_ref()))
            }
            _ => true,
        }
    }

    /// Whether an environment can be chosen for it.
    pub fn takes_environment(&self) -> bool {
        self.uses_environment || self.kind == AppKind::Terminal
    }

    /// Whether it begins with a directory: of logs, or of a model.
    pub fn takes_logs(&self) -> bool {
        matches!(self.kind, AppKind::TensorBoard | AppKind::Model)
    }

    /// The socket in the run directory that answers for it; `None` for an app on a port.
    pub fn socket(&self) -> Option<&'static str> {
        match &self.kind {
            AppKind::Terminal | AppKind::Job => Some(files::AGENT_SOCKET),
            AppKind::Site(site) if site.listen == Listen::Port => None,
            _ => Some(files::APP_SOCKET),
        }
    }

    /// Whether what answers for it are terminals, which the agent has.
    pub fn is_terminals(&self) -> bool {
        self.socket() == Some(files::AGENT_SOCKET)
    }

    /// Whether it listens on a port, where everybody on its node can reach it.
    pub fn is_on_port(&self) -> bool {
        self.socket().is_none()
    }

    /// Whether the app wants to see `/` instead of its base URL.
    pub fn strips_prefix(&self) -> bool {
        matches!(&self.kind, AppKind::Site(site) if site.strip_prefix)
    }
}

impl From<SiteApp> for App {
    fn from(site: SiteApp) -> Self {
        Self {
            name: site.name.clone(),
            title: if site.title.is_empty() { site.name.clone() } else { site.title.clone() },
            // A page says by itself that the site added it.
            description: if site.listen == Listen::Port { "visible on this node".to_owned() } else { String::new() },
            icon: "app",
            uses_environment: false,
            idle: site.idle,
            default_resources: None,
            kind: AppKind::Site(site),
        }
    }
}

/// Whether an app of this name begins with a directory; the site's do not.
pub fn takes_logs(name: &str) -> bool {
    built_in().iter().any(|app| app.name == name && app.takes_logs())
}

fn job() -> App {
    App {
        kind: AppKind::Job,
        name: JOB.to_owned(),
        title: "Job".to_owned(),
        description: "A command or script that runs unattended.".to_owned(),
        icon: "job",
        uses_environment: true,
        idle: Idle::None,
        default_resources: None,
    }
}

fn built_in() -> [App; 4] {
    let light = |gib: i64| Some(Resources { memory_bytes: gib * GIB, ..Resources::default() });
    [
        App {
            kind: AppKind::Jupyter,
            name: "jupyter".to_owned(),
            title: "JupyterLab".to_owned(),
            description: "Notebooks, files and terminals in one window.".to_owned(),
            icon: "jupyter",
            uses_environment: true,
            idle: Idle::Kernels,
            default_resources: None,
        },
        App {
            kind: AppKind::TensorBoard,
            name: "tensorboard".to_owned(),
            title: "TensorBoard".to_owned(),
            description: "Curves of training runs from a log directory.".to_owned(),
            icon: "tensorboard",
            uses_environment: true,
            idle: Idle::Http,
            default_resources: light(2),
        },
        App {
            kind: AppKind::Model,
            name: "model".to_owned(),
            title: "Model service".to_owned(),
            description: "Serves predictions of a trained model over HTTP.".to_owned(),
            icon: "model",
            uses_environment: true,
            idle: Idle::Http,
            default_resources: light(2),
        },
        App {
            kind: AppKind::Terminal,
            name: "terminal".to_owned(),
            title: "Terminal".to_owned(),
            description: "A login shell on the node.".to_owned(),
            icon: "terminal",
            uses_environment: false,
            idle: Idle::Terminals,
            default_resources: light(1),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let catalogue = Catalogue::default();
        let names: Vec<_> = catalogue.iter().map(|app| app.name.as_str()).collect();
        assert_eq!(names, ["jupyter", "tensorboard", "model", "terminal"]);
        assert!(catalogue.find("Jupyter").is_none());
        for app in catalogue.iter().filter_map(|app| app.default_resources.as_ref()) {
            assert!(app.is_light());
        }
    }

    #[test]
    fn groups_of_a_site_app_bind() {
        let site: SiteApp =
            toml::from_str("name = \"echo\"\ncommand = [\"/bin/true\"]\ngroups = [\"lab\"]").expect("a valid app");
        let catalogue = Catalogue::new(vec![site]);
        let echo = catalogue.find("echo").expect("it was added");
        assert!(echo.allows(&["x", "lab"]));
        assert!(!echo.allows(&["x"]));
        assert!(!echo.allows::<&str>(&[]));
        assert!(catalogue.find("terminal").expect("built in").allows::<&str>(&[]));
        assert_eq!(echo.title, "echo");
    }
}
