//! `lyceum quota`: what one may use, where each limit comes from, and what one uses now, as a
//! table for people or as the API's JSON.

use std::{collections::BTreeMap, io::Write};

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::{
    api::{Api, Error, Result},
    line,
    output::Output,
    table,
};
use lyceum_model::quota::Usage;

/// `lyceum quota`
#[derive(Args, Debug)]
pub struct QuotaArguments {
    #[command(flatten)]
    pub output: Output,
}

/// The part of `GET /me` that the table needs.
#[derive(Debug, Deserialize)]
pub struct Answer {
    pub quota: BTreeMap<String, Effective>,
    pub usage: Usage,
}

#[derive(Debug, Deserialize)]
pub struct Effective {
    /// -1 is unlimited.
    pub limit: i64,
    pub source: String,
}

pub(super) async fn run(api: &Api, arguments: &QuotaArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let me: Value = api.get("/me", &[]).await?;
    if arguments.output.is_json() {
        let own: Value = ["quota", "usage"].iter().map(|part| ((*part).to_owned(), me[*part].clone())).collect();
        return line(out, &own.to_string());
    }
    let answer = Answer::deserialize(&me).map_err(|error| Error::Strange(error.to_string()))?;
    Ok(write!(out, "{}", table::quota(&answer))?)
}
