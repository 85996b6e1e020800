//! What GPUs did over time, by minute and by hour, who held them meanwhile, and the question
//! of an operator whether somebody still needs theirs.

use sqlx::{FromRow, query, query_as, query_scalar};

use super::{
    Db, Json, Result,
    audit::{Entry, append_audit},
    reading,
    sessions::{ADD_EVENT, OWNER_NAME},
    transaction,
    types::parse,
    writing,
};
use lyceum_model::{Gpu, SessionId, Timestamp, UserId};

/// How long the time of one point is (seconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Minute,
    Hour,
}

impl Span {
    pub const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    #[must_use]
    pub fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// The beginning of the span that holds a moment.
    #[must_use]
    pub fn begin(self, at: Timestamp) -> Timestamp {
        let length = self.seconds() * 1000;
        Timestamp(at.0.div_euclid(length) * length)
    }
}

/// What one GPU did in a time: the means of its readings.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct Point {
    pub uuid: String,
    #[sqlx(try_from = "i64")]
    pub at: Timestamp,
    pub readings: i64,
    /// Percent.
    pub utilisation: f64,
    pub memory_bytes: f64,
    pub milliwatts: f64,
    /// The highest of them.
    pub celsius: Option<i64>,
}

/// Who held which GPUs, from when on, until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub session: SessionId,
    pub owner: UserId,
    pub owner_name: String,
    pub gpus: Vec<Gpu>,
    pub from: Timestamp,
    /// `None` while it is held.
    pub to: Option<Timestamp>,
}

/// Adds readings to a point; those that came before in the same time count as many times as
/// there are of them, so that a portal that is started again goes on with the hour.
pub(super) const ADD: &str =
    "INSERT INTO gpu_history (uuid, span, at, readings, utilisation, memory_bytes, milliwatts, celsius)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
     ON CONFLICT (uuid, span, at) DO UPDATE SET
         utilisation = (gpu_history.utilisation * gpu_history.readings + excluded.utilisation * excluded.readings)
             / (gpu_history.readings + excluded.readings),
         memory_bytes = (gpu_history.memory_bytes * gpu_history.readings + excluded.memory_bytes * excluded.readings)
             / (gpu_history.readings + excluded.readings),
         milliwatts = (gpu_history.milliwatts * gpu_history.readings + excluded.milliwatts * excluded.readings)
             / (gpu_history.readings + excluded.readings),
         celsius = CASE WHEN gpu_history.celsius IS NULL OR gpu_history.celsius < excluded.celsius
             THEN excluded.celsius ELSE gpu_history.celsius END,
         readings = gpu_history.readings + excluded.readings";

pub(super) const POINTS: &str = "SELECT uuid, at, readings, utilisation, memory_bytes, milliwatts, celsius
     FROM gpu_history WHERE span = $1 AND at >= $2 AND at < $3 ORDER BY at, uuid";

/// `$1` and `$2` are the ends of the time.
pub(super) const HOLDINGS: &str = "SELECT session_id, owner, users.name, gpu_list, started_at, ended_at
     FROM intervals JOIN users ON users.id = owner
     WHERE ended_at > $1 AND started_at < $2 AND gpus > 0 AND session_id IS NOT NULL
     UNION ALL
     SELECT session_id, owner, users.name, gpu_list, started_at, ended_at
     FROM intervals JOIN users ON users.id = owner
     WHERE ended_at IS NULL AND started_at < $2 AND gpus > 0 AND session_id IS NOT NULL";

type HoldingRow = (String, String, String, String, i64, Option<i64>);

impl Db {
    /// Adds what was read of each GPU, to its minute and to its hour; `at` of a point is any
    /// moment in that minute.
    pub async fn add_gpu_points(&self, points: &[Point]) -> Result<()> {
        transaction!(self, tx => {
            for point in points {
                for span in Span::ALL {
                    query(ADD).bind(&point.uuid).bind(span.seconds()).bind(span.begin(point.at).0)
                        .bind(point.readings).bind(point.utilisation).bind(point.memory_bytes)
                        .bind(point.milliwatts).bind(point.celsius)
                        .execute(&mut *tx).await?;
                }
            }
        });
        Ok(())
    }

    /// What all GPUs did from one moment to another, in order of time.
    pub async fn gpu_points(&self, span: Span, from: Timestamp, to: Timestamp) -> Result<Vec<Point>> {
        Ok(reading!(self, pool => query_as(POINTS).bind(span.seconds()).bind(from.0).bind(to.0)
            .fetch_all(pool).await)?)
    }

    /// Who held GPUs from one moment to another.
    pub async fn gpu_holdings(&self, from: Timestamp, to: Timestamp) -> Result<Vec<Holding>> {
        let rows: Vec<HoldingRow> =
            reading!(self, pool => query_as(HOLDINGS).bind(from.0).bind(to.0).fetch_all(pool).await)?;
        let holding = |(session, owner, owner_name, gpus, from, to): HoldingRow| {
            Ok(Holding {
                session: parse(&session, "session id")?,
                owner: parse(&owner, "user id")?,
                owner_name,
                gpus: Json::read(&gpus, "session's GPUs")?,
                from: Timestamp(from),
                to: to.map(Timestamp),
            })
        };
        rows.into_iter().map(holding).collect()
    }

    /// Forgets the minutes and the hours that began before these moments.
    pub async fn forget_gpu_points(&self, minutes: Timestamp, hours: Timestamp) -> Result<()> {
        for (span, before) in [(Span::Minute, minutes), (Span::Hour, hours)] {
            writing!(self, pool => query("DELETE FROM gpu_history WHERE span = $1 AND at < $2")
                .bind(span.seconds()).bind(before.0).execute(pool).await.map(drop))?;
        }
        Ok(())
    }

    /// Asks the owner of a running session whether they still need its GPUs, in the name of
    /// `by`; `about` says what is asked. False where it does not run.
    pub async fn ask_owner(&self, id: SessionId, by: &str, about: &str, at: Timestamp) -> Result<bool> {
        let id = id.to_string();
        let changed = transaction!(self, tx => {
            let changed = query("UPDATE sessions SET asked_at = $2, asked_by = $3 WHERE id = $1 AND state = 'running'")
                .bind(&id).bind(at.0).bind(by).execute(&mut *tx).await?.rows_affected();
            if changed > 0 {
                query(ADD_EVENT).bind(&id).bind(at.0).bind("running").bind(about).execute(&mut *tx).await?;
                let owner: String = query_scalar(OWNER_NAME).bind(&id).fetch_one(&mut *tx).await?;
                let entry = Entry { at, actor: by, action: "session.ask", subject: &id, detail: &owner };
                append_audit(&mut *tx, &entry).await?;
            }
            changed
        });
        Ok(changed > 0)
    }

    /// The question is answered; whether there was one.
    pub async fn answer_ask(&self, id: SessionId) -> Result<bool> {
        let id = id.to_string();
        let changed = writing!(self, pool =>
            query("UPDATE sessions SET asked_at = NULL, asked_by = NULL WHERE id = $1 AND asked_at IS NOT NULL")
                .bind(&id).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }
}
