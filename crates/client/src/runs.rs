//! `lyceum run …`: curves from a shell, over the same API as the pages: which runs there are, what each metric
//! came to, a curve in a few points, every point as CSV, and the table of results.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{
    List,
    api::{Api, Error, JOBS, RUNS, Result},
    line,
    output::{Columns, Output},
    table::{self, columns, harmless, id_length, short, word},
};

/// `lyceum run …`
#[derive(Args, Debug)]
pub struct RunArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: RunCommand,
}

#[derive(Subcommand, Debug)]
pub enum RunCommand {
    /// List the runs that you can see, newest first
    #[command(visible_alias = "ls")]
    List(RunList),
    /// Add a directory of logs as a run; its curves are stored as they grow
    Add {
        /// A directory on the portal's machine; ~/logs/first is below your home
        directory: String,
        #[arg(long)]
        name: Option<String>,
    },
    /// Show the results of each metric of a run or job
    Show {
        /// The id of a run or job, its beginning or its end
        id: String,
    },
    /// Print one curve, reduced to a few points, as JSON
    Curve(Curve),
    /// Print every point of one curve as CSV
    Csv {
        id: String,
        tag: String,
        /// The directory within the run
        #[arg(long)]
        run: Option<String>,
    },
    /// Print the table of runs with their hyperparameters and metrics
    Results {
        /// A filter, such as "lr < 0.01 and optimizer = adam"
        #[arg(long = "where", value_name = "EXPRESSION")]
        filter: Option<String>,
        /// The column to sort by: a hyperparameter, a metric such as val/loss, name or created; with - before it in
        /// descending order; can be given twice
        #[arg(long, allow_hyphen_values = true)]
        sort: Vec<String>,
        /// Also runs of helper jobs, which the portal submits for you, such as predictions
        #[arg(long)]
        helpers: bool,
        #[command(flatten)]
        columns: Columns,
    },
    /// Change the name or visibility of a run
    Change {
        id: String,
        #[arg(long)]
        name: Option<String>,
        /// Who can see it: private, group or everybody
        #[arg(long)]
        visibility: Option<String>,
        /// The group, if the visibility is group
        #[arg(long)]
        group: Option<String>,
    },
    /// Remove runs and their stored curves; their files are kept
    Forget {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Args, Debug)]
pub struct RunList {
    #[command(flatten)]
    list: List,
    /// Also runs of helper jobs, which the portal submits for you, such as predictions
    #[arg(long)]
    helpers: bool,
}

#[derive(Args, Debug)]
pub struct Curve {
    /// The id of a run or job
    pub id: String,
    pub tag: String,
    /// The directory within the run
    #[arg(long)]
    pub run: Option<String>,
    #[arg(long, default_value_t = 100)]
    pub points: u32,
    /// The x-axis: step, relative, wall, or metric with --by
    #[arg(long)]
    pub x: Option<String>,
    /// The tag of the curve whose values are used as x-axis
    #[arg(long, requires = "x")]
    pub by: Option<String>,
    /// Distribute the points for a logarithmic axis of steps or relative times
    #[arg(long)]
    pub log: bool,
    #[arg(long, allow_hyphen_values = true)]
    pub from: Option<f64>,
    #[arg(long, allow_hyphen_values = true)]
    pub to: Option<f64>,
    #[arg(long)]
    pub smoothing: Option<f64>,
}

impl RunArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            RunCommand::List(RunList { list: List { columns, .. }, .. }) | RunCommand::Results { columns, .. } => {
                (&mut self.output, Some(columns))
            }
            _ => (&mut self.output, None),
        }
    }
}

pub(super) async fn run(api: &Api, arguments: RunArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    let tabular = arguments.output.is_tabular();
    match arguments.command {
        RunCommand::List(RunList { list, helpers }) => {
            let asked: Vec<_> = list.narrowed().into_iter().chain(helpers.then_some(("helpers", "true"))).collect();
            let items = api.newest(RUNS, &asked).await?;
            if json {
                return line(out, &json!({ "items": items }).to_string());
            }
            Ok(write!(out, "{}", table::runs(&items))?)
        }
        RunCommand::Add { directory, name } => {
            let asked = json!({ "directory": directory, "name": name });
            show(out, json, &api.post("/runs", &asked).await?)
        }
        RunCommand::Show { id } => {
            let id = find(api, &id).await?;
            let metrics = api.get(&format!("/runs/{id}/metrics"), &[]).await?;
            if json { line(out, &metrics.to_string()) } else { Ok(write!(out, "{}", table::metrics(&metrics))?) }
        }
        RunCommand::Curve(curve) => {
            let id = find(api, &curve.id).await?;
            line(out, &api.get(&address(&id, &curve.tag), &borrowed(&parameters(&curve))).await?.to_string())
        }
        RunCommand::Csv { id, tag, run } => {
            let id = find(api, &id).await?;
            let mut query = vec![("format", "csv")];
            query.extend(run.as_deref().map(|run| ("run", run)));
            Ok(write!(out, "{}", api.text(&address(&id, &tag), &query).await?)?)
        }
        RunCommand::Results { filter, sort, helpers, .. } => {
            let mut query: Vec<(&str, &str)> = filter.as_deref().map(|filter| ("where", filter)).into_iter().collect();
            query.extend(sort.iter().map(|key| ("sort", key.as_str())));
            query.extend(helpers.then_some(("helpers", "true")));
            let results = api.get("/results", &query).await?;
            if tabular {
                return line(out, &json!({ "items": result_rows(&results) }).to_string());
            }
            if json { line(out, &results.to_string()) } else { Ok(write!(out, "{}", results_table(&results))?) }
        }
        RunCommand::Change { id, name, visibility, group } => {
            let given = [("name", name), ("visibility", visibility), ("group", group)];
            let body: Map<String, Value> =
                given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))).collect();
            if body.is_empty() {
                return Err(Error::Usage("nothing to change: use --name or --visibility".to_owned()));
            }
            let id = api.id(RUNS, &id).await?;
            show(out, json, &api.patch(&format!("/runs/{id}"), &Value::Object(body)).await?)
        }
        RunCommand::Forget { ids } => {
            super::each(&ids, async |id| {
                let id = api.id(RUNS, id).await?;
                api.delete(&format!("/runs/{id}")).await?;
                let told = json!({ "id": id, "forgotten": true }).to_string();
                line(out, &if json { told } else { format!("{id} was removed") })
            })
            .await
        }
    }
}

/// The id of a run, or of the run of a job; the beginning of either will do.
async fn find(api: &Api, text: &str) -> Result<String> {
    let of_run = api.id(RUNS, text).await;
    if let Ok(id) = &of_run
        && api.get(&format!("/runs/{id}"), &[]).await.is_ok()
    {
        return of_run;
    }
    let Ok(job) = api.id(JOBS, text).await else { return of_run };
    let run = api.get(&format!("/jobs/{job}/run"), &[]).await?;
    run["id"].as_str().map(str::to_owned).ok_or_else(|| Error::Strange("a run without an id".to_owned()))
}

/// Tags may hold slashes and anything else.
fn address(id: &str, tag: &str) -> String {
    let tag: String = url::form_urlencoded::byte_serialize(tag.as_bytes()).collect();
    format!("/runs/{id}/metrics/{}", tag.replace('+', "%20"))
}

fn parameters(curve: &Curve) -> Vec<(&'static str, String)> {
    let given = [
        ("points", Some(curve.points.to_string())),
        ("run", curve.run.clone()),
        ("x", curve.x.clone()),
        ("by", curve.by.clone()),
        ("log", curve.log.then(|| "true".to_owned())),
        ("from", curve.from.map(|from| from.to_string())),
        ("to", curve.to.map(|to| to.to_string())),
        ("smoothing", curve.smoothing.map(|weight| weight.to_string())),
    ];
    given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn borrowed<'a>(parameters: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    parameters.iter().map(|(key, value)| (*key, value.as_str())).collect()
}

fn show(out: &mut (dyn Write + Send), json: bool, run: &Value) -> Result<()> {
    if json { line(out, &run.to_string()) } else { Ok(write!(out, "{}", table::runs(std::slice::from_ref(run)))?) }
}

/// Runs as rows, with the columns that the portal shows of them.
fn results_table(results: &Value) -> String {
    let items = results["items"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        return "no runs match\n".to_owned();
    }
    let mut shown = shown_columns(results);
    shown.retain(|(key, _)| items.iter().any(|item| !item["cells"][*key].is_null()));
    let head = ["ID".to_owned(), "NAME".to_owned()].into_iter().chain(shown.iter().map(|(_, name)| harmless(name)));
    let length = id_length(items.iter().filter_map(|item| item["id"].as_str().map(str::to_owned)).collect());
    let mut rows = vec![head.collect::<Vec<_>>()];
    for item in &items {
        let id = short(item["id"].as_str().unwrap_or_default(), length);
        let cells = shown.iter().map(|(key, _)| word(&item["cells"][*key]["value"]).unwrap_or_else(|| "-".to_owned()));
        rows.push([id, word(&item["name"]).unwrap_or_default()].into_iter().chain(cells).collect());
    }
    columns(&rows)
}

/// What the table of results has of each run besides its columns.
const OF_RUN: [&str; 7] = ["id", "name", "owner", "directory", "complete", "points", "created_at"];

/// The shown columns of the table of results: key and name. A name that is not unique is the key, with `p:` or `m:`.
fn shown_columns(results: &Value) -> Vec<(&str, &str)> {
    let columns: Vec<&Value> = results["columns"].as_array().into_iter().flatten().collect();
    let mut shown = Vec::new();
    for column in columns.iter().filter(|column| column["shown"] != false) {
        if let (Some(key), Some(label)) = (column["key"].as_str(), column["label"].as_str()) {
            let same = columns.iter().filter(|other| other["label"] == *label).count();
            shown.push((key, if 1 < same || OF_RUN.contains(&label) { key } else { label }));
        }
    }
    shown
}

/// The rows of the table of results for CSV: what each run is, and the value of each shown column by its name.
fn result_rows(results: &Value) -> Vec<Value> {
    let shown = shown_columns(results);
    let row = |item: &Value| {
        let own = OF_RUN.iter().map(|name| ((*name).to_owned(), item[*name].clone()));
        let cells = shown.iter().map(|(key, name)| ((*name).to_owned(), item["cells"][*key]["value"].clone()));
        Value::Object(own.chain(cells).collect())
    };
    results["items"].as_array().into_iter().flatten().map(row).collect()
}
