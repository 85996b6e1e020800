//! What the portal manages, as numbers for Prometheus, gathered when they are scraped: sessions and jobs, the queue,
//! GPUs, what groups hold, the loops and the database. Labels have few values: apps that are configured, states,
//! groups, and GPUs of this machine. Nobody's name, and no session, is among them.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use super::super::Portal;
use crate::{
    cluster::{GpuView, View},
    db::{self, groups::GroupFilter, sessions::LiveCount},
    model::{
        Timestamp,
        gpus::{Condition, Obstacle},
        quota::Usage,
    },
    proxy,
};

/// How many groups are reported; a site with more sees the first by name.
const MAX_GROUPS: i64 = 200;

/// How many GPUs of this machine are reported one by one.
const MAX_GPUS: usize = 64;

type Numbers<L> = Family<L, Gauge<f64, AtomicU64>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkloadLabels {
    kind: &'static str,
    app: String,
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabels {
    group: String,
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GpuLabels {
    gpu: String,
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LoopLabels {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

/// Returns a registry with the numbers of this moment.
pub(super) async fn gather(portal: &Portal) -> db::Result<Registry> {
    let mut registry = Registry::with_prefix("lyceum");
    let now = portal.clock.now();
    let health = portal.db.health().await?;
    let database: Gauge<f64, AtomicU64> = Gauge::default();
    database.set(health.latency.as_secs_f64());
    registry.register_with_unit("database_latency", "Response time of the database", Unit::Seconds, database);
    let size: Gauge<f64, AtomicU64> = Gauge::default();
    size.set(number(health.bytes));
    registry.register_with_unit("database_size", "Size of the database", Unit::Bytes, size);
    workloads(&mut registry, portal, &portal.db.count_live().await?, now);
    holdings(&mut registry, portal).await?;
    gpus(&mut registry, &portal.cluster.view());
    loops(&mut registry, portal);
    let (up, down) = proxy::total_bytes();
    let bytes = Family::<DirectionLabels, Counter>::default();
    bytes.get_or_create(&DirectionLabels { direction: "to_apps" }).inc_by(up);
    bytes.get_or_create(&DirectionLabels { direction: "from_apps" }).inc_by(down);
    registry.register_with_unit("proxy", "Data between browsers and apps", Unit::Bytes, bytes);
    Ok(registry)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of a dashboard are approximate")]
fn number(value: i64) -> f64 {
    value as f64
}

fn workloads(registry: &mut Registry, portal: &Portal, counts: &[LiveCount], now: Timestamp) {
    let (all, queue, oldest) =
        (Numbers::<WorkloadLabels>::default(), Numbers::<KindLabels>::default(), Numbers::<KindLabels>::default());
    for kind in ["session", "job"] {
        queue.get_or_create(&KindLabels { kind }).set(0.0);
        oldest.get_or_create(&KindLabels { kind }).set(0.0);
    }
    for count in counts {
        let kind = if count.is_job { "job" } else { "session" };
        // An app that is no longer configured would stay a label for ever.
        let is_known = count.is_job || portal.sessions.apps.find(&count.app).is_some();
        let app = if is_known { count.app.clone() } else { "other".to_owned() };
        all.get_or_create(&WorkloadLabels { kind, app, state: count.state.clone() }).inc_by(number(count.count));
        if count.state == "queued" {
            queue.get_or_create(&KindLabels { kind }).inc_by(number(count.count));
            let waited = number(now.seconds_since(count.oldest).max(0));
            let longest = oldest.get_or_create(&KindLabels { kind });
            if longest.get() < waited {
                longest.set(waited);
            }
        }
    }
    registry.register("workloads", "Live sessions and jobs by app and state", all);
    registry.register("queue_length", "Pending sessions and jobs", queue);
    registry.register_with_unit("queue_oldest", "Longest time that a request is pending", Unit::Seconds, oldest);
}

async fn holdings(registry: &mut Registry, portal: &Portal) -> db::Result<()> {
    let held = portal.sessions.admission.holdings().await?;
    let capacity = portal.sessions.admission.stock.capacity();
    let (all, there, groups) =
        (Numbers::<ResourceLabels>::default(), Numbers::<ResourceLabels>::default(), Numbers::<GroupLabels>::default());
    for (resource, value) in resources(&held.all) {
        all.get_or_create(&ResourceLabels { resource }).set(number(value));
    }
    for (resource, value) in [("gpus", capacity.gpus), ("cpus", capacity.cpus), ("memory_bytes", capacity.memory_bytes)]
    {
        there.get_or_create(&ResourceLabels { resource }).set(number(value));
    }
    let filter = GroupFilter { find: String::new(), manager: None, after: None, limit: MAX_GROUPS };
    for one in portal.db.list_groups(&filter).await? {
        let usage = held.by_group.get(&one.group.id).cloned().unwrap_or_default();
        for (resource, value) in resources(&usage) {
            groups.get_or_create(&GroupLabels { group: one.group.name.clone(), resource }).set(number(value));
        }
    }
    registry.register("allocated", "Resources that sessions and jobs hold", all);
    registry.register("capacity", "Resources of the machine or cluster", there);
    registry.register("group_allocated", "Resources that members of a group hold, as its quota counts them", groups);
    Ok(())
}

fn resources(usage: &Usage) -> [(&'static str, i64); 5] {
    [
        ("gpus", usage.gpus),
        ("cpus", usage.cpus),
        ("memory_bytes", usage.memory_bytes),
        ("sessions", usage.sessions),
        ("jobs", usage.jobs),
    ]
}

fn gpus(registry: &mut Registry, view: &View) {
    let states = Numbers::<StateLabels>::default();
    for state in ["free", "allocated", "outside", "down"] {
        states.get_or_create(&StateLabels { state }).set(0.0);
    }
    for one in &view.gpus {
        states.get_or_create(&StateLabels { state: state(one) }).inc();
    }
    let family = Numbers::<GpuLabels>::default;
    let (busy, memory, celsius, watts, errors, xid) = (family(), family(), family(), family(), family(), family());
    let joules = Family::<GpuLabels, Counter<f64, AtomicU64>>::default();
    let measured = view.gpus.iter().filter_map(|one| Some((&one.gpu, one.condition.reading()?)));
    for (gpu, reading) in measured.take(MAX_GPUS) {
        let labels = GpuLabels { gpu: gpu.label(), model: gpu.model.clone() };
        let set = |family: &Numbers<GpuLabels>, value: Option<f64>| {
            if let Some(value) = value {
                family.get_or_create(&labels).set(value);
            }
        };
        set(&busy, reading.utilisation.map(|percent| number(percent) / 100.0));
        set(&memory, reading.memory_used_bytes.map(number));
        set(&celsius, reading.temperature_celsius.map(number));
        set(&watts, reading.power_milliwatts.map(|milliwatts| number(milliwatts) / 1000.0));
        set(&errors, reading.health.ecc_uncorrected.map(number));
        set(&xid, reading.health.xid.map(number));
        if let Some(millijoules) = reading.energy_millijoules {
            joules.get_or_create(&labels).inc_by(number(millijoules) / 1000.0);
        }
    }
    let resting: usize = view.idle.iter().map(|idle| idle.gpus.len()).sum();
    let idle: Gauge<f64, AtomicU64> = Gauge::default();
    idle.set(number(i64::try_from(resting).unwrap_or(i64::MAX)));
    registry.register("gpus", "GPUs by state", states);
    registry.register("gpus_idle", "Allocated GPUs that are idle for longer than gpus.idle_after", idle);
    registry.register_with_unit("gpu_utilisation", "Utilisation of a GPU, 0 to 1", Unit::Ratios, busy);
    registry.register_with_unit("gpu_memory_used", "Memory in use on a GPU", Unit::Bytes, memory);
    registry.register_with_unit("gpu_temperature", "Temperature of a GPU", Unit::Celsius, celsius);
    registry.register_with_unit("gpu_power", "Power of a GPU", Unit::Other("watts".to_owned()), watts);
    let help = "Energy that a GPU has used since its driver was loaded";
    registry.register_with_unit("gpu_energy", help, Unit::Joules, joules);
    registry.register("gpu_ecc_uncorrected", "Uncorrected memory errors of a GPU since its driver was loaded", errors);
    registry.register("gpu_xid", "Code of the last critical error (XID) of a GPU", xid);
}

fn state(view: &GpuView) -> &'static str {
    match (&view.condition, view.obstacle) {
        (Condition::Down(_), _) | (_, Some(Obstacle::Down)) => "down",
        _ if view.is_held => "allocated",
        (_, Some(Obstacle::Outside)) => "outside",
        (_, Some(Obstacle::Withheld)) => "withheld",
        _ => "free",
    }
}

fn loops(registry: &mut Registry, portal: &Portal) {
    let (took, last, failed) =
        (Numbers::<LoopLabels>::default(), Numbers::<LoopLabels>::default(), Numbers::<LoopLabels>::default());
    for (name, rounds) in portal.surroundings.loops.list() {
        let labels = LoopLabels { name };
        took.get_or_create(&labels).set(rounds.took.as_secs_f64());
        failed.get_or_create(&labels).set(if rounds.failed { 1.0 } else { 0.0 });
        if let Some(at) = rounds.last_at {
            last.get_or_create(&labels).set(number(at.0) / 1000.0);
        }
    }
    let scheduler: Gauge<f64, AtomicU64> = Gauge::default();
    scheduler.set(if portal.sessions.scheduler.trouble().is_none() { 1.0 } else { 0.0 });
    registry.register_with_unit("loop_last_duration", "Duration of the last run of a loop", Unit::Seconds, took);
    registry.register_with_unit("loop_last_run_timestamp", "End of the last run of a loop", Unit::Seconds, last);
    registry.register("loop_failed", "1 if the last run of a loop failed", failed);
    registry.register("scheduler_up", "1 if the scheduler can start and end workloads", scheduler);
}
