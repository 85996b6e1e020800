//! Jobs on both databases: what a submission writes, a further attempt, lists, what people say
//! of a job, its deletion, and as what attempts count.

use lyceum::{
    db::{
        admit::{AdmissionMode, AdmissionOutcome, Cause, NewAttempt, Verdict},
        idempotency::EarlierResult,
        jobs::{DeleteOutcome, JobChange, JobFilter},
        limits_and_usage::Requester,
        quota_table::TableFilter,
        sessions::Filter,
    },
    model::{
        Clock, GroupName, JobId, SessionId, SessionState,
        hardware::{Hardware, Stretch},
        job::Visibility,
        quota::Period,
    },
};

use super::{
    BY, START, add_user, asking, begun, ended_job, exited, new_attempt, on_both, running, whole::assert_consistent,
};

fn all() -> JobFilter<'static> {
    JobFilter { limit: 10, ..JobFilter::default() }
}

#[tokio::test]
async fn a_job_and_its_attempts() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let mut new = new_attempt(owner, "train", None);
        new.idempotency = Some(("key".to_owned(), "hash".to_owned()));
        let first = begun(db, &new).await;
        let job = db.find_job(first.job).await.unwrap().unwrap();
        assert_eq!((job.name.as_str(), job.attempt, job.owner, &*job.owner_name), ("train", 1, owner, "a"));
        assert_eq!((job.latest.id, job.latest.job, job.latest.state), (new.id, Some(first), SessionState::Queued));
        assert_eq!((job.visibility, job.starred, job.tags.len()), (Visibility::Private, false, 0));
        let task = db.job_task(first.job).await.unwrap().unwrap();
        assert!(matches!(&new.job.as_ref().unwrap().cause, Cause::Submitted(submitted) if **submitted == task));

        // Its key leads to the job, not to the attempt.
        let clock = Clock::manual(START);
        let again =
            db.admit(&asking(owner), AdmissionMode::Insert(&new), &clock, |_| panic!("it is not decided again")).await;
        let earlier = EarlierResult { request_hash: "hash".to_owned(), created_id: first.job.to_string() };
        assert_eq!(again.unwrap(), AdmissionOutcome::Repeated(earlier));

        // A further attempt only when the latest has ended, and only one.
        let second = new_attempt(owner, "train", Some(first));
        let admit = |_: &_| Verdict::Admit { gpus: Vec::new() };
        assert_eq!(
            db.admit(&asking(owner), AdmissionMode::Insert(&second), &clock, admit).await.unwrap(),
            AdmissionOutcome::Overtaken
        );
        assert!(db.end_session(new.id, &exited(START)).await.unwrap());
        begun(db, &second).await;
        let third = new_attempt(owner, "train", Some(first));
        assert_eq!(
            db.admit(&asking(owner), AdmissionMode::Insert(&third), &clock, admit).await.unwrap(),
            AdmissionOutcome::Overtaken
        );
        let orphans = new_attempt(add_user(db, "b").await, "train", Some(first));
        let asked = asking(orphans.owner);
        assert_eq!(
            db.admit(&asked, AdmissionMode::Insert(&orphans), &clock, admit).await.unwrap(),
            AdmissionOutcome::Overtaken
        );
        let attempts = db.job_attempts(first.job).await.unwrap();
        assert_eq!(attempts.iter().map(|one| one.id).collect::<Vec<_>>(), [second.id, new.id]);
        assert_eq!(db.find_job(first.job).await.unwrap().unwrap().latest.id, second.id);

        // "running" is said in the words of a job.
        assert!(db.begin_start(second.id, START).await.unwrap());
        assert!(db.mark_running(second.id, START, START.plus_seconds(60)).await.unwrap());
        let last = db.session_events(second.id, 0).await.unwrap().pop().unwrap();
        assert_eq!((last.state, last.message.as_str()), (SessionState::Running, "Program started"));

        assert_eq!(db.delete_job(first.job, BY).await.unwrap(), DeleteOutcome::Live);
        assert!(db.end_session(second.id, &exited(START)).await.unwrap());
        assert_eq!(db.delete_job(first.job, BY).await.unwrap(), DeleteOutcome::Done);
        assert_eq!(db.delete_job(first.job, BY).await.unwrap(), DeleteOutcome::Missing);
        assert_eq!(db.find_job(first.job).await.unwrap(), None);
        assert_eq!(db.job_task(first.job).await.unwrap(), None);
        assert!(db.find_session(second.id).await.unwrap().is_some(), "what it held is still known");
        assert_consistent(db).await;
    })
    .await;
}

#[tokio::test]
async fn lists_of_jobs() {
    on_both(async |house| {
        let db = &house.db;
        let (owner, other) = (add_user(db, "a").await, add_user(db, "b").await);
        let old = ended_job(db, owner, "ResNet 50").await.job;
        let live = begun(db, &new_attempt(owner, "mnist_100%", None)).await.job;
        let theirs = ended_job(db, other, "resnet 18").await.job;
        let listed = async |filter: JobFilter<'_>| {
            db.list_jobs(filter).await.unwrap().into_iter().map(|job| job.id).collect::<Vec<JobId>>()
        };
        let mine = JobFilter { owner: Some(owner), ..all() };
        assert_eq!(listed(all()).await, [theirs, live, old]);
        assert_eq!(listed(mine).await, [live, old]);
        assert_eq!(listed(JobFilter { reader: Some(owner), ..all() }).await, [live, old], "the other one is private");
        assert_eq!(listed(JobFilter { limit: 1, ..mine }).await, [live]);
        assert_eq!(listed(JobFilter { before: Some(live), ..mine }).await, [old]);
        assert_eq!(listed(JobFilter { live_only: true, ..mine }).await, [live]);
        assert_eq!(listed(JobFilter { state: Some(SessionState::Ended), ..all() }).await, [theirs, old]);
        assert_eq!(listed(JobFilter { find: "resnet", ..all() }).await, [theirs, old]);
        assert_eq!(listed(JobFilter { find: "0%", ..all() }).await, [live]);
        assert_eq!(listed(JobFilter { find: "\0", ..all() }).await, Vec::<JobId>::new());

        let mut asked = new_attempt(owner, "predict", None);
        if let Some(NewAttempt { cause: Cause::Submitted(task), .. }) = &mut asked.job {
            task.is_helper = true;
        }
        let helper = begun(db, &asked).await.job;
        assert!(db.find_job(helper).await.unwrap().unwrap().is_helper);
        for filter in [mine, JobFilter { find: "predict", ..all() }, JobFilter { live_only: true, ..mine }] {
            assert!(!listed(filter).await.contains(&helper), "it is not asked for: {filter:?}");
            assert!(listed(JobFilter { with_helpers: true, ..filter }).await.contains(&helper), "{filter:?}");
        }
        let part = helper.to_string()[28..].parse().unwrap();
        assert_eq!(listed(JobFilter { id: Some(&part), ..mine }).await, [helper], "by its id it is meant");
        assert!(db.end_session(asked.id, &exited(START)).await.unwrap());
        let tagged = JobChange { tags: Some(vec!["look".to_owned()]), ..JobChange::default() };
        assert!(db.change_job(helper, &tagged).await.unwrap());
        assert_eq!(listed(JobFilter { tag: Some("look"), ..mine }).await, [helper]);
        assert_eq!(db.delete_job(helper, BY).await.unwrap(), DeleteOutcome::Done);
        assert!(db.restore_job(helper, owner, BY).await.unwrap());
        assert_eq!(listed(mine).await, [live, old], "the trash keeps the mark");
        assert_eq!(db.delete_job(helper, BY).await.unwrap(), DeleteOutcome::Done);

        let change = JobChange {
            name: Some("Été".to_owned()),
            notes: Some("# it".to_owned()),
            tags: Some(vec!["vision".to_owned(), "a_b".to_owned()]),
            starred: Some(true),
            visibility: Some(Visibility::Group),
        };
        assert!(db.change_job(old, &change).await.unwrap());
        assert!(!db.change_job(JobId::new(), &change).await.unwrap());
        assert!(db.change_job(old, &JobChange::default()).await.unwrap());
        let job = db.find_job(old).await.unwrap().unwrap();
        assert_eq!((&*job.name, &*job.notes, job.starred, job.visibility), ("Été", "# it", true, Visibility::Group));
        assert_eq!(job.tags, ["vision", "a_b"]);
        assert_eq!(listed(JobFilter { starred: true, ..all() }).await, [old]);
        assert_eq!(listed(JobFilter { find: "éTÉ", ..all() }).await, [old]);
        assert_eq!(listed(JobFilter { tag: Some("a_b"), ..all() }).await, [old]);
        let vision = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        db.add_group(&GroupName::parse("speech").unwrap(), None, BY).await.unwrap();
        let mut charged = new_attempt(owner, "charged", None);
        charged.charged_group = Some(vision);
        let asking = Requester { group: Some(vision), ..asking(owner) };
        let admit = |_: &_| Verdict::Admit { gpus: Vec::new() };
        db.admit(&asking, AdmissionMode::Insert(&charged), &Clock::manual(START), admit).await.unwrap();
        let charged = charged.job.unwrap().attempt.job;
        assert_eq!(listed(JobFilter { group: Some("vision"), ..all() }).await, [charged]);
        for none in ["speech", "Vision", "%", "\0"] {
            assert_eq!(listed(JobFilter { group: Some(none), ..all() }).await, Vec::<JobId>::new(), "{none}");
        }
        for none in ["visio", "vision\",\"a_b", "axb", "%", "\0"] {
            assert_eq!(listed(JobFilter { tag: Some(none), ..all() }).await, Vec::<JobId>::new(), "{none}");
        }
    })
    .await;
}

#[tokio::test]
async fn attempts_count_as_jobs_and_are_no_sessions() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let session = running(db, owner).await;
        let attempt = new_attempt(owner, "train", None);
        begun(db, &attempt).await;
        let counted = |usage: &lyceum::model::quota::Usage| (usage.sessions, usage.light, usage.jobs);
        assert_eq!(counted(&db.usage(&asking(owner), START).await.unwrap().usage), (1, 0, 1));
        assert_eq!(counted(&db.holdings().await.unwrap().all), (1, 0, 1));
        let filter = TableFilter { limit: 10, ..TableFilter::default() };
        let window = Period::default().window(START);
        assert_eq!(counted(&db.quota_table(&filter, window, START).await.unwrap()[0].usage), (1, 0, 1));
        let facts = db.facts(&asking(owner), START).await.unwrap();
        assert_eq!(counted(&facts.sums.usage), (1, 0, 1));

        let both = Filter { limit: 10, ..Filter::default() };
        let ids = async |filter| db.list_sessions(filter).await.unwrap().iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(both).await, [attempt.id, session]);
        assert_eq!(ids(Filter { sessions_only: true, ..both }).await, [session]);

        // A job goes by age with its last attempt.
        assert!(db.end_session(attempt.id, &exited(START)).await.unwrap());
        assert_eq!(db.forget_sessions(START.plus_seconds(1), 10).await.unwrap(), 1);
        assert!(db.list_jobs(all()).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn who_shares_a_group() {
    on_both(async |house| {
        let db = &house.db;
        let (a, b, c) = (add_user(db, "a").await, add_user(db, "b").await, add_user(db, "c").await);
        for (name, members) in [("vision", &[a, b][..]), ("speech", &[c])] {
            let group = db.add_group(&GroupName::parse(name).unwrap(), None, BY).await.unwrap();
            for member in members {
                db.set_member(group, *member, true, BY).await.unwrap();
            }
        }
        assert!(db.share_a_group(a, b).await.unwrap());
        let job = ended_job(db, a, "shared").await.job;
        let sees = async |reader| {
            let filter = JobFilter { reader: Some(reader), owner: Some(a), ..all() };
            db.list_jobs(filter).await.unwrap().len()
        };
        for (visibility, seen) in
            [(Visibility::Private, [1, 0, 0]), (Visibility::Group, [1, 1, 0]), (Visibility::Everybody, [1, 1, 1])]
        {
            let change = JobChange { visibility: Some(visibility), ..JobChange::default() };
            assert!(db.change_job(job, &change).await.unwrap());
            assert_eq!([sees(a).await, sees(b).await, sees(c).await], seen, "{visibility}");
        }
        assert!(!db.share_a_group(a, c).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn what_attempts_made_of_the_machine_goes_with_them() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        let new = new_attempt(owner, "train", None);
        let attempt = begun(db, &new).await;
        assert_eq!(db.hardware_of(new.id).await.unwrap(), None);
        let mut hardware = Hardware::default();
        hardware.add(Stretch::of(START, 1.5, 7, std::collections::BTreeMap::new()), 720);
        db.keep_hardware(new.id, &hardware).await.unwrap();
        hardware.add(Stretch::of(START.plus_seconds(60), 0.5, 9, std::collections::BTreeMap::new()), 720);
        db.keep_hardware(new.id, &hardware).await.unwrap();
        assert_eq!(db.hardware_of(new.id).await.unwrap(), Some(hardware.clone()));
        assert_eq!(db.hardware_of_job(attempt.job).await.unwrap(), [(new.id, hardware.clone())]);
        // A workload that is gone has none.
        db.keep_hardware(SessionId::new(), &hardware).await.unwrap();
        assert!(db.end_session(new.id, &exited(START)).await.unwrap());
        assert_eq!(db.forget_sessions(START.plus_seconds(1), 10).await.unwrap(), 1);
        assert_eq!(db.hardware_of(new.id).await.unwrap(), None);
    })
    .await;
}
