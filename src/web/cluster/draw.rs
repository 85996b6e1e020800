//! From what is known of the machine to what its page shows. Nothing here asks anybody.

use std::collections::{BTreeSet, HashMap};

use super::visibility::{Visibility, VisibleHolder};
use crate::{
    cluster::{GpuView, Outsider, View},
    db::gpus::{Holding, Point},
    model::{
        Capacity, GpuInventory, Session, Timestamp,
        gpus::{Condition, Driver, Health, Link, Obstacle, Reading, labels},
        quota::Usage,
        size::human_size,
    },
    scheduler::NodeReading,
    web::views::{
        GpuHolder, GpuRow, IdleRow, Matrix, MatrixCell, Meter, Moment, NoGpus, NodeStrip, Show, Spark, StateBadge,
        TimeChoice, Unit,
    },
};

/// What the rows of the page are drawn from.
pub(super) struct Drawing<'a> {
    pub view: &'a View,
    /// Those that hold GPUs.
    pub sessions: &'a [Session],
    /// By the UUID of their GPU.
    pub holders: HashMap<&'a str, &'a Session>,
    pub sight: &'a Visibility,
    pub now: Timestamp,
    pub over: TimeChoice,
}

impl Drawing<'_> {
    pub fn rows(&self, points: &[Point], holdings: &[Holding]) -> Vec<GpuRow> {
        self.view.gpus.iter().map(|gpu| self.row(gpu, points, holdings)).collect()
    }

    /// How many can be had now.
    pub fn free(&self) -> usize {
        self.view.gpus.iter().filter(|gpu| gpu.obstacle.is_none() && self.holder(gpu).is_none()).count()
    }

    fn holder(&self, gpu: &GpuView) -> Option<&Session> {
        self.holders.get(&*gpu.gpu.uuid).copied()
    }

    fn row(&self, gpu: &GpuView, points: &[Point], holdings: &[Holding]) -> GpuRow {
        let holder = self.holder(gpu);
        let reading = gpu.condition.reading();
        let uuid = &gpu.gpu.uuid;
        let points: Vec<&Point> = points.iter().filter(|point| point.uuid == *uuid).collect();
        let held = holdings.iter().filter(|held| held.gpus.iter().any(|own| own.uuid == *uuid));
        let held: Vec<(Timestamp, Timestamp)> = held.map(|held| (held.from, held.to.unwrap_or(self.now))).collect();
        let is_measured = gpu.condition != Condition::Unmeasured;
        GpuRow {
            label: gpu.gpu.label(),
            model: gpu.gpu.model.clone(),
            uuid: uuid.clone(),
            state: badge(gpu, holder.is_some()),
            why: why(gpu),
            withheld: gpu
                .withheld
                .as_ref()
                .map(|one| (one.by.clone(), Moment::ago(one.at, self.now), one.reason.clone())),
            seen: gpu.at.filter(|_| is_measured).map(|at| Moment::ago(at, self.now)),
            percent: reading.and_then(|reading| reading.utilisation),
            spark: is_measured.then(|| Spark::new(self.over, self.now, &points, &held)),
            memory: reading.and_then(memory),
            facts: reading.map(facts).unwrap_or_default(),
            health: reading.map(|reading| complaints(&reading.health)).unwrap_or_default(),
            worries: reading.is_some_and(|reading| reading.health.worries()),
            holder: holder.map(|session| self.holder_view(session)),
            // Why it is not given out says as much to whoever may know no more.
            outside: gpu
                .outside
                .iter()
                .filter(|_| self.sight.everybody || gpu.obstacle.is_none())
                .map(|one| outsider(one, self.sight.everybody))
                .collect(),
        }
    }

    fn holder_view(&self, session: &Session) -> GpuHolder {
        let seen = self.sight.of_holder(session.id, session.owner, &session.owner_name);
        let href = seen.may_open().then(|| format!("/sessions/{}", session.id));
        match seen {
            VisibleHolder::Own => GpuHolder { owner: None, session: Some(session.name.clone()), href },
            VisibleHolder::Other(name) => GpuHolder { owner: Some(name), session: Some(session.name.clone()), href },
            VisibleHolder::Managed(name) => GpuHolder { owner: Some(name), session: None, href },
            VisibleHolder::Somebody => GpuHolder { owner: Some("another user".to_owned()), session: None, href },
        }
    }

    /// The sessions whose GPUs rest, for whoever sees everybody's.
    pub fn idle(&self) -> Vec<IdleRow> {
        let row = |idle: &crate::cluster::IdleSession| {
            let session = self.sessions.iter().find(|session| session.id == idle.session)?;
            Some(IdleRow {
                id: session.id.to_string(),
                job: session.job.map(|attempt| attempt.job.to_string()),
                name: session.name.clone(),
                owner: session.owner_name.clone(),
                gpus: labels(&idle.gpus),
                of: session.gpus.len(),
                since: Moment { at: idle.since, show: Show::Since, now: self.now },
                asked: session.asked.as_ref().map(|asked| (asked.by.clone(), Moment::ago(asked.at, self.now))),
            })
        };
        self.view.idle.iter().filter_map(row).collect()
    }
}

/// A GPU's state as a class and a word.
pub(super) fn badge(gpu: &GpuView, is_held: bool) -> StateBadge {
    let (class, word) = match (&gpu.condition, gpu.obstacle, is_held) {
        (Condition::Down(_), ..) => ("failed", "Down"),
        (_, _, true) => ("running", "In use"),
        (_, Some(Obstacle::Outside), _) => ("outside", "Busy (external)"),
        (_, Some(Obstacle::Down), _) => ("failed", "Down"),
        (_, Some(Obstacle::Withheld), _) => ("cancelled", "Held by an operator"),
        (_, None, false) => ("free", "Free"),
    };
    StateBadge { class, word }
}

fn why(gpu: &GpuView) -> Option<String> {
    match (&gpu.condition, gpu.obstacle) {
        (Condition::Down(why), _) => Some(format!("{}.", why.trim_end_matches('.'))),
        (_, Some(Obstacle::Outside)) => {
            Some("It is busy with processes outside Lyceum, so it is not allocated.".to_owned())
        }
        _ => None,
    }
}

fn memory(reading: &Reading) -> Option<Meter> {
    Some(Meter {
        field: "memory",
        label: "memory".to_owned(),
        used: reading.memory_used_bytes?,
        limit: Some(reading.memory_total_bytes?),
        unit: Unit::Bytes,
        ..Meter::default()
    })
}

fn facts(reading: &Reading) -> Vec<String> {
    let watts = |milliwatts: i64| milliwatts.saturating_add(500) / 1000;
    let power = reading.power_milliwatts.map(|used| match reading.power_limit_milliwatts {
        Some(limit) => format!("{} of {} W", watts(used), watts(limit)),
        None => format!("{} W", watts(used)),
    });
    reading.temperature_celsius.map(|degrees| format!("{degrees} °C")).into_iter().chain(power).collect()
}

/// What its memory and clocks suffer from, in words; empty where nothing is known to.
fn complaints(health: &Health) -> Vec<String> {
    let some = |count: Option<i64>| count.filter(|count| *count > 0);
    let plural = |count: i64, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let lines = [
        some(health.ecc_uncorrected).map(|count| plural(count, "uncorrected memory error")),
        some(health.ecc_corrected).map(|count| plural(count, "corrected memory error")),
        some(health.retired_pages).map(|count| plural(count, "retired page")),
        (health.retirement_pending == Some(true)).then(|| "more pages will be retired at the next reset".to_owned()),
    ];
    lines.into_iter().flatten().chain(health.slowed_by.iter().map(|reason| reason.words().to_owned())).collect()
}

/// A program outside the portal: whose, for those who see everybody.
fn outsider(one: &Outsider, everybody: bool) -> String {
    if !everybody {
        return "a process outside Lyceum".to_owned();
    }
    let whose = match (&one.unix_name, one.uid) {
        (Some(name), _) => name.clone(),
        (None, Some(uid)) => format!("uid {uid}"),
        (None, None) => "unknown user".to_owned(),
    };
    let memory = one.memory_bytes.map(|bytes| format!(", {}", human_size(bytes))).unwrap_or_default();
    format!("{whose} (process {}{memory})", one.pid)
}

/// The strip above: what the machine has, and how much of it is held.
pub(super) fn node(node: &NodeReading, capacity: &Capacity, held: &Usage, view: &View) -> NodeStrip {
    let meter = |field, label: &str, used, limit, unit| Meter {
        field,
        label: label.to_owned(),
        used,
        limit: Some(limit),
        unit,
        ..Meter::default()
    };
    let mut meters = vec![
        meter("cpus", "cores allocated", held.cpus, capacity.cpus, Unit::Count),
        meter("memory_bytes", "memory allocated", held.memory_bytes, capacity.memory_bytes, Unit::Bytes),
    ];
    if capacity.gpus > 0 {
        meters.insert(0, meter("gpus", "GPUs allocated", held.gpus, capacity.gpus, Unit::Count));
    }
    let driver = match &view.driver {
        Driver::Present { version } if !version.is_empty() => Some(format!("NVIDIA driver {version}")),
        Driver::Present { .. } => Some("NVIDIA driver".to_owned()),
        Driver::Absent { .. } => None,
    };
    let load = node.load.map(|load| format!("load {load:.1}"));
    let available = node.memory_available_bytes.map(|bytes| format!("{} of memory available", human_size(bytes)));
    NodeStrip { name: node.name.clone(), meters, facts: driver.into_iter().chain(load).chain(available).collect() }
}

/// Whether a session is kept from the GPUs of others; `None` where there are none.
pub(super) fn isolation(inventory: &GpuInventory, closes: bool) -> Option<&'static str> {
    if inventory.gpus.is_empty() {
        return None;
    }
    let in_slices = inventory.gpus.iter().any(|gpu| gpu.slice.is_some());
    Some(match (inventory.driver, closes, in_slices) {
        (false, ..) => "No NVIDIA driver: GPUs are allocated by count only, without metrics or isolation.",
        (true, false, _) => {
            "Not isolated: CUDA_VISIBLE_DEVICES restricts programs to the GPUs of their session, and a program that \
             ignores it can use all GPUs. To isolate them, run the portal as root with cgroups v1 or systemd."
        }
        (true, true, false) => "Isolated: a session can only use its own GPUs.",
        (true, true, true) => {
            "Isolated: a session can only use its own GPUs. Only CUDA_VISIBLE_DEVICES separates slices of one GPU."
        }
    })
}

/// What to say where there are no GPUs.
pub(super) fn empty(inventory: &GpuInventory, view: &View) -> Option<NoGpus> {
    if !inventory.gpus.is_empty() {
        return None;
    }
    Some(match &view.driver {
        Driver::Present { .. } => NoGpus::NoneGivenOut,
        Driver::Absent { library, why } if !library.is_empty() => {
            NoGpus::NoDriver { library: library.clone(), why: why.clone() }
        }
        Driver::Absent { .. } => NoGpus::NotLookedYet,
    })
}

/// How the GPUs are linked; `None` where there is nothing to tell. Slices stand for their GPU.
pub(super) fn matrix(inventory: &GpuInventory) -> Option<Matrix> {
    let mut gpus: Vec<_> = inventory.gpus.iter().collect();
    gpus.dedup_by_key(|gpu| gpu.index);
    if gpus.len() < 2 || !inventory.topology.is_known() {
        return None;
    }
    let mut legend: BTreeSet<(std::cmp::Reverse<Link>, String, &'static str)> = BTreeSet::new();
    let mut rows = Vec::new();
    for one in &gpus {
        let mut cells = Vec::new();
        for other in &gpus {
            if one.index == other.index {
                cells.push(MatrixCell { word: "·".to_owned(), class: "self" });
                continue;
            }
            let link = inventory.topology.link(one, other);
            let general = if let Link::NvLink(_) = link { Link::NvLink(0) } else { link };
            let word = if let Link::NvLink(_) = link { "NV#".to_owned() } else { link.word() };
            legend.insert((std::cmp::Reverse(general), word, link.meaning()));
            cells.push(MatrixCell { word: link.word(), class: nearness(link) });
        }
        rows.push((one.index.to_string(), cells));
    }
    Some(Matrix { rows, legend: legend.into_iter().map(|(_, word, meaning)| (word, meaning)).collect() })
}

fn nearness(link: Link) -> &'static str {
    match link {
        Link::NvLink(_) => "near4",
        Link::Board | Link::Switch => "near3",
        Link::Bridges | Link::HostBridge => "near2",
        Link::Node => "near1",
        Link::System | Link::Unknown => "near0",
    }
}
