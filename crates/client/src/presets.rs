//! `lyceum preset …`: lists, shows and deletes presets, as a table for people or as the API's JSON. They are used by
//! `session start` and `job submit`, and saved by the pages and `lyceum api`.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    api::{Api, Error, Result},
    line,
    output::{Columns, Output},
    table,
};

/// `lyceum preset …`
#[derive(Args, Debug)]
pub struct PresetArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: PresetCommand,
}

#[derive(Subcommand, Debug)]
pub enum PresetCommand {
    /// List your presets and those of your groups
    #[command(visible_alias = "ls")]
    List(Columns),
    /// Show a preset and its request, as JSON
    Show {
        /// The name or the id
        preset: String,
    },
    /// Delete a preset; what was started with it continues
    #[command(visible_alias = "rm")]
    Delete {
        /// The name or the id
        preset: String,
    },
}

impl PresetArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            PresetCommand::List(columns) => (&mut self.output, Some(columns)),
            _ => (&mut self.output, None),
        }
    }
}

pub(super) async fn run(api: &Api, arguments: PresetArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    match arguments.command {
        PresetCommand::List(_) => {
            let answer = api.get("/presets", &[]).await?;
            if json {
                return line(out, &answer.to_string());
            }
            Ok(write!(out, "{}", table::presets(items(&answer)))?)
        }
        PresetCommand::Show { preset } => {
            let answer = api.get("/presets", &[]).await?;
            let found = find(items(&answer), &preset)?;
            line(out, &if json { found.to_string() } else { format!("{found:#}") })
        }
        PresetCommand::Delete { preset } => {
            let answer = api.get("/presets", &[]).await?;
            let found = find(items(&answer), &preset)?;
            let id = found["id"].as_str().unwrap_or_default();
            api.delete(&format!("/presets/{id}")).await?;
            let name = found["name"].as_str().unwrap_or_default();
            if json { line(out, &json!({ "id": id }).to_string()) } else { line(out, &format!("Deleted '{name}'.")) }
        }
    }
}

fn items(answer: &Value) -> &[Value] {
    answer["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The only preset with this id or name.
fn find<'a>(items: &'a [Value], text: &str) -> Result<&'a Value> {
    let mut found = items.iter().filter(|item| item["id"] == text || item["name"] == text);
    match (found.next(), found.next()) {
        (Some(preset), None) => Ok(preset),
        (None, _) => Err(Error::Usage(format!("there is no preset `{text}`; `lyceum preset list` lists them"))),
        (Some(_), Some(_)) => Err(Error::Usage(format!(
            "several presets have the name `{text}`; give the id, which `lyceum preset list` shows"
        ))),
    }
}
