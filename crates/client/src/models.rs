//! `lyceum model …`: the models that a portal trained or imported, over its API. A training is a job: `lyceum job`
//! cancels and resumes it.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    api::{Api, MODELS, Result},
    output::{Columns, Output},
    selection::{ModelTargets, Selected, select},
    show_state,
    wait::{self, WaitArguments},
};

/// `lyceum model …`
#[derive(Args, Debug)]
pub struct ModelArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: ModelCommand,
}

#[derive(Subcommand, Debug)]
pub enum ModelCommand {
    /// List your models and the models shared with you
    #[command(visible_alias = "ls")]
    List(Columns),
    /// Show a model
    Show {
        /// The id, its beginning or its end, or the name
        id: String,
    },
    /// Wait until models are trained
    Wait(WaitArguments),
    /// Remove models from the list, and with --files also their directories
    #[command(visible_alias = "rm")]
    Delete {
        #[command(flatten)]
        targets: ModelTargets,
        /// Also delete their directories with checkpoints, curves and bundles
        #[arg(long)]
        files: bool,
    },
}

pub(super) async fn run(api: &Api, arguments: ModelArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    match arguments.command {
        ModelCommand::List(_) => list(&api.all(MODELS.path(), &[]).await?, json, out),
        ModelCommand::Show { id } => {
            let id = api.id(MODELS, &id).await?;
            show_state(&api.get(&format!("/models/{id}"), &[]).await?, json, out)
        }
        ModelCommand::Wait(WaitArguments { ids, log, limit }) => {
            super::each(&ids, async |id| {
                let trained = wait::with_log(api, MODELS, id, log.then_some(&mut *out), limit).await;
                show_state(&wait::shown(trained, json, out)?, json, out)
            })
            .await
        }
        ModelCommand::Delete { targets, files } => {
            let ids = match select(api, MODELS, &targets, &["trained", "stopped", "failed"], json).await? {
                Selected::Act(ids) => ids,
                Selected::List(items) => return list(&json!({ "items": items }), json, out),
            };
            super::delete(api, MODELS, &ids, if files { "?files=true" } else { "" }, json, out).await
        }
    }
}

fn list(answer: &Value, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    const SHOWN: [(&str, &str); 7] = [
        ("ID", "id"),
        ("NAME", "name"),
        ("NETWORK", "network"),
        ("STATE", "state"),
        ("METRIC", "metric"),
        ("BEST", "best"),
        ("OWNER", "owner"),
    ];
    super::show_items(answer, &SHOWN, "no models", json, out)
}
