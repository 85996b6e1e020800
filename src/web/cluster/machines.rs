//! `/cluster` in front of several machines, and the same as data: `/partitions`, `/offers`, and the
//! rows of `/nodes`. What a site shows to its operators alone is left out for everybody else.

use std::sync::Arc;

use axum::{Json as Answer, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::choices::choices;
use crate::{
    admission::QuotaStatus,
    model::{
        Capacity, Machines, Reservation, Resources, Timestamp,
        line::abridged,
        machines::{Machine, MachineState, Offer, Partition, Share},
        quota::{Field, Limit},
        size::{MIB, human_size},
        time::human_duration,
    },
    web::{
        Portal,
        http::{
            error::{Problem, Result},
            extract::{CurrentUser, Query},
            href::href,
            paging::{Listed, Paging},
        },
        page::Nav,
        sessions::cards::is_operator,
        views::{
            Calendar, MachineRow, MachinesPage, Meter, Moment, NodeTable, OfferRow, PartitionRow, ReservationRow,
            StateBadge, Unit,
        },
    },
};

/// What a session asks for by itself (seconds).
const USUAL_SECONDS: i64 = 8 * 3600;

/// How many nodes a page shows.
const NODES: usize = 80;

/// The page of several machines.
pub(super) async fn page(
    portal: &Portal,
    user: &CurrentUser,
    machines: &Machines,
    after: &str,
) -> Result<MachinesPage> {
    let sees_all = is_operator(&user.0);
    let sees_nodes = sees_all || !machines.hides.machines;
    let offers = offers(portal, user, machines).await?;
    let partition = |partition| partition_row(machines, partition, sees_all || !machines.hides.jobs);
    let now = portal.clock.now();
    let maintenance = portal.db.maintenance().await?;
    Ok(MachinesPage {
        calendar: Calendar::new(reservations(machines, sees_all), maintenance.as_ref(), now),
        layout: portal.layout_of(&user.0, Nav::Cluster),
        cluster: portal.sessions.scheduler.cluster().to_owned(),
        seen: machines.at.map(|at| Moment::ago(at, portal.clock.now())),
        trouble: machines.trouble.clone(),
        offers: offers.iter().map(|offer| offer_row(offer, sees_nodes)).collect(),
        partitions: machines.partitions.iter().map(partition).collect(),
        reservations: reservations(machines, sees_all)
            .iter()
            .map(|one| reservation_row(one, portal.clock.now()))
            .collect(),
        nodes: sees_nodes.then(|| nodes(machines, after)),
    })
}

/// The nodes behind one of this name, or from the first on.
fn nodes(machines: &Machines, after: &str) -> NodeTable {
    let all = &machines.machines;
    let before = all.iter().position(|machine| machine.name == after).map_or(0, |place| place + 1);
    let shown = &all[before..all.len().min(before + NODES)];
    let rest = all.len() - before - shown.len();
    let next = shown.last().filter(|_| rest > 0).map(|last| href("/cluster", [("after", &*last.name)]));
    NodeTable {
        rows: shown.iter().map(machine_row).collect(),
        first: before + 1,
        last: before + shown.len(),
        all: all.len(),
        first_href: (before > 0).then(|| "/cluster".to_owned()),
        next_href: next,
    }
}

/// What somebody could get now, within what their quotas leave them.
async fn offers(portal: &Portal, user: &CurrentUser, machines: &Machines) -> Result<Vec<Offer>> {
    // Nobody knows what is free.
    if machines.trouble.is_some() {
        return Ok(Vec::new());
    }
    let standing = portal.sessions.admission.standing(user.id()).await?;
    let choices = choices(portal, user).await?.unwrap_or_default();
    let chosen = choices.partition.values();
    let may_use = |partition: &Partition| partition.is_ours || chosen.contains(&partition.name);
    let left = |field: &Field| left(&standing, field);
    let all = Capacity { gpus: left(&Field::Gpus), cpus: left(&Field::Cpus), memory_bytes: left(&Field::MemoryBytes) };
    Ok(machines.offers(&all, |model| left(&Field::GpusOf(model.to_owned())), may_use, portal.clock.now()))
}

fn left(standing: &QuotaStatus, field: &Field) -> i64 {
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
        query: query(offer),
    }
}

/// What leads into a form with this place and size.
fn query(offer: &Offer) -> String {
    let Resources { gpus, gpu_model, cpus, memory_bytes } = &offer.resources;
    let (gpus, cpus, memory) = (gpus.to_string(), cpus.to_string(), format!("{} MiB", memory_bytes / MIB));
    // The usual time, or as long as it can be there.
    let seconds = offer.most_seconds.filter(|most| *most < USUAL_SECONDS).map(|most| most.to_string());
    let named = [("partition", &*offer.partition), ("gpus", &*gpus), ("cpus", &*cpus), ("memory", &*memory)];
    let model = gpu_model.iter().map(|model| ("gpu_model", &**model));
    let seconds = seconds.iter().map(|seconds| ("duration", &**seconds));
    href("", named.into_iter().chain(model).chain(seconds))
}

/// The reservations that a reader may see; a site may show them to operators alone.
pub(super) fn reservations(machines: &Machines, sees_all: bool) -> &[Reservation] {
    if sees_all || !machines.hides.reservations { &machines.reservations } else { &[] }
}

pub(super) fn reservation_row(reservation: &Reservation, now: Timestamp) -> ReservationRow {
    let is_active = reservation.from <= now;
    let who = [&reservation.users[..], &reservation.accounts[..]].concat();
    ReservationRow {
        name: reservation.name.clone(),
        state: match (reservation.is_maintenance, is_active) {
            (true, true) => StateBadge { class: "outside", word: "Maintenance" },
            (false, true) => StateBadge { class: "running", word: "Active" },
            (_, false) => StateBadge { class: "queued", word: "Scheduled" },
        },
        from: Moment::clock(reservation.from, now),
        to: Moment::clock(reservation.to, now),
        nodes: reservation.nodes.len(),
        names: abridged(&reservation.nodes.join(", "), 80),
        who: abridged(&who.join(", "), 80),
        is_maintenance: reservation.is_maintenance,
    }
}

fn longest(seconds: Option<i64>) -> String {
    seconds.map_or_else(|| "no limit".to_owned(), |seconds| format!("up to {}", human_duration(seconds)))
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
        gpus: (gpus.all > 0).then(|| meter("gpus", "GPUs", gpus, Unit::Count)),
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

pub(super) fn badge(state: MachineState) -> StateBadge {
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

pub(super) fn meter(field: &'static str, label: &str, share: Share, unit: Unit) -> Meter {
    Meter { field, label: label.to_owned(), used: share.used, limit: Some(share.all), unit, ..Meter::default() }
}

/// A partition of the cluster.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Partition)]
pub struct PartitionView {
    name: String,
    /// Whether the portal submits sessions and jobs to it.
    is_ours: bool,
    /// Whether it accepts jobs.
    is_up: bool,
    nodes: usize,
    cpus: i64,
    cpus_held: i64,
    gpus: i64,
    gpus_held: i64,
    /// Longest time limit in seconds; null: no limit.
    longest_seconds: Option<i64>,
    /// Running jobs of all users; null if only operators can see them.
    running: Option<i64>,
    /// Pending jobs of all users; null if only operators can see them.
    waiting: Option<i64>,
}

/// Lists the partitions of the cluster.
///
/// Empty if everything runs on one machine.
#[utoipa::path(get, path = "/partitions", tag = "cluster", params(Paging),
    responses((status = 200, body = Listed<PartitionView>)))]
pub async fn partitions(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(paging): Query<Paging>,
) -> Result<Answer<Listed<PartitionView>>> {
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
    Ok(Answer(Listed::cut(&machines.partitions, &paging, |partition| &partition.name, view)?))
}

/// Nodes that are reserved for some users or for maintenance.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reservation)]
pub struct ReservationView {
    name: String,
    #[schema(value_type = String, format = "date-time")]
    starts_at: Timestamp,
    #[schema(value_type = String, format = "date-time")]
    ends_at: Timestamp,
    /// Empty if only operators can see the nodes.
    nodes: Vec<String>,
    partition: Option<String>,
    /// Users who may use it.
    users: Vec<String>,
    accounts: Vec<String>,
    is_maintenance: bool,
}

impl ReservationView {
    pub(super) fn new(one: &Reservation, sees_nodes: bool) -> Self {
        Self {
            name: one.name.clone(),
            starts_at: one.from,
            ends_at: one.to,
            nodes: if sees_nodes { one.nodes.clone() } else { Vec::new() },
            partition: one.partition.clone(),
            users: one.users.clone(),
            accounts: one.accounts.clone(),
            is_maintenance: one.is_maintenance,
        }
    }
}

/// Lists Slurm's reservations in the order of their start.
///
/// A job uses one with `--reservation`; other jobs do not start on its nodes. Empty if everything runs on one machine.
#[utoipa::path(get, path = "/reservations", tag = "cluster", params(Paging),
    responses((status = 200, body = Listed<ReservationView>),
        (status = 422, description = "Invalid parameter", body = Problem)))]
pub async fn reserved(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(paging): Query<Paging>,
) -> Result<Answer<Listed<ReservationView>>> {
    let machines = portal.sessions.scheduler.machines().await.unwrap_or_default();
    let sees_all = is_operator(&user.0);
    let view = |one: &Reservation| ReservationView::new(one, sees_all || !machines.hides.machines);
    Ok(Answer(Listed::cut(reservations(&machines, sees_all), &paging, |one| &one.name, view)?))
}

/// The largest request of its kind that would start now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Offer)]
pub struct OfferView {
    resources: Resources,
    partition: String,
    /// Null if only operators can see the nodes.
    node: Option<String>,
    /// Longest time limit in seconds; null: no limit.
    longest_seconds: Option<i64>,
}

/// Lists what you could get now on one node of the cluster, within your quota.
///
/// The largest request with GPUs of each model, and the largest without GPUs. Empty if everything runs on one machine.
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
    let items = offers(&portal, &user, &machines).await?.into_iter().map(view).collect();
    Ok(Answer(Listed { items, next_cursor: None }))
}
