//! `lyceum gpu list`: the machine's GPUs, what they do and who holds them, as a table for people
//! or as the API's JSON. Who may see whose name is the portal's to say. Testing them is in `diagnose`.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::Value;

use super::{
    api::{Api, Error, Result},
    diagnose::{self, Diagnose},
    line,
    output::{Columns, Output},
    table,
};

/// `lyceum gpu …`
#[derive(Args, Debug)]
pub struct GpuArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: GpuCommand,
}

#[derive(Subcommand, Debug)]
pub enum GpuCommand {
    /// List the GPUs and their current use
    List(Columns),
    /// Test GPUs, as a job of yours that holds them
    Diagnose(Diagnose),
}

impl GpuArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            GpuCommand::List(columns) => (&mut self.output, Some(columns)),
            GpuCommand::Diagnose(_) => (&mut self.output, None),
        }
    }
}

/// The part of the answer that the table needs.
#[derive(Debug, Deserialize)]
pub struct Answer {
    pub items: Vec<Gpu>,
}

#[derive(Debug, Deserialize)]
pub struct Gpu {
    pub index: i64,
    pub slice: Option<i64>,
    pub uuid: String,
    pub model: String,
    pub state: String,
    pub utilisation_percent: Option<i64>,
    pub memory_used_bytes: Option<i64>,
    pub memory_total_bytes: Option<i64>,
    pub temperature_celsius: Option<i64>,
    pub owner: Option<String>,
}

pub(super) async fn run(api: &Api, arguments: &GpuArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    if let GpuCommand::Diagnose(asked) = &arguments.command {
        return diagnose::run(api, asked, arguments.output.is_json(), out).await;
    }
    let answer: Value = api.all("/gpus", &[]).await?;
    if arguments.output.is_json() {
        return line(out, &answer.to_string());
    }
    let answer = Answer::deserialize(&answer).map_err(|error| Error::Strange(error.to_string()))?;
    Ok(write!(out, "{}", table::gpus(&answer.items))?)
}
