//! The `lyceum` command: which subcommand was asked for, and one call each.

mod examples;

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use lyceum::{
    admin,
    app::App,
    check, client,
    config::{Config, Environment},
    datasets::{self, build::standard::StandardSet},
    demo, inherited,
    model::Clock,
    start, telemetry,
};

/// A web portal for shared deep-learning hardware.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: Serve,
    #[command(flatten)]
    place: Locations,
}

/// Where things are, for every subcommand.
#[derive(clap::Args, Clone, Default)]
struct Locations {
    /// The configuration file; by default $LYCEUM_CONFIG, or /etc/lyceum/lyceum.toml if it exists.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory; by default $LYCEUM_DATA, or /var/lib/lyceum (root) or the XDG data directory.
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(clap::Args, Default)]
struct Serve {
    /// The address to listen on; by default that of the configuration, or 127.0.0.1:8000.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Start with an empty database if the database of an earlier start is missing.
    #[arg(long)]
    start_empty: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the portal (the default).
    Serve(Serve),
    /// Check this installation and show how to fix problems.
    Check {
        /// Test a session start as this user.
        #[arg(long = "as", value_name = "USER")]
        as_user: Option<String>,
        /// Print the findings as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Manage users, tokens, quotas and backups directly in the database.
    Admin {
        #[command(subcommand)]
        verb: admin::Verb,
    },
    #[command(flatten)]
    Client(client::Command),
    /// Print the completions of a shell, such as for `source <(lyceum completion bash)`.
    Completion { shell: clap_complete::Shell },
    /// Write the manual pages of all commands into a directory.
    Man { directory: PathBuf },
    /// Build or inspect datasets of images on this machine, and list, wait for and delete those of a portal.
    Dataset {
        #[command(subcommand)]
        verb: DatasetVerb,
    },
    /// Simulate a training that writes curves, to try Lyceum.
    DemoTrain(demo::Arguments),
    /// The root helper; started by `serve`.
    #[command(hide = true)]
    Helper { config: String },
    /// The trampoline of the helper.
    #[command(hide = true)]
    Become,
    /// Looks after a user's files as the user, for the helper.
    #[command(hide = true)]
    Errand,
    /// An errand of `check`, as somebody else.
    #[command(hide = true)]
    Rehearse { word: Option<String> },
    /// Becomes a user and turns into a files agent, for the helper.
    #[command(hide = true)]
    FilesAgent,
    /// Becomes a user and turns into a command of the batch system, for the helper.
    #[command(hide = true)]
    Batch,
    /// One of a user's own verbs, by a rule of sudo's.
    #[command(hide = true)]
    AsUser { verb: Option<String> },
    /// Inside a workload; `agent files` looks after a user's files.
    #[command(hide = true)]
    Agent,
    /// Inside a job: prints what the driver says of its GPUs, as JSON.
    #[command(hide = true)]
    Diagnose {
        #[arg(long, value_name = "FILE", default_value = lyceum::gpu::KERNEL_LOG)]
        kernel_log: PathBuf,
    },
    /// The last step before an app.
    #[command(hide = true)]
    Exec {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

#[derive(Subcommand)]
enum DatasetVerb {
    #[command(flatten)]
    Portal(client::DatasetCommand),
    /// Build the dataset described by a JSON file (docs/datasets.md). A stopped build resumes when started again.
    Build {
        /// The JSON file. Default: the content of the variable `DATASET_SPEC`.
        spec: Option<PathBuf>,
        /// Number of threads. Default: the number of available cores.
        #[arg(long, value_name = "N")]
        threads: Option<usize>,
    },
    /// Build MNIST, Fashion-MNIST or CIFAR-10 as published. Without a name, list the sets and where their files are.
    Standard {
        /// mnist, fashion-mnist or cifar-10.
        #[arg(requires = "output")]
        set: Option<StandardSet>,
        /// The directory of the dataset. It must not exist.
        #[arg(long, value_name = "DIR", requires = "set")]
        output: Option<PathBuf>,
        /// A folder with the published files, or with a folder of the set's name that has them.
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// The address of a folder of such sets, instead of the publisher's.
        #[arg(long, value_name = "URL", requires = "set")]
        mirror: Option<String>,
        /// Number of threads. Default: the number of available cores.
        #[arg(long, value_name = "N", requires = "set")]
        threads: Option<usize>,
    },
    /// Build the evaluation set of a trained detection or segmentation model from labelled images (docs/trainer.md).
    Evaluation {
        /// A directory of labelled images, or a document of annotations. How the labels are stored is recognised.
        labels: PathBuf,
        /// A checkpoint, or the directory of its training, whose preprocessing.json says what the model sees.
        #[arg(long, value_name = "PATH")]
        model: PathBuf,
        /// The directory of the evaluation set. It must not exist.
        #[arg(long, value_name = "DIR")]
        output: PathBuf,
    },
    /// Show what a source would be read as: layout, splits, classes and notes. Nothing is built.
    Inspect {
        /// A directory, archive or list of images, or the JSON file of a specification. Default: the content of the
        /// variable `DATASET_SPEC`.
        source: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    // Before anything else exists: these run as other users, or become one.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("agent") => {
            let mut arguments = arguments.peekable();
            return match arguments.peek().and_then(|word| word.to_str()) {
                Some("files") => lyceum::agent::files::run(),
                _ => lyceum::agent::run(arguments, std::env::vars_os(), lyceum::gpu::open_workload),
            };
        }
        Some("exec") => return lyceum::agent::exec(arguments),
        Some("become") => return lyceum::helper::trampoline::run(),
        Some("errand") => return lyceum::helper::errand::run(),
        Some("rehearse") => return check::rehearse(arguments.next().as_deref().and_then(std::ffi::OsStr::to_str)),
        Some("files-agent") => return lyceum::helper::files::run(),
        Some("batch") => return lyceum::helper::batch::run(),
        Some("as-user") => {
            return lyceum::helper::privilege_mode::run(arguments.next().as_deref().and_then(std::ffi::OsStr::to_str));
        }
        Some("helper") => return helper(&arguments.next().unwrap_or_default().to_string_lossy()),
        _ => {}
    }
    let matches = examples::add_to(Command::command()).get_matches();
    match run(Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())) {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nor need anybody read this; `eprintln!` would panic then.
            let _ = writeln!(io::stderr(), "lyceum: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Of our own output alone: what fails inside the portal's parts comes with a word of theirs.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> Result<ExitCode> {
    let environment = Environment::of_process();
    let place = command.place;
    match command.verb.unwrap_or(Verb::Serve(command.serve)) {
        Verb::Serve(options) => serve(&place, &options, &environment),
        Verb::Check { as_user, json } => {
            inherited::accept_signals();
            let config = Config::load(place.config.as_deref(), &environment)?;
            let paths = config.scheduler.place(start::layout(&environment.surroundings(place.data.as_deref()))?);
            let facts = config.facts(&paths, &environment);
            let findings = runtime()?.block_on(check::run(&facts, as_user.as_deref()));
            let out = io::stdout();
            if json { check::render_json(&findings, out) } else { check::render(&findings, out) }?;
            let fault = check::worst(&findings) == check::Level::Fault;
            Ok(if fault { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Verb::Admin { verb } => {
            let config = Config::load(place.config.as_deref(), &environment)?;
            let paths = start::layout(&environment.surroundings(place.data.as_deref()))?;
            admin::run(verb, &config, &paths, &mut io::stdout())
        }
        Verb::Client(command) => ask(command, &environment),
        Verb::Dataset { verb: DatasetVerb::Portal(command) } => ask(client::Command::Dataset(command), &environment),
        Verb::Completion { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Command::command(), "lyceum", &mut text);
            io::stdout().write_all(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Man { directory } => {
            std::fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
            clap_mangen::generate_to(examples::add_to(Command::command()), &directory)
                .with_context(|| format!("writing manual pages into {}", directory.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Dataset { verb: DatasetVerb::Build { spec, threads } } => {
            use datasets::build::command::{SpecSource, VARIABLE, run};
            let text = || environment.find(VARIABLE).with_context(|| format!("give a file, or set {VARIABLE}"));
            let given = match spec {
                Some(file) => SpecSource::File(file),
                None => SpecSource::Text(text()?.to_owned()),
            };
            run(&given, threads, &mut io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Dataset { verb: DatasetVerb::Standard { set, output, directory, mirror, threads } } => {
            use datasets::build::command::{list_standard, run, standard_spec};
            let (directory, out) = (directory.as_deref(), &mut io::stdout());
            match set.zip(output) {
                None => list_standard(directory, out),
                Some((set, output)) => run(&standard_spec(set, &output, directory, mirror.as_deref()), threads, out)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Dataset { verb: DatasetVerb::Evaluation { labels, model, output } } => {
            datasets::build::command::evaluation(&labels, &model, &output, &mut io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Dataset { verb: DatasetVerb::Inspect { source, json } } => {
            use datasets::build::command::{SpecSource, VARIABLE, inspect, inspect_path};
            let is_spec = |path: &PathBuf| path.is_file() && path.extension().is_some_and(|ending| ending == "json");
            match source {
                Some(path) if !is_spec(&path) => inspect_path(&path, json, &mut io::stdout())?,
                Some(file) => inspect(&SpecSource::File(file), json, &mut io::stdout())?,
                None => {
                    let text =
                        environment.find(VARIABLE).with_context(|| format!("give a source, or set {VARIABLE}"))?;
                    inspect(&SpecSource::Text(text.to_owned()), json, &mut io::stdout())?;
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Diagnose { kernel_log } => {
            let library = environment.find(lyceum::diagnostics::LIBRARY).map(PathBuf::from);
            let visible = environment.find("CUDA_VISIBLE_DEVICES").unwrap_or_default();
            let report = lyceum::gpu::diagnose(library.as_deref(), visible, &kernel_log);
            serde_json::to_writer_pretty(io::stdout(), &report).context("writing the report")?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::DemoTrain(arguments) => {
            demo::run(&arguments, environment.find("LYCEUM_LOG_DIRECTORY").map(str::to_owned), &mut io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Helper { .. }
        | Verb::Become
        | Verb::Errand
        | Verb::FilesAgent
        | Verb::Batch
        | Verb::AsUser { .. }
        | Verb::Rehearse { .. }
        | Verb::Agent
        | Verb::Exec { .. } => Ok(ExitCode::FAILURE),
    }
}

/// Runs a command that asks a portal.
fn ask(command: client::Command, environment: &Environment) -> Result<ExitCode> {
    let find = |name| environment.find(name).map(str::to_owned);
    let connection = client::Connection {
        url: find("LYCEUM_URL"),
        token: find("LYCEUM_TOKEN"),
        contexts: environment.settings_of_user().map(|folder| folder.join("contexts.toml")),
    };
    Ok(runtime()?.block_on(client::run(command, &connection, &mut io::stdin(), &mut io::stdout())))
}

fn serve(place: &Locations, options: &Serve, environment: &Environment) -> Result<ExitCode> {
    inherited::accept_signals();
    telemetry::start(environment.find("LYCEUM_LOG"), environment.find("LYCEUM_LOG_FORMAT"));
    let (threshold, executed) = (start::memory::MMAP_THRESHOLD, start::memory::EXECUTED);
    if !start::memory::is_settled(environment.find(threshold), environment.find(executed), std::process::id()) {
        let error = start::memory::limit_allocator(std::env::args_os(), environment.find(start::memory::HEAPS));
        tracing::warn!(%error, "freed memory may not be returned to the system");
    }
    let mut config = Config::load(place.config.as_deref(), environment)?;
    if let Some(listen) = options.listen {
        config.server.listen = listen;
        let faults = config.validate();
        anyhow::ensure!(faults.is_empty(), "{}", faults.join("\n"));
    }
    let paths = config.scheduler.place(start::layout(&environment.surroundings(place.data.as_deref()))?);
    let settings = start::Settings {
        service_user: config.server.user.clone(),
        account_uids: config.accounts.uids.map_or(lyceum::helper::ACCOUNT_UIDS, |(first, last)| first..=last),
        batch: config.scheduler.tools(),
        sudo: config.accounts.sudo.clone(),
        ..start::Settings::default()
    };
    let started = start::prepare(&paths, &settings)?;
    let own = lyceum::helper::identity::own().map(|own| own.name).unwrap_or_default();
    if start::ends_with_login(&started.paths.run, &own, std::path::Path::new(start::LINGERING)) {
        let run = started.paths.run.display();
        tracing::warn!(%run, "sessions end when you log out of this machine; `loginctl enable-linger` prevents that");
    }
    // No thread existed until here; from here on we are not root.
    runtime()?.block_on(async {
        let app = App::open(&config, environment, started, Clock::even(), options.start_empty).await?;
        app.run().await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    // The first provider stays; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}

fn helper(config: &str) -> ExitCode {
    match lyceum::helper::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lyceum helper: {}", error.sentence());
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_completions_and_a_manual_page() {
        Command::command().debug_assert();
        let folder = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(examples::add_to(Command::command()), folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("lyceum-job-submit.1")).unwrap();
        assert!(page.contains("EXAMPLES"), "{page}");
        for page in ["lyceum.1", "lyceum-job-submit.1", "lyceum-api.1", "lyceum-admin-user-add.1"] {
            assert!(folder.path().join(page).is_file(), "{page}");
        }
        assert!(!folder.path().join("lyceum-helper.1").exists(), "it is hidden");
        let mut text = Vec::new();
        clap_complete::generate(clap_complete::Shell::Bash, &mut Command::command(), "lyceum", &mut text);
        assert!(String::from_utf8(text).unwrap().contains("--timeout"));
    }
}
