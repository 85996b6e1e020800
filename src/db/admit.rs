//! Admission's transaction: read what everybody holds and what limits this person, let a
//! pure function judge, and reserve or note the answer, all under the one write lock. No
//! limit can be exceeded between the look and the deed, because nobody else can look.

use std::collections::HashSet;

use sqlx::{FromRow, query, query_as};

use super::{Db, Json, Result, audit, idempotency::Earlier, quotas, sessions::ADD_EVENT, transaction};
use crate::model::{
    Clock, Gpu, SessionId, UserId,
    quota::{LimitRow, Reason, Usage},
    session::SessionSpec,
};

/// What is true at the moment of the decision.
#[derive(Clone, Debug)]
pub struct Facts {
    pub limits: Vec<LimitRow>,
    /// The person's own live, admitted workloads, and how many of theirs wait (this one left out).
    pub usage: Usage,
    /// Everybody's.
    pub in_use: Usage,
    /// UUIDs of the GPUs that admitted workloads hold.
    pub gpus_taken: HashSet<String>,
    /// The names and GPUs of the person's own live sessions, for the sentence that says what to stop.
    pub own: Vec<(String, i64)>,
}

/// What a judge says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Admit { gpus: Vec<Gpu> },
    Wait(Vec<Reason>),
    Refuse(Vec<Reason>),
}

/// A session to be written.
#[derive(Clone, Debug)]
pub struct NewSession {
    pub id: SessionId,
    pub owner: UserId,
    pub app: String,
    pub name: String,
    pub spec: SessionSpec,
    pub light: bool,
    pub cluster: String,
    pub idempotency: Option<(String, String)>,
}

/// What to do with the verdict.
#[derive(Clone, Copy, Debug)]
pub enum Deed<'a> {
    /// Only tell.
    Nothing,
    /// Write the session, admitted or waiting; a refused one is not written.
    Insert(&'a NewSession),
    /// Admit a waiting session, renew its reasons, or end it as refused.
    Reconsider(SessionId),
}

/// The outcome of [`Db::admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    Judged(Verdict),
    /// The idempotency key was used before.
    Repeated(Earlier),
}

#[derive(FromRow)]
struct Held {
    id: String,
    owner: String,
    name: String,
    state: String,
    admitted_at: Option<i64>,
    gpus: i64,
    cpus: i64,
    memory_bytes: i64,
    light: bool,
    gpu_list: String,
}

pub(super) const LIVE: &str = "SELECT id, owner, name, state, admitted_at, gpus, cpus, memory_bytes, light, gpu_list
     FROM sessions WHERE state <> 'ended'";

/// Sums over the live sessions, for those who only look: `$1`'s and the others', those that
/// wait and those that were admitted.
pub(super) const SUMS: &str = "SELECT owner = $1 AS own, admitted_at IS NULL AS waits, COUNT(*) AS count,
     CAST(SUM(gpus) AS BIGINT) AS gpus, CAST(SUM(cpus) AS BIGINT) AS cpus,
     CAST(SUM(memory_bytes) AS BIGINT) AS memory_bytes, SUM(CASE WHEN light THEN 1 ELSE 0 END) AS light,
     CAST(SUM(CASE WHEN light THEN cpus ELSE 0 END) AS BIGINT) AS light_cpus
     FROM sessions WHERE state <> 'ended' GROUP BY 1, 2";

#[derive(FromRow)]
struct Sum {
    own: bool,
    waits: bool,
    count: i64,
    gpus: i64,
    cpus: i64,
    memory_bytes: i64,
    light: i64,
    light_cpus: i64,
}

/// Somebody started a session of theirs: `$1` the row's id, `$2` time, `$3` session, `$4` owner.
const START_AUDIT: &str = "INSERT INTO audit (id, at, actor, action, target, detail)
     SELECT $1, $2, name, 'session.start', $3, '' FROM users WHERE id = $4";

impl Db {
    /// Judges and does the deed. Nothing of it is there unless all of it is.
    pub async fn admit(
        &self,
        owner: UserId,
        deed: Deed<'_>,
        clock: &Clock,
        judge: impl FnOnce(&Facts) -> Verdict + Send,
    ) -> Result<Admitted> {
        let owner_text = owner.to_string();
        let reconsidered = if let Deed::Reconsider(id) = deed { Some(id.to_string()) } else { None };
        let outcome = transaction!(self, tx => 'decide: {
            // Read under the lock: who was admitted later began later, however long they queued.
            let at = clock.now();
            if let Deed::Insert(NewSession { idempotency: Some((key, _)), .. }) = deed {
                let earlier: Option<(String, String)> =
                    query_as("SELECT request_hash, created_id FROM idempotency WHERE user_id = $1 AND key = $2")
                    .bind(&owner_text).bind(key).fetch_optional(&mut *tx).await?;
                if let Some((request_hash, created_id)) = earlier {
                    break 'decide Admitted::Repeated(Earlier { request_hash, created_id });
                }
            }
            let live: Vec<Held> = query_as(LIVE).fetch_all(&mut *tx).await?;
            let limits: Vec<quotas::Row> = query_as(quotas::OF_PERSON).bind(&owner_text).fetch_all(&mut *tx).await?;
            if let Some(id) = &reconsidered
                && !live.iter().any(|held| held.id == *id && held.admitted_at.is_none() && held.state == "queued")
            {
                // Somebody admitted or ended it meanwhile; there is nothing to decide.
                break 'decide Admitted::Judged(Verdict::Wait(Vec::new()));
            }
            let facts = facts(&owner_text, reconsidered.as_deref(), live, limits)?;
            let verdict = judge(&facts);
            match (deed, &verdict) {
                (Deed::Nothing, _) | (Deed::Insert(_), Verdict::Refuse(_)) => {}
                (Deed::Insert(new), _) => {
                    let id = new.id.to_string();
                    let resources = &new.spec.resources;
                    let (gpus, reasons, admitted_at) = match &verdict {
                        Verdict::Admit { gpus } => (gpus.as_slice(), [].as_slice(), Some(at.0)),
                        Verdict::Wait(reasons) | Verdict::Refuse(reasons) => ([].as_slice(), reasons.as_slice(), None),
                    };
                    let (gpu_list, reasons_text, spec) = (Json::write(&gpus), Json::write(&reasons), Json::write(&new.spec));
                    query("INSERT INTO sessions (id, owner, app, name, state, spec, gpus, cpus, memory_bytes, light,
                             gpu_list, reasons, cluster, extensions, created_at, admitted_at)
                         VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14)")
                        .bind(&id).bind(&owner_text).bind(&new.app).bind(&new.name).bind(&spec)
                        .bind(resources.gpus).bind(resources.cpus).bind(resources.memory_bytes).bind(new.light)
                        .bind(&gpu_list).bind(&reasons_text).bind(&new.cluster).bind(at.0).bind(admitted_at)
                        .execute(&mut *tx).await?;
                    let message = reasons.first().map_or("Requested", |reason| reason.hint.as_str());
                    query(ADD_EVENT).bind(&id).bind(at.0).bind("queued").bind(message).execute(&mut *tx).await?;
                    query(START_AUDIT).bind(audit::new_id()).bind(at.0).bind(&id).bind(&owner_text).execute(&mut *tx).await?;
                    if admitted_at.is_some() {
                        query("INSERT INTO intervals (session_id, owner, gpus, cpus, memory_bytes, gpu_list, started_at)
                             VALUES ($1, $2, $3, $4, $5, $6, $7)")
                            .bind(&id).bind(&owner_text).bind(resources.gpus).bind(resources.cpus)
                            .bind(resources.memory_bytes).bind(&gpu_list).bind(at.0)
                            .execute(&mut *tx).await?;
                    }
                    if let Some((key, hash)) = &new.idempotency {
                        query("INSERT INTO idempotency (user_id, key, request_hash, created_id, created_at) VALUES ($1, $2, $3, $4, $5)")
                            .bind(&owner_text).bind(key).bind(hash).bind(&id).bind(at.0)
                            .execute(&mut *tx).await?;
                    }
                }
                (Deed::Reconsider(id), Verdict::Admit { gpus }) => {
                    let (id, gpu_list) = (id.to_string(), Json::write(gpus));
                    query("UPDATE sessions SET admitted_at = $2, gpu_list = $3, reasons = '[]' WHERE id = $1")
                        .bind(&id).bind(at.0).bind(&gpu_list).execute(&mut *tx).await?;
                    query("INSERT INTO intervals (session_id, owner, gpus, cpus, memory_bytes, gpu_list, started_at)
                         SELECT id, owner, gpus, cpus, memory_bytes, gpu_list, $2 FROM sessions WHERE id = $1")
                        .bind(&id).bind(at.0).execute(&mut *tx).await?;
                    query(ADD_EVENT).bind(&id).bind(at.0).bind("queued").bind("Admitted").execute(&mut *tx).await?;
                }
                (Deed::Reconsider(id), Verdict::Wait(reasons)) => {
                    query("UPDATE sessions SET reasons = $2 WHERE id = $1 AND reasons <> $2")
                        .bind(id.to_string()).bind(Json::write(reasons)).execute(&mut *tx).await?;
                }
                (Deed::Reconsider(id), Verdict::Refuse(reasons)) => {
                    let id = id.to_string();
                    let message = reasons.first().map_or("It can no longer fit", |reason| reason.hint.as_str());
                    query("UPDATE sessions SET state = 'ended', end_reason = 'refused', ended_at = $2, reasons = $3, detail = $4 WHERE id = $1")
                        .bind(&id).bind(at.0).bind(Json::write(reasons)).bind(message).execute(&mut *tx).await?;
                    query(ADD_EVENT).bind(&id).bind(at.0).bind("ended").bind(message).execute(&mut *tx).await?;
                }
            }
            Admitted::Judged(verdict)
        });
        Ok(outcome)
    }

    /// What somebody's workloads hold now, and what everybody's do.
    pub async fn usage(&self, owner: UserId) -> Result<(Usage, Usage)> {
        let owner = owner.to_string();
        let sums: Vec<Sum> = super::reading!(self, pool => query_as(SUMS).bind(&owner).fetch_all(pool).await)?;
        let (mut own, mut everybody) = (Usage::default(), Usage::default());
        for sum in sums {
            for usage in std::iter::once(&mut everybody).chain(sum.own.then_some(&mut own)) {
                if sum.waits {
                    usage.pending += sum.count;
                    continue;
                }
                usage.gpus += sum.gpus;
                usage.cpus += sum.cpus;
                usage.light_cpus += sum.light_cpus;
                usage.memory_bytes += sum.memory_bytes;
                usage.light += sum.light;
                usage.sessions += sum.count - sum.light;
            }
        }
        Ok((own, everybody))
    }
}

/// Sums up the live rows, leaving out the one that is being reconsidered.
fn facts(owner: &str, reconsidered: Option<&str>, live: Vec<Held>, limits: Vec<quotas::Row>) -> Result<Facts> {
    let mut facts = Facts {
        limits: limits.into_iter().map(quotas::Row::limit).collect::<Result<_>>()?,
        usage: Usage::default(),
        in_use: Usage::default(),
        gpus_taken: HashSet::new(),
        own: Vec::new(),
    };
    for held in live {
        if Some(held.id.as_str()) == reconsidered {
            continue;
        }
        let own = held.owner == owner;
        if held.admitted_at.is_none() {
            facts.in_use.pending += 1;
            facts.usage.pending += i64::from(own);
            continue;
        }
        for usage in std::iter::once(&mut facts.in_use).chain(own.then_some(&mut facts.usage)) {
            usage.gpus += held.gpus;
            usage.cpus += held.cpus;
            usage.light_cpus += if held.light { held.cpus } else { 0 };
            usage.memory_bytes += held.memory_bytes;
            usage.light += i64::from(held.light);
            usage.sessions += i64::from(!held.light);
        }
        let gpus: Vec<Gpu> = Json::read(&held.gpu_list, "session's GPUs")?;
        facts.gpus_taken.extend(gpus.into_iter().map(|gpu| gpu.uuid));
        if own {
            facts.own.push((held.name, held.gpus));
        }
    }
    Ok(facts)
}
