//! The cluster's page in front of several machines: nodes in every state, and a site that shows
//! little while its controller is silent.

use lyceum::{
    model::size::GIB,
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

pub fn machines(word: &Word) -> MachinesPage {
    let meter = |label: &str, used, all, unit| Meter {
        field: "cpus",
        label: word(label),
        used,
        limit: Some(all),
        unit,
        ..Meter::default()
    };
    let cores = |used| meter("cores", used, 64, Unit::Count);
    let state = |class, word| StateBadge { class, word };
    let node = |name: &str, state, used, gpus| MachineRow {
        name: word(name),
        partitions: word("gpu, long"),
        state,
        word: None,
        why: None,
        cores: cores(used),
        memory: meter("memory", used * 8 * GIB, 512 * GIB, Unit::Bytes),
        gpus: vec![meter("a100", gpus, 4, Unit::Count)],
    };
    let partition = |name: &str, is_ours| PartitionRow {
        name: word(name),
        is_ours,
        state: state("running", "Up"),
        nodes: 4,
        cores: meter("cores", 128, 256, Unit::Count),
        gpus: Some(meter("GPUs", 11, 16, Unit::Count)),
        longest: "up to 1 d".to_owned(),
        jobs: Some((12, 340)),
    };
    let offer = |gpus: &str, rest: &str, name: &str| OfferRow {
        gpus: word(gpus),
        rest: rest.to_owned(),
        longest: "up to 1 d".to_owned(),
        partition: word("gpu"),
        node: Some(word(name)),
        query: "?partition=gpu&gpus=2".to_owned(),
    };
    let reservation = |name: &str, is_maintenance| ReservationRow {
        name: word(name),
        state: state("queued", "Coming"),
        from: Moment::clock(NOW.plus_seconds(3600), NOW),
        to: Moment::clock(NOW.plus_seconds(7200), NOW),
        nodes: 2,
        names: word("node1, node2"),
        who: if is_maintenance { String::new() } else { word("chem, lab") },
        is_maintenance,
    };
    MachinesPage {
        layout: layout(word).at(Nav::Cluster),
        cluster: word("slurm"),
        seen: Some(Moment::ago(NOW.plus_seconds(-4), NOW)),
        trouble: None,
        offers: vec![offer("2 × a100", "30 cores · 240 GiB", "node2"), offer("No GPU", "64 cores · 512 GiB", "node4")],
        partitions: vec![
            partition("gpu", true),
            PartitionRow { state: state("failed", "Closed"), gpus: None, jobs: None, ..partition("long", false) },
        ],
        reservations: vec![reservation("upgrade of the network", true), reservation("course", false)],
        nodes: Some(NodeTable {
            rows: vec![
                node("node1", state("running", "Full"), 64, 4),
                node("node2", state("running", "Mixed"), 34, 2),
                MachineRow { why: Some(word("fan is broken")), ..node("node3", state("outside", "Drained"), 0, 0) },
                MachineRow { gpus: Vec::new(), ..node("node4", state("free", "Idle"), 0, 0) },
                MachineRow {
                    word: Some(word("idle, not responding")),
                    why: Some(word("Not responding")),
                    ..node("node5", state("failed", "Down"), 0, 0)
                },
            ],
            first: 1,
            last: 5,
            all: 5000,
            first_href: None,
            next_href: Some("/cluster?after=node5".to_owned()),
        }),
    }
}

pub fn hidden(word: &Word) -> MachinesPage {
    MachinesPage {
        trouble: Some(word("Slurm’s controller does not respond: it took too long")),
        offers: Vec::new(),
        nodes: None,
        ..machines(word)
    }
}
