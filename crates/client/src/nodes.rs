//! `lyceum node …`: the nodes of the cluster, and the two things that operators do with one: keep new work from it, and
//! let it accept work again.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    api::{Api, Result},
    line,
    output::{Columns, Output},
    table,
};

/// `lyceum node …`
#[derive(Args, Debug)]
pub struct NodeArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// List the nodes and what is allocated on them
    List(Columns),
    /// Keep new work from a node of a Slurm cluster; what runs there goes on (operators)
    Drain {
        /// The name of the node
        node: String,
        /// Why, in one line; all users see it
        reason: String,
    },
    /// Let a node that was drained or is down accept work again (operators)
    Resume {
        /// The name of the node
        node: String,
    },
}

impl NodeArguments {
    pub(super) fn parts(&mut self) -> (&mut Output, Option<&Columns>) {
        match &self.command {
            NodeCommand::List(columns) => (&mut self.output, Some(columns)),
            _ => (&mut self.output, None),
        }
    }
}

pub(super) async fn run(api: &Api, arguments: NodeArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let json = arguments.output.is_json();
    let path = match arguments.command {
        NodeCommand::List(_) => {
            let answer = api.all("/nodes", &[]).await?;
            return print(&answer, answer["items"].as_array().map_or(&[], Vec::as_slice), json, out);
        }
        NodeCommand::Drain { node, reason } => {
            let path = path(&node);
            api.put(&format!("{path}/drain"), &json!({ "reason": reason })).await?;
            path
        }
        NodeCommand::Resume { node } => {
            let path = path(&node);
            api.delete(&format!("{path}/drain")).await?;
            path
        }
    };
    let node = api.get(&path, &[]).await?["node"].take();
    print(&node, std::slice::from_ref(&node), json, out)
}

fn print(answer: &Value, nodes: &[Value], json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    if json {
        return line(out, &answer.to_string());
    }
    Ok(write!(out, "{}", table::nodes(nodes))?)
}

fn path(node: &str) -> String {
    let name: String = url::form_urlencoded::byte_serialize(node.as_bytes()).collect();
    format!("/nodes/{name}")
}
