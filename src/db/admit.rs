//! Admission's transaction: read what everybody holds and what limits this person, let a
//! pure function judge, and reserve or note the answer, all under the one write lock. No
//! limit can be exceeded between the look and the deed, because nobody else can look.

use sqlx::{query, query_as, query_scalar};

use super::{
    Db, Json, Result,
    audit::{Entry, append_audit},
    facts::{ASKER, Facts, LATELY, LIVE, Live, Party, RECENT, Scene},
    idempotency::Earlier,
    jobs::{ADD_DEPENDENCY, ADD_JOB, NEXT_ATTEMPT},
    quotas::{SHARES, ShareRow},
    reading, refusals,
    search::fold,
    sessions::ADD_EVENT,
    standing::{Asking, bounds},
    sweeps::RELEASE,
    together::{self, together},
    transaction,
};
use crate::model::{
    Clock, Gpu, GroupId, SessionId, SweepId, Timestamp, UserId,
    job::{Attempt, Task},
    quota::{Class, Reason},
    session::SessionSpec,
};

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
    pub charged_group: Option<GroupId>,
    pub app: String,
    pub name: String,
    pub spec: SessionSpec,
    pub light: bool,
    pub cluster: String,
    pub idempotency: Option<(String, String)>,
    /// What it is an attempt at, where it is no interactive session.
    pub job: Option<NewAttempt>,
}

/// An attempt of a job to be written.
#[derive(Clone, Debug)]
pub struct NewAttempt {
    pub attempt: Attempt,
    pub cause: Cause,
    /// What it waits for in any case.
    pub hold: Option<Reason>,
    /// The sweep that a new job is a task of, and its place among the tasks.
    pub place: Option<(SweepId, i64)>,
}

/// Why there is an attempt.
#[derive(Clone, Debug)]
pub enum Cause {
    /// The job is new, and written too.
    Submitted(Box<Task>),
    /// Its owner resumed it, and looks after it from now on.
    Resumed,
    /// The one before failed; it is tried again by itself, not before this moment.
    Retried(Timestamp),
}

impl NewSession {
    pub fn class(&self) -> Class {
        Class::of(self.light, self.job.is_some())
    }
}

/// What to do with the verdict.
#[derive(Clone, Copy, Debug)]
pub enum Deed<'a> {
    /// Write the session, admitted or waiting; of a refused one only that it was refused.
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
    /// The job has another attempt by now, or its latest one has not ended, or it is gone.
    Overtaken,
}

/// Writes a workload as it was judged, with its job where it is the first attempt; false, and
/// nothing is written, where the job has gone on meanwhile.
macro_rules! insert {
    ($tx:ident, $new:expr, $verdict:expr, $at:expr, $owner:expr, $group:expr, $holds_at_once:expr) => {'insert: {
        let (new, verdict, at, owner, group): (&NewSession, &Verdict, Timestamp, &str, Option<&str>) =
            ($new, $verdict, $at, $owner, $group);
        let id = new.id.to_string();
        let attempt = new.job.as_ref().map(|job| job.attempt);
        let job_id = attempt.map(|attempt| attempt.job.to_string());
        let not_before = match new.job.as_ref().map(|job| &job.cause) {
            Some(Cause::Retried(then)) => Some(then.0),
            _ => None,
        };
        if let Some(NewAttempt { cause: Cause::Resumed | Cause::Retried(_), attempt, .. }) = &new.job {
            let begun = query(NEXT_ATTEMPT)
                .bind(&job_id).bind(&id).bind(attempt.number).bind(owner).bind(i64::from(not_before.is_some()))
                .execute(&mut *$tx).await?.rows_affected();
            if begun == 0 {
                break 'insert false;
            }
        }
        let place = new.job.as_ref().and_then(|job| job.place);
        let sweep_id = place.map(|(sweep, _)| sweep.to_string());
        if let Some((_, index)) = place {
            let released = query(RELEASE).bind(&sweep_id).bind(index).execute(&mut *$tx).await?.rows_affected();
            if released == 0 {
                break 'insert false;
            }
        }
        let resources = &new.spec.resources;
        let (gpus, reasons, admitted_at) = match &verdict {
            Verdict::Admit { gpus } => (gpus.as_slice(), [].as_slice(), Some(at.0)),
            Verdict::Wait(reasons) | Verdict::Refuse(reasons) => ([].as_slice(), reasons.as_slice(), None),
        };
        let (gpu_list, reasons_text, spec) = (Json::write(&gpus), Json::write(&reasons), Json::write(&new.spec));
        query("INSERT INTO sessions (id, owner, app, name, state, spec, gpus, cpus, memory_bytes, light,
                 gpu_list, reasons, cluster, extensions, created_at, admitted_at, charged_group,
                 duration_seconds, gpu_model, job_id, attempt, not_before)
             VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14, $15, $16, $17, $18, $19, $20)")
            .bind(&id).bind(owner).bind(&new.app).bind(&new.name).bind(&spec)
            .bind(resources.gpus).bind(resources.cpus).bind(resources.memory_bytes).bind(new.light)
            .bind(&gpu_list).bind(&reasons_text).bind(&new.cluster).bind(at.0).bind(admitted_at)
            .bind(group).bind(new.spec.duration_seconds).bind(&resources.gpu_model)
            .bind(&job_id).bind(attempt.map(|attempt| attempt.number)).bind(not_before)
            .execute(&mut *$tx).await?;
        let message = reasons.first().map_or("Requested", |reason| reason.hint.as_str());
        query(ADD_EVENT).bind(&id).bind(at.0).bind("queued").bind(message).execute(&mut *$tx).await?;
        let actor: String = match not_before {
            Some(_) => "jobs".to_owned(),
            None => query_scalar("SELECT name FROM users WHERE id = $1").bind(owner).fetch_one(&mut *$tx).await?,
        };
        if let Some(NewAttempt { cause: Cause::Submitted(task), .. }) = &new.job {
            query(ADD_JOB).bind(&job_id).bind(owner).bind(&new.name).bind(fold(&new.name))
                .bind(Json::write(task)).bind(&id).bind(at.0).bind(task.retries)
                .bind(&sweep_id).bind(place.map(|(_, index)| index))
                .execute(&mut *$tx).await?;
            for after in &task.after {
                query(ADD_DEPENDENCY)
                    .bind(&job_id).bind(after.job.to_string()).bind(after.needs.as_str())
                    .execute(&mut *$tx).await?;
            }
        }
        let (action, detail) = match &new.job {
            None => ("session.start", new.app.as_str()),
            Some(NewAttempt { cause, .. }) => match cause {
                Cause::Submitted(_) => ("job.submit", new.name.as_str()),
                Cause::Resumed => ("job.resume", new.name.as_str()),
                Cause::Retried(_) => ("job.retry", new.name.as_str()),
            },
        };
        let subject = job_id.as_deref().unwrap_or(&id);
        append_audit!($tx, &Entry { at, actor: &actor, action, subject, detail });
        if admitted_at.is_some() {
            query(together::ADMIT).bind(&id).bind(owner).execute(&mut *$tx).await?;
        }
        if admitted_at.is_some() && $holds_at_once {
            query("INSERT INTO intervals (session_id, owner, gpus, cpus, memory_bytes, gpu_list, started_at,
                     charged_group)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
                .bind(&id).bind(owner).bind(resources.gpus).bind(resources.cpus)
                .bind(resources.memory_bytes).bind(&gpu_list).bind(at.0).bind(group)
                .execute(&mut *$tx).await?;
        }
        if let Some((key, hash)) = &new.idempotency {
            query("INSERT INTO idempotency (user_id, key, request_hash, created_id, created_at) VALUES ($1, $2, $3, $4, $5)")
                .bind(owner).bind(key).bind(hash).bind(subject).bind(at.0)
                .execute(&mut *$tx).await?;
        }
        true
    }};
}

/// Reads everything that lives, for a decision about something of `$owner`'s.
macro_rules! scene {
    ($tx:ident, $asking:expr, $owner:expr, $at:expr) => {{
        let live: Vec<Live> = query_as(LIVE).fetch_all(&mut *$tx).await?;
        let recent = if live.iter().any(|live| live.admitted_at.is_none()) {
            query_as(RECENT).bind($at.plus_seconds(-LATELY).0).bind($owner).bind($at.0).fetch_all(&mut *$tx).await?
        } else {
            Vec::new()
        };
        let shares: Vec<ShareRow> = query_as(SHARES).bind($at.0).fetch_all(&mut *$tx).await?;
        let together = together!($tx, $owner);
        (Scene::of($at, $asking.period.window($at), live, recent, &shares, together)?, shares)
    }};
}

/// Reads what binds `$owner`, who charges `$group`, and makes the facts of the decision.
macro_rules! facts {
    ($tx:ident, $scene:expr, $shares:expr, $asking:expr, $owner:expr, $group:expr, $reconsidered:expr) => {{
        let (scene, owner, group): (&Scene, &str, Option<GroupId>) = (&$scene, $owner, $group);
        let groups = scene.counts_in($asking.owner, group);
        let bounds =
            bounds!($tx, owner, group, &groups, &$shares, scene.together(), scene.window, scene.at, (false, false));
        let asker = query_as(ASKER).bind(owner).fetch_one(&mut *$tx).await?;
        scene.facts(&Party { owner: $asking.owner, group, bounds, asker }, $reconsidered)?
    }};
}

impl Db {
    /// What a decision about a new request would be made from now; nothing is reserved, and nobody waits for it.
    pub async fn facts(&self, asking: &Asking<'_>, at: Timestamp) -> Result<Facts> {
        let owner = &*asking.owner.to_string();
        Ok(reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let (scene, shares) = scene!(tx, asking, owner, at);
            facts!(tx, scene, shares, asking, owner, asking.group, None)
        }))
    }

    /// Judges and does the deed. Nothing of it is there unless all of it is.
    pub async fn admit(
        &self,
        asking: &Asking<'_>,
        deed: Deed<'_>,
        clock: &Clock,
        judge: impl FnOnce(&Facts) -> Verdict + Send,
    ) -> Result<Admitted> {
        let owner = asking.owner.to_string();
        let reconsidered = if let Deed::Reconsider(id) = deed { Some(id) } else { None };
        let outcome = transaction!(self, tx => 'decide: {
            // Read under the lock: who was admitted later began later, however long they queued.
            let at = clock.now();
            if let Deed::Insert(NewSession { idempotency: Some((key, _)), .. }) = deed {
                let earlier: Option<(String, String)> =
                    query_as("SELECT request_hash, created_id FROM idempotency WHERE user_id = $1 AND key = $2")
                    .bind(&owner).bind(key).fetch_optional(&mut *tx).await?;
                if let Some((request_hash, created_id)) = earlier {
                    break 'decide Admitted::Repeated(Earlier { request_hash, created_id });
                }
            }
            let (scene, shares) = scene!(tx, asking, &*owner, at);
            if reconsidered.is_some_and(|id| !scene.waits(id)) {
                // Somebody admitted or ended it meanwhile; there is nothing to decide.
                break 'decide Admitted::Judged(Verdict::Wait(Vec::new()));
            }
            let group = reconsidered.map_or(asking.group, |id| scene.group_of(id));
            let facts = facts!(tx, scene, shares, asking, &*owner, group, reconsidered);
            let charged = facts.group.map(|group| group.to_string());
            let verdict = judge(&facts);
            match (deed, &verdict) {
                (Deed::Insert(new), Verdict::Refuse(reasons)) => {
                    let (id, wanted) = (new.id.to_string(), &new.spec.resources);
                    query(refusals::ADD).bind(&id).bind(&owner).bind(&new.app).bind(&new.name)
                        .bind(wanted.gpus).bind(&wanted.gpu_model).bind(wanted.cpus).bind(wanted.memory_bytes)
                        .bind(new.spec.duration_seconds).bind(Json::write(reasons)).bind(at.0)
                        .execute(&mut *tx).await?;
                    query(refusals::KEEP_LATEST).bind(&owner).execute(&mut *tx).await?;
                }
                (Deed::Insert(new), _) => {
                    if !insert!(tx, new, &verdict, at, &*owner, charged.as_deref(), asking.holds_at_once) {
                        break 'decide Admitted::Overtaken;
                    }
                }
                (Deed::Reconsider(id), Verdict::Admit { gpus }) => {
                    let (id, gpu_list) = (id.to_string(), Json::write(gpus));
                    query("UPDATE sessions SET admitted_at = $2, gpu_list = $3, reasons = '[]' WHERE id = $1")
                        .bind(&id).bind(at.0).bind(&gpu_list).execute(&mut *tx).await?;
                    query(together::ADMIT).bind(&id).bind(&owner).execute(&mut *tx).await?;
                    if asking.holds_at_once {
                        query("INSERT INTO intervals (session_id, owner, gpus, cpus, memory_bytes, gpu_list, started_at,
                                 charged_group)
                             SELECT id, owner, gpus, cpus, memory_bytes, gpu_list, $2, charged_group FROM sessions WHERE id = $1")
                            .bind(&id).bind(at.0).execute(&mut *tx).await?;
                    }
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
                    query(refusals::ADD_WAITING).bind(&id).bind(Json::write(reasons)).bind(at.0).execute(&mut *tx).await?;
                    query(refusals::KEEP_LATEST).bind(&owner).execute(&mut *tx).await?;
                }
            }
            Admitted::Judged(verdict)
        });
        Ok(outcome)
    }
}
