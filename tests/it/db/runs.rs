//! Runs on both databases: who sees which, what is due to be read, and what a change leaves alone.

use lyceum::{
    db::{
        Db, Error,
        admit::{Cause, NewAttempt},
        idempotency::IdempotentRequest,
        jobs::{DeleteOutcome, JobChange},
        runs::Filter,
        trash::Expired,
    },
    model::{
        EndReason, GroupName, Run, RunId, SessionId, SessionState, UserId, job,
        run::{ReadProgress, SkippedData, Source, UnreadAttempt, Visibility},
    },
};

use super::{BY, NOTED, START, add_user, begun, execute, new_attempt, number, on_both, running};

pub fn run(owner: UserId, name: &str) -> Run {
    Run {
        id: RunId::new(),
        owner,
        owner_name: String::new(),
        name: name.to_owned(),
        directory: format!("/home/{name}/’ 磁盘"),
        source: Source::External,
        visibility: Visibility::Private,
        group: None,
        reading: ReadProgress::default(),
        created_at: START,
        is_helper: false,
    }
}

async fn names(db: &Db, reader: Option<UserId>, owner: Option<&str>) -> Vec<String> {
    let filter = Filter { reader, owner, find: "", with_helpers: false, before: None, limit: 10 };
    db.list_runs(&filter).await.unwrap().into_iter().map(|run| run.name).collect()
}

#[tokio::test]
async fn runs_are_seen_by_whom_they_are_shared_with() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob, eve) = (add_user(db, "ada").await, add_user(db, "bob").await, add_user(db, "eve").await);
        let vision = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        db.set_member(vision, ada, true, BY).await.unwrap();
        db.set_member(vision, bob, true, BY).await.unwrap();
        assert_eq!(db.group_of_member(ada, "vision").await.unwrap(), Some(vision));
        assert_eq!(db.group_of_member(eve, "vision").await.unwrap(), None);

        let once = IdempotentRequest { user: ada, key: "key", request_hash: "hash" };
        let own = run(ada, "own");
        db.add_run(&own, Some(once), &NOTED).await.unwrap();
        assert!(matches!(db.add_run(&run(ada, "again"), Some(once), &NOTED).await, Err(Error::Unique)));
        let shared = Run { visibility: Visibility::Everybody, ..run(ada, "shared") };
        let ours = Run { visibility: Visibility::Group, group: Some((vision, None)), ..run(ada, "ours") };
        for one in [&shared, &ours] {
            db.add_run(one, None, &NOTED).await.unwrap();
        }
        assert_eq!(names(db, Some(ada), None).await, ["ours", "shared", "own"]);
        assert_eq!(names(db, Some(bob), None).await, ["ours", "shared"]);
        assert_eq!(names(db, Some(eve), None).await, ["shared"]);
        assert_eq!(names(db, None, Some("ada")).await, ["ours", "shared", "own"]);
        assert_eq!(names(db, None, Some("bob")).await, Vec::<String>::new());
        let page =
            Filter { reader: Some(ada), owner: None, find: "", with_helpers: false, before: Some(ours.id), limit: 1 };
        assert_eq!(db.list_runs(&page).await.unwrap()[0].id, shared.id);
        let part: lyceum::model::IdPart = ours.id.to_string()[28..].parse().unwrap();
        let seen_by = async |reader| {
            let all = Filter { reader, owner: None, find: "", with_helpers: false, before: None, limit: 10 };
            db.list_runs_like(&all, Some(&part)).await.unwrap().into_iter().map(|run| run.id).collect::<Vec<_>>()
        };
        assert_eq!(seen_by(Some(bob)).await, [ours.id]);
        assert!(seen_by(Some(eve)).await.is_empty());

        let found = db.find_run(ours.id, Some(bob)).await.unwrap().unwrap();
        assert_eq!(found.group, Some((vision, Some("vision".to_owned()))));
        assert_eq!((found.owner_name.as_str(), &found.directory), ("ada", &ours.directory));
        assert_eq!(db.find_run(ours.id, Some(eve)).await.unwrap(), None);
        assert_eq!(db.find_run(RunId::new(), None).await.unwrap(), None);
        // The group goes: only its owner sees it.
        db.remove_group(vision, BY).await.unwrap();
        assert_eq!(names(db, Some(bob), None).await, ["shared"]);
        assert_eq!(db.find_run(ours.id, Some(ada)).await.unwrap().unwrap().group, Some((vision, None)));

        let rows = number(db, "SELECT COUNT(*) FROM audit").await;
        let named = Run { name: "named".to_owned(), visibility: Visibility::Everybody, ..own.clone() };
        assert!(db.change_run(&named, &NOTED).await.unwrap());
        assert_eq!(names(db, Some(eve), None).await, ["shared", "named"]);
        assert!(db.remove_run(own.id, &NOTED).await.unwrap());
        assert!(!db.remove_run(own.id, &NOTED).await.unwrap());
        assert!(!db.change_run(&named, &NOTED).await.unwrap());
        assert_eq!(number(db, "SELECT COUNT(*) FROM audit").await, rows + 2, "a row for each change, none for none");
        let mut ids = db.run_ids().await.unwrap();
        ids.sort();
        assert_eq!(ids, [own.id, shared.id, ours.id], "what can be restored keeps its points");
        db.empty_trash(Expired::Before(START.plus_seconds(1)), 9).await.unwrap();
        assert_eq!(db.run_ids().await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn one_persons_many_runs_do_not_keep_anothers_waiting() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let ended = |owner, name: &str| {
            let id = SessionId::new();
            let source = Source::Session { id, job: None, state: SessionState::Ended, placement: None };
            Run { source, ..run(owner, name) }
        };
        let live = running(db, ada).await;
        let source = Source::Session { id: live, job: None, state: SessionState::Running, placement: None };
        db.add_run(&Run { source, ..run(ada, "live") }, None, &NOTED).await.unwrap();
        let mut failing = Vec::new();
        for number in 0..8 {
            let one = ended(ada, &format!("ada {number}"));
            db.add_run(&one, None, &NOTED).await.unwrap();
            failing.push(one);
        }
        db.add_run(&ended(bob, "bob"), None, &NOTED).await.unwrap();
        let names = async || {
            let read = db.runs_to_read(START, 3).await.unwrap().into_iter().map(|run| run.name);
            let mut names: Vec<_> = read.collect();
            names.sort();
            names
        };
        assert_eq!(names().await, ["ada 0", "ada 1", "ada 2", "bob", "live"]);
        // What cannot be read waits behind what was not tried yet.
        let reading = ReadProgress { error: Some("It is gone.".to_owned()), ..ReadProgress::default() };
        for one in &failing[..2] {
            db.note_reading(one.id, &reading, START.plus_seconds(10)).await.unwrap();
        }
        assert_eq!(names().await, ["ada 2", "ada 3", "ada 4", "bob", "live"]);
    })
    .await;
}

#[tokio::test]
async fn what_is_due_is_read() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let session = running(db, ada).await;
        let source = |id| Source::Session { id, job: None, state: SessionState::Running, placement: None };
        let (external, live) = (run(ada, "external"), Run { source: source(session), ..run(ada, "live") });
        // Its session was forgotten long ago.
        let gone = Run { source: source(SessionId::new()), ..run(ada, "gone") };
        for one in [&external, &live, &gone] {
            db.add_run(one, None, &NOTED).await.unwrap();
        }
        let due = async |seconds| {
            let mut runs = db.runs_to_read(START.plus_seconds(seconds), 5).await.unwrap();
            runs.sort_by_key(|run| run.id);
            runs.into_iter().map(|run| (run.name, run.source)).collect::<Vec<_>>()
        };
        let found = due(0).await;
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["external", "live", "gone"]);
        let Source::Session { id, state, .. } = &found[1].1 else { panic!("it is a session's") };
        assert_eq!((*id, *state), (session, SessionState::Running));
        assert!(found[2].1.is_over() && !found[1].1.is_over() && !found[0].1.is_over());

        let skipped = SkippedData { damaged: 3, unreadable: vec!["a: no".to_owned()], ..SkippedData::default() };
        let reading = ReadProgress {
            complete: true,
            points: 12,
            curves: 2,
            read_at: Some(START),
            grown_at: Some(START.plus_seconds(-1)),
            error: Some("It’s gone.".to_owned()),
            skipped,
        };
        for one in [&external, &gone] {
            db.note_reading(one.id, &reading, START.plus_seconds(60)).await.unwrap();
        }
        assert_eq!(db.find_run(external.id, None).await.unwrap().unwrap().reading, reading);
        assert_eq!(due(0).await.len(), 1, "what is complete is not read again");
        assert_eq!(due(60).await.len(), 2);
        let ending = lyceum::db::sessions::Ending {
            reason: EndReason::Exited,
            exit_code: Some(0),
            signal: None,
            at: START,
            detail: String::new(),
        };
        assert!(db.end_session(session, &ending).await.unwrap());
        assert!(due(0).await[0].1.is_over());
    })
    .await;
}

#[tokio::test]
async fn a_jobs_run_follows_its_attempts_and_is_seen_like_the_job() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let mut new = new_attempt(ada, "train", None);
        new.spec.log_directory = Some("runs/train".to_owned());
        let first = begun(db, &new).await;
        let silent = begun(db, &new_attempt(ada, "silent", None)).await;
        let unread = db.unread_attempts(SessionId::first()).await.unwrap();
        let expected =
            UnreadAttempt { job: first.job, owner: ada, session: new.id, directory: "runs/train".to_owned() };
        assert_eq!(unread, std::slice::from_ref(&expected), "one that names no directory is not read");
        assert_eq!(db.unread_attempts(new.id).await.unwrap(), [], "only those behind it");
        // One that is damaged says what it can, and hides nobody else's.
        execute(db, &format!("UPDATE sessions SET spec = '{{' WHERE job_id = '{}'", silent.job)).await;
        assert_eq!(db.unread_attempts(SessionId::first()).await.unwrap(), std::slice::from_ref(&expected));
        assert_eq!(db.run_of_job(first.job).await.unwrap(), None);
        db.read_attempt(&expected, "/home/ada/runs/train", START).await.unwrap();
        assert_eq!(db.unread_attempts(SessionId::first()).await.unwrap(), []);
        let run = db.run_of_job(first.job).await.unwrap().unwrap();
        assert_eq!((run.name.as_str(), run.directory.as_str()), ("train", "/home/ada/runs/train"));
        assert_eq!((run.source.job(), run.source.is_over()), (Some(first.job), false));

        // It is complete, and goes on with the next attempt.
        let reading = ReadProgress { complete: true, points: 3, ..ReadProgress::default() };
        db.note_reading(run.id, &reading, START).await.unwrap();
        assert!(db.end_session(new.id, &super::exited(START)).await.unwrap());
        let mut second = new_attempt(ada, "train", Some(first));
        second.spec.log_directory = Some("runs/train".to_owned());
        begun(db, &second).await;
        let again = db.unread_attempts(SessionId::first()).await.unwrap().remove(0);
        assert_eq!(again.session, second.id);
        db.read_attempt(&again, "/home/ada/runs/train", START).await.unwrap();
        let after = db.run_of_job(first.job).await.unwrap().unwrap();
        assert_eq!((after.id, after.reading.complete, after.reading.points), (run.id, false, 3));
        assert!(db.runs_to_read(START, 5).await.unwrap().iter().any(|one| one.id == run.id));

        let vision = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
        for user in [ada, bob] {
            db.set_member(vision, user, true, BY).await.unwrap();
        }
        let sees = async |user| db.find_run(run.id, Some(user)).await.unwrap().is_some();
        assert!(sees(ada).await && !sees(bob).await);
        for (visibility, is_seen) in
            [(job::Visibility::Group, true), (job::Visibility::Private, false), (job::Visibility::Everybody, true)]
        {
            let change = JobChange { visibility: Some(visibility), ..JobChange::default() };
            db.change_job(first.job, &change).await.unwrap();
            assert_eq!(sees(bob).await, is_seen, "{visibility}");
            let listed = db
                .list_runs(&Filter {
                    reader: Some(bob),
                    owner: None,
                    find: "",
                    with_helpers: false,
                    before: None,
                    limit: 9,
                })
                .await
                .unwrap();
            let listed: Vec<_> = listed.into_iter().map(|run| (run.id, run.visibility.as_str())).collect();
            assert_eq!(listed, if is_seen { vec![(run.id, visibility.as_str())] } else { vec![] }, "{visibility}");
        }
        // The run of a helper job is listed where it is asked for.
        let mut helper = new_attempt(ada, "predict", None);
        helper.spec.log_directory = Some("runs/predict".to_owned());
        if let Some(NewAttempt { cause: Cause::Submitted(task), .. }) = &mut helper.job {
            task.is_helper = true;
        }
        begun(db, &helper).await;
        let unread = db.unread_attempts(second.id).await.unwrap().remove(0);
        db.read_attempt(&unread, "/home/ada/runs/predict", START).await.unwrap();
        for (with_helpers, count) in [(false, 1), (true, 2)] {
            for reader in [None, Some(ada)] {
                let all = Filter { reader, owner: None, find: "", with_helpers, before: None, limit: 9 };
                let listed = db.list_runs(&all).await.unwrap();
                assert_eq!((listed.len(), listed[0].is_helper), (count, with_helpers), "{reader:?}");
            }
        }
        // With the job its run goes.
        assert_eq!(db.remove_runs_without_job().await.unwrap(), []);
        assert!(db.end_session(second.id, &super::exited(START)).await.unwrap());
        assert_eq!(db.delete_job(first.job, BY).await.unwrap(), DeleteOutcome::Done);
        db.read_attempt(&again, "/home/ada/runs/train", START).await.unwrap();
        assert_eq!(db.find_run(run.id, None).await.unwrap(), None);
        assert_eq!(db.remove_runs_without_job().await.unwrap(), []);
        assert!(db.run_ids().await.unwrap().contains(&run.id), "its points are kept");
        assert_eq!(db.run_of_job(silent.job).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn digests_are_kept_and_go_with_their_run() {
    on_both(async |house| {
        let db = &house.db;
        let ada = add_user(db, "ada").await;
        let (one, other) = (run(ada, "one"), run(ada, "other"));
        for run in [&one, &other] {
            db.add_run(run, None, &NOTED).await.unwrap();
        }
        db.keep_digest(one.id, 7, "old").await.unwrap();
        db.keep_digest(one.id, 9, "{\"ü\": 1}").await.unwrap();
        // One that is gone meanwhile has none.
        db.keep_digest(RunId::new(), 9, "{}").await.unwrap();
        assert_eq!(number(db, "SELECT COUNT(*) FROM run_digests").await, 1);
        let ids = [one.id, other.id];
        assert_eq!(db.digest_revisions(&ids).await.unwrap(), [(one.id, 9)]);
        assert_eq!(db.digests(&ids).await.unwrap(), [(one.id, 9, "{\"ü\": 1}".to_owned())]);
        assert_eq!(db.digests(&[]).await.unwrap(), []);
        // More than are asked for in one statement.
        let many: Vec<RunId> = (0..450).map(|_| RunId::new()).chain(ids).collect();
        assert_eq!(db.digest_revisions(&many).await.unwrap().len(), 1);
        db.remove_run(one.id, &NOTED).await.unwrap();
        assert_eq!(number(db, "SELECT COUNT(*) FROM run_digests").await, 0);
    })
    .await;
}
