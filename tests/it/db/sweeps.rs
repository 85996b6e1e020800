//! Sweeps on both databases: what one is, how its tasks become jobs, once each and in their order,
//! its states, and what holds the queue of jobs.

use std::collections::{BTreeMap, HashMap};

use lyceum::{
    db::{
        Db,
        admit::{AdmissionMode, AdmissionOutcome, NewSession, Verdict},
        audit::Entry,
        idempotency::IdempotentRequest,
        sweeps::SweepFilter,
    },
    model::{
        Clock, Model, RunId, SessionId, Sweep, SweepId, SweepState, UserId,
        hold::Pause,
        job::JobProgram,
        run::{ReadProgress, UnreadAttempt},
        sweep::{Goal, Metric, Plan, Settings, SweepKind},
    },
};

use super::{
    NOTED, START, add_user, asking, begun, exited, models::model, new_attempt, new_session, obstacles, on_both, queued,
    task, whole::assert_consistent,
};

pub fn sweep(owner: UserId, name: &str) -> (Sweep, Plan) {
    let sweep = Sweep {
        id: SweepId::new(),
        owner,
        owner_name: "a".to_owned(),
        name: name.to_owned(),
        kind: SweepKind::Grid,
        state: SweepState::Running,
        note: String::new(),
        tasks: 2,
        released: 0,
        parallel: 2,
        created_at: START,
    };
    let of = |index| Settings { index, values: [("lr".to_owned(), "0.1".to_owned())].into(), ..Settings::default() };
    let plan = Plan {
        task: task(JobProgram::Command(vec!["true".to_owned()])),
        spec: new_session(owner, 0).spec,
        metric: Some(Metric { tag: "loss".to_owned(), goal: Goal::Minimum, stop_after_step: Some(3) }),
        tasks: vec![of(0), of(1)],
        training: None,
    };
    (sweep, plan)
}

/// Writes a sweep.
pub async fn added(db: &Db, owner: UserId, name: &str) -> SweepId {
    let (new, plan) = sweep(owner, name);
    db.add_sweep(&new, &plan, None, &NOTED).await.unwrap();
    new.id
}

/// Brings one to its end.
pub async fn ended(db: &Db, owner: UserId, name: &str) -> SweepId {
    let id = added(db, owner, name).await;
    assert!(db.set_sweep_state(id, &[SweepState::Running], (SweepState::Ended, ""), None).await.unwrap());
    id
}

/// One that runs, one that is paused, another that runs, one that has ended.
pub async fn of_every_kind(db: &Db, owner: UserId) -> [SweepId; 4] {
    let paused = added(db, owner, "paused").await;
    assert!(db.set_sweep_state(paused, &[SweepState::Running], (SweepState::Paused, ""), None).await.unwrap());
    [added(db, owner, "one").await, paused, added(db, owner, "two").await, ended(db, owner, "over").await]
}

/// Writes a sweep whose two tasks, `#0` and `#1`, are jobs with these values of parameters, and returns their runs.
pub async fn tasks_of_a_sweep(db: &Db, owner: UserId, values: &[(&str, &str)]) -> Vec<RunId> {
    let (new, mut plan) = sweep(owner, "lr");
    let values: BTreeMap<String, String> =
        values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    plan.tasks.iter_mut().for_each(|task| task.values.clone_from(&values));
    db.add_sweep(&new, &plan, None, &NOTED).await.unwrap();
    let mut runs = Vec::new();
    for place in 0..2 {
        let task = at_place(owner, new.id, place);
        let job = begun(db, &task).await.job;
        let read = UnreadAttempt { job, owner, session: task.id, directory: format!("/home/a/{place}") };
        db.read_attempt(&read, &read.directory, START).await.unwrap();
        runs.push(db.run_of_job(job).await.unwrap().unwrap().id);
    }
    runs
}

/// A job that is the task at this place.
fn at_place(owner: UserId, sweep: SweepId, place: i64) -> NewSession {
    let mut new = new_attempt(owner, &format!("#{place}"), None);
    new.job.as_mut().unwrap().place = Some((sweep, place));
    new
}

#[tokio::test]
async fn tasks_become_jobs_once_and_in_their_order() {
    on_both(async |house| {
        let db = &house.db;
        let (owner, other) = (add_user(db, "a").await, add_user(db, "b").await);
        let (new, plan) = sweep(owner, "lr");
        let once = IdempotentRequest { user: owner, key: "key", request_hash: "hash" };
        db.add_sweep(&new, &plan, Some(once), &NOTED).await.unwrap();
        assert!(db.add_sweep(&sweep(owner, "again").0, &plan, Some(once), &NOTED).await.is_err());
        assert_eq!(db.find_idempotent(owner, "key").await.unwrap().unwrap().created_id, new.id.to_string());
        assert_eq!(db.find_sweep(new.id).await.unwrap(), Some(new.clone()));
        assert_eq!(db.sweep_plan(new.id).await.unwrap(), Some(plan));
        assert_eq!(db.find_sweep(SweepId::new()).await.unwrap(), None);
        let theirs = added(db, other, "theirs").await;
        let listed = async |owner, before, limit| {
            let filter = SweepFilter { owner, before, limit, ..SweepFilter::default() };
            db.list_sweeps(filter).await.unwrap().iter().map(|(one, _)| one.id).collect::<Vec<_>>()
        };
        assert_eq!(listed(None, None, 10).await, [theirs, new.id]);
        assert_eq!(listed(None, None, 1).await, [theirs]);
        assert_eq!(listed(None, Some(theirs), 10).await, [new.id]);
        assert_eq!(listed(Some(owner), None, 10).await, [new.id]);
        let part: lyceum::model::IdPart = theirs.to_string()[28..].parse().unwrap();
        let like = async |filter: SweepFilter<'_>| {
            db.list_sweeps(SweepFilter { limit: 10, ..filter })
                .await
                .unwrap()
                .iter()
                .map(|(one, _)| one.id)
                .collect::<Vec<_>>()
        };
        let by_id = SweepFilter { id: Some(&part), ..SweepFilter::default() };
        assert_eq!(like(by_id).await, [theirs]);
        assert!(like(SweepFilter { owner: Some(owner), ..by_id }).await.is_empty(), "of theirs alone");
        assert_eq!(like(SweepFilter { find: "HEIR", ..SweepFilter::default() }).await, [theirs]);

        let clock = Clock::manual(START);
        let begin = async |new: &NewSession| {
            let admit = |_: &_| Verdict::Admit { gpus: Vec::new() };
            db.admit(&asking(new.owner), AdmissionMode::Insert(new), &clock, admit).await.unwrap()
        };
        assert_eq!(begin(&at_place(owner, new.id, 1)).await, AdmissionOutcome::Overtaken, "the first one comes first");
        let first = at_place(owner, new.id, 0);
        let job = queued(db, &first).await.job;
        assert_eq!(begin(&at_place(owner, new.id, 0)).await, AdmissionOutcome::Overtaken, "and only once");
        assert_eq!(db.sweep_of_job(job).await.unwrap(), Some((new.id, 0)));
        assert_eq!(db.live_in_sweep(new.id).await.unwrap(), 1);

        let states = [SweepState::Running, SweepState::Paused];
        assert!(db.set_sweep_state(new.id, &states, (SweepState::Paused, "why"), Some(&NOTED)).await.unwrap());
        assert_eq!(begin(&at_place(owner, new.id, 1)).await, AdmissionOutcome::Overtaken, "it is paused");
        let waiting = obstacles(db, &first).await;
        assert!(waiting.sweep_is_paused);
        let found = db.find_sweep(new.id).await.unwrap().unwrap();
        assert_eq!((found.state, &*found.note, found.released), (SweepState::Paused, "why", 1));
        assert!(db.set_sweep_state(new.id, &states, (SweepState::Running, ""), None).await.unwrap());
        // The model that it trains is written with it.
        let mut second = at_place(owner, new.id, 1);
        let attempt = second.job.as_mut().unwrap();
        let trained =
            Model { job: Some(attempt.attempt.job), directory: "/runs/1".to_owned(), ..model(owner, "a", "#1") };
        attempt.model = Some(Box::new((trained.clone(), "{}".to_owned())));
        begun(db, &second).await;
        assert_eq!(db.find_model(trained.id).await.unwrap(), Some(trained.clone()));
        let mut late = second.clone();
        late.id = SessionId::new();
        late.job.as_mut().unwrap().model = Some(Box::new((model(owner, "a", "late"), "{}".to_owned())));
        assert_eq!(begin(&late).await, AdmissionOutcome::Overtaken);
        let of_jobs = db.sweep_models(new.id).await.unwrap();
        assert_eq!(of_jobs, HashMap::from([(trained.job.unwrap(), trained.id)]), "and only with it");
        let jobs = db.sweep_jobs(new.id).await.unwrap();
        assert_eq!(
            jobs.iter().map(|(place, job)| (*place, job.name.as_str())).collect::<Vec<_>>(),
            [(0, "#0"), (1, "#1")]
        );
        let at = async |place| db.sweep_job(new.id, place).await.unwrap().map(|job| job.id);
        assert_eq!((at(0).await, at(1).await, at(2).await), (Some(job), Some(jobs[1].1.id), None));
        assert_eq!(db.sweep_runs(new.id).await.unwrap(), []);
        let read = UnreadAttempt { job, owner, session: first.id, directory: "/home/a/runs".to_owned() };
        db.read_attempt(&read, "/home/a/runs", START).await.unwrap();
        let run = db.run_of_job(job).await.unwrap().unwrap();
        assert_eq!(db.sweep_runs(new.id).await.unwrap(), [(job, run.id, false)]);
        let values = db.sweep_values_of_runs(&[run.id, RunId::new()]).await.unwrap();
        assert_eq!(values, [(run.id, [("lr".to_owned(), "0.1".to_owned())].into())]);
        let over = ReadProgress { complete: true, ..run.reading };
        db.note_reading(run.id, &over, START).await.unwrap();
        assert_eq!(db.sweep_runs(new.id).await.unwrap(), [(job, run.id, true)]);

        assert!(db.end_session(first.id, &exited(START)).await.unwrap());
        assert_eq!(db.live_in_sweep(new.id).await.unwrap(), 1);
        assert_eq!(db.open_sweeps().await.unwrap().len(), 2);
        assert!(!db.remove_sweep(new.id, &NOTED).await.unwrap(), "it has not ended");
        assert!(db.set_sweep_state(new.id, &states, (SweepState::Ended, ""), None).await.unwrap());
        assert!(!db.set_sweep_state(new.id, &states, (SweepState::Running, ""), None).await.unwrap());
        assert_eq!(db.open_sweeps().await.unwrap().iter().map(|one| one.id).collect::<Vec<_>>(), [theirs]);
        assert!(db.remove_sweep(new.id, &NOTED).await.unwrap());
        assert_eq!(db.find_sweep(new.id).await.unwrap(), None);
        assert!(db.find_job(job).await.unwrap().is_some(), "its jobs stay");
        let gone = ended(db, owner, "old").await;
        db.forget_sessions(START.plus_seconds(1), 10).await.unwrap();
        assert_eq!(db.find_sweep(gone).await.unwrap(), None, "it goes by age with its jobs");
        assert_consistent(db).await;
    })
    .await;
}

#[tokio::test]
async fn who_holds_the_queue() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "a").await, add_user(db, "b").await);
        let pause =
            |of_everybody, by: &str| Pause { of_everybody, by: by.to_owned(), note: "why".to_owned(), at: START };
        let noted = Entry { action: "queue.pause", ..NOTED };
        let (own, all) = (pause(false, "a"), pause(true, "root"));
        assert!(db.pause_queue(Some(ada), Some(&own), &noted).await.unwrap());
        assert!(!db.pause_queue(Some(ada), Some(&own), &noted).await.unwrap(), "it is already");
        assert!(db.queue_pauses(Some(bob)).await.unwrap().is_empty());
        assert!(db.pause_queue(None, Some(&all), &noted).await.unwrap());
        assert_eq!(db.queue_pauses(Some(ada)).await.unwrap(), [all.clone(), own]);
        assert_eq!(db.queue_pauses(Some(bob)).await.unwrap(), std::slice::from_ref(&all));
        assert_eq!(db.queue_pauses(None).await.unwrap(), std::slice::from_ref(&all));
        let waits = new_attempt(bob, "waits", None);
        queued(db, &waits).await;
        assert_eq!(obstacles(db, &waits).await.pauses, [all]);
        assert!(db.pause_queue(None, None, &noted).await.unwrap());
        assert!(!db.pause_queue(None, None, &noted).await.unwrap());
        assert!(db.queue_pauses(Some(bob)).await.unwrap().is_empty());
    })
    .await;
}
