//! Admission's transaction: it reads all holdings and the user's limits, calls a pure function to
//! decide, and reserves or records the answer, all under the one write lock. No limit can be
//! exceeded between reading and writing, because no other admission runs meanwhile.

use sqlx::{query, query_as};

use super::{
    Db, Json, Result,
    counted_groups::{self, together},
    events::enter_state,
    facts::{ASKER, Applicant, FAIR_SHARE_SECONDS, Facts, LIVE, LiveWorkload, RECENT, Snapshot},
    idempotency::EarlierResult,
    insert::{Insertion, insert},
    limits_and_usage::{Binding, Requester, bounds},
    quotas::{SHARES, ShareRow},
    reading, refusals,
    sessions::ADD_EVENT,
    transaction,
    tx::Tx,
};
use lyceum_model::{
    Clock, Gpu, GroupId, Model, SessionId, SessionState, SweepId, Timestamp, UserId,
    job::{Attempt, Task},
    quota::{Class, Reason},
    session::SessionSpec,
};

/// Answers an admission request.
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
    /// The model that a new job trains, with its configuration as JSON, where it is written together with the job.
    pub model: Option<Box<(Model, String)>>,
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

/// Selects what happens with the verdict.
#[derive(Clone, Copy, Debug)]
pub enum AdmissionMode<'a> {
    /// Write the session, admitted or waiting; of a refused one only that it was refused.
    Insert(&'a NewSession),
    /// Admit a waiting session, renew its reasons, or end it as refused.
    Reevaluate(SessionId),
}

/// Reports the outcome of [`Db::admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionOutcome {
    Judged(Verdict),
    /// The idempotency key was used before.
    Repeated(EarlierResult),
    /// The job has another attempt by now, or its latest one has not ended, or it is gone.
    Overtaken,
}

/// Reads everything that lives, for a decision about something of an owner's.
async fn snapshot(
    tx: &mut Tx<'_>,
    asking: &Requester<'_>,
    owner: &str,
    at: Timestamp,
) -> Result<(Snapshot, Vec<ShareRow>)> {
    let live: Vec<LiveWorkload> = tx.query(LIVE).all().await?;
    let recent = if live.iter().any(|live| live.admitted_at.is_none()) {
        tx.query(RECENT).bind(at.plus_seconds(-FAIR_SHARE_SECONDS).0).bind(owner).bind(at.0).all().await?
    } else {
        Vec::new()
    };
    let shares: Vec<ShareRow> = tx.query(SHARES).bind(at.0).all().await?;
    let together = together(tx.again(), owner).await?;
    Ok((Snapshot::of(at, asking.period.window(at), live, recent, &shares, together)?, shares))
}

/// Reads what binds the user who asks, charging a group, and makes the facts of the decision.
async fn facts(
    tx: &mut Tx<'_>,
    (snapshot, shares): (&Snapshot, &[ShareRow]),
    user: UserId,
    group: Option<GroupId>,
    reconsidered: Option<SessionId>,
) -> Result<Facts> {
    let (owner, groups) = (&*user.to_string(), snapshot.counts_in(user, group));
    let binding = Binding {
        owner,
        charged: group,
        groups: &groups,
        totals: shares,
        together: snapshot.together(),
        window: snapshot.window,
        at: snapshot.at,
        own_hours: false,
        group_hours: false,
    };
    let bounds = bounds(tx.again(), binding).await?;
    let asker = tx.query(ASKER).bind(owner).one().await?;
    snapshot.facts(&Applicant { owner: user, group, bounds, asker }, reconsidered)
}

impl Db {
    /// What a decision about a new request would be made from now; nothing is reserved, and nobody waits for it.
    pub async fn facts(&self, asking: &Requester<'_>, at: Timestamp) -> Result<Facts> {
        let owner = &*asking.owner.to_string();
        Ok(reading!(self, pool => {
            let mut tx = pool.begin().await?;
            let mut tx = Tx::from(&mut *tx);
            let (snapshot, shares) = snapshot(&mut tx, asking, owner, at).await?;
            facts(&mut tx, (&snapshot, &shares), asking.owner, asking.group, None).await?
        }))
    }

    /// Decides and carries out the mode, as one transaction.
    pub async fn admit(
        &self,
        asking: &Requester<'_>,
        mode: AdmissionMode<'_>,
        clock: &Clock,
        judge: impl FnOnce(&Facts) -> Verdict + Send,
    ) -> Result<AdmissionOutcome> {
        let owner = asking.owner.to_string();
        let reconsidered = if let AdmissionMode::Reevaluate(id) = mode { Some(id) } else { None };
        let outcome = transaction!(self, tx => 'decide: {
            // Read under the lock: who was admitted later began later, however long they queued.
            let at = clock.now();
            if let AdmissionMode::Insert(NewSession { idempotency: Some((key, _)), .. }) = mode {
                let earlier: Option<(String, String)> =
                    query_as("SELECT request_hash, created_id FROM idempotency WHERE user_id = $1 AND key = $2")
                    .bind(&owner).bind(key).fetch_optional(&mut *tx).await?;
                if let Some((request_hash, created_id)) = earlier {
                    break 'decide AdmissionOutcome::Repeated(EarlierResult { request_hash, created_id });
                }
            }
            let (snapshot, shares) = snapshot(&mut Tx::from(&mut *tx), asking, &owner, at).await?;
            if reconsidered.is_some_and(|id| !snapshot.waits(id)) {
                // Somebody admitted or ended it meanwhile; there is nothing to decide.
                break 'decide AdmissionOutcome::Judged(Verdict::Wait(Vec::new()));
            }
            let group = reconsidered.map_or(asking.group, |id| snapshot.group_of(id));
            let facts = facts(&mut Tx::from(&mut *tx), (&snapshot, &shares), asking.owner, group, reconsidered).await?;
            let charged = facts.group.map(|group| group.to_string());
            let verdict = judge(&facts);
            match (mode, &verdict) {
                (AdmissionMode::Insert(new), Verdict::Refuse(reasons)) => {
                    let (id, wanted) = (new.id.to_string(), &new.spec.resources);
                    query(refusals::ADD).bind(&id).bind(&owner).bind(&new.app).bind(&new.name)
                        .bind(wanted.gpus).bind(&wanted.gpu_model).bind(wanted.cpus).bind(wanted.memory_bytes)
                        .bind(new.spec.duration_seconds).bind(Json::write(reasons)).bind(at.0)
                        .execute(&mut *tx).await?;
                    query(refusals::KEEP_LATEST).bind(&owner).execute(&mut *tx).await?;
                }
                (AdmissionMode::Insert(new), _) => {
                    let insertion = Insertion {
                        new, verdict: &verdict, at, owner: &owner, group: charged.as_deref(),
                        holds_at_once: asking.holds_at_once,
                    };
                    if !insert(&mut Tx::from(&mut *tx), insertion).await? {
                        break 'decide AdmissionOutcome::Overtaken;
                    }
                }
                (AdmissionMode::Reevaluate(id), Verdict::Admit { gpus }) => {
                    let (id, gpu_list) = (id.to_string(), Json::write(gpus));
                    query("UPDATE sessions SET admitted_at = $2, gpu_list = $3, reasons = '[]' WHERE id = $1")
                        .bind(&id).bind(at.0).bind(&gpu_list).execute(&mut *tx).await?;
                    query(counted_groups::ADMIT).bind(&id).bind(&owner).execute(&mut *tx).await?;
                    if asking.holds_at_once {
                        query("INSERT INTO intervals (session_id, owner, gpus, cpus, memory_bytes, gpu_list, started_at,
                                 charged_group)
                             SELECT id, owner, gpus, cpus, memory_bytes, gpu_list, $2, charged_group FROM sessions WHERE id = $1")
                            .bind(&id).bind(at.0).execute(&mut *tx).await?;
                    }
                    query(ADD_EVENT).bind(&id).bind(at.0).bind("queued").bind("Admitted").execute(&mut *tx).await?;
                }
                (AdmissionMode::Reevaluate(id), Verdict::Wait(reasons)) => {
                    query("UPDATE sessions SET reasons = $2 WHERE id = $1 AND reasons <> $2")
                        .bind(id.to_string()).bind(Json::write(reasons)).execute(&mut *tx).await?;
                }
                (AdmissionMode::Reevaluate(id), Verdict::Refuse(reasons)) => {
                    let id = id.to_string();
                    let message = reasons.first().map_or("It no longer fits", |reason| reason.hint.as_str());
                    query("UPDATE sessions SET state = 'ended', end_reason = 'refused', ended_at = $2, reasons = $3, detail = $4 WHERE id = $1")
                        .bind(&id).bind(at.0).bind(Json::write(reasons)).bind(message).execute(&mut *tx).await?;
                    enter_state(&mut *tx, &id, at, SessionState::Ended, message).await?;
                    query(refusals::ADD_WAITING).bind(&id).bind(Json::write(reasons)).bind(at.0).execute(&mut *tx).await?;
                    query(refusals::KEEP_LATEST).bind(&owner).execute(&mut *tx).await?;
                }
            }
            AdmissionOutcome::Judged(verdict)
        });
        Ok(outcome)
    }
}
