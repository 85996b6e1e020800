//! The trash: what is deleted is in no list, and comes back as it was, on both databases.

use lyceum::{
    db::{
        jobs::{DeleteOutcome, JobChange, JobFilter},
        runs::Filter,
        trash::{Emptied, Expired, TrashSize, TrashedId},
    },
    model::{SessionId, run::UnreadAttempt},
};

use super::{BY, NOTED, START, add_user, ended_job, on_both, runs::run};

#[tokio::test]
async fn a_job_comes_back_as_it_was() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let job = ended_job(db, ada, "ResNet").await.job;
        let change = JobChange {
            tags: Some(vec!["vision".to_owned()]),
            notes: Some("**good**".to_owned()),
            starred: Some(true),
            ..JobChange::default()
        };
        assert!(db.change_job(job, &change).await.unwrap());
        let before = db.find_job(job).await.unwrap().unwrap();
        let unread = UnreadAttempt { job, owner: ada, session: before.latest.id, directory: "runs".to_owned() };
        db.read_attempt(&unread, "/home/ada/runs", START).await.unwrap();
        let its_run = db.run_of_job(job).await.unwrap().unwrap();

        assert_eq!(db.delete_job(job, BY).await.unwrap(), DeleteOutcome::Done);
        let all = JobFilter { limit: 9, ..JobFilter::default() };
        assert_eq!(db.list_jobs(JobFilter { tag: Some("vision"), ..all }).await.unwrap(), []);
        assert_eq!(db.list_jobs(JobFilter { find: "resn", ..all }).await.unwrap(), []);
        assert_eq!(db.run_of_job(job).await.unwrap(), None);
        let trash = db.trash_of(ada, 9).await.unwrap();
        assert_eq!(
            trash.iter().map(|one| (one.what, one.name.as_str())).collect::<Vec<_>>(),
            [(TrashedId::Job(job), "ResNet")]
        );
        assert_eq!(db.trash_size(ada).await.unwrap(), TrashSize { jobs: 1, runs: 0 }, "the run goes with its job");
        assert_eq!(db.trash_of(bob, 9).await.unwrap(), []);

        assert!(!db.restore_job(job, bob, BY).await.unwrap(), "it is not Bob's");
        assert!(!db.restore_run(its_run.id, ada, BY).await.unwrap(), "it comes back with its job");
        assert!(db.restore_job(job, ada, BY).await.unwrap());
        assert!(!db.restore_job(job, ada, BY).await.unwrap(), "once");
        assert_eq!(db.find_job(job).await.unwrap().unwrap(), before);
        assert_eq!(db.run_of_job(job).await.unwrap().unwrap(), its_run);
        assert_eq!(
            db.list_jobs(JobFilter { tag: Some("vision"), ..all }).await.unwrap(),
            std::slice::from_ref(&before)
        );
        assert_eq!(db.list_jobs(JobFilter { find: "resn", ..all }).await.unwrap(), [before]);
        assert_eq!(db.trash_size(ada).await.unwrap(), TrashSize::default());
    })
    .await;
}

#[tokio::test]
async fn what_a_job_waited_for_comes_back_too() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let first = ended_job(db, ada, "first").await;
        super::holds::following(db, ada, first).await;
        let next = db.list_jobs(JobFilter { limit: 1, ..JobFilter::default() }).await.unwrap().remove(0);
        assert!(db.end_session(next.latest.id, &super::exited(START)).await.unwrap());
        let needed = async || super::number(db, "SELECT COUNT(*) FROM job_dependencies").await;
        let before = needed().await;
        assert!(before > 0);
        assert_eq!(db.delete_job(next.id, BY).await.unwrap(), DeleteOutcome::Done);
        assert_eq!(needed().await, 0);
        assert!(db.restore_job(next.id, ada, BY).await.unwrap());
        assert_eq!(needed().await, before);
    })
    .await;
}

#[tokio::test]
async fn a_run_comes_back_until_the_trash_is_emptied() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let (one, other) = (run(ada, "one"), run(ada, "other"));
        for run in [&one, &other] {
            db.add_run(run, None, &NOTED).await.unwrap();
            assert!(db.remove_run(run.id, &NOTED).await.unwrap());
            assert!(!db.remove_run(run.id, &NOTED).await.unwrap());
        }
        let listed = async || {
            let all = Filter { reader: None, owner: None, find: "", with_helpers: false, before: None, limit: 9 };
            db.list_runs(&all).await.unwrap().into_iter().map(|run| run.id).collect::<Vec<_>>()
        };
        assert_eq!(listed().await, []);
        assert!(!db.restore_run(one.id, bob, BY).await.unwrap());
        assert!(db.restore_run(one.id, ada, BY).await.unwrap());
        assert_eq!(listed().await, [one.id]);
        assert_eq!(db.trash_size(ada).await.unwrap(), TrashSize { jobs: 0, runs: 1 });

        assert_eq!(db.empty_trash(Expired::Before(START), 9).await.unwrap(), Emptied::default(), "it is not old");
        assert_eq!(db.empty_trash(Expired::Of(bob, BY), 9).await.unwrap(), Emptied::default());
        let emptied = db.empty_trash(Expired::Of(ada, BY), 9).await.unwrap();
        assert_eq!(emptied, Emptied { runs: vec![other.id], ..Emptied::default() });
        assert!(!db.restore_run(other.id, ada, BY).await.unwrap());
        assert_eq!(db.run_ids().await.unwrap(), [one.id]);
        // The attempts of jobs name the logs.
        let job = ended_job(db, ada, "train").await.job;
        let attempts: Vec<SessionId> = db.job_attempts(job).await.unwrap().iter().map(|one| one.id).collect();
        assert_eq!(db.delete_job(job, BY).await.unwrap(), DeleteOutcome::Done);
        let emptied = db.empty_trash(Expired::Before(START.plus_seconds(1)), 9).await.unwrap();
        assert_eq!(emptied, Emptied { jobs: 1, attempts, runs: Vec::new() });
    })
    .await;
}
