//! The end of a workload whose time a batch system counts. It moves as Slurm's own does: by as long as the job was
//! suspended, and to another limit where the site or an administrator sets one. What the portal itself has granted is
//! no news. The decision is a pure function; the rest reads and writes what it needs.

use std::time::Instant;

use super::{Result, Sessions};
use lyceum_model::{Session, SessionState, Timestamp, session::CountedTime, time::human_duration};

use crate::scheduler::ReportedTime;

/// How precisely a scheduler says for how long a workload has run (seconds).
const ROUNDING: i64 = 2;
/// A suspension that was shorter is not written into the history (seconds): gang scheduling makes many.
const SHORT: i64 = 60;

/// What was last heard of a workload's time, in this life of the portal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastReport {
    counted: Option<CountedTime>,
    /// When the portal raised the limit: what was asked for before shows the old one.
    granted: Option<Instant>,
}

/// Returns when the time of a workload is over that asked for so many seconds, as its batch system counts now; `before`
/// is the count and the end of the last look.
fn end(asked_seconds: i64, before: Option<(CountedTime, Timestamp)>, now: CountedTime) -> Timestamp {
    let by_limit = |limit: i64| now.since.plus_seconds(limit);
    match (before, now.limit_seconds) {
        (None, limit) => by_limit(limit.map_or(asked_seconds, |limit| limit.min(asked_seconds))),
        (Some((before, _)), Some(limit)) if before.limit_seconds != Some(limit) => by_limit(limit),
        (Some((before, end)), _) => {
            let moved = now.since.seconds_since(before.since);
            if moved.abs() <= ROUNDING { end } else { end.plus_seconds(moved) }
        }
    }
}

impl Sessions {
    /// Moves the end of a placed session to where its scheduler's count puts it, and notes a suspension.
    pub(super) async fn count_time(&self, session: Session) -> Result<Session> {
        let Some(placement) = session.placement.as_ref().filter(|_| self.scheduler.has_queue()) else {
            return Ok(session);
        };
        if !matches!(session.state, SessionState::Starting | SessionState::Running) {
            return Ok(session);
        }
        let Some(counted) = self.scheduler.counted_time(session.id, placement).await else { return Ok(session) };
        // While it is suspended its count stands still: the end moves once, when it runs again.
        if counted.is_suspended { self.suspend(session).await } else { self.move_end(session, counted).await }
    }

    /// Moves the end of a session that runs. If it was suspended before, one statement shows it as resumed and moves
    /// its end.
    async fn move_end(&self, session: Session, ReportedTime { time, asked, .. }: ReportedTime) -> Result<Session> {
        let known = self.live(session.id).counted;
        if known.granted.is_some_and(|granted| asked <= granted) {
            return Ok(session);
        }
        let counted = match known.counted {
            None => self.db.counted_time(session.id).await?,
            counted => counted,
        };
        // The limit that the portal has just set is its own.
        let limit_seconds =
            if known.granted.is_some() { time.limit_seconds } else { counted.and_then(|c| c.limit_seconds) };
        let before = counted.map(|counted| CountedTime { limit_seconds, ..counted }).zip(session.expires_at);
        let end = end(session.spec.duration_seconds, before, time);
        let is_moved = session.expires_at.is_none_or(|known| end.seconds_since(known).abs() > ROUNDING);
        let is_known = counted.is_some_and(|counted| counted.limit_seconds == time.limit_seconds);
        let resumed = session.suspended_since.map(|_| self.clock.now());
        if is_known && !is_moved && resumed.is_none() {
            self.know(&session, LastReport { counted, granted: None });
            return Ok(session);
        }
        // Where nothing moved, the end still follows from the count of before.
        let time = counted.filter(|_| is_known && !is_moved).unwrap_or(time);
        let expires_at = session.expires_at.filter(|_| !is_moved).unwrap_or(end);
        // Where an extension has moved the end meanwhile, the next look sees both.
        if !self.db.set_end_of_time(session.id, session.expires_at, expires_at, &time, resumed).await? {
            return Ok(session);
        }
        if let (Some((before, _)), Some(limit)) = (before, time.limit_seconds)
            && before.limit_seconds != Some(limit)
        {
            let message = format!("Slurm's time limit is now {}", human_duration(limit));
            self.db.add_session_event(session.id, self.clock.now(), session.state, &message).await?;
        }
        let mut session = Session { expires_at: Some(expires_at), ..session };
        if let Some(now) = resumed {
            self.note_resumption(&session, now).await?;
            (session.suspended_since, session.last_activity_at) = (None, Some(now));
        }
        self.notify(&session, false);
        self.know(&session, LastReport { counted: Some(time), granted: None });
        Ok(session)
    }

    async fn suspend(&self, session: Session) -> Result<Session> {
        if session.suspended_since.is_some() {
            return Ok(session);
        }
        let now = self.clock.now();
        self.db.set_suspended(session.id, now).await?;
        let session = Session { suspended_since: Some(now), ..session };
        self.notify(&session, false);
        Ok(session)
    }

    /// Notes in the history of a session that it was suspended until now. Its idle time counts from now on, because
    /// it could not be used meanwhile.
    async fn note_resumption(&self, session: &Session, now: Timestamp) -> Result<()> {
        if let Some(live) = self.live.write().get_mut(&session.id) {
            (live.worked_at, live.gpus_idle_since, live.idle) = (Some(now), None, None);
        }
        let seconds = session.suspended_since.map_or(0, |since| now.seconds_since(since));
        if seconds >= SHORT {
            let message =
                format!("Suspended by Slurm for {}; its end was postponed by the same time", human_duration(seconds));
            self.db.add_session_event(session.id, now, session.state, &message).await?;
        }
        Ok(())
    }

    /// Notes that the portal has just raised the limit of this session.
    pub(super) fn note_grant(&self, session: &Session) {
        let known = self.live(session.id).counted;
        self.know(session, LastReport { granted: Some(Instant::now()), ..known });
    }

    fn know(&self, session: &Session, known: LastReport) {
        if self.live(session.id).counted != known
            && let Some(live) = self.live.write().get_mut(&session.id)
        {
            live.counted = known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_800_000_000_000);

    const fn counted(since: i64, limit: i64) -> CountedTime {
        CountedTime { since: Timestamp(START.0 + since * 1000), limit_seconds: Some(limit) }
    }

    fn ends(before: Option<(CountedTime, i64)>, now: CountedTime) -> i64 {
        end(3600, before.map(|(counted, end)| (counted, START.plus_seconds(end))), now).seconds_since(START)
    }

    #[test]
    fn the_end_follows_the_count() {
        // The portal asks for ten minutes more than it uses.
        assert_eq!(ends(None, counted(0, 4200)), 3600, "what was asked for");
        assert_eq!(ends(None, counted(5, 1200)), 1205, "what the site gives");
        assert_eq!(ends(None, CountedTime { limit_seconds: None, ..counted(0, 0) }), 3600, "without limit");
        let before = counted(0, 4200);
        assert_eq!(ends(Some((before, 3600)), counted(1, 4200)), 3600, "two clocks are compared");
        assert_eq!(ends(Some((before, 3600)), counted(90, 4200)), 3690, "suspended for a minute and a half");
        assert_eq!(ends(Some((before, 5400)), counted(90, 4200)), 5490, "extended, then suspended");
        assert_eq!(ends(Some((before, 3600)), counted(0, 1800)), 1800, "lowered");
        assert_eq!(ends(Some((counted(0, 1800), 1800)), counted(0, 7200)), 7200, "raised");
        assert_eq!(
            ends(Some((before, 3600)), CountedTime { limit_seconds: None, ..before }),
            3600,
            "no limit any more"
        );
        assert_eq!(ends(Some((before, 3600)), counted(90, 1800)), 1890, "suspended and lowered");
    }
}
