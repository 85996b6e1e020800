//! How large the cluster is: what its nodes have and how long its partitions let a job run,
//! from `sinfo`. With that the portal refuses, with the numbers, what the controller would
//! accept and never start.

use std::collections::BTreeSet;

use super::{settings::Settings, sinfo::Node};
use lyceum_model::{Capacity, Gpu, GpuInventory, Resources, job::Shape, size::human_size};

impl Node {
    /// How many GPUs of a model it has; of all where none is named.
    fn gpus_of(&self, model: Option<&str>) -> i64 {
        let is_meant = |name: &str| model.is_none_or(|model| model == name);
        self.gpus.iter().filter(|(name, _)| is_meant(name)).map(|(_, count)| count).sum()
    }

    pub fn fits(&self, asked: &Resources) -> bool {
        asked.cpus <= self.cpus
            && asked.memory_bytes <= self.memory_bytes
            && asked.gpus <= self.gpus_of(asked.gpu_model.as_deref())
    }
}

/// The nodes that a job of ours may get: those of the partitions that the settings name, else
/// of the one that Slurm chooses by itself.
pub(super) fn eligible<'a>(nodes: &'a [Node], partitions: &str) -> Vec<&'a Node> {
    let named: Vec<&str> = partitions.split(',').filter(|name| !name.is_empty()).collect();
    let is_meant =
        |node: &&Node| if named.is_empty() { node.by_default } else { named.contains(&node.partition.as_str()) };
    nodes.iter().filter(is_meant).collect()
}

/// The nodes that any job of ours may get: besides those, of all partitions that users may choose.
pub(super) fn reachable<'a>(nodes: &'a [Node], settings: &Settings) -> Vec<&'a Node> {
    let usual = eligible(nodes, &settings.partition);
    if usual.is_empty() {
        return usual;
    }
    let listed = settings.choices.partitions.as_ref();
    let may_be = |node: &&Node| node.is_up && listed.is_none_or(|listed| listed.contains(&node.partition));
    usual.into_iter().chain(nodes.iter().filter(may_be)).collect()
}

/// What of it a single node has to hold, as far as that is known.
pub(super) fn of_one_node(asked: &Resources, shape: &Shape) -> Resources {
    let is_whole = shape.says(&["exclusive"]);
    if shape.is_spread || is_whole {
        return Resources { gpus: 0, cpus: 1, memory_bytes: 0, ..asked.clone() };
    }
    Resources { memory_bytes: if shape.option("mem") == Some("0") { 0 } else { asked.memory_bytes }, ..asked.clone() }
}

/// How many models of GPUs they have.
pub(super) fn models(nodes: &[&Node]) -> usize {
    nodes.iter().flat_map(|node| &node.gpus).map(|(model, _)| model).collect::<BTreeSet<_>>().len()
}

/// Why these nodes can never run a job of this shape, with the numbers: what it has of each node, or of all of
/// them together where Slurm chooses how it lies over them.
pub(super) fn objection_to(nodes: &[&Node], asked: &Resources, seconds: i64, shape: &Shape) -> Option<String> {
    if shape.is_spread && !nodes.is_empty() {
        let (there, _) = whole(nodes);
        let memory = (human_size(asked.memory_bytes), human_size(there.memory_bytes));
        for (what, wanted, has) in [("cores", asked.cpus, there.cpus), ("GPUs", asked.gpus, there.gpus)] {
            if has < wanted {
                return Some(format!("You requested {wanted} × {what}; all nodes together have {has}."));
            }
        }
        if there.memory_bytes < asked.memory_bytes {
            return Some(format!("You requested {} of memory; all nodes together have {}.", memory.0, memory.1));
        }
    }
    objection(nodes, &of_one_node(asked, shape), seconds, shape.nodes)
}

/// Why these nodes can never run this, with the numbers; `None` where one can.
pub(super) fn objection(nodes: &[&Node], asked: &Resources, seconds: i64, count: i64) -> Option<String> {
    // Nobody knows the cluster yet: Slurm itself decides.
    if nodes.is_empty() {
        return None;
    }
    let most = |value: &dyn Fn(&Node) -> i64| nodes.iter().map(|node| value(node)).max().unwrap_or(0);
    let gpus = |node: &Node| node.gpus_of(asked.gpu_model.as_deref());
    let model = asked.gpu_model.as_deref().unwrap_or("GPUs");
    for (what, wanted, has) in [("cores", asked.cpus, most(&|node| node.cpus)), (model, asked.gpus, most(&gpus))] {
        if has < wanted {
            return Some(format!("You requested {wanted} × {what}; the largest node has {has}."));
        }
    }
    let memory = most(&|node| node.memory_bytes);
    if memory < asked.memory_bytes {
        let (wanted, has) = (human_size(asked.memory_bytes), human_size(memory));
        return Some(format!("You requested {wanted} of memory; the largest node has {has}."));
    }
    if !nodes.iter().any(|node| node.fits(asked)) {
        return Some("Each requested resource fits on some node, but no node has all of it. Request less.".to_owned());
    }
    let fitting: BTreeSet<&str> = nodes.iter().filter(|node| node.fits(asked)).map(|node| node.name.as_str()).collect();
    let fitting = fitting.len();
    if i64::try_from(fitting).unwrap_or(i64::MAX) < count {
        return Some(format!("You requested {count} nodes; only {fitting} have the requested resources."));
    }
    let longest = longest(nodes, asked).filter(|longest| *longest < seconds)?;
    let partitions: BTreeSet<&str> = nodes.iter().map(|node| node.partition.as_str()).collect();
    let partitions: Vec<&str> = partitions.into_iter().collect();
    Some(format!(
        "You requested {} minutes; Slurm’s partition {} allows at most {}.",
        super::submit::minutes(seconds),
        partitions.join(", "),
        longest / 60
    ))
}

/// The longest that a job may run on one of these nodes that has what is asked for (seconds);
/// `None`: nothing limits it, or none has.
pub(super) fn longest(nodes: &[&Node], asked: &Resources) -> Option<i64> {
    let fitting: Option<Vec<i64>> =
        nodes.iter().filter(|node| node.fits(asked)).map(|node| node.most_seconds).collect();
    fitting?.into_iter().max()
}

/// The most of each that a node has; `None` where no node is known.
pub(super) fn largest(nodes: &[&Node]) -> Option<Capacity> {
    let most = |value: &dyn Fn(&Node) -> i64| nodes.iter().map(|node| value(node)).max();
    Some(Capacity {
        gpus: most(&|node| node.gpus_of(None))?,
        cpus: most(&|node| node.cpus)?,
        memory_bytes: most(&|node| node.memory_bytes)?,
    })
}

/// All of it together: each node once, however many partitions it is in.
pub(super) fn whole(nodes: &[&Node]) -> (Capacity, GpuInventory) {
    let mut names = BTreeSet::new();
    let (mut capacity, mut gpus) = (Capacity { gpus: 0, cpus: 0, memory_bytes: 0 }, Vec::new());
    for node in nodes.iter().filter(|node| names.insert(node.name.as_str())) {
        capacity.cpus += node.cpus;
        capacity.memory_bytes += node.memory_bytes;
        for (model, count) in &node.gpus {
            for _ in 0..*count {
                let index = i64::try_from(gpus.len()).unwrap_or(i64::MAX);
                gpus.push(Gpu { index, uuid: format!("slurm-{index}"), model: model.clone(), slice: None });
            }
        }
    }
    capacity.gpus = i64::try_from(gpus.len()).unwrap_or(i64::MAX);
    (capacity, GpuInventory { gpus, ..GpuInventory::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::size::GIB;

    use crate::scheduler::slurm::sinfo::{parse, tests::RECORDED};

    fn asked(gpus: i64, cpus: i64, memory_bytes: i64) -> Resources {
        Resources { gpus, gpu_model: None, cpus, memory_bytes }
    }

    #[test]
    fn the_cluster() {
        let nodes = parse(RECORDED, "<S>").unwrap();
        let (capacity, inventory) = whole(&nodes.iter().collect::<Vec<_>>());
        assert_eq!(capacity, Capacity { gpus: 2, cpus: 12, memory_bytes: 12 * GIB });
        assert_eq!(inventory.models(), [("a100".to_owned(), 2)]);
        assert_eq!(eligible(&nodes, "").len(), 2);
        assert_eq!(eligible(&nodes, "small,long").len(), 2);
        assert_eq!(nodes[2].address, "127.0.0.2");
    }

    #[test]
    fn what_never_fits_is_refused_with_the_numbers() {
        let nodes = parse(RECORDED, "<S>").unwrap();
        let refused =
            |partition: &str, asked: &Resources, seconds| objection(&eligible(&nodes, partition), asked, seconds, 1);
        assert_eq!(refused("", &asked(2, 4, 4 * GIB), 3600), None);
        assert_eq!(refused("long", &asked(0, 8, GIB), i64::MAX), None);
        assert_eq!(refused("nowhere", &asked(9, 9, GIB), 60), None, "Slurm says it itself");
        for (partition, asked, seconds, part) in [
            ("", asked(0, 9, GIB), 60, "9 × cores; the largest node has 8"),
            ("", asked(3, 1, GIB), 60, "3 × GPUs; the largest node has 2"),
            ("", asked(0, 1, 9 * GIB), 60, "the largest node has 8"),
            ("", asked(1, 8, GIB), 60, "no node has all of it"),
            ("", asked(0, 1, GIB), 3601, "61 minutes; Slurm’s partition debug allows at most 60"),
            ("small", asked(0, 1, GIB), 600, "10 minutes; Slurm’s partition small allows at most 5"),
        ] {
            let sentence = refused(partition, &asked, seconds).unwrap();
            assert!(sentence.contains(part), "{sentence}");
        }
        let both = objection(&eligible(&nodes, ""), &asked(0, 4, GIB), 60, 2);
        assert_eq!(both, None);
        let three = objection(&eligible(&nodes, "debug,long"), &asked(0, 4, GIB), 60, 3).unwrap();
        assert!(three.contains("3 nodes; only 2"), "a node in two partitions is one: {three}");
        let h100 = Resources { gpu_model: Some("h100".to_owned()), ..asked(1, 1, GIB) };
        assert!(refused("", &h100, 60).unwrap().contains("1 × h100; the largest node has 0"));
        assert_eq!(longest(&eligible(&nodes, ""), &asked(0, 1, GIB)), Some(3600));
        assert_eq!(longest(&eligible(&nodes, "debug,long"), &asked(0, 1, GIB)), None);
        assert_eq!(
            longest(&eligible(&nodes, "debug,long"), &asked(1, 1, GIB)),
            Some(3600),
            "without the node that is long"
        );
        assert_eq!(
            largest(&nodes.iter().collect::<Vec<_>>()),
            Some(Capacity { gpus: 2, cpus: 8, memory_bytes: 8 * GIB })
        );
        assert_eq!(largest(&[]), None);
    }
}
