//! `lyceum sweep …`: many jobs from one plan, from a shell, over the same API as the pages.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    api::{Api, Error, Result, SWEEPS},
    files,
    jobs::{Submit, body},
    line,
    output::{Columns, Output},
    selection::{Selected, SweepTargets, select},
    table,
    wait::{self, Limit},
};

/// `lyceum sweep …`
#[derive(Args, Debug)]
pub struct SweepArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: SweepCommand,
}

#[derive(Subcommand, Debug)]
pub enum SweepCommand {
    /// Submit a command or script many times with different parameters
    Submit(Box<SubmitSweep>),
    /// List your sweeps
    #[command(visible_alias = "ls")]
    List(SweepList),
    /// Show the tasks of a sweep and the best task
    Show {
        /// The id, its beginning or its end, or the name
        id: String,
    },
    /// Wait until sweeps have ended; exit with 1 if a task did not succeed
    Wait {
        /// The ids, their beginnings or their ends, or names
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Start no more tasks; running tasks continue
    Pause {
        /// Ids, their beginnings or their ends, or names
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Resume a paused sweep
    Resume {
        /// Ids, their beginnings or their ends, or names
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Cancel the running tasks of sweeps, and start no more tasks
    Stop(SweepTargets),
    /// Delete ended sweeps; their jobs are kept
    #[command(visible_alias = "rm")]
    Delete(SweepTargets),
}

/// Which sweeps are listed.
#[derive(Args, Debug)]
pub struct SweepList {
    /// Sweeps of another user, or * for all users (operators)
    #[arg(long)]
    owner: Option<String>,
    #[command(flatten)]
    columns: Columns,
}

impl SweepArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            SweepCommand::List(list) => (&mut self.output, Some(&list.columns)),
            _ => (&mut self.output, None),
        }
    }
}

#[derive(Args, Debug)]
pub struct SubmitSweep {
    /// A parameter, such as lr=0.1,0.01 or, with --trials, lr="1e-4..1e-1 log"; can be repeated
    #[arg(long = "param", value_name = "NAME=VALUES")]
    pub parameters: Vec<String>,
    /// The number of random combinations to run, instead of all
    #[arg(long)]
    pub trials: Option<i64>,
    /// The seed of the random combinations
    #[arg(long)]
    pub seed: Option<i64>,
    /// The number of repetitions of each combination
    #[arg(long)]
    pub repeat: Option<i64>,
    /// The maximum number of tasks that run or are pending at the same time
    #[arg(long)]
    pub parallel: Option<i64>,
    /// The metric to compare tasks by, min:TAG or max:TAG
    #[arg(long, value_name = "GOAL:TAG")]
    pub metric: Option<String>,
    /// From this step on, end tasks that are worse than the median of the others
    #[arg(long, requires = "metric")]
    pub stop_after_step: Option<i64>,
    /// Show what would be submitted, without submitting it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub job: Submit,
}

/// A sweep as the API shows it, as far as a shell needs.
#[derive(Debug, Deserialize)]
pub(super) struct Sweep {
    pub id: String,
    pub name: String,
    pub state: String,
    pub tasks: i64,
    pub released: i64,
    #[serde(default)]
    pub detail: Option<String>,
    #[serde(default)]
    pub metric: Option<Metric>,
    #[serde(default)]
    pub best: Option<Task>,
    #[serde(default)]
    pub items: Option<Vec<Task>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Metric {
    pub tag: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Task {
    pub index: i64,
    pub repeat: i64,
    pub parameters: std::collections::BTreeMap<String, String>,
    pub state: String,
    pub job: Option<String>,
    pub best: Option<f64>,
}

pub(super) async fn run(api: &Api, arguments: SweepArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    let (ids, deed) = match arguments.command {
        SweepCommand::Submit(submit) => {
            let asked = request(&submit)?;
            if submit.dry_run {
                files::code::rehearse(&submit.job.code)?;
                let preview = api.post("/sweeps/preview", &asked).await?;
                let text = if json { preview.to_string() } else { preview_line(&preview) };
                return line(out, &text);
            }
            let mut sweep = files::code::submit(api, "/sweeps", asked, &submit.job).await?;
            if submit.job.wait {
                sweep = wait::shown(wait::sweep(api, sweep, submit.job.limit).await, json, out)?;
            }
            return show(out, json, &whole(api, sweep).await?);
        }
        SweepCommand::List(list) => {
            let owner: Vec<(&str, &str)> = list.owner.iter().map(|owner| ("owner", owner.as_str())).collect();
            return show_all(&api.newest(SWEEPS, &owner).await?, json, out);
        }
        SweepCommand::Wait { ids, limit } => {
            return super::each(&ids, async |id| {
                let id = api.id(SWEEPS, id).await?;
                let latest = api.get(&format!("/sweeps/{id}"), &[]).await?;
                let sweep = wait::shown(wait::sweep(api, latest, limit).await, json, out)?;
                show(out, json, &whole(api, sweep).await?)
            })
            .await;
        }
        SweepCommand::Delete(targets) => {
            return match select(api, SWEEPS, &targets, &["ended"], json).await? {
                Selected::Act(ids) => super::delete(api, SWEEPS, &ids, "", json, out).await,
                Selected::List(items) => show_all(&items, json, out),
            };
        }
        SweepCommand::Show { id } => {
            let id = api.id(SWEEPS, &id).await?;
            let sweep = api.all(&format!("/sweeps/{id}"), &[]).await?;
            return show(out, json, &sweep);
        }
        SweepCommand::Pause { ids } => (ids, "pause"),
        SweepCommand::Resume { ids } => (ids, "resume"),
        SweepCommand::Stop(targets) => match select(api, SWEEPS, &targets, &["running", "paused"], json).await? {
            Selected::Act(ids) => (ids, "stop"),
            Selected::List(items) => return show_all(&items, json, out),
        },
    };
    super::each(&ids, async |id| {
        let id = api.id(SWEEPS, id).await?;
        show(out, json, &api.post(&format!("/sweeps/{id}/{deed}"), &Value::Null).await?)
    })
    .await
}

/// A sweep with all its tasks, where an answer has a part of them.
async fn whole(api: &Api, sweep: Value) -> Result<Value> {
    match sweep["id"].as_str().filter(|_| sweep["next_cursor"].is_string()) {
        Some(id) => api.all(&format!("/sweeps/{id}"), &[]).await,
        None => Ok(sweep),
    }
}

fn show_all(items: &[Value], json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    if json {
        return line(out, &json!({ "items": items }).to_string());
    }
    let sweeps: Vec<Sweep> = items.iter().map(read).collect::<Result<_>>()?;
    Ok(write!(out, "{}", table::sweeps(&sweeps))?)
}

fn request(submit: &SubmitSweep) -> Result<Value> {
    if !submit.job.after.is_empty() {
        return Err(Error::Usage("--after can only be used for single jobs".to_owned()));
    }
    let mut asked = Map::new();
    let mut put = |key: &str, value: Option<Value>| asked.extend(value.map(|value| (key.to_owned(), value)));
    let mut parameters = Map::new();
    for parameter in &submit.parameters {
        let Some((name, values)) = parameter.split_once('=') else {
            return Err(Error::Usage(format!("`{parameter}` is not of the form NAME=VALUES")));
        };
        parameters.insert(name.trim().to_owned(), json!(values.trim()));
    }
    put("job", Some(body(&submit.job)?));
    put("array", submit.job.array.clone().map(Value::from));
    put("parameters", (!parameters.is_empty()).then_some(Value::Object(parameters)));
    put("trials", submit.trials.map(Value::from));
    put("seed", submit.seed.map(Value::from));
    put("repeat", submit.repeat.map(Value::from));
    put("parallel", submit.parallel.map(Value::from));
    if let Some(metric) = &submit.metric {
        let Some((goal @ ("min" | "max"), tag)) = metric.split_once(':') else {
            return Err(Error::Usage(format!("`{metric}` is not of the form min:TAG or max:TAG")));
        };
        put("metric", Some(json!({ "tag": tag, "goal": goal, "stop_after_step": submit.stop_after_step })));
    }
    Ok(Value::Object(asked))
}

fn preview_line(preview: &Value) -> String {
    let number = |key: &str| preview[key].as_f64().unwrap_or_default();
    let left = |key: &str| preview[key].as_f64().map(|left| format!(" of {left:.1} left")).unwrap_or_default();
    format!(
        "{} tasks, {} at a time: at most {:.1}{} GPU-hours and {:.1}{} core-hours",
        preview["tasks"],
        preview["parallel"],
        number("gpu_hours"),
        left("gpu_hours_left"),
        number("cpu_hours"),
        left("cpu_hours_left")
    )
}

fn read(value: &Value) -> Result<Sweep> {
    serde_json::from_value(value.clone()).map_err(|error| Error::Strange(error.to_string()))
}

fn show(out: &mut (dyn Write + Send), json: bool, value: &Value) -> Result<()> {
    if json {
        return line(out, &value.to_string());
    }
    Ok(write!(out, "{}", table::sweep(&read(value)?))?)
}
