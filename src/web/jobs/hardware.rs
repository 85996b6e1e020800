//! What a job's attempts made of the machine, over REST: cores, memory and GPUs over time, beside what each
//! attempt had. The charts of a job draw it under its curves.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    model::{
        Gpu, JobId, Session, SessionId, Timestamp,
        efficiency::Efficiency,
        hardware::{Hardware, Stretch},
        job::Shape,
    },
    web::{
        Portal,
        http::{
            error::{Problem, Result},
            extract::{CurrentUser, Id},
        },
        sessions::hardware::{GpuReportView, IdleGpus, efficiency},
    },
};

/// Use of the hardware by a job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobHardware {
    /// The attempts with measurements, in order.
    attempts: Vec<AttemptHardware>,
}

/// Use of the hardware by one attempt of a job, or by a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttemptHardware {
    /// The number of the attempt; 1 for a session.
    attempt: i64,
    #[schema(value_type = String, format = "uuid")]
    session: SessionId,
    /// Allocated cores.
    cpus: i64,
    memory_bytes: i64,
    gpus: Vec<Gpu>,
    #[schema(value_type = Option<String>, format = "date-time")]
    started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    ended_at: Option<Timestamp>,
    /// Length of a stretch in seconds. An attempt has at most 720 stretches, so long attempts have longer ones.
    seconds: i64,
    stretches: Vec<HardwareStretch>,
    /// What its GPUs do now. Empty after the end and if they are not measured.
    now: Vec<GpuReportView>,
    /// GPUs that have been idle for a minute or longer. Null if there are none.
    idle_gpus: Option<IdleGpus>,
    /// Null without measurements.
    efficiency: Option<Efficiency>,
}

/// Measurements within a stretch of time.
#[derive(Debug, Serialize, ToSchema)]
pub struct HardwareStretch {
    /// Start of the stretch.
    #[schema(value_type = String, format = "date-time")]
    at: Timestamp,
    /// Mean number of busy cores. `most_cpus` is the maximum.
    cpus: f64,
    most_cpus: f64,
    /// Maximum.
    memory_bytes: i64,
    /// In the order of the attempt's GPUs. Omitted without measurements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    gpus: Vec<GpuStretchView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct GpuStretchView {
    uuid: String,
    /// Mean utilisation in percent.
    utilisation: Option<f64>,
    /// Maximum.
    memory_bytes: Option<i64>,
    celsius: Option<i64>,
    /// Mean power in watts.
    watts: Option<f64>,
}

/// Returns the use of cores, memory and GPUs over time, for each attempt of a job.
#[utoipa::path(get, path = "/jobs/{id}/hardware", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobHardware), (status = 404, description = "Not found, or not visible to \
                                                                                you", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<axum::Json<JobHardware>> {
    let job = portal.jobs.find(user.actor(), id).await?;
    let mut attempts = portal.jobs.attempts(&job).await?;
    attempts.reverse();
    let shape = portal.jobs.task(&job).await?.shape;
    let mut measured = portal.sessions.hardware(job.id).await?;
    let mut told = Vec::with_capacity(measured.len());
    for attempt in attempts {
        if let Some(place) = measured.iter().position(|(id, _)| *id == attempt.id) {
            told.push(AttemptHardware::new(&portal, attempt, measured.swap_remove(place).1, &shape));
        }
    }
    Ok(axum::Json(JobHardware { attempts: told }))
}

impl AttemptHardware {
    pub(in crate::web) fn new(portal: &Portal, attempt: Session, hardware: Hardware, shape: &Shape) -> Self {
        let efficiency = efficiency(&attempt, &hardware, shape);
        let idle_gpus = IdleGpus::of(portal, &attempt);
        let now = portal.sessions.gpu_reports(&attempt).into_iter().map(GpuReportView::new).collect();
        let Hardware { seconds, stretches, gpus: reported } = hardware;
        // Which devices a cluster gave, only the agent knows.
        let gpus = if reported.is_empty() { attempt.gpus } else { reported };
        Self {
            attempt: attempt.job.map_or(1, |job| job.number),
            session: attempt.id,
            cpus: attempt.spec.resources.cpus,
            memory_bytes: attempt.spec.resources.memory_bytes,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            seconds,
            stretches: stretches.into_iter().map(|one| stretch(one, &gpus)).collect(),
            gpus,
            now,
            idle_gpus,
            efficiency,
        }
    }
}

fn stretch(stretch: Stretch, gpus: &[Gpu]) -> HardwareStretch {
    let Stretch { at, cpus, most_cpus, memory_bytes, gpus: measured, .. } = stretch;
    let one = |gpu: &Gpu| {
        measured.get(&gpu.uuid).map(|found| GpuStretchView {
            uuid: gpu.uuid.clone(),
            utilisation: found.utilisation,
            memory_bytes: found.memory_bytes,
            celsius: found.celsius,
            watts: found.milliwatts.map(|milliwatts| milliwatts / 1000.0),
        })
    };
    HardwareStretch { at, cpus, most_cpus, memory_bytes, gpus: gpus.iter().filter_map(one).collect() }
}
