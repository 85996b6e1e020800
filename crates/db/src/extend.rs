//! More time for a running session, in one transaction: read what is held and limited, let a
//! pure function judge, and move the end, all under the one write lock. Whoever only looks
//! reads the same.

use sqlx::{AssertSqlSafe, query};

use super::{
    Db, Result,
    audit::{Entry, append_audit},
    counted_groups::together,
    facts::{ASKER, Applicant, Facts, LIVE, LiveWorkload, Snapshot},
    limits_and_usage::{Binding, bounds},
    quotas::{SHARES, ShareRow},
    reading,
    sessions::{ADD_EVENT, select, session},
    transaction,
    tx::Tx,
};
use lyceum_model::{
    Clock, Session, SessionId, Timestamp,
    quota::{Period, Reason},
    time::human_duration,
};

/// The outcome of [`Db::extend_session`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtensionOutcome {
    /// It ends so many seconds later.
    By(i64),
    Refused(Vec<Reason>),
    /// There is no such session, or it has no end that could be moved.
    NotRunning,
}

/// Reads a running session by a text that selects sessions, and what a decision about it is made from.
async fn situation(
    mut tx: Tx<'_>,
    select: &str,
    id: SessionId,
    period: &Period,
    at: Timestamp,
) -> Result<Option<(Session, Facts)>> {
    let sql = format!("{select} WHERE s.id = $1 AND s.state = 'running'");
    let row: Option<(String,)> = tx.query(AssertSqlSafe(sql)).bind(id.to_string()).first().await?;
    let Some((row,)) = row else { return Ok(None) };
    let found = session(&row)?;
    let live: Vec<LiveWorkload> = tx.query(LIVE).all().await?;
    let owner = &*found.owner.to_string();
    let window = period.window(at);
    let totals: Vec<ShareRow> = tx.query(SHARES).bind(at.0).all().await?;
    let together = together(tx.again(), owner).await?;
    let asker = tx.query(ASKER).bind(owner).one().await?;
    let snapshot = Snapshot::of(at, window, live, Vec::new(), &[], together)?;
    let (charged, groups) = (snapshot.group_of(found.id), snapshot.groups_of_session(found.id));
    let binding = Binding {
        owner,
        charged,
        groups: &groups,
        totals: &totals,
        together: snapshot.together(),
        window,
        at,
        own_hours: false,
        group_hours: false,
    };
    let bounds = bounds(tx.again(), binding).await?;
    let facts = snapshot.facts(&Applicant { owner: found.owner, group: charged, bounds, asker }, None)?;
    Ok(Some((found, facts)))
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
            situation(Tx::from(&mut *tx), &select(self), id, period, at).await?
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
    ) -> Result<ExtensionOutcome> {
        let outcome = transaction!(self, tx => 'decide: {
            let at = clock.now();
            let Some((session, facts)) = situation(Tx::from(&mut *tx), &select(self), id, period, at).await? else { break 'decide ExtensionOutcome::NotRunning };
            let Some(end) = session.expires_at else { break 'decide ExtensionOutcome::NotRunning };
            let seconds = match judge(&session, &facts) {
                Ok(seconds) => seconds,
                Err(reasons) => break 'decide ExtensionOutcome::Refused(reasons),
            };
            let id = id.to_string();
            let whose = if session.owner_name == by { "" } else { ", by an administrator" };
            let message = format!("Extended by {}{whose}", human_duration(seconds));
            query("UPDATE sessions SET expires_at = $3, extensions = extensions + 1
                 WHERE id = $1 AND state = 'running' AND expires_at = $2")
                .bind(&id).bind(end.0).bind(end.plus_seconds(seconds).0).execute(&mut *tx).await?;
            query(ADD_EVENT).bind(&id).bind(at.0).bind("running").bind(&message).execute(&mut *tx).await?;
            append_audit(&mut *tx, &Entry { at, actor: by, action: "session.extend", subject: &id, detail: &message }).await?;
            ExtensionOutcome::By(seconds)
        });
        Ok(outcome)
    }
}
