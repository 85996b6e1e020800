//! The cluster's page: a machine whose GPUs are in every state at once, one whose GPUs are only
//! counted, and one without any.

use std::collections::BTreeSet;

use lyceum::{
    db::gpus::Point,
    model::{Timestamp, size::GIB},
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

pub fn cluster(word: &Word) -> ClusterPage {
    let holder = |owner: Option<&str>, session: Option<&str>| GpuHolder {
        owner: owner.map(word),
        session: session.map(word),
        href: session.map(|_| "/sessions/0199a0b2".to_owned()),
    };
    let mine = Some(holder(None, Some("resnet-nb")));
    let free = gpu(word, "2", ("free", "Free"), 0);
    let slice = |number| GpuRow {
        uuid: word("MIG-2d1f7c5a-7f3b-5d0e-9a51-0f6a3c1b9e77"),
        model: word("NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
        percent: None,
        spark: Some(Spark::default()),
        memory: Some(memory(2, 5)),
        ..gpu(word, &format!("5:{number}"), ("free", "Free"), 0)
    };
    let outside = GpuRow {
        why: Some("It is busy with processes outside Lyceum, so it is not allocated.".to_owned()),
        outside: BTreeSet::from([word("carol (process 48211, 12 GiB)")]),
        ..gpu(word, "3", ("outside", "Busy (external)"), 71)
    };
    let down = GpuRow {
        why: Some("The GPU has fallen off the bus. A restart of the machine usually fixes this.".to_owned()),
        percent: None,
        memory: None,
        facts: Vec::new(),
        ..gpu(word, "4", ("failed", "Down"), 20)
    };
    let aging = GpuRow {
        holder: Some(holder(Some("bob"), None)),
        health: vec![
            "1 uncorrected memory error".to_owned(),
            "2 retired pages".to_owned(),
            "thermal throttling".to_owned(),
        ],
        worries: true,
        ..gpu(word, "1", ("running", "In use"), 96)
    };
    ClusterPage {
        layout: layout(word).at(Nav::Cluster),
        notice: Some("The owner was asked. The question is shown on the card of the session or the page of the job."),
        node: node(word),
        calendar: Some(super::machines::calendar(word)),
        isolation: Some("Isolated: a session can only use its own GPUs."),
        empty: None,
        gpus: vec![
            GpuRow { holder: mine, ..gpu(word, "0", ("running", "In use"), 87) },
            aging,
            free,
            outside,
            down,
            slice(0),
            slice(1),
        ],
        free: 3,
        over: TimeChoice::Hour,
        idle: vec![idle(word, "vit-sweep", "bob", true), idle(word, "notes", "eve", false)],
        may_act: true,
        matrix: Some(matrix()),
    }
}

pub fn counted(word: &Word) -> ClusterPage {
    let counted = |index: &str, state| GpuRow {
        model: "GPU".to_owned(),
        uuid: format!("counted-{index}"),
        seen: None,
        percent: None,
        spark: None,
        memory: None,
        facts: Vec::new(),
        ..gpu(word, index, state, 0)
    };
    ClusterPage {
        notice: None,
        isolation: Some("No NVIDIA driver: GPUs are allocated by count only, without metrics or isolation."),
        gpus: vec![counted("0", ("running", "In use")), counted("1", ("free", "Free"))],
        free: 1,
        idle: Vec::new(),
        matrix: None,
        ..cluster(word)
    }
}

pub fn none(word: &Word) -> ClusterPage {
    ClusterPage {
        isolation: None,
        empty: Some(NoGpus::NoDriver {
            library: word("libnvidia-ml.so.1"),
            why: "the library is not installed".to_owned(),
        }),
        gpus: Vec::new(),
        free: 0,
        node: NodeStrip { meters: node(word).meters.split_off(1), facts: node(word).facts.split_off(1), ..node(word) },
        ..counted(word)
    }
}

fn node(word: &Word) -> NodeStrip {
    let meter = |field, label: &str, used, limit, unit| Meter {
        field,
        label: label.to_owned(),
        used,
        limit: Some(limit),
        unit,
        ..Meter::default()
    };
    NodeStrip {
        name: word("node003"),
        meters: vec![
            meter("gpus", "GPUs allocated", 2, 7, Unit::Count),
            meter("cpus", "cores allocated", 26, 64, Unit::Count),
            meter("memory_bytes", "memory allocated", 144 * GIB, 512 * GIB, Unit::Bytes),
        ],
        facts: vec![word("NVIDIA driver 550.54.15"), "load 12.4".to_owned(), "361 GiB of memory available".to_owned()],
    }
}

fn memory(used: i64, total: i64) -> Meter {
    Meter { field: "memory", used: used * GIB, limit: Some(total * GIB), unit: Unit::Bytes, ..Meter::default() }
}

/// A GPU that computed about so much in the last hour, most of it while somebody held it.
fn gpu(word: &Word, label: &str, (class, name): (&'static str, &'static str), percent: i64) -> GpuRow {
    let swing = |minute: i64| (minute * 37 % 23) - 11;
    let point = |minute: i64| Point {
        uuid: String::new(),
        at: Timestamp(NOW.0 - (60 - minute) * 60_000),
        readings: 12,
        utilisation: f64::from(u8::try_from((percent + swing(minute)).clamp(0, 100)).unwrap()),
        memory_bytes: 0.0,
        milliwatts: 0.0,
        celsius: None,
    };
    let points: Vec<Point> = (0..60).filter(|minute| !(20..24).contains(minute)).map(point).collect();
    let held = [(NOW.plus_seconds(-2700), NOW)];
    let held = if class == "running" { &held[..] } else { &[] };
    GpuRow {
        label: label.to_owned(),
        model: word("NVIDIA A100-SXM4-40GB"),
        uuid: word("GPU-5f1c7a0e-3f6b-4f1e-8c53-2f2d1a9b7c11"),
        state: StateBadge { class, word: name },
        why: None,
        withheld: None,
        seen: Some(Moment::ago(NOW.plus_seconds(-3), NOW)),
        percent: Some(percent),
        spark: Some(Spark::new(TimeChoice::Hour, NOW, &points.iter().collect::<Vec<_>>(), held)),
        memory: Some(memory(31, 40)),
        facts: vec!["61 °C".to_owned(), "318 of 400 W".to_owned()],
        health: Vec::new(),
        worries: false,
        holder: None,
        outside: BTreeSet::new(),
    }
}

fn idle(word: &Word, name: &str, owner: &str, asked: bool) -> IdleRow {
    IdleRow {
        id: "0199a0b2-0000-7000-8000-000000000001".to_owned(),
        job: asked.then(|| "0199a0b2-0000-7000-8000-000000000005".to_owned()),
        name: word(name),
        owner: word(owner),
        gpus: "0, 1".to_owned(),
        of: if asked { 4 } else { 1 },
        since: Moment { at: NOW.plus_seconds(-5000), show: Show::Since, now: NOW },
        asked: asked.then(|| (word("oscar"), Moment::ago(NOW.plus_seconds(-600), NOW))),
    }
}

fn matrix() -> Matrix {
    let cell = |one: usize, other: usize| match (one == other, one / 2 == other / 2) {
        (true, _) => MatrixCell { word: "·".to_owned(), class: "self" },
        (false, true) => MatrixCell { word: "NV12".to_owned(), class: "near4" },
        (false, false) if one + other == 5 => MatrixCell { word: "PIX".to_owned(), class: "near3" },
        (false, false) => MatrixCell { word: "SYS".to_owned(), class: "near0" },
    };
    Matrix {
        rows: (0..6).map(|one| (one.to_string(), (0..6).map(|other| cell(one, other)).collect())).collect(),
        legend: vec![
            ("NV#".to_owned(), "number of NVLink connections"),
            ("PIX".to_owned(), "one PCIe switch"),
            ("SYS".to_owned(), "across the processors of the machine"),
        ],
    }
}
