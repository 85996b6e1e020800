//! Events of the portal in one order: entries of the audit log, and states that sessions and attempts of jobs enter. Each
//! is written in the transaction of what happened, under the one write lock, so that the numbers come in their order.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Result,
    audit::Audit,
    reading,
    sessions::ADD_EVENT,
    tx::Tx,
    types::{parse_optional, readable},
    writing,
};
use lyceum_model::{SessionState, Timestamp, event::PortalEvent};

const ADD: &str = "INSERT INTO events (number, at, type, actor, subject, detail, owner)
     SELECT COALESCE(MAX(number), 0) + 1, $1, $2, $3, $4, $5, '' FROM events";

/// A new state: `$1` session, `$2` time, `$3` state, `$4` message.
const ADD_STATE: &str = "INSERT INTO events (number, at, type, actor, subject, detail, owner, session_id, job_id)
     SELECT (SELECT COALESCE(MAX(number), 0) + 1 FROM events), $2,
         CASE WHEN s.job_id IS NULL THEN 'session.' ELSE 'job.' END || $3, '', COALESCE(s.job_id, s.id), $4, u.name, s.id, s.job_id
     FROM sessions s JOIN users u ON u.id = s.owner WHERE s.id = $1";

/// How a session ended is where the session is; its row may be gone.
pub(super) const AFTER: &str =
    "SELECT e.number, e.at, e.type, e.actor, e.subject, e.detail, e.owner, e.session_id, e.job_id,
         s.end_reason, s.exit_code
     FROM events e LEFT JOIN sessions s ON s.id = e.session_id AND e.type IN ('session.ended', 'job.ended')
     WHERE e.number > $1 ORDER BY e.number LIMIT $2";

/// The first ones, up to one that is young enough: `$1` the moment, `$2` how many. What comes later is not read.
pub(super) const FORGET: &str = "DELETE FROM events WHERE number < (SELECT MIN(number) + $2 FROM events)
     AND number < COALESCE((SELECT number FROM events WHERE at >= $1 ORDER BY number LIMIT 1), (SELECT MAX(number) FROM events))";

/// Adds the event of an entry of the audit log.
pub(super) async fn add(mut tx: Tx<'_>, row: &Audit) -> Result<()> {
    tx.query(ADD)
        .bind(row.at.0)
        .bind(&row.action)
        .bind(&row.actor)
        .bind(&row.subject)
        .bind(&row.detail)
        .execute()
        .await
        .map(drop)
}

/// Adds a line to the history of a session that enters a state, and the event.
pub(super) async fn enter_state(
    tx: impl Into<Tx<'_>>,
    session: &str,
    at: Timestamp,
    state: SessionState,
    message: &str,
) -> Result<()> {
    let mut tx = tx.into();
    for add in [ADD_EVENT, ADD_STATE] {
        tx.query(add).bind(session).bind(at.0).bind(state.as_str()).bind(message).execute().await?;
    }
    Ok(())
}

#[derive(FromRow)]
struct Row {
    number: i64,
    at: i64,
    r#type: String,
    actor: String,
    subject: String,
    detail: String,
    owner: String,
    session_id: Option<String>,
    job_id: Option<String>,
    end_reason: Option<String>,
    exit_code: Option<i64>,
}

fn event(row: Row) -> Result<PortalEvent> {
    Ok(PortalEvent {
        number: row.number,
        at: Timestamp(row.at),
        kind: row.r#type,
        actor: row.actor,
        subject: row.subject,
        detail: row.detail,
        owner: Some(row.owner).filter(|owner| !owner.is_empty()),
        session: parse_optional(row.session_id.as_deref(), "session")?,
        job: parse_optional(row.job_id.as_deref(), "job")?,
        end_reason: parse_optional(row.end_reason.as_deref(), "end reason")?,
        exit_code: row.exit_code,
    })
}

impl Db {
    /// Returns events in the order of their numbers, from behind `number` on.
    pub async fn events_after(&self, number: i64, limit: i64) -> Result<Vec<PortalEvent>> {
        let rows: Vec<Row> = reading!(self, pool => query_as(AFTER).bind(number).bind(limit).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(event)))
    }

    /// Returns the number of the latest event, 0 before the first.
    pub async fn last_event(&self) -> Result<i64> {
        Ok(reading!(self, pool => query_scalar("SELECT COALESCE(MAX(number), 0) FROM events").fetch_one(pool).await)?)
    }

    /// Deletes up to `most` events that are older, and returns how many. The latest one stays, since numbers go on from it.
    pub async fn forget_events(&self, before: Timestamp, most: i64) -> Result<u64> {
        Ok(writing!(self, pool => query(FORGET).bind(before.0).bind(most).execute(pool).await?.rows_affected()))
    }
}
