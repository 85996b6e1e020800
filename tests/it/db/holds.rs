//! What a waiting job waits for and how often a failed one is tried again, on both databases.

use lyceum::{
    db::{
        Db,
        admit::{AdmissionMode, AdmissionOutcome, Cause, NewSession, Verdict},
        sessions::Ending,
    },
    model::{
        Clock, JobId, UserId,
        hold::{Needs, Outcome, Prerequisite},
        job::{Attempt, JobProgram, Task},
    },
};

use super::{
    START, add_user, asking, begun, exited, new_attempt, obstacles, on_both, queued, task, whole::assert_consistent,
};

/// A job with retries, and those that it follows.
fn planned(owner: UserId, name: &str, retries: i64, after: &[(JobId, Needs)]) -> NewSession {
    let mut new = new_attempt(owner, name, None);
    let after = after.iter().map(|(job, needs)| Prerequisite { job: *job, needs: *needs }).collect();
    let planned = Task { retries, after, ..task(JobProgram::Command(vec!["true".to_owned()])) };
    new.job.as_mut().unwrap().cause = Cause::Submitted(planned.into());
    new
}

fn failed() -> Ending {
    Ending { exit_code: Some(1), ..exited(START) }
}

/// Writes a job that failed and may be tried once more.
pub async fn failed_job(db: &Db, owner: UserId, name: &str) -> Attempt {
    let new = planned(owner, name, 1, &[]);
    let attempt = begun(db, &new).await;
    assert!(db.end_session(new.id, &failed()).await.unwrap());
    attempt
}

/// Writes a job that follows another.
pub async fn following(db: &Db, owner: UserId, earlier: Attempt) -> Attempt {
    begun(db, &planned(owner, "after", 0, &[(earlier.job, Needs::Ok)])).await
}

#[tokio::test]
async fn what_a_job_waits_for_and_how_often_it_is_tried() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let prep = planned(owner, "prep", 2, &[]);
        let first = begun(db, &prep).await;
        let gone = JobId::new();
        let train = planned(owner, "train", 0, &[(first.job, Needs::Ok), (gone, Needs::Any)]);
        let waiting = queued(db, &train).await;
        let found = async || {
            let all = db.job_dependencies(waiting.job).await.unwrap();
            all.into_iter().map(|one| (one.needs, one.found)).collect::<Vec<_>>()
        };
        let prep_is = |outcome| (Needs::Ok, Some(("prep".to_owned(), outcome)));
        assert_eq!(found().await, [prep_is(Outcome::Open), (Needs::Any, None)]);
        let held = db.obstacles_of_waiting().await.unwrap().remove(&train.id).unwrap();
        assert_eq!((held.not_before, held.dependencies.len()), (None, 2));
        let resumed = planned(owner, "resumed", 0, &[(first.job, Needs::Ok)]);
        let earlier = begun(db, &resumed).await;
        assert!(db.end_session(resumed.id, &failed()).await.unwrap());
        let later = new_attempt(owner, "resumed", Some(earlier));
        queued(db, &later).await;
        assert!(obstacles(db, &later).await.dependencies.is_empty(), "a further attempt has waited already");
        assert!(db.jobs_to_retry().await.unwrap().is_empty(), "it still lives");

        assert!(db.end_session(prep.id, &failed()).await.unwrap());
        let [again] = &db.jobs_to_retry().await.unwrap()[..] else { panic!("one is to be tried again") };
        assert!(again.id == first.job && again.is_to_be_retried() && again.retries_left == 2);
        assert_eq!(found().await[0], prep_is(Outcome::Open), "it has not failed for good");
        let then = START.plus_seconds(60);
        let mut second = new_attempt(owner, "prep", Some(first));
        second.job.as_mut().unwrap().cause = Cause::Retried(then);
        let number_two = queued(db, &second).await;
        assert_eq!(db.find_job(first.job).await.unwrap().unwrap().retries_left, 1);
        assert_eq!(obstacles(db, &second).await.not_before, Some(then));
        let (actor, action) = db.list_audit(1).await.unwrap().pop().map(|row| (row.actor, row.action)).unwrap();
        assert_eq!((actor.as_str(), action.as_str()), ("jobs", "job.retry"));

        assert!(db.end_session(second.id, &failed()).await.unwrap());
        db.settle_job(first.job).await.unwrap();
        assert!(db.jobs_to_retry().await.unwrap().is_empty());
        assert_eq!(found().await[0], prep_is(Outcome::Failed));
        let mut third = new_attempt(owner, "prep", Some(number_two));
        third.job.as_mut().unwrap().cause = Cause::Retried(then);
        let (clock, admit) = (Clock::manual(START), |_: &_| Verdict::Admit { gpus: Vec::new() });
        let answer = db.admit(&asking(owner), AdmissionMode::Insert(&third), &clock, admit).await.unwrap();
        assert_eq!(answer, AdmissionOutcome::Overtaken, "there is no retry left");
        third.job.as_mut().unwrap().cause = Cause::Resumed;
        begun(db, &third).await;
        assert_consistent(db).await;
    })
    .await;
}
