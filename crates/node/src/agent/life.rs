//! The life of a workload from first to last: prepare the home, start the app, wait until it
//! answers, watch it, and, whatever ends it, leave no process behind. What comes out is the
//! exit record; nothing in here fails in any other way.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    time::timeout,
};

use super::{
    child::{Child, Exit, Reaper, Streams},
    gpus::{self, OpenGpuReader},
    home,
    inside::{self, Inside},
    limits::Watch,
    log::Log,
    log_directory, login_environment, login_shell, modules, node, own_program,
    probe::{self, Answer},
    record, script, server,
    signals::Signals,
    software,
    status::Status,
    streams::{self, Files},
    terminals::Terminals,
    tree::{self, Ended},
};
use lyceum_wire::protocol::{AgentLaunch, AppLaunch, ExitCause, ExitRecord, Phase, Program, ReadyProbe, files};

/// Homes are on file servers, which may hang.
const HOME_TIME: Duration = Duration::from_mins(2);

/// How long what a program wrote last may take to reach its files.
const FILES_TIME: Duration = Duration::from_mins(1);

/// Why the life is over.
enum End {
    Asked,
    OutOfMemory(String),
    App(Exit),
    /// The sentence; and how it ended, for an app that did so before its first answer.
    LaunchFailed(String, Option<Exit>),
}

/// What a life is made of.
#[derive(Clone, Copy)]
struct Parts<'a> {
    launch: &'a AgentLaunch,
    reaper: &'a Reaper,
    status: &'a Status,
    log: &'a Log,
    terminals: Option<&'a Terminals>,
    /// What was made for the logs of a job.
    logs: &'a OnceLock<log_directory::Made>,
}

/// Runs the workload until its end. Never returns while a process of it lives.
pub(super) async fn live(launch: &AgentLaunch, gpu_reader: OpenGpuReader) -> ExitRecord {
    // From here on no signal ends us but SIGTERM.
    let signals = Signals::listen();
    let mut launch = launch.clone();
    // Which shells an image has is seen when it is there.
    let another_shell = match launch.app.container {
        Some(_) => None,
        None => login_shell::settle(&mut launch.app).await,
    };
    let launch = &launch;
    let started = (|| {
        let log = Log::create(&launch.run_directory.join(files::LOG))?;
        Ok::<_, io::Error>((log, Reaper::start()?, signal(SignalKind::terminate())?, signals?))
    })();
    let (log, reaper, asked, mut signals) = match started {
        Ok(started) => started,
        Err(error) => {
            let directory = launch.run_directory.display();
            return record::now(ExitCause::LaunchFailed, format!("the run directory {directory} is unusable: {error}"));
        }
    };
    let status = Status::new();
    if let Some(note) = another_shell {
        log.note(&note);
        status.note(note);
    }
    let shell = match &launch.app.program {
        Program::Terminal(shell) => Some(shell),
        Program::Exec { .. } | Program::Script { .. } => launch.app.beside.as_ref(),
    };
    let terminals = shell.map(|shell| Terminals::new(launch.app.clone(), shell, &reaper, &status));
    if let Err(error) = server::start(launch, &status, terminals.clone(), &log) {
        return record::now(ExitCause::LaunchFailed, format!("the agent cannot listen in its run directory: {error}"));
    }
    if let Err(sentence) = node::start(launch).await {
        return record::now(ExitCause::LaunchFailed, sentence);
    }
    gpus::follow(launch, gpu_reader, &status);
    let mut output = None;
    let logs = OnceLock::new();
    let parts =
        Parts { launch, reaper: &reaper, status: &status, log: &log, terminals: terminals.as_ref(), logs: &logs };
    let end = until_end(&parts, &mut signals, asked, &mut output).await;
    status.enter(Phase::Ending, "ending all processes");
    if let Some(terminals) = &terminals {
        terminals.close_all();
    }
    let ended = tree::end(launch.session, Duration::from_secs(launch.grace_seconds), &reaper).await;
    if let Some(output) = output {
        // All writers are gone; what they wrote last is in the pipe.
        let streams = &launch.app.start.streams;
        let has_files = streams.output.is_some() || streams.error.is_some();
        let _ = timeout(if has_files { FILES_TIME } else { Duration::from_secs(2) }, output).await;
    }
    if let Some(made) = logs.get() {
        made.remove_empty();
    }
    if launch.app.container.is_some() || !launch.app.kernels.is_empty() {
        inside::clean(launch.session);
    }
    record(end, ended, launch, &log)
}

async fn until_end(
    parts: &Parts<'_>,
    signals: &mut Signals,
    mut asked: Signal,
    output: &mut Option<oneshot::Receiver<()>>,
) -> End {
    let Parts { launch, status, terminals, .. } = *parts;
    let watch = Watch::new(launch);
    // The kernel may have chosen something in a terminal. The app beside it goes on then, and how it ends decides.
    let is_shared = || terminals.is_some_and(Terminals::were_opened);
    tokio::select! {
        biased;
        _ = asked.recv() => End::Asked,
        sentence = watch.until_exceeded(status, || launch.app.beside.is_some() && is_shared()) => End::OutOfMemory(sentence),
        end = work(parts, signals, output) => match watch.out_of_memory() {
            Some(sentence) if !is_well(&end) || !is_shared() => {
                End::OutOfMemory(sentence)
            }
            _ => end,
        },
    }
}

fn is_well(end: &End) -> bool {
    matches!(end, End::App(Exit { code: Some(0), .. }))
}

async fn work(parts: &Parts<'_>, signals: &mut Signals, output: &mut Option<oneshot::Receiver<()>>) -> End {
    let Parts { launch, reaper, status, log, terminals, logs } = *parts;
    match prepare(launch, status, log).await {
        Ok(made) => _ = logs.set(made),
        Err(sentence) => return End::LaunchFailed(sentence, None),
    }
    if let Err(sentence) = enterable(&launch.app.working_directory) {
        return End::LaunchFailed(sentence, None);
    }
    if let Err(sentence) = software::prepare(launch, status, log, reaper).await {
        return End::LaunchFailed(sentence, None);
    }
    let (app, inside) = match surround(parts).await {
        Ok(surrounded) => surrounded,
        Err(sentence) => return End::LaunchFailed(sentence, None),
    };
    if let Some(terminals) = terminals {
        terminals.run_in(app.environment.clone(), inside.clone());
    }
    let argv = match &app.program {
        Program::Terminal(_) => {
            status.enter(Phase::Ready, "");
            return std::future::pending().await;
        }
        Program::Exec { argv } => Ok(argv.clone()),
        Program::Script { text } => script::lay_out(&launch.run_directory, text)
            .map(|argv| argv.into_iter().chain(app.start.arguments.iter().cloned()).collect())
            .map_err(|error| format!("the script could not be written into the run directory: {error}")),
    };
    let started = match argv {
        Ok(argv) => start(&app, inside.as_ref(), &argv, reaper, log).await,
        Err(sentence) => Err(sentence),
    };
    match started {
        Ok((app, written)) => {
            *output = Some(written);
            attend(launch, app, status, signals).await
        }
        Err(sentence) => End::LaunchFailed(sentence, None),
    }
}

/// The app in the environment that its login and its modules make, and the image that it runs in.
async fn surround(parts: &Parts<'_>) -> Result<(AppLaunch, Option<Inside>), String> {
    let Parts { launch, reaper, status, log, .. } = *parts;
    if let Some(container) = &launch.app.container {
        inside::check(launch, container)?;
        let inside = inside::enter(launch, container, status, log, reaper).await?;
        return Ok((launch.app.clone(), Some(inside)));
    }
    inside::offer_kernels(launch, status, log, reaper).await;
    let mut launch = launch.clone();
    if launch.app.start.login_shell {
        launch.app = login_environment::enter(&launch, status, log, reaper).await?;
    }
    let mut app = match &launch.home.modules {
        Some(modules) => modules::load(&launch, modules, status, log, reaper).await?,
        None => launch.app,
    };
    if let Ok(program) = fs::read_link("/proc/self/exe") {
        own_program::make_known(&mut app.environment, &program);
    }
    Ok((app, None))
}

async fn prepare(launch: &AgentLaunch, status: &Status, log: &Log) -> Result<log_directory::Made, String> {
    status.step("preparing the home directory");
    let (setup, session, notes) = (launch.home.clone(), launch.session, log.clone());
    let home = setup.home.display().to_string();
    let environment = launch.app.environment.clone();
    // A thread of its own, so that a hanging file server cannot keep us from hearing SIGTERM.
    let prepared = tokio::task::spawn_blocking(move || {
        home::prepare(&setup, session, &notes)?;
        Ok(log_directory::make(&environment))
    });
    match timeout(HOME_TIME, prepared).await {
        Ok(Ok(Ok(Ok(logs)))) => Ok(logs),
        // A program that writes nothing there can do without.
        Ok(Ok(Ok(Err(sentence)))) => {
            log.note(&sentence);
            status.note(sentence);
            Ok(log_directory::Made::default())
        }
        Ok(Ok(Err(sentence))) => Err(sentence),
        Ok(Err(_)) => Err(format!("the home directory {home} could not be prepared (internal error)")),
        Err(_) => {
            Err(format!("the home directory {home} does not respond: the file server may be down, try again later"))
        }
    }
}

async fn start(
    launch: &AppLaunch,
    inside: Option<&Inside>,
    argv: &[String],
    reaper: &Reaper,
    log: &Log,
) -> Result<(Child, oneshot::Receiver<()>), String> {
    let in_image = inside.map(|inside| inside.wrap(launch, argv)).transpose()?;
    let (as_started, argv) = in_image.as_ref().map_or((launch, argv), |(app, argv)| (app, argv));
    let program = argv.first().ok_or("the app has no command: ask your administrator")?;
    let Files { input, output, error, is_split } = streams::open(launch).await?;
    let spawned = io::pipe().and_then(|(reader, writer)| {
        let (of_errors, writer_of_errors) = if is_split {
            let (errors, into_errors) = io::pipe()?;
            (Some(errors), into_errors.into())
        } else {
            (None, writer.try_clone()?.into())
        };
        let streams = Streams::Split { input, output: writer.into(), error: writer_of_errors };
        Ok((reaper.spawn(as_started, argv, None, streams)?, reader, of_errors))
    });
    let (app, pipe, of_errors) = spawned.map_err(|error| format!("{program} could not be started: {error}"))?;
    let (done, written) = oneshot::channel();
    let pump = log.clone().pump_into(pipe.into(), output);
    let pump_errors = of_errors.map(|pipe| log.clone().pump_into(pipe.into(), error));
    tokio::spawn(async move {
        let errors = async {
            if let Some(pump) = pump_errors {
                pump.await;
            }
        };
        tokio::join!(pump, errors);
        drop(done);
    });
    let app = if inside.is_some_and(Inside::lets_go) { reaper.let_go(app).await } else { app };
    Ok((app, written))
}

fn enterable(directory: &Path) -> Result<(), String> {
    match rustix::fs::access(directory.join("."), rustix::fs::Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(error) => {
            let error = io::Error::from(error);
            Err(format!("the working directory {} cannot be accessed: {error}: choose another", directory.display()))
        }
    }
}

/// Waits for the app's first answer, then for its end.
async fn attend(launch: &AgentLaunch, mut app: Child, status: &Status, signals: &mut Signals) -> End {
    if let Some(probe) = &launch.app.ready {
        status.enter(Phase::Starting, "waiting for the app to respond");
        let socket = launch.run_directory.join(files::APP_SOCKET);
        tokio::select! {
            biased;
            exit = &mut app.exit => {
                let exit = known(exit);
                return End::LaunchFailed(ended_early(exit), Some(exit));
            }
            answer = probe::until_ready(probe, &socket) => if let Some(sentence) = unready(answer, probe) {
                return End::LaunchFailed(sentence, None);
            }
        }
        open_to_portal(&socket);
    }
    status.enter(Phase::Ready, "");
    if launch.app.ready.is_some() {
        return End::App(known(app.exit.await));
    }
    // What is sent to us is meant for a job's program.
    tokio::select! {
        biased;
        exit = &mut app.exit => End::App(known(exit)),
        never = signals.hand_on_to(app.pid) => match never {},
    }
}

/// The portal connects as the group of the run directory, and most programs leave what they
/// bind to the umask. It is the user's own socket in a directory that others cannot enter.
fn open_to_portal(socket: &Path) {
    if fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
        // Where this fails the proxy says that it may not connect.
        let _ = fs::set_permissions(socket, fs::Permissions::from_mode(0o660));
    }
}

fn ended_early(exit: Exit) -> String {
    let sentence = format!("the app ended before it responded ({})", tell(exit));
    match exit.code {
        Some(0) => format!("{sentence}; configure the program to stay in the foreground"),
        _ => sentence,
    }
}

/// Why it is not ready.
fn unready(answer: Answer, probe: &ReadyProbe) -> Option<String> {
    let seconds = probe.timeout_seconds;
    Some(match answer {
        Answer::Ready => return None,
        Answer::Late(None) => format!("the app did not respond within {seconds} seconds"),
        Answer::Late(Some(status)) => {
            format!("the app was not ready within {seconds} seconds: it returns status {status} for {}", probe.path)
        }
        Answer::Refused(status) => format!(
            "the app does not accept the token that the portal gave it (status {status}): one of your settings, for \
             example in ~/.jupyter, may define another token, password or login method; remove it and start again"
        ),
    })
}

/// The reaper always tells; without it nothing at all is known of the end.
fn known<E>(exit: Result<Exit, E>) -> Exit {
    exit.unwrap_or(Exit { code: None, signal: None })
}

fn record(end: End, ended: Ended, launch: &AgentLaunch, log: &Log) -> ExitRecord {
    let with_log = |sentence: String| match log.last_lines(3) {
        lines if lines.is_empty() => sentence,
        lines => format!("{sentence}: {lines}"),
    };
    // What answers nobody is a job's.
    let it = if launch.app.ready.is_some() { "the app" } else { "the program" };
    let (cause, detail, exit) = match end {
        End::Asked => (ExitCause::Asked, asked(ended, launch.grace_seconds), None),
        End::OutOfMemory(sentence) => (ExitCause::OutOfMemory, sentence, None),
        End::App(exit) if exit.code == Some(0) => (ExitCause::App, format!("{it} ended (exit code 0)"), Some(exit)),
        End::App(exit) => (ExitCause::App, with_log(format!("{it} ended ({})", tell(exit))), Some(exit)),
        End::LaunchFailed(sentence, exit) => (ExitCause::LaunchFailed, with_log(sentence), exit),
    };
    let Exit { code, signal } = exit.unwrap_or(Exit { code: None, signal: None });
    ExitRecord { exit_code: code, signal, ..record::now(cause, detail) }
}

fn asked(ended: Ended, grace: u64) -> String {
    match ended.killed {
        0 => "ended on request".to_owned(),
        1 => format!("ended on request; one process was still running after {grace} s and was killed"),
        killed => format!("ended on request; {killed} processes were still running after {grace} s and were killed"),
    }
}

fn tell(exit: Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => match nix::sys::signal::Signal::try_from(number) {
            Ok(name) => format!("signal {number}, {name}"),
            Err(_) => format!("signal {number}"),
        },
        (None, None) => "unknown exit status".to_owned(),
    }
}
