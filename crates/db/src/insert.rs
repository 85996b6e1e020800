//! The rows of a new workload: session, event, job with its dependencies, audit, what it holds, and the idempotency
//! key, written in the transaction that judged it.

use super::{
    Json, Result,
    admit::{Cause, NewAttempt, NewSession, Verdict},
    audit::{Entry, append_audit},
    counted_groups,
    events::enter_state,
    jobs::{ADD_DEPENDENCY, ADD_JOB, ADD_TAG, NEXT_ATTEMPT},
    models::insert_model,
    search::fold,
    sweeps::RELEASE,
    tx::Tx,
};
use lyceum_model::{SessionState, Timestamp, job::Task};

/// A workload with its verdict, to be written.
pub(super) struct Insertion<'a> {
    pub new: &'a NewSession,
    pub verdict: &'a Verdict,
    pub at: Timestamp,
    pub owner: &'a str,
    /// The group that is charged.
    pub group: Option<&'a str>,
    pub holds_at_once: bool,
}

/// What the rows refer to one another by.
struct Ids {
    session: String,
    job: Option<String>,
    sweep: Option<String>,
}

/// Writes a workload as it was judged, with its job where it is the first attempt; false, and
/// nothing is written, where the job has gone on meanwhile.
pub(super) async fn insert(tx: &mut Tx<'_>, insertion: Insertion<'_>) -> Result<bool> {
    let Insertion { new, verdict, at, owner, group, holds_at_once } = insertion;
    let ids = Ids {
        session: new.id.to_string(),
        job: new.job.as_ref().map(|job| job.attempt.job.to_string()),
        sweep: new.job.as_ref().and_then(|job| job.place).map(|(sweep, _)| sweep.to_string()),
    };
    let (id, job_id) = (&ids.session, &ids.job);
    if !claim(tx, new, owner, &ids).await? {
        return Ok(false);
    }
    let (attempt, not_before) = (new.job.as_ref().map(|job| job.attempt), not_before(new));
    let resources = &new.spec.resources;
    let (gpus, reasons, admitted_at) = match &verdict {
        Verdict::Admit { gpus } => (gpus.as_slice(), [].as_slice(), Some(at.0)),
        Verdict::Wait(reasons) | Verdict::Refuse(reasons) => ([].as_slice(), reasons.as_slice(), None),
    };
    let (gpu_list, reasons_text, spec) = (Json::write(&gpus), Json::write(&reasons), Json::write(&new.spec));
    tx.query("INSERT INTO sessions (id, owner, app, name, state, spec, gpus, cpus, memory_bytes, light,
             gpu_list, reasons, cluster, extensions, created_at, admitted_at, charged_group,
             duration_seconds, gpu_model, job_id, attempt, not_before, folded_name)
         VALUES ($1, $2, $3, $4, 'queued', $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14, $15, $16, $17, $18, $19, $20, $21)")
        .bind(id).bind(owner).bind(&new.app).bind(&new.name).bind(&spec)
        .bind(resources.gpus).bind(resources.cpus).bind(resources.memory_bytes).bind(new.light)
        .bind(&gpu_list).bind(&reasons_text).bind(&new.cluster).bind(at.0).bind(admitted_at)
        .bind(group).bind(new.spec.duration_seconds).bind(&resources.gpu_model)
        .bind(job_id).bind(attempt.map(|attempt| attempt.number)).bind(not_before).bind(fold(&new.name))
        .execute().await?;
    let message = reasons.first().map_or("Requested", |reason| reason.hint.as_str());
    enter_state(tx.again(), id, at, SessionState::Queued, message).await?;
    let actor: String = match not_before {
        Some(_) => "jobs".to_owned(),
        None => tx.query("SELECT name FROM users WHERE id = $1").bind(owner).one::<(String,)>().await?.0,
    };
    if let Some(NewAttempt { cause: Cause::Submitted(task), .. }) = &new.job {
        insert_job(tx, new, task, owner, at, &ids).await?;
    }
    let subject = job_id.as_deref().unwrap_or(id);
    let (action, detail) = action(new);
    append_audit(tx.again(), &Entry { at, actor: &actor, action, subject, detail }).await?;
    if admitted_at.is_some() {
        tx.query(counted_groups::ADMIT).bind(id).bind(owner).execute().await?;
    }
    if admitted_at.is_some() && holds_at_once {
        tx.query(
            "INSERT INTO intervals (session_id, owner, gpus, cpus, memory_bytes, gpu_list, started_at,
                 charged_group)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(id)
        .bind(owner)
        .bind(resources.gpus)
        .bind(resources.cpus)
        .bind(resources.memory_bytes)
        .bind(&gpu_list)
        .bind(at.0)
        .bind(group)
        .execute()
        .await?;
    }
    if let Some((key, hash)) = &new.idempotency {
        tx.query(
            "INSERT INTO idempotency (user_id, key, request_hash, created_id, created_at) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(owner)
        .bind(key)
        .bind(hash)
        .bind(subject)
        .bind(at.0)
        .execute()
        .await?;
    }
    Ok(true)
}

/// Takes the next attempt of the job and the place in the sweep, as far as the workload is one; false where it has gone.
async fn claim(tx: &mut Tx<'_>, new: &NewSession, owner: &str, ids: &Ids) -> Result<bool> {
    let Some(job) = &new.job else { return Ok(true) };
    if let Cause::Resumed | Cause::Retried(_) = job.cause {
        let begun = tx
            .query(NEXT_ATTEMPT)
            .bind(&ids.job)
            .bind(&ids.session)
            .bind(job.attempt.number)
            .bind(owner)
            .bind(i64::from(not_before(new).is_some()))
            .execute()
            .await?;
        if begun == 0 {
            return Ok(false);
        }
    }
    let Some((_, index)) = job.place else { return Ok(true) };
    Ok(tx.query(RELEASE).bind(&ids.sweep).bind(index).execute().await? > 0)
}

async fn insert_job(
    tx: &mut Tx<'_>,
    new: &NewSession,
    task: &Task,
    owner: &str,
    at: Timestamp,
    ids: &Ids,
) -> Result<()> {
    let place = new.job.as_ref().and_then(|job| job.place);
    tx.query(ADD_JOB)
        .bind(&ids.job)
        .bind(owner)
        .bind(&new.name)
        .bind(fold(&new.name))
        .bind(Json::write(task))
        .bind(&ids.session)
        .bind(at.0)
        .bind(task.retries)
        .bind(&ids.sweep)
        .bind(place.map(|(_, index)| index))
        .bind(Json::write(&task.tags))
        .bind(task.is_helper)
        .bind(&task.notes)
        .execute()
        .await?;
    for tag in &task.tags {
        tx.query(ADD_TAG).bind(tag).bind(owner).bind(&ids.job).execute().await?;
    }
    if let Some((model, config)) = new.job.as_ref().and_then(|job| job.model.as_deref()) {
        let detail = format!("{} in a sweep", model.name);
        insert_model(tx, model, config).await?;
        let noted = Entry {
            at,
            actor: &model.owner_name,
            action: "model.train",
            subject: &model.id.to_string(),
            detail: &detail,
        };
        append_audit(tx.again(), &noted).await?;
    }
    for after in &task.after {
        tx.query(ADD_DEPENDENCY)
            .bind(&ids.job)
            .bind(after.job.to_string())
            .bind(after.needs.as_str())
            .execute()
            .await?;
    }
    Ok(())
}

fn not_before(new: &NewSession) -> Option<i64> {
    match new.job.as_ref().map(|job| &job.cause) {
        Some(Cause::Retried(then)) => Some(then.0),
        _ => None,
    }
}

/// Returns the action and the detail for the audit log.
fn action(new: &NewSession) -> (&'static str, &str) {
    match &new.job {
        None => ("session.start", new.app.as_str()),
        Some(NewAttempt { cause, .. }) => match cause {
            Cause::Submitted(_) => ("job.submit", new.name.as_str()),
            Cause::Resumed => ("job.resume", new.name.as_str()),
            Cause::Retried(_) => ("job.retry", new.name.as_str()),
        },
    }
}
