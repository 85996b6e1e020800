//! `/cluster` in front of several machines, and the same as data: `/partitions`, `/offers`, and the
//! rows of `/nodes`. What a site shows to its operators alone is left out for everybody else.

use std::sync::Arc;

use axum::{Json as Answer, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    admission::Standing,
    auth::Principal,
    model::{
        Capacity, Machines, Resources,
        machines::{Machine, MachineState, Offer, Partition, Share},
        quota::{Field, Limit},
        size::human_size,
        time::human_duration,
    },
    web::{
        Portal,
        cards::is_operator,
        error::Result,
        extract::CurrentUser,
        href::href,
        page::Nav,
        paging::Listed,
        views::{MachineRow, MachinesPage, Meter, Moment, NodeTable, OfferRow, PartitionRow, StateBadge, Unit},
    },
};

/// How many nodes a page shows.
const NODES: usize = 100;

/// The page of several machines.
pub(super) async fn page(
    portal: &Portal,
    user: &CurrentUser,
    machines: &Machines,
    after: &str,
) -> Result<MachinesPage> {
    let sees_all = is_operator(&user.0);
    let sees_nodes = sees_all || !machines.hides.machines;
    let offers = offers(portal, &user.0, machines).await?;
    let partition = |partition| partition_row(machines, partition, sees_all || !machines.hides.jobs);
    Ok(MachinesPage {
        layout: portal.layout_of(&user.0, Nav::Cluster),
        cluster: portal.sessions.scheduler.cluster().to_owned(),
        seen: machines.at.map(|at| Moment::ago(at, portal.clock.now())),
        trouble: machines.trouble.clone(),
        offers: offers.iter().map(|offer| offer_row(offer, sees_nodes)).collect(),
        partitions: machines.partitions.iter().map(partition).collect(),
        nodes: sees_nodes.then(|| nodes(machines, after)),
    })
}

/// The nodes behind one of this name, or from the first on.
fn nodes(machines: &Machines, after: &str) -> NodeTable {
    let all = &machines.machines;
    let before = all.iter().position(|machine| machine.name == after).map_or(0, |place| place + 1);
    let shown = &all[before..all.len().min(before + NODES)];
    let rest = all.len() - before - shown.len();
    let next = shown.last().filter(|_| 0 < rest).map(|last| href("/cluster", [("after", &*last.name)]));
    NodeTable {
        rows: shown.iter().map(machine_row).collect(),
        first: before + 1,
        last: before + shown.len(),
        all: all.len(),
        first_href: (0 < before).then(|| "/cluster".to_owned()),
        next_href: next,
    }
}

/// What somebody could get now, within what their quotas leave them.
async fn offers(portal: &Portal, principal: &Principal, machines: &Machines) -> Result<Vec<Offer>> {
    // Nobody knows what is free.
    if machines.trouble.is_some() {
        return Ok(Vec::new());
    }
    let standing = portal.sessions.admission.standing(principal.id()).await?;
    let left = |field: &Field| left(&standing, field);
    let all = Capacity { gpus: left(&Field::Gpus), cpus: left(&Field::Cpus), memory_bytes: left(&Field::MemoryBytes) };
    Ok(machines.offers(&all, |model| left(&Field::GpusOf(model.to_owned()))))
}

fn left(standing: &Standing, field: &Field) -> i64 {
    match standing.limits.of(field).limit {
        Limit::Unlimited => i64::MAX,
        Limit::AtMost(limit) => (limit - standing.usage.of(field)).max(0),
    }
}

fn offer_row(offer: &Offer, sees_nodes: bool) -> OfferRow {
    let Resources { gpus, gpu_model, cpus, memory_bytes } = &offer.resources;
    OfferRow {
        gpus: gpu_model.as_ref().map_or_else(|| "No GPU".to_owned(), |model| format!("{gpus} × {model}")),
        rest: format!("{cpus} {} · {}", if *cpus == 1 { "core" } else { "cores" }, human_size(*memory_bytes)),
        longest: longest(offer.most_seconds),
        partition: offer.partition.clone(),
        node: sees_nodes.then(|| offer.machine.clone()),
    }
}

fn longest(seconds: Option<i64>) -> String {
    seconds.map_or_else(|| "any time".to_owned(), |seconds| format!("up to {}", human_duration(seconds)))
}

fn partition_row(machines: &Machines, partition: &Partition, sees_jobs: bool) -> PartitionRow {
    let (nodes, cores, gpus) = sums(machines, partition);
    PartitionRow {
        name: partition.name.clone(),
        is_ours: partition.is_ours,
        state: if partition.is_up {
            StateBadge { class: "running", word: "Up" }
        } else {
            StateBadge { class: "failed", word: "Closed" }
        },
        nodes,
        cores: meter("cpus", "cores", cores, Unit::Count),
        gpus: (0 < gpus.all).then(|| meter("gpus", "GPUs", gpus, Unit::Count)),
        longest: longest(partition.most_seconds),
        jobs: sees_jobs.then_some((partition.running, partition.waiting)),
    }
}

/// How many nodes a partition has, and what of them is taken.
fn sums(machines: &Machines, partition: &Partition) -> (usize, Share, Share) {
    let (mut nodes, mut cores, mut gpus) = (0, Share::default(), Share::default());
    for machine in machines.of(&partition.name) {
        let own = machine.all_gpus();
        nodes += 1;
        cores = Share { used: cores.used + machine.cpus.used, all: cores.all + machine.cpus.all };
        gpus = Share { used: gpus.used + own.used, all: gpus.all + own.all };
    }
    (nodes, cores, gpus)
}

fn machine_row(machine: &Machine) -> MachineRow {
    let badge = badge(machine.state);
    let says_more = !machine.word.eq_ignore_ascii_case(badge.word);
    MachineRow {
        name: machine.name.clone(),
        partitions: machine.partitions.join(", "),
        word: says_more.then(|| machine.word.clone()).filter(|word| !word.is_empty()),
        state: badge,
        why: machine.reason.clone(),
        cores: meter("cpus", "cores", machine.cpus, Unit::Count),
        memory: meter("memory_bytes", "memory", machine.memory_bytes, Unit::Bytes),
        gpus: machine.gpus.iter().map(|(model, share)| meter("gpus", model, *share, Unit::Count)).collect(),
    }
}

fn badge(state: MachineState) -> StateBadge {
    let (class, word) = match state {
        MachineState::Idle => ("free", "Idle"),
        MachineState::Mixed => ("running", "Mixed"),
        MachineState::Full => ("running", "Full"),
        MachineState::Draining => ("outside", "Draining"),
        MachineState::Drained => ("outside", "Drained"),
        MachineState::Down => ("failed", "Down"),
        MachineState::Unknown => ("unknown", "Unknown"),
    };
    StateBadge { class, word }
}

fn meter(field: &'static str, label: &str, share: Share, unit: Unit) -> Meter {
    Meter { field, label: label.to_owned(), used: share.used, limit: Some(share.all), unit, ..Meter::default() }
}

/// Machines that are asked for by one name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Partition)]
pub struct PartitionView {
    name: String,
    /// Whether sessions and jobs of the portal go there.
    is_ours: bool,
    /// Whether it takes jobs.
    is_up: bool,
    nodes: usize,
    cpus: i64,
    cpus_held: i64,
    gpus: i64,
    gpus_held: i64,
    /// How long a job may run there; null: for ever.
    longest_seconds: Option<i64>,
    /// Everybody's jobs that run; null where the site shows them to operators alone.
    running: Option<i64>,
    /// Everybody's jobs that wait there.
    waiting: Option<i64>,
}

/// The partitions of a cluster; none where everything runs on one machine.
#[utoipa::path(get, path = "/partitions", tag = "cluster", responses((status = 200, body = Listed<PartitionView>)))]
pub async fn partitions(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Answer<Listed<PartitionView>>> {
    let machines = portal.sessions.scheduler.machines().await.unwrap_or_default();
    let sees_jobs = is_operator(&user.0) || !machines.hides.jobs;
    let view = |partition: &Partition| {
        let (nodes, cores, gpus) = sums(&machines, partition);
        PartitionView {
            name: partition.name.clone(),
            is_ours: partition.is_ours,
            is_up: partition.is_up,
            nodes,
            cpus: cores.all,
            cpus_held: cores.used,
            gpus: gpus.all,
            gpus_held: gpus.used,
            longest_seconds: partition.most_seconds,
            running: sees_jobs.then_some(partition.running),
            waiting: sees_jobs.then_some(partition.waiting),
        }
    };
    Ok(Answer(Listed { items: machines.partitions.iter().map(view).collect(), next_cursor: None }))
}

/// The largest workload of its kind that would start now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Offer)]
pub struct OfferView {
    resources: Resources,
    partition: String,
    /// Null where the site shows its nodes to operators alone.
    node: Option<String>,
    /// How long it may run; null: for ever.
    longest_seconds: Option<i64>,
}

/// What the asker could get now on one node of a cluster, within their quota: the most with GPUs
/// of each model, and without any. Nothing where everything runs on one machine.
#[utoipa::path(get, path = "/offers", tag = "cluster", responses((status = 200, body = Listed<OfferView>)))]
pub async fn offered(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Answer<Listed<OfferView>>> {
    let machines = portal.sessions.scheduler.machines().await.unwrap_or_default();
    let sees_nodes = is_operator(&user.0) || !machines.hides.machines;
    let view = |offer: Offer| OfferView {
        resources: offer.resources,
        partition: offer.partition,
        node: sees_nodes.then_some(offer.machine),
        longest_seconds: offer.most_seconds,
    };
    let items = offers(&portal, &user.0, &machines).await?.into_iter().map(view).collect();
    Ok(Answer(Listed { items, next_cursor: None }))
}
