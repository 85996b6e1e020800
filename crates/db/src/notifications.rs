//! Notifications: what people want to hear, what was noticed of their jobs, and what is to be
//! delivered. An event and its deliveries are one transaction, and each delivery is claimed before
//! anything leaves the house, so that nothing is told twice.

use sqlx::{AssertSqlSafe, FromRow, query, query_as, query_scalar};

use super::{
    Db, Json, Result,
    audit::{Entry, append_audit},
    jobs::{Row as JobRow, job, select_jobs},
    reading, transaction,
    tx::Tx,
    types::{parse, readable},
    writing,
};
use lyceum_model::{
    DatasetId, Job, JobId, ModelId, NotificationId, SessionId, Timestamp, UserId,
    alert::{Alert, AlertNews},
    notification::{Delivery, Event, Message, Notification, NotificationSettings, UnseenJob, WatchedJob, Way},
};

/// What a job builds or trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Dataset(DatasetId),
    Model(ModelId),
}

#[derive(FromRow)]
struct Row {
    id: String,
    user_id: String,
    way: String,
    message: String,
    state: String,
    attempts: i64,
    at: i64,
    error: Option<String>,
}

const SELECT: &str = "SELECT id, user_id, way, message, state, attempts, at, error FROM notifications";

fn notification(row: Row) -> Result<Notification> {
    Ok(Notification {
        id: parse(&row.id, "notification id")?,
        user: parse(&row.user_id, "user id")?,
        way: parse(&row.way, "way of a notification")?,
        message: Json::read(&row.message, "notification")?,
        state: parse(&row.state, "state of a notification")?,
        attempts: row.attempts,
        at: Timestamp(row.at),
        error: row.error,
    })
}

#[derive(FromRow)]
struct WatchedRow {
    job: String,
    name: String,
    owner: String,
    session: String,
    attempt: i64,
    run: String,
    points: i64,
    grown_at: Option<i64>,
    state: String,
    unknown_since: Option<i64>,
    not_finite: i64,
    stalled: i64,
}

/// A notification is added, unless there were too many: `$1` id, `$2` user, `$3` way, `$4` message,
/// `$5` now, `$6` since when those count, `$7` how many there may be, `$8` why one is dropped.
pub(super) const ADD: &str = "INSERT INTO notifications (id, user_id, way, message, state, attempts, due_at, at, error)
    SELECT $1, $2, $3, $4, CASE WHEN n.many < $7 THEN 'waiting' ELSE 'dropped' END, 0, $5, $5,
        CASE WHEN n.many < $7 THEN NULL ELSE $8 END
    FROM (SELECT COUNT(*) AS many FROM notifications WHERE user_id = $2 AND at > $6 AND state <> 'dropped') n";

/// To one person within an hour.
const MAX_PER_HOUR: i64 = 50;
const HOUR: i64 = 3600;

async fn add(tx: impl Into<Tx<'_>>, user: UserId, ways: &[Way], message: &Message, now: Timestamp) -> Result<()> {
    let mut tx = tx.into();
    for way in ways {
        tx.query(ADD)
            .bind(NotificationId::new().to_string())
            .bind(user.to_string())
            .bind(way.as_str())
            .bind(Json::write(message))
            .bind(now.0)
            .bind(now.plus_seconds(-HOUR).0)
            .bind(MAX_PER_HOUR)
            .bind("There were more than 50 within an hour.")
            .execute()
            .await?;
    }
    Ok(())
}

const WATCHED: &str = "SELECT j.id AS job, j.name, j.owner, s.id AS session, j.attempt, r.id AS run, r.points,
            r.grown_at, s.state, s.unknown_since,
            (SELECT COUNT(*) FROM notification_events e WHERE e.session_id = s.id AND e.event = 'not_finite') AS not_finite,
            (SELECT COUNT(*) FROM notification_events e WHERE e.session_id = s.id AND e.event = 'stalled') AS stalled
         FROM sessions s JOIN jobs j ON j.session_id = s.id
         JOIN runs r ON r.job_id = j.id AND r.session_id = s.id";

/// Those that run; worded so that the index of all sessions that are jobs' does not fit, which has every one that has ended.
pub(super) fn running_jobs() -> String {
    format!("{WATCHED} WHERE s.state <> 'ended' AND s.state = 'running' AND COALESCE(s.job_id, '') <> ''")
}

impl Db {
    pub async fn notification_wishes(&self, user: UserId) -> Result<Option<NotificationSettings>> {
        let text: Option<String> = reading!(self, pool =>
            query_scalar("SELECT wishes FROM notification_wishes WHERE user_id = $1")
                .bind(user.to_string()).fetch_optional(pool).await)?;
        text.map(|text| Json::read(&text, "wishes for notifications")).transpose()
    }

    /// Returns what each of those wants to hear who have said so.
    pub async fn everybodys_notification_wishes(&self) -> Result<Vec<(UserId, NotificationSettings)>> {
        let rows: Vec<(String, String)> = reading!(self, pool =>
            query_as("SELECT user_id, wishes FROM notification_wishes ORDER BY user_id").fetch_all(pool).await)?;
        let wishes = |(user, wishes): (String, String)| {
            Ok((parse(&user, "user id")?, Json::read(&wishes, "wishes for notifications")?))
        };
        Ok(readable(rows.into_iter().map(wishes)))
    }

    /// Returns the alerts that are open.
    pub async fn open_alerts(&self) -> Result<Vec<Alert>> {
        let rows: Vec<(String,)> = reading!(self, pool =>
            query_as("SELECT alert FROM health_alerts ORDER BY name").fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(|(alert,)| Json::read(&alert, "alert"))))
    }

    /// Opens, changes or closes an alert, and adds what is to be delivered of it; false where that was done before.
    pub async fn settle_alert(
        &self,
        news: &AlertNews,
        recipients: &[(UserId, Vec<Way>)],
        message: &Message,
        now: Timestamp,
    ) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let settled = match news {
                AlertNews::Raised { alert, .. } => query("INSERT INTO health_alerts (name, alert) VALUES ($1, $2)
                     ON CONFLICT (name) DO UPDATE SET alert = excluded.alert WHERE health_alerts.alert <> excluded.alert")
                    .bind(&alert.name).bind(Json::write(alert)).execute(&mut *tx).await?.rows_affected(),
                AlertNews::Cleared(alert) => query("DELETE FROM health_alerts WHERE name = $1")
                    .bind(&alert.name).execute(&mut *tx).await?.rows_affected(),
            };
            if settled > 0 {
                for (user, ways) in recipients {
                    add(&mut *tx, *user, ways, message, now).await?;
                }
            }
            settled > 0
        }))
    }

    /// Writes what somebody wants to hear from now on.
    pub async fn set_notification_wishes(
        &self,
        user: UserId,
        wishes: &NotificationSettings,
        noted: &Entry<'_>,
    ) -> Result<()> {
        transaction!(self, tx => {
            query("INSERT INTO notification_wishes (user_id, wishes) VALUES ($1, $2)
                 ON CONFLICT (user_id) DO UPDATE SET wishes = excluded.wishes")
                .bind(user.to_string()).bind(Json::write(wishes)).execute(&mut *tx).await?;
            append_audit(&mut *tx, noted).await?;
        });
        Ok(())
    }

    /// The address that a directory, or whoever signed them in, tells of somebody.
    pub async fn mail_of(&self, user: UserId) -> Result<Option<String>> {
        let found: Option<Option<String>> = reading!(self, pool => query_scalar("SELECT mail FROM users WHERE id = $1")
            .bind(user.to_string()).fetch_optional(pool).await)?;
        Ok(found.flatten())
    }

    /// Jobs that ended since and whose end was not noticed yet.
    pub async fn unnoticed_ends(&self, since: Timestamp, limit: i64) -> Result<Vec<Job>> {
        let sql = format!(
            "{} WHERE s.job_id IS NOT NULL AND s.ended_at >= $1 AND s.state = 'ended'
                 AND COALESCE(s.end_reason, '') <> 'stopped_by_owner'
                 AND NOT EXISTS (SELECT 1 FROM notification_events e
                     WHERE e.session_id = s.id AND e.event IN ('finished', 'failed'))
             ORDER BY s.ended_at LIMIT $2",
            select_jobs(self)
        );
        let rows: Vec<JobRow> =
            reading!(self, pool => query_as(AssertSqlSafe(sql)).bind(since.0).bind(limit).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(job)))
    }

    /// Jobs with curves that run, or ended since.
    pub async fn watched_jobs(&self, ended_since: Timestamp) -> Result<Vec<WatchedJob>> {
        let running = running_jobs();
        let ended = format!("{WATCHED} WHERE s.job_id IS NOT NULL AND s.ended_at >= $1");
        let mut rows: Vec<WatchedRow> = reading!(self, pool => query_as(AssertSqlSafe(running)).fetch_all(pool).await)?;
        let ended: Vec<WatchedRow> =
            reading!(self, pool => query_as(AssertSqlSafe(ended)).bind(ended_since.0).fetch_all(pool).await)?;
        rows.extend(ended);
        let watched = |row: WatchedRow| {
            Ok(WatchedJob {
                job: parse(&row.job, "job id")?,
                name: row.name,
                owner: parse(&row.owner, "user id")?,
                session: parse(&row.session, "session id")?,
                attempt: row.attempt,
                run: parse(&row.run, "run id")?,
                points: row.points,
                grown_at: row.grown_at.map(Timestamp),
                is_running: row.state == "running" && row.unknown_since.is_none(),
                was_not_finite: 0 < row.not_finite,
                was_stalled: 0 < row.stalled,
            })
        };
        Ok(readable(rows.into_iter().map(watched)))
    }

    /// Notes an event of an attempt and what is to be delivered of it; false where it was noticed before.
    pub async fn notice_event(
        &self,
        session: SessionId,
        event: Event,
        (user, ways, message): (UserId, &[Way], &Message),
        now: Timestamp,
    ) -> Result<bool> {
        Ok(transaction!(self, tx => {
            let noticed = query("INSERT INTO notification_events (session_id, event, user_id, message, at)
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (session_id, event) DO NOTHING")
                .bind(session.to_string()).bind(event.as_str()).bind(user.to_string()).bind(Json::write(message))
                .bind(now.0).execute(&mut *tx).await?.rows_affected();
            if noticed > 0 {
                add(&mut *tx, user, ways, message, now).await?;
            }
            noticed > 0
        }))
    }

    /// What happened to somebody's jobs since, newest first, that they have not seen yet; of the latest attempts alone.
    pub async fn unseen_events(&self, user: UserId, since: Timestamp, limit: i64) -> Result<Vec<UnseenJob>> {
        let rows: Vec<(String, String, i64)> = reading!(self, pool => query_as(
            "SELECT e.session_id, e.message, e.at FROM notification_events e JOIN jobs j ON j.session_id = e.session_id
             WHERE e.user_id = $1 AND e.seen_at IS NULL AND e.at >= $2 AND (NOT j.helper
                 OR EXISTS (SELECT 1 FROM datasets d WHERE d.owner = $1 AND d.job_id = j.id)
                 OR EXISTS (SELECT 1 FROM models m WHERE m.owner = $1 AND m.job_id = j.id))
             ORDER BY e.at DESC, e.session_id DESC, e.event LIMIT $3")
            .bind(user.to_string()).bind(since.0).bind(limit).fetch_all(pool).await)?;
        let unseen = |(session, message, at): (String, String, i64)| {
            let (attempt, message) = (parse(&session, "session id")?, Json::read(&message, "notification")?);
            Ok(UnseenJob { attempt, message, at: Timestamp(at) })
        };
        Ok(readable(rows.into_iter().map(unseen)))
    }

    /// Returns what some jobs of a user build or train, of those jobs that do.
    pub async fn products_of_jobs(&self, owner: UserId, jobs: &[JobId]) -> Result<Vec<(JobId, Product)>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let these: Vec<String> = (2..jobs.len() + 2).map(|place| format!("${place}")).collect();
        let these = these.join(", ");
        let sql = format!(
            "SELECT job_id, 'dataset' AS kind, id FROM datasets WHERE owner = $1 AND job_id IN ({these})
             UNION ALL SELECT job_id, 'model' AS kind, id FROM models WHERE owner = $1 AND job_id IN ({these})"
        );
        let rows: Vec<(String, String, String)> = reading!(self, pool => {
            let question = query_as(AssertSqlSafe(sql)).bind(owner.to_string());
            jobs.iter().fold(question, |question, id| question.bind(id.to_string())).fetch_all(pool).await
        })?;
        let product = |(job, kind, id): (String, String, String)| {
            let product = match kind.as_str() {
                "dataset" => Product::Dataset(parse(&id, "dataset id")?),
                _ => Product::Model(parse(&id, "model id")?),
            };
            Ok((parse(&job, "job id")?, product))
        };
        Ok(readable(rows.into_iter().map(product)))
    }

    /// Notes that somebody has seen what happened to one of their jobs, or to all; says how much that was.
    pub async fn see_events(&self, user: UserId, job: Option<JobId>, now: Timestamp) -> Result<u64> {
        let of_job = "AND session_id IN (SELECT id FROM sessions WHERE job_id = $3)";
        let sql = format!(
            "UPDATE notification_events SET seen_at = $2 WHERE user_id = $1 AND seen_at IS NULL {}",
            if job.is_some() { of_job } else { "AND $3 = ''" }
        );
        let job = job.map(|job| job.to_string()).unwrap_or_default();
        let seen = writing!(self, pool => query(AssertSqlSafe(sql)).bind(user.to_string()).bind(now.0).bind(job)
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(seen)
    }

    /// Adds what somebody asked for themselves.
    pub async fn add_notifications(&self, user: UserId, ways: &[Way], message: &Message, now: Timestamp) -> Result<()> {
        transaction!(self, tx => {
            add(&mut *tx, user, ways, message, now).await?;
        });
        Ok(())
    }

    /// What is to be delivered now, the longest due first.
    pub async fn due_notifications(&self, now: Timestamp, limit: i64) -> Result<Vec<Notification>> {
        let sql = format!("{SELECT} WHERE state = 'waiting' AND due_at <= $1 ORDER BY due_at, id LIMIT $2");
        let rows: Vec<Row> =
            reading!(self, pool => query_as(AssertSqlSafe(sql)).bind(now.0).bind(limit).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(notification)))
    }

    /// Takes one up for an attempt; false where somebody else has.
    pub async fn claim_notification(&self, id: NotificationId) -> Result<bool> {
        let claimed = writing!(self, pool => query(
            "UPDATE notifications SET state = 'sending', attempts = attempts + 1 WHERE id = $1 AND state = 'waiting'")
            .bind(id.to_string()).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(claimed > 0)
    }

    /// Writes down what came of an attempt; one that waits again does so until `due`.
    pub async fn settle_notification(
        &self,
        id: NotificationId,
        state: Delivery,
        due: Timestamp,
        error: Option<&str>,
    ) -> Result<()> {
        writing!(self, pool => query(
            "UPDATE notifications SET state = $2, due_at = $3, error = $4 WHERE id = $1 AND state = 'sending'")
            .bind(id.to_string()).bind(state.as_str()).bind(due.0).bind(error).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Of what was being delivered when the portal ended nobody knows whether it arrived.
    pub async fn give_up_sending(&self) -> Result<()> {
        writing!(self, pool => query("UPDATE notifications SET state = 'unknown',
             error = 'The portal ended while it was being delivered: it may have arrived.' WHERE state = 'sending'")
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Somebody's latest ones, newest first.
    pub async fn latest_notifications(&self, user: UserId, limit: i64) -> Result<Vec<Notification>> {
        let sql = format!("{SELECT} WHERE user_id = $1 ORDER BY id DESC LIMIT $2");
        let rows: Vec<Row> = reading!(self, pool =>
            query_as(AssertSqlSafe(sql)).bind(user.to_string()).bind(limit).fetch_all(pool).await)?;
        Ok(readable(rows.into_iter().map(notification)))
    }

    /// Forgets what is older, and no longer to be delivered.
    pub async fn forget_notifications(&self, before: Timestamp) -> Result<()> {
        transaction!(self, tx => {
            query("DELETE FROM notifications WHERE at < $1 AND state NOT IN ('waiting', 'sending')")
                .bind(before.0).execute(&mut *tx).await?;
            query("DELETE FROM notification_events WHERE at < $1 AND NOT EXISTS (
                     SELECT 1 FROM sessions s WHERE s.id = notification_events.session_id AND s.state <> 'ended')")
                .bind(before.0).execute(&mut *tx).await?;
        });
        Ok(())
    }
}
