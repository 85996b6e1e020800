//! Small conversions around a decision: from a specification to the request that is judged, to its place in the queue, and
//! from the database's answer to the verdict.

use lyceum_db::{
    admit::{AdmissionOutcome, Verdict},
    facts::Facts,
};
use lyceum_model::{
    UserId,
    quota::{Class, Request, WaitingRequest},
    session::SessionSpec,
};

pub(super) fn waiting(owner: UserId, request: &Request, facts: &Facts) -> WaitingRequest {
    WaitingRequest {
        owner,
        groups: facts.groups.clone(),
        request: request.clone(),
        recent_gpu_seconds: facts.recent_gpu_seconds,
        since: facts.since,
        lacks_room: true,
    }
}

pub(super) fn request(spec: &SessionSpec, class: Class) -> Request {
    Request { resources: spec.resources.clone(), duration_seconds: spec.duration_seconds, class }
}

/// Serves modes that carry no idempotency key.
pub(super) fn verdict(admitted: AdmissionOutcome) -> Verdict {
    match admitted {
        AdmissionOutcome::Judged(verdict) => verdict,
        AdmissionOutcome::Repeated(_) | AdmissionOutcome::Overtaken => Verdict::Wait(Vec::new()),
    }
}
