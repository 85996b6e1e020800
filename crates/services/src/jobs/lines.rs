//! What the lines of a script of Slurm's make of a request: they go before its fields, and what has
//! no field is how the job lies over the nodes and how its script is started. What both say is
//! checked together.

use std::collections::BTreeMap;

use super::{
    request::{Fault, JobRequest, MAX_COMMAND_LENGTH, plain},
    sbatch,
};
use lyceum_model::{
    Capacity, FieldError, export,
    job::{Shape, Start},
};

const MAX_NODES: i64 = 10_000;

/// For a script that asks for as long as it may run: what quotas and partitions allow (seconds).
const NO_LIMIT: i64 = 3650 * 86_400;

/// How large the largest node is that a job of this shape may get.
pub type NodeSize<'a> = &'a dyn Fn(&Shape) -> Capacity;

/// Of a script's own lines, what does not go into the request's fields.
#[derive(Default)]
pub(super) struct ScriptOptions {
    pub options: Vec<String>,
    pub as_written: bool,
    pub is_spread: bool,
    pub start: Start,
    pub variables: Vec<(String, String)>,
    pub requeue: Option<bool>,
}

impl JobRequest {
    /// Takes out the array that is asked for, by its field or by a line of a script of Slurm's: it makes many
    /// jobs, each with the same script.
    pub fn take_array(&mut self, on_cluster: bool) -> Option<String> {
        let script = self.script.as_deref().filter(|_| self.is_slurm_script(on_cluster));
        let of_script = || script.and_then(|script| sbatch::array_of(&plain(script)));
        let array = self.array.clone().or_else(of_script);
        self.array = None;
        array
    }

    /// Whether the script's own lines count: on a cluster they do if it has any, as with `sbatch`, unless the request
    /// says otherwise.
    pub fn is_slurm_script(&self, on_cluster: bool) -> bool {
        let has_lines = || self.script.as_deref().is_some_and(|script| sbatch::has_lines(&plain(script)));
        self.sbatch.unwrap_or_else(|| on_cluster && has_lines())
    }

    /// Takes what the script's own lines say into the fields; answers the rest.
    pub(super) fn take_lines(&mut self, node: Option<NodeSize<'_>>, faults: &mut Vec<FieldError>) -> ScriptOptions {
        if !self.is_slurm_script(node.is_some()) {
            return ScriptOptions::default();
        }
        let Some(node) = node else {
            faults.push(FieldError::new("sbatch", "not_available", "is only available on a Slurm cluster"));
            return ScriptOptions::default();
        };
        let Some(script) = &self.script else {
            faults.push(FieldError::new("script", "required", "give the Slurm script"));
            return ScriptOptions::default();
        };
        let script = plain(script);
        let usual = sbatch::SizeDefaults {
            resources: self.resources.clone().unwrap_or_default(),
            nodes: self.nodes.unwrap_or(1),
            tasks_per_node: self.tasks_per_node.unwrap_or(1),
        };
        // A size of nothing is one that nobody knows yet.
        let largest = |options: &[String]| {
            let shape = Shape { options: options.to_vec(), ..Shape::default() };
            Some(node(&shape)).filter(|node| node.cpus > 0 && node.memory_bytes > 0)
        };
        match sbatch::read(&script, &usual, &largest) {
            Ok(mut lines) => {
                if self.name.as_ref().is_some_and(|name| !name.trim().is_empty()) {
                    lines.options.retain(|option| !option.starts_with(sbatch::JOB_NAME));
                }
                if lines.says_size {
                    (self.resources, self.profile) = (Some(lines.resources), None);
                }
                (self.nodes, self.tasks_per_node) = (Some(lines.nodes), Some(lines.tasks_per_node));
                self.name = self.name.take().filter(|name| !name.trim().is_empty()).or(lines.name);
                self.working_directory = match (lines.working_directory, self.working_directory.take()) {
                    // As with `sbatch`, it begins where the script is submitted.
                    (Some(folder), Some(base)) if !folder.starts_with(['/', '~']) => {
                        Some(format!("{}/{folder}", base.trim_end_matches('/')))
                    }
                    (of_lines, of_request) => of_lines.or(of_request),
                };
                self.time_limit_seconds = lines.seconds.or(self.time_limit_seconds);
                if lines.is_unlimited {
                    (self.time_limit_seconds, self.usual_seconds) = (None, Some(NO_LIMIT));
                }
                ScriptOptions {
                    options: lines.options,
                    as_written: true,
                    is_spread: lines.is_spread,
                    start: lines.start,
                    variables: lines.variables,
                    requeue: lines.requeue,
                }
            }
            Err(wrong) => {
                faults.extend(wrong);
                ScriptOptions::default()
            }
        }
    }
}

/// The longest list of arguments (bytes).
const MAX_ARGUMENTS_LENGTH: usize = MAX_COMMAND_LENGTH;

pub(super) fn check_arguments(arguments: &[String], is_script: bool, fault: Fault<'_>) {
    if !arguments.is_empty() && !is_script {
        fault("arguments", "not_available", "are only for scripts; put the arguments of a command into the command");
    } else if arguments.iter().any(|word| word.contains('\0')) {
        fault("arguments", "characters", "must not contain NUL characters");
    } else if arguments.iter().map(|word| word.len() + 1).sum::<usize>() > MAX_ARGUMENTS_LENGTH {
        fault("arguments", "too_long", "must have at most 32 KiB in total: put the rest into a file");
    }
}

/// Variables of the request that the script's `--export` would keep out.
pub(super) fn check_export(export: Option<&str>, variables: &BTreeMap<String, String>, fault: Fault<'_>) {
    let Some((text, names)) = export.and_then(|text| Some((text, export::names(text)?))) else { return };
    for name in variables.keys().filter(|name| !names.contains(name)) {
        let message = format!("is excluded by the script's line `--export={text}`: add it there, or omit it");
        fault(&format!("variables.{name}"), "not_exported", &message);
    }
}

pub(super) fn check_shape(request: &JobRequest, shape: Shape, on_cluster: bool, fault: Fault<'_>) -> Shape {
    let (nodes, tasks_per_node) = (request.nodes.unwrap_or(1), request.tasks_per_node.unwrap_or(1));
    for (field, count) in [("nodes", nodes), ("tasks_per_node", tasks_per_node)] {
        if !on_cluster && count != 1 {
            fault(field, "not_available", "must be 1 on this machine, which is a single node; omit this field");
        } else if !(1..=MAX_NODES).contains(&count) {
            fault(field, "out_of_range", "must be between 1 and 10000");
        }
    }
    let cpus = request.resources.as_ref().map_or(tasks_per_node, |resources| resources.cpus);
    let may_be_uneven = shape.is_spread || shape.says(&["overcommit", "exclusive", "mincpus"]);
    if (1..=MAX_NODES).contains(&tasks_per_node) && cpus % tasks_per_node != 0 && !may_be_uneven {
        fault(
            "tasks_per_node",
            "uneven",
            &format!("{cpus} cores of a node cannot be divided equally among {tasks_per_node} tasks"),
        );
    }
    Shape { nodes, tasks_per_node, ..shape }
}
