//! The command-line client: `lyceum session …`, `lyceum job …`, `lyceum run …`, `lyceum gpu …`, `lyceum quota` and `lyceum usage`
//! over the REST API, for people in a shell and for scripts. It knows the API alone, none of the portal's own modules: where the portal
//! is and the token are handed in, results go to the writer that is handed in, and progress
//! and errors to standard error. `api` asks, `table` draws.

mod api;
mod gpus;
mod jobs;
mod log;
mod manage;
mod quota;
mod runs;
mod sweeps;
mod table;
mod usage;

use std::{io::Write, process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::model::{
    Clock, SessionState,
    size::parse_size,
    time::{human_duration, parse_duration},
};
pub use api::{Api, Error};
use api::{Result, SESSIONS, Session};
pub use gpus::GpuArguments;
pub use jobs::JobArguments;
pub use quota::QuotaArguments;
pub use runs::RunArguments;
pub use sweeps::SweepArguments;
pub use usage::UsageArguments;

/// How often `--wait` asks.
const ASK_EVERY: Duration = Duration::from_millis(700);
/// How long `--wait` goes on while nobody answers: a portal may be restarted meanwhile.
const PATIENCE: Duration = Duration::from_mins(1);

/// `lyceum session …`
#[derive(Args, Debug)]
pub struct SessionArguments {
    /// Print the API's JSON instead of tables and sentences
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: SessionCommand,
}

#[derive(Subcommand, Debug)]
pub enum SessionCommand {
    /// Start an app: jupyter, tensorboard, model, terminal, or one that your site added
    Start(Box<Start>),
    /// List your live sessions
    List(List),
    /// Give a running session more time, where quotas and those who wait allow it
    Extend {
        id: String,
        /// Such as 90m or 2h; as much as one extension adds where nothing is said
        #[arg(value_parser = duration)]
        time: Option<i64>,
    },
    /// Do not stop a session for idleness for a while
    Keep {
        id: String,
        /// Such as 90m or 2h; two hours where nothing is said
        #[arg(value_parser = duration)]
        time: Option<i64>,
    },
    /// Stop sessions
    Stop {
        #[arg(required_unless_present = "group", value_name = "ID")]
        ids: Vec<String>,
        /// All that the people of this group run and wait for, their jobs and sweeps too (operators)
        #[arg(long, conflicts_with = "ids")]
        group: Option<String>,
    },
    /// Print what a session wrote
    Log(log::LogArguments),
    /// Print the address at which a session opens in a browser
    Open { id: String },
}

#[derive(Args, Debug)]
pub struct Start {
    /// jupyter, tensorboard, model, terminal …
    pub app: String,
    #[command(flatten)]
    pub size: Size,
    /// Such as 90m, 2h or 1d
    #[arg(long, value_parser = duration)]
    pub duration: Option<i64>,
    /// What to call it
    #[arg(long)]
    pub name: Option<String>,
    /// Which of your groups it is charged to; the one that you chose last where nothing is said
    #[arg(long)]
    pub group: Option<String>,
    /// The software it runs in
    #[arg(long)]
    pub environment: Option<String>,
    /// An environment module to load; again for further ones
    #[arg(long = "module", value_name = "NAME")]
    pub modules: Vec<String>,
    /// Where it begins; your home directory by default
    #[arg(long)]
    pub working_directory: Option<String>,
    /// The folder of logs that tensorboard shows
    #[arg(long)]
    pub log_directory: Option<String>,
    /// Wait until it runs (or has ended)
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args, Debug)]
pub struct List {
    /// Also what has ended, newest first
    #[arg(long)]
    pub all: bool,
    /// Somebody else's, or * for everybody's (operators)
    #[arg(long)]
    pub owner: Option<String>,
}

impl List {
    /// What the portal is asked for besides.
    fn narrowed(&self) -> Vec<(&str, &str)> {
        self.owner.iter().map(|owner| ("owner", owner.as_str())).collect()
    }
}

/// Runs `lyceum session …` and says how the process should end: 0, or 1 after an error that was
/// printed, or 2 where the portal was never asked because something was not said.
///
/// `url` and `token` are what `LYCEUM_URL` and `LYCEUM_TOKEN` hold. The caller has installed
/// the process's TLS provider.
pub async fn session(
    arguments: SessionArguments,
    url: Option<&str>,
    token: Option<&str>,
    out: &mut (dyn Write + Send),
) -> ExitCode {
    ending(match Api::new(url, token) {
        Ok(api) => run(&api, arguments, out).await,
        Err(error) => Err(error),
    })
}

/// Runs `lyceum job …`, as [`session`].
pub async fn job(
    arguments: JobArguments,
    url: Option<&str>,
    token: Option<&str>,
    out: &mut (dyn Write + Send),
) -> ExitCode {
    ending(match Api::new(url, token) {
        Ok(api) => jobs::run(&api, arguments, out).await,
        Err(error) => Err(error),
    })
}

/// Runs `lyceum run …`, as [`session`].
pub async fn curves(
    arguments: RunArguments,
    url: Option<&str>,
    token: Option<&str>,
    out: &mut (dyn Write + Send),
) -> ExitCode {
    ending(match Api::new(url, token) {
        Ok(api) => runs::run(&api, arguments, out).await,
        Err(error) => Err(error),
    })
}

/// Runs `lyceum gpu …`, as [`session`].
pub async fn gpu(
    arguments: GpuArguments,
    url: Option<&str>,
    token: Option<&str>,
    out: &mut (dyn Write + Send),
) -> ExitCode {
    ending(match Api::new(url, token) {
        Ok(api) => gpus::run(&api, &arguments, out).await,
        Err(error) => Err(error),
    })
}

/// Runs `lyceum sweep …`, as [`session`].
pub async fn sweep(
    arguments: SweepArguments,
    url: Option<&str>,
    token: Option<&str>,
    out: &mut (dyn Write + Send),
) -> ExitCode {
    ending(match Api::new(url, token) {
        Ok(api) => sweeps::run(&api, arguments, out).await,
        Err(error) => Err(error),
    })
}

/// Runs `lyceum quota`, as [`session`].
pub async fn quota(
    arguments: QuotaArguments,
    url: Option<&str>,
    token: Option<&str>,
    out: &mut (dyn Write + Send),
) -> ExitCode {
    ending(match Api::new(url, token) {
        Ok(api) => quota::run(&api, &arguments, out).await,
        Err(error) => Err(error),
    })
}

/// Runs `lyceum usage …`, as [`session`].
pub async fn usage(
    arguments: UsageArguments,
    url: Option<&str>,
    token: Option<&str>,
    out: &mut (dyn Write + Send),
) -> ExitCode {
    ending(match Api::new(url, token) {
        Ok(api) => usage::run(&api, &arguments, out).await,
        Err(error) => Err(error),
    })
}

fn ending(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("lyceum: {error}"));
            ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

async fn run(api: &Api, arguments: SessionArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.json;
    match arguments.command {
        SessionCommand::Start(start) => {
            let mut session = api.post("/sessions", &body(&start)).await?;
            if start.wait {
                session = follow(api, session).await?;
            }
            show(out, json, &session, |session| table::sentence(session, Clock::System.now()))
        }
        SessionCommand::List(list) => {
            let items = if list.all {
                api.newest(SESSIONS, &list.narrowed()).await?
            } else {
                api.live(SESSIONS, &list.narrowed()).await?
            };
            if json {
                return line(out, &json!({ "items": items }).to_string());
            }
            let sessions: Vec<Session> = items.iter().map(Session::read).collect::<Result<_>>()?;
            Ok(write!(out, "{}", table::sessions(&sessions, Clock::System.now()))?)
        }
        SessionCommand::Extend { id, time } => prolong(api, "extend", &id, time, json, out).await,
        SessionCommand::Keep { id, time } => prolong(api, "keep", &id, time, json, out).await,
        SessionCommand::Stop { group: Some(group), .. } => stop_group(api, &group, json, out).await,
        SessionCommand::Stop { ids, .. } => {
            each(&ids, async |id| {
                let id = api.id(SESSIONS, id).await?;
                api.delete(&format!("/sessions/{id}")).await?;
                let session = api.get(&format!("/sessions/{id}"), &[]).await?;
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

/// Stops all that the people of a group run; an error where something of it could not be stopped.
async fn stop_group(api: &Api, group: &str, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    let name: String = url::form_urlencoded::byte_serialize(group.as_bytes()).collect();
    let told = api.post(&format!("/groups/{}/stop", name.replace('+', "%20")), &Value::Null).await?;
    let items = told["items"].as_array().cloned().unwrap_or_default();
    if json {
        line(out, &told.to_string())?;
    } else {
        for item in &items {
            line(out, &table::stopped(item))?;
        }
        if items.is_empty() {
            line(out, "nobody of this group runs anything or waits for it")?;
        }
    }
    match items.iter().filter(|item| item["stopped"] != true).count() {
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

/// How much a session or a job may use, by a name or in numbers.
#[derive(Args, Debug)]
pub struct Size {
    /// A named size
    #[arg(long, conflicts_with_all = ["gpus", "gpu_model", "cpus", "memory"])]
    pub profile: Option<String>,
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..))]
    pub gpus: Option<i64>,
    /// The model of GPU, as the cluster page spells it
    #[arg(long)]
    pub gpu_model: Option<String>,
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    pub cpus: Option<i64>,
    /// Such as 4GiB; every unit is a power of 1024
    #[arg(long, value_parser = size)]
    pub memory: Option<i64>,
}

impl Size {
    /// The numbers that were said, as the API's `resources`.
    fn resources(&self) -> Option<Value> {
        let said: Map<String, Value> = [
            ("gpus", self.gpus.map(Value::from)),
            ("gpu_model", self.gpu_model.clone().map(Value::from)),
            ("cpus", self.cpus.map(Value::from)),
            ("memory_bytes", self.memory.map(Value::from)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect();
        (!said.is_empty()).then_some(Value::Object(said))
    }
}

/// The request of `session start`: only what was said, the rest is the portal's to choose.
fn body(start: &Start) -> Value {
    let mut body = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        body.extend(value.map(|value| (key.to_owned(), value)));
    };
    put("app", Some(json!(start.app)));
    put("name", start.name.clone().map(Value::from));
    put("group", start.group.clone().map(Value::from));
    put("profile", start.size.profile.clone().map(Value::from));
    put("resources", start.size.resources());
    put("environment", start.environment.clone().map(Value::from));
    put("modules", (!start.modules.is_empty()).then(|| json!(start.modules)));
    put("working_directory", start.working_directory.clone().map(Value::from));
    put("duration_seconds", start.duration.map(Value::from));
    put("options", start.log_directory.as_ref().map(|folder| json!({ "log_directory": folder })));
    Value::Object(body)
}

/// Asks until the session runs; an end before that is an error. Each new sentence is told on
/// standard error.
async fn follow(api: &Api, mut latest: Value) -> Result<Value> {
    let mut told = String::new();
    let mut silent_since = None;
    loop {
        let session = Session::read(&latest)?;
        let sentence = table::sentence(&session, Clock::System.now());
        if sentence != told {
            tell(format_args!("{sentence}"));
            told = sentence;
        }
        match session.state {
            SessionState::Running => return Ok(latest),
            SessionState::Ended | SessionState::Stopping => return Err(Error::Ended(told)),
            SessionState::Queued | SessionState::Starting => {}
        }
        tokio::time::sleep(ASK_EVERY).await;
        match api.get(&format!("/sessions/{}", session.id), &[]).await {
            Ok(answer) => (latest, silent_since) = (answer, None),
            Err(error) if error.may_pass() => {
                let since = *silent_since.get_or_insert_with(|| Clock::System.now());
                let silent = Clock::System.now().seconds_since(since);
                if silent >= PATIENCE.as_secs().cast_signed() {
                    return Err(error);
                }
                tell(format_args!("no answer for {}: {error}", human_duration(silent)));
            }
            Err(error) => return Err(error),
        }
    }
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
                tell(format_args!("lyceum: {}: {error}", table::harmless(id)));
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(Error::Several { failed, of: ids.len() }) }
}

/// A line for the person; `eprintln!` would panic where nobody reads any more.
fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn show(out: &mut (dyn Write + Send), json: bool, value: &Value, say: impl Fn(&Session) -> String) -> Result<()> {
    if json { line(out, &value.to_string()) } else { line(out, &say(&Session::read(value)?)) }
}

fn line(out: &mut (dyn Write + Send), text: &str) -> Result<()> {
    Ok(writeln!(out, "{text}")?)
}

fn size(text: &str) -> std::result::Result<i64, String> {
    parse_size(text).filter(|bytes| *bytes > 0).ok_or_else(|| "not a size: write it as 512M, 4GiB or 1.5T".to_owned())
}

fn duration(text: &str) -> std::result::Result<i64, String> {
    parse_duration(text)
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| "not a length of time: write it as 90m, 8h or 2d".to_owned())
}

#[cfg(test)]
mod tests;
