//! What a session that a batch system runs really holds, and held before it was put back into the
//! queue there: asked of the scheduler, and noted where it is news. How it is counted is the
//! database's business.

use super::{Result, Sessions};
use lyceum_model::{
    Session,
    session::{Accounting, Allocation, Placement, WorkloadStarts},
};

/// One that was suspended for less is looked at when it has ended (seconds).
const SUSPENDED: i64 = 30;

impl Sessions {
    /// Notes what it holds from now on at the latest: what the scheduler says, else what was asked for.
    pub(super) async fn note_begin(&self, session: &Session, placement: &Placement) -> Result<()> {
        let said = self.scheduler.starts(session.id, placement).await;
        let mut starts = said.unwrap_or(WorkloadStarts {
            latest: 1,
            allocations: Vec::new(),
            accounting: Accounting::Unknown,
            job: None,
        });
        let now = self.clock.now();
        if starts.allocations.is_empty() && starts.latest == 1 {
            let asked = &session.spec.resources;
            starts.allocations.push(Allocation {
                start: starts.latest,
                from: now,
                to: None,
                gpus: asked.gpus,
                cpus: asked.cpus,
                memory_bytes: asked.memory_bytes,
            });
        }
        Ok(self.db.set_starts(session.id, &starts, now).await?)
    }

    /// Notes what a suspension, or being put back into the queue, has changed of it: neither is use.
    pub(super) async fn note_starts(&self, session: &Session, placement: &Placement) -> Result<()> {
        let Some(starts) = self.scheduler.starts(session.id, placement).await else { return Ok(()) };
        let began = session.started_at.map(|start| start.plus_seconds(SUSPENDED));
        let was_suspended = starts.allocations.last().is_some_and(|last| began.is_some_and(|began| began < last.from));
        let is_known = |live: &super::LiveState| live.starts.as_ref() == Some(&starts);
        if (was_suspended || starts.latest > 1) && !self.live.read().get(&session.id).is_some_and(is_known) {
            self.db.set_starts(session.id, &starts, self.clock.now()).await?;
            if let Some(live) = self.live.write().get_mut(&session.id) {
                live.starts = Some(starts);
            }
        }
        Ok(())
    }

    /// Notes where, and since when, a session ran that began and ended between two looks. One that was ended in the
    /// queue has run nowhere.
    pub(super) async fn note_run(&self, session: &Session, placement: &Placement) -> Result<Session> {
        if !placement.node.is_empty() {
            return Ok(session.clone());
        }
        let Some(placed) = self.find_place(session).await?.filter(|found| !found.node.is_empty()) else {
            return Ok(session.clone());
        };
        let starts = self.scheduler.starts(session.id, &placed).await;
        if let Some(began) = starts.and_then(|starts| starts.allocations.last().map(|held| held.from)) {
            // The batch system's clock is another one.
            let now = self.clock.now();
            let began = began.max(session.admitted_at.unwrap_or(session.created_at)).min(now);
            if self.db.begin_start(session.id, began).await? {
                self.notify(session, false);
            }
        }
        let noted = self.db.find_session(session.id).await?.filter(|noted| noted.state.is_live());
        Ok(noted.unwrap_or_else(|| Session { placement: Some(placed), ..session.clone() }))
    }
}
