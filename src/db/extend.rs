//! More time for a running session, in one transaction: read what is held and limited, let a
//! pure function judge, and move the end, all under the one write lock. Whoever only looks
//! reads the same.

use sqlx::{AssertSqlSafe, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    facts::{ASKER, Facts, LIVE, Live, Party, Scene},
    quotas::{SHARES, ShareRow},
    reading,
    sessions::{ADD_EVENT, select, session},
    standing::bounds,
    together::together,
    transaction,
};
use crate::model::{
    Clock, Session, SessionId,
    quota::{Period, Reason},
    time::human_duration,
};

/// The outcome of [`Db::extend_session`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extended {
    /// It ends so many seconds later.
    By(i64),
    Refused(Vec<Reason>),
    /// There is no such session, or it has no end that could be moved.
    NotRunning,
}

/// Reads a running session, and what a decision about it is made from.
macro_rules! situation {
    ($tx:ident, $db:expr, $id:expr, $period:expr, $at:expr) => {{
        let sql = format!("{} WHERE s.id = $1 AND s.state = 'running'", select($db));
        let row: Option<String> =
            query_scalar(AssertSqlSafe(sql)).bind($id.to_string()).fetch_optional(&mut *$tx).await?;
        match row.as_deref().map(session).transpose()? {
            None => None,
            Some(found) => {
                let live: Vec<Live> = query_as(LIVE).fetch_all(&mut *$tx).await?;
                let owner = found.owner.to_string();
                let window = $period.window($at);
                let totals: Vec<ShareRow> = query_as(SHARES).bind($at.0).fetch_all(&mut *$tx).await?;
                let together = together!($tx, &*owner);
                let asker = query_as(ASKER).bind(&owner).fetch_one(&mut *$tx).await?;
                let scene = Scene::of($at, window, live, Vec::new(), &[], together)?;
                let (group, groups) = (scene.group_of(found.id), scene.groups_of_session(found.id));
                let bounds =
                    bounds!($tx, &*owner, group, &groups, &totals, scene.together(), window, $at, (false, false));
                let party = Party { owner: found.owner, group, bounds, asker };
                let facts = scene.facts(&party, None)?;
                Some((found, facts))
            }
        }
    }};
}

impl Db {
    /// What a decision about more time for this session would be made from; `None` where it
    /// does not run.
    pub async fn look_at_extension(
        &self,
        id: SessionId,
        period: &Period,
        clock: &Clock,
    ) -> Result<Option<(Session, Facts)>> {
        let at = clock.now();
        Ok(reading!(self, pool => {
            let mut tx = pool.begin().await?;
            situation!(tx, self, id, period, at)
        }))
    }

    /// Judges, and moves the end of a running session by as many seconds as the judge says, in
    /// the name of `by`.
    pub async fn extend_session(
        &self,
        id: SessionId,
        period: &Period,
        clock: &Clock,
        by: &str,
        judge: impl FnOnce(&Session, &Facts) -> Result<i64, Vec<Reason>> + Send,
    ) -> Result<Extended> {
        let outcome = transaction!(self, tx => 'decide: {
            let at = clock.now();
            let Some((session, facts)) = situation!(tx, self, id, period, at) else { break 'decide Extended::NotRunning };
            let Some(end) = session.expires_at else { break 'decide Extended::NotRunning };
            let seconds = match judge(&session, &facts) {
                Ok(seconds) => seconds,
                Err(reasons) => break 'decide Extended::Refused(reasons),
            };
            let id = id.to_string();
            let whose = if session.owner_name == by { "" } else { ", by an administrator" };
            let message = format!("Extended by {}{whose}", human_duration(seconds));
            query("UPDATE sessions SET expires_at = $3, extensions = extensions + 1
                 WHERE id = $1 AND state = 'running' AND expires_at = $2")
                .bind(&id).bind(end.0).bind(end.plus_seconds(seconds).0).execute(&mut *tx).await?;
            query(ADD_EVENT).bind(&id).bind(at.0).bind("running").bind(&message).execute(&mut *tx).await?;
            append_audit!(tx, &Entry { at, actor: by, action: "session.extend", subject: &id, detail: &message });
            Extended::By(seconds)
        });
        Ok(outcome)
    }
}
