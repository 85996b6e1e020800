//! What a session makes of the machine, over REST: its cores, memory and GPUs over time, what its GPUs do now, and how
//! much of the request it used. And GPUs that are held and rest, as the cards, the jobs' pages and the API show them.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    cluster::{BRIEFLY, IdleSession},
    model::{
        Gpu, Outcome, Session, SessionId, SessionState, Timestamp,
        efficiency::Efficiency,
        gpus::{GpuReport, Health},
        hardware::Hardware,
        job::Shape,
        time::{human_duration, human_hours},
    },
    web::{
        Portal,
        http::{
            error::{Problem, Result},
            extract::{CurrentUser, Id},
        },
        jobs::hardware::AttemptHardware,
    },
};

/// A GPU of a workload now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkloadGpu)]
pub struct GpuReportView {
    /// Which GPU it is.
    gpu: Gpu,
    /// Utilisation in percent. Null for slices (MIG).
    utilisation: Option<i64>,
    /// Memory in use on the GPU, in bytes.
    memory_used_bytes: Option<i64>,
    /// Memory of the GPU, in bytes.
    memory_total_bytes: Option<i64>,
    /// Temperature in degrees Celsius.
    celsius: Option<i64>,
    /// Power draw in watts.
    watts: Option<f64>,
    /// Power limit in watts.
    watts_limit: Option<f64>,
    /// The processes that compute on it. Null if the driver does not list them.
    processes: Option<Vec<GpuProcessView>>,
    /// Errors and throttling that the driver reports.
    health: Health,
    /// Why it cannot be used.
    fault: Option<String>,
}

/// A process that computes on a GPU.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkloadGpuProcess)]
pub struct GpuProcessView {
    /// Its process ID on the node.
    pid: u32,
    memory_bytes: Option<i64>,
}

/// GPUs that are held and compute less than 5 % of the time.
#[derive(Debug, Serialize, ToSchema)]
pub struct IdleGpus {
    gpus: Vec<Gpu>,
    /// Since when all of them have been idle.
    #[schema(value_type = String, format = "date-time")]
    since: Timestamp,
    /// The GPU hours that this has cost.
    gpu_hours: f64,
}

impl GpuReportView {
    #[expect(clippy::cast_precision_loss, reason = "watts are small numbers")]
    pub fn new(report: GpuReport) -> Self {
        let reading = report.reading.unwrap_or_default();
        let watts = |milliwatts: Option<i64>| milliwatts.map(|milliwatts| milliwatts as f64 / 1000.0);
        let process = |process: &crate::model::gpus::GpuProcess| GpuProcessView {
            pid: process.pid,
            memory_bytes: process.memory_bytes,
        };
        Self {
            gpu: report.gpu,
            utilisation: reading.utilisation,
            memory_used_bytes: reading.memory_used_bytes,
            memory_total_bytes: reading.memory_total_bytes,
            celsius: reading.temperature_celsius,
            watts: watts(reading.power_milliwatts),
            watts_limit: watts(reading.power_limit_milliwatts),
            processes: reading.processes.map(|all| all.iter().map(process).collect()),
            health: reading.health,
            fault: report.fault,
        }
    }
}

/// GPUs of a live workload that have been idle for a minute, as the portal or its agent measured.
fn idle(portal: &Portal, session: &Session) -> Option<IdleSession> {
    if !session.state.is_live() || session.spec.resources.gpus == 0 {
        return None;
    }
    let view = portal.cluster.view();
    let own = view.briefly_idle.iter().find(|idle| idle.session == session.id).cloned();
    own.or_else(|| portal.sessions.reported_idle(session, BRIEFLY))
}

/// The GPU milliseconds that an idle time has cost so far.
fn cost(idle: &IdleSession, now: Timestamp) -> i64 {
    let count = i64::try_from(idle.gpus.len()).unwrap_or(i64::MAX);
    now.0.saturating_sub(idle.since.0).max(0).saturating_mul(count)
}

impl IdleGpus {
    /// Returns the idle GPUs of a live workload, if it has some.
    #[expect(clippy::cast_precision_loss, reason = "hours are approximate by nature")]
    pub fn of(portal: &Portal, session: &Session) -> Option<Self> {
        let idle = idle(portal, session)?;
        let gpu_hours = cost(&idle, portal.clock.now()) as f64 / 3_600_000.0;
        Some(Self { gpus: idle.gpus, since: idle.since, gpu_hours })
    }
}

/// Returns what a card or a job's page says of GPUs that are held and rest.
pub(in crate::web) fn idle_sentence(portal: &Portal, session: &Session) -> Option<String> {
    let (idle, now) = (idle(portal, session)?, portal.clock.now());
    let count = match idle.gpus.len() {
        1 => "1 GPU has".to_owned(),
        count => format!("{count} GPUs have"),
    };
    let (time, hours) = (human_duration(now.seconds_since(idle.since)), human_hours(cost(&idle, now)));
    let told = format!("{count} been idle for {time}, which has cost {hours} GPU hours.");
    if now.seconds_since(idle.since) < portal.cluster.idle_after() {
        return Some(told);
    }
    let way = if session.job.is_some() { "Cancel the job" } else { "Stop the session" };
    Some(format!("{told} {way} if it does not need them, or check that its environment has CUDA."))
}

/// Returns how much of the request a workload used. A smaller request is suggested after its end; not for one that
/// ran out of memory, nor for several nodes, of which only the first is measured.
pub(in crate::web) fn efficiency(session: &Session, hardware: &Hardware, shape: &Shape) -> Option<Efficiency> {
    let each = shape.share(session.spec.resources.clone());
    let is_over = session.state == SessionState::Ended && session.outcome() != Some(Outcome::OutOfMemory);
    Efficiency::new(hardware, &each, is_over && shape.nodes == 1 && session.spec_is_whole)
}

/// Returns the use of cores, memory and GPUs by a session over time, and what its GPUs do now.
#[utoipa::path(get, path = "/sessions/{id}/hardware", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = AttemptHardware), (status = 404, description = "Not found, or not visible to \
                                                                                you", body = Problem)))]
pub async fn hardware(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<SessionId>,
) -> Result<axum::Json<AttemptHardware>> {
    let session = portal.sessions.find(user.actor(), id).await?;
    let measured = portal.sessions.hardware_of(id).await?.unwrap_or_default();
    Ok(axum::Json(AttemptHardware::new(&portal, session, measured, &Shape::default())))
}
