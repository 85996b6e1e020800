//! What a job's attempts made of the machine, over REST: cores, memory and GPUs over time, beside what each
//! attempt had. The charts of a job draw it under its curves.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    model::{
        Gpu, JobId, Session, SessionId, Timestamp,
        hardware::{Hardware, Stretch},
    },
    web::{
        Portal,
        error::{Problem, Result},
        extract::{CurrentUser, Id},
    },
};

/// What a job made of the machine.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobHardware {
    /// The first attempt first; those of which something was measured.
    attempts: Vec<AttemptHardware>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AttemptHardware {
    attempt: i64,
    #[schema(value_type = String, format = "uuid")]
    session: SessionId,
    /// What it had.
    cpus: i64,
    memory_bytes: i64,
    gpus: Vec<Gpu>,
    #[schema(value_type = Option<String>, format = "date-time")]
    started_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time")]
    ended_at: Option<Timestamp>,
    /// How long a stretch is. There are never more than 720: a long attempt has long ones.
    seconds: i64,
    stretches: Vec<HardwareStretch>,
}

/// What was measured within a stretch of time.
#[derive(Debug, Serialize, ToSchema)]
pub struct HardwareStretch {
    /// Its begin.
    #[schema(value_type = String, format = "date-time")]
    at: Timestamp,
    /// Cores busy in the mean, and in the busiest moment.
    cpus: f64,
    most_cpus: f64,
    /// The most.
    memory_bytes: i64,
    /// In the order of the attempt's GPUs; left out where nothing was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    gpus: Vec<GpuStretchView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct GpuStretchView {
    uuid: String,
    /// Percent, in the mean.
    utilisation: Option<f64>,
    /// The most.
    memory_bytes: Option<i64>,
    celsius: Option<i64>,
    /// In the mean.
    watts: Option<f64>,
}

/// Cores, memory and GPUs over time, of each attempt of a job.
#[utoipa::path(get, path = "/jobs/{id}/hardware", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobHardware), (status = 404, description = "Not there, or not to be seen", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<JobId>,
) -> Result<axum::Json<JobHardware>> {
    let job = portal.jobs.find(user.actor(), id).await?;
    let mut attempts = portal.jobs.attempts(&job).await?;
    attempts.reverse();
    let mut measured = portal.sessions.hardware(job.id).await?;
    let mut told = Vec::with_capacity(measured.len());
    for attempt in attempts {
        if let Some(place) = measured.iter().position(|(id, _)| *id == attempt.id) {
            told.push(view(attempt, measured.swap_remove(place).1));
        }
    }
    Ok(axum::Json(JobHardware { attempts: told }))
}

fn view(attempt: Session, hardware: Hardware) -> AttemptHardware {
    let Hardware { seconds, stretches } = hardware;
    AttemptHardware {
        attempt: attempt.job.map_or(1, |job| job.number),
        session: attempt.id,
        cpus: attempt.spec.resources.cpus,
        memory_bytes: attempt.spec.resources.memory_bytes,
        started_at: attempt.started_at,
        ended_at: attempt.ended_at,
        seconds,
        stretches: stretches.into_iter().map(|one| stretch(one, &attempt.gpus)).collect(),
        gpus: attempt.gpus,
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
