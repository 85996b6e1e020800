//! The `lyceum` command: which subcommand was asked for, and one call each.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use lyceum::{
    admin,
    app::App,
    check, client,
    config::{Config, Environment},
    datasets, demo, inherited,
    model::Clock,
    start, telemetry,
};

/// The web portal of a deep-learning machine room.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: Serve,
    #[command(flatten)]
    place: Place,
}

/// Where things are, for every subcommand.
#[derive(clap::Args, Clone, Default)]
struct Place {
    /// The configuration file; else $LYCEUM_CONFIG, else /etc/lyceum/lyceum.toml if it exists.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory; else $LYCEUM_DATA, else /var/lib/lyceum (root) or the XDG data directory.
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(clap::Args, Default)]
struct Serve {
    /// Where to listen; else the configuration's, else 127.0.0.1:8000.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Begin with an empty database where the one of an earlier start is gone.
    #[arg(long)]
    begin_anew: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve the portal (the default).
    Serve(Serve),
    /// Say what is wrong with this installation and how to mend it.
    Check {
        /// Rehearse a start as this user.
        #[arg(long = "as", value_name = "USER")]
        as_user: Option<String>,
        /// Print one JSON document instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Manage users, tokens, quotas and backups, on the database directly.
    Admin {
        #[command(subcommand)]
        verb: admin::Verb,
    },
    /// Start, list and stop sessions over the portal's API ($LYCEUM_URL, $LYCEUM_TOKEN).
    Session(client::SessionArguments),
    /// Submit, list, follow, change, clone, resume, cancel and delete jobs over the portal's API ($LYCEUM_URL, $LYCEUM_TOKEN).
    #[command(alias = "jobs")]
    Job(client::JobArguments),
    /// List, add, show, print and forget runs over the portal's API ($LYCEUM_URL, $LYCEUM_TOKEN).
    #[command(alias = "runs")]
    Run(client::RunArguments),
    /// Submit, list, follow, pause and stop sweeps over the portal's API ($LYCEUM_URL, $LYCEUM_TOKEN).
    Sweep(client::SweepArguments),
    /// List the GPUs and what they do, over the portal's API ($LYCEUM_URL, $LYCEUM_TOKEN).
    #[command(alias = "gpus")]
    Gpu(client::GpuArguments),
    /// Say what you may use, where it comes from and what you use now, over the portal's API.
    Quota(client::QuotaArguments),
    /// Say what was used of GPUs and cores, over the portal's API ($LYCEUM_URL, $LYCEUM_TOKEN).
    Usage(client::UsageArguments),
    /// Make a dataset of a folder, a list or an archive of pictures.
    Dataset {
        #[command(subcommand)]
        verb: DatasetVerb,
    },
    /// Train nothing and write the curves of it: a program to try Lyceum with.
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
    Files,
    /// Becomes a user and turns into a command of the batch system, for the helper.
    #[command(hide = true)]
    Batch,
    /// One of a user's own verbs, by a rule of sudo's.
    #[command(hide = true)]
    AsUser { verb: Option<String> },
    /// Inside a workload; `agent files` looks after a user's files.
    #[command(hide = true)]
    Agent,
    /// The last step before an app.
    #[command(hide = true)]
    Exec {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

#[derive(Subcommand)]
enum DatasetVerb {
    /// Build the dataset that a JSON file describes (docs/datasets.md). Killed, it goes on when started again.
    Build {
        /// Left out: the text of the variable `DATASET_SPEC`.
        spec: Option<PathBuf>,
        /// Else as many as there are cores to use.
        #[arg(long, value_name = "N")]
        threads: Option<usize>,
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
                _ => lyceum::agent::run(arguments, std::env::vars_os()),
            };
        }
        Some("exec") => return lyceum::agent::exec(arguments),
        Some("become") => return lyceum::helper::trampoline::run(),
        Some("errand") => return lyceum::helper::errand::run(),
        Some("rehearse") => return check::rehearse(arguments.next().as_deref().and_then(std::ffi::OsStr::to_str)),
        Some("files") => return lyceum::helper::files::run(),
        Some("batch") => return lyceum::helper::batch::run(),
        Some("as-user") => {
            return lyceum::helper::way::run(arguments.next().as_deref().and_then(std::ffi::OsStr::to_str));
        }
        Some("helper") => return helper(&arguments.next().unwrap_or_default().to_string_lossy()),
        _ => {}
    }
    match run(Command::parse()) {
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
        Verb::Session(arguments) => {
            let (url, token) = (environment.find("LYCEUM_URL"), environment.find("LYCEUM_TOKEN"));
            Ok(runtime()?.block_on(client::session(arguments, url, token, &mut io::stdout())))
        }
        Verb::Job(arguments) => {
            let (url, token) = (environment.find("LYCEUM_URL"), environment.find("LYCEUM_TOKEN"));
            Ok(runtime()?.block_on(client::job(arguments, url, token, &mut io::stdout())))
        }
        Verb::Run(arguments) => {
            let (url, token) = (environment.find("LYCEUM_URL"), environment.find("LYCEUM_TOKEN"));
            Ok(runtime()?.block_on(client::curves(arguments, url, token, &mut io::stdout())))
        }
        Verb::Sweep(arguments) => {
            let (url, token) = (environment.find("LYCEUM_URL"), environment.find("LYCEUM_TOKEN"));
            Ok(runtime()?.block_on(client::sweep(arguments, url, token, &mut io::stdout())))
        }
        Verb::Gpu(arguments) => {
            let (url, token) = (environment.find("LYCEUM_URL"), environment.find("LYCEUM_TOKEN"));
            Ok(runtime()?.block_on(client::gpu(arguments, url, token, &mut io::stdout())))
        }
        Verb::Quota(arguments) => {
            let (url, token) = (environment.find("LYCEUM_URL"), environment.find("LYCEUM_TOKEN"));
            Ok(runtime()?.block_on(client::quota(arguments, url, token, &mut io::stdout())))
        }
        Verb::Usage(arguments) => {
            let (url, token) = (environment.find("LYCEUM_URL"), environment.find("LYCEUM_TOKEN"));
            Ok(runtime()?.block_on(client::usage(arguments, url, token, &mut io::stdout())))
        }
        Verb::Dataset { verb: DatasetVerb::Build { spec, threads } } => {
            use datasets::build::command::{Given, VARIABLE, run};
            let text = || environment.find(VARIABLE).with_context(|| format!("name a file, or set {VARIABLE}"));
            let given = match spec {
                Some(file) => Given::File(file),
                None => Given::Text(text()?.to_owned()),
            };
            run(&given, threads, &mut io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::DemoTrain(arguments) => {
            demo::run(&arguments, environment.find("LYCEUM_LOG_DIRECTORY").map(str::to_owned), &mut io::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Helper { .. }
        | Verb::Become
        | Verb::Errand
        | Verb::Files
        | Verb::Batch
        | Verb::AsUser { .. }
        | Verb::Rehearse { .. }
        | Verb::Agent
        | Verb::Exec { .. } => Ok(ExitCode::FAILURE),
    }
}

fn serve(place: &Place, options: &Serve, environment: &Environment) -> Result<ExitCode> {
    inherited::accept_signals();
    telemetry::start(environment.find("LYCEUM_LOG"), environment.find("LYCEUM_LOG_FORMAT"));
    let (threshold, executed) = (start::memory::MMAP_THRESHOLD, start::memory::EXECUTED);
    if !start::memory::is_settled(environment.find(threshold), environment.find(executed), std::process::id()) {
        let error = start::memory::fix_mmap_threshold(std::env::args_os());
        tracing::warn!(%error, "freed memory may stay with the portal");
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
        tracing::warn!(%run, "sessions end when you sign out of this machine; `loginctl enable-linger` prevents that");
    }
    // No thread existed until here; from here on we are not root.
    runtime()?.block_on(async {
        let app = App::open(&config, environment, started, Clock::even(), options.begin_anew).await?;
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
