//! `/nodes/{name}`: one node as a page and as data. What runs there is listed as far as the reader may know: their own
//! work by name, others' as on the page of the cluster and in the queue.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    api::{self, NodeView},
    draw, live_workloads,
    machines::{self, ReservationView},
    queue,
    visibility::{Visibility, VisibleHolder},
};
use crate::{
    cluster::{GpuView, QueueFilter, holders},
    model::{
        JobId, Machines, Reservation, Resources, Session, SessionId, Timestamp,
        machines::{MachineState, Share},
        node_list,
    },
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{CurrentUser, Id},
        },
        page::{Nav, Page},
        sessions::cards::is_operator,
        views::{
            Calendar, DrainAction, GpuTile, Meter, Moment, NodePage, NodeWork, Show, StateBadge, Unit, resources_line,
        },
    },
};

/// A node, and what is on it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NodeDetail)]
pub struct NodeDetailView {
    node: NodeView,
    /// Its GPUs. On a cluster, those of a model that are allocated come first.
    gpus: Vec<NodeGpuView>,
    /// What runs there: your own work, and that of others as far as you may see it.
    workloads: Vec<NodeWorkloadView>,
    /// Its reservations, in the order of their start.
    reservations: Vec<ReservationView>,
}

/// A GPU of a node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NodeGpu)]
pub struct NodeGpuView {
    /// Its index, or that of a slice; null on a cluster.
    label: Option<String>,
    /// The model, as the driver or the batch system names it.
    model: String,
    /// `Free`, `In use` or another state, as on the page.
    state: &'static str,
    /// Null if it is not measured.
    utilisation_percent: Option<i64>,
    /// Used memory in bytes; null if it is not measured.
    memory_used_bytes: Option<i64>,
    /// Size of its memory in bytes; null if it is not measured.
    memory_total_bytes: Option<i64>,
    /// Name of the user it is allocated to, if you may see it.
    owner: Option<String>,
    #[serde(skip)]
    badge: StateBadge,
    #[serde(skip)]
    holder: Option<String>,
}

/// A session or job on a node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NodeWorkload)]
pub struct NodeWorkloadView {
    /// The session; null for jobs, and if you may not open it.
    #[schema(value_type = Option<String>, format = "uuid")]
    session: Option<SessionId>,
    /// The job; null for sessions, for jobs from a shell, and if you may not open it.
    #[schema(value_type = Option<String>, format = "uuid")]
    job: Option<JobId>,
    /// The name; null if you may not see it.
    name: Option<String>,
    /// The user, or the Unix account of a job from a shell; null if you may not see it.
    owner: Option<String>,
    /// Its resources on all of its nodes together.
    resources: Resources,
    #[schema(value_type = Option<String>, format = "date-time")]
    started_at: Option<Timestamp>,
    #[serde(skip)]
    is_own: bool,
    #[serde(skip)]
    nodes: i64,
    #[serde(skip)]
    kind: &'static str,
}

/// Returns a node with its GPUs, what runs there, and its reservations.
#[utoipa::path(get, path = "/nodes/{name}", tag = "cluster",
    params(("name" = String, Path, description = "The name of the node.")),
    responses((status = 200, body = NodeDetailView), (status = 404, description = "Unknown node", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(name): Id<String>,
) -> Result<Answer<NodeDetailView>> {
    Ok(Answer(gather(&portal, &user, &name).await?.detail))
}

/// All that is known of a node.
struct Found {
    detail: NodeDetailView,
    reservations: Vec<Reservation>,
    trouble: Option<String>,
    /// Whether the batch system lets the portal drain it.
    may_drain: bool,
}

async fn gather(portal: &Portal, user: &CurrentUser, name: &str) -> Result<Found> {
    match portal.sessions.scheduler.machines().await {
        Some(machines) => of_cluster(portal, user, name, machines).await,
        None => of_this_machine(portal, user, name).await,
    }
}

async fn of_cluster(portal: &Portal, user: &CurrentUser, name: &str, machines: Machines) -> Result<Found> {
    let sees_nodes = is_operator(&user.0) || !machines.hides.machines;
    let machine = machines.machines.iter().find(|machine| machine.name == name).filter(|_| sees_nodes);
    let machine = machine.ok_or_else(Error::not_found)?;
    let node = api::node_of_cluster(machine, portal.sessions.scheduler.cluster(), machines.at);
    let whose = if queue::sees_all(&user.0) { QueueFilter::Everybody } else { QueueFilter::Own };
    let (mut jobs, mut own) = (Vec::new(), None);
    if let Some(found) = portal.cluster.queue(&user.user, whose).await? {
        (jobs, own) = (found.queue.jobs, found.own.ok());
    }
    jobs.retain(|job| job.runs && node_list::holds(&job.node_names, name));
    let ours = queue::ours(portal, &jobs).await?;
    let workloads = jobs.into_iter().map(Arc::unwrap_or_clone).map(|job| {
        let session = job.session.and_then(|session| ours.get(&session));
        let attempt = session.and_then(|session| session.job);
        NodeWorkloadView {
            session: session.filter(|_| attempt.is_none()).map(|session| session.id),
            job: attempt.map(|attempt| attempt.job),
            name: Some(session.map_or(job.name, |session| session.name.clone())),
            owner: Some(session.map_or(job.user, |session| session.owner_name.clone())),
            resources: job.resources,
            started_at: job.started_at,
            is_own: own == Some(job.uid),
            nodes: job.nodes.max(1),
            kind: kind(session, "job from a shell"),
        }
    });
    let reservations: Vec<Reservation> =
        machines::reservations(&machines, is_operator(&user.0)).iter().filter(|one| one.holds(name)).cloned().collect();
    let detail = NodeDetailView {
        gpus: machine.gpus.iter().flat_map(|(model, share)| counted(model, *share)).collect(),
        workloads: workloads.collect(),
        reservations: reservations.iter().map(|one| ReservationView::new(one, true)).collect(),
        node,
    };
    Ok(Found { detail, reservations, trouble: machines.trouble, may_drain: machines.may_drain })
}

/// As many GPUs as a node has of a model; which of them are taken, the batch system does not tell.
fn counted(model: &str, share: Share) -> impl Iterator<Item = NodeGpuView> {
    (0..share.all).map(move |number| {
        let badge = if number < share.used {
            StateBadge { class: "running", word: "In use" }
        } else {
            StateBadge { class: "free", word: "Free" }
        };
        NodeGpuView {
            label: None,
            model: model.to_owned(),
            state: badge.word,
            utilisation_percent: None,
            memory_used_bytes: None,
            memory_total_bytes: None,
            owner: None,
            badge,
            holder: None,
        }
    })
}

async fn of_this_machine(portal: &Portal, user: &CurrentUser, name: &str) -> Result<Found> {
    let node = api::this_node(portal).await?;
    if node.name != name {
        return Err(Error::not_found());
    }
    let sight = Visibility::of(portal, user).await?;
    let sessions = live_workloads(portal).await?;
    let held = holders(&sessions);
    let own = user.user.name.as_str();
    let gpu = |gpu: &GpuView| {
        let session = held.get(&*gpu.gpu.uuid).copied();
        let seen = session.map(|session| sight.of_holder(session.id, session.owner, &session.owner_name));
        let badge = draw::badge(gpu, session.is_some());
        let reading = gpu.condition.reading();
        NodeGpuView {
            label: Some(gpu.gpu.label()),
            model: gpu.gpu.model.clone(),
            state: badge.word,
            utilisation_percent: reading.and_then(|reading| reading.utilisation),
            memory_used_bytes: reading.and_then(|reading| reading.memory_used_bytes),
            memory_total_bytes: reading.and_then(|reading| reading.memory_total_bytes),
            owner: seen.as_ref().and_then(|seen| seen.name(own)),
            badge,
            holder: seen.map(|seen| seen.name(own).unwrap_or_else(|| "another user".to_owned())),
        }
    };
    let gpus = portal.cluster.view().gpus.iter().map(gpu).collect();
    let workload = |session: &Session| {
        let seen = sight.of_holder(session.id, session.owner, &session.owner_name);
        let may_open = seen.may_open();
        NodeWorkloadView {
            session: Some(session.id).filter(|_| may_open && session.job.is_none()),
            job: session.job.map(|attempt| attempt.job).filter(|_| may_open),
            name: Some(session.name.clone()).filter(|_| may_open),
            owner: seen.name(own),
            resources: session.spec.resources.clone(),
            started_at: session.started_at,
            is_own: seen == VisibleHolder::Own,
            nodes: 1,
            kind: kind(Some(session), ""),
        }
    };
    let workloads = sessions.iter().filter(|session| session.placement.is_some()).map(workload).collect();
    let detail = NodeDetailView { node, gpus, workloads, reservations: Vec::new() };
    Ok(Found { detail, reservations: Vec::new(), trouble: None, may_drain: false })
}

fn kind(session: Option<&Session>, otherwise: &'static str) -> &'static str {
    match session.map(|session| session.job.is_some()) {
        Some(true) => "job",
        Some(false) => "session",
        None => otherwise,
    }
}

/// `/nodes/{name}`
pub async fn page(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(name): Id<String>) -> Result<Response> {
    let Found { detail, reservations, trouble, may_drain } = gather(&portal, &user, &name).await?;
    let (now, maintenance) = (portal.clock.now(), portal.db.maintenance().await?);
    let others = others(&detail);
    let NodeDetailView { node, gpus, workloads, .. } = detail;
    let mut meters = vec![
        machines::meter("cpus", "cores allocated", Share { used: node.cpus_held, all: node.cpus }, Unit::Count),
        machines::meter(
            "memory_bytes",
            "memory allocated",
            Share { used: node.memory_held_bytes, all: node.memory_bytes },
            Unit::Bytes,
        ),
    ];
    if node.gpus > 0 {
        let share = Share { used: node.gpus_held, all: node.gpus };
        meters.insert(0, machines::meter("gpus", "GPUs allocated", share, Unit::Count));
    }
    let facts = [
        node.driver.map(|version| format!("NVIDIA driver {version}")),
        node.load.map(|load| format!("load {load:.1}")),
    ];
    let work = |one: NodeWorkloadView| NodeWork {
        href: one.job.map(|job| format!("/jobs/{job}")).or(one.session.map(|session| format!("/sessions/{session}"))),
        owner: (!one.is_own).then(|| one.owner.unwrap_or_else(|| "another user".to_owned())),
        size: resources_line(&one.resources, &[]),
        since: one.started_at.map(|at| Moment { at, show: Show::Since, now }),
        name: one.name,
        kind: one.kind,
    };
    let page = NodePage {
        layout: portal.layout_of(&user.0, Nav::Cluster),
        name: node.name,
        cluster: node.cluster,
        state: machines::badge(node.state),
        why: node.detail,
        partitions: node.partitions,
        meters,
        facts: facts.into_iter().flatten().collect(),
        gpus: gpus.into_iter().map(tile).collect(),
        work: workloads.into_iter().map(work).collect(),
        others,
        calendar: Calendar::new(&reservations, maintenance.as_ref(), now),
        drain: (may_drain && is_operator(&user.0)).then_some(match node.state {
            MachineState::Draining | MachineState::Drained | MachineState::Down => DrainAction::Resume,
            _ => DrainAction::Drain,
        }),
        seen: node.at.map(|at| Moment::ago(at, now)),
        trouble,
    };
    Ok(Page(page).into_response())
}

fn tile(gpu: NodeGpuView) -> GpuTile {
    let memory = gpu.memory_used_bytes.zip(gpu.memory_total_bytes);
    GpuTile {
        label: gpu.label.unwrap_or_default(),
        model: gpu.model,
        state: gpu.badge,
        percent: gpu.utilisation_percent,
        memory: memory
            .map(|(used, all)| -> Meter { machines::meter("memory", "memory", Share { used, all }, Unit::Bytes) }),
        holder: gpu.holder,
    }
}

/// What of a node of a cluster is held by work that is not listed.
fn others(detail: &NodeDetailView) -> Option<String> {
    if detail.node.partitions.is_empty() {
        return None;
    }
    let each = |amount: fn(&Resources) -> i64| -> i64 {
        detail.workloads.iter().map(|one| amount(&one.resources) / one.nodes).sum()
    };
    let left = Resources {
        gpus: (detail.node.gpus_held - each(|resources| resources.gpus)).max(0),
        cpus: (detail.node.cpus_held - each(|resources| resources.cpus)).max(0),
        memory_bytes: (detail.node.memory_held_bytes - each(|resources| resources.memory_bytes)).max(0),
        gpu_model: None,
    };
    (left.gpus > 0 || left.cpus > 0).then(|| resources_line(&left, &[]))
}
