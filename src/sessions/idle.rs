//! When a session counts as idle: a pure rule over what was seen last, and the probe that
//! sees it. What cannot be asked is never idle, an open tab alone is no use, and a person
//! may say "keep".

use std::sync::atomic::Ordering;

use serde::Deserialize;

use super::{Result, Sessions};
use crate::{
    apps::{self, Idle},
    model::{
        Session, SessionState, Timestamp,
        quota::{Field, Limit},
    },
    protocol::files,
};

/// More busy cores than this are work, whoever started it: a cell, a script, a detached training.
pub(super) const WORKING_CORES: f64 = 0.3;

/// Use is written down at most so often (seconds); what is not written yet is in memory.
const WORTH_NOTING: i64 = 10;

/// When this session will be stopped for idleness if nothing happens; `None` where it never is.
#[must_use]
pub fn stops_at(session: &Session, last_use: Timestamp, limit: Limit) -> Option<Timestamp> {
    let Limit::AtMost(seconds) = limit else { return None };
    if seconds == 0 || session.state != SessionState::Running || session.unknown_since.is_some() {
        return None;
    }
    Some(last_use.max(session.ready_at?).plus_seconds(seconds).max(session.keep_until.unwrap_or_default()))
}

impl Sessions {
    /// Looks at what was used last, notes it, and says when idleness would end the session.
    pub(super) async fn look_at_use(&self, session: &Session) -> Result<Option<Timestamp>> {
        let Some(app) = self.apps.find(&session.app) else { return Ok(None) };
        let live = self.live(session.id);
        let now = self.clock.now();
        let seen = session.last_activity_at.unwrap_or(session.created_at);
        let requested = Timestamp(live.activity.load(Ordering::Relaxed));
        // The agent may lie about when, but not into the future.
        let typed = live.status.as_ref().and_then(|status| status.terminal_activity).map(|at| Timestamp(at).min(now));
        let worked = live.worked_at.unwrap_or(seen);
        let now_if = |used: bool| if used { now } else { seen };
        let last_use = match app.idle {
            Idle::None | Idle::Gpu => return Ok(None),
            Idle::Http => seen.max(requested),
            // A poll of an open tab is no use here, and what was not measured proves nothing.
            Idle::Cpu => now_if(live.sample.is_none()).max(worked),
            Idle::Terminals => seen.max(worked).max(requested).max(typed.unwrap_or_default()),
            Idle::Kernels => now_if(self.kernels_in_use(session).await).max(worked).max(requested),
        };
        if session.last_activity_at.is_none_or(|known| WORTH_NOTING <= last_use.seconds_since(known)) {
            self.db.set_activity(session.id, last_use).await?;
        }
        let limits = self.admission.limits(session.owner).await?;
        Ok(stops_at(session, last_use, limits.of(Field::IdleTimeoutSeconds).limit))
    }

    /// Whether a kernel computes. A probe that fails proves nothing, so it counts as use.
    async fn kernels_in_use(&self, session: &Session) -> bool {
        #[derive(Deserialize)]
        struct Kernel {
            execution_state: Option<String>,
        }
        let Some(placement) = &session.placement else { return true };
        let path = format!("{}api/kernels?no_track_activity=1", apps::base_url(session.id));
        let authorization = format!("token {}", self.upstream_secret(session.id));
        let asked = self.scheduler.ask(session.id, placement, files::APP_SOCKET, &path, Some(&authorization)).await;
        let Ok(body) = asked else { return true };
        let Ok(kernels) = serde_json::from_slice::<Vec<Kernel>>(&body) else { return true };
        kernels.iter().any(|kernel| kernel.execution_state.as_deref() == Some("busy"))
    }
}
