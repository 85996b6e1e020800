//! From what the controller says of nodes and jobs to what people see of the cluster.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use super::{
    controller::{Rights, View},
    sinfo::Node,
    size,
};
use lyceum_model::{
    Machines, Timestamp,
    machines::{Machine, Partition, Share},
};

/// `partitions` are those that the settings name.
pub(super) fn machines(view: &View, partitions: &str, trouble: Option<String>, now: Timestamp) -> Machines {
    let eligible = size::eligible(&view.nodes, partitions);
    let ours: HashSet<&str> = eligible.iter().map(|node| &*node.partition).collect();
    let (mut places, mut named) = (HashMap::<&str, usize>::new(), HashSet::new());
    let mut room = Machines {
        trouble,
        hides: view.hides,
        may_drain: view.rights == Rights::Administrator,
        reservations: view.reservations.to_vec(),
        ..Machines::default()
    };
    // Nodes are listed by themselves: the older answer counts.
    let at = view.answered.min(view.sized);
    room.at = at.map(|at| now.plus_seconds(-i64::try_from(at.elapsed().as_secs()).unwrap_or(0)));
    for node in &*view.nodes {
        match places.entry(&*node.name) {
            Entry::Occupied(place) => room.machines[*place.get()].partitions.push(node.partition.clone()),
            Entry::Vacant(place) => {
                place.insert(room.machines.len());
                room.machines.push(machine(node));
            }
        }
        if named.insert(&*node.partition) {
            let (running, waiting) = view.tally.get(&node.partition).copied().unwrap_or_default();
            room.partitions.push(Partition {
                name: node.partition.clone(),
                is_ours: ours.contains(&*node.partition),
                is_up: node.is_up,
                most_seconds: node.most_seconds,
                running,
                waiting,
            });
        }
    }
    // Nodes of one name come in any order of their partitions.
    room.machines.iter_mut().for_each(|machine| machine.partitions.sort());
    // Ours first, the others by name.
    room.partitions.sort_by(|one, other| (!one.is_ours, &one.name).cmp(&(!other.is_ours, &other.name)));
    room
}

fn machine(node: &Node) -> Machine {
    let used = |model: &String| node.gpus_used.iter().filter(|(name, _)| name == model).map(|(_, count)| count).sum();
    let share = |(model, all): &(String, i64)| (model.clone(), Share { used: used(model), all: *all });
    Machine {
        name: node.name.clone(),
        partitions: vec![node.partition.clone()],
        state: node.state,
        word: node.word.clone(),
        reason: node.reason.clone(),
        cpus: Share { used: node.cpus_used, all: node.cpus },
        memory_bytes: Share { used: node.memory_used_bytes, all: node.memory_bytes },
        gpus: node.gpus.iter().map(share).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::slurm::sinfo::{parse, tests::RECORDED};

    #[test]
    fn each_machine_once() {
        let mut nodes = parse(RECORDED, "<S>").unwrap();
        nodes.reverse();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let mut view = View { nodes: nodes.into(), ..View::default() };
        view.tally.insert("debug".to_owned(), (3, 2));
        let room = machines(&view, "small", None, Timestamp(0));
        let names: Vec<_> = room.machines.iter().map(|one| (one.name.as_str(), one.partitions.join(","))).collect();
        assert_eq!(names, [("node1", "debug,small".to_owned()), ("node2", "debug,long".to_owned())]);
        assert_eq!(room.machines[0].gpus, [("a100".to_owned(), Share { used: 1, all: 2 })]);
        let partitions: Vec<_> =
            room.partitions.iter().map(|one| (one.name.as_str(), one.is_ours, one.is_up, one.running)).collect();
        assert_eq!(
            partitions,
            [("small", true, true, 0), ("debug", false, true, 3), ("long", false, false, 0)],
            "ours first"
        );
        assert_eq!((room.at, room.partitions[1].waiting), (None, 2));
    }

    #[test]
    fn twenty_thousand_nodes_in_three_partitions() {
        let one = parse(RECORDED, "<S>").unwrap().remove(0);
        let row = |number: usize| Node {
            name: format!("node{}", number % 20_000),
            partition: format!("part{}", number / 20_000),
            ..one.clone()
        };
        let view = View { nodes: (0..60_000).map(row).collect(), ..View::default() };
        let began = std::time::Instant::now();
        let room = machines(&view, "part1", None, Timestamp(0));
        // Looked for one by one they would take minutes.
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!((room.machines.len(), room.partitions.len()), (20_000, 3));
        assert!(room.machines.iter().all(|machine| machine.partitions.len() == 3));
        assert_eq!(room.partitions.iter().filter(|one| one.is_ours).count(), 1);
    }
}
