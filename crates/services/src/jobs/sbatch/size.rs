//! How much a script asks for, from all the ways that Slurm has of saying it: put together as what
//! the job will hold, over all of its nodes. Where Slurm chooses how tasks lie over the nodes, what
//! is charged is the sum: tasks times cores, and whole nodes where whole nodes are asked for.

use super::{Lines, values};
use lyceum_model::{Capacity, Resources, size::MIB};

/// What counts where the lines say nothing.
#[derive(Clone, Debug)]
pub(in crate::jobs) struct SizeDefaults {
    pub resources: Resources,
    pub nodes: i64,
    pub tasks_per_node: i64,
}

impl Default for SizeDefaults {
    fn default() -> Self {
        Self { resources: Resources::default(), nodes: 1, tasks_per_node: 1 }
    }
}

type Gpus = Option<(Option<String>, i64)>;

/// Numbers as they were written, before they are put together.
#[derive(Default)]
pub(super) struct Numbers {
    /// The least and the most.
    nodes: Option<(i64, i64)>,
    tasks: Option<i64>,
    tasks_per_node: Option<i64>,
    tasks_per_gpu: Option<i64>,
    cpus_per_task: Option<i64>,
    cpus_per_gpu: Option<i64>,
    least_cpus: Option<i64>,
    /// Bytes of each node; 0 is all of it.
    memory: Option<i64>,
    memory_per_cpu: Option<i64>,
    memory_per_gpu: Option<i64>,
    gpus: Gpus,
    gpus_per_node: Gpus,
    gpus_per_task: Gpus,
    is_exclusive: bool,
    is_overcommitted: bool,
    is_spread: bool,
}

/// What is held in all.
struct TotalSize {
    nodes: i64,
    is_spread: bool,
    tasks: i64,
    cpus: i64,
    gpus: i64,
    gpu_model: Option<String>,
}

impl Numbers {
    pub fn take(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let text = value.unwrap_or_default();
        let unclear = || {
            format!("`--{name}={text}` is not a size that Lyceum understands, so the resources cannot be determined")
        };
        let count = || values::count(text).ok_or_else(unclear);
        let memory = || values::memory(text).ok_or_else(unclear);
        let gpus = || values::gpus(text).ok_or_else(unclear);
        match name {
            "nodes" => self.nodes = Some(values::nodes(text).ok_or_else(unclear)?),
            "ntasks" => self.tasks = Some(count()?),
            "ntasks-per-node" | "tasks-per-node" => self.tasks_per_node = Some(count()?),
            "ntasks-per-gpu" => self.tasks_per_gpu = Some(count()?),
            "cpus-per-task" => self.cpus_per_task = Some(count()?),
            "cpus-per-gpu" => self.cpus_per_gpu = Some(count()?),
            "mincpus" => self.least_cpus = Some(count()?),
            "mem" => self.memory = Some(memory()?),
            "mem-per-cpu" => self.memory_per_cpu = Some(memory()?).filter(|bytes| *bytes > 0),
            "mem-per-gpu" => self.memory_per_gpu = Some(memory()?).filter(|bytes| *bytes > 0),
            "gres" => self.gpus_per_node = Some(values::gres(text).ok_or_else(unclear)?),
            "gpus" => self.gpus = Some(gpus()?),
            "gpus-per-node" => self.gpus_per_node = Some(gpus()?),
            "gpus-per-task" => self.gpus_per_task = Some(gpus()?),
            "exclusive" => match value {
                None | Some("exclusive") => self.is_exclusive = true,
                // Others' jobs are kept away, and the size stays.
                Some("user" | "mcs") => {}
                Some(_) => return Err(unclear()),
            },
            "overcommit" => self.is_overcommitted = true,
            _ => self.is_spread = true,
        }
        Ok(())
    }

    fn say_a_size(&self) -> bool {
        let counts = [
            self.tasks,
            self.tasks_per_node,
            self.tasks_per_gpu,
            self.cpus_per_task,
            self.cpus_per_gpu,
            self.least_cpus,
            self.memory,
            self.memory_per_cpu,
            self.memory_per_gpu,
        ];
        let gpus = [&self.gpus, &self.gpus_per_node, &self.gpus_per_task];
        self.is_exclusive || counts.iter().any(Option::is_some) || gpus.iter().any(|gpus| gpus.is_some())
    }

    fn check(&self) -> Result<(), String> {
        let memory = [self.memory, self.memory_per_cpu, self.memory_per_gpu];
        if memory.iter().flatten().count() > 1 {
            return Err("--mem, --mem-per-cpu and --mem-per-gpu cannot be combined".to_owned());
        }
        if self.cpus_per_task.is_some() && self.cpus_per_gpu.is_some() {
            return Err("--cpus-per-task and --cpus-per-gpu cannot be combined".to_owned());
        }
        let gpus = [&self.gpus, &self.gpus_per_node, &self.gpus_per_task];
        if gpus.iter().filter(|gpus| gpus.is_some()).count() > 1 {
            return Err("GPUs are requested in two ways: keep only one of them".to_owned());
        }
        if let (Some((least, _)), Some(tasks)) = (self.nodes, self.tasks)
            && tasks < least
        {
            return Err(format!("{tasks} tasks cannot use {least} nodes: request fewer nodes"));
        }
        Ok(())
    }

    pub fn put_together(self, lines: &mut Lines, usual: &SizeDefaults, node: Option<Capacity>) -> Result<(), String> {
        self.check()?;
        lines.says_size = self.say_a_size();
        let mut whole = self.whole(usual);
        let says_nodes = self.nodes.is_some() || usual.nodes > 1;
        let wants_node = self.is_exclusive || self.memory.is_some();
        if whole.is_spread && !says_nodes && wants_node {
            // So many of the largest nodes hold it; with one, it need not be spread.
            whole.nodes = node.as_ref().map_or(1, |node| whole.fill(node));
            whole.is_spread = whole.nodes != 1;
        }
        if self.is_exclusive {
            let node = node.as_ref().ok_or("--exclusive: the size of a node is unknown until Slurm responds")?;
            whole.cpus = whole.cpus.max(node.cpus.saturating_mul(whole.nodes));
            whole.gpus = whole.gpus.max(node.gpus.saturating_mul(whole.nodes));
        }
        let memory_bytes = match (self.memory, self.memory_per_cpu, self.memory_per_gpu) {
            (Some(0), ..) => {
                let node = node.as_ref().ok_or("--mem=0: the size of a node is unknown until Slurm responds")?;
                node.memory_bytes.saturating_mul(whole.nodes)
            }
            (Some(bytes), ..) => bytes.saturating_mul(whole.nodes),
            (_, Some(bytes), _) => bytes.saturating_mul(whole.cpus),
            (.., Some(bytes)) => bytes.saturating_mul(whole.gpus),
            _ if whole.is_spread => each_core(&usual.resources).saturating_mul(whole.cpus),
            _ => usual.resources.memory_bytes.saturating_mul(whole.nodes),
        };
        let part = |amount: i64| if whole.is_spread { amount } else { amount / whole.nodes };
        lines.resources = Resources {
            gpus: part(whole.gpus),
            gpu_model: whole.gpu_model,
            cpus: part(whole.cpus),
            memory_bytes: part(memory_bytes),
        };
        lines.nodes = whole.nodes;
        lines.is_spread = whole.is_spread;
        lines.tasks_per_node = ceil(whole.tasks, whole.nodes);
        Ok(())
    }

    /// Tasks, cores and GPUs over all nodes.
    fn whole(&self, usual: &SizeDefaults) -> TotalSize {
        let says_nodes = self.nodes.is_some() || usual.nodes > 1;
        let (least, most) = self.nodes.unwrap_or((usual.nodes, usual.nodes));
        let known_gpus = match (&self.gpus, &self.gpus_per_node) {
            (Some((model, gpus)), _) => Some((model.clone(), *gpus)),
            (None, Some((model, gpus))) => Some((model.clone(), gpus.saturating_mul(most))),
            (None, None) => None,
        };
        let tasks = match (self.tasks, self.tasks_per_node, self.tasks_per_gpu, &known_gpus) {
            (Some(tasks), ..) => tasks,
            (None, Some(each), ..) => each.saturating_mul(most),
            (None, None, Some(each), Some((_, gpus))) => each.saturating_mul(*gpus).max(1),
            _ => usual.tasks_per_node.saturating_mul(most),
        };
        // So many on each node, at most, make so many nodes.
        let nodes = match (says_nodes, self.tasks, self.tasks_per_node) {
            (false, Some(tasks), Some(each)) => ceil(tasks, each),
            _ => most,
        };
        let (gpu_model, gpus) = match (known_gpus, &self.gpus_per_task, self.tasks_per_gpu) {
            (Some(known), ..) => known,
            (None, Some((model, gpus)), _) => (model.clone(), gpus.saturating_mul(tasks)),
            (None, None, Some(each)) if self.tasks.is_some() => (None, ceil(tasks, each)),
            _ => (usual.resources.gpu_model.clone(), usual.resources.gpus.saturating_mul(nodes)),
        };
        let says_tasks = self.tasks.is_some() || self.tasks_per_node.is_some() || self.tasks_per_gpu.is_some();
        let cpus = match (self.cpus_per_task, self.cpus_per_gpu) {
            (each, _) if self.is_overcommitted => each.unwrap_or(1).saturating_mul(nodes),
            (Some(each), _) => each.saturating_mul(tasks),
            (None, Some(each)) => each.saturating_mul(gpus).max(tasks),
            // One core for each task is Slurm's own rule.
            (None, None) if says_tasks && tasks > 1 || usual.tasks_per_node > 1 => tasks,
            (None, None) => usual.resources.cpus.saturating_mul(nodes),
        };
        let cpus = cpus.max(self.least_cpus.unwrap_or(0).saturating_mul(nodes));
        let is_even = tasks % nodes == 0 && gpus % nodes == 0 && cpus % nodes == 0;
        let is_free =
            !says_nodes && self.tasks_per_node.is_none() && (tasks > 1 && self.tasks.is_some() || self.gpus.is_some());
        let is_spread = least != most || !is_even || is_free || self.is_spread;
        TotalSize { nodes, is_spread, tasks, cpus, gpus, gpu_model }
    }
}

impl TotalSize {
    /// How many such nodes hold all of it.
    fn fill(&self, node: &Capacity) -> i64 {
        let cores = ceil(self.cpus, node.cpus);
        let gpus = if self.gpus == 0 { 1 } else { ceil(self.gpus, node.gpus) };
        cores.max(gpus)
    }
}

fn ceil(amount: i64, each: i64) -> i64 {
    let each = each.max(1);
    (amount.div_euclid(each) + i64::from(amount.rem_euclid(each) != 0)).max(1)
}

/// Of memory, for each core: whole MiB.
pub(super) fn each_core(of: &Resources) -> i64 {
    ceil(of.memory_bytes, MIB.saturating_mul(of.cpus.max(1))).saturating_mul(MIB)
}
