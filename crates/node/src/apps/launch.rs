//! How each app is started: argument vector, environment, readiness. A pure function of the
//! [`Context`]; the child's environment is built from nothing, and secrets travel in it,
//! never in the argument vector.

use std::{collections::BTreeMap, path::Path};

use super::{
    App, AppKind, Listen,
    context::{Batch, Context, Python},
    images, jupyter,
    site::{fill, placeholders, ready_path},
};
use lyceum_model::{
    Gpu, SessionId, SweepId, export,
    job::{Array, JobProgram},
};
use lyceum_wire::protocol::{AppLaunch, Program, ProgramStart, ReadyProbe, Shell, files};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("`{0}` requires an environment, but none was selected")]
    NoEnvironment(String),
    #[error("`{0}` listens on a port, but no port was given")]
    NoPort(String),
    #[error("the job's command is no longer known")]
    NoTask,
    #[error("no model was given")]
    NoModel,
    #[error("`{0}` runs in an environment of the portal's and not in an image: select no image")]
    NotInImages(String),
}

/// The path below which a session's app answers.
pub fn base_url(session: SessionId) -> String {
    format!("/s/{session}/")
}

/// How `app` is started. What [`Context`] lacks for this app is an [`Error`].
pub fn launch(app: &App, context: &Context<'_>) -> Result<AppLaunch, Error> {
    let mut environment = common_environment(context);
    let of_image = images::python();
    let context = &Context { python: context.container.map_or(context.python, |_| Some(&of_image)), ..context.clone() };
    let (mut beside, mut start) = (None, ProgramStart::default());
    let (program, ready) = match &app.kind {
        AppKind::Jupyter => {
            let (program, probe) = jupyter::start(&mut environment, python(app, context)?, context);
            (program, Some(probe))
        }
        AppKind::TensorBoard => {
            environment.insert("PYTHONNOUSERSITE".to_owned(), "1".to_owned());
            (tensorboard(python(app, context)?, context), Some(page(context)))
        }
        AppKind::Model if context.container.is_some() => return Err(Error::NotInImages(app.name.clone())),
        AppKind::Model => {
            // The trainer's, and not a folder of that name where it starts.
            environment.insert("PYTHONPATH".to_owned(), text(context.trainer));
            environment.insert("PYTHONSAFEPATH".to_owned(), "1".to_owned());
            (model(python(app, context)?, context)?, Some(page(context)))
        }
        AppKind::Terminal => (Program::Terminal(terminal(context)), None),
        AppKind::Job => {
            // Whoever looks after it wants to see what it does, where it does it.
            beside = Some(terminal(context));
            let program = job(&mut environment, context)?;
            start = program_start(context);
            (program, None)
        }
        AppKind::Site(site) => {
            let port = match site.listen {
                Listen::Socket => None,
                Listen::Port => Some(context.port.ok_or_else(|| Error::NoPort(app.name.clone()))?),
            };
            let values = placeholders(port, context);
            for (key, value) in &site.environment {
                environment.insert(key.clone(), fill(value, &values));
            }
            for (name, value) in &values {
                environment.insert(format!("LYCEUM_{}", name.to_ascii_uppercase()), value.clone());
            }
            let argv = site.command.iter().map(|word| fill(word, &values)).collect();
            let probe = ready(ready_path(site, context), 120);
            let probe = ReadyProbe { port, statuses: site.ready_status.clone(), ..probe };
            (Program::Exec { argv }, Some(probe))
        }
    };
    let working_directory = context.working_directory.to_owned();
    let launch = AppLaunch {
        program,
        environment,
        working_directory,
        ready,
        beside,
        start,
        container: None,
        kernels: Vec::new(),
    };
    Ok(images::add(launch, app, context))
}

/// The same app with modules loaded: its environment tells of them, and a terminal's bash keeps
/// what they made of `PATH`, whatever the profile files do.
pub fn with_modules(mut app: AppLaunch, names: &[String], tensorboard_wrapper: &Path) -> AppLaunch {
    app.environment.insert("LYCEUM_MODULES".to_owned(), names.join(" "));
    let shell = if let Program::Terminal(shell) = &mut app.program { Some(shell) } else { app.beside.as_mut() };
    if let Some(Shell { path, arguments }) = shell
        && arguments.is_empty()
        && path.rsplit('/').next() == Some("bash")
    {
        arguments.extend(rcfile(tensorboard_wrapper));
    }
    app
}

fn rcfile(tensorboard_wrapper: &Path) -> [String; 2] {
    ["--rcfile".to_owned(), text(&tensorboard_wrapper.with_file_name("bashrc"))]
}

fn common_environment(context: &Context<'_>) -> BTreeMap<String, String> {
    let person = context.person;
    let (cpus, threads) = (context.resources.cpus.to_string(), threads(context).to_string());
    let first = context.python.map(Python::path);
    let path = match &first {
        Some(first) => format!("{first}:{SYSTEM_PATH}"),
        None => SYSTEM_PATH.to_owned(),
    };
    let mut environment = context.extra.clone();
    // Profile files set `PATH` anew; see `bashrc`.
    environment.extend(first.map(|first| ("LYCEUM_PATH".to_owned(), first)));
    let ours = [
        ("HOME", text(&person.home)),
        ("USER", person.unix_name.clone()),
        ("LOGNAME", person.unix_name.clone()),
        ("SHELL", shell(context)),
        ("LYCEUM_BASHRC", text(&context.tensorboard_wrapper.with_file_name("bashrc"))),
        ("PATH", path),
        ("LANG", "C.UTF-8".to_owned()),
        ("XDG_RUNTIME_DIR", text(context.run_directory)),
        ("CUDA_VISIBLE_DEVICES", visible_gpus(context)),
        ("CPU_LIMIT", cpus),
        ("MEM_LIMIT", context.resources.memory_bytes.to_string()),
        // Numerical libraries take every core of the machine unless told.
        ("OMP_NUM_THREADS", threads.clone()),
        ("OPENBLAS_NUM_THREADS", threads.clone()),
        ("MKL_NUM_THREADS", threads.clone()),
        ("NUMEXPR_NUM_THREADS", threads.clone()),
        ("NUMEXPR_MAX_THREADS", threads),
        // Read by many extensions of Jupyter and by dashboards that run beside it.
        ("JUPYTERHUB_USER", person.unix_name.clone()),
        ("JUPYTERHUB_SERVICE_PREFIX", context.base_url.to_owned()),
        ("LYCEUM_SESSION", context.session.to_string()),
        ("LYCEUM_SOCKET", text(&context.run_directory.join(files::APP_SOCKET))),
        ("LYCEUM_NOTES", text(&context.run_directory.join(files::NOTES))),
        ("LYCEUM_BASE_URL", context.base_url.to_owned()),
        ("LYCEUM_HOME", text(&person.home)),
        ("LYCEUM_USER", person.unix_name.clone()),
    ];
    environment.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    if let Some(Batch { task, .. }) = context.batch.filter(|batch| batch.task.shape.as_written) {
        // A script of Slurm's finds what it finds without us: Slurm says what was given out.
        let says_cores = task.shape.says(&["cpus-per-task"]);
        let is_ours = |name: &str| NOT_SLURMS.contains(&name) || !says_cores && THREADS.contains(&name);
        environment.retain(|name, _| !is_ours(name) || context.extra.contains_key(name));
    }
    environment
}

/// Variables that would change how a script of Slurm's behaves.
const NOT_SLURMS: [&str; 5] =
    ["CUDA_VISIBLE_DEVICES", "CPU_LIMIT", "MEM_LIMIT", "JUPYTERHUB_USER", "JUPYTERHUB_SERVICE_PREFIX"];

/// What numerical libraries read; each task has its own share of the cores.
const THREADS: [&str; 5] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS"];

/// How many cores one task has.
fn threads(context: &Context<'_>) -> i64 {
    let Some(Batch { task, .. }) = context.batch else { return context.resources.cpus };
    let asked = task.shape.option("cpus-per-task").and_then(|cpus| cpus.parse().ok());
    let tasks = if task.shape.is_spread { task.shape.tasks() } else { task.shape.tasks_per_node };
    asked.unwrap_or(context.resources.cpus / tasks.max(1)).max(1)
}

const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// By UUID where a driver is, because CUDA's and NVML's orders differ; nothing at all is an
/// empty string, since a missing variable would show every GPU.
fn visible_gpus(context: &Context<'_>) -> String {
    let name = |gpu: &Gpu| if context.gpu_driver { gpu.uuid.clone() } else { gpu.index.to_string() };
    context.gpus.iter().map(name).collect::<Vec<_>>().join(",")
}

fn shell(context: &Context<'_>) -> String {
    let shell = &context.person.shell;
    if shell.is_empty() { "/bin/sh".to_owned() } else { shell.clone() }
}

/// An interactive shell. One that is bash finds, whatever the profile files do to `PATH`, the
/// environment first and our own program last. Whether it is there the agent sees.
fn terminal(context: &Context<'_>) -> Shell {
    let path = shell(context);
    let is_bash = path.rsplit('/').next() == Some("bash");
    let arguments = if is_bash { rcfile(context.tensorboard_wrapper).into() } else { Vec::new() };
    Shell { path, arguments }
}

fn python<'a>(app: &App, context: &Context<'a>) -> Result<&'a Python, Error> {
    context.python.ok_or_else(|| Error::NoEnvironment(app.name.clone()))
}

fn tensorboard(python: &Python, context: &Context<'_>) -> Program {
    let logs = context.log_directory.unwrap_or(context.working_directory);
    let mut argv = vec![
        text(&python.python),
        text(context.tensorboard_wrapper),
        format!("--socket={}", text(&context.run_directory.join(files::APP_SOCKET))),
    ];
    if context.log_directories.is_empty() {
        argv.push(format!("--logdir={}", logs.display()));
    }
    argv.extend(context.log_directories.iter().map(|(name, logs)| format!("--run={name}={}", logs.display())));
    argv.push(format!("--path_prefix={}", context.base_url.trim_end_matches('/')));
    Program::Exec { argv }
}

fn model(python: &Python, context: &Context<'_>) -> Result<Program, Error> {
    let directory = context.log_directory.ok_or(Error::NoModel)?;
    let socket = format!("--socket={}", text(&context.run_directory.join(files::APP_SOCKET)));
    let base = format!("--base={}", context.base_url);
    // Behind `--` no directory is taken for an option.
    let words = [&text(&python.python), "-m", "trainer", "serve", &socket, &base, "--", &text(directory)];
    Ok(Program::Exec { argv: words.map(str::to_owned).into() })
}

/// A job's program. Its own variables were checked when it was submitted: they may replace what
/// is only a proposal, as the number of threads.
fn job(environment: &mut BTreeMap<String, String>, context: &Context<'_>) -> Result<Program, Error> {
    let Batch { attempt, task } = context.batch.ok_or(Error::NoTask)?;
    if !task.shape.as_written {
        // Nobody looks on: what it prints is to be read while it runs.
        environment.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
    }
    environment.extend(task.variables.clone());
    if let Some(text) = &task.start.export {
        if let Some(names) = export::names(text) {
            environment
                .retain(|name, _| names.contains(name) || name.starts_with("LYCEUM_") || LOGIN.contains(&&**name));
        }
        environment.insert("SLURM_EXPORT_ENV".to_owned(), text.clone());
        environment.insert("SLURM_GET_USER_ENV".to_owned(), "1".to_owned());
    }
    if task.requeue && attempt.number > 1 {
        environment.insert("SLURM_RESTART_COUNT".to_owned(), (attempt.number - 1).to_string());
    }
    environment.insert("LYCEUM_JOB".to_owned(), attempt.job.to_string());
    environment.insert("LYCEUM_ATTEMPT".to_owned(), attempt.number.to_string());
    if let Some(part) = task.part {
        environment.insert("LYCEUM_SWEEP".to_owned(), part.sweep.to_string());
        environment.insert("LYCEUM_ARRAY_INDEX".to_owned(), part.index.to_string());
        // As scripts that were written for an array of Slurm's know it.
        environment.insert("SLURM_ARRAY_TASK_ID".to_owned(), part.index.to_string());
        environment.insert("LYCEUM_REPEAT".to_owned(), part.repeat.to_string());
        if let Some(Array { count, min, max, step }) = task.array {
            let number = array_number(part.sweep);
            for (name, value) in
                [("JOB_ID", number), ("TASK_COUNT", count), ("TASK_MIN", min), ("TASK_MAX", max), ("TASK_STEP", step)]
            {
                environment.insert(format!("SLURM_ARRAY_{name}"), value.to_string());
            }
        }
    }
    if let Some(folder) = context.log_directory {
        environment.insert("LYCEUM_LOG_DIRECTORY".to_owned(), text(folder));
    }
    Ok(match &task.work {
        JobProgram::Command(argv) => Program::Exec { argv: argv.clone() },
        JobProgram::Script(script) => Program::Script { text: script.clone() },
    })
}

/// The variables that every login sets.
const LOGIN: [&str; 4] = ["HOME", "USER", "LOGNAME", "SHELL"];

/// The number of an array, the same for all its tasks: beyond all numbers that Slurm gives to jobs, so that it is
/// never another job's.
fn array_number(sweep: SweepId) -> i64 {
    let bits = i64::try_from(sweep.uuid().as_u128() % 1_000_000_000).unwrap_or(0);
    1_000_000_000 + bits
}

fn program_start(context: &Context<'_>) -> ProgramStart {
    let Some(Batch { task, .. }) = context.batch else { return ProgramStart::default() };
    let is_clean = task.start.export.as_deref().is_some_and(|text| export::names(text).is_some());
    ProgramStart {
        arguments: task.start.arguments.clone(),
        // What is not exported is as at a login.
        login_shell: task.start.login_shell || is_clean,
        streams: task.start.streams.clone(),
    }
}

/// A page of ours below the base URL: there, or not ready.
fn page(context: &Context<'_>) -> ReadyProbe {
    ReadyProbe { statuses: vec![200], ..ready(context.base_url.to_owned(), 180) }
}

pub(super) fn ready(path: String, timeout_seconds: u64) -> ReadyProbe {
    ReadyProbe { path, authorization: None, port: None, timeout_seconds, statuses: Vec::new() }
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use super::*;
    use lyceum_model::{
        Resources,
        job::{Attempt, Task},
        user::Person,
    };

    use crate::apps::{Catalogue, OwnPython};

    pub(in crate::apps) struct Given {
        pub session: SessionId,
        pub base: String,
        pub person: Person,
        pub python: Python,
        pub resources: Resources,
        pub gpus: Vec<Gpu>,
        pub log_directories: BTreeMap<String, PathBuf>,
        pub extra: BTreeMap<String, String>,
    }

    pub(in crate::apps) fn given() -> Given {
        let session = SessionId::new();
        Given {
            session,
            base: base_url(session),
            person: Person {
                unix_name: "ada".to_owned(),
                uid: 1000,
                gid: 1000,
                home: "/home/ada".into(),
                shell: "/bin/bash".to_owned(),
            },
            python: Python { python: "/env/bin/python".into(), bin: "/env/bin".into(), own: None },
            resources: Resources { cpus: 3, ..Resources::default() },
            gpus: vec![
                Gpu { index: 2, uuid: "GPU-b".to_owned(), model: "A100".to_owned(), slice: None },
                Gpu { index: 0, uuid: "GPU-a".to_owned(), model: "A100".to_owned(), slice: None },
            ],
            log_directories: BTreeMap::new(),
            extra: BTreeMap::from([
                ("HOME".to_owned(), "/elsewhere".to_owned()),
                ("http_proxy".to_owned(), "http://proxy".to_owned()),
            ]),
        }
    }

    pub(in crate::apps) fn context(given: &Given) -> Context<'_> {
        Context {
            session: given.session,
            base_url: &given.base,
            person: &given.person,
            run_directory: Path::new("/run/lyceum/run/0123456789abcdef"),
            python: Some(&given.python),
            working_directory: Path::new("/home/ada/work"),
            log_directory: None,
            log_directories: &given.log_directories,
            tensorboard_wrapper: Path::new("/lib/tensorboard.py"),
            trainer: Path::new("/lib/trainer"),
            resources: &given.resources,
            gpus: &given.gpus,
            gpu_driver: true,
            token: "s3cret",
            port: None,
            batch: None,
            container: None,
            kernels: &[],
            extra: &given.extra,
        }
    }

    pub(in crate::apps) fn argv(launch: &AppLaunch) -> &[String] {
        match &launch.program {
            Program::Exec { argv } => argv,
            Program::Terminal(_) | Program::Script { .. } => panic!("a program by its arguments"),
        }
    }

    #[test]
    fn jupyter_is_private_and_its_token_is_not_in_argv() {
        let given = given();
        let catalogue = Catalogue::default();
        let jupyter = catalogue.find("jupyter").expect("built in");
        let started = launch(jupyter, &context(&given)).expect("everything is there");
        let argv = argv(&started);
        assert_eq!(argv[..2], ["/env/bin/python", "/env/bin/jupyter-lab"]);
        for flag in [
            "--ServerApp.sock=/run/lyceum/run/0123456789abcdef/app.sock",
            "--ServerApp.sock_mode=0660",
            &format!("--ServerApp.base_url={}", given.base),
            "--ServerApp.root_dir=/home/ada",
            "--FileContentsManager.preferred_dir=/home/ada/work",
            "--ServerApp.allow_unauthenticated_access=False",
            "--ServerApp.port=8888",
            "--ServerApp.certfile=",
            "--KernelManager.transport=ipc",
        ] {
            assert!(argv.iter().any(|word| word == flag), "{flag} is missing");
        }
        assert!(!argv.iter().any(|word| word.contains("s3cret")));
        assert_eq!(started.environment["JUPYTER_TOKEN"], "s3cret");
        assert_eq!(started.environment["JUPYTER_CONFIG_PATH"], "/lib/jupyter");
        let ready = started.ready.expect("Jupyter is asked");
        assert_eq!((ready.authorization.as_deref(), ready.statuses), (Some("token s3cret"), vec![200]));
        assert!(ready.path.starts_with(&given.base));

        let outside = Context { working_directory: Path::new("/data"), ..context(&given) };
        let started = launch(jupyter, &outside).expect("everything is there");
        assert!(self::argv(&started).iter().any(|word| word == "--ServerApp.root_dir=/data"));

        let without = Context { python: None, ..context(&given) };
        assert_eq!(launch(jupyter, &without).expect_err("no Python"), Error::NoEnvironment("jupyter".to_owned()));
    }

    #[test]
    fn a_job_is_told_what_it_is() {
        let given = given();
        let catalogue = Catalogue::default();
        let job = catalogue.find(crate::apps::JOB).expect("built in");
        assert!(catalogue.iter().all(|app| app.name != job.name), "nobody chooses it");
        assert_eq!(launch(job, &context(&given)).expect_err("nothing to run"), Error::NoTask);
        let variables = [("SEED", "7"), ("OMP_NUM_THREADS", "1"), ("LYCEUM_JOB", "forged")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let work = JobProgram::Script("echo $SEED".to_owned());
        let task = Task {
            work,
            variables,
            retries: 0,
            retry_wait_seconds: 0,
            after: Vec::new(),
            part: None,
            shape: lyceum_model::job::Shape::default(),
            start: lyceum_model::job::Start::default(),
            requeue: false,
            array: None,
            tags: Vec::new(),
            notes: String::new(),
            is_helper: false,
        };
        let batch = Batch { attempt: Attempt { job: lyceum_model::JobId::new(), number: 2 }, task: &task };
        let logs = Some(Path::new("/home/ada/runs/x"));
        let started = launch(job, &Context { batch: Some(batch), log_directory: logs, ..context(&given) });
        let started = started.expect("everything is there");
        for (key, value) in [
            ("SEED", "7"),
            ("OMP_NUM_THREADS", "1"),
            ("HOME", "/home/ada"),
            ("LYCEUM_JOB", &*batch.attempt.job.to_string()),
            ("LYCEUM_ATTEMPT", "2"),
            ("LYCEUM_LOG_DIRECTORY", "/home/ada/runs/x"),
            ("PATH", "/env/bin:/usr/local/bin:/usr/bin:/bin"),
        ] {
            assert_eq!(started.environment[key], value, "{key}");
        }
        assert!(matches!(started.program, Program::Script { text } if text == "echo $SEED"));
        assert!(started.ready.is_none(), "nobody waits for an answer");
        let shell =
            Shell { path: "/bin/bash".to_owned(), arguments: ["--rcfile", "/lib/bashrc"].map(str::to_owned).into() };
        assert_eq!(started.beside, Some(shell), "a terminal beside it");
    }

    #[test]
    fn environment_of_a_child() {
        let mut given = given();
        let catalogue = Catalogue::default();
        let terminal = catalogue.find("terminal").expect("built in");
        let started = launch(terminal, &context(&given)).expect("everything is there");
        for (key, value) in [
            ("HOME", "/home/ada"),
            ("PATH", "/env/bin:/usr/local/bin:/usr/bin:/bin"),
            ("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a"),
            ("OMP_NUM_THREADS", "3"),
            ("MEM_LIMIT", "1073741824"),
            ("http_proxy", "http://proxy"),
            ("XDG_RUNTIME_DIR", "/run/lyceum/run/0123456789abcdef"),
        ] {
            assert_eq!(started.environment[key], value, "{key}");
        }
        assert!(!started.environment.contains_key("JUPYTER_TOKEN"));
        // The system's Python goes on finding what a person installed for it with `pip --user`.
        assert!(!started.environment.contains_key("PYTHONNOUSERSITE"));
        assert!(
            matches!(&started.program, Program::Terminal(Shell { arguments, .. }) if *arguments == ["--rcfile", "/lib/bashrc"])
        );

        let counted = Context { gpu_driver: false, python: None, ..context(&given) };
        let started = launch(terminal, &counted).expect("everything is there");
        assert_eq!(started.environment["CUDA_VISIBLE_DEVICES"], "2,0");
        assert_eq!(started.environment["PATH"], "/usr/local/bin:/usr/bin:/bin");

        given.person.shell = "/bin/zsh".to_owned();
        let started = launch(terminal, &context(&given)).expect("everything is there");
        assert!(matches!(&started.program, Program::Terminal(Shell { arguments, .. }) if arguments.is_empty()));

        given.gpus.clear();
        let started = launch(terminal, &context(&given)).expect("everything is there");
        assert_eq!(started.environment["CUDA_VISIBLE_DEVICES"], "");
    }

    #[test]
    fn own_packages_come_first_and_the_server_stays() {
        let mut given = given();
        let catalogue = Catalogue::default();
        let jupyter = catalogue.find("jupyter").expect("built in");
        for (is_overlay, path) in [(true, "/home/ada/own/bin:/env/bin"), (false, "/home/ada/own/bin")] {
            given.python.own = Some(OwnPython { folder: "/home/ada/own".into(), is_overlay });
            let started = launch(jupyter, &context(&given)).expect("everything is there");
            assert_eq!(argv(&started)[..2], ["/env/bin/python", "/env/bin/jupyter-lab"]);
            assert_eq!(started.environment["LYCEUM_BASHRC"], "/lib/bashrc");
            assert_eq!(started.environment["LYCEUM_PATH"], path);
            assert_eq!(started.environment["PATH"], format!("{path}:{SYSTEM_PATH}"));
            let kernels = "/run/lyceum/run/0123456789abcdef/jupyter:/home/ada/own/share/jupyter:/lib/jupyter";
            assert_eq!(started.environment["JUPYTER_PATH"], kernels);
            assert_eq!(started.environment["PYTHONNOUSERSITE"], "1");
        }
    }

    #[test]
    fn tensorboard_reads_the_folders_asked_for_by_their_names() {
        let given = given();
        let catalogue = Catalogue::default();
        let board = catalogue.find("tensorboard").expect("built in");
        let asked = Context { log_directory: Some(Path::new("/home/ada/-logs")), ..context(&given) };
        let started = launch(board, &asked).expect("everything is there");
        let prefix = format!("--path_prefix=/s/{}", given.session);
        assert_eq!(
            argv(&started)[1..],
            [
                "/lib/tensorboard.py",
                "--socket=/run/lyceum/run/0123456789abcdef/app.sock",
                "--logdir=/home/ada/-logs",
                &prefix
            ]
        );

        let runs =
            BTreeMap::from([("first".to_owned(), PathBuf::from("/a/b")), ("c d".to_owned(), PathBuf::from("/x=y"))]);
        let started =
            launch(board, &Context { log_directories: &runs, ..context(&given) }).expect("everything is there");
        assert_eq!(argv(&started)[3..5], ["--run=c d=/x=y", "--run=first=/a/b"]);
        assert!(!argv(&started).iter().any(|argument| argument.starts_with("--logdir")));
    }

    #[test]
    fn a_model_is_served_by_the_trainer() {
        let given = given();
        let catalogue = Catalogue::default();
        let model = catalogue.find("model").expect("built in");
        assert_eq!(launch(model, &context(&given)).expect_err("which"), Error::NoModel);
        let asked = Context { log_directory: Some(Path::new("/home/ada/runs/-x")), ..context(&given) };
        let started = launch(model, &asked).expect("everything is there");
        assert_eq!(argv(&started)[1..4], ["-m", "trainer", "serve"]);
        assert_eq!(argv(&started)[6..], ["--", "/home/ada/runs/-x"]);
        assert_eq!(started.environment["PYTHONPATH"], "/lib/trainer");
        assert_eq!(started.ready.expect("it is asked").path, given.base);
    }

    #[test]
    fn site_apps_are_filled_in() {
        let given = given();
        let text = r#"
            name = "web"
            command = ["serve", "--port={port}", "{\"a\": 1}", "{base_url}"]
            listen = "port"
            ready_path = "/health"
            environment = { ROOT = "{home}" }
        "#;
        let catalogue = Catalogue::new(vec![toml::from_str(text).expect("a valid app")]);
        let web = catalogue.find("web").expect("it was added");
        assert_eq!(launch(web, &context(&given)).expect_err("no port"), Error::NoPort("web".to_owned()));
        let with_port = Context { port: Some(4711), ..context(&given) };
        let started = launch(web, &with_port).expect("everything is there");
        assert_eq!(argv(&started), ["serve", "--port=4711", "{\"a\": 1}", &given.base]);
        assert_eq!(started.environment["ROOT"], "/home/ada");
        assert_eq!(started.environment["LYCEUM_PORT"], "4711");
        let ready = started.ready.expect("it is asked");
        assert_eq!((ready.port, ready.path), (Some(4711), format!("{}health", given.base)));
    }
}
