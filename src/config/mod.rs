//! Settings: one TOML file, `LYCEUM_SECTION__KEY` variables over it, secrets from files.
//! This is the only place that reads the environment. Loading reports every fault it can
//! see at once, each with its key; nothing after the start reads a file or a variable again.

mod environment;
mod faults;
mod origins;
mod values;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use jiff::tz::TimeZone;
use serde::Deserialize;
use toml::{Table, Value};

pub use environment::Environment;
use values::{auto_count, auto_size, duration, list, optional_duration, overlay, size};

use crate::{
    apps, auth, check, cluster, datasets, db, environments, gpu,
    helper::{ACCOUNT_UIDS, batch::Tools},
    images, journal,
    model::{
        Clock, Resources,
        quota::{BadPeriod, Period, zone_of},
    },
    nodes, notifications, retention,
    scheduler::slurm,
    sessions::{Profile, profiles::Origin},
    start::{Paths, lock::running},
    web::ClientHeader,
};

/// Everything that can be set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Site apps may listen on a port of the loopback, where everybody on the node reaches them.
    pub allow_port_apps: bool,
    pub server: Server,
    pub database: db::Config,
    pub auth: Auth,
    pub scheduler: Scheduler,
    pub nodes: nodes::Config,
    pub accounts: Accounts,
    pub environments: environments::Config,
    pub images: images::Config,
    pub sessions: Sessions,
    pub gpus: cluster::Config,
    pub quotas: Quotas,
    pub files: Files,
    pub curves: Curves,
    pub notifications: notifications::Config,
    pub audit: journal::Config,
    pub retention: retention::Config,
    pub datasets: datasets::Config,
    pub profiles: Vec<ProfileSetting>,
    pub apps: Vec<apps::SiteApp>,
    pub storage: Vec<Storage>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    pub listen: SocketAddr,
    /// The address people type, where it differs from `listen`; empty: what the browser says.
    pub public_url: String,
    pub tls_cert: String,
    pub tls_key: String,
    /// For how long browsers that came by HTTPS come by nothing else (seconds).
    #[serde(deserialize_with = "duration")]
    pub hsts: i64,
    /// Reverse proxies, addresses and networks, that are believed about who asks.
    #[serde(deserialize_with = "list")]
    pub trusted_proxies: Vec<String>,
    /// Where they say so.
    pub client_header: ClientHeader,
    pub apps: AppsMode,
    /// Below which each session has a name, in the mode `subdomain`.
    pub apps_domain: String,
    /// Empty: the same address, next port.
    pub apps_listen: String,
    /// The apps' origin as browsers reach it; empty: the host of `public_url`, the apps' port.
    pub apps_url: String,
    pub insecure_http: bool,
    /// Whom the portal runs as when root starts it.
    pub user: String,
}

/// Where apps live in the browser's eyes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppsMode {
    /// A second origin: another port.
    #[default]
    Port,
    /// An origin for each session: a name below `apps_domain`.
    Subdomain,
    /// The portal's own origin; weaker.
    Path,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            public_url: String::new(),
            tls_cert: String::new(),
            tls_key: String::new(),
            hsts: 30 * 86_400,
            trusted_proxies: Vec::new(),
            client_header: ClientHeader::default(),
            apps: AppsMode::Port,
            apps_domain: String::new(),
            apps_listen: String::new(),
            apps_url: String::new(),
            insecure_http: false,
            user: "lyceum".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    pub kind: AuthKind,
    pub ldap: auth::ldap::Settings,
    /// A reverse proxy that names people, beside either.
    pub header: auth::header::Settings,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthKind {
    #[default]
    Local,
    /// A directory, and accounts of our own beside it.
    Ldap,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scheduler {
    pub kind: SchedulerKind,
    pub local: LocalScheduler,
    pub slurm: slurm::Settings,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerKind {
    #[default]
    Local,
    /// Batch jobs on a cluster.
    Slurm,
}

impl Scheduler {
    /// Slurm's settings, where it starts the workloads.
    pub fn slurm(&self) -> Option<&slurm::Settings> {
        (self.kind == SchedulerKind::Slurm).then_some(&self.slurm)
    }

    /// Where the driver's library is on the nodes, if not where their linker finds it.
    pub fn driver_library(&self) -> Option<PathBuf> {
        match self.slurm() {
            Some(settings) => Some(settings.nvml.clone()).filter(|path| !path.as_os_str().is_empty()),
            None => self.local.nvml.clone(),
        }
    }

    /// The commands that the helper runs as users.
    #[must_use]
    pub fn tools(&self) -> Option<Tools> {
        let settings = self.slurm()?;
        Some(Tools { sbatch: settings.tool("sbatch"), scancel: settings.tool("scancel"), conf: settings.conf() })
    }

    /// Where everything lies, for nodes that see run directories at a path of their own.
    #[must_use]
    pub fn place(&self, paths: Paths) -> Paths {
        match self.slurm() {
            Some(settings) if !settings.run.as_os_str().is_empty() => Paths { run: settings.run.clone(), ..paths },
            _ => paths,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalScheduler {
    pub gpus: gpu::Gpus,
    /// Another driver library than the system's, for tests.
    pub nvml: Option<PathBuf>,
    #[serde(deserialize_with = "auto_count")]
    pub cpus: Option<i64>,
    #[serde(deserialize_with = "auto_size")]
    pub memory: Option<i64>,
    /// From SIGTERM to SIGKILL when a session is stopped.
    #[serde(deserialize_with = "optional_duration")]
    pub grace: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Accounts {
    /// Several people share the portal's own Unix account and trust each other.
    pub shared_uid: bool,
    /// Our program as a rule of sudo's names it, which lets a portal that root does not start run it as its users.
    pub sudo: Option<PathBuf>,
    /// The uids of the accounts that are made on first need: first and last.
    pub uids: Option<(u32, u32)>,
    /// Accounts that nobody uses for so long are disabled (seconds); 0: never.
    #[serde(deserialize_with = "duration")]
    pub dormant_after: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sessions {
    /// From the launch to the app's first answer.
    #[serde(deserialize_with = "duration")]
    pub start_timeout: i64,
    /// One that waited for its turn is released when it runs and is not opened for so long
    /// (seconds); 0: never.
    #[serde(deserialize_with = "duration")]
    pub open_within: i64,
    /// Whether a session may be extended while others wait for what it holds.
    pub extend_while_others_wait: bool,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { start_timeout: 180, open_within: 30 * 60, extend_while_others_wait: true }
    }
}

/// What GPU-hours and core-hours are counted in; the limits themselves are in the database.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// `30d` for the last 30 days, or `month`, `week`: from its first day on.
    pub period: String,
    /// Where days, weeks and months begin at midnight.
    pub time_zone: String,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { period: "30d".to_owned(), time_zone: "UTC".to_owned() }
    }
}

impl Quotas {
    pub fn period(&self) -> Result<Period, BadPeriod> {
        Period::parse(&self.period, &self.time_zone)
    }

    pub fn zone(&self) -> Result<TimeZone, BadPeriod> {
        zone_of(&self.time_zone)
    }
}

/// People's files, as the pages and the API show them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Files {
    /// The largest file that may be uploaded (bytes).
    #[serde(deserialize_with = "size")]
    pub max_upload: i64,
    /// How long a file system may take to answer (seconds).
    #[serde(deserialize_with = "duration")]
    pub timeout: i64,
}

impl Default for Files {
    fn default() -> Self {
        Self { max_upload: 100 << 30, timeout: 20 }
    }
}

/// Curves of training.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Curves {
    /// Of one run; what comes beyond is counted and not kept.
    pub max_points: i64,
    /// So much of all runs' points is kept in memory (bytes).
    #[serde(deserialize_with = "size")]
    pub memory: i64,
}

impl Default for Curves {
    fn default() -> Self {
        Self { max_points: 20_000_000, memory: 512 << 20 }
    }
}

/// `[[profiles]]`: a named size.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSetting {
    pub name: String,
    pub title: String,
    #[serde(default)]
    pub gpus: i64,
    #[serde(default)]
    pub gpu_model: Option<String>,
    pub cpus: i64,
    #[serde(deserialize_with = "size")]
    pub memory: i64,
    #[serde(default = "eight_hours", deserialize_with = "duration")]
    pub duration: i64,
    /// The groups that may use it; empty: everybody.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// `[[storage]]`: a mount that is linked in every home.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    pub name: String,
    pub path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading {0}: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{}", .0.join("\n"))]
    Faults(Vec<String>),
}

/// The file that is read when nobody names one, if it exists.
const DEFAULT_FILE: &str = "/etc/lyceum/lyceum.toml";

impl Config {
    /// Reads the file (`--config`, `LYCEUM_CONFIG`, or the default one if it exists) and the
    /// variables over it.
    pub fn load(file: Option<&Path>, environment: &Environment) -> Result<Self, Error> {
        let named = file.map(Path::to_owned).or_else(|| environment.find("LYCEUM_CONFIG").map(PathBuf::from));
        let path = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound && named.is_none() => String::new(),
            Err(err) => return Err(Error::Read(path, err)),
        };
        Self::parse(&text, environment)
    }

    pub fn parse(text: &str, environment: &Environment) -> Result<Self, Error> {
        let mut table: Table = text.parse().map_err(|err| Error::Faults(vec![format!("{err}")]))?;
        for (name, value) in &environment.0 {
            let Some(key) = name.strip_prefix("LYCEUM_").filter(|key| key.contains("__")) else { continue };
            overlay(&mut table, &key.to_ascii_lowercase(), value);
        }
        let mut config: Self = serde_path_to_error::deserialize(Value::Table(table)).map_err(|err| {
            let path = err.path().to_string();
            let message = err.into_inner().to_string();
            Error::Faults(vec![if path == "." { message } else { format!("{path}: {}", message.trim()) }])
        })?;
        config.read_secrets()?;
        let faults = config.validate();
        if faults.is_empty() { Ok(config) } else { Err(Error::Faults(faults)) }
    }

    fn read_secrets(&mut self) -> Result<(), Error> {
        let ldap = &mut self.auth.ldap;
        let header = &mut self.auth.header;
        let mail = &mut self.notifications;
        for (file, secret) in [
            (&self.database.url_file, &mut self.database.url),
            (&ldap.bind_password_file, &mut ldap.bind_password),
            (&header.secret_file, &mut header.secret),
            (&mail.smtp_password_file, &mut mail.smtp_password),
        ] {
            if !file.as_os_str().is_empty() {
                let text = std::fs::read_to_string(file).map_err(|err| Error::Read(file.clone(), err))?;
                text.trim().clone_into(secret);
            }
        }
        self.images.read_secrets().map_err(|fault| Error::Faults(vec![fault]))?;
        self.auth.header.check_file().map_err(|fault| Error::Faults(vec![fault]))
    }

    /// What `lyceum check` looks at.
    #[must_use]
    pub fn facts(&self, paths: &Paths, environment: &Environment) -> check::Facts {
        let is_root = rustix::process::geteuid().is_root();
        check::Facts {
            data: paths.data.clone(),
            private: paths.private.clone(),
            run: paths.run.clone(),
            database: self.database.file(&paths.private).ok().flatten(),
            listen: self.server.listen,
            running: running(&paths.private),
            is_root,
            sudo: self.accounts.sudo.clone(),
            service_user: self.server.user.clone(),
            directory: self.auth.directory().cloned(),
            account_uids: self.accounts.uids.unwrap_or((*ACCOUNT_UIDS.start(), *ACCOUNT_UIDS.end())),
            server: self.server.clone(),
            surroundings: environment.surroundings(Some(&paths.data)),
            start_timeout: self.sessions.start_timeout.unsigned_abs(),
            environments: self.environments.clone(),
            place: environments::EnvironmentPaths {
                shared: paths.shared.clone(),
                cache: paths.private.join("environments"),
                everybody: is_root || self.accounts.sudo.is_some(),
                variables: environment.for_tools(),
                cuda: None,
            },
            gpus: gpu::Config { gpus: self.scheduler.local.gpus.clone(), nvml: self.scheduler.local.nvml.clone() },
            slurm: self.scheduler.slurm().cloned(),
            clock: Clock::System,
        }
        .as_it_runs()
    }

    /// The configured profiles, if any.
    #[must_use]
    pub fn profiles(&self) -> Vec<Profile> {
        let profile = |(position, setting): (i64, &ProfileSetting)| Profile {
            name: setting.name.clone(),
            title: setting.title.clone(),
            resources: Resources {
                gpus: setting.gpus,
                gpu_model: setting.gpu_model.clone(),
                cpus: setting.cpus,
                memory_bytes: setting.memory,
            },
            duration_seconds: setting.duration,
            groups: setting.groups.clone(),
            position,
            origin: Origin::File,
        };
        // Room between them for those that administrators add.
        (1..).map(|n| n * 10).zip(&self.profiles).map(profile).collect()
    }
}

impl Auth {
    /// The directory's settings, where one says who people are.
    pub fn directory(&self) -> Option<&auth::ldap::Settings> {
        (self.kind == AuthKind::Ldap).then_some(&self.ldap)
    }

    /// Where people come from who have no account of the portal's own.
    pub fn source(&self) -> &'static str {
        if self.kind == AuthKind::Local && self.header.is_on() { auth::header::SOURCE } else { auth::ldap::SOURCE }
    }
}

const fn eight_hours() -> i64 {
    8 * 3600
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::size::GIB;

    #[test]
    fn variables_lie_over_the_file() {
        let environment = Environment::from_pairs([
            ("LYCEUM_SERVER__LISTEN", "127.0.0.1:9000"),
            ("LYCEUM_SCHEDULER__LOCAL__GPUS", "4"),
            ("LYCEUM_SCHEDULER__LOCAL__MEMORY", "8GiB"),
            ("LYCEUM_SERVER__TRUSTED_PROXIES", "10.0.0.1, 10.0.0.2"),
            ("LYCEUM_SCHEDULER__SLURM__ARGUMENTS", "--nice, --exclusive=user"),
            ("LYCEUM_DATA", "/x"),
            ("PATH", "/bin"),
        ]);
        let config =
            Config::parse("[server]\nlisten = '127.0.0.1:8000'\n[scheduler.local]\ncpus = 3", &environment).unwrap();
        assert_eq!(config.server.listen.port(), 9000);
        assert_eq!(config.server.apps_address().port(), 9001);
        assert_eq!(config.server.trusted_proxies, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(config.scheduler.slurm.arguments, ["--nice", "--exclusive=user"]);
        assert_eq!(config.scheduler.local.cpus, Some(3));
        assert_eq!(config.scheduler.local.memory, Some(8 * GIB));
        assert_eq!(config.scheduler.local.gpus, gpu::Gpus::Count(4));
    }

    #[test]
    fn faults_name_their_key() {
        let fault = |text: &str| Config::parse(text, &Environment::default()).unwrap_err().to_string();
        assert!(fault("[server]\nlisten = '0.0.0.0:8000'").contains("server.listen"));
        assert!(fault("[server]\nlissten = 'x'").contains("lissten"));
        assert!(fault("[scheduler]\nkind = 'pbs'").contains("scheduler.kind"));
        assert!(fault("[[profiles]]\nname = 'a'\ntitle = 'A'\ncpus = 1\nmemory = 'much'").contains("memory"));
        assert!(fault("x = ").contains("line 1"));
        assert!(fault("[server]\napps_url = 'https://apps.example.org'").contains("server.public_url"));
        let same = "[server]\npublic_url = 'https://a.example.org'\napps_url = 'https://a.example.org:443'";
        assert!(fault(same).contains("the portal's own address"));
        let both = fault("[server]\ntls_cert = 'x'\npublic_url = 'ftp://x'");
        assert!(both.contains("tls_key") && both.contains("public_url"), "{both}");
    }

    #[test]
    fn known_default_secrets_are_refused() {
        let fault = |text: &str| Config::parse(text, &Environment::default()).unwrap_err().to_string();
        let ldap = "[auth]\nkind = 'ldap'\n[auth.ldap]\nurls = ['ldaps://a']\nuser_base = 'x'\nallow_groups = ['*']\nbind_dn = 'cn=x'\n";
        for known in ["changeme", "ChangeMe", "password", "postgres"] {
            let database = fault(&format!("[database]\nurl = 'postgres://lyceum:{known}@db/lyceum'"));
            assert!(database.contains("database.url: its password") && !database.contains(&format!(":{known}@")));
            assert!(
                fault(&format!("{ldap}bind_password = '{known}'")).contains("auth.ldap.bind_password: its password")
            );
        }
        for own in [
            "[database]\nurl = 'postgres://lyceum:b5TgYq0l@db/lyceum'",
            "[database]\nurl = 'postgres://lyceum@db/lyceum'",
        ] {
            Config::parse(own, &Environment::default()).unwrap();
        }
        Config::parse(&format!("{ldap}bind_password = 'b5TgYq0l'"), &Environment::default()).unwrap();
    }

    #[test]
    fn the_example_is_valid_and_holds_the_defaults() {
        let example = include_str!("../../lyceum.example.toml");
        Config::parse(example, &Environment::default()).unwrap();
    }

    /// Asks serde for the settings of a section, and of those below it: what it expects beside a name that is none.
    /// A section whose settings are shared with another by `flatten` names none, and counts as one setting.
    fn settings(section: &str, found: &mut Vec<(String, String)>) {
        let expected = |header: &str| {
            let fault = toml::from_str::<Config>(&format!("{header}\nno-setting = 1\n")).unwrap_err().to_string();
            let names = fault.split_once("unknown field `no-setting`, expected ")?.1.lines().next()?;
            Some(names.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        };
        let header = if section.is_empty() { String::new() } else { format!("[{section}]") };
        let Some(names) = expected(&header).or_else(|| expected(&format!("[[{section}]]"))) else {
            let (parent, name) = section.rsplit_once('.').unwrap_or(("", section));
            return found.push((parent.to_owned(), name.to_owned()));
        };
        for name in names {
            settings(&if section.is_empty() { name } else { format!("{section}.{name}") }, found);
        }
    }

    #[test]
    fn the_example_names_every_setting() {
        let mut all = Vec::new();
        settings("", &mut all);
        let (mut section, mut shown) = (String::new(), std::collections::HashSet::new());
        for line in include_str!("../../lyceum.example.toml").lines() {
            let line = line.trim_start_matches('#').trim();
            if line.starts_with('[') && line.ends_with(']') {
                section = line.trim_matches(['[', ']']).to_owned();
                let (parent, name) = section.rsplit_once('.').unwrap_or(("", &section));
                shown.insert((parent.to_owned(), name.to_owned()));
            } else if let Some((name, _)) = line.split_once(" = ") {
                shown.insert((section.clone(), name.to_owned()));
            }
        }
        let missing: Vec<_> = all.iter().filter(|setting| !shown.contains(*setting)).collect();
        assert!(100 < all.len() && missing.is_empty(), "{} settings; the example lacks {missing:?}", all.len());
    }
}
