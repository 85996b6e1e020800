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
        state: state("queued", "Scheduled"),
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
        calendar: Some(calendar(word)),
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

pub fn calendar(word: &Word) -> Calendar {
    let row = |name: &str, class, x, width, to: Option<i64>| CalendarRow {
        name: word(name),
        state: StateBadge { class: "queued", word: "Scheduled" },
        class,
        from: Moment::clock(NOW.plus_seconds(3600), NOW),
        to: to.map(|to| Moment::clock(NOW.plus_seconds(to), NOW)),
        x,
        width,
    };
    let day = |number: i64| CalendarDay { weekday: "Mon".to_owned(), date: format!("{} Nov", number + 1) };
    Calendar {
        days: (0..14).map(day).collect(),
        rows: vec![
            row("Portal maintenance", "maintenance", 400, 1000, None),
            row("course", "reserved", 120, 50, Some(7200)),
        ],
        now: 40,
    }
}

pub fn node(word: &Word) -> NodePage {
    let meter = |label: &str, used, limit, unit| Meter {
        field: "x",
        label: word(label),
        used,
        limit: Some(limit),
        unit,
        ..Meter::default()
    };
    let tile = |label: &str, percent, holder: Option<&str>| GpuTile {
        label: label.to_owned(),
        model: word("NVIDIA A100-SXM4-40GB"),
        state: StateBadge { class: "running", word: "In use" },
        percent,
        memory: percent.map(|_| meter("memory", 30 * GIB, 40 * GIB, Unit::Bytes)),
        holder: holder.map(word),
    };
    let running = |name: Option<&str>, owner: Option<&str>, href: Option<&str>| NodeWork {
        name: name.map(word),
        kind: "job",
        owner: owner.map(word),
        size: "2 × a100 · 8 cores · 64 GiB".to_owned(),
        since: Some(Moment::clock(NOW.plus_seconds(-3600), NOW)),
        href: href.map(str::to_owned),
    };
    NodePage {
        layout: layout(word).at(Nav::Cluster),
        name: word("node17"),
        cluster: word("slurm"),
        state: StateBadge { class: "outside", word: "Draining" },
        why: Some(word("the fan is broken")),
        partitions: vec![word("gpu"), word("long")],
        meters: vec![
            meter("GPUs allocated", 3, 4, Unit::Count),
            meter("cores allocated", 40, 64, Unit::Count),
            meter("memory allocated", 300 * GIB, 512 * GIB, Unit::Bytes),
        ],
        facts: vec!["NVIDIA driver 570.86".to_owned(), "load 12.5".to_owned()],
        gpus: vec![tile("0", Some(87), Some("alice")), tile("1", Some(3), Some("another user")), tile("", None, None)],
        work: vec![
            running(Some("resnet50"), None, Some("/jobs/0190")),
            running(Some("train (12_3)"), Some("bob"), None),
            running(None, Some("another user"), None),
        ],
        others: Some("3 cores · 1 GPU".to_owned()),
        calendar: Some(calendar(word)),
        drain: Some(DrainAction::Drain),
        seen: Some(Moment::ago(NOW.plus_seconds(-4), NOW)),
        trouble: Some(word("Slurm has not listed its nodes within a few seconds")),
    }
}
