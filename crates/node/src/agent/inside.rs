//! The inside of a container image, for one workload: prepares the root once, mounts a squashed or
//! writable one in a name space of its own, and then puts the runner in front of each program that
//! starts. The mounted root belongs to a process of the workload, so it counts in its limits and
//! ends with it; no mount is ever visible on the host.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::{
    child::{Child, Reaper, Streams},
    log::Log,
    status::Status,
};
use lyceum_model::{SessionId, cuda};
use lyceum_wire::protocol::{
    AgentLaunch, AppLaunch, Container, ImageKernel,
    container::{Runner, Writable},
};

use crate::container::{
    accounts::Account,
    apptainer, bwrap, cdi,
    environment::{self, Place},
    find_program, is_squashed, kernel,
    plan::{self, Host, Plan},
    root,
};

/// Images are on file servers, which may hang.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Between two looks at a mount that is being made.
const LOOK: Duration = Duration::from_millis(5);

/// The folder in the run directory for generated files and mounted roots.
const FILES: &str = "container";

/// The file with the version of the driver's kernel module.
const DRIVER: &str = "/proc/driver/nvidia/version";

/// Shells that an image may have, besides the user's own.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];

/// A prepared image; each program that starts in it is its own container.
#[derive(Clone)]
pub(super) struct Inside {
    container: Container,
    program: PathBuf,
    plan: Plan,
    /// The process whose name spaces have the mounted root.
    holder: Option<i32>,
    home: PathBuf,
    shell: String,
    python: String,
    roots: Vec<PathBuf>,
    temporary: PathBuf,
    of_driver: Vec<(String, String)>,
    has_driver: bool,
    has_gpus: bool,
}

/// Prepares the image that a workload's program runs in. The error is a sentence for the user.
pub(super) async fn enter(
    launch: &AgentLaunch,
    container: &Container,
    status: &Status,
    log: &Log,
    reaper: &Reaper,
) -> Result<Inside, String> {
    status.step(&format!("preparing the image {}", container.name));
    if let Some(fault) = container.fault() {
        return Err(fault);
    }
    let program = runner(container)?;
    let gpus = gpus(launch, container)?;
    let folders: Vec<PathBuf> = cdi::FOLDERS.iter().map(PathBuf::from).collect();
    let edition = match container.runner {
        Runner::Apptainer => cdi::Edition::default(),
        Runner::Bwrap => cdi::of_gpus(&gpus, &folders)?,
    };
    let has_gpus = !gpus.is_empty();
    let temporary = make_temporary(launch.session)
        .map_err(|error| format!("a folder for temporary files cannot be made in /tmp: {error}"))?;
    let mounted = mount(launch, container, log, reaper).await?;
    let (launch, container) = (launch.clone(), container.clone());
    // The image may be on a file server that hangs.
    let made = tokio::task::spawn_blocking(move || inside(&launch, container, program, &mounted, temporary, edition));
    match timeout(TIMEOUT, made).await {
        Ok(Ok(made)) => made.map(|made| Inside { has_gpus, ..made }),
        Ok(Err(_panicked)) => Err("the image could not be prepared (internal error)".to_owned()),
        Err(_late) => Err("the image does not respond: the file server may be down".to_owned()),
    }
}

fn inside(
    launch: &AgentLaunch,
    container: Container,
    program: PathBuf,
    mounted: &Mounted,
    temporary: PathBuf,
    edition: cdi::Edition,
) -> Result<Inside, String> {
    let variables = &launch.app.environment;
    let account = account(variables.get("USER").map(String::as_str));
    let view = mounted.view.as_deref();
    let can_be_run = |path: &Path| view.is_some_and(|view| root::can_be_run(view, path));
    let wanted = variables.get("SHELL").map(String::as_str);
    let mut shells = wanted.into_iter().chain(SHELLS);
    let shell = shells.find(|shell| can_be_run(Path::new(shell))).unwrap_or("/bin/sh").to_owned();
    let of_image = container.env.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
    let has = |name: &str| of_image.split(':').any(|folder| can_be_run(&Path::new(folder).join(name)));
    let python = if has("python3") || !has("python") { "python3" } else { "python" }.to_owned();
    let host = Host {
        account: &account,
        home: &launch.home.home,
        shell: &shell,
        run_directory: &launch.run_directory,
        working_directory: &launch.app.working_directory,
        temporary: &temporary,
        files: &launch.run_directory.join(FILES).join(container.folder_name()),
        memory: launch.limits.memory_bytes,
    };
    let of_driver = edition.env.clone();
    let has_driver = !edition.mounts.is_empty();
    let roots = plan::roots(&container, &host);
    let plan = plan::make(&container, &mounted.root, view, &host, edition)?;
    let (home, holder) = (launch.home.home.clone(), mounted.holder);
    Ok(Inside {
        container,
        program,
        plan,
        holder,
        home,
        shell,
        python,
        roots,
        temporary,
        of_driver,
        has_driver,
        has_gpus: false,
    })
}

impl Inside {
    /// Returns how a program of the app starts in the container: the app with the environment of the
    /// runner, and the runner's command. The error is a sentence for the user.
    pub fn wrap(&self, app: &AppLaunch, argv: &[String]) -> Result<(AppLaunch, Vec<String>), String> {
        let command = environment::command(&self.container, argv, &app.working_directory)
            .ok_or_else(|| format!("the image ‘{}’ has no command of its own: enter a command", self.container.name))?;
        let variables = self.variables(app);
        let (environment, words) = match self.container.runner {
            Runner::Bwrap => {
                let (of_loader, others) = environment::of_loader(variables);
                let set: Vec<(String, String)> = of_loader.into_iter().collect();
                let set = bwrap::Variables { set: &set, unset: &[] };
                (others, bwrap::arguments(&self.plan, set, &command, false))
            }
            Runner::Apptainer => {
                let words = apptainer::arguments(&self.container, &self.plan, self.has_gpus, &command);
                (apptainer::environment(variables, &self.temporary.to_string_lossy()), words)
            }
        };
        Ok((AppLaunch { environment, ..app.clone() }, self.in_front(words)))
    }

    /// Returns how a terminal's shell starts in the container. It is not a login shell, because the
    /// profile files of many images set a search path that hides what the image is for.
    pub fn shell(&self, app: &AppLaunch) -> Result<(AppLaunch, Vec<String>), String> {
        self.wrap(app, std::slice::from_ref(&self.shell))
    }

    /// Returns the command of a kernel for a JupyterLab that runs on the host as `app`.
    fn kernel(&self, app: &AppLaunch) -> Result<Vec<String>, String> {
        if self.container.runner != Runner::Bwrap {
            return Err(format!(
                "kernels of images require bubblewrap, but ‘{}’ uses another runner",
                self.container.name
            ));
        }
        let inside = self.variables(app);
        let (set, unset) = kernel::difference(&app.environment, &inside);
        let words = kernel::command(&self.python);
        let command = environment::command(&self.container, &words, &app.working_directory);
        let command = command.ok_or("a kernel has a command")?;
        let variables = bwrap::Variables { set: &set, unset: &unset };
        Ok(self.in_front(bwrap::arguments(&self.plan, variables, &command, true)))
    }

    /// Whether the program itself becomes a child of the agent once the runner has started it.
    pub fn lets_go(&self) -> bool {
        self.container.runner == Runner::Bwrap
    }

    fn variables(&self, app: &AppLaunch) -> std::collections::BTreeMap<String, String> {
        let driver = self.has_driver.then(|| (Path::new(cdi::LIBRARIES), Path::new(cdi::PROGRAMS)));
        let place =
            Place { home: &self.home, shell: &self.shell, mounts: &self.roots, driver, of_driver: &self.of_driver };
        environment::merge(&self.container, &app.environment, place)
    }

    fn in_front(&self, words: Vec<String>) -> Vec<String> {
        let mut argv = Vec::new();
        if let Some(holder) = self.holder {
            // Ours, even if the file was replaced since.
            let own = format!("/proc/{}/exe", rustix::process::getpid());
            argv.extend([own, "exec".to_owned(), "--enter".to_owned(), holder.to_string(), "--".to_owned()]);
        }
        argv.push(self.program.to_string_lossy().into_owned());
        argv.extend(words);
        argv
    }
}

/// Refuses what only works on the node itself, as a sentence for the user.
pub(super) fn check(launch: &AgentLaunch, container: &Container) -> Result<(), String> {
    if launch.home.modules.is_some() || launch.app.start.login_shell {
        return Err(format!(
            "modules and the login shell's environment belong to the node and cannot be used in the image ‘{}’: \
             select no modules, or run without the image",
            container.name
        ));
    }
    Ok(())
}

/// Describes the images of a JupyterLab's kernels to it. One that cannot be used is noted, and the
/// others are offered all the same.
pub(super) async fn offer_kernels(launch: &AgentLaunch, status: &Status, log: &Log, reaper: &Reaper) {
    for ImageKernel { title, container } in &launch.app.kernels {
        let offered = async {
            let inside = enter(launch, container, status, log, reaper).await?;
            kernel::offer(&launch.run_directory, &container.kernel_name(), title, &inside.kernel(&launch.app)?)
                .map_err(|error| format!("it could not be registered with Jupyter: {error}"))
        };
        if let Err(why) = offered.await {
            let note = format!("The kernel ‘{title}’ is not available: {why}");
            log.note(&note);
            status.note(note);
        }
    }
}

/// Removes what [`enter`] has made outside the run directory. To be called when all has ended.
pub(super) fn clean(session: SessionId) {
    // What cannot be removed is in a folder that only this user can enter.
    let _ = fs::remove_dir_all(temporary(session));
}

fn runner(container: &Container) -> Result<PathBuf, String> {
    let (program, package) = match container.runner {
        Runner::Bwrap => ("bwrap", "bubblewrap"),
        Runner::Apptainer => ("apptainer", "apptainer"),
    };
    find_program(program).ok_or_else(|| missing(container, package))
}

fn missing(container: &Container, package: &str) -> String {
    format!(
        "the image ‘{}’ cannot be started, because {package} is not installed on this node: ask your administrator to \
         install it",
        container.name
    )
}

/// The GPUs to open, after a look at whether the driver is new enough for the image.
fn gpus(launch: &AgentLaunch, container: &Container) -> Result<Vec<lyceum_model::Gpu>, String> {
    let mut gpus = container.gpus.clone();
    if let Some(given) = launch.app.environment.get("SLURM_JOB_GPUS") {
        gpus.extend(cdi::of_slurm(given));
    }
    let require = container.env.get("NVIDIA_REQUIRE_CUDA").filter(|_| !gpus.is_empty());
    let is_off =
        container.env.get("NVIDIA_DISABLE_REQUIRE").is_some_and(|value| matches!(value.as_str(), "1" | "true"));
    let driver = fs::read_to_string(DRIVER).ok().and_then(|text| cuda::Driver::of_proc(&text));
    match (require.filter(|_| !is_off), driver) {
        (Some(require), Some(driver)) => {
            cuda::unmet_requirement(&container.name, require, driver).map_or(Ok(gpus), Err)
        }
        _ => Ok(gpus),
    }
}

/// The account of this process. Its name is the portal's, for an account that this node does not know.
fn account(name: Option<&str>) -> Account {
    use nix::unistd::{Gid, Group, Uid, User, getegid, getgroups};
    let (uid, gid) = (Uid::current(), getegid());
    let known = || User::from_uid(uid).ok().flatten().map(|user| user.name);
    let name = name.map(str::to_owned).or_else(known).unwrap_or_else(|| format!("user{uid}"));
    let mut numbers = vec![gid];
    numbers.extend(getgroups().unwrap_or_default().into_iter().filter(|group| *group != gid));
    let named = |gid: Gid| {
        let group = Group::from_gid(gid).ok().flatten().map(|group| group.name);
        (group.unwrap_or_else(|| format!("group{gid}")), gid.as_raw())
    };
    Account { name, uid: uid.as_raw(), gid: gid.as_raw(), groups: numbers.into_iter().map(named).collect() }
}

/// `/tmp` and `/var/tmp` of all containers of a session: in `/tmp` of the host, where only the user
/// can enter.
fn temporary(session: SessionId) -> PathBuf {
    Path::new("/tmp").join(format!("lyceum-{}", session.short()))
}

fn make_temporary(session: SessionId) -> io::Result<PathBuf> {
    let folder = temporary(session);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(&folder)?;
            if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o077 != 0 {
                return Err(io::Error::other(format!("{} belongs to another user", folder.display())));
            }
        }
        made => made?,
    }
    for name in ["tmp", "var-tmp"] {
        let inner = folder.join(name);
        fs::create_dir_all(&inner)?;
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o1777))?;
    }
    Ok(folder)
}

/// A root that is ready for a runner.
struct Mounted {
    /// Where the runner finds it.
    root: PathBuf,
    /// Where this process finds it, if it can look inside.
    view: Option<PathBuf>,
    holder: Option<i32>,
}

/// Mounts what is not a plain folder, or is to be written to.
async fn mount(launch: &AgentLaunch, container: &Container, log: &Log, reaper: &Reaper) -> Result<Mounted, String> {
    let root = container.root.clone();
    if container.runner == Runner::Apptainer {
        // It mounts what it runs.
        let view = root.is_dir().then(|| root.clone());
        return Ok(Mounted { root, view, holder: None });
    }
    let mut mounted = Mounted { view: Some(root.clone()), root, holder: None };
    let point = |name: &str| {
        let point = launch.run_directory.join(FILES).join(container.folder_name()).join(name);
        let made = fs::create_dir_all(&point);
        made.map(|()| point.clone()).map_err(|error| format!("{} cannot be created: {error}", point.display()))
    };
    if is_squashed(&container.root) {
        if container.root.extension().is_some_and(|ending| ending == "sif") {
            return Err(format!("the image ‘{}’ is a SIF file, which requires the runner Apptainer", container.name));
        }
        let program = find_program("squashfuse").ok_or_else(|| missing(container, "squashfuse"))?;
        let place = point("image")?;
        let words =
            [&program, Path::new("-f"), &container.root, &place].map(|word| word.to_string_lossy().into_owned());
        mounted.add(launch, &words, place, log, reaper).await?;
    }
    if let Writable::Keep(folder) = &container.writable {
        let program = find_program("fuse-overlayfs").ok_or_else(|| missing(container, "fuse-overlayfs"))?;
        let place = point("writable")?;
        let layer = folder.join(container.folder_name());
        let [upper, work] = ["changes", "work"].map(|name| layer.join(name));
        for folder in [&upper, &work] {
            fs::create_dir_all(folder).map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
        }
        let paths = [&mounted.root, &upper, &work].map(|path| path.to_string_lossy().into_owned());
        if let Some(odd) = paths.iter().find(|path| path.contains([',', ':', '\\'])) {
            return Err(format!("{odd} cannot be part of a writable image, because its name has a comma or a colon"));
        }
        let [lower, upper, work] = paths;
        // Everything belongs to the user, as far as a program inside can see.
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work},squash_to_root");
        let words = [program.to_string_lossy().into_owned(), "-f".to_owned(), "-o".to_owned(), options];
        let words: Vec<String> = words.into_iter().chain([place.to_string_lossy().into_owned()]).collect();
        mounted.add(launch, &words, place, log, reaper).await?;
    }
    Ok(mounted)
}

impl Mounted {
    /// Starts a process that serves a root at `place`, in the holder's name spaces or in new ones.
    async fn add(
        &mut self,
        launch: &AgentLaunch,
        words: &[String],
        place: PathBuf,
        log: &Log,
        reaper: &Reaper,
    ) -> Result<(), String> {
        let name = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        let own = ["/proc/self/exe".to_owned(), "exec".to_owned()];
        let space = match self.holder {
            Some(holder) => vec!["--enter".to_owned(), holder.to_string()],
            None => vec!["--name-space".to_owned()],
        };
        let argv: Vec<String> =
            own.into_iter().chain(space).chain(["--".to_owned()]).chain(words.iter().cloned()).collect();
        // Only what marks it as a part of the session.
        let mut app = AppLaunch { working_directory: "/".into(), ..launch.app.clone() };
        app.environment.retain(|name, _| name == "LYCEUM_SESSION");
        let failed = |why: String| format!("the image cannot be mounted by {name}: {why}");
        let spawned = io::pipe()
            .and_then(|(reader, writer)| Ok((reaper.spawn(&app, &argv, None, Streams::Pipe(writer.into()))?, reader)));
        let (Child { pid, mut exit }, pipe) = spawned.map_err(|error| failed(error.to_string()))?;
        tokio::spawn(log.clone().pump(pipe.into()));
        let pid = pid.as_raw_nonzero().get();
        let end = Instant::now() + TIMEOUT;
        while !is_mounted(pid, &place) {
            if exit.try_recv().is_ok() {
                return Err(failed(format!("it ended ({})", log.last_lines(2))));
            }
            if end < Instant::now() {
                return Err(failed(format!("it took longer than {} seconds", TIMEOUT.as_secs())));
            }
            sleep(LOOK).await;
        }
        // Links of `/proc` lead into the name space of the process.
        self.view =
            Some(Path::new("/proc").join(pid.to_string()).join("root").join(place.strip_prefix("/").unwrap_or(&place)));
        self.root = place;
        self.holder = Some(self.holder.unwrap_or(pid));
        Ok(())
    }
}

/// Whether the process sees a mount at this place.
fn is_mounted(pid: i32, place: &Path) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let place = fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
    let place = place.to_string_lossy().replace(' ', "\\040");
    text.lines().any(|line| line.split(' ').nth(4) == Some(&*place))
}
