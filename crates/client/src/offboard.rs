//! `lyceum offboard`: ends somebody's access and work, waits until it has ended, gives what they made to somebody else
//! where one is named, and prints what remains. It can be repeated; what is done is not done again.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    api::{Api, Error, Result},
    line,
    output::Output,
    table::harmless,
};

/// How long work may take to end before it is handed over.
const END_TIMEOUT: Duration = Duration::from_mins(5);

/// `lyceum offboard …`
#[derive(Args, Debug)]
pub struct OffboardArguments {
    /// The user's name
    pub user: String,
    /// The user who gets the jobs, sweeps, runs, datasets and models
    #[arg(long, value_name = "USER")]
    pub to: Option<String>,
    /// Files that were copied, as OLD=NEW with absolute folders; can be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = moved, requires = "to")]
    pub moved: Vec<(String, String)>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: Output,
}

pub(super) async fn run(api: &Api, arguments: &OffboardArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let user = format!("/users/{}", arguments.user);
    let query = if arguments.dry_run { "?dry_run=true" } else { "" };
    let ended = api.post(&format!("{user}/offboard{query}"), &Value::Null).await?;
    let json = arguments.output.is_json();
    if !json {
        for step in items(&ended, "steps") {
            line(out, &outcome(step, words(text(step, "kind"))))?;
        }
        out.flush()?;
    }
    let mut failed = failures(&ended);
    let mut of = items(&ended, "steps").len();
    let mut answer = json!({ "offboarding": ended });
    if let Some(to) = &arguments.to {
        let live = live(api, &user).await?;
        let is_ahead = arguments.dry_run && (live > 0 || text(&api.get(&user, &[]).await?, "state") == "active");
        if is_ahead {
            let note = "The hand-over can be checked once the account is disabled and its work has ended.";
            if json { answer["hand_over"] = Value::Null } else { line(out, note)? }
        } else {
            if !arguments.dry_run {
                until_ended(api, &user, live).await?;
            }
            let directories: Vec<Value> =
                arguments.moved.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
            let body = json!({ "to": to, "directories": directories });
            let result = api.post(&format!("{user}/hand-over{query}"), &body).await?;
            if !json {
                hand_over(&result, arguments.dry_run, out)?;
            }
            failed += failures(&result);
            of += items(&result, "items").len();
            answer["hand_over"] = result;
        }
    }
    let contents = api.get(&format!("{user}/contents"), &[]).await?;
    if json {
        answer["remains"] = contents;
        line(out, &answer.to_string())?;
    } else {
        remains(&contents, out)?;
    }
    if failed == 0 { Ok(()) } else { Err(Error::Several { failed, of }) }
}

/// Waits until nothing of the user runs.
async fn until_ended(api: &Api, user: &str, mut live: i64) -> Result<()> {
    let until = Instant::now() + END_TIMEOUT;
    while live > 0 {
        if until < Instant::now() {
            let what = format!("{live} sessions, jobs and sweeps have not ended; nothing was handed over. Try again.");
            return Err(Error::TimedOut(what));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        live = self::live(api, user).await?;
    }
    Ok(())
}

async fn live(api: &Api, user: &str) -> Result<i64> {
    let contents = api.get(&format!("{user}/contents"), &[]).await?;
    Ok(["live_sessions", "live_jobs", "live_sweeps"].iter().filter_map(|field| contents[*field].as_i64()).sum())
}

fn hand_over(result: &Value, is_dry_run: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    let to = harmless(text(result, "to"));
    let gets = if is_dry_run { "would get" } else { "gets" };
    line(out, &format!("{to} {gets} {} jobs, {} sweeps, {} runs", result["jobs"], result["sweeps"], result["runs"]))?;
    for item in items(result, "items") {
        let what = format!("{} {}", text(item, "kind"), harmless(text(item, "directory")));
        line(out, &outcome(item, &what))?;
    }
    Ok(())
}

fn remains(contents: &Value, out: &mut (dyn Write + Send)) -> Result<()> {
    let counts: Vec<String> = [
        ("live_sessions", "running sessions"),
        ("live_jobs", "running jobs"),
        ("jobs", "jobs"),
        ("sweeps", "sweeps"),
        ("runs", "runs"),
        ("datasets", "datasets"),
        ("models", "models"),
        ("presets", "presets"),
        ("tokens", "tokens"),
    ]
    .iter()
    .filter_map(|(field, word)| {
        contents[*field].as_i64().filter(|count| *count > 0).map(|count| format!("{count} {word}"))
    })
    .collect();
    let rest = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
    line(out, &format!("remains: {rest}"))?;
    for (field, word) in [("groups", "in the group"), ("folders", "files in")] {
        for name in contents[field].as_array().into_iter().flatten().filter_map(Value::as_str) {
            line(out, &format!("remains: {word} {}", harmless(name)))?;
        }
    }
    Ok(())
}

/// One line of a step, as `token ci: done`.
fn outcome(item: &Value, what: &str) -> String {
    let result = match (item["error"].as_str(), item["done"] == true) {
        (Some(error), _) => format!("failed: {}", harmless(error)),
        (None, true) => "done".to_owned(),
        (None, false) => "would be done".to_owned(),
    };
    format!("{what} {}: {result}", harmless(text(item, "name")))
}

fn words(kind: &str) -> &str {
    match kind {
        "account" => "disable account",
        "token" => "revoke token",
        "sweep" => "stop sweep",
        "job" => "cancel job",
        "session" => "stop session",
        "member" => "remove from group",
        "manager" => "remove as manager of group",
        other => other,
    }
}

fn items<'a>(answer: &'a Value, field: &str) -> &'a [Value] {
    answer[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn failures(answer: &Value) -> usize {
    answer["failed"].as_u64().and_then(|failed| usize::try_from(failed).ok()).unwrap_or_default()
}

fn moved(pair: &str) -> std::result::Result<(String, String), String> {
    match pair.split_once('=') {
        Some((from, to)) if from.starts_with('/') && to.starts_with('/') => Ok((from.to_owned(), to.to_owned())),
        _ => Err("must be two absolute folders, as /home/ada=/home/bo/ada".to_owned()),
    }
}
