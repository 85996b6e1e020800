//! What workloads make of the machine: each sample and each answer of a GPU driver becomes part of a
//! stretch, which is written now and then and at the end. The portal reads GPUs itself where it can; elsewhere
//! the agent of the workload reports them. What is known by an agent alone is shown to those who see the workload.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::Sessions;
use crate::cluster::{IdleSession, gpu_rest::GpuRest};
use lyceum_db as db;
use lyceum_model::{
    Gpu, JobId, Session, SessionId, Timestamp,
    gpus::{GpuReport, MAX_GPU_REPORTS},
    hardware::{GpuStretch, Hardware, MAX_STRETCHES, Stretch},
};
use lyceum_wire::protocol::Sample;

/// How often what was measured of a job is written, and of a session, which has no charts that follow it.
const WRITE_INTERVAL: Duration = Duration::from_secs(20);
const SESSION_WRITE_INTERVAL: Duration = Duration::from_mins(2);

/// How many stretches are kept of a session, of which there are many more at a time than of jobs.
const MAX_SESSION_STRETCHES: usize = 180;

/// An older answer of a driver says nothing of now (seconds).
const MAX_READING_AGE: i64 = 15;

/// What is being measured.
#[derive(Debug, Default)]
pub(super) struct Measuring(Mutex<HashMap<SessionId, HardwareSample>>);

#[derive(Debug)]
struct HardwareSample {
    hardware: Hardware,
    kept: Instant,
    /// Since when the GPUs that its agent reports rest.
    rest: GpuRest,
}

impl Sessions {
    /// Adds a sample of a workload.
    pub(super) async fn measure(&self, session: &Session, sample: Sample) {
        let now = self.clock.now();
        let is_job = session.job.is_some();
        let (reports, by_agent) = self.reports(session, now);
        let known = |report: &GpuReport| Some((report.gpu.uuid.clone(), GpuStretch::of(report.reading.as_ref()?)));
        let gpus: BTreeMap<String, GpuStretch> = reports.iter().filter_map(known).collect();
        let stretch = Stretch::of(now, sample.cpus, sample.memory_bytes, gpus);
        if !self.measuring.0.lock().contains_key(&session.id) {
            // It may have been measured by the portal that was here before.
            let hardware = match self.db.hardware_of(session.id).await {
                Ok(hardware) => hardware.unwrap_or_default(),
                Err(error) => {
                    tracing::debug!(session.id = %session.id, %error, "failed to read earlier hardware measurements");
                    return;
                }
            };
            let fresh = HardwareSample { hardware, kept: Instant::now(), rest: GpuRest::default() };
            self.measuring.0.lock().entry(session.id).or_insert(fresh);
        }
        let due = {
            let mut all = self.measuring.0.lock();
            let Some(measured) = all.get_mut(&session.id) else { return };
            measured.hardware.add(stretch, if is_job { MAX_STRETCHES } else { MAX_SESSION_STRETCHES });
            if by_agent {
                note_gpus(&mut measured.hardware.gpus, &reports);
                measured.rest.note(now, &reports);
            }
            let interval = if is_job { WRITE_INTERVAL } else { SESSION_WRITE_INTERVAL };
            let is_due = measured.kept.elapsed() > interval || measured.hardware.stretches.len() == 1;
            is_due.then(|| {
                measured.kept = Instant::now();
                measured.hardware.clone()
            })
        };
        if let Some(hardware) = due {
            self.keep_measured(session.id, &hardware).await;
        }
    }

    /// Writes the rest of what was measured; nothing more comes.
    pub(super) async fn end_measuring(&self, id: SessionId) {
        let measured = self.measuring.0.lock().remove(&id);
        if let Some(measured) = measured {
            self.keep_measured(id, &measured.hardware).await;
        }
    }

    async fn keep_measured(&self, id: SessionId, hardware: &Hardware) {
        if let Err(error) = self.db.keep_hardware(id, hardware).await {
            tracing::warn!(session.id = %id, %error, "failed to store hardware measurements");
        }
    }

    /// What each attempt of a job made of the machine, up to now.
    pub async fn hardware(&self, job: JobId) -> db::Result<Vec<(SessionId, Hardware)>> {
        let mut all = self.db.hardware_of_job(job).await?;
        let measuring = self.measuring.0.lock();
        for (id, hardware) in &mut all {
            if let Some(measured) = measuring.get(id) {
                hardware.clone_from(&measured.hardware);
            }
        }
        Ok(all)
    }

    /// What one workload made of the machine, up to now; `None` if nothing was measured.
    pub async fn hardware_of(&self, id: SessionId) -> db::Result<Option<Hardware>> {
        let measured = self.measuring.0.lock().get(&id).map(|measured| measured.hardware.clone());
        match measured {
            Some(hardware) => Ok(Some(hardware)),
            None => self.db.hardware_of(id).await,
        }
    }

    /// Returns what each GPU of a live workload does now; empty where nobody can tell.
    pub fn gpu_reports(&self, session: &Session) -> Vec<GpuReport> {
        if session.state.is_live() { self.reports(session, self.clock.now()).0 } else { Vec::new() }
    }

    /// Returns the GPUs of a workload that its agent reports to rest, for `idle_after` seconds or longer, and since
    /// when all of them have.
    pub fn reported_idle(&self, session: &Session, idle_after: i64) -> Option<IdleSession> {
        let (reports, by_agent) = self.reports(session, self.clock.now());
        if !by_agent || !session.state.is_live() {
            return None;
        }
        let from = session.started_at?;
        let measuring = self.measuring.0.lock();
        let rest = &measuring.get(&session.id)?.rest;
        let measured = reports.into_iter().filter(|report| report.reading.is_some());
        let resting = measured.filter_map(|report| {
            let since = rest.since(&report.gpu.uuid, from, idle_after)?;
            Some((report.gpu, since))
        });
        let (gpus, since): (Vec<Gpu>, Vec<Timestamp>) = resting.unzip();
        Some(IdleSession { session: session.id, gpus, since: since.into_iter().max()? })
    }

    /// The portal's own readings of a workload's GPUs, or else what its agent reported lately, and whether it did.
    fn reports(&self, session: &Session, now: Timestamp) -> (Vec<GpuReport>, bool) {
        if session.spec.resources.gpus == 0 {
            return (Vec::new(), false);
        }
        let own = GpuReport::of_watch(&session.gpus, &self.scheduler.gpu_watch(), now, MAX_READING_AGE);
        if !own.is_empty() {
            return (own, false);
        }
        let live = self.live.read();
        match live.get(&session.id) {
            Some(live) if live.gpus_at.is_some_and(|at| now.seconds_since(at) <= MAX_READING_AGE) => {
                (live.gpus.clone(), true)
            }
            _ => (Vec::new(), false),
        }
    }
}

/// Adds the GPUs that are new.
fn note_gpus(known: &mut Vec<Gpu>, reports: &[GpuReport]) {
    for report in reports {
        if known.len() < MAX_GPU_REPORTS && !known.iter().any(|gpu| gpu.uuid == report.gpu.uuid) {
            known.push(report.gpu.clone());
        }
    }
}
