//! The software that workloads run in: environments that Lyceum builds itself, the default one
//! among them, and any number that the site brings. Start with [`Environments`]; `build` makes
//! one, `base` finds its Python, `accelerator` chooses its JAX, `failure` puts what went wrong
//! into words, `files` lays out what travels in the binary. What an app starts in an
//! environment is `apps`' business.

mod accelerator;
mod added;
mod base;
mod build;
mod config;
mod failure;
mod files;
mod index;
pub mod modules;
mod progress;
mod tools;

use std::{
    borrow::Cow,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, Notify, watch};

pub use accelerator::{Accelerator, CudaVersion, JaxBuild};
pub use added::{Error, NewEnvironment, SUGGESTIONS, Suggestion};
pub use base::{Base, BaseRequirements, Framework, closed_to_others, find as find_python, on_search_path};
pub use config::{BasePython, Build, Config, Contents, Site};
pub use failure::{Cause, Failure, System};
pub use files::{Installed, install, open_folder, short_hex};
pub use index::{Index, reach as reach_index};
pub use modules::Modules;
pub use progress::{line, show};

use base::Facts;

use lyceum_model::{Clock, Loops, Timestamp};

/// The name of the environment that workloads get when they name none.
pub const DEFAULT: &str = "default";

/// From one try to the next after the network failed (seconds): doubled each time.
const MIN_RETRY_DELAY: i64 = 15;
const MAX_RETRY_DELAY: i64 = 900;

/// The software that a workload runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    pub name: String,
    pub title: String,
    /// `3.11.2`, once it is known.
    pub python_version: Option<String>,
    /// The deep-learning frameworks that it holds, once they are known.
    pub frameworks: Vec<Framework>,
    /// What an administrator should know of it, such as a driver that is too old.
    pub note: Option<String>,
    /// Names of the groups that may use it; empty for everybody.
    pub groups: Vec<String>,
    /// Lists show smaller numbers first. The portal's own has 0, those of the configuration file have 10, 20, 30 and so on.
    pub position: i64,
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub state: State,
}

/// Where an environment is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "origin", rename_all = "snake_case")]
pub enum Origin {
    /// The portal itself: the default environment.
    Shipped,
    /// The configuration file.
    File,
    /// An administrator, while the portal runs.
    Added {
        /// Requirements as for pip, as they were entered.
        packages: Vec<String>,
        by: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Workloads that use it wait.
    Building { percent: u8, step: String, since: Timestamp },
    Ready {
        /// `…/bin/python`
        python: PathBuf,
        /// The directory of its programs: first on a workload's `PATH`.
        bin: PathBuf,
        /// The interpreter that it stands on, for environments that stand on this one.
        base: PathBuf,
        /// Where its packages lie, in the order of the search.
        libraries: Vec<PathBuf>,
    },
    Failed {
        /// What happened and why, for people.
        what: String,
        /// The command that mends it.
        command: String,
        log: Option<PathBuf>,
        /// When the next try begins by itself.
        retry_at: Option<Timestamp>,
    },
    /// Not there, and not to be built.
    Missing,
}

/// Where environments lie and what their tools see: plain values from the caller.
#[derive(Clone, Debug)]
pub struct EnvironmentPaths {
    /// `shared/`: everybody reads it, the service user writes it.
    pub shared: PathBuf,
    /// A private directory for downloads, locks and the tools' home.
    pub cache: PathBuf,
    /// Whether several Unix users will run what is built.
    pub everybody: bool,
    /// The variables that tools may see: `PATH`, proxies, certificates, `PIP_*`, `UV_*`.
    pub variables: Vec<(String, String)>,
    /// What the NVIDIA driver of this machine supports.
    pub cuda: Option<CudaVersion>,
}

/// What an environment that Lyceum builds consists of.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub name: String,
    pub title: String,
    pub requirements: Requirements,
    /// Whether JAX's CUDA build is added where the driver, or the setting, asks for it.
    pub is_accelerated: bool,
    /// Modules that must import, and commands of its `bin` that must end well.
    pub imports: Vec<String>,
    pub commands: Vec<Vec<String>>,
    /// Free space without which a build is not begun (bytes).
    pub disk_bytes: u64,
}

/// The text of a `requirements.txt`, or where it is read before each build.
#[derive(Clone, Debug)]
pub enum Requirements {
    Text(Cow<'static, str>),
    File(PathBuf),
}

impl From<String> for Requirements {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<PathBuf> for Requirements {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl Recipe {
    /// Returns what an entry of the configuration's list asks for.
    fn listed(name: &str, title: &str, requirements: Requirements) -> Self {
        let (name, title) = (name.to_owned(), title.to_owned());
        let (imports, commands) = (vec!["ipykernel".to_owned()], Vec::new());
        Self { name, title, requirements, is_accelerated: false, imports, commands, disk_bytes: 2 << 30 }
    }
}

impl Default for Recipe {
    fn default() -> Self {
        let words = |words: &str| words.split(' ').map(str::to_owned).collect();
        Self {
            name: DEFAULT.to_owned(),
            title: "Keras on JAX, scikit-learn, TensorBoard".to_owned(),
            requirements: Requirements::Text(Cow::Borrowed(include_str!("../../../../notebooks/requirements.txt"))),
            is_accelerated: true,
            imports: words(
                "numpy pandas matplotlib.pyplot sklearn jax keras onnxruntime safetensors tensorboard ipykernel \
                 jupyterlab",
            ),
            commands: vec![words("jupyter lab --version"), words("tensorboard --version_tb")],
            disk_bytes: 2 << 30,
        }
    }
}

/// All environments of this portal; cheap to clone.
#[derive(Clone)]
pub struct Environments(Arc<Inner>);

struct Inner {
    modules: Modules,
    config: Config,
    place: EnvironmentPaths,
    /// What is built. The build of a recipe that is removed from here ends.
    recipes: watch::Sender<Vec<Arc<Recipe>>>,
    clock: Clock,
    known: watch::Sender<Vec<Environment>>,
    /// Administrators' changes are made one after the other.
    changes: Arc<Mutex<()>>,
    again: Notify,
}

impl Environments {
    /// Nothing is looked at or built yet: see [`Environments::maintain`].
    pub fn new(config: Config, place: EnvironmentPaths, recipe: Recipe, clock: Clock) -> Self {
        let looking = State::Building { percent: 0, step: "checking".to_owned(), since: clock.now() };
        let environment = |name: &str, title: &str, (groups, position), origin| Environment {
            name: name.to_owned(),
            title: title.to_owned(),
            python_version: None,
            frameworks: Vec::new(),
            note: None,
            groups,
            position,
            origin,
            state: looking.clone(),
        };
        let recipes = config.recipes(recipe);
        let default = recipes.first().filter(|first| first.name == DEFAULT);
        let default = default.filter(|_| config.list.iter().all(|site| site.name != DEFAULT));
        let default = default.map(|recipe| environment(DEFAULT, &recipe.title, (Vec::new(), 0), Origin::Shipped));
        let listed = (1..).map(|n| n * 10).zip(&config.list).map(|(position, site)| {
            environment(&site.name, site.title(), (site.groups.clone(), position), Origin::File)
        });
        let known = watch::Sender::new(default.into_iter().chain(listed).collect());
        let modules = Modules::new(&config.modules);
        let recipes = watch::Sender::new(recipes.into_iter().map(Arc::new).collect());
        Self(Arc::new(Inner {
            modules,
            config,
            place,
            recipes,
            clock,
            known,
            changes: Arc::default(),
            again: Notify::new(),
        }))
    }

    /// All environments, in the order of lists.
    pub fn list(&self) -> Vec<Environment> {
        self.0.known.borrow().clone()
    }

    pub fn find(&self, name: &str) -> Option<Environment> {
        self.0.known.borrow().iter().find(|environment| environment.name == name).cloned()
    }

    /// Modules of the site's, beside the environments.
    pub fn modules(&self) -> &Modules {
        &self.0.modules
    }

    /// Returns what workloads in this environment find in their variables. The default one holds one backend of
    /// Keras, and not the one that Keras would look for. JAX with CUDA reports an error where there is no GPU.
    pub fn variables(&self, name: &str, gpus: i64) -> Vec<(&'static str, &'static str)> {
        if !self.recipe(name).is_some_and(|recipe| recipe.is_accelerated) {
            return Vec::new();
        }
        let cuda = self.find(name).is_some_and(|found| found.frameworks.iter().any(|one| one.uses_gpus));
        let cpu = (cuda && gpus == 0).then_some(("JAX_PLATFORMS", "cpu"));
        [Some(("KERAS_BACKEND", "jax")), cpu].into_iter().flatten().collect()
    }

    /// Returns how an environment is built; `None` for those that the site looks after.
    fn recipe(&self, name: &str) -> Option<Arc<Recipe>> {
        self.0.recipes.borrow().iter().find(|recipe| recipe.name == name).cloned()
    }

    /// The name of what a person installs over a ready environment: it stays the same when
    /// the environment is built anew for the same Python, and is another for another one,
    /// whose packages would not run.
    pub fn overlay_name(&self, name: &str) -> Option<String> {
        let environment = self.find(name)?;
        let State::Ready { python, .. } = environment.state else { return None };
        // Not the folder that was built: its name changes with the packages.
        let built = self.recipe(name).map(|recipe| self.0.place.environments().join(&recipe.name));
        let place = built.unwrap_or(python);
        let version = environment.python_version?;
        let series: Vec<&str> = version.split('.').take(2).collect();
        // One home may be mounted on machines of several kinds.
        let machine = rustix::system::uname();
        let mut hash = Sha256::new();
        for part in [&*place.to_string_lossy(), &series.join("."), &machine.machine().to_string_lossy()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Some(format!("{name}-{}", short_hex(&hash.finalize())))
    }

    /// Wakes at every change: progress, ready, failed.
    pub fn subscribe(&self) -> watch::Receiver<Vec<Environment>> {
        self.0.known.subscribe()
    }

    /// Builds all environments again that have failed, after the cause was fixed.
    pub fn retry(&self) {
        self.queue_failed(|_| true);
    }

    /// Puts environments that could not be built back into the queue.
    fn queue_failed(&self, is_chosen: impl Fn(&Environment) -> bool) {
        let queued = self.queued();
        self.0.known.send_modify(|all| {
            let failed = all.iter_mut().filter(|one| matches!(one.state, State::Failed { .. }));
            failed.filter(|one| is_chosen(one)).for_each(|one| one.state = queued.clone());
        });
        self.0.again.notify_one();
    }

    fn recipes_are_built(&self) -> bool {
        let has_failed = |name: &str| matches!(self.find(name), Some(Environment { state: State::Failed { .. }, .. }));
        !self.0.recipes.borrow().iter().any(|recipe| has_failed(&recipe.name))
    }

    fn queued(&self) -> State {
        State::Building { percent: 0, step: "queued".to_owned(), since: self.0.clock.now() }
    }

    /// Looks at the site's environments, builds the others, and repeats a build after a network error or on
    /// request. Never returns; dropping the future ends the tools.
    pub async fn maintain(&self, loops: &Loops) {
        let mut wait = MIN_RETRY_DELAY;
        loop {
            let round = loops.begin("environments", None);
            let ((), failures) = tokio::join!(self.look_at_sites(), self.attempt_all());
            round.end(&if self.recipes_are_built() {
                Ok(())
            } else {
                Err("an environment could not be built; its entry above has the cause")
            });
            let unreachable = failures.into_iter().filter(|(_, failure)| failure.cause == Cause::Network);
            let unreachable: Vec<String> = unreachable.map(|(name, _)| name).collect();
            let retry_in = (!unreachable.is_empty()).then_some(wait);
            let at = self.0.clock.now().plus_seconds(wait);
            for name in &unreachable {
                self.change(name, |environment| {
                    if let State::Failed { retry_at, .. } = &mut environment.state {
                        *retry_at = Some(at);
                    }
                });
            }
            let pause = Duration::from_secs(retry_in.map_or(u64::MAX, i64::cast_unsigned));
            wait = match tokio::time::timeout(pause, self.0.again.notified()).await {
                Ok(()) => MIN_RETRY_DELAY,
                Err(_) => (wait * 2).min(MAX_RETRY_DELAY),
            };
        }
    }

    /// Builds the default environment unless it is there already (which takes a moment), or
    /// is not to be built; says how it stands then. Safe to call twice at once and from two
    /// processes: the second waits for the first.
    pub async fn ensure_default(&self) -> State {
        if let Some(recipe) = self.recipe(DEFAULT) {
            _ = self.attempt(&recipe).await;
        }
        self.find(DEFAULT).map_or(State::Missing, |environment| environment.state)
    }

    /// Asks each of the site's environments for its version.
    pub async fn look_at_sites(&self) {
        for (site, python) in self.0.config.sites() {
            let found = base::facts(python).await;
            self.change(&site.name, |environment| {
                environment.state = match &found {
                    Ok(facts) => ready(python.clone(), facts.clone()),
                    Err(why) => State::Failed {
                        what: format!("{} does not run: {why}", python.display()),
                        command: format!("ls -l {}", python.display()),
                        log: None,
                        retry_at: None,
                    },
                };
                environment.frameworks = found.as_ref().map_or_else(|_| Vec::new(), |facts| facts.frameworks.clone());
                environment.python_version = found.ok().map(|facts| facts.version);
            });
        }
    }

    /// Builds what is missing, one environment after the other, and goes on past those that fail. One that
    /// has failed is only built again on request or after a network error: a new environment does not wait for it.
    pub async fn attempt_all(&self) -> Vec<(String, Failure)> {
        let mut failures = Vec::new();
        let recipes = self.0.recipes.borrow().clone();
        for recipe in &recipes {
            let state = self.find(&recipe.name).map(|environment| environment.state);
            if matches!(state, Some(State::Failed { retry_at: None, .. })) {
                continue;
            }
            if let Err(failure) = self.attempt(recipe).await {
                failures.push((recipe.name.clone(), failure));
            }
        }
        failures
    }

    /// One try to have an environment ready, until another recipe takes the place of this one.
    async fn attempt(&self, recipe: &Arc<Recipe>) -> Result<(), Failure> {
        let mut recipes = self.0.recipes.subscribe();
        let withdrawn = recipes.wait_for(|all| !all.iter().any(|one| Arc::ptr_eq(one, recipe)));
        tokio::select! {
            outcome = self.build(recipe) => outcome,
            _ = withdrawn => Ok(()),
        }
    }

    async fn build(&self, recipe: &Recipe) -> Result<(), Failure> {
        let since = self.0.clock.now();
        let report = |percent: u8, step: String| {
            self.change(&recipe.name, |environment| {
                environment.state = State::Building { percent: percent.min(99), step, since };
            });
        };
        let job = build::Job { config: &self.0.config, place: &self.0.place, recipe };
        let outcome = build::ensure(job, self.0.config.build == Build::Auto, &report).await;
        let outcome = match outcome {
            Ok(Some(built)) => {
                self.change(&recipe.name, |environment| environment.note.clone_from(&built.note));
                look_into(built).await.map(Some)
            }
            Ok(None) => Ok(None),
            Err(failure) => Err(failure),
        };
        let log = job.log();
        self.change(&recipe.name, |environment| match &outcome {
            Ok(Some((python, facts))) => {
                environment.frameworks.clone_from(&facts.frameworks);
                environment.state = ready(python.clone(), facts.clone());
                environment.python_version = Some(facts.version.clone());
            }
            Ok(None) => environment.state = State::Missing,
            Err(failure) => {
                environment.state = State::Failed {
                    what: failure.what.clone(),
                    command: failure.command.clone(),
                    log: log.exists().then_some(log),
                    retry_at: None,
                }
            }
        });
        outcome.map(drop)
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Environment)) {
        self.0.known.send_if_modified(|all| {
            let Some(environment) = all.iter_mut().find(|environment| environment.name == name) else { return false };
            let before = environment.clone();
            change(environment);
            *environment != before
        });
    }
}

fn ready(python: PathBuf, facts: Facts) -> State {
    let bin = python.parent().unwrap_or(Path::new("/")).to_owned();
    State::Ready { python, bin, base: facts.base, libraries: facts.libraries }
}

/// What a built environment's Python says of itself.
async fn look_into(built: build::BuiltEnvironment) -> Result<(PathBuf, Facts), Failure> {
    let python = built.folder.join("bin/python");
    let facts = base::facts(&python).await.map_err(|why| Failure {
        cause: Cause::Python,
        what: format!("the environment exists, but its Python does not run: {why}"),
        command: format!("rm -r {}", built.folder.display()),
    })?;
    Ok((python, facts))
}

impl EnvironmentPaths {
    fn environments(&self) -> PathBuf {
        self.shared.join("environments")
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// All that a tool sees. The caller's variables win over our wishes, but not over where
    /// things lie.
    fn tool_environment(&self, temporary: &Path) -> Vec<(OsString, OsString)> {
        let wishes = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("LANG", "C.UTF-8"),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
            ("PIP_RETRIES", "2"),
            ("PYTHONUNBUFFERED", "1"),
            ("UV_PYTHON_DOWNLOADS", "never"),
        ];
        let given = self.variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let places = [("HOME", self.cache.as_os_str()), ("TMPDIR", temporary.as_os_str())];
        let wishes = wishes.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        wishes.chain(given).chain(places.map(|(name, path)| (name.into(), path.into()))).collect()
    }
}

/// Returns the frameworks of an environment, as a list for people, if none of them can compute on GPUs.
pub fn cpu_only(frameworks: &[Framework]) -> Option<String> {
    let names: Vec<&str> = frameworks.iter().map(|one| one.name.as_str()).collect();
    let (last, others) = names.split_last()?;
    let all = if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) };
    frameworks.iter().all(|one| !one.uses_gpus).then_some(all)
}

/// Whether Jupyter will find an R kernel on this machine.
pub fn has_r() -> bool {
    ["/usr/share/jupyter/kernels", "/usr/local/share/jupyter/kernels"].iter().any(|folder| {
        let kernels = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut specs = kernels.filter_map(|kernel| fs::read(kernel.path().join("kernel.json")).ok());
        specs.any(|spec| {
            let spec: serde_json::Value = serde_json::from_slice(&spec).unwrap_or_default();
            spec["language"].as_str().is_some_and(|language| language.eq_ignore_ascii_case("r"))
        })
    })
}
