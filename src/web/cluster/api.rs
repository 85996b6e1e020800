//! `/nodes` and `/gpus` over REST: what the page of the machines shows, as data. Who holds a
//! GPU is told to whom `sight` lets see it.

#![expect(unused_qualifications, reason = "utoipa's macro spells the types of parameters its own way")]

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::{Path, State},
    http::HeaderMap,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    ask_owner, live,
    visibility::{Visibility, VisibleHolder},
    withheld::WithheldView,
};
use crate::{
    cluster::{GpuView, HOURS_KEPT, MINUTES_KEPT, holders},
    db::gpus::{Point, Span},
    model::{
        Session, SessionId, Timestamp,
        gpus::{Condition, Driver, Health, Obstacle},
        machines::{Machine, MachineState, Share},
    },
    sessions::Actor,
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{CurrentUser, Id, Operator, Query},
            paging::{Listed, Paging},
        },
        sessions::{SessionView, cards::is_operator},
    },
};

/// A node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeView {
    pub(super) name: String,
    pub(super) cluster: String,
    pub(super) cpus: i64,
    /// Cores allocated to sessions; on a cluster, to any job. Light sessions share cores, so it can exceed `cpus`.
    pub(super) cpus_held: i64,
    pub(super) memory_bytes: i64,
    pub(super) memory_held_bytes: i64,
    pub(super) gpus: i64,
    pub(super) gpus_held: i64,
    /// Load average over the last minute.
    pub(super) load: Option<f64>,
    pub(super) memory_available_bytes: Option<i64>,
    /// The version of the NVIDIA driver; null without one.
    pub(super) driver: Option<String>,
    /// The library that was searched for and why it could not be loaded; null if there is a driver.
    pub(super) driver_missing: Option<String>,
    pub(super) state: MachineState,
    /// Why it does not accept work.
    pub(super) detail: Option<String>,
    /// The partitions that it belongs to. Empty if there is only one machine.
    pub(super) partitions: Vec<String>,
    /// Its GPUs, by model.
    pub(super) gpu_models: Vec<GpuModelView>,
    /// Whether the kernel isolates the GPUs of sessions from each other. Otherwise they are allocated by count only.
    pub(super) gpus_kept_apart: bool,
    /// When its GPUs were last queried.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub(super) at: Option<Timestamp>,
}

/// Number of GPUs of one model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GpuModel)]
pub struct GpuModelView {
    pub(super) model: String,
    pub(super) gpus: i64,
    pub(super) gpus_held: i64,
}

/// Lists the nodes: this machine, or the nodes of the cluster.
///
/// A site can show the nodes of a cluster only to operators; the list is then empty for other users.
#[utoipa::path(get, path = "/nodes", tag = "cluster", params(Paging),
    responses((status = 200, body = Listed<NodeView>),
        (status = 422, description = "Invalid parameter", body = Problem)))]
pub async fn nodes(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(paging): Query<Paging>,
) -> Result<Answer<Listed<NodeView>>> {
    let scheduler = &portal.sessions.scheduler;
    if let Some(mut machines) = scheduler.machines().await {
        if machines.hides.machines && !is_operator(&user.0) {
            machines.machines.clear();
        }
        let node = |machine: &Machine| node_of_cluster(machine, scheduler.cluster(), machines.at);
        return Ok(Answer(Listed::cut(&machines.machines, &paging, |machine| &machine.name, node)?));
    }
    Ok(Answer(Listed { items: vec![this_node(&portal).await?], next_cursor: None }))
}

/// This machine, where it is the only one.
pub(super) async fn this_node(portal: &Portal) -> Result<NodeView> {
    let scheduler = &portal.sessions.scheduler;
    let (capacity, view) = (portal.sessions.admission.stock.capacity(), portal.cluster.view());
    let held = portal.sessions.admission.holdings().await?.all;
    let reading = scheduler.node().await;
    let (driver, driver_missing) = match &view.driver {
        Driver::Present { version } => (Some(version.clone()), None),
        Driver::Absent { library, why } if !library.is_empty() => (None, Some(format!("{library}: {why}"))),
        Driver::Absent { .. } => (None, None),
    };
    Ok(NodeView {
        name: reading.name,
        cluster: scheduler.cluster().to_owned(),
        cpus: capacity.cpus,
        cpus_held: held.cpus,
        memory_bytes: capacity.memory_bytes,
        memory_held_bytes: held.memory_bytes,
        gpus: capacity.gpus,
        gpus_held: held.gpus,
        load: reading.load,
        memory_available_bytes: reading.memory_available_bytes,
        driver,
        driver_missing,
        state: match held.cpus {
            0 => MachineState::Idle,
            cpus if cpus < capacity.cpus => MachineState::Mixed,
            _ => MachineState::Full,
        },
        detail: None,
        partitions: Vec::new(),
        gpu_models: Vec::new(),
        gpus_kept_apart: scheduler.closes_gpus(),
        at: view.at,
    })
}

pub(super) fn node_of_cluster(machine: &Machine, cluster: &str, at: Option<Timestamp>) -> NodeView {
    let gpus = machine.all_gpus();
    let model = |(model, share): &(String, Share)| GpuModelView {
        model: model.clone(),
        gpus: share.all,
        gpus_held: share.used,
    };
    NodeView {
        name: machine.name.clone(),
        cluster: cluster.to_owned(),
        cpus: machine.cpus.all,
        cpus_held: machine.cpus.used,
        memory_bytes: machine.memory_bytes.all,
        memory_held_bytes: machine.memory_bytes.used,
        gpus: gpus.all,
        gpus_held: gpus.used,
        load: None,
        memory_available_bytes: None,
        driver: None,
        driver_missing: None,
        state: machine.state,
        detail: machine.reason.clone(),
        partitions: machine.partitions.clone(),
        gpu_models: machine.gpus.iter().map(model).collect(),
        gpus_kept_apart: false,
        at,
    }
}

/// The current state of a GPU, or of a slice of one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GpuState)]
pub struct GpuAnswer {
    index: i64,
    /// Number of the slice of that GPU; null for a whole GPU.
    slice: Option<i64>,
    uuid: String,
    model: String,
    /// `free`, `held`, `busy_outside` (busy with processes outside the portal), `withheld` (an operator keeps it from
    /// new work) or `down`.
    state: &'static str,
    /// Why it is down.
    detail: Option<String>,
    /// When the driver reported these values; null without a driver.
    #[schema(value_type = Option<String>, format = "date-time")]
    at: Option<Timestamp>,
    utilisation_percent: Option<i64>,
    memory_used_bytes: Option<i64>,
    memory_total_bytes: Option<i64>,
    temperature_celsius: Option<i64>,
    power_milliwatts: Option<i64>,
    power_limit_milliwatts: Option<i64>,
    health: Option<Health>,
    /// Name of the user it is allocated to. Visible to operators, to managers of that user's group and to the user.
    owner: Option<String>,
    /// The session it is allocated to. Visible to users who may open that session.
    #[schema(value_type = Option<String>, format = "uuid")]
    session: Option<SessionId>,
    /// Since when it has been allocated but almost idle. Visible to users who may open the session.
    #[schema(value_type = Option<String>, format = "date-time")]
    idle_since: Option<Timestamp>,
    /// When an operator asked whether it is still needed. Visible to users who may open the session.
    #[schema(value_type = Option<String>, format = "date-time")]
    asked_at: Option<Timestamp>,
    /// Why an operator keeps it from new work; null if none does.
    withheld: Option<WithheldView>,
    /// Processes outside the portal. Only operators see their owners.
    outside: Vec<OutsideProgram>,
    /// Links to the other GPUs.
    links: Vec<GpuLink>,
}

/// A process on a GPU that was started outside the portal.
#[derive(Debug, Serialize, ToSchema)]
pub struct OutsideProgram {
    pid: Option<u32>,
    unix_name: Option<String>,
    memory_bytes: Option<i64>,
}

/// The link to another GPU, in the words of `nvidia-smi topo -m`.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuLink {
    uuid: String,
    link: String,
}

/// Lists all GPUs and slices with their current state.
#[utoipa::path(get, path = "/gpus", tag = "cluster", params(Paging),
    responses((status = 200, body = Listed<GpuAnswer>),
        (status = 422, description = "Invalid parameter", body = Problem)))]
pub async fn gpus(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(paging): Query<Paging>,
) -> Result<Answer<Listed<GpuAnswer>>> {
    let sight = Visibility::of(&portal, &user).await?;
    let sessions = live(&portal).await?;
    let inventory = portal.sessions.scheduler.stock().inventory();
    let view = portal.cluster.view();
    let holders = holders(&sessions);
    // Only the GPUs of one machine are linked, and those are few.
    let linked = if inventory.topology.is_known() { &inventory.gpus[..] } else { &[] };
    let answer = |gpu: &GpuView| {
        let holder = holders.get(&*gpu.gpu.uuid).copied();
        let seen = holder.map(|session| (session, sight.of_holder(session.id, session.owner, &session.owner_name)));
        let own = user.user.name.as_str();
        let reading = gpu.condition.reading();
        let opens = seen.as_ref().filter(|(_, seen)| seen.may_open()).map(|(session, _)| *session);
        let rests = |session: &&Session| {
            let idle = view.idle.iter().find(|idle| idle.session == session.id)?;
            idle.gpus.iter().any(|own| own.uuid == gpu.gpu.uuid).then_some(idle.since)
        };
        let idle_since = opens.as_ref().and_then(rests);
        let others = linked.iter().filter(|other| other.uuid != gpu.gpu.uuid);
        GpuAnswer {
            index: gpu.gpu.index,
            slice: gpu.gpu.slice,
            uuid: gpu.gpu.uuid.clone(),
            model: gpu.gpu.model.clone(),
            state: state(gpu, holder.is_some()),
            detail: if let Condition::Down(why) = &gpu.condition { Some(why.clone()) } else { None },
            at: gpu.at.filter(|_| gpu.condition != Condition::Unmeasured),
            utilisation_percent: reading.and_then(|reading| reading.utilisation),
            memory_used_bytes: reading.and_then(|reading| reading.memory_used_bytes),
            memory_total_bytes: reading.and_then(|reading| reading.memory_total_bytes),
            temperature_celsius: reading.and_then(|reading| reading.temperature_celsius),
            power_milliwatts: reading.and_then(|reading| reading.power_milliwatts),
            power_limit_milliwatts: reading.and_then(|reading| reading.power_limit_milliwatts),
            health: reading.map(|reading| reading.health.clone()),
            owner: seen.as_ref().and_then(|(_, seen)| seen.name(own)),
            session: opens.map(|session| session.id),
            idle_since,
            asked_at: opens.filter(|_| idle_since.is_some()).and_then(|session| Some(session.asked.as_ref()?.at)),
            withheld: gpu.withheld.clone().map(WithheldView::from),
            outside: gpu
                .outside
                .iter()
                .map(|program| OutsideProgram {
                    pid: sight.everybody.then_some(program.pid),
                    unix_name: program.unix_name.clone().filter(|_| sight.everybody),
                    memory_bytes: program.memory_bytes,
                })
                .collect(),
            links: others
                .map(|other| (other, inventory.topology.link(&gpu.gpu, other)))
                .map(|(other, link)| GpuLink { uuid: other.uuid.clone(), link: link.word() })
                .filter(|link| link.link != "?")
                .collect(),
        }
    };
    Ok(Answer(Listed::cut(&view.gpus, &paging, |gpu| &gpu.gpu.uuid, answer)?))
}

fn state(gpu: &GpuView, is_held: bool) -> &'static str {
    match (&gpu.condition, gpu.obstacle, is_held) {
        (Condition::Down(_), ..) | (_, Some(Obstacle::Down), false) => "down",
        (_, _, true) => "held",
        (_, Some(Obstacle::Outside), _) => "busy_outside",
        (_, Some(Obstacle::Withheld), _) => "withheld",
        (_, None, false) => "free",
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Default: an hour ago, or with `span=hour` a day ago.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Default: now.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
    /// `minute` (default; kept for a day) or `hour` (kept for 30 days).
    #[param(value_type = Option<String>)]
    span: Option<String>,
}

/// The history of a GPU.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuHistory {
    uuid: String,
    /// Length of the interval of one point in seconds.
    span_seconds: i64,
    /// In order of time. Intervals without measurements are omitted.
    points: Vec<GpuPoint>,
    /// Allocations, in no particular order.
    held: Vec<GpuHeld>,
}

/// Means over a minute or an hour.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuPoint {
    #[schema(value_type = String, format = "date-time")]
    at: Timestamp,
    utilisation_percent: f64,
    memory_bytes: f64,
    power_milliwatts: f64,
    /// The maximum.
    temperature_celsius: Option<i64>,
    /// Number of readings.
    readings: i64,
}

/// A time in which the GPU was allocated.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuHeld {
    #[schema(value_type = String, format = "date-time")]
    from: Timestamp,
    /// Null while it is still allocated.
    #[schema(value_type = Option<String>, format = "date-time")]
    to: Option<Timestamp>,
    /// Null if you may not see it.
    owner: Option<String>,
    #[schema(value_type = Option<String>, format = "uuid")]
    session: Option<SessionId>,
}

/// Returns utilisation, memory, power and temperature of a GPU over time, and its allocations.
#[utoipa::path(get, path = "/gpus/{uuid}/history", tag = "cluster", params(("uuid" = String, Path), HistoryQuery),
    responses((status = 200, body = GpuHistory), (status = 404, description = "GPU not found", body = Problem),
        (status = 422, description = "Invalid parameter", body = Problem)))]
pub async fn history(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Path(uuid): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Answer<GpuHistory>> {
    if portal.sessions.scheduler.stock().inventory().gpus.iter().all(|gpu| gpu.uuid != uuid) {
        return Err(Error::not_found());
    }
    let (span, usual, longest) = match query.span.as_deref().unwrap_or("minute") {
        "minute" => (Span::Minute, 3600, MINUTES_KEPT),
        "hour" => (Span::Hour, 86_400, HOURS_KEPT),
        _ => return Err(Error::field("span", "invalid_value", "Must be minute or hour.")),
    };
    let to = query.to.unwrap_or_else(|| portal.clock.now());
    let from = query.from.unwrap_or_else(|| to.plus_seconds(-usual));
    if to < from {
        return Err(Error::field("to", "before_from", "Must not be before `from`."));
    }
    if longest < to.seconds_since(from) {
        return Err(Error::field(
            "from",
            "too_long",
            "The range can be at most one day with `minute` and 30 days with `hour`.",
        ));
    }
    let sight = Visibility::of(&portal, &user).await?;
    let points = portal.db.gpu_points(span, from, to).await?;
    let holdings = portal.db.gpu_holdings(from, to).await?;
    let held = holdings.into_iter().filter(|held| held.gpus.iter().any(|gpu| gpu.uuid == uuid)).map(|held| {
        let seen: VisibleHolder = sight.of_holder(held.session, held.owner, &held.owner_name);
        GpuHeld {
            from: held.from,
            to: held.to,
            owner: seen.name(user.user.name.as_str()),
            session: seen.may_open().then_some(held.session),
        }
    });
    Ok(Answer(GpuHistory {
        held: held.collect(),
        points: points.into_iter().filter(|point| point.uuid == uuid).map(GpuPoint::from).collect(),
        span_seconds: span.seconds(),
        uuid,
    }))
}

impl From<Point> for GpuPoint {
    fn from(point: Point) -> Self {
        Self {
            at: point.at,
            utilisation_percent: point.utilisation,
            memory_bytes: point.memory_bytes,
            power_milliwatts: point.milliwatts,
            temperature_celsius: point.celsius,
            readings: point.readings,
        }
    }
}

/// Asks the owner of a session or a job whether they still need its idle GPUs.
///
/// The question is shown on the card of the session or the page of the job until the owner keeps the session, the
/// GPUs are used again, or it ends.
#[utoipa::path(post, path = "/sessions/{id}/ask", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView), (status = 403, description = "Only for operators", body = Problem),
        (status = 409, description = "None of its GPUs is idle", body = Problem)))]
pub async fn ask(
    user: Operator,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Id(id): Id<SessionId>,
) -> Result<Answer<SessionView>> {
    let session = ask_owner(&portal, Actor { user: &user.0.user }, id).await?;
    Ok(Answer(SessionView::new(&portal, &headers, session)))
}
