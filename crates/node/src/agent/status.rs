//! What the agent says of itself, in one place: whoever changes a part of the
//! [`AgentStatus`] does it here, and the event stream sees every change.

use std::sync::Arc;

use tokio::sync::watch;

use lyceum_model::{Clock, gpus::GpuReport};
use lyceum_wire::protocol::{AgentStatus, PROTOCOL, Phase, Sample};

/// A handle on the status; clones share it.
#[derive(Clone)]
pub(super) struct Status(Arc<watch::Sender<AgentStatus>>);

impl Status {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(AgentStatus {
            protocol: PROTOCOL,
            phase: Phase::Preparing,
            step: String::new(),
            sample: None,
            gpus: Vec::new(),
            sent_at: None,
            terminal_activity: None,
            terminals: 0,
            notes: Vec::new(),
            program_notes: Vec::new(),
        })))
    }

    pub fn enter(&self, phase: Phase, step: impl Into<String>) {
        self.0.send_modify(|status| {
            status.phase = phase;
            status.step = step.into();
        });
    }

    pub fn step(&self, step: &str) {
        self.0.send_modify(|status| step.clone_into(&mut status.step));
    }

    /// Something that its owner should know.
    pub fn note(&self, note: String) {
        self.0.send_modify(|status| status.notes.push(note));
    }

    /// What the program wrote for its owner, if it is news.
    pub fn program_notes(&self, notes: Vec<String>) {
        self.0.send_if_modified(|status| {
            let is_news = status.program_notes != notes;
            status.program_notes = notes;
            is_news
        });
    }

    pub fn sampled(&self, sample: Sample) {
        self.0.send_modify(|status| status.sample = Some(sample));
    }

    /// Notes what the GPUs do. The stream is not woken: the next sample reports it.
    pub fn gpus_read(&self, gpus: Vec<GpuReport>) {
        self.0.send_if_modified(|status| {
            status.gpus = gpus;
            false
        });
    }

    pub fn terminals(&self, open: usize) {
        self.0.send_modify(|status| status.terminals = u32::try_from(open).unwrap_or(u32::MAX));
    }

    /// Notes input or output of a terminal. The stream is not woken: the next sample tells.
    pub fn terminal_used(&self) {
        self.0.send_if_modified(|status| {
            status.terminal_activity = Some(Clock::System.now().0);
            false
        });
    }

    pub fn subscribe(&self) -> watch::Receiver<AgentStatus> {
        self.0.subscribe()
    }

    pub fn snapshot(&self) -> AgentStatus {
        self.0.borrow().clone()
    }
}
