//! `lyceum job …`: submit, list, follow and cancel jobs from a shell, over the same API as the
//! pages. What a job says of itself is drawn by `table`.

use std::{io::Write, path::PathBuf};

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use serde_json::{Map, Value, json};

use super::{
    List, Size, SlurmChoice,
    api::{Api, Error, JOBS, Job, Result},
    duration, files, line,
    log::{self, LogArguments},
    manage::{self, Change},
    output::{Columns, Output},
    selection::{JobTargets, STOPPABLE, Selected, select},
    table,
    wait::{self, Limit, WaitArguments},
};
use lyceum_model::{Clock, SessionState};

/// `lyceum job …`
#[derive(Args, Debug)]
pub struct JobArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: JobCommand,
}

#[derive(Subcommand, Debug)]
pub enum JobCommand {
    /// Submit a command or a script as a job
    Submit(Box<Submit>),
    /// List your live jobs
    #[command(visible_alias = "ls")]
    List(JobList),
    /// Print the log of a job
    Log {
        #[command(flatten)]
        log: LogArguments,
        /// The attempt; by default the latest
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        attempt: Option<u32>,
    },
    /// Print the address of a terminal in a running job, for a browser
    Open {
        /// The id, its beginning or its end, or the name
        id: String,
    },
    /// Hold your pending jobs; running jobs continue
    Pause {
        /// The pending jobs of all users (administrators)
        #[arg(long)]
        everybody: bool,
        /// The reason, shown to the owners of the jobs
        #[arg(long, default_value = "")]
        note: String,
    },
    /// Release pending jobs
    Unpause {
        #[arg(long)]
        everybody: bool,
    },
    /// Cancel jobs and end all their processes
    Cancel(JobTargets),
    /// Show the details of a job
    Show {
        /// The id, its beginning or its end, or the name
        id: String,
    },
    /// Resume ended jobs, each as a new attempt that continues its curves
    Resume {
        /// Ids, their beginnings or their ends, or names
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Submit a copy of a job with the given changes, and list the differences
    Clone {
        /// The id, its beginning or its end, or the name
        id: String,
        #[command(flatten)]
        with: Box<Submit>,
    },
    /// List the files that a job of yours has written into its log directory, or copy them to this machine
    Artifacts {
        /// The id, its beginning or its end, or the name
        id: String,
        /// Copy them into this folder of this machine, which is created if needed
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
    },
    /// Wait until jobs have ended, and exit with the exit code of the program
    Wait(WaitArguments),
    /// Change the name, notes, tags, star or visibility of jobs
    Change(Change),
    /// Delete ended jobs, their logs and their stored curves
    #[command(visible_alias = "rm")]
    Delete(JobTargets),
}

#[derive(Args, Debug)]
pub struct Submit {
    #[command(flatten)]
    pub size: Size,
    #[command(flatten)]
    pub slurm: SlurmChoice,
    /// The time limit, such as 90m, 2h or 1d
    #[arg(long, value_parser = duration)]
    pub time_limit: Option<i64>,
    /// A preset, by name or id, which gives what is omitted here
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
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
    #[command(flatten)]
    pub code: files::code::CodeArguments,
    /// The directory for event files and checkpoints
    #[arg(long)]
    pub log_directory: Option<String>,
    /// An environment variable, NAME=value; can be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// A local file with the script to run
    #[arg(long)]
    pub script: Option<PathBuf>,
    /// Whether the `#SBATCH` lines of the script apply, as with `sbatch`. Default on a Slurm cluster: if it has any
    #[arg(long, requires = "script", value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    pub sbatch: Option<bool>,
    /// Run in the environment of your login shell, after its profile files are read
    #[arg(long)]
    pub login_shell: bool,
    /// The maximum number of retries after a failure
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..=10))]
    pub retries: Option<i64>,
    /// The delay before a retry, such as 60s or 5m
    #[arg(long, value_parser = duration, requires = "retries")]
    pub retry_wait: Option<i64>,
    /// A job of yours that must succeed first; any:ID must end, failed:ID must fail; can be repeated
    #[arg(long, value_name = "ID")]
    pub after: Vec<String>,
    /// Submit an array, one job for each number, such as 0-9 or 0-9%3; the number is in `LYCEUM_ARRAY_INDEX`
    #[arg(long)]
    pub array: Option<String>,
    /// A tag; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Notes, in Markdown
    #[arg(long)]
    pub notes: Option<String>,
    /// Wait until it ends, and exit with its exit code
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub limit: Limit,
    /// The program and its arguments, after `--`; with `--script` the arguments of the script
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// Which jobs are listed.
#[derive(Args, Debug)]
pub struct JobList {
    #[command(flatten)]
    list: List,
    /// Only jobs in this state, including ended ones
    #[arg(long, value_parser = PossibleValuesParser::new(SessionState::ALL.iter().map(|state| state.as_str())))]
    state: Option<String>,
    /// Only jobs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only jobs charged to this group
    #[arg(long)]
    group: Option<String>,
    /// Only starred jobs
    #[arg(long)]
    star: bool,
    /// Also helper jobs, which the portal submits for you, such as builds of datasets
    #[arg(long)]
    helpers: bool,
    /// Only jobs whose name contains this
    #[arg(long, value_name = "PART")]
    search: Option<String>,
}

impl JobArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            JobCommand::List(list) => (&mut self.output, Some(&list.list.columns)),
            _ => (&mut self.output, None),
        }
    }
}

impl JobList {
    /// What the portal is asked for besides.
    fn narrowed(&self) -> Vec<(&str, &str)> {
        let star = self.star.then_some("true");
        let helpers = self.helpers.then_some("true");
        let asked = [("tag", self.tag.as_deref()), ("group", self.group.as_deref()), ("starred", star)];
        let asked = asked.into_iter().chain([("helpers", helpers)]);
        let asked = asked.chain([("state", self.state.as_deref()), ("search", self.search.as_deref())]);
        self.list.narrowed().into_iter().chain(asked.filter_map(|(key, value)| Some((key, value?)))).collect()
    }
}

pub(super) async fn run(api: &Api, arguments: JobArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    match arguments.command {
        JobCommand::Submit(submit) => {
            if submit.command.is_empty() && submit.script.is_none() && submit.preset.is_none() {
                return Err(Error::Usage("nothing to run: use `-- COMMAND` or `--script FILE`".to_owned()));
            }
            let asked = request(api, &submit).await?;
            let mut job = files::code::submit(api, "/jobs", asked, &submit).await?;
            if submit.wait {
                job = wait::shown(wait::job(api, job, submit.limit).await, json, out)?;
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
            show_all(&items, json, out)
        }
        JobCommand::Log { log, attempt } => log::run(api, JOBS, &log, attempt, json, out).await,
        JobCommand::Pause { everybody, note } => {
            let asked = json!({ "everybody": everybody, "note": note });
            queue(out, json, &api.post("/jobs/queue/pause", &asked).await?)
        }
        JobCommand::Unpause { everybody } => {
            queue(out, json, &api.post("/jobs/queue/resume", &json!({ "everybody": everybody })).await?)
        }
        JobCommand::Cancel(targets) => match select(api, JOBS, &targets, STOPPABLE, json).await? {
            Selected::Act(ids) => manage::each(api, &ids, "cancel", json, out).await,
            Selected::List(items) => show_all(&items, json, out),
        },
        JobCommand::Artifacts { id, to } => files::artifacts::run(api, &id, to.as_deref(), json, out).await,
        JobCommand::Open { id } => manage::open(api, &id, json, out).await,
        JobCommand::Wait(WaitArguments { ids, log, limit }) => {
            super::each(&ids, async |id| {
                let waited = wait::with_log(api, JOBS, id, log.then_some(&mut *out), limit).await;
                let ended = wait::shown(waited, json, out)?;
                show(out, json, &ended)
            })
            .await
        }
        JobCommand::Show { id } => manage::print_session(api, &id, json, out).await,
        JobCommand::Resume { ids } => manage::each(api, &ids, "resume", json, out).await,
        JobCommand::Clone { id, with } => manage::copy(api, &id, &with, json, out).await,
        JobCommand::Change(change) => manage::change(api, &change, json, out).await,
        JobCommand::Delete(targets) => match select(api, JOBS, &targets, &["ended"], json).await? {
            Selected::Act(ids) => super::delete(api, JOBS, &ids, "", json, out).await,
            Selected::List(items) => show_all(&items, json, out),
        },
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
            return Err(Error::Usage(format!("`{variable}` is not of the form NAME=value")));
        };
        variables.insert(name.to_owned(), json!(value));
    }
    let script = submit.script.as_ref().map(|path| {
        std::fs::read_to_string(path)
            .map_err(|error| Error::Usage(format!("{} cannot be read as a script: {error}", path.display())))
    });
    put("preset", submit.preset.clone().map(Value::from));
    put("script", script.transpose()?.map(Value::from));
    let words = (!submit.command.is_empty()).then(|| json!(submit.command));
    put(if submit.script.is_some() { "arguments" } else { "command" }, words);
    put("sbatch", submit.sbatch.map(Value::Bool));
    put("login_shell", submit.login_shell.then_some(Value::Bool(true)));
    put("name", submit.name.clone().map(Value::from));
    put("group", submit.group.clone().map(Value::from));
    put("profile", submit.size.profile.clone().map(Value::from));
    put("resources", submit.size.resources());
    put("slurm", submit.slurm.options());
    put("environment", submit.environment.clone().map(Value::from));
    put("image", submit.image.clone().map(Value::from));
    put("modules", (!submit.modules.is_empty()).then(|| json!(submit.modules)));
    put("working_directory", submit.working_directory.clone().map(Value::from));
    put("log_directory", submit.log_directory.clone().map(Value::from));
    put("time_limit_seconds", submit.time_limit.map(Value::from));
    put("retries", submit.retries.map(Value::from));
    put("retry_wait_seconds", submit.retry_wait.map(Value::from));
    put("tags", (!submit.tags.is_empty()).then(|| json!(submit.tags)));
    put("notes", submit.notes.clone().map(Value::from));
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
            (true, true) => "your pending jobs are not held",
            (true, false) => "your pending jobs are held",
            (false, _) => "the pending jobs of all users are held",
        },
    )
}

/// `ID`, `any:ID` and `failed:ID` as the API's list; the beginning of an id will do.
async fn after(api: &Api, named: &[String]) -> Result<Value> {
    let mut after = Vec::new();
    for text in named {
        let (needs, id) = text.split_once(':').unwrap_or(("ok", text));
        if !["ok", "any", "failed"].contains(&needs) {
            return Err(Error::Usage(format!("`{text}` is not of the form ID, any:ID or failed:ID")));
        }
        after.push(json!({ "job": api.id(JOBS, id).await?, "needs": needs }));
    }
    Ok(Value::Array(after))
}

fn show_all(items: &[Value], json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    if json {
        return line(out, &json!({ "items": items }).to_string());
    }
    let jobs: Vec<Job> = items.iter().map(Job::read).collect::<Result<_>>()?;
    Ok(write!(out, "{}", table::jobs(&jobs, Clock::System.now()))?)
}

pub(super) fn show(out: &mut (dyn Write + Send), json: bool, value: &Value) -> Result<()> {
    let text = if json { value.to_string() } else { table::job(&Job::read(value)?, Clock::System.now()) };
    line(out, &text)
}
