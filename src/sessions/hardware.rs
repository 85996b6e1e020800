//! What attempts of jobs make of the machine: each sample and each answer of a GPU driver becomes part of a
//! stretch, which is written now and then and at the end. What is known of a workload by its agent alone is
//! shown and nothing else.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::Sessions;
use crate::{
    db,
    model::{
        JobId, Session, SessionId,
        gpus::Condition,
        hardware::{GpuStretch, Hardware, Stretch},
    },
    protocol::Sample,
};

/// How often what was measured is written.
const KEEP: Duration = Duration::from_secs(20);

/// An older answer of a driver says nothing of now (seconds).
const PATIENCE: i64 = 15;

/// What is being measured.
#[derive(Debug, Default)]
pub(super) struct Measuring(Mutex<HashMap<SessionId, Measured>>);

#[derive(Debug)]
struct Measured {
    hardware: Hardware,
    kept: Instant,
}

impl Sessions {
    /// Adds a sample of an attempt of a job.
    pub(super) async fn measure(&self, session: &Session, sample: Sample) {
        if session.job.is_none() {
            return;
        }
        let now = self.clock.now();
        let gpus = if session.gpus.is_empty() { BTreeMap::new() } else { self.gpus_now(session) };
        let stretch = Stretch::of(now, sample.cpus, sample.memory_bytes, gpus);
        if !self.measuring.0.lock().contains_key(&session.id) {
            // It may have been measured by the portal that was here before.
            let hardware = match self.db.hardware_of(session.id).await {
                Ok(hardware) => hardware.unwrap_or_default(),
                Err(error) => {
                    tracing::debug!(session.id = %session.id, %error, "what was measured before is not known");
                    return;
                }
            };
            let fresh = Measured { hardware, kept: Instant::now() };
            self.measuring.0.lock().entry(session.id).or_insert(fresh);
        }
        let due = {
            let mut all = self.measuring.0.lock();
            let Some(measured) = all.get_mut(&session.id) else { return };
            measured.hardware.add(stretch);
            let is_due = KEEP < measured.kept.elapsed() || measured.hardware.stretches.len() == 1;
            is_due.then(|| {
                measured.kept = Instant::now();
                measured.hardware.clone()
            })
        };
        if let Some(hardware) = due {
            self.keep_measured(session.id, &hardware).await;
        }
    }

    fn gpus_now(&self, session: &Session) -> BTreeMap<String, GpuStretch> {
        let (watch, now) = (self.scheduler.gpu_watch(), self.clock.now());
        let one = |uuid: &String| match watch.condition(uuid, now, PATIENCE) {
            Condition::Up(reading) => Some((uuid.clone(), GpuStretch::of(&reading))),
            _ => None,
        };
        session.gpus.iter().filter_map(|gpu| one(&gpu.uuid)).collect()
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
            tracing::warn!(session.id = %id, %error, "what a workload made of the machine is not kept");
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
}
