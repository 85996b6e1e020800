//! `lyceum job …`: submit, list, follow and cancel jobs from a shell, over the same API as the
//! pages. What a job says of itself is drawn by `table`.

use std::{io::Write, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use serde_json::{Map, Value, json};

use super::{
    List, Size,
    api::{Api, Error, JOBS, Job, Result},
    duration, line,
    log::{self, LogArguments},
    manage::{self, Change},
    table, tell,
};
use crate::model::{Clock, SessionState};

/// How often `--wait` asks.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// `lyceum job …`
#[derive(Args, Debug)]
pub struct JobArguments {
    /// Print the API's JSON instead of tables and sentences
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: JobCommand,
}

#[derive(Subcommand, Debug)]
pub enum JobCommand {
    /// Run a command or a script, also when nobody looks
    Submit(Box<Submit>),
    /// List your live jobs
    #[command(visible_alias = "ls")]
    List(JobList),
    /// Print what a job wrote
    Log {
        #[command(flatten)]
        log: LogArguments,
        /// Of which attempt; the latest where nothing is said
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        attempt: Option<u32>,
    },
    /// Print the address at which a terminal inside a running job opens in a browser
    Open { id: String },
    /// Hold your waiting jobs; what runs goes on
    Pause {
        /// Administrators: everybody's
        #[arg(long)]
        everybody: bool,
        /// Why, for those who wait
        #[arg(long, default_value = "")]
        note: String,
    },
    /// Let waiting jobs go on
    Unpause {
        #[arg(long)]
        everybody: bool,
    },
    /// End jobs and all their processes
    Cancel {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Say what is known of a job
    Show { id: String },
    /// Run ended jobs again, each as a new attempt with the same curve
    Resume {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Submit a job like another one, with what is said here instead, and say what differs
    Clone {
        id: String,
        #[command(flatten)]
        with: Box<Submit>,
    },
    /// Rename jobs, or change their notes, tags, star and who sees them
    Change(Change),
    /// Remove ended jobs, their logs and what is kept of their curves
    #[command(visible_alias = "rm")]
    Delete {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Args, Debug)]
pub struct Submit {
    #[command(flatten)]
    pub size: Size,
    /// Such as 90m, 2h or 1d; it is ended then
    #[arg(long, value_parser = duration)]
    pub time_limit: Option<i64>,
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
    /// Where it runs; your home directory by default
    #[arg(long)]
    pub working_directory: Option<String>,
    /// Where it puts event files and checkpoints
    #[arg(long)]
    pub log_directory: Option<String>,
    /// An environment variable, NAME=value; may be said several times
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// A file of this machine whose text is the script to run
    #[arg(long)]
    pub script: Option<PathBuf>,
    /// The script is one of Slurm's: its `#SBATCH` lines count, as for `sbatch`
    #[arg(long, requires = "script")]
    pub sbatch: bool,
    /// Start in the environment that your login shell makes, with its profile files read
    #[arg(long)]
    pub login_shell: bool,
    /// How often it is tried again when it fails
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=10))]
    pub retries: Option<i64>,
    /// How long after a failure it is tried again, such as 60s or 5m
    #[arg(long, value_parser = duration, requires = "retries")]
    pub retry_wait: Option<i64>,
    /// A job of yours that has to succeed first; any:ID has to end, failed:ID to fail; may be said several times
    #[arg(long, value_name = "ID")]
    pub after: Vec<String>,
    /// Many jobs, one for each number, such as 0-9 or 0-9%3; it finds its own in `LYCEUM_ARRAY_INDEX`
    #[arg(long)]
    pub array: Option<String>,
    /// Wait for its end, which is an error unless its exit code is 0
    #[arg(long)]
    pub wait: bool,
    /// The program and its arguments, behind `--`; with `--script` the arguments of the script
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// Which jobs are listed.
#[derive(Args, Debug)]
pub struct JobList {
    #[command(flatten)]
    list: List,
    /// In this state alone, ended ones included
    #[arg(long, value_parser = PossibleValuesParser::new(SessionState::ALL.iter().map(|state| state.as_str())))]
    state: Option<String>,
    /// With this tag
    #[arg(long)]
    tag: Option<String>,
    /// Charged to this group
    #[arg(long)]
    group: Option<String>,
    /// With a star
    #[arg(long)]
    star: bool,
    /// With this in its name
    #[arg(long, value_name = "PART")]
    search: Option<String>,
}

impl JobList {
    /// What the portal is asked for besides.
    fn narrowed(&self) -> Vec<(&str, &str)> {
        let star = self.star.then_some("true");
        let asked = [("tag", self.tag.as_deref()), ("group", self.group.as_deref()), ("starred", star)];
        let asked = asked.into_iter().chain([("state", self.state.as_deref()), ("search", self.search.as_deref())]);
        self.list.narrowed().into_iter().chain(asked.filter_map(|(key, value)| Some((key, value?)))).collect()
    }
}

pub(super) async fn run(api: &Api, arguments: JobArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.json;
    match arguments.command {
        JobCommand::Submit(submit) => {
            if submit.command.is_empty() && submit.script.is_none() {
                return Err(Error::Usage("say what to run: `-- COMMAND`, or `--script FILE`".to_owned()));
            }
            let asked = request(api, &submit).await?;
            let mut job = api.post("/jobs", &asked).await?;
            if submit.wait {
                job = wait(api, job).await?;
            }
            show(out, json, &job)
        }
        JobCommand::List(list) => {
            let narrowed = list.narrowed();
            let items = if list.list.all || list.state.is_some() {
                api.newest(JOBS, &narrowed).await?
            } else {
                api.live(JOBS, &narrowed).await?
            };
            if json {
                return line(out, &json!({ "items": items }).to_string());
            }
            let jobs: Vec<Job> = items.iter().map(Job::read).collect::<Result<_>>()?;
            Ok(write!(out, "{}", table::jobs(&jobs, Clock::System.now()))?)
        }
        JobCommand::Log { log, attempt } => log::run(api, JOBS, &log, attempt, json, out).await,
        JobCommand::Pause { everybody, note } => {
            let asked = json!({ "everybody": everybody, "note": note });
            queue(out, json, &api.post("/jobs/queue/pause", &asked).await?)
        }
        JobCommand::Unpause { everybody } => {
            queue(out, json, &api.post("/jobs/queue/resume", &json!({ "everybody": everybody })).await?)
        }
        JobCommand::Cancel { ids } => manage::each(api, &ids, "cancel", json, out).await,
        JobCommand::Open { id } => manage::open(api, &id, json, out).await,
        JobCommand::Show { id } => manage::tell(api, &id, json, out).await,
        JobCommand::Resume { ids } => manage::each(api, &ids, "resume", json, out).await,
        JobCommand::Clone { id, with } => manage::copy(api, &id, &with, json, out).await,
        JobCommand::Change(change) => manage::change(api, &change, json, out).await,
        JobCommand::Delete { ids } => manage::delete(api, &ids, json, out).await,
    }
}

/// The whole request of `job submit` and `job clone`.
pub(super) async fn request(api: &Api, submit: &Submit) -> Result<Value> {
    let mut asked = body(submit)?;
    if !submit.after.is_empty() {
        asked["after"] = after(api, &submit.after).await?;
    }
    if let Some(array) = &submit.array {
        asked["array"] = json!(array);
    }
    Ok(asked)
}

/// The request of `job submit`: only what was said, the rest is the portal's to choose.
pub(super) fn body(submit: &Submit) -> Result<Value> {
    let mut body = Map::new();
    let mut put = |key: &str, value: Option<Value>| body.extend(value.map(|value| (key.to_owned(), value)));
    let mut variables = Map::new();
    for variable in &submit.variables {
        let Some((name, value)) = variable.split_once('=') else {
            return Err(Error::Usage(format!("`{variable}` is no NAME=value")));
        };
        variables.insert(name.to_owned(), json!(value));
    }
    let script = submit.script.as_ref().map(|path| {
        std::fs::read_to_string(path)
            .map_err(|error| Error::Usage(format!("{} cannot be read as a script: {error}", path.display())))
    });
    put("script", script.transpose()?.map(Value::from));
    let words = (!submit.command.is_empty()).then(|| json!(submit.command));
    put(if submit.script.is_some() { "arguments" } else { "command" }, words);
    put("sbatch", submit.sbatch.then_some(Value::Bool(true)));
    put("login_shell", submit.login_shell.then_some(Value::Bool(true)));
    put("name", submit.name.clone().map(Value::from));
    put("group", submit.group.clone().map(Value::from));
    put("profile", submit.size.profile.clone().map(Value::from));
    put("resources", submit.size.resources());
    put("environment", submit.environment.clone().map(Value::from));
    put("modules", (!submit.modules.is_empty()).then(|| json!(submit.modules)));
    put("working_directory", submit.working_directory.clone().map(Value::from));
    put("log_directory", submit.log_directory.clone().map(Value::from));
    put("time_limit_seconds", submit.time_limit.map(Value::from));
    put("retries", submit.retries.map(Value::from));
    put("retry_wait_seconds", submit.retry_wait.map(Value::from));
    put("variables", (!variables.is_empty()).then_some(Value::Object(variables)));
    Ok(Value::Object(body))
}

/// Who holds the queue now.
fn queue(out: &mut (dyn Write + Send), json: bool, view: &Value) -> Result<()> {
    if json {
        return line(out, &view.to_string());
    }
    line(
        out,
        match (view["everybody"].is_null(), view["own"].is_null()) {
            (true, true) => "nobody holds your waiting jobs",
            (true, false) => "your waiting jobs are held",
            (false, _) => "everybody's waiting jobs are held",
        },
    )
}

/// `ID`, `any:ID` and `failed:ID` as the API's list; the beginning of an id will do.
async fn after(api: &Api, named: &[String]) -> Result<Value> {
    let mut after = Vec::new();
    for text in named {
        let (needs, id) = text.split_once(':').unwrap_or(("ok", text));
        if !["ok", "any", "failed"].contains(&needs) {
            return Err(Error::Usage(format!("`{text}`: say ID, any:ID or failed:ID")));
        }
        after.push(json!({ "job": api.id(JOBS, id).await?, "needs": needs }));
    }
    Ok(Value::Array(after))
}

/// Asks until the job has ended; an end that is no success is an error.
pub(super) async fn wait(api: &Api, mut latest: Value) -> Result<Value> {
    let mut told = String::new();
    loop {
        let job = Job::read(&latest)?;
        let sentence = table::job(&job, Clock::System.now());
        if sentence != told {
            tell(format_args!("{sentence}"));
            told.clone_from(&sentence);
        }
        if job.state == SessionState::Ended {
            return if job.exit_code == Some(0) { Ok(latest) } else { Err(Error::Ended(sentence)) };
        }
        tokio::time::sleep(ASK_EVERY).await;
        match api.get(&format!("/jobs/{}", job.id), &[]).await {
            Ok(answer) => latest = answer,
            // A portal that is restarted has not ended the job.
            Err(error) if error.may_pass() => tell(format_args!("no answer: {error}")),
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn show(out: &mut (dyn Write + Send), json: bool, value: &Value) -> Result<()> {
    let text = if json { value.to_string() } else { table::job(&Job::read(value)?, Clock::System.now()) };
    line(out, &text)
}
