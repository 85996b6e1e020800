//! The command-line client: `lyceum session …`, `lyceum job …` and the others of [`Command`] over the REST API, for
//! people in a shell and for scripts. It knows the API alone, none of the portal's own modules: where the portal is and
//! the token are handed in, results go to the writer that is handed in, and progress and errors to standard error.
//! `api` asks, `table` draws, `output` converts, `wait` waits.

mod api;
mod audit;
mod contexts;
mod datasets;
mod diagnose;
mod events;
mod files;
mod gpus;
mod images;
mod jobs;
mod log;
mod manage;
mod models;
mod nodes;
mod offboard;
mod output;
mod presets;
mod quota;
mod raw;
mod resources;
mod runs;
mod selection;
mod site;
mod storage;
mod sweeps;
mod table;
mod tokens;
mod usage;
mod version;
mod wait;

use std::{
    io::{Read, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

pub use api::{Api, Error};
use api::{Collection, Result, SESSIONS, Session};
pub use audit::AuditArguments;
pub use contexts::{Connection, ContextArguments, LoginArguments};
pub use datasets::DatasetCommand;
pub use events::EventsArguments;
pub use files::FilesArguments;
pub use gpus::GpuArguments;
pub use images::ImageArguments;
pub use jobs::JobArguments;
use lyceum_model::{Clock, SessionState, time::parse_duration};
pub use models::ModelArguments;
pub use nodes::NodeArguments;
pub use offboard::OffboardArguments;
pub use output::{Columns, Format, Output};
pub use presets::PresetArguments;
pub use quota::QuotaArguments;
pub use raw::ApiArguments;
pub use resources::{Size, SlurmChoice};
pub use runs::RunArguments;
use selection::{STOPPABLE, Selected, SessionTargets, select};
pub use site::{ApplyArguments, DiffArguments, ExportArguments};
pub use storage::StorageArguments;
pub use sweeps::SweepArguments;
pub use tokens::TokenArguments;
pub use usage::UsageArguments;

/// How often `--wait` asks.
const POLL_INTERVAL: Duration = Duration::from_millis(700);

/// `lyceum session …`
#[derive(Args, Debug)]
pub struct SessionArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: SessionCommand,
}

#[derive(Subcommand, Debug)]
pub enum SessionCommand {
    /// Start an app: jupyter, tensorboard, model, terminal, or an app of your site
    Start(Box<Start>),
    /// List your live sessions
    List(List),
    /// Extend a running session, if quotas and pending requests allow it
    Extend {
        /// The id, its beginning or its end, or the name
        id: String,
        /// Such as 90m or 2h; by default the length of one extension
        #[arg(value_parser = duration)]
        time: Option<i64>,
    },
    /// Exempt a session from the idle timeout for a time
    Keep {
        /// The id, its beginning or its end, or the name
        id: String,
        /// Such as 90m or 2h; by default two hours
        #[arg(value_parser = duration)]
        time: Option<i64>,
    },
    /// Stop sessions
    Stop(SessionTargets),
    /// Print the log of a session
    Log(log::LogArguments),
    /// Print the address of a session, for a browser
    Open {
        /// The id, its beginning or its end, or the name
        id: String,
    },
    /// Wait until sessions run, or with --ended until they have ended
    Wait {
        /// The ids, their beginnings or their ends, or names
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Wait for the end
        #[arg(long)]
        ended: bool,
        #[command(flatten)]
        limit: wait::Limit,
    },
}

#[derive(Args, Debug)]
pub struct Start {
    /// jupyter, tensorboard, model, terminal …; may be omitted with a preset that names one
    #[arg(required_unless_present = "preset")]
    pub app: Option<String>,
    /// A preset, by name or id, which gives what is omitted here
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    #[command(flatten)]
    pub size: Size,
    #[command(flatten)]
    pub slurm: SlurmChoice,
    /// The duration, such as 90m, 2h or 1d
    #[arg(long, value_parser = duration)]
    pub duration: Option<i64>,
    /// The name
    #[arg(long)]
    pub name: Option<String>,
    /// The group that it is charged to; by default the one that you used last
    #[arg(long)]
    pub group: Option<String>,
    /// The software environment
    #[arg(long)]
    pub environment: Option<String>,
    /// The container image to run in, instead of an environment
    #[arg(long, conflicts_with = "environment")]
    pub image: Option<String>,
    /// An environment module to load; can be repeated
    #[arg(long = "module", value_name = "NAME")]
    pub modules: Vec<String>,
    /// The working directory; by default your home directory
    #[arg(long)]
    pub working_directory: Option<String>,
    /// The log directory that tensorboard shows
    #[arg(long)]
    pub log_directory: Option<String>,
    /// Wait until it runs (or has ended)
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub limit: wait::Limit,
}

#[derive(Args, Debug)]
pub struct List {
    /// Include ended ones, newest first
    #[arg(long)]
    pub all: bool,
    /// Those of another user, or * for all users (operators)
    #[arg(long)]
    pub owner: Option<String>,
    #[command(flatten)]
    pub columns: Columns,
}

impl List {
    /// What the portal is asked for besides.
    fn narrowed(&self) -> Vec<(&str, &str)> {
        self.owner.iter().map(|owner| ("owner", owner.as_str())).collect()
    }
}

/// The commands that ask a portal.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start, list and stop sessions
    #[command(visible_alias = "sessions")]
    Session(SessionArguments),
    /// Submit, list, follow, change, clone, resume, cancel and delete jobs
    #[command(visible_alias = "jobs")]
    Job(JobArguments),
    /// List, add, show, print and remove runs
    #[command(visible_alias = "runs")]
    Run(RunArguments),
    /// Copy and list your files on the portal's machine
    #[command(visible_alias = "file")]
    Files(FilesArguments),
    /// List, show, wait for and delete models
    #[command(visible_alias = "models")]
    Model(ModelArguments),
    /// What `lyceum dataset` asks a portal for; the program adds it to what it does on this machine.
    #[command(skip)]
    Dataset(DatasetCommand),
    /// Submit, list, follow, wait for, pause, stop and delete sweeps
    #[command(visible_alias = "sweeps")]
    Sweep(SweepArguments),
    /// List, show and delete presets: saved requests for sessions and jobs
    #[command(visible_alias = "presets")]
    Preset(PresetArguments),
    /// List the GPUs and their use
    #[command(visible_alias = "gpus")]
    Gpu(GpuArguments),
    /// List, drain and resume nodes
    #[command(visible_alias = "nodes")]
    Node(NodeArguments),
    /// Test the storage of folders and datasets
    Storage(StorageArguments),
    /// List, show, add, pull and remove container images
    #[command(visible_alias = "images")]
    Image(ImageArguments),
    /// Show your limits, where they come from and your current usage
    Quota(QuotaArguments),
    /// Show the usage of GPUs and cores
    Usage(UsageArguments),
    /// List, create, rotate and revoke your API tokens
    #[command(visible_alias = "tokens")]
    Token(TokenArguments),
    /// Print the audit log (administrators)
    Audit(AuditArguments),
    /// Print or follow the events of the portal (administrators)
    Events(EventsArguments),
    /// Apply a file that declares users, groups, members, limits and announcements
    Apply(ApplyArguments),
    /// Show what `lyceum apply` would change
    Diff(DiffArguments),
    /// Print users, groups, members, limits and announcements as a file for `lyceum apply`
    Export(ExportArguments),
    /// End a user's access and work, and give what they made to another user
    Offboard(OffboardArguments),
    /// Send one request to the API, such as `lyceum api GET /me`
    Api(ApiArguments),
    /// Sign in to a portal with a token from standard input, and use it from now on
    Login(LoginArguments),
    /// List, select and remove the portals that you signed in to
    Context(ContextArguments),
}

impl Command {
    /// How results are printed, and in which columns where the command lists something.
    fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match self {
            Self::Session(SessionArguments { output, command }) => match command {
                SessionCommand::List(list) => (output, Some(&list.columns)),
                _ => (output, None),
            },
            Self::Job(arguments) => arguments.parts(),
            Self::Run(arguments) => arguments.parts(),
            Self::Sweep(arguments) => arguments.parts(),
            Self::Model(ModelArguments { output, command }) => match command {
                models::ModelCommand::List(columns) => (output, Some(columns)),
                _ => (output, None),
            },
            Self::Dataset(command) => command.parts(),
            Self::Files(arguments) => arguments.parts(),
            Self::Preset(arguments) => arguments.parts(),
            Self::Gpu(arguments) => arguments.parts(),
            Self::Node(arguments) => arguments.parts(),
            Self::Image(arguments) => arguments.parts(),
            Self::Usage(UsageArguments { output, columns, .. }) => (output, Some(columns)),
            Self::Context(arguments) => arguments.parts(),
            Self::Token(arguments) => arguments.parts(),
            Self::Quota(QuotaArguments { output })
            | Self::Storage(StorageArguments { output, .. })
            | Self::Apply(ApplyArguments { output, .. })
            | Self::Diff(DiffArguments { output, .. })
            | Self::Export(ExportArguments { output })
            | Self::Audit(AuditArguments { output, .. })
            | Self::Events(EventsArguments { output, .. })
            | Self::Offboard(OffboardArguments { output, .. })
            | Self::Api(ApiArguments { output, .. })
            | Self::Login(LoginArguments { output, .. }) => (output, None),
        }
    }
}

/// Runs a command and returns the status to exit with, as docs/api.md lists them. Errors are printed.
///
/// The caller has installed the process's TLS provider.
pub async fn run(
    mut command: Command,
    connection: &Connection,
    input: &mut (dyn Read + Send),
    out: &mut (dyn Write + Send),
) -> ExitCode {
    // These two do not ask the portal of the current context.
    let context = match &mut command {
        Command::Login(_) | Command::Context(_) => None,
        other => Some(other.parts().0.context.clone()),
    };
    let result = execute(command, connection, input, out).await;
    let advice = match (&result, context) {
        (Err(error), Some(context)) => version::advice(connection, context.as_deref(), error).await,
        _ => None,
    };
    let status = ending(result);
    if let Some(advice) = advice {
        print_status(format_args!("lyceum: {advice}"));
    }
    status
}

async fn execute(
    mut command: Command,
    connection: &Connection,
    input: &mut (dyn Read + Send),
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let (output, columns) = command.parts();
    let mut out = output.writer(columns, out)?;
    let result = ask(command, connection, input, &mut out).await;
    let written = out.finish();
    match (result, written) {
        // That it could not be written has a reason.
        (Err(Error::Output(_)) | Ok(()), Err(error)) => Err(error),
        (result, _) => result,
    }
}

async fn ask(
    mut command: Command,
    connection: &Connection,
    input: &mut (dyn Read + Send),
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let (output, _) = command.parts();
    let (json, context) = (output.is_json(), output.context.clone());
    let open = || connection.open(context.as_deref());
    match command {
        Command::Session(arguments) => run_session(&open()?, arguments, out).await,
        Command::Job(arguments) => jobs::run(&open()?, arguments, out).await,
        Command::Run(arguments) => runs::run(&open()?, arguments, out).await,
        Command::Model(arguments) => models::run(&open()?, arguments, out).await,
        Command::Dataset(command) => datasets::run(&open()?, command, json, out).await,
        Command::Files(arguments) => files::run(&open()?, arguments, out).await,
        Command::Sweep(arguments) => sweeps::run(&open()?, arguments, out).await,
        Command::Preset(arguments) => presets::run(&open()?, arguments, out).await,
        Command::Gpu(arguments) => gpus::run(&open()?, &arguments, out).await,
        Command::Node(arguments) => nodes::run(&open()?, arguments, out).await,
        Command::Storage(arguments) => storage::run(&open()?, &arguments, out).await,
        Command::Image(arguments) => images::run(&open()?, arguments, out).await,
        Command::Quota(arguments) => quota::run(&open()?, &arguments, out).await,
        Command::Usage(arguments) => usage::run(&open()?, &arguments, out).await,
        Command::Audit(arguments) => audit::run(&open()?, &arguments, out).await,
        Command::Events(arguments) => events::run(&open()?, &arguments, out).await,
        Command::Apply(arguments) => site::apply(&open()?, &arguments, input, out).await,
        Command::Diff(arguments) => site::diff(&open()?, &arguments, input, out).await,
        Command::Export(arguments) => site::export(&open()?, &arguments, out).await,
        Command::Offboard(arguments) => offboard::run(&open()?, &arguments, out).await,
        Command::Api(arguments) => raw::run(&open()?, &arguments, input, out).await,
        Command::Login(arguments) => contexts::login(connection, &arguments, input, out).await,
        Command::Context(arguments) => contexts::manage(connection, &arguments, out),
        Command::Token(arguments) => tokens::run(connection, arguments, out).await,
    }
}

fn ending(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            print_status(format_args!("lyceum: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

async fn run_session(api: &Api, arguments: SessionArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    match arguments.command {
        SessionCommand::Start(start) => {
            let mut session = api.post("/sessions", &body(&start)).await?;
            if start.wait {
                let waited = wait::session(api, session, false, start.limit).await;
                session = wait::shown(waited, json, out)?;
            }
            show(out, json, &session, |session| table::sentence(session, Clock::System.now()))
        }
        SessionCommand::List(list) => {
            let items = if list.all {
                api.newest(SESSIONS, &list.narrowed()).await?
            } else {
                api.live(SESSIONS, &list.narrowed()).await?
            };
            show_sessions(&items, json, out)
        }
        SessionCommand::Extend { id, time } => prolong(api, "extend", &id, time, json, out).await,
        SessionCommand::Keep { id, time } => prolong(api, "keep", &id, time, json, out).await,
        SessionCommand::Stop(SessionTargets { group: Some(group), targets, .. }) => {
            stop_group(api, &group, targets.dry_run, json, out).await
        }
        SessionCommand::Stop(targets) => {
            let ids = match select(api, SESSIONS, &targets, STOPPABLE, json).await? {
                Selected::Act(ids) => ids,
                Selected::List(items) => return show_sessions(&items, json, out),
            };
            each(&ids, async |id| {
                let id = api.id(SESSIONS, id).await?;
                api.delete(&format!("/sessions/{id}")).await?;
                let session = api.get(&format!("/sessions/{id}"), &[]).await?;
                show(out, json, &session, |session| table::sentence(session, Clock::System.now()))
            })
            .await
        }
        SessionCommand::Wait { ids, ended, limit } => {
            each(&ids, async |id| {
                let id = api.id(SESSIONS, id).await?;
                let session = api.get(&format!("/sessions/{id}"), &[]).await?;
                let session = wait::shown(wait::session(api, session, ended, limit).await, json, out)?;
                show(out, json, &session, |session| table::sentence(session, Clock::System.now()))
            })
            .await
        }
        SessionCommand::Log(asked) => log::run(api, SESSIONS, &asked, None, json, out).await,
        SessionCommand::Open { id } => {
            let id = api.id(SESSIONS, &id).await?;
            let value = api.get(&format!("/sessions/{id}"), &[]).await?;
            let session = Session::read(&value)?;
            if session.state == SessionState::Ended {
                return Err(Error::Ended(table::sentence(&session, Clock::System.now())));
            }
            let address = api.absolute(&session.open_url)?;
            if json { line(out, &json!({ "id": id, "open_url": address }).to_string()) } else { line(out, &address) }
        }
    }
}

fn show_sessions(items: &[Value], json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    if json {
        return line(out, &json!({ "items": items }).to_string());
    }
    let sessions: Vec<Session> = items.iter().map(Session::read).collect::<Result<_>>()?;
    Ok(write!(out, "{}", table::sessions(&sessions, Clock::System.now()))?)
}

/// Stops all that the people of a group run, or lists it; an error where something of it could not be stopped.
async fn stop_group(api: &Api, group: &str, dry_run: bool, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    let name: String = url::form_urlencoded::byte_serialize(group.as_bytes()).collect();
    let query = if dry_run { "?dry_run=true" } else { "" };
    let answer = api.post(&format!("/groups/{}/stop{query}", name.replace('+', "%20")), &Value::Null).await?;
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    if json {
        line(out, &answer.to_string())?;
    } else {
        for item in &items {
            line(out, &table::stopped(item, dry_run))?;
        }
        if items.is_empty() {
            line(out, "no member of this group has anything running or pending")?;
        }
    }
    match items.iter().filter(|item| !dry_run && item["stopped"] != true).count() {
        0 => Ok(()),
        failed => Err(Error::Several { failed, of: items.len() }),
    }
}

/// `extend` and `keep`: by so many seconds, or as long as the portal thinks right.
async fn prolong(
    api: &Api,
    deed: &str,
    id: &str,
    seconds: Option<i64>,
    json: bool,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let id = api.id(SESSIONS, id).await?;
    let asked = seconds.map_or_else(|| json!({}), |seconds| json!({ "seconds": seconds }));
    let session = api.post(&format!("/sessions/{id}/{deed}"), &asked).await?;
    show(out, json, &session, |session| table::sentence(session, Clock::System.now()))
}

/// The request of `session start`: only what was said, the rest is the portal's to choose.
fn body(start: &Start) -> Value {
    let mut body = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        body.extend(value.map(|value| (key.to_owned(), value)));
    };
    put("app", start.app.clone().map(Value::from));
    put("preset", start.preset.clone().map(Value::from));
    put("name", start.name.clone().map(Value::from));
    put("group", start.group.clone().map(Value::from));
    put("profile", start.size.profile.clone().map(Value::from));
    put("resources", start.size.resources());
    put("slurm", start.slurm.options());
    put("environment", start.environment.clone().map(Value::from));
    put("image", start.image.clone().map(Value::from));
    put("modules", (!start.modules.is_empty()).then(|| json!(start.modules)));
    put("working_directory", start.working_directory.clone().map(Value::from));
    put("duration_seconds", start.duration.map(Value::from));
    put("options", start.log_directory.as_ref().map(|folder| json!({ "log_directory": folder })));
    Value::Object(body)
}

/// Does something to each of several; one that fails is reported, and the others are done nevertheless.
async fn each(ids: &[String], mut deed: impl AsyncFnMut(&str) -> Result<()>) -> Result<()> {
    if let [only] = ids {
        return deed(only).await;
    }
    let mut failed = 0;
    for id in ids {
        match deed(id).await {
            Ok(()) => {}
            Err(error @ Error::Output(_)) => return Err(error),
            Err(error) => {
                failed += 1;
                print_status(format_args!("lyceum: {}: {error}", table::harmless(id)));
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(Error::Several { failed, of: ids.len() }) }
}

/// Deletes each of several.
async fn delete(
    api: &Api,
    of: Collection,
    ids: &[String],
    query: &str,
    json: bool,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    each(ids, async |id| {
        let id = api.id(of, id).await?;
        api.delete(&format!("{}/{id}{query}", of.path())).await?;
        line(out, &if json { json!({ "id": id, "deleted": true }).to_string() } else { format!("{id} was deleted") })
    })
    .await
}

/// Prints the items of an answer in rows, or a sentence where there are none.
fn show_items(
    answer: &Value,
    shown: &[(&str, &str)],
    none: &str,
    json: bool,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    match answer["items"].as_array() {
        _ if json => line(out, &answer.to_string()),
        Some(items) if !items.is_empty() => Ok(write!(out, "{}", table::items(items, shown))?),
        _ => line(out, none),
    }
}

/// Prints the state of a dataset or a model in a line.
fn show_state(item: &Value, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    line(out, &if json { item.to_string() } else { table::state_line(item) })
}

/// A line for the person; `eprintln!` would panic where nobody reads any more.
fn print_status(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn show(out: &mut (dyn Write + Send), json: bool, value: &Value, say: impl Fn(&Session) -> String) -> Result<()> {
    if json { line(out, &value.to_string()) } else { line(out, &say(&Session::read(value)?)) }
}

fn line(out: &mut (dyn Write + Send), text: &str) -> Result<()> {
    Ok(writeln!(out, "{text}")?)
}

fn duration(text: &str) -> std::result::Result<i64, String> {
    parse_duration(text)
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| "not a duration; use a value like 90m, 8h or 2d".to_owned())
}

#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests;
