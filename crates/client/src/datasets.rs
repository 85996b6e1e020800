//! `lyceum dataset list`, `show`, `wait`, `cancel`, `resume` and `delete`: the datasets that a portal knows, over its
//! API. What reads images on this machine (`lyceum dataset build`) is not here.

use std::io::Write;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{
    api::{Api, DATASETS, Result},
    output::{Columns, Output},
    selection::{DatasetTargets, Selected, select},
    show_state,
    wait::{self, WaitArguments},
};

/// The commands of `lyceum dataset` that ask a portal.
#[derive(Subcommand, Debug)]
pub enum DatasetCommand {
    /// List your datasets and the datasets shared with you
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        columns: Columns,
    },
    /// Show a dataset
    Show {
        #[command(flatten)]
        output: Output,
        /// The id, its beginning or its end, or the name
        id: String,
    },
    /// Wait until datasets are built
    Wait {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Cancel builds; finished work is kept
    Cancel {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        targets: DatasetTargets,
    },
    /// Resume builds that failed or were cancelled
    Resume {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        targets: DatasetTargets,
    },
    /// Remove datasets from the list, and with --files also their directories
    #[command(visible_alias = "rm")]
    Delete {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        targets: DatasetTargets,
        /// Also delete their directories
        #[arg(long)]
        files: bool,
    },
}

impl DatasetCommand {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match self {
            Self::List { output, columns } => (output, Some(columns)),
            Self::Show { output, .. }
            | Self::Wait { output, .. }
            | Self::Cancel { output, .. }
            | Self::Resume { output, .. }
            | Self::Delete { output, .. } => (output, None),
        }
    }
}

pub(super) async fn run(api: &Api, command: DatasetCommand, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    match command {
        DatasetCommand::List { .. } => list(&api.all(DATASETS.path(), &[]).await?, json, out),
        DatasetCommand::Show { id, .. } => {
            let id = api.id(DATASETS, &id).await?;
            show_state(&api.get(&format!("/datasets/{id}"), &[]).await?, json, out)
        }
        DatasetCommand::Wait { wait: WaitArguments { ids, log, limit }, .. } => {
            super::each(&ids, async |id| {
                let ready = wait::with_log(api, DATASETS, id, log.then_some(&mut *out), limit).await;
                show_state(&wait::shown(ready, json, out)?, json, out)
            })
            .await
        }
        DatasetCommand::Cancel { targets, .. } => post(api, &targets, &["building"], "cancel", json, out).await,
        DatasetCommand::Resume { targets, .. } => {
            post(api, &targets, &["failed", "cancelled"], "build", json, out).await
        }
        DatasetCommand::Delete { targets, files, .. } => {
            let ids = match select(api, DATASETS, &targets, &["ready", "failed", "cancelled"], json).await? {
                Selected::Act(ids) => ids,
                Selected::List(items) => return list(&json!({ "items": items }), json, out),
            };
            super::delete(api, DATASETS, &ids, if files { "?files=true" } else { "" }, json, out).await
        }
    }
}

async fn post(
    api: &Api,
    targets: &DatasetTargets,
    states: &[&str],
    deed: &str,
    json: bool,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    match select(api, DATASETS, targets, states, json).await? {
        Selected::List(items) => list(&json!({ "items": items }), json, out),
        Selected::Act(ids) => {
            super::each(&ids, async |id| {
                let id = api.id(DATASETS, id).await?;
                show_state(&api.post(&format!("/datasets/{id}/{deed}"), &Value::Null).await?, json, out)
            })
            .await
        }
    }
}

fn list(answer: &Value, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    const SHOWN: [(&str, &str); 6] = [
        ("ID", "id"),
        ("NAME", "name"),
        ("KIND", "kind"),
        ("STATE", "state"),
        ("IMAGES", "pictures"),
        ("OWNER", "owner"),
    ];
    super::show_items(answer, &SHOWN, "no datasets", json, out)
}
