//! `lyceum job …` for jobs that are there already: show, resume, clone, change, delete. Several at a time are
//! done one after the other, also where one of them cannot be.

use std::{collections::BTreeSet, io::Write};

use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    api::{Api, Error, JOBS, Result},
    files,
    jobs::{Submit, request, show},
    line, table, wait,
};

type Out<'a> = &'a mut (dyn Write + Send);

#[derive(Args, Debug)]
pub struct Change {
    /// Ids, their beginnings or their ends, or names
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// The name
    #[arg(long)]
    pub name: Option<String>,
    /// The notes, in Markdown
    #[arg(long)]
    pub notes: Option<String>,
    /// Replaces the existing tags; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Remove all tags
    #[arg(long, conflicts_with = "tags")]
    pub no_tags: bool,
    #[arg(long)]
    pub star: bool,
    #[arg(long, conflicts_with = "star")]
    pub no_star: bool,
    /// Who can see it: private, group or everybody
    #[arg(long)]
    pub visibility: Option<String>,
}

impl Change {
    /// Only what was said.
    fn body(&self) -> Value {
        let mut body = Map::new();
        let mut put = |key: &str, value: Option<Value>| body.extend(value.map(|value| (key.to_owned(), value)));
        put("name", self.name.clone().map(Value::from));
        put("notes", self.notes.clone().map(Value::from));
        put("tags", (self.no_tags || !self.tags.is_empty()).then(|| json!(self.tags)));
        put("starred", (self.star || self.no_star).then(|| json!(self.star)));
        put("visibility", self.visibility.clone().map(Value::from));
        Value::Object(body)
    }
}

/// Does one thing to each of several.
pub(super) async fn each(api: &Api, ids: &[String], deed: &str, json: bool, out: Out<'_>) -> Result<()> {
    super::each(ids, async |id| {
        let id = api.id(JOBS, id).await?;
        show(out, json, &api.post(&format!("/jobs/{id}/{deed}"), &Value::Null).await?)
    })
    .await
}

pub(super) async fn print_session(api: &Api, id: &str, json: bool, out: Out<'_>) -> Result<()> {
    let id = api.id(JOBS, id).await?;
    let job = api.get(&format!("/jobs/{id}"), &[]).await?;
    show(out, json, &job)?;
    if json { Ok(()) } else { Ok(write!(out, "{}", table::facts(&job))?) }
}

/// The address of a terminal inside one that runs.
pub(super) async fn open(api: &Api, id: &str, json: bool, out: Out<'_>) -> Result<()> {
    let id = api.id(JOBS, id).await?;
    let job = api.get(&format!("/jobs/{id}"), &[]).await?;
    let Some(path) = job["terminal_url"].as_str() else {
        let state = job["state"].as_str().unwrap_or_default();
        return Err(Error::Ended(format!("the job is {state}; a terminal can only be opened in a running job")));
    };
    let address = api.absolute(path)?;
    line(out, &if json { json!({ "id": id, "terminal_url": address }).to_string() } else { address })
}

pub(super) async fn change(api: &Api, change: &Change, json: bool, out: Out<'_>) -> Result<()> {
    let body = change.body();
    if body.as_object().is_some_and(Map::is_empty) {
        return Err(Error::Usage("nothing to change: use an option such as --name or --star".to_owned()));
    }
    super::each(&change.ids, async |id| {
        let id = api.id(JOBS, id).await?;
        show(out, json, &api.patch(&format!("/jobs/{id}"), &body).await?)
    })
    .await
}

/// Submits one like another, and says in which words the two differ.
pub(super) async fn copy(api: &Api, id: &str, with: &Submit, json: bool, out: Out<'_>) -> Result<()> {
    let id = api.id(JOBS, id).await?;
    let original = api.get(&format!("/jobs/{id}"), &[]).await?;
    let asked = request(api, with).await?;
    let mut made = files::code::submit(api, &format!("/jobs/{id}/clone"), asked, with).await?;
    let whole = api.get(&format!("/jobs/{}", made["id"].as_str().unwrap_or_default()), &[]).await?;
    if !json {
        for said in differences(&original, &whole) {
            super::print_status(format_args!("{said}"));
        }
    }
    if with.wait {
        made = wait::shown(wait::job(api, made, with.limit).await, json, out)?;
    }
    show(out, json, &made)
}

/// What of a job its owner chooses.
const CHOSEN: [&str; 16] = [
    "name",
    "command",
    "script",
    "variables",
    "resources",
    "profile",
    "environment",
    "image",
    "modules",
    "group",
    "working_directory",
    "log_directory",
    "time_limit_seconds",
    "retries",
    "nodes",
    "tags",
];

/// Each choice in which two jobs differ, in a line.
fn differences(original: &Value, copy: &Value) -> Vec<String> {
    let word = |value: &Value| match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => table::harmless(text),
        other => table::harmless(&other.to_string()),
    };
    let mut lines = Vec::new();
    for key in CHOSEN {
        let (before, after) = (&original[key], &copy[key]);
        if let (Value::Object(one), Value::Object(other)) = (before, after) {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let gone = Value::Null;
            for name in names {
                let (before, after) = (one.get(name).unwrap_or(&gone), other.get(name).unwrap_or(&gone));
                if before != after {
                    lines.push(format!("{key}.{}: {} instead of {}", table::harmless(name), word(after), word(before)));
                }
            }
        } else if before != after {
            lines.push(format!("{key}: {} instead of {}", word(after), word(before)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_told_by_what_differs() {
        let job = |name: &str, seed: &str| json!({ "name": name, "command": ["a"], "script": null, "variables": { "SEED": seed, "A": "b" }, "state": seed });
        assert_eq!(differences(&job("x", "1"), &job("x", "1")), Vec::<String>::new());
        let told = differences(&job("x", "1"), &job("y\u{1b}[31m", "2"));
        assert_eq!(told, ["name: y[31m instead of x", "variables.SEED: 2 instead of 1"]);
        let script = json!({ "script": "b" });
        assert_eq!(
            differences(&json!({ "command": ["a"] }), &script),
            [r#"command: nothing instead of ["a"]"#, "script: b instead of nothing"]
        );
    }

    #[test]
    fn only_what_was_said_is_changed() {
        let change = |name: Option<&str>, tags: &[&str], no_tags, no_star| Change {
            ids: Vec::new(),
            name: name.map(str::to_owned),
            notes: None,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            no_tags,
            star: false,
            no_star,
            visibility: None,
        };
        assert_eq!(change(None, &[], false, false).body(), json!({}));
        assert_eq!(
            change(Some("a"), &["b", "c"], false, true).body(),
            json!({ "name": "a", "tags": ["b", "c"], "starred": false })
        );
        assert_eq!(change(None, &[], true, false).body(), json!({ "tags": [] }));
    }
}
