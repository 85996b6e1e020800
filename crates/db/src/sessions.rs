//! Sessions: reading them, and every change of their state. A change names the states it
//! expects and says whether it happened, so that two who act at once cannot both succeed;
//! its line of history is written in the same transaction.

use serde::Deserialize;
use sqlx::{query, query_as, query_scalar};

use super::{
    Db, Json, Result,
    audit::{Entry, append_audit},
    events::enter_state,
    intervals,
    ordering::{Ordering, SortBy, SortColumn, position},
    reading,
    search::{fold, id_is, pattern},
    settings::SET_SETTING,
    transaction,
    types::{parse, readable},
    writing,
};
use lyceum_model::{
    EndReason, IdPart, JobId, Session, SessionId, SessionState, Timestamp, UserId,
    job::Attempt,
    quota::Reason,
    session::{CountedTime, IdleQuestion, Placement, SessionSpec},
};

/// Which workloads to list, sessions and attempts of jobs alike where nothing else is said. Newest first without a `sort`; `before` is the last id of the page before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    pub owner: Option<UserId>,
    pub state: Option<SessionState>,
    pub live_only: bool,
    /// Interactive sessions alone.
    pub sessions_only: bool,
    /// The app's name.
    pub app: Option<&'a str>,
    pub end_reason: Option<EndReason>,
    /// Ended from this moment on.
    pub ended_from: Option<Timestamp>,
    /// Ended before it.
    pub ended_before: Option<Timestamp>,
    /// What the id begins or ends with.
    pub id: Option<&'a IdPart>,
    /// A part of the name, in any case.
    pub find: &'a str,
    pub sort: Option<SortBy<'a>>,
    pub before: Option<SessionId>,
    pub limit: i64,
}

/// The columns that sessions are sorted by.
pub const SORT_COLUMNS: [SortColumn; 5] = [
    SortColumn::CREATED,
    SortColumn::text("name", "s.folded_name"),
    SortColumn::text("program", "s.app"),
    SortColumn::number("started", "COALESCE(s.ready_at, s.started_at, 0)"),
    SortColumn::number("gpus", "s.gpus"),
];

/// What ended sessions of a period can be sorted by.
pub const ENDED_SORT_COLUMNS: [SortColumn; 2] = [SortColumn::CREATED, SortColumn::number("ended", "s.ended_at")];

/// One line of a session's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub number: i64,
    pub at: Timestamp,
    pub state: SessionState,
    pub message: String,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub reason: EndReason,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub at: Timestamp,
    pub detail: String,
}

/// The fields of [`Row`], in its order.
const COLUMNS: &str = "s.id, s.owner, u.name, s.job_id, s.attempt, s.app, s.name, s.state, s.spec, s.gpu_list, s.reasons, s.cluster, \
     s.placement, s.extensions, s.created_at, s.admitted_at, s.started_at, s.ready_at, s.expires_at, \
     s.opened_at, s.last_activity_at, s.keep_until, s.asked_at, s.asked_by, s.unknown_since, s.suspended_since, s.stop_reason, s.stopping_at, s.ended_at, s.end_reason, \
     s.exit_code, s.signal, s.detail, s.image_digest";

/// A session as it is stored. It comes as one JSON array, because each value that passes the
/// driver costs copies and allocations on two threads: 29 of them a session were most of
/// what a page of sessions cost.
#[derive(Deserialize)]
struct Row {
    id: SessionId,
    owner: UserId,
    owner_name: String,
    job_id: Option<JobId>,
    attempt: Option<i64>,
    app: String,
    name: String,
    state: SessionState,
    spec: String,
    gpu_list: String,
    reasons: String,
    cluster: String,
    placement: Option<String>,
    extensions: i64,
    created_at: i64,
    admitted_at: Option<i64>,
    started_at: Option<i64>,
    ready_at: Option<i64>,
    expires_at: Option<i64>,
    opened_at: Option<i64>,
    last_activity_at: Option<i64>,
    keep_until: Option<i64>,
    asked_at: Option<i64>,
    asked_by: Option<String>,
    unknown_since: Option<i64>,
    suspended_since: Option<i64>,
    stop_reason: Option<EndReason>,
    stopping_at: Option<i64>,
    ended_at: Option<i64>,
    end_reason: Option<EndReason>,
    exit_code: Option<i64>,
    signal: Option<i64>,
    detail: Option<String>,
    image_digest: Option<String>,
}

pub(super) fn session(row: &str) -> Result<Session> {
    let row: Row = Json::read(row, "session")?;
    // What cannot be read must not hide the others, nor the session itself: a placement is found again.
    let spec = Json::read(&row.spec, "session's specification");
    let gpus = Json::read(&row.gpu_list, "session's GPUs");
    Ok(Session {
        id: row.id,
        owner: row.owner,
        owner_name: row.owner_name,
        job: row.job_id.zip(row.attempt).map(|(job, number)| Attempt { job, number }),
        app: row.app,
        name: row.name,
        state: row.state,
        spec_is_whole: spec.is_ok() && gpus.is_ok(),
        spec: spec.unwrap_or_else(|_err| SessionSpec::salvaged(&row.spec)),
        reasons: Json::read_or_default(&row.reasons),
        gpus: gpus.unwrap_or_default(),
        cluster: row.cluster,
        placement: row.placement.as_deref().and_then(Json::read_or_default),
        extensions: row.extensions,
        created_at: Timestamp(row.created_at),
        admitted_at: row.admitted_at.map(Timestamp),
        started_at: row.started_at.map(Timestamp),
        ready_at: row.ready_at.map(Timestamp),
        expires_at: row.expires_at.map(Timestamp),
        opened_at: row.opened_at.map(Timestamp),
        last_activity_at: row.last_activity_at.map(Timestamp),
        keep_until: row.keep_until.map(Timestamp),
        asked: row.asked_at.zip(row.asked_by).map(|(at, by)| IdleQuestion { at: Timestamp(at), by }),
        unknown_since: row.unknown_since.map(Timestamp),
        suspended_since: row.suspended_since.map(Timestamp),
        stop_reason: row.stop_reason,
        stopping_at: row.stopping_at.map(Timestamp),
        ended_at: row.ended_at.map(Timestamp),
        end_reason: row.end_reason,
        exit_code: row.exit_code,
        signal: row.signal,
        detail: row.detail,
        image_digest: row.image_digest,
    })
}

/// A line of history, numbered within its session: `$1` session, `$2` time, `$3` state, `$4` message.
pub(super) const ADD_EVENT: &str = "INSERT INTO session_events (session_id, number, at, state, message)
     SELECT $1, COALESCE(MAX(number), 0) + 1, $2, $3, $4 FROM session_events WHERE session_id = $1";

/// A whole session `s` of the person `u` as one array. What makes an array has a name of its own
/// in each database.
pub(super) fn array_of(db: &Db) -> String {
    let array = match db {
        Db::Sqlite { .. } => "json_array",
        Db::Postgres { .. } => "json_build_array",
    };
    format!("CAST({array}({COLUMNS}) AS TEXT)")
}

/// The text that reads whole sessions, up to the conditions.
pub(super) fn select(db: &Db) -> String {
    format!("SELECT {} FROM {OWNED}", array_of(db))
}

const OWNED: &str = "sessions s JOIN users u ON u.id = s.owner";

/// The owner's name, and the job where it is one's attempt.
const WHOSE: &str = "SELECT u.name, s.job_id FROM sessions s JOIN users u ON u.id = s.owner WHERE s.id = $1";

pub(super) const OWNER_NAME: &str = "SELECT u.name FROM sessions s JOIN users u ON u.id = s.owner WHERE s.id = $1";

/// What the audit log says of a stop: an administrator's names whose session it was.
fn stopped<'a>(
    reason: EndReason,
    at: Timestamp,
    actor: &'a str,
    id: &'a str,
    (owner, job): &'a (String, Option<String>),
) -> Entry<'a> {
    let (action, detail) = match (reason, job) {
        (EndReason::StoppedByAdmin, None) => ("session.admin_stop", owner.as_str()),
        (EndReason::StoppedByAdmin, Some(_)) => ("job.admin_cancel", owner.as_str()),
        (_, None) => ("session.stop", ""),
        (_, Some(_)) => ("job.cancel", ""),
    };
    Entry { at, actor, action, subject: job.as_deref().unwrap_or(id), detail }
}

/// The text that lists: `$1` owner, `$2` state, `$3` the id before, `$4` how many, `$5` app,
/// `$6` reason of the end, `$7` and `$8` ended from and before, `$9` the pattern of a name, `$10` the sorted value before.
///
/// A condition is there only when it is asked for, and what is not ended says so in the
/// words of the index of live sessions: else the whole history would be read.
pub(super) fn list(db: &Db, filter: &Filter<'_>) -> String {
    let sorted = Ordering::new(filter.sort.as_ref(), "s.id", "$3", "$10");
    let Ordering { after, order, value } = &sorted;
    let (whose, order) = match (filter.owner, db) {
        (None, _) => (format!("$1 = '' AND {after}"), order.clone()),
        (Some(_), Db::Postgres { .. }) if filter.sort.is_none() => {
            // An order that begins with the owner is that of the owners' indexes alone. PostgreSQL would otherwise go
            // through everyone's sessions by id, since it expects soon to meet those of a person who has many jobs.
            let after = "s.owner >= $1 AND (s.owner, s.id) < ($1, $3) AND $10 = ''";
            (after.to_owned(), "s.owner DESC, s.id DESC".to_owned())
        }
        (Some(_), _) => (format!("s.owner = $1 AND {after}"), order.clone()),
    };
    let state = if filter.state.is_some() { "s.state = $2" } else { "$2 = ''" };
    let live_only = filter.live_only || filter.state.is_some_and(SessionState::is_live);
    let live = if live_only { "AND s.state <> 'ended'" } else { "" };
    let kind = if filter.sessions_only { "AND s.job_id IS NULL" } else { "" };
    // A person's own sessions are read by their owner: without the COALESCE, SQLite would read everyone's of that app.
    let equals = |column: &str, value: &str, is_asked: bool| match (is_asked, filter.owner) {
        (false, _) => format!("{value} = ''"),
        (true, None) => format!("{column} = {value}"),
        (true, Some(_)) => format!("COALESCE({column}, '') = {value}"),
    };
    let app = equals("s.app", "$5", filter.app.is_some());
    let reason = equals("s.end_reason", "$6", filter.end_reason.is_some());
    let is_timed = filter.ended_from.is_some() || filter.ended_before.is_some();
    // The state is in the words of the indexes by end; SQLite would otherwise read by id.
    let ended = match filter.sort {
        _ if !is_timed => "$7 < $8",
        // A later page begins where the last one ended. SQLite would use the other bound, and read all before it.
        Some(SortBy { column, is_descending: true, after: Some(_) }) if column.name == "ended" => {
            "s.state = 'ended' AND s.ended_at >= $7 AND $7 < $8"
        }
        _ => "s.state = 'ended' AND s.ended_at >= $7 AND s.ended_at < $8",
    };
    let id = id_is("s.id", filter.id);
    let find = if filter.find.is_empty() { "$9 = ''" } else { "s.folded_name LIKE $9 ESCAPE '!'" };
    format!(
        "SELECT {}, {value} FROM {OWNED} WHERE {whose} AND {state} {live} {kind} {id} AND {app} AND {reason} AND {ended} \
         AND {find} ORDER BY {order} LIMIT $4",
        array_of(db)
    )
}

pub(super) fn live(db: &Db) -> String {
    format!("{} WHERE s.state <> 'ended' ORDER BY s.id", select(db))
}

/// How many sessions, or attempts of jobs, of an app are in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveCount {
    pub app: String,
    pub is_job: bool,
    pub state: String,
    pub count: i64,
    /// When the oldest of them was requested.
    pub oldest: Timestamp,
}

impl Db {
    pub async fn find_session(&self, id: SessionId) -> Result<Option<Session>> {
        let sql = format!("{} WHERE s.id = $1", select(self));
        let id = id.to_string();
        let row: Option<String> = reading!(self, pool =>
            query_scalar(sqlx::AssertSqlSafe(sql)).bind(&id).fetch_optional(pool).await)?;
        row.as_deref().map(session).transpose()
    }

    pub async fn list_sessions(&self, filter: Filter<'_>) -> Result<Vec<Session>> {
        Ok(self.list_sessions_sorted(filter).await?.into_iter().map(|(session, _)| session).collect())
    }

    /// Lists sessions, each with the value that the list is sorted by.
    pub async fn list_sessions_sorted(&self, filter: Filter<'_>) -> Result<Vec<(Session, String)>> {
        // PostgreSQL refuses such a text, and no app is called so.
        if filter.app.is_some_and(|app| app.contains('\0')) {
            return Ok(Vec::new());
        }
        let sql = list(self, &filter);
        let owner = filter.owner.map(|owner| owner.to_string()).unwrap_or_default();
        let state = filter.state.map(SessionState::as_str).unwrap_or_default();
        // "g" sorts after every hexadecimal digit, so after every id.
        let before = filter.before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        let rows: Vec<(String, String)> = reading!(self, pool => query_as(sqlx::AssertSqlSafe(sql))
            .bind(&owner).bind(state).bind(&before).bind(filter.limit)
            .bind(filter.app.unwrap_or_default()).bind(filter.end_reason.map_or("", EndReason::as_str))
            .bind(filter.ended_from.map_or(i64::MIN, |at| at.0)).bind(filter.ended_before.map_or(i64::MAX, |at| at.0))
            .bind(pattern(filter.find)).bind(position(filter.sort.as_ref()))
            .fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(|(row, value)| Ok((session(&row)?, value)))))
    }

    /// Counts what lives, by app and state.
    pub async fn count_live(&self) -> Result<Vec<LiveCount>> {
        let rows: Vec<(String, i64, String, i64, i64)> = reading!(self, pool => query_as(
            "SELECT app, CAST(CASE WHEN job_id IS NULL THEN 0 ELSE 1 END AS BIGINT) AS is_job, state, COUNT(*),
                 MIN(created_at) FROM sessions WHERE state <> 'ended' GROUP BY app, is_job, state ORDER BY app, is_job, state")
            .fetch_all(pool).await)?;
        let count = |(app, is_job, state, count, oldest): (String, i64, String, i64, i64)| LiveCount {
            app,
            is_job: is_job == 1,
            state,
            count,
            oldest: Timestamp(oldest),
        };
        Ok(rows.into_iter().map(count).collect())
    }

    /// Everything that has not ended, oldest first: what `reconcile` works on.
    pub async fn live_sessions(&self) -> Result<Vec<Session>> {
        let rows: Vec<String> =
            reading!(self, pool => query_scalar(sqlx::AssertSqlSafe(live(self))).fetch_all(pool).await)?;
        Ok(readable(rows.iter().map(|row| session(row))))
    }

    pub async fn session_events(&self, id: SessionId, after: i64) -> Result<Vec<Event>> {
        let id = id.to_string();
        let rows: Vec<(i64, i64, String, String)> = reading!(self, pool => query_as(
            "SELECT number, at, state, message FROM session_events WHERE session_id = $1 AND number > $2 ORDER BY number")
            .bind(&id).bind(after).fetch_all(pool).await)?;
        rows.into_iter()
            .map(|(number, at, state, message)| {
                Ok(Event { number, at: Timestamp(at), state: parse(&state, "state")?, message })
            })
            .collect()
    }

    /// Adds a line of history that changes no state.
    pub async fn add_session_event(
        &self,
        id: SessionId,
        at: Timestamp,
        state: SessionState,
        message: &str,
    ) -> Result<()> {
        let id = id.to_string();
        // The next number is nobody else's under the lock alone.
        transaction!(self, tx => {
            query(ADD_EVENT).bind(&id).bind(at.0).bind(state.as_str()).bind(message).execute(&mut *tx).await?;
        });
        Ok(())
    }

    /// Adds a line of history that changes no state, unless the session has it already, and
    /// says whether it was new.
    pub async fn add_session_event_once(
        &self,
        id: SessionId,
        at: Timestamp,
        state: SessionState,
        message: &str,
    ) -> Result<bool> {
        let id = id.to_string();
        let added = transaction!(self, tx => {
            let known: Option<(i64,)> =
                query_as("SELECT number FROM session_events WHERE session_id = $1 AND message = $2")
                .bind(&id).bind(message).fetch_optional(&mut *tx).await?;
            if known.is_none() {
                query(ADD_EVENT).bind(&id).bind(at.0).bind(state.as_str()).bind(message).execute(&mut *tx).await?;
            }
            known.is_none()
        });
        Ok(added)
    }

    /// Admitted and queued → starting.
    pub async fn begin_start(&self, id: SessionId, at: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let changed = transaction!(self, tx => {
            let changed = query("UPDATE sessions SET state = 'starting', started_at = $2, unknown_since = NULL, detail = NULL
                 WHERE id = $1 AND state = 'queued' AND admitted_at IS NOT NULL")
                .bind(&id).bind(at.0).execute(&mut *tx).await?.rows_affected();
            if changed > 0 {
                enter_state(&mut *tx, &id, at, SessionState::Starting, "Submitted to the scheduler").await?;
            }
            changed
        });
        Ok(changed > 0)
    }

    /// Remembers where a starting session runs.
    pub async fn set_placement(&self, id: SessionId, placement: &Placement) -> Result<bool> {
        let (id, placement) = (id.to_string(), Json::write(placement));
        let changed = writing!(self, pool => query("UPDATE sessions SET placement = $2 WHERE id = $1 AND state <> 'ended'")
            .bind(&id).bind(&placement).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Returns the count that the end of a session's time was last computed from.
    pub async fn counted_time(&self, id: SessionId) -> Result<Option<CountedTime>> {
        let row: Option<(Option<i64>, Option<i64>)> = reading!(self, pool => query_as("SELECT counted_from, counted_limit FROM sessions WHERE id = $1")
                .bind(id.to_string()).fetch_optional(pool).await)?;
        Ok(row.and_then(|(since, limit_seconds)| Some(CountedTime { since: Timestamp(since?), limit_seconds })))
    }

    /// Sets when the time of a session is over, as its scheduler counts it, unless its end is not `before` any more. A
    /// session that was `resumed` then is not suspended any more: nobody sees it run with the end of before.
    pub async fn set_end_of_time(
        &self,
        id: SessionId,
        before: Option<Timestamp>,
        end: Timestamp,
        counted: &CountedTime,
        resumed: Option<Timestamp>,
    ) -> Result<bool> {
        let changed = writing!(self, pool => query(
            "UPDATE sessions SET expires_at = $2, counted_from = $3, counted_limit = $4,
                 suspended_since = CASE WHEN $6 IS NULL THEN suspended_since END,
                 last_activity_at = COALESCE($6, last_activity_at)
             WHERE id = $1 AND state IN ('starting', 'running') AND COALESCE(expires_at, -1) = $5")
            .bind(id.to_string()).bind(end.0).bind(counted.since.0).bind(counted.limit_seconds)
            .bind(before.map_or(-1, |at| at.0)).bind(resumed.map(|at| at.0))
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Notes since when a session is suspended by its batch system; `set_end_of_time` notes that it was resumed.
    pub async fn set_suspended(&self, id: SessionId, since: Timestamp) -> Result<()> {
        writing!(self, pool => query("UPDATE sessions SET suspended_since = $2 WHERE id = $1 AND state <> 'ended'")
            .bind(id.to_string()).bind(since.0).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Starting → running. The time limit counts from here, unless the scheduler told of an earlier start.
    pub async fn mark_running(&self, id: SessionId, at: Timestamp, expires_at: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let changed = transaction!(self, tx => {
            let changed: Option<(Option<String>,)> = query_as("UPDATE sessions SET state = 'running', ready_at = $2,
                     expires_at = COALESCE(expires_at, $3), last_activity_at = $2, detail = NULL
                 WHERE id = $1 AND state = 'starting' RETURNING job_id")
                .bind(&id).bind(at.0).bind(expires_at.0).fetch_optional(&mut *tx).await?;
            if let Some((job,)) = &changed {
                let message = if job.is_some() { "Program started" } else { "App responded" };
                enter_state(&mut *tx, &id, at, SessionState::Running, message).await?;
            }
            changed.is_some()
        });
        Ok(changed)
    }

    /// Asks for the end of a session that runs or starts. The first reason stays. Where a
    /// person asked, `by` is their name for the audit.
    pub async fn begin_stop(
        &self,
        id: SessionId,
        reason: EndReason,
        at: Timestamp,
        message: &str,
        by: Option<&str>,
    ) -> Result<bool> {
        let id = id.to_string();
        let changed = transaction!(self, tx => {
            let changed = query("UPDATE sessions SET state = 'stopping', stop_reason = $2, stopping_at = $3, detail = $4
                 WHERE id = $1 AND (state IN ('starting', 'running') OR (state = 'queued' AND admitted_at IS NOT NULL))")
                .bind(&id).bind(reason.as_str()).bind(at.0).bind(message).execute(&mut *tx).await?.rows_affected();
            if changed > 0 {
                enter_state(&mut *tx, &id, at, SessionState::Stopping, message).await?;
                if let Some(actor) = by {
                    let whose: (String, Option<String>) = query_as(WHOSE).bind(&id).fetch_one(&mut *tx).await?;
                    append_audit(&mut *tx, &stopped(reason, at, actor, &id, &whose)).await?;
                }
            }
            changed
        });
        Ok(changed > 0)
    }

    /// Ends a session that still waits; nothing of it ever ran. `by` as in [`Db::begin_stop`].
    pub async fn end_waiting(
        &self,
        id: SessionId,
        reason: EndReason,
        reasons: &[Reason],
        at: Timestamp,
        message: &str,
        by: Option<&str>,
    ) -> Result<bool> {
        let (id, reasons) = (id.to_string(), Json::write(&reasons));
        let changed = transaction!(self, tx => {
            let changed = query("UPDATE sessions SET state = 'ended', end_reason = $2, ended_at = $3, detail = $4, reasons = $5
                 WHERE id = $1 AND state = 'queued' AND admitted_at IS NULL")
                .bind(&id).bind(reason.as_str()).bind(at.0).bind(message).bind(&reasons).execute(&mut *tx).await?.rows_affected();
            if changed > 0 {
                enter_state(&mut *tx, &id, at, SessionState::Ended, message).await?;
                if let Some(actor) = by {
                    let whose: (String, Option<String>) = query_as(WHOSE).bind(&id).fetch_one(&mut *tx).await?;
                    append_audit(&mut *tx, &stopped(reason, at, actor, &id, &whose)).await?;
                }
            }
            changed
        });
        Ok(changed > 0)
    }

    /// Ends an admitted session and closes its interval. False when it had ended already.
    pub async fn end_session(&self, id: SessionId, ending: &Ending) -> Result<bool> {
        let id = id.to_string();
        let changed = transaction!(self, tx => {
            let changed = query("UPDATE sessions SET state = 'ended', end_reason = $2, exit_code = $3, signal = $4,
                     ended_at = $5, detail = $6, unknown_since = NULL, suspended_since = NULL
                 WHERE id = $1 AND state <> 'ended'")
                .bind(&id).bind(ending.reason.as_str()).bind(ending.exit_code).bind(ending.signal)
                .bind(ending.at.0).bind(&ending.detail)
                .execute(&mut *tx).await?.rows_affected();
            if changed > 0 {
                query(intervals::CLOSE).bind(&id).bind(ending.at.0).execute(&mut *tx).await?;
                enter_state(&mut *tx, &id, ending.at, SessionState::Ended, &ending.detail).await?;
            }
            changed
        });
        Ok(changed > 0)
    }

    /// Moves every moment that is stored of live sessions by so many milliseconds and notes
    /// `setting`, both or neither. `then` comes last, while nobody else writes.
    pub async fn move_times(&self, by: i64, (name, value): (&str, &str), then: impl FnOnce()) -> Result<()> {
        transaction!(self, tx => {
            query("UPDATE sessions SET created_at = created_at + $1, admitted_at = admitted_at + $1,
                     started_at = started_at + $1, ready_at = ready_at + $1, expires_at = expires_at + $1,
                     opened_at = opened_at + $1,
                     last_activity_at = last_activity_at + $1, keep_until = keep_until + $1, asked_at = asked_at + $1,
                     unknown_since = unknown_since + $1, suspended_since = suspended_since + $1,
                     counted_from = counted_from + $1, stopping_at = stopping_at + $1, not_before = not_before + $1
                 WHERE state <> 'ended'")
                .bind(by).execute(&mut *tx).await?;
            query("UPDATE intervals SET started_at = started_at + $1 WHERE ended_at IS NULL")
                .bind(by).execute(&mut *tx).await?;
            query(SET_SETTING).bind(name).bind(value).execute(&mut *tx).await?;
            then();
        });
        Ok(())
    }

    pub async fn keep_session(&self, id: SessionId, until: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let changed = writing!(self, pool => query("UPDATE sessions SET keep_until = $2, asked_at = NULL, asked_by = NULL WHERE id = $1 AND state = 'running'")
            .bind(&id).bind(until.0).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    pub async fn rename_session(&self, id: SessionId, name: &str) -> Result<()> {
        let id = id.to_string();
        writing!(self, pool => query("UPDATE sessions SET name = $2, folded_name = $3 WHERE id = $1").bind(&id).bind(name).bind(fold(name)).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Notes that its owner has come to it, the first time.
    pub async fn mark_opened(&self, id: SessionId, at: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let changed = writing!(self, pool => query("UPDATE sessions SET opened_at = $2
             WHERE id = $1 AND state = 'running' AND opened_at IS NULL")
            .bind(&id).bind(at.0).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Activity only moves forward.
    pub async fn set_activity(&self, id: SessionId, at: Timestamp) -> Result<()> {
        let id = id.to_string();
        writing!(self, pool => query("UPDATE sessions SET last_activity_at = $2
             WHERE id = $1 AND state = 'running' AND (last_activity_at IS NULL OR last_activity_at < $2)")
            .bind(&id).bind(at.0).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Since when nobody can be asked about it; `None` when somebody answers again.
    pub async fn set_unknown(&self, id: SessionId, since: Option<Timestamp>) -> Result<()> {
        let id = id.to_string();
        writing!(self, pool => query("UPDATE sessions SET unknown_since = $2 WHERE id = $1 AND state <> 'ended'")
            .bind(&id).bind(since.map(|at| at.0)).execute(pool).await.map(drop))?;
        Ok(())
    }

    pub async fn set_detail(&self, id: SessionId, detail: &str) -> Result<()> {
        let id = id.to_string();
        writing!(self, pool => query("UPDATE sessions SET detail = $2 WHERE id = $1 AND state <> 'ended'")
            .bind(&id).bind(detail).execute(pool).await.map(drop))?;
        Ok(())
    }
}
