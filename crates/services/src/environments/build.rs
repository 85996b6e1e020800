//! Builds one environment: a lock, a fresh directory, the packages, compiled and tried, and
//! at the very end the marker that makes it usable. A build that was interrupted leaves a
//! directory without marker, which the next one removes; what was downloaded is kept.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Config, EnvironmentPaths, JaxBuild, Recipe, Requirements, base,
    base::Base,
    failure::{self, Cause, Failure, FailureContext, System},
    files::{open_folder, short_hex},
    progress::{Install, share},
    tools::{ToolFailure, Tools, end_leftovers},
};

/// Raised when a build's outcome changes for the same requirements.
const LAYOUT: &str = "1";

const MARKER: &str = "lyceum.json";

/// The uv that is fetched where none is installed.
const UV: &str = "uv>=0.5,<1";

/// Tells how far the build is: percent, step.
pub type Report<'a> = &'a (dyn Fn(u8, String) + Sync);

/// What is built, where and from what.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub config: &'a Config,
    pub place: &'a EnvironmentPaths,
    pub recipe: &'a Recipe,
}

/// An environment that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltEnvironment {
    pub folder: PathBuf,
    pub python_version: String,
    /// Why it computes on CPUs on a machine with a driver.
    pub note: Option<String>,
}

/// Written last; its presence says that everything before it worked.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    python: String,
    built_with: String,
    seconds: u64,
}

/// Finds the environment built already, builds it otherwise, or says that it is not there
/// (`None`) where `build` is false.
pub async fn ensure(job: Job<'_>, build: bool, report: Report<'_>) -> Result<Option<BuiltEnvironment>, Failure> {
    report(0, "looking for Python".to_owned());
    let search = job.place.variable("PATH").unwrap_or_default();
    let installed_uv = base::on_search_path(search, "uv");
    let base = base::find(base::BaseRequirements {
        python: &job.config.python,
        everybody: job.place.everybody,
        needs_venv: installed_uv.is_none(),
        search,
    })
    .await?;
    let (requirements, jax, note) = job.requirements(&base).await?;
    let folder = job.folder(&base, &requirements);
    let finished = |folder: &Path| finished(folder, note.clone());
    if let Some(built) = finished(&folder) {
        return Ok(Some(built));
    }
    if !build {
        return Ok(None);
    }
    let environments = job.place.environments();
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| failure::from_io(&error, &path, "preparing the environment")
    };
    open_folder(&environments).map_err(at(&environments))?;
    private_folder(&job.place.cache).map_err(at(&job.place.cache))?;
    if let Some(closed) = base::closed_to_others(&environments).filter(|_| job.place.everybody) {
        return Err(Failure {
            cause: Cause::Permission,
            what: format!(
                "other users cannot access {}: {} is not accessible to them",
                environments.display(),
                closed.display()
            ),
            command: format!("chmod o+x {}", closed.display()),
        });
    }
    let lock_path = job.place.cache.join(format!("{}.lock", job.recipe.name));
    let _lock = lock(&lock_path, report).await.map_err(at(&lock_path))?;
    if let Some(built) = finished(&folder) {
        return Ok(Some(built));
    }
    let leash = job.place.cache.join(format!("{}.tools", job.recipe.name));
    end_leftovers(&leash).await.map_err(at(&leash))?;
    remove_unfinished(&environments, &job.recipe.name).await.map_err(at(&environments))?;
    require_space(&environments, job.recipe.disk_bytes + jax.disk_bytes())?;

    let tools = Tools::new(&job.log(), &leash, &job.place.cache).map_err(at(&environments))?;
    let started = Instant::now();
    let mut builder = Builder { job, requirements, tools, report, folder: folder.clone(), started };
    match builder.build(&base, installed_uv).await {
        Ok(()) => finished(&folder).map(Some).ok_or_else(|| {
            failure::from_io(
                &io::Error::from(io::ErrorKind::NotFound),
                &folder.join(MARKER),
                "finishing the environment",
            )
        }),
        Err(failure) => {
            builder.tools.note(&format!("failed: {}\nto fix it: {}", failure.what, failure.command));
            // A half-built environment is of no use, and on a full disk it is in the way.
            _ = tokio::fs::remove_dir_all(&folder).await;
            Err(failure)
        }
    }
}

struct Builder<'a> {
    job: Job<'a>,
    requirements: String,
    tools: Tools,
    report: Report<'a>,
    folder: PathBuf,
    started: Instant,
}

impl Builder<'_> {
    async fn build(&mut self, base: &Base, installed_uv: Option<PathBuf>) -> Result<(), Failure> {
        let doing = "preparing the environment";
        let requirements = self.job.place.cache.join(format!("{}-requirements.txt", self.job.recipe.name));
        let temporary = self.job.place.cache.join(format!("{}-tmp", self.job.recipe.name));
        _ = tokio::fs::remove_dir_all(&temporary).await;
        private_folder(&temporary).map_err(|error| failure::from_io(&error, &temporary, doing))?;
        fs::write(&requirements, self.requirements.as_bytes())
            .map_err(|error| failure::from_io(&error, &requirements, doing))?;
        self.tools.environment = self.job.place.tool_environment(&temporary);
        if let Some(wheels) = self.job.config.wheels.as_ref().filter(|wheels| !wheels.is_dir()) {
            return Err(Failure {
                cause: Cause::MissingPackage,
                what: format!("`environments.wheels` names {}, which is not a directory", wheels.display()),
                command: format!("python3 -m pip download -r {} -d {}", requirements.display(), wheels.display()),
            });
        }
        let uv = match installed_uv {
            Some(uv) => Some(uv),
            None => self.fetch_uv(base).await?,
        };
        self.make_venv(base, uv.as_deref()).await?;
        self.install(uv.as_deref(), &requirements).await?;
        self.compile().await?;
        self.try_out().await?;
        self.finish(base, uv.as_deref())
            .map_err(|error| failure::from_io(&error, &self.folder, "finishing the environment"))
    }

    /// uv in a small environment of its own; `None` where there is none to be had and pip has
    /// to do.
    async fn fetch_uv(&self, base: &Base) -> Result<Option<PathBuf>, Failure> {
        (self.report)(1, "installing uv".to_owned());
        let folder = self.job.place.cache.join(format!("uv-{}", base.version_text()));
        let uv = folder.join("bin/uv");
        if self.works(&uv).await {
            return Ok(Some(uv));
        }
        _ = tokio::fs::remove_dir_all(&folder).await;
        let doing = "installing uv";
        let venv = [base.path.as_os_str(), "-m".as_ref(), "venv".as_ref(), folder.as_os_str()];
        self.run(&venv, &[], doing, |_| ()).await?;
        let mut pip = pip_install(&folder.join("bin/python"), self.job.config.wheels.as_deref());
        pip.push(UV.into());
        match self.run(&pip, &[], doing, |_| ()).await {
            Ok(_) if self.works(&uv).await => Ok(Some(uv)),
            // Without a network, or with a full disk, pip would fare no better.
            Err(failure) if matches!(failure.cause, Cause::Network | Cause::Certificate | Cause::Space) => Err(failure),
            Ok(_) | Err(_) => {
                self.tools.note("uv is not available; continuing with pip");
                Ok(None)
            }
        }
    }

    async fn works(&self, uv: &Path) -> bool {
        uv.exists() && self.tools.run(&[uv.as_os_str(), "--version".as_ref()], &[], |_| ()).await.is_ok()
    }

    async fn make_venv(&self, base: &Base, uv: Option<&Path>) -> Result<(), Failure> {
        (self.report)(5, "creating the environment".to_owned());
        let folder = self.folder.as_os_str();
        let arguments: Vec<&OsStr> = match uv {
            Some(uv) if !base.has_venv => {
                vec![uv.as_os_str(), "venv".as_ref(), "--python".as_ref(), base.path.as_os_str(), folder]
            }
            _ => vec![base.path.as_os_str(), "-m".as_ref(), "venv".as_ref(), folder],
        };
        self.run(&arguments, &[], "creating the environment", |_| ()).await.map(drop)
    }

    async fn install(&self, uv: Option<&Path>, requirements: &Path) -> Result<(), Failure> {
        let python = self.python();
        let wheels = self.job.config.wheels.as_deref();
        let mut extra = Vec::new();
        let mut arguments = match uv {
            None => pip_install(&python, wheels),
            Some(uv) => {
                extra = self.pip_settings_for_uv().await;
                let mut uv: Vec<OsString> =
                    [uv.as_os_str(), "pip".as_ref(), "install".as_ref()].map(OsStr::to_owned).into();
                uv.extend(["--python".into(), python.into(), "--no-progress".into(), "--color".into(), "never".into()]);
                if let Some(wheels) = wheels {
                    uv.extend(["--no-index".into(), "--find-links".into(), wheels.into()]);
                }
                uv
            }
        };
        arguments.extend(["-r".into(), requirements.into()]);
        (self.report)(8, "resolving the packages".to_owned());
        let mut install = Install::of(&self.requirements);
        let on_line = |line: &str| {
            if let Some((percent, step)) = install.read(line) {
                (self.report)(share(8, 65, percent.into(), 100), step);
            }
        };
        let extra: Vec<(&str, &OsStr)> = extra.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        self.run(&arguments, &extra, "installing the packages", on_line).await.map(drop)
    }

    /// A site that told pip alone where its packages come from means uv as well.
    async fn pip_settings_for_uv(&self) -> Vec<(&'static str, String)> {
        let has_own = ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_NO_INDEX", "UV_CONFIG_FILE"];
        if self.job.config.wheels.is_some() || has_own.iter().any(|name| self.job.place.variable(name).is_some()) {
            return Vec::new();
        }
        let python = self.python();
        let list = [python.as_os_str(), "-m".as_ref(), "pip".as_ref(), "config".as_ref(), "list".as_ref()];
        let environment =
            |name: &str| self.job.place.variable(&format!("PIP_{}", name.replace('-', "_").to_uppercase()));
        uv_settings(&self.tools.ask(&list).await, environment)
    }

    /// Users cannot write the environment: what is not compiled now they would compile anew
    /// at every start.
    async fn compile(&self) -> Result<(), Failure> {
        let library = self.folder.join("lib");
        (self.report)(66, "compiling".to_owned());
        let counted = library.clone();
        let files = tokio::task::spawn_blocking(move || count_sources(&counted)).await.unwrap_or(0);
        let python = self.python();
        let mut arguments: Vec<&OsStr> = vec![python.as_os_str(), "-m".as_ref(), "compileall".as_ref(), "-j0".as_ref()];
        // Packages' own tests are a third of all files, and nobody imports them.
        arguments.extend(["-x".as_ref(), OsStr::new("/tests?/"), library.as_os_str()]);
        let mut done = 0;
        let on_line = |line: &str| {
            if line.starts_with("Compiling") {
                done += 1;
                if done % 50 == 0 {
                    (self.report)(share(66, 92, done, files), format!("compiling: {done} of {files} files"));
                }
            }
        };
        match self.tools.run(&arguments, &[("PYTHONUNBUFFERED", "1".as_ref())], on_line).await {
            // Some packages carry files for other versions of Python, on purpose; status 1 says
            // no more than that. A full disk speaks up again when the marker is written.
            Err(ToolFailure::Ended(lines, status))
                if status.code() != Some(1) || lines.iter().any(|line| line.contains("Errno 28")) =>
            {
                Err(failure::explain(&lines, status, &self.circumstances("compiling the packages")))
            }
            Err(ToolFailure::Io(error)) => Err(failure::from_io(&error, &self.folder, "compiling the packages")),
            _ => Ok(()),
        }
    }

    async fn try_out(&self) -> Result<(), Failure> {
        let python = self.python();
        let settings: [(&str, &OsStr); 2] = [("JAX_PLATFORMS", "cpu".as_ref()), ("KERAS_BACKEND", "jax".as_ref())];
        for (index, module) in self.job.recipe.imports.iter().enumerate() {
            (self.report)(share(92, 98, index, self.job.recipe.imports.len()), format!("testing: import {module}"));
            let code = format!("import {module}");
            let arguments = [python.as_os_str(), "-I".as_ref(), "-c".as_ref(), code.as_ref()];
            self.run(&arguments, &settings, &format!("importing {module}"), |_| ()).await?;
        }
        for command in &self.job.recipe.commands {
            (self.report)(98, format!("testing: {}", command.join(" ")));
            let mut arguments: Vec<OsString> = command.iter().map(OsString::from).collect();
            if let Some(program) = arguments.first_mut() {
                *program = self.folder.join("bin").join(&*program).into();
            }
            self.run(&arguments, &settings, &format!("running `{}`", command.join(" ")), |_| ()).await?;
        }
        Ok(())
    }

    fn finish(&self, base: &Base, uv: Option<&Path>) -> io::Result<()> {
        (self.report)(99, "finishing".to_owned());
        let marker = Marker {
            python: base.version_text(),
            built_with: if uv.is_some() { "uv" } else { "pip" }.to_owned(),
            seconds: self.started.elapsed().as_secs(),
        };
        let unfinished = self.folder.join(".lyceum.json");
        let mut file = File::create(&unfinished)?;
        file.write_all(&serde_json::to_vec(&marker)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.folder.join(MARKER))?;
        // A name that stays, for administrators; sessions use the directory itself.
        let link = self.job.place.environments().join(&self.job.recipe.name);
        let new = link.with_extension("new");
        _ = fs::remove_file(&new);
        symlink(self.folder.file_name().unwrap_or_default(), &new)?;
        fs::rename(&new, &link)
    }

    fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    async fn run<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        environment: &[(&str, &OsStr)],
        doing: &str,
        on_line: impl FnMut(&str) + Send,
    ) -> Result<Vec<String>, Failure> {
        self.tools.run(arguments, environment, on_line).await.map_err(|trouble| match trouble {
            ToolFailure::Ended(lines, status) => failure::explain(&lines, status, &self.circumstances(doing)),
            ToolFailure::Io(error) => failure::from_io(&error, &self.folder, doing),
            ToolFailure::Silent => Failure {
                cause: Cause::Network,
                what: format!("{doing}: the tool produced no output for an hour and was ended"),
                command: format!("less {}", self.job.log().display()),
            },
        })
    }

    fn circumstances(&self, doing: &str) -> FailureContext {
        let place = self.job.place;
        let index = ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"].iter().find_map(|name| place.variable(name));
        FailureContext {
            doing: doing.to_owned(),
            folder: place.environments(),
            index: index.map(failure::redact),
            wheels: self.job.config.wheels.clone(),
            requirements: place.cache.join(format!("{}-requirements.txt", self.job.recipe.name)),
            log: self.job.log(),
            system: System::of_this_machine(),
        }
    }
}

impl Job<'_> {
    /// Returns the text of the requirements, which JAX they hold, and why that is not one with CUDA.
    async fn requirements(&self, base: &Base) -> Result<(String, JaxBuild, Option<String>), Failure> {
        let text = match &self.recipe.requirements {
            Requirements::Text(text) => text.to_string(),
            Requirements::File(path) => {
                let text = tokio::fs::read_to_string(path).await;
                text.map_err(|error| failure::from_io(&error, path, "reading the requirements"))?
            }
        };
        if !self.recipe.is_accelerated {
            return Ok((text, JaxBuild::Cpu, None));
        }
        let (jax, note) = JaxBuild::choose(self.config.accelerator, self.place.cuda, base.version);
        // A text may end without a line feed.
        Ok((format!("{text}\n{}", jax.requirements()), jax, note))
    }

    /// Named after all that decides its contents.
    fn folder(&self, base: &Base, requirements: &str) -> PathBuf {
        let mut hash = Sha256::new();
        let (major, minor, _) = base.version;
        for part in [LAYOUT, requirements, &format!("{major}.{minor}"), &base.path.to_string_lossy()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        self.place.environments().join(format!("{}-{}", self.recipe.name, short_hex(&hash.finalize())))
    }

    pub fn log(&self) -> PathBuf {
        log_path(self.place, &self.recipe.name)
    }
}

/// Removes everything that was built with a name. Waits for a build that is ending.
pub async fn remove(place: &EnvironmentPaths, name: &str) -> io::Result<()> {
    let environments = place.environments();
    let lock_path = place.cache.join(format!("{name}.lock"));
    if !environments.exists() || !lock_path.exists() {
        // Nothing was ever built under this name.
        return Ok(());
    }
    let _lock = lock(&lock_path, &|_, _| {}).await?;
    end_leftovers(&place.cache.join(format!("{name}.tools"))).await?;
    for folder in folders(&environments, name)? {
        // First: what is left of an interrupted removal must not pass for an environment.
        match tokio::fs::remove_file(folder.join(MARKER)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => tokio::fs::remove_dir_all(&folder).await?,
        }
    }
    match tokio::fs::remove_file(log_path(place, name)).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads the end of the log of a recipe's builds, at most `limit` bytes.
pub async fn log_of(place: &EnvironmentPaths, recipe: &Recipe, limit: u64) -> io::Result<String> {
    let path = log_path(place, &recipe.name);
    let read = tokio::task::spawn_blocking(move || {
        let mut file = File::open(path)?;
        let begin = file.metadata()?.len().saturating_sub(limit);
        file.seek(io::SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    read.await.unwrap_or_else(|err| Err(io::Error::other(err)))
}

fn log_path(place: &EnvironmentPaths, name: &str) -> PathBuf {
    place.environments().join(format!("{name}.log"))
}

/// The environment at `folder`, if it is whole and its Python is still there.
fn finished(folder: &Path, note: Option<String>) -> Option<BuiltEnvironment> {
    let marker: Marker = serde_json::from_slice(&fs::read(folder.join(MARKER)).ok()?).ok()?;
    let whole = folder.join("bin/python").is_file();
    whole.then(|| BuiltEnvironment { folder: folder.to_owned(), python_version: marker.python, note })
}

/// Waits for other builders, however long they take.
async fn lock(path: &Path, report: Report<'_>) -> io::Result<File> {
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {
                report(0, "waiting for another process that builds it".to_owned());
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Removes what interrupted builds of this environment left.
async fn remove_unfinished(environments: &Path, name: &str) -> io::Result<()> {
    for path in folders(environments, name)? {
        if !path.join(MARKER).exists() {
            tokio::fs::remove_dir_all(&path).await?;
        }
    }
    Ok(())
}

/// Returns the folders of all builds with a name.
fn folders(environments: &Path, name: &str) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(environments)? {
        let path = entry?.path();
        let ours = path.file_name().and_then(OsStr::to_str).and_then(|file| file.strip_prefix(name)?.strip_prefix('-'));
        if ours.is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|b| b.is_ascii_hexdigit())) {
            folders.push(path);
        }
    }
    Ok(folders)
}

fn require_space(folder: &Path, needed: u64) -> Result<(), Failure> {
    let free = rustix::fs::statvfs(folder).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free < needed { Err(failure::no_space(folder, "preparing the environment")) } else { Ok(()) }
}

fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn pip_install(python: &Path, wheels: Option<&Path>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![python.into()];
    arguments
        .extend(["-m", "pip", "install", "--progress-bar", "off", "--no-input", "--no-compile"].map(OsString::from));
    if let Some(wheels) = wheels {
        arguments.extend(["--no-index".into(), "--find-links".into(), wheels.into()]);
    }
    arguments
}

/// pip's settings (`pip config list` and its variables) as uv's.
fn uv_settings<'a>(list: &[String], variable: impl Fn(&str) -> Option<&'a str>) -> Vec<(&'static str, String)> {
    let from_file = |name: &str| {
        list.iter().rev().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.rsplit('.').next() == Some(name))
                .then(|| value.trim_matches('\'').replace("\\n", " ").trim().to_owned())
        })
    };
    let setting =
        |name: &str| variable(name).map(str::to_owned).or_else(|| from_file(name)).filter(|value| !value.is_empty());
    let mut settings = Vec::new();
    for (pip, uv) in [
        ("index-url", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "UV_INDEX"),
        ("trusted-host", "UV_INSECURE_HOST"),
        ("cert", "SSL_CERT_FILE"),
    ] {
        if let Some(value) = setting(pip) {
            settings.push((uv, value));
        }
    }
    if setting("extra-index-url").is_some() {
        // pip takes a version from any index, uv by default from the first that has the name.
        settings.push(("UV_INDEX_STRATEGY", "unsafe-best-match".to_owned()));
    }
    // pip passes over a place that is not there, uv stops.
    let links = setting("find-links").unwrap_or_default();
    let there: Vec<&str> =
        links.split_whitespace().filter(|link| link.contains("://") || Path::new(link).is_dir()).collect();
    if !there.is_empty() {
        settings.push(("UV_FIND_LINKS", there.join(",")));
    }
    if setting("no-index").is_some_and(|value| !matches!(value.as_str(), "0" | "false" | "no" | "off")) {
        settings.push(("UV_NO_INDEX", "1".to_owned()));
    }
    settings
}

fn count_sources(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let entries = entries.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() && entry.file_name() != "tests" && entry.file_name() != "test" => {
            count_sources(&entry.path())
        }
        Ok(kind) if kind.is_file() => usize::from(entry.path().extension() == Some("py".as_ref())),
        _ => 0,
    });
    entries.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pips_settings_are_uvs() {
        let list = |lines: &str| lines.lines().map(str::to_owned).collect::<Vec<_>>();
        let none = |_: &str| None;
        assert_eq!(uv_settings(&[], none), []);
        let file = list(
            "global.cert='/etc/ca.pem'\nglobal.index-url='http://mirror/simple'\nglobal.find-links='/nonexistent'",
        );
        let expected =
            [("UV_DEFAULT_INDEX", "http://mirror/simple".to_owned()), ("SSL_CERT_FILE", "/etc/ca.pem".to_owned())];
        assert_eq!(uv_settings(&file, none), expected);
        let variable = |name: &str| (name == "index-url").then_some("http://own");
        assert_eq!(uv_settings(&file, variable)[0].1, "http://own");
        let more = list("global.extra-index-url='\\nhttp://a\\nhttp://b'\nglobal.no-index='true'");
        let expected = [
            ("UV_INDEX", "http://a http://b".to_owned()),
            ("UV_INDEX_STRATEGY", "unsafe-best-match".to_owned()),
            ("UV_NO_INDEX", "1".to_owned()),
        ];
        assert_eq!(uv_settings(&more, none), expected);
    }
}
